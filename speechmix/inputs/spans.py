"""Words -> units of a mixing map: half-open ranges of frames or tokens, with a label and, for audio, times.

In: words with times (`Word`) and a `FrameGrid`. Out: `Span`s, the rows and columns of a `MixingMap`. Two rounding
rules: "disjoint" (default: neighbours share no frame, every word has at least one) and "paper" (the published rule,
for exact reproduction). The silence between words and the padding behind the clip can be spans of their own.

A span is positions with a label; `scoring.sides` says which spans are the rows and which the columns of each stack's map;
`measures.units` are those same spans without labels, pooled position ranges on the device, as a measure needs them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import InputError
from .frames import FrameGrid, Seconds

ROUNDINGS = ("disjoint", "paper")
CONTEXT_KINDS = ("silence", "padding")
POOLINGS = ("mean", "max")  # over the positions of a word
KINDS = ("word", "frame", "token", "special", "silence", "padding")


@dataclass(frozen=True)
class Word:
    """A word and where it is in the audio.

    Parameters
    ----------
    text : str
    start, end : float
        Seconds.
    score : float, optional
        How sure the aligner is, 0 to 1; None if it was not asked or the times were measured by hand.
    """

    text: str
    start: Seconds
    end: Seconds
    score: float | None = None


@dataclass(frozen=True)
class Span:
    """One row or column of a map: positions [start, stop) of one side of a stack.

    Parameters
    ----------
    start, stop : int
        Half-open range of encoder frames, or of tokens in a decoder.
    label : str
        What to write beside it.
    kind : {"word", "frame", "token", "special", "silence", "padding"}
    word : int, optional
        Index of the clip's word this span is (part of). A decoder's target row has the word of the token it predicts.
    onset, offset : float, optional
        Seconds, if the span lies in the audio.
    """

    start: int
    stop: int
    label: str = ""
    kind: str = "word"
    word: int | None = None
    onset: Seconds | None = None
    offset: Seconds | None = None

    def __len__(self) -> int:
        return self.stop - self.start


def word_spans(words: Sequence[Word], grid: FrameGrid, *, rounding: str = "disjoint") -> list[Span]:
    """Give each word its frames.

    "disjoint": a frame belongs to the word its centre lies in. A word that holds no centre takes the next free frame
    (its neighbours give way), so that every word has one and no frame is shared.
    "paper": start = ceil(T t0 / D), stop = ceil(T t1 / D) + 1 (cut at T); D = 30 s for Whisper.

    Raises
    ------
    InputError
        For an unknown rounding, more words than frames, or a word behind the last frame or the model's window.
    """
    if rounding not in ROUNDINGS:
        raise InputError(f"rounding must be one of {ROUNDINGS}, found {rounding!r}")
    if rounding == "paper":
        ranges = [grid.frames_paper(word.start, word.end) for word in words]
        for word, (start, stop) in zip(words, ranges, strict=True):
            if start >= stop:
                raise InputError(
                    f"word {word.text!r} at {word.start:.3f} s lies past the last of {grid.n_frames} frames"
                )
    else:
        for word in words:
            if word.start >= grid.duration and word.end > grid.duration:
                raise InputError(
                    f"word {word.text!r} at {word.start:.3f} s lies past the {grid.duration:g} s that the model sees"
                )
        ranges = _disjoint([grid.frames_between(word.start, word.end) for word in words], grid.n_frames)
    return [
        Span(start, stop, word.text, "word", index, word.start, word.end)
        for index, (word, (start, stop)) in enumerate(zip(words, ranges, strict=True))
    ]


def _disjoint(ranges: list[tuple[int, int]], n_frames: int) -> list[tuple[int, int]]:
    """Push empty ranges open to one frame, to the right where there is room and else to the left."""
    if len(ranges) > n_frames:
        raise InputError(f"{len(ranges)} words cannot have a frame each: the clip has only {n_frames} frames")
    opened, taken = [], 0
    for start, stop in ranges:
        start = max(start, taken)
        taken = max(stop, start + 1)
        opened.append((start, taken))
    limit = n_frames
    for index in reversed(range(len(opened))):
        start, stop = opened[index]
        stop = min(stop, limit)
        limit = start = min(start, stop - 1)
        opened[index] = (start, stop)
    return opened


def context_spans(
    spans: Sequence[Span], grid: FrameGrid, audio_seconds: Seconds, *, include: Sequence[str] = ("silence", "padding")
) -> list[Span]:
    """Return word spans together with the silence and padding around them, in time order.

    Silence is every run of frames in the audio that no word has; padding is what a fixed window (Whisper) adds behind
    the clip. Padding takes part in mixing, because Whisper's encoder has no mask.

    Parameters
    ----------
    include : sequence of {"silence", "padding"}
    """
    unknown = set(include) - set(CONTEXT_KINDS)
    if unknown:
        raise InputError(f"include takes 'silence' and 'padding', found {sorted(unknown)}")
    audio_stop = max(grid.frames_between(0.0, audio_seconds)[1], max((span.stop for span in spans), default=0))
    if not grid.fixed:
        audio_stop = grid.n_frames
    result = list(spans)
    if "silence" in include:
        edges = [(0, 0), *sorted((span.start, span.stop) for span in spans), (audio_stop, audio_stop)]
        reached = 0
        for start, stop in edges:
            if start > reached:
                result.append(Span(reached, start, "<silence>", "silence", None, *grid.seconds_of(reached, start)))
            reached = max(reached, stop)
    if "padding" in include and audio_stop < grid.n_frames:
        times = grid.seconds_of(audio_stop, grid.n_frames)
        result.append(Span(audio_stop, grid.n_frames, "<padding>", "padding", None, *times))
    return sorted(result, key=lambda span: (span.start, span.stop))


def frame_spans(grid: FrameGrid) -> list[Span]:
    """Every frame as a unit of its own."""
    return [
        Span(i, i + 1, f"{grid.centre(i):.2f}", "frame", None, *grid.seconds_of(i, i + 1)) for i in range(grid.n_frames)
    ]
