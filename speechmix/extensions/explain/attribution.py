"""The attribution of written words to their sources by one measure, with its unit.

Attribute written words to single encoder frames.

In: a `Writing` of a clip. Out: the same with frames as sources, of which measures are asked like of
any others; `FrameParts`, [choices, frames]. The LRP attribution of a word is the sum of its frames, of
gradients and Chefer's relevances their mean, so words are read off the frames and nothing is
computed twice. Where a measure takes a word as a whole (Value Zeroing, ALTI-Logit, DecompX) or
rolls maps out (attention), frames are an answer of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import InputError
from ...inputs.clips.clip import Clip
from ...inputs.words.spans import Span, frame_spans
from ...interventions.decision import Source
from ...mixing.maps.measure_registry import measure_facts
from .generated_tokens import PADDING_SIDE, SourceUnit

if TYPE_CHECKING:
    from ...inputs.audio.frame_grid import FrameGrid
    from ...inputs.sentences.sentence import Sentence
    from .generated_tokens import Writing

_WORD_FROM_FRAMES: dict[str, Callable[..., np.ndarray]] = {"sum": np.sum, "mean": np.mean}


@dataclass(frozen=True, eq=False)
class FrameParts:
    """Attribution of the frames of a recording.

    Parameters
    ----------
    values : ndarray [C, F]
        Of the same unit as the attribution of the words.
    rest : ndarray [C] or None
        Of parts of a logit: what is left for no frame, and for no word of the text that was written
        before.
    """

    values: np.ndarray
    rest: np.ndarray | None = None


def has_frames(writing: Writing) -> bool:
    """Whether the sound has frames that are units: one position at one time."""
    is_sound = any(source.side == "sound" for source in writing.sources)
    return is_sound and _clip_grid(writing).bands == 1


def _clip_grid(writing: Writing) -> FrameGrid:
    clip: Any = writing.decision.item
    return writing.model.grid(len(clip.audio(writing.model.sample_rate)))


def split_into_frames(writing: Writing) -> Writing:
    """The same writing, with the frames of its sound as sources in place of the words; those behind
    its end are left out."""
    clip: Any = writing.decision.item
    grid = _clip_grid(writing)
    if grid.bands > 1:
        raise InputError(
            f"{clip.name}: {writing.model.name} has several positions at one time, so that its "
            "frames are no units of an explanation: leave frames out"
        )
    last = max(position for source in writing.sources for position in _list_positions(source))
    padding = [span for span in writing.spans or () if span.kind == PADDING_SIDE]
    stop = padding[0].start if padding else grid.n_frames
    spans = [
        span
        for frame, span in enumerate(frame_spans(grid)[:stop])
        if (span.onset or 0.0) < clip.duration or frame <= last
    ]
    frame_units = [_make_frame_unit(frame, span) for frame, span in enumerate(spans)]
    others = [source for source in writing.sources if source.side != "sound"]
    return replace(writing, sources=(*frame_units, *others), spans=(*spans, *padding))


def _make_frame_unit(frame: int, span: Span) -> SourceUnit:
    return SourceUnit(
        "sound", Source(frame, span.label, tuple(span.positions)), span.onset, span.offset
    )


def _list_positions(source: SourceUnit) -> Sequence[int]:
    return source.source.positions if source.side == "sound" else ()


def frame_times(writing: Writing) -> np.ndarray:
    """Beginning and end of each frame, [F, 2]."""
    frame_units = [
        source for source in split_into_frames(writing).sources if source.side == "sound"
    ]
    return np.array([(source.onset, source.offset) for source in frame_units], dtype=float)


def sum_frames(measure: str, writing: Writing, values: np.ndarray) -> np.ndarray:
    """Values [C, S] of the sources, words of the sound made of their frames.

    Parameters
    ----------
    measure : str
        One that declares `word_from_frames`.
    writing : Writing
        With words.
    values : ndarray [C, F + text]
        Of its frames, and of the sources that are text.
    """
    texts = iter(
        range(
            values.shape[1] - sum(source.side != "sound" for source in writing.sources),
            values.shape[1],
        )
    )
    make = _WORD_FROM_FRAMES[measure_facts(measure).word_from_frames]
    columns = [
        make(values[:, list(_list_positions(source))], axis=1)
        if source.side == "sound"
        else values[:, next(texts)]
        for source in writing.sources
    ]
    return np.stack(columns, axis=1)


def measures_with_frames(frames: bool | str | Sequence[str] | None) -> tuple[str, ...]:
    """The measures that an option `frames` names."""
    if frames is None or isinstance(frames, bool):
        return ()
    return (frames,) if isinstance(frames, str) else tuple(frames)


def frame_request(
    frames: bool | str | Sequence[str] | None, item: Clip | Sentence
) -> Callable[[str], bool | None]:
    """Whether frames are asked of a measure; None: if they cost nothing.

    Raises
    ------
    InputError
        If the option cannot be: a text has no frames, and what takes words away says nothing of
        them.
    """
    if frames and not isinstance(item, Clip):
        raise InputError(f"{item.name!r} is a text, which has no frames: leave frames out")
    if frames is None or isinstance(frames, bool):
        return lambda measure: frames
    names = measures_with_frames(frames)
    for name in names:
        if measure_facts(name).scope == "removal":
            raise InputError(
                f"{name} takes words away, and says nothing of frames: name other measures, or "
                "frames=True"
            )
    return lambda measure: measure in names


LOG_PROBABILITY, LOGIT, SHARE, SIZE = "log-probability", "logit", "share", "size"


@dataclass(frozen=True, eq=False)
class Attribution:
    """How much each source contributes to each explained word, by one measure.

    Parameters
    ----------
    measure : str
    values : ndarray [C, S]
        NaN where a source comes after the explained word, or the measure does not reach it.
    of : {"log-probability", "logit", "share", "size"}
        What the values are parts of. Shares and sizes have no sign.
    totals : ndarray [C] or None
        Sum of the values and `rest`; None for a measure that does not add up.
    errors : ndarray [C, S] or None
        Standard errors of sampled values.
    by_frame : FrameParts or None
        Attributions of the frames of the recording, if requested.
    """

    measure: str
    values: np.ndarray
    of: str
    totals: np.ndarray | None = None
    errors: np.ndarray | None = None
    by_frame: FrameParts | None = None

    @property
    def unit(self) -> str:
        """Unit of the values: nats for a log-probability, else what they are parts of."""
        return "nats" if self.of == LOG_PROBABILITY else self.of

    @property
    def rest(self) -> np.ndarray | None:
        """Part of the totals that no source has [C]: biases, feed-forwards, silence, the prefix."""
        return None if self.totals is None else self.totals - np.nansum(self.values, axis=1)
