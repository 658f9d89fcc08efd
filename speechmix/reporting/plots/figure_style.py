"""Share colours, sizes, titles, axes and legends among all figures.

Nothing here changes the global state of matplotlib: a user's style stays as it is. Names are drawn
as text: "$" in a word or a model's name is a letter, not mathematics.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D
from matplotlib.markers import CARETLEFT
from matplotlib.ticker import MaxNLocator

from ...files.whole_files import whole_file
from ...mixing.maps.measure_facts import measure_label
from ...mixing.maps.mixing_map import MixingMap

TICK_SIZE, LABEL_SIZE, TITLE_SIZE = 7, 8, 9  # points
NARROW_WIDTH = 3.7  # inches: a column of a paper, a phone held upright
LAYER_LABEL = "layer (counted from 0)"
DEPTH_LABEL = "relative depth (0 first layer, 1 last)"
SHARE_LABEL = "share of row (%)"
CUE_LABEL = "cue contribution (%)"
INIT_DASHES: dict[str, Literal["-", "--"]] = {
    "trained": "-",
    "random": "--",
}  # of curves; what is neither is dotted
INIT_LABELS = {"trained": "trained", "random": "untrained"}
LineStyle = dict[str, Any]  # options of `Axes.plot`
legend_line = partial(Line2D, [], [])  # an entry of a legend, without data

# Okabe & Ito 2008: told apart by colour-blind readers. The first two are kept for the words of the
# question.
CUE_COLOR, TARGET_COLOR, CELL_COLOR = "#0072B2", "#D55E00", "#009E73"
ROW_MARKER = CARETLEFT  # beside the deciding row; its tip touches the cells
LINE_COLORS = ("#000000", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#0072B2", "#D55E00")

# Inches that one line of tick labels takes, and about what one letter of it is wide; of titles.
LINE_PITCH, LETTER_WIDTH = 0.115, 0.062
TITLE_PITCH, TITLE_LETTER_WIDTH = 0.15, 0.076


class ShownFigure(Figure):
    """Figure that a notebook displays by itself, without pyplot."""

    def _repr_png_(self) -> bytes:
        return png_bytes(self)


def png_bytes(figure: Figure) -> bytes:
    """Return the figure as the bytes of a PNG file."""
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=120)
    return buffer.getvalue()


def write_figure(figure: Figure, path: Path, **options: Any) -> None:
    """Write a figure as PNG, PDF or SVG, whole or not at all; options as for `savefig`.

    The same figure gives the same bytes: no date is written into it.
    """
    file_format = path.suffix.removeprefix(".")
    metadata = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(file_format, {})
    with whole_file(path) as part_path:
        figure.savefig(part_path, format=file_format, metadata=metadata, **options)


def new_figure(width: float, height: float) -> ShownFigure:
    """Make an empty white figure of this size in inches, with a layout in which labels do not
    collide."""
    return ShownFigure(figsize=(width, height), layout="constrained", facecolor="white")


def shorten_text(text: str, max_letters: int = 22) -> str:
    """Shorten text to one line of at most `max_letters` letters.

    Examples
    --------
    >>> shorten_text("anticonstitutionnellement", 12)
    'anticonstit…'
    """
    line = " ".join(str(text).split())
    return line if len(line) <= max_letters else line[: max_letters - 1] + "…"


def wrap_text(text: str, width_inches: float) -> str:
    """Wrap text to lines that fit this width in the size of tick labels."""
    return "\n".join(textwrap.wrap(text, max(int(width_inches / LETTER_WIDTH), 20)))


def wrap_title(text: str, width_inches: float) -> str:
    """Wrap the title of a panel to lines no wider than the panel, so that titles of neighbours stay
    apart."""
    return "\n".join(textwrap.wrap(text, max(int(width_inches / TITLE_LETTER_WIDTH), 10)))


def model_name(name: object) -> str:
    """Return the name of a model; of a local folder only its last part."""
    text = str(name)
    return shorten_text(
        text.rstrip("/\\").replace("\\", "/").rpartition("/")[2] if text[:1] in "/.~" else text, 40
    )


def model_title(provenance: Mapping[str, object]) -> str:
    """Name the model of a map, and say if it is an untrained twin."""
    return model_name(str(provenance["model"])) + (
        " (untrained)" if provenance.get("init") == "random" else ""
    )


def fed_text(provenance: Mapping[str, object], max_letters: int = 80) -> str:
    """Say who wrote the text that the decoder was fed, and what it is; "" if it is the text of the
    clip."""
    author, text = provenance.get("decoder_text_by"), provenance.get("decoder_text") or ""
    return f"{author}: {shorten_text(str(text), max_letters)}" if author else ""


def map_subtitle(mixing_map: MixingMap) -> str:
    """Name measure and stack of a map, its rollout, and its head if it is of one."""
    steps = mixing_map.provenance.get("steps", [])
    rollout_text = ", rolled out" if any(step.startswith("rollout") for step in steps) else ""
    head_names = [f", {step.removesuffix(' alone')}" for step in steps if step.startswith("head ")]
    return f"{measure_label(mixing_map.measure)}, {mixing_map.stack}{rollout_text}{''.join(head_names)}"


def layer_title(mixing_map: MixingMap, layer: int, name: str = ", strength") -> str:
    """Name a layer and its mixing strength, where that is known."""
    if mixing_map.mixing_strength is None:
        return f"layer {layer}"
    strength = mixing_map.mixing_strength[mixing_map.layers.index(layer)].mean()
    return f"layer {layer}{name} {strength:.2g}"


def style_layer_axis(ax: Axes) -> None:
    """Style an axis of whole layers: a light grid, no box."""
    ax.xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1, steps=[1, 2, 4, 5, 10]))
    style_curve_axis(ax)


def style_curve_axis(ax: Axes) -> None:
    """Style an axis of curves: small ticks, a light grid, no box."""
    ax.tick_params(labelsize=TICK_SIZE, length=2, width=0.6)
    ax.grid(axis="y", color="0.9", linewidth=0.6)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)


def add_legend(
    holder: Figure | SubFigure | Axes,
    handles: Sequence[Artist],
    *,
    columns: int,
    title: str | None = None,
    **options: Any,
) -> None:
    """Add a legend without a frame, in plain text; the title is a note above the entries."""
    legend = holder.legend(
        handles=handles,
        ncols=columns,
        title=title,
        fontsize=TICK_SIZE,
        title_fontsize=TICK_SIZE,
        frameon=False,
        borderaxespad=0.2,
        **options,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)
