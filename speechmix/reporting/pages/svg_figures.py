"""Render figures as SVG that follows the reader's light or dark colour scheme.

In: matplotlib figures. Out: bytes of SVG files that need nothing else. Lines keep their colours;
what is black or white in print (axes, words, background) is light and dark on a dark screen. Cells
with shares take the reversed scale there, zero dark: else the strongest cell would be as dark as
the paper. A browser that cannot tell shows them as on paper.
"""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from ...files.names import distinct_file_names

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_IMAGE_PATTERN = re.compile(r'(<image\b[^>]*?base64,)([^"]*)("[^>]*?/>)')
_COLOR_TOLERANCE = 6  # of 255: how far a colour may be from one of the scale's
_LETTER_CLASSES = {
    "#0a0a0a": "on-light-cell",
    "#fefefe": "on-dark-cell",
}  # as `plots.figure_style` writes them
# Colours that matplotlib writes, and what stands for them; then what that is on paper and on a dark
# screen.
_COLOR_NAMES = {
    "#000000": "ink",
    "#333333": "ink",
    "#4c4c4c": "soft",
    "#4d4d4d": "soft",
    "#e5e5e5": "grid",
    "#e6e6e6": "grid",
    "#0072b2": "blue",
}
_PAPER_COLORS = {
    "on-dark-cell": "#fff",
    "on-light-cell": "#0a0a0a",
    "ink": "#000",
    "soft": "#4d4d4d",
    "grid": "#e6e6e6",
    "blue": "#0072b2",
    "paper": "#fff",
}
_DARK_COLORS = {
    "on-dark-cell": "#0a0a0a",
    "on-light-cell": "#fff",
    "ink": "#e6e6e6",
    "soft": "#b3b3b3",
    "grid": "#3a3d42",
    "blue": "#3d9fd9",
    "paper": "#16181b",
}


def page_svg(figure: Figure) -> bytes:
    """Render a figure as SVG with text as text and colours as variables. The same figure gives the
    same bytes.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> b"@media screen and (prefers-color-scheme: dark)" in page_svg(Figure())
    True
    """
    from matplotlib import rc_context

    buffer = io.StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "page"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(_IMAGE_PATTERN, _add_dark_image, text)
    # White areas are paper; letters on cells are chosen for both scales.
    text = re.sub(r'(<(?:path|use)\b[^>]*?style="[^"]*?fill: )#ffffff', r"\1var(--paper)", text)
    for color, name in _COLOR_NAMES.items():
        text = text.replace(f": {color}", f": var(--{name})")
    for color, name in _LETTER_CLASSES.items():
        text = re.sub(rf'(<text\b[^>]*?style="[^"]*?fill: ){color}', rf"\1var(--{name})", text)
    start, end = text.split(">", 1)
    return f"{start}><style>{_color_styles()}</style>{end}".encode()


def _add_dark_image(image: re.Match[str]) -> str:
    """Return an image of shares twice, for light and for dark screens; other images once."""
    head, content, tail = image.groups()
    reversed_content = _reverse_scale(base64.b64decode(content))
    if reversed_content is None:
        return image[0]
    dark_image = re.sub(
        r' id="[^"]*"', "", f"{head}{base64.b64encode(reversed_content).decode('ascii')}{tail}"
    )
    return f'<g class="paper">{image[0]}</g><g class="screen">{dark_image}</g>'


def _reverse_scale(content: bytes) -> bytes | None:
    """Reverse the colour scale of a PNG of shares; grey for missing values stays. None for other
    colours."""
    from PIL import Image

    from ..plots.map_cells import SHARE_COLORS, color_map

    scale = (255 * color_map(SHARE_COLORS)(np.arange(256))[:, :3]).round()
    with Image.open(io.BytesIO(content)) as picture:
        pixels = np.asarray(picture.convert("RGBA"))
    unique_colors, color_index = np.unique(pixels.reshape(-1, 4), axis=0, return_inverse=True)
    distances = np.abs(unique_colors[:, None, :3] - scale).max(
        axis=-1
    )  # [colours of the image, colours of the scale]
    is_scale_color = distances.min(axis=-1) <= _COLOR_TOLERANCE
    if (
        not is_scale_color[
            (np.ptp(unique_colors[:, :3], axis=-1) > _COLOR_TOLERANCE) & (unique_colors[:, 3] > 0)
        ].all()
        or not is_scale_color.any()
    ):
        return None
    reversed_colors = unique_colors.copy()
    reversed_colors[is_scale_color, :3] = scale[::-1][distances[is_scale_color].argmin(axis=-1)]
    buffer = io.BytesIO()
    Image.fromarray(reversed_colors[color_index.reshape(pixels.shape[:2])]).save(
        buffer, format="PNG"
    )
    return buffer.getvalue()


def side_suffixes(sides: Iterable[str]) -> dict[str, str]:
    """Return the file name suffix of each side's figures; "" for "all".

    Sides are values of a manifest's column, so they may hold any character.

    Examples
    --------
    >>> side_suffixes(["all", "left", "x/../../.."])
    {'all': '', 'left': '_left_cue', 'x/../../..': '_x_cue'}
    """
    stems = distinct_file_names(side for side in map(str, sides) if side != "all")
    return {"all": "", **{side: f"_{stem}_cue" for side, stem in stems.items()}}


def _color_styles() -> str:
    paper, screen = (
        "".join(f"--{name}: {color};" for name, color in colors.items())
        for colors in (_PAPER_COLORS, _DARK_COLORS)
    )
    dark = (
        f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {screen} "
        f"}} .paper {{ display: none }} "
        ".screen { display: inline } }"
    )
    # black in print: what has no colour
    return f":root {{ {paper} fill: var(--ink) }} .screen {{ display: none }} {dark}"
