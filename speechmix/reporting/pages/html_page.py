"""Render the self-contained HTML page of a run.

In: texts, tables, pictures and clips, in order. Out: a string of HTML that needs no network and
allows none (its content security policy names the one script by its hash). Everything is escaped: a
transcript is hostile input.

Render figures as SVG that follows the reader's light or dark colour scheme.

In: matplotlib figures. Out: bytes of SVG files that need nothing else. Lines keep their colours;
what is black or white in print (axes, words, background) is light and dark on a dark screen. Cells
with shares take the reversed scale there, zero dark: else the strongest cell would be as dark as
the paper. A browser that cannot tell shows them as on paper.
"""

from __future__ import annotations

import base64
import hashlib
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np
import pandas as pd

from ...extension import extensions
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


_TEMPLATES_DIR = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class Picture:
    """A figure with a caption: the bytes of a PNG or SVG file, and of one for narrow screens, if
    there is one."""

    image: bytes
    caption: str = ""
    narrow: bytes = b""


class PageCard(Protocol):
    """A card that a macro of ``items.html`` lays out: a clip, or an explanation.

    `kind`, "clip" or "why", is the name of the macro.
    """

    @property
    def kind(self) -> str: ...

    @property
    def name(self) -> str: ...


@dataclass(frozen=True)
class FirstScreen:
    """What a reader sees first: notes, warnings, the answer with its figure, a clip to hear, and
    the words that the page uses, with their explanations."""

    notes: Sequence[str] = ()
    warnings: Sequence[str] = ()
    answer: Sequence[str] = ()
    figure: Picture | None = None
    clip: PageCard | None = None
    words: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class SortableTable:
    """A table whose rows a reader can sort.

    Cells named in `links` lead to that address, such as ``#clip-1``. Columns named in `sort_keys`
    are sorted by these numbers instead of their cells; rows without one (NaN) come last.
    """

    table: pd.DataFrame
    links: Mapping[str, str] = field(default_factory=dict)
    sort_keys: Mapping[str, Sequence[float]] = field(default_factory=dict)


@dataclass(frozen=True)
class TermList:
    """Terms with their explanations, one below the other."""

    terms: Mapping[str, str]


@dataclass(frozen=True)
class PictureSeries:
    """Pictures of one size that a slider shows one at a time, each with its label; the last first."""

    images: Sequence[bytes]
    labels: Sequence[str]
    caption: str = ""


Item: TypeAlias = (
    "str | TermList | pd.DataFrame | SortableTable | Picture | PictureSeries | Figure | PageCard"
)
# A part of the page: (heading, what to show under it).
Part: TypeAlias = "tuple[str, Sequence[Item]]"


_REFERENCE = re.compile(": see “([^”]+)”")  # of an explanation to another part of its page


def _drop_missing_references(page_sections: Sequence[Part]) -> list[Part]:
    """Leave out where an explanation refers to a part that this page does not have."""
    headings = {heading for heading, _ in page_sections}

    def keep_if_there(match: re.Match[str]) -> str:
        return match[0] if match[1] in headings else ""

    def check(item: Item) -> Item:
        if not isinstance(item, TermList):
            return item
        return TermList(
            {term: _REFERENCE.sub(keep_if_there, text) for term, text in item.terms.items()}
        )

    return [(heading, [check(item) for item in items]) for heading, items in page_sections]


def render_page(
    title: str, page_sections: Sequence[Part], *, first: FirstScreen | None = None
) -> str:
    """Render a page as HTML.

    Sections are (heading, items). Items are paragraphs (str), tables (DataFrame, SortableTable),
    figures (Figure, Picture, PictureSeries), clips or explanations (PageCard). Clips are closed,
    and drawn when they are opened; that of `first`, above all sections, is open.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    page_sections = _drop_missing_references(page_sections)
    environment = Environment(
        undefined=StrictUndefined,
        loader=FileSystemLoader(_TEMPLATES_DIR),
        autoescape=True,
        trim_blocks=True,
    )
    parts_by_kind = [
        (heading, [_macro_and_arguments(item) for item in items])
        for heading, items in page_sections
    ]
    kinds = {kind for _, items in parts_by_kind for kind, _ in items}
    assets = [
        tuple(map(extension.read_text, extension.page_assets[kind]))
        for extension in extensions()
        for kind in extension.page_assets
        if kind in kinds
    ]
    script = "\n".join(
        [
            '"use strict";',
            share_colors(),
            *(item_script for _, item_script in assets),
            *(read_template(f"{name}.js") for name in ("maps", "tables", "page")),
        ]
    )
    html = environment.get_template("page.html").render(
        title=title,
        first=first,
        figure=_macro_and_arguments(first.figure)[1] if first and first.figure else None,
        parts=parts_by_kind,
        style=read_template("page.css") + "".join(item_style for item_style, _ in assets),
        script=script,
        script_hash="sha256-"
        + base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii"),
    )
    return html.encode("utf-8", "replace").decode(
        "utf-8"
    )  # half a character, as JSON may hold it, cannot be written


def _macro_and_arguments(item: Item) -> tuple[str, object]:
    """Return the macro that lays an item out, and its argument."""
    from matplotlib.figure import Figure

    if isinstance(item, str):
        return "text", item
    if isinstance(item, TermList):
        return "terms", item.terms
    if isinstance(item, Picture):
        return "image", {
            "image": _data_url(item.image),
            "narrow": _data_url(item.narrow),
            "caption": item.caption,
        }
    if isinstance(item, PictureSeries):
        urls = [_data_url(image) for image in item.images]
        pictures = [list(pair) for pair in zip(item.labels, urls, strict=True)]
        return "series", {"pictures": pictures, "caption": item.caption}
    if isinstance(item, Figure):
        return _macro_and_arguments(Picture(page_svg(item)))
    if isinstance(item, pd.DataFrame):
        return "table", {**sortable_cells(item), "links": {}, "sortable": False}
    if isinstance(item, SortableTable):
        cells = sortable_cells(item.table, item.sort_keys)
        return "table", {**cells, "links": item.links, "sortable": True}
    return item.kind, item


def check_item(item: object) -> None:
    """Raise `TypeError` unless a page can show an item.

    Examples
    --------
    >>> check_item({"a": 1})
    Traceback (most recent call last):
    TypeError: a page shows text, tables (DataFrame) and figures (Figure, Picture), found dict
    """
    from matplotlib.figure import Figure

    item_types = (str, TermList, Picture, PictureSeries, Figure, pd.DataFrame, SortableTable)
    if not isinstance(item, item_types) and not isinstance(getattr(item, "kind", None), str):
        raise TypeError(
            "a page shows text, tables (DataFrame) and figures (Figure, Picture), found "
            f"{type(item).__name__}"
        )


def _data_url(image: bytes) -> str:
    """Return image bytes as a data URL; "" for none."""
    kind = "svg+xml" if image.lstrip().startswith(b"<svg") else "png"
    return f"data:image/{kind};base64,{base64.b64encode(image).decode('ascii')}" if image else ""


def sortable_numbers(table: pd.DataFrame) -> SortableTable:
    """A table with its cells rounded, without empty columns, sorted by its numbers as they are."""
    rounded = round_cells(table)
    rounded = rounded.loc[:, (rounded != "").any()]
    numbers = [str(name) for name in rounded if table[name].dtype.kind == "f"]
    return SortableTable(rounded, sort_keys={name: table[name].tolist() for name in numbers})


def round_cells(table: pd.DataFrame) -> pd.DataFrame:
    """Write numbers with three digits, truth values as words, nothing for what is missing."""

    def write(value: object) -> object:
        if isinstance(value, bool):
            return "yes" if value else "no"
        if isinstance(value, float):
            return "" if value != value else f"{value:.3g}"
        return value

    return table.astype(object).map(write)


def sortable_cells(
    table: pd.DataFrame, sort_keys: Mapping[str, Sequence[float]] | None = None
) -> dict[str, Sequence[object]]:
    """A table as a page has it: columns, which of them are numbers, rows of (has a number to sort
    by, text, that number)."""
    keys = sort_keys or {}
    numeric = [dtype.kind in "iuf" or name in keys for name, dtype in table.dtypes.items()]
    sorted_by = table.assign(**{name: list(values) for name, values in keys.items()})
    rows = [
        [
            (is_number, _format_cell(value), _sort_key(key))
            for is_number, value, key in zip(numeric, row, key_row, strict=True)
        ]
        for row, key_row in zip(
            table.itertuples(index=False), sorted_by.itertuples(index=False), strict=True
        )
    ]
    return {"columns": [str(name) for name in table.columns], "numeric": numeric, "rows": rows}


def _format_cell(value: object) -> str:
    if isinstance(value, float):
        return "" if value != value else f"{value:.1f}"  # NaN: nothing to say
    return str(value)


def _sort_key(value: object) -> str:
    """Return the key that the page sorts a cell by."""
    return (
        ""
        if value != value
        else repr(float(value))
        if isinstance(value, (int, float))
        else str(value)
    )


def read_template(name: str) -> str:
    """Read a file of the templates folder."""
    return (_TEMPLATES_DIR / name).read_text(encoding="utf-8")


def share_colors() -> str:
    """Return the colour map of shares as a line of script: 256 hexadecimal colours."""
    from matplotlib.colors import to_hex

    from ..plots.map_cells import SHARE_COLORS, color_map

    hex_colors = "".join(
        to_hex(color_map(SHARE_COLORS)(index)).removeprefix("#") for index in range(256)
    )
    return f'const COLORS = "{hex_colors}";'
