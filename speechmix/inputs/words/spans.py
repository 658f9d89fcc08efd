"""Spans of frames or tokens that form the units of a mixing map.

In: words with times (`Word`) and a `FrameGrid`. Out: `Span`s, the rows and columns of a
`MixingMap`. Two rounding rules: "disjoint" (default: neighbours share no frame, every word has at
least one) and "paper" (the published rule, for exact reproduction). The silence between words and
the padding behind the clip can be spans of their own.

A span is positions with a label: one range, or several where a word is in pieces (*ne ... pas*).
`mixing.passes.view_kinds` says which spans are the rows and which the columns of each stack's map;
`mixing.measures.measure` are those same spans without labels, pooled positions on the device, as a measure
needs them.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...errors import InputError
from ..audio.frame_grid import FrameGrid, Seconds
from .timed_words import TOUCH_TOLERANCE, Word, format_unit, merge_ranges, store_pieces

ROUNDING_RULES = ("disjoint", "paper")
CONTEXT_KINDS = ("silence", "padding")
POOLING_METHODS = ("mean", "max")  # over the positions of a word
PADDING = "<padding>"  # label of what a fixed window adds behind a clip
_READING = re.compile(r" \((?:<\S+>|\[\S+\])\)$")  # "([UNK])", "(<unk>)" behind a label
SPAN_KINDS = ("word", "syllable", "phone", "frame", "token", "special", "silence", "padding")


@dataclass(frozen=True)
class Span:
    """One row or column of a map: positions [start, stop) of one side of a stack, or several ranges
    of them.

    Parameters
    ----------
    start, stop : int
        Half-open range of encoder frames, or of tokens in a decoder.
    label : str
        What to write beside it.
    kind : {"word", "syllable", "phone", "frame", "token", "special", "silence", "padding"}
    word : int, optional
        Index of the clip's word this span is (part of). A decoder's target row has the word of the
        token it predicts.
    onset, offset : float, optional
        Seconds, if the span lies in the audio.
    pieces : sequence of (int, int), optional
        Ranges of positions, if the span is not all of [start, stop); in any order.
    times : sequence of (float, float), optional
        Seconds of a word in pieces.

    Raises
    ------
    InputError
        For pieces that overlap or are empty, or that do not reach from start to stop.

    Examples
    --------
    >>> Span.from_ranges([(7, 9), (2, 4), (4, 5)], "ne ... pas")
    Span(start=2, stop=9, label='ne ... pas', kind='word', word=None, onset=None, offset=None,
    pieces=((2, 5), (7, 9)))
    """

    start: int
    stop: int
    label: str = ""
    kind: str = "word"
    word: int | None = None
    onset: Seconds | None = None
    offset: Seconds | None = None
    pieces: tuple[tuple[int, int], ...] = ()
    times: tuple[tuple[Seconds, Seconds], ...] = ()

    def __post_init__(self) -> None:
        if self.pieces != () or self.times != ():
            where = f"unit {self.label!r}"
            pieces = merge_ranges(self.pieces, where=where) if self.pieces else ()
            store_pieces(self, pieces, (self.start, self.stop), where)
            times = self.times and merge_ranges(self.times, where=where, tolerance=TOUCH_TOLERANCE)
            object.__setattr__(self, "times", times if len(times) > 1 else ())

    @classmethod
    def from_ranges(
        cls, ranges: Iterable[tuple[int, int]], label: str = "", **details: Any
    ) -> Span:
        """Span of one range of positions or of several, in any order; those that touch are one."""
        pieces = merge_ranges(ranges, where=f"unit {label!r}")
        return cls(pieces[0][0], pieces[-1][1], label, pieces=pieces, **details)

    def with_ranges(self, ranges: Sequence[tuple[int, int]]) -> Span:
        """The same unit at other positions."""
        return replace(self, start=min(ranges)[0], stop=max(ranges)[1], pieces=tuple(ranges))

    @property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        """Half-open ranges of its positions, in ascending order: one, or several."""
        return self.pieces or ((self.start, self.stop),)

    @property
    def positions(self) -> Sequence[int]:
        """Its positions, in ascending order."""
        if not self.pieces:
            return range(self.start, self.stop)
        return [position for start, stop in self.pieces for position in range(start, stop)]

    @property
    def intervals(self) -> tuple[tuple[Seconds, Seconds], ...]:
        """Where it is in the audio, in seconds: one stretch, or several; none where that is not
        known."""
        if self.onset is None or self.offset is None:
            return ()
        return self.times or ((self.onset, self.offset),)

    def __len__(self) -> int:
        return len(self.positions)

    def __repr__(self) -> str:
        return format_unit(self)


# A unit as it is asked for: positions (start, stop), or several such ranges that are one unit.
SpanRequest = Span | tuple[int, int] | Sequence[tuple[int, int]]


def parse_span_request(request: Any) -> list[tuple[int, int]]:
    """Return the ranges of a unit requested as (start, stop), or as a list of these.

    TypeError or ValueError if it is neither, in whole numbers.

    Examples
    --------
    >>> parse_span_request((2, 4)), parse_span_request([(2, 4), (7, 9)])
    ([(2, 4)], [(2, 4), (7, 9)])
    """
    items = list(request)
    ranges = items if items and all(isinstance(item, Sequence) for item in items) else [items]
    return [(operator.index(start), operator.index(stop)) for start, stop in ranges]


def word_spans(
    words: Sequence[Word], grid: FrameGrid, *, rounding: str = "disjoint", unit: str = "word"
) -> list[Span]:
    """Give each word its frames.

    "disjoint": a frame belongs to the word its centre lies in. A word that holds no centre takes
    the next free frame (its neighbours give way), so that every word has one and no frame is
    shared. Phones are treated alike. "paper": start = ceil(T t0 / D), stop = ceil(T t1 / D) + 1 (cut at T); D = 30 s for
    Whisper. A word in pieces has the frames of all of them.

    Raises
    ------
    InputError
        For an unknown rounding, more words than frames, or a word behind the last frame or the
        model's window.
    """
    if rounding not in ROUNDING_RULES:
        raise InputError(f"rounding must be one of {ROUNDING_RULES}, found {rounding!r}")
    if rounding == "paper":
        ranges = [
            [grid.frames_by_paper_rule(*interval) for interval in word.intervals] for word in words
        ]
        for word, frames in zip(words, ranges, strict=True):
            if any(start >= stop for start, stop in frames):
                raise InputError(
                    f"{unit} {word.text!r} at {word.start:.3f} s lies past the last of "
                    f"{grid.n_frames} frames"
                )
    else:
        for word in words:
            if any(start >= grid.duration and end > grid.duration for start, end in word.intervals):
                raise InputError(
                    f"{unit} {word.text!r} at {word.start:.3f} s lies past the {grid.duration:g} s "
                    "that the model sees"
                )
        ranges = _assign_disjoint_frames(
            [_word_frames(word, grid) for word in words], grid.n_frames, unit
        )
    return [
        _make_word_span(word, index, frames)
        for index, (word, frames) in enumerate(zip(words, ranges, strict=True))
    ]


def _word_frames(word: Word, grid: FrameGrid) -> list[tuple[int, int]]:
    """Frames whose centres lie in a word; an empty range where there are none."""
    frames = [grid.frames_between(*interval) for interval in word.intervals]
    return [(start, stop) for start, stop in frames if start < stop] or frames[:1]


def _make_word_span(word: Word, index: int, frames: Sequence[tuple[int, int]]) -> Span:
    """Span of a word's frames; neighbouring pieces may share one by the published rule."""
    start, stop = frames[0]
    if len(frames) == 1:
        return Span(start, stop, word.text, "word", index, word.start, word.end, times=word.pieces)
    disjoint_ranges: list[tuple[int, int]] = []
    for start, stop in frames:
        previous_stop = disjoint_ranges[-1][1] if disjoint_ranges else start
        disjoint_ranges.append((max(start, previous_stop), stop))
    pieces = [(start, stop) for start, stop in disjoint_ranges if start < stop]
    return Span.from_ranges(
        pieces, word.text, word=index, onset=word.start, offset=word.end, times=word.pieces
    )


def _assign_disjoint_frames(
    words: list[list[tuple[int, int]]], n_frames: int, unit: str
) -> list[list[tuple[int, int]]]:
    """Push empty ranges open to one frame, to the right where there is room and else to the
    left."""
    # as they follow each other: a piece of one word may lie behind the next
    piece_order = [
        (word, piece) for word, pieces in enumerate(words) for piece in range(len(pieces))
    ]
    if len(piece_order) > n_frames:
        raise InputError(
            f"{len(piece_order)} {unit}s cannot have a frame each: the clip has only {n_frames} frames"
        )
    if any(len(pieces) > 1 for pieces in words):
        piece_order.sort(key=lambda word_and_piece: words[word_and_piece[0]][word_and_piece[1]])
    frame_ranges, next_free_frame = [], 0
    for word, piece in piece_order:
        start, stop = words[word][piece]
        start = max(start, next_free_frame)
        next_free_frame = max(stop, start + 1)
        frame_ranges.append((start, next_free_frame))
    next_start = n_frames
    for index in reversed(range(len(frame_ranges))):
        start, stop = frame_ranges[index]
        stop = min(stop, next_start)
        next_start = start = min(start, stop - 1)
        frame_ranges[index] = (start, stop)
    frames_by_word: list[list[tuple[int, int]]] = [[] for _ in words]
    for (word, _), frames in zip(piece_order, frame_ranges, strict=True):
        frames_by_word[word].append(frames)
    return frames_by_word


def context_spans(
    spans: Sequence[Span],
    grid: FrameGrid,
    audio_seconds: Seconds,
    *,
    include: Sequence[str] = ("silence", "padding"),
) -> list[Span]:
    """Return word spans together with the silence and padding around them, in time order.

    Silence is every run of frames in the audio that no word has; padding is what a fixed window
    (Whisper) adds behind the clip. Padding takes part in mixing, because Whisper's encoder has no
    mask.
    """
    unknown_kinds = set(include) - set(CONTEXT_KINDS)
    if unknown_kinds:
        raise InputError(f"include takes 'silence' and 'padding', found {sorted(unknown_kinds)}")
    audio_stop = clip_frame_count(grid, audio_seconds, spans)
    all_spans = list(spans)
    if "silence" in include:
        edges = [
            (0, 0),
            *sorted(frames for span in spans for frames in span.ranges),
            (audio_stop, audio_stop),
        ]
        last_stop = 0
        for start, stop in edges:
            if start > last_stop:
                times = grid.frame_times(last_stop, start)
                all_spans.append(Span(last_stop, start, "<silence>", "silence", None, *times))
            last_stop = max(last_stop, stop)
    if "padding" in include and audio_stop < grid.n_frames:
        times = grid.frame_times(audio_stop, grid.n_frames)
        all_spans.append(Span(audio_stop, grid.n_frames, PADDING, "padding", None, *times))
    return sorted(all_spans, key=lambda span: (span.start, span.stop))


def clip_frame_count(grid: FrameGrid, audio_seconds: Seconds, spans: Sequence[Span] = ()) -> int:
    """Return how many frames the clip itself has, at least as many as its spans need.

    Those behind them are the padding of a fixed window (Whisper).

    Examples
    --------
    >>> from speechmix.inputs.audio.frame_grid import FrameGrid
    >>> clip_frame_count(FrameGrid.fixed_window(1_500), 4.1)
    205
    """
    if not grid.is_fixed_window:
        return grid.n_frames
    return max(grid.frames_between(0.0, audio_seconds)[1], *(span.stop for span in spans), 1)


def frame_spans(grid: FrameGrid) -> list[Span]:
    """Every frame as a unit of its own."""
    return [
        Span(i, i + 1, f"{grid.centre(i):.2f}", "frame", None, *grid.frame_times(i, i + 1))
        for i in range(grid.n_frames)
    ]


def label_unknown(text: str, unknown_token: str) -> str:
    """Label a word or token that a model does not know: as it is written, and what the model reads.

    Examples
    --------
    >>> label_unknown("game", "[UNK]"), written_label("game ([UNK])"), written_label("game")
    ('game ([UNK])', 'game', 'game')
    """
    return f"{text} ({unknown_token})"


def written_label(label: str) -> str:
    """A label as it is written in the text, without what the model reads instead."""
    return _READING.sub("", label)
