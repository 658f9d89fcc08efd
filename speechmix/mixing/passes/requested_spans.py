"""Resolve the spans of frames or words that a request names.

In: a clip and its frames, or ranges of positions as a user passes them; a request. Out: `Span`s,
the units of the encoder's side of a `View`.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar, cast

from ...errors import InputError
from ...inputs.clips.clip import Clip
from ...inputs.clips.segments import FRAMES, SegmentOption, segment_clip
from ...inputs.words.spans import (
    Span,
    SpanRequest,
    clip_frame_count,
    context_spans,
    frame_spans,
    parse_span_request,
    word_spans,
)
from ...inputs.words.timed_words import Word
from ...inputs.words.unit_tiers import PHONE, TIER_UNITS, unit_owners

if TYPE_CHECKING:
    from ...adapters.model import Model
    from ...inputs.audio.frame_grid import FrameGrid
    from .request import MixRequest


ItemT = TypeVar("ItemT")


def audio_spans(clip: Clip, grid: FrameGrid, request: MixRequest) -> list[Span]:
    """Units on the audio side of a clip: frames, or words with what is included around them."""
    words = word_spans(clip.words, grid, rounding=request.rounding) if clip.words else []
    if request.units == "frame":
        return _frame_spans(clip, grid, words, request.window)
    if request.units in TIER_UNITS:
        words = _tier_spans(clip, grid, request)
    elif clip.spoken_words:
        _warn_short_units(clip, clip.spoken_words, "word", grid, request)
    if not words:
        raise InputError(
            f"{clip.name} has no word times: give words= (TextGrid, CTM, JSON, TSV), align its "
            "text with "
            "speechmix.align(clip), or ask for units='frame'"
        )
    # Where nobody speaks, what a fixed window adds behind the clip may be what a text comes from.
    include = (*request.include, "padding") if clip.has_segments else request.include
    return context_spans(words, grid, clip.duration, include=include) if include else words


def _frame_spans(
    clip: Clip, grid: FrameGrid, words: Sequence[Span], window: tuple[float, float] | None
) -> list[Span]:
    """Frames as units, each with the word that it is in: those within a window, or those of the
    clip and the padding of a fixed window as one more unit."""
    word_by_frame = {frame: span.word for span in words for frame in span.positions}
    frames = [replace(span, word=word_by_frame.get(span.start)) for span in frame_spans(grid)]
    if window is None:
        clip_frames = frames[: clip_frame_count(grid, clip.duration, words)]
        return context_spans(clip_frames, grid, clip.duration, include=["padding"])
    start_seconds, end_seconds = window
    frames = [
        frame
        for frame in frames
        if start_seconds <= (frame.onset or 0.0) and (frame.offset or 0.0) <= end_seconds
    ]
    if not frames:
        raise InputError(
            f"{clip.name}: no frame lies within window={window} of its {clip.duration:.2f} s; "
            f"window=(0, {grid.duration:g}) takes all {grid.n_frames} frames"
        )
    return frames


def _tier_spans(clip: Clip, grid: FrameGrid, request: MixRequest) -> list[Span]:
    """Phones or syllables as units, each with the word that it is in."""
    unit = request.units
    if unit not in clip.tiers:
        advice = ", or align its text with speechmix.align(clip, tiers=['word', 'phone'])"
        raise InputError(
            f"{clip.name} has no {unit}s, but {', '.join(clip.tiers) or 'no tiers'}: give "
            f"tiers={{{unit!r}: ...}}{advice if unit == PHONE else ''}"
        )
    tier = clip.tiers[unit]
    spans = word_spans(tier, grid, rounding=request.rounding, unit=unit)
    _warn_short_units(clip, tier, unit, grid, request)
    owners = unit_owners(tier, clip.spoken_words)
    return [replace(span, kind=unit, word=owner) for span, owner in zip(spans, owners, strict=True)]


def _warn_short_units(
    clip: Clip, units: Sequence[Word], unit: str, grid: FrameGrid, request: MixRequest
) -> None:
    """Say how many units hold the centre of no frame, so that a frame of a neighbour is theirs."""
    short_count = sum(
        all(
            first == stop for first, stop in (grid.frames_between(*part) for part in item.intervals)
        )
        for item in units
    )
    if short_count and request.rounding == "disjoint":
        warnings.warn(
            f"{clip.name}: {short_count} of {len(units)} {unit}s contain the centre of no frame "
            f"({1000 * grid.stride:g} ms each): each has the next free frame, which is mostly a "
            "neighbour's sound",
            stacklevel=3,
        )


def spans_at_positions(spans: Sequence[Span], grid: FrameGrid) -> list[Span]:
    """Units of frames at the positions of the model that hold these frames."""
    if grid.n_positions == grid.n_frames:
        return list(spans)
    return [span.with_ranges(grid.position_ranges(span.ranges)) for span in spans]


def segment_item(model: Model, item: ItemT, segments: SegmentOption | None) -> ItemT:
    """Return a clip with segments in place of words, as the option `segments` says; any item for
    None.

    An InputError says that the item is no clip, or cannot be divided so (`segment_clip`).
    """
    if segments is None:
        return item
    if not isinstance(item, Clip):
        raise InputError(f"segments={segments!r} divides the sound of a clip, found {item!r:.80}")
    grid = None
    if segments == FRAMES:
        grid = model.grid(len(item.audio(model.sample_rate)))
    return cast("ItemT", segment_clip(item, segments, grid=grid))


def parse_spans(requested_spans: Sequence[SpanRequest]) -> list[Span]:
    """Return what the option `spans` requests as spans; the InputError of a wrong one names it.

    Wrong are no spans, one that is empty or no range of whole positions, pieces of one that
    overlap, and one in pieces that shares a position with another.
    """
    spans = []
    for index, span in enumerate(requested_spans):
        if not isinstance(span, Span):
            try:
                ranges = parse_span_request(span)
            except (TypeError, ValueError):
                raise InputError(
                    f"span {index} should be (start, stop) in whole frames, or a list of these, "
                    f"found {span!r}"
                ) from None
            if len(ranges) == 1:  # checked below, as any span
                span = Span(*ranges[0], str(index), "word", index)
            else:
                span = Span.from_ranges(ranges, str(index), word=index)
        if not 0 <= span.start < span.stop:
            raise InputError(
                f"span {index} should be half-open [start, stop) with 0 <= start < stop, found "
                f"{span}"
            )
        spans.append(span)
    if not spans:
        raise InputError("spans is empty: give at least one, or None for every frame")
    if any(span.pieces for span in spans):
        _check_overlap(spans)
    return spans


def _check_overlap(spans: Sequence[Span]) -> None:
    """Refuse a unit in pieces that shares a position with another: whose would it be?"""
    owner_by_position: dict[int, int] = {}
    for index, span in enumerate(spans):
        for position in span.positions:
            other = owner_by_position.setdefault(position, index)
            if other != index and (span.pieces or spans[other].pieces):
                raise InputError(
                    f"spans {other} and {index} share position {position}: where one is in pieces, "
                    "each position is in one span"
                )
