"""Units of a map on its axes: words turned or thinned so that they do not overlap, frames as round
seconds.

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
from .panels import LETTER_WIDTH, LINE_PITCH, TICK_SIZE, shorten_text


def choose_spaced(
    positions: Sequence[float], gap: float, *, first: Collection[int] = ()
) -> list[int]:
    """Choose positions that are at least `gap` apart, `first` before the others; return their
    indices.

    Examples
    --------
    >>> choose_spaced([0, 1, 2, 3, 4], 2), choose_spaced([0, 1, 2, 3, 4], 2, first=[1])
    ([0, 2, 4], [1, 3])
    """
    placed: list[int] = []
    for index in [*first, *(i for i in range(len(positions)) if i not in first)]:
        if all(abs(positions[index] - positions[other]) >= gap - 1e-9 for other in placed):
            placed.append(index)
    return sorted(placed)


def _unit_label(span: Span, most: int = 22) -> str:
    """What to write beside a unit; its position if it has no label."""
    return shorten_text(span.label, most) or str(span.start)


def side_names(mixing_map: MixingMap) -> tuple[str, str]:
    """What a column and a row of a map are: in a decoder behind an encoder rows are tokens
    *written*, columns tokens *fed*.

    Its row p is labelled with token p + 1, which its state predicts; that of a text decoder with
    the token that it holds.

    Examples
    --------
    >>> fed = (Span(0, 1, "<s>", "special"), Span(1, 2, "les", "token", 0))
    >>> written = (Span(0, 1, "les", "token", 0), Span(1, 2, "livres", "token", 1))
    >>> side_names(MixingMap(np.ones((1, 2, 2)), written, fed, "attention", "decoder", (0,)))
    ('token fed (source)', 'token written (target)')
    >>> side_names(MixingMap(np.ones((1, 2, 2)), fed, fed, "attention", "decoder", (0,)))
    ('source', 'target')
    """
    held = {span.start: span.label for span in mixing_map.sources}
    predicts = any(held.get(span.start, span.label) != span.label for span in mixing_map.targets)
    writes = mixing_map.stack in ("cross", "composed") or (
        mixing_map.stack == "decoder" and predicts
    )
    if not writes:
        return "source", "target"
    written, source = (_kind(side) for side in (mixing_map.targets, mixing_map.sources))
    heard = all(span.onset is not None for span in mixing_map.sources)
    column = (
        f"{written} fed"
        if mixing_map.stack == "decoder"
        else f"{source} heard"
        if heard
        else "source"
    )
    return f"{column} (source)", f"{written} written (target)"


def _kind(spans: Sequence[Span]) -> str:
    """What units are, in a word."""
    kinds = {span.kind for span in spans}
    return next(
        (kind for kind in ("frame", "word") if kinds <= {kind, "silence", "padding"}), "token"
    )


def label_units(
    ax: Axes,
    side: str,
    spans: Sequence[Span],
    *,
    inches: float,
    most: int = 22,
    highlight: Mapping[int, str] | None = None,
    always: Mapping[int, str] | None = None,
) -> str:
    """Write the units of one side of a map on its axis; return what the axis counts ("time (s)",
    "frame"; "" for words).

    Parameters
    ----------
    ax : Axes
    side : {"x", "y"}
    spans : sequence of Span
    inches : float
        Length of the axis, by which labels are turned or thinned.
    most : int
        Letters of a label.
    highlight : mapping of word index to colour, optional
        Labels of these words are bold and coloured; where labels are thinned they go before all
        others.
    always : mapping of unit index to colour, optional
        The same of single units, before those of words.
    """
    set_ticks = ax.set_xticks if side == "x" else ax.set_yticks
    if all(span.kind == "frame" for span in spans) and _contiguous(spans):
        return _label_frames(set_ticks, spans, inches)
    highlight, always = highlight or {}, always or {}
    marked = [i for word in highlight for i, span in enumerate(spans) if span.word == word]
    shown = choose_spaced(
        range(len(spans)),
        LINE_PITCH * len(spans) / inches,
        first=list(dict.fromkeys([*always, *marked])),
    )
    labels = [_unit_label(spans[i], most) for i in shown]
    flat = side == "y" or _lie_flat(labels, inches)
    set_ticks(
        [i + 0.5 for i in shown],
        labels,
        size=TICK_SIZE,
        rotation=0 if flat else 90,
        parse_math=False,
    )
    for tick, text in zip(
        shown, (ax.get_xticklabels() if side == "x" else ax.get_yticklabels()), strict=True
    ):
        word = spans[tick].word
        if tick in always:
            text.set(color=always[tick], fontweight="bold")
        elif word is not None and word in highlight:
            text.set(color=highlight[word], fontweight="bold")
        elif spans[tick].kind in ("silence", "padding", "special"):
            text.set(color="0.45")
    return ""


def _lie_flat(labels: Sequence[str], inches: float) -> bool:
    """Whether labels fit side by side on an axis of this length."""
    return max(map(len, labels)) * LETTER_WIDTH + 0.04 <= inches / len(labels)


def label_room(spans: Sequence[Span], *, most: int = 22, inches: float | None = None) -> float:
    """Inches that tick labels take beside their axis; below it, if its length is given, where they
    may lie flat."""
    if all(span.kind == "frame" for span in spans):
        return 0.3
    labels = [_unit_label(span, most) for span in spans]
    if inches is not None and _lie_flat(labels, inches):
        return 0.2
    return max(map(len, labels)) * LETTER_WIDTH + 0.1


def _contiguous(spans: Sequence[Span]) -> bool:
    return all(before.stop == after.start for before, after in itertools.pairwise(spans))


def _times(span: Span) -> tuple[float | None, float | None]:
    return span.onset, span.offset


def _label_frames(set_ticks: Callable[..., object], spans: Sequence[Span], inches: float) -> str:
    """Round seconds (round frame numbers where times are not known), at the frames they fall
    into."""
    onsets, offsets = (
        [time for time in times if time is not None]
        for times in zip(*map(_times, spans), strict=True)
    )
    timed = len(onsets) == len(offsets) == len(spans)
    edges = (
        [*onsets, offsets[-1]]
        if timed
        else [*(float(span.start) for span in spans), float(spans[-1].stop)]
    )
    locator = MaxNLocator(max(2, math.floor(inches / 0.45)), integer=not timed, steps=[1, 2, 5, 10])
    ticks = [
        tick for tick in locator.tick_values(edges[0], edges[-1]) if edges[0] <= tick <= edges[-1]
    ]
    set_ticks(
        np.interp(ticks, edges, range(len(edges))), [f"{tick:g}" for tick in ticks], size=TICK_SIZE
    )
    return "time (s)" if timed else "frame"
