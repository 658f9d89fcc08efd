"""Figures as a page has them: SVG whose ink and paper follow the reader's colour scheme, and a narrow form for small screens.

In: matplotlib figures. Out: bytes of SVG files that need nothing else. Lines keep their colours; what is black or white in
print (axes, words, background) is light and dark on a dark screen. The cells of heat maps are inverted there with their
numbers, hue aside: the strongest cell would be as dark as the paper. A browser that cannot tell shows them as on paper.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..files.names import distinct_file_names

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NIGHT = "night"  # 1 - c, turned by half a circle of hue: light and dark change places, red stays red
_NIGHT_FILTER = (
    f'<filter id="{_NIGHT}" color-interpolation-filters="sRGB"><feColorMatrix type="matrix" values="0.574 -1.430 -0.144 0 1 '
    '-0.426 -0.430 -0.144 0 1 -0.426 -1.430 0.856 0 1 0 0 0 1 0"/></filter>'
)
_CELLS = re.compile(r'<g id="QuadMesh_\d+">.*?</g>', re.DOTALL)
# Colours that matplotlib writes, and what stands for them; then what that is on paper and on a dark screen.
_NAMES = {"#000000": "ink", "#333333": "ink", "#4c4c4c": "soft", "#4d4d4d": "soft", "#e5e5e5": "grid", "#e6e6e6": "grid",
          "#0072b2": "blue"}  # fmt: skip
_ON_PAPER = {
    "on-dark-cell": "#fff",
    "on-light-cell": "#0a0a0a",
    "ink": "#000",
    "soft": "#4d4d4d",
    "grid": "#e6e6e6",
    "blue": "#0072b2",
    "paper": "#fff",
}
_ON_A_DARK_SCREEN = {
    "on-dark-cell": "#0a0a0a",
    "on-light-cell": "#fff",
    "ink": "#e6e6e6",
    "soft": "#b3b3b3",
    "grid": "#3a3d42",
    "blue": "#3d9fd9",
    "paper": "#16181b",
}


def page_svg(figure: Figure) -> bytes:
    """A figure as SVG with letters as text, its colours of paper and ink as variables; the same figure gives the same bytes.

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
    text = re.sub(_CELLS, lambda mesh: mesh[0].replace("#ffffff", "#fffffe"), text)  # a white cell is no paper
    # White areas are paper; white letters stand on dark cells, and are dark where those are light.
    text = re.sub(r'(<(?:path|use)\b[^>]*?style="[^"]*?fill: )#ffffff', r"\1var(--paper)", text)
    for color, name in _NAMES.items():
        text = text.replace(f": {color}", f": var(--{name})")
    for color, name in (("#ffffff", "on-dark-cell"), ("#0a0a0a", "on-light-cell")):
        text = re.sub(rf'(<text\b[^>]*?style="[^"]*?fill: ){color}', rf"\1var(--{name})", text)
    text = re.sub(r'<g id="QuadMesh_\d+"|<image\b', r'\g<0> class="cells"', text)
    night = _NIGHT_FILTER if 'class="cells"' in text else ""
    start, end = text.split(">", 1)
    return f"{start}><style>{_styles()}</style>{night}{end}".encode()


def side_suffixes(sides: Iterable[str]) -> dict[str, str]:
    """Return the end of the file names of each side's figures: nothing for "all", each other side its own.

    Sides are values of a manifest's column, so they may hold any character.

    Examples
    --------
    >>> side_suffixes(["all", "left", "x/../../.."])
    {'all': '', 'left': '_left_cue', 'x/../../..': '_x_cue'}
    """
    stems = distinct_file_names(side for side in map(str, sides) if side != "all")
    return {"all": "", **{side: f"_{stem}_cue" for side, stem in stems.items()}}


def _styles() -> str:
    on_paper, on_screen = (
        "".join(f"--{name}: {color};" for name, color in colors.items()) for colors in (_ON_PAPER, _ON_A_DARK_SCREEN)
    )
    cells = f".cells {{ filter: url(#{_NIGHT}) }}"
    dark = f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {on_screen} }} {cells} }}"
    return f":root {{ {on_paper} fill: var(--ink) }} {dark}"  # what has no colour of its own is black in print
