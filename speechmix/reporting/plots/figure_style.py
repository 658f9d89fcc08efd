"""Share colours, sizes, titles, axes, legends and labels of units among all figures.

Nothing here changes the global state of matplotlib: a user's style stays as it is. Names are drawn
as text: "$" in a word or a model's name is a letter, not mathematics. Labels of words are turned or thinned so
that they do not overlap; frames are labelled in seconds.
"""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache, partial
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.markers import CARETLEFT
from matplotlib.ticker import MaxNLocator

from ...files.whole_files import whole_file
from ...inputs.words.spans import Span
from ...mixing.maps.measure_registry import measure_label
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


_PNG_DPI = 120
# The fastest level takes a third of the time, for a tenth more bytes.
_PNG_OPTIONS: dict[str, Any] = {"format": "png", "pil_kwargs": {"compress_level": 1}}


def png_bytes(figure: Figure) -> bytes:
    """Return the figure as the bytes of a PNG file."""
    buffer = BytesIO()
    figure.savefig(buffer, dpi=_PNG_DPI, **_PNG_OPTIONS)
    return buffer.getvalue()


def fix_layout(figure: Figure) -> None:
    """Lay out a figure for good: to save it then takes a third of the time, in every format.

    As long as a figure has a layout engine, each `savefig` lays it out and draws it twice.
    """
    engine, dpi = figure.get_layout_engine(), figure.dpi
    if engine is not None:
        figure.dpi = _PNG_DPI  # widths of letters depend on it a little
        engine.execute(figure)
        figure.dpi = dpi
    figure.set_layout_engine(None)


def write_figure(figure: Figure, path: Path, **options: Any) -> None:
    """Write a figure as PNG, PDF or SVG, whole or not at all; options as for `savefig`.

    The same figure gives the same bytes: no date is written into it.
    """
    file_format = path.suffix.removeprefix(".")
    metadata = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(file_format, {})
    options = {"format": file_format, "metadata": metadata, **options}
    with whole_file(path) as part_path:
        figure.savefig(part_path, **options | (_PNG_OPTIONS if file_format == "png" else {}))


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


def choose_spaced(
    positions: Sequence[float], min_gap: float, *, preferred: Collection[int] = ()
) -> list[int]:
    """Choose positions that are at least `min_gap` apart, `preferred` before the others; return their
    indices.

    Examples
    --------
    >>> choose_spaced([0, 1, 2, 3, 4], 2), choose_spaced([0, 1, 2, 3, 4], 2, preferred=[1])
    ([0, 2, 4], [1, 3])
    """
    spaced_indices: list[int] = []
    for index in [*preferred, *(i for i in range(len(positions)) if i not in preferred)]:
        if all(
            abs(positions[index] - positions[other]) >= min_gap - 1e-9 for other in spaced_indices
        ):
            spaced_indices.append(index)
    return sorted(spaced_indices)


def _unit_label(span: Span, max_letters: int = 22) -> str:
    """Return the label of a unit; its position if it has none."""
    return shorten_text(span.label, max_letters) or str(span.start)


def axis_names(mixing_map: MixingMap) -> tuple[str, str]:
    """Name what a column and a row of a map are.

    Its row p is labelled with token p + 1, which its state predicts; that of a text decoder with
    the token that it holds.

    Examples
    --------
    >>> fed = (Span(0, 1, "<s>", "special"), Span(1, 2, "les", "token", 0))
    >>> target_kind = (Span(0, 1, "les", "token", 0), Span(1, 2, "livres", "token", 1))
    >>> axis_names(MixingMap(np.ones((1, 2, 2)), target_kind, fed, "attention", "decoder", (0,)))
    ('input token (source)', 'predicted token (target)')
    >>> axis_names(MixingMap(np.ones((1, 2, 2)), fed, fed, "attention", "decoder", (0,)))
    ('source', 'target')
    """
    label_by_position = {span.start: span.label for span in mixing_map.sources}
    predicts = any(
        label_by_position.get(span.start, span.label) != span.label for span in mixing_map.targets
    )
    generates = mixing_map.stack in ("cross", "composed") or (
        mixing_map.stack == "decoder" and predicts
    )
    if not generates:
        return "source", "target"
    target_kind, source_kind = (
        _unit_kind(side) for side in (mixing_map.targets, mixing_map.sources)
    )
    has_times = all(span.onset is not None for span in mixing_map.sources)
    column = (
        f"input {target_kind}"
        if mixing_map.stack == "decoder"
        else f"{source_kind} of the audio"
        if has_times
        else "audio or earlier token"
        if mixing_map.stack == "composed"
        else "input"
    )
    return f"{column} (source)", f"predicted {target_kind} (target)"


def _unit_kind(spans: Sequence[Span]) -> str:
    """Name the kind of units, in a word."""
    kinds = {span.kind for span in spans}
    return next(
        (
            kind
            for kind in ("frame", "phone", "syllable", "word")
            if kinds <= {kind, "silence", "padding"}
        ),
        "token",
    )


def label_units(
    ax: Axes,
    side: str,
    spans: Sequence[Span],
    *,
    inches: float,
    max_letters: int = 22,
    highlight: Mapping[int, str] | None = None,
    highlighted_units: Mapping[int, str] | None = None,
) -> str:
    """Label the units of one side ("x" or "y") of a map; return the unit of the axis.

    That is "time (s)", "frame", or "" for words. Labels are turned or thinned by the length of the
    axis (`inches`), and have at most `max_letters` letters. `highlight` maps words,
    `highlighted_units` single units to a colour of bold labels, which go before all others where
    labels are thinned; single units go first.
    """
    set_ticks = ax.set_xticks if side == "x" else ax.set_yticks
    if all(span.kind == "frame" for span in spans) and _is_contiguous(spans):
        return _label_frames(set_ticks, spans, inches)
    highlight, highlighted_units = highlight or {}, highlighted_units or {}
    highlighted_indices = [
        i for word in highlight for i, span in enumerate(spans) if span.word == word
    ]
    labelled_indices = choose_spaced(
        range(len(spans)),
        LINE_PITCH * len(spans) / inches,
        preferred=list(dict.fromkeys([*highlighted_units, *highlighted_indices])),
    )
    labels = [_unit_label(spans[i], max_letters) for i in labelled_indices]
    is_flat = side == "y" or _fits_flat(labels, inches)
    set_ticks(
        [i + 0.5 for i in labelled_indices],
        labels,
        size=TICK_SIZE,
        rotation=0 if is_flat else 90,
        parse_math=False,
    )
    for tick, text in zip(
        labelled_indices,
        (ax.get_xticklabels() if side == "x" else ax.get_yticklabels()),
        strict=True,
    ):
        word = spans[tick].word
        if tick in highlighted_units:
            text.set(color=highlighted_units[tick], fontweight="bold")
        elif word is not None and word in highlight:
            text.set(color=highlight[word], fontweight="bold")
        elif spans[tick].kind in ("silence", "padding", "special"):
            text.set(color="0.45")
    return ""


def _fits_flat(labels: Sequence[str], inches: float) -> bool:
    """Whether labels fit side by side on an axis of this length."""
    return max(map(len, labels)) * LETTER_WIDTH + 0.04 <= inches / len(labels)


@cache
def _label_renderer() -> Any:
    from matplotlib.backends.backend_agg import RendererAgg

    make_renderer: Any = RendererAgg
    return make_renderer(1, 1, 72)  # so that a pixel is a point


def text_inches(labels: Iterable[str]) -> float:
    """Measure the widest of some tick labels, in the bold letters of cue and target."""
    font, measure = (
        FontProperties(size=TICK_SIZE, weight="bold"),
        _label_renderer().get_text_width_height_descent,
    )
    return max(float(measure(label, font, ismath=False)[0]) / 72 for label in labels)


def label_inches(
    spans: Sequence[Span],
    *,
    max_letters: int = 22,
    inches: float | None = None,
    is_measured: bool = False,
) -> float:
    """Compute the inches that tick labels take beside or below their axis: estimated from the number of
    letters, or measured, where no layout engine makes room."""
    if all(span.kind == "frame" for span in spans):
        return 0.3
    labels = [_unit_label(span, max_letters) for span in spans]
    if inches is not None and _fits_flat(labels, inches):
        return 0.2
    widest = text_inches(labels) if is_measured else max(map(len, labels)) * LETTER_WIDTH
    return widest + 0.1


def _is_contiguous(spans: Sequence[Span]) -> bool:
    return all(span.stop == next_span.start for span, next_span in itertools.pairwise(spans))


def _span_times(span: Span) -> tuple[float | None, float | None]:
    return span.onset, span.offset


def _label_frames(set_ticks: Callable[..., object], spans: Sequence[Span], inches: float) -> str:
    """Label round seconds (frame numbers where times are unknown) at the frames that they fall
    into."""
    onsets, offsets = (
        [time for time in times if time is not None]
        for times in zip(*map(_span_times, spans), strict=True)
    )
    has_times = len(onsets) == len(offsets) == len(spans)
    edges = (
        [*onsets, offsets[-1]]
        if has_times
        else [*(float(span.start) for span in spans), float(spans[-1].stop)]
    )
    locator = MaxNLocator(
        max(2, math.floor(inches / 0.45)), integer=not has_times, steps=[1, 2, 5, 10]
    )
    ticks = [
        tick for tick in locator.tick_values(edges[0], edges[-1]) if edges[0] <= tick <= edges[-1]
    ]
    set_ticks(
        np.interp(ticks, edges, range(len(edges))), [f"{tick:g}" for tick in ticks], size=TICK_SIZE
    )
    return "time (s)" if has_times else "frame"
