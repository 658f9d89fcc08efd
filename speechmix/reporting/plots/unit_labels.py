"""Label the units of a map on its axes: words turned or thinned so that they do not overlap, frames
as seconds.

In: the spans of one side and how long the axis is. Out: tick labels, plain text in which "$" is a
letter; cue and target may be highlighted.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from ...inputs.words.spans import Span
from ...mixing.maps.mixing_map import MixingMap
from .figure_style import LETTER_WIDTH, LINE_PITCH, TICK_SIZE, shorten_text


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


def label_inches(
    spans: Sequence[Span], *, max_letters: int = 22, inches: float | None = None
) -> float:
    """Compute the inches that tick labels take beside or below their axis."""
    if all(span.kind == "frame" for span in spans):
        return 0.3
    labels = [_unit_label(span, max_letters) for span in spans]
    if inches is not None and _fits_flat(labels, inches):
        return 0.2
    return max(map(len, labels)) * LETTER_WIDTH + 0.1


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
