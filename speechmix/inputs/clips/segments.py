"""A part of a clip: its samples between two times, and the words that lie wholly in it, moved to
their new times.

Divide the sound of a clip into segments, which take the place of words where nobody speaks.

In: a clip, and how it is divided: a length in seconds, stretches of voice, or frames. Out: the clip
with a `Word` for each segment. Its alignment is "segments", so that their labels are never taken
for what is said (`Clip.spoken_words`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from numbers import Real
from typing import cast

from ...errors import InputError
from ..audio.audio_source import AudioPart, Recording
from ..audio.frame_grid import FrameGrid, Seconds
from ..words.cue_and_target import RoleRequests
from ..words.multipart_words import join_words
from ..words.timed_words import Word, merge_ranges
from ..words.unit_tiers import make_unit_role
from ..words.words_in_text import cut_text
from .clip import SEGMENTS, Clip, ClipFields


def cut_clip(
    clip: Clip, recording: Recording, requests: RoleRequests, start: Seconds, end: Seconds
) -> Clip:
    """Return the part of a clip between two times (seconds): see `Clip.cut`.

    Requests for cue and target stay as they are while there are no words. InputError if the part is
    empty, or the cue or target is not in it.
    """
    if not 0 <= start < end:
        raise InputError(
            f"clip {clip.name!r}: expected 0 <= start < end (seconds) to cut, found {start} and "
            f"{end}"
        )
    samples = recording.segment(start, end)
    if not len(samples):
        raise InputError(
            f"clip {clip.name!r} of {clip.duration:.2f} s has nothing between {start} and {end} s"
        )
    words = clip.spoken_words  # labels of segments would have the times of the whole clip
    word_indices = [
        index for index, word in enumerate(words) if start <= word.start and word.end <= end
    ]
    role_requests = dict(requests)
    for role, index in (*(("cue", index) for index in clip.cue_words), ("target", clip.target)):
        if index is not None and index not in word_indices:
            raise InputError(
                f"clip {clip.name!r}: the {role} is not wholly between {start} and {end} s"
            )
    if words:
        role_requests["cue"] = [word_indices.index(index) for index in clip.cue_words] or None
        role_requests["target"] = None if clip.target is None else word_indices.index(clip.target)
    role_requests |= dict.fromkeys(clip.unit_roles)  # found again in the tiers that remain
    segment = Clip.from_array(
        samples,
        recording.sample_rate,
        name=f"{clip.name}_{start:g}-{end:g}",
        text=cut_text(words, word_indices, clip.text) if words else None,
        cue=role_requests["cue"],
        target=role_requests["target"],
        foil=clip.foil,
        language=clip.language,
        meta=clip.meta,
    )
    tier_fields = _cut_tiers(clip, start, end)
    shift = [words[index].shift(-start) for index in word_indices]
    if shift:
        segment = segment.with_words(shift, alignment=clip.alignment)
    return segment.replace(**tier_fields)


def _cut_tiers(clip: Clip, start: Seconds, end: Seconds) -> ClipFields:
    """Phones and syllables that lie wholly between two times, moved; and cue and target among
    them."""
    indices_by_unit = {
        unit: [
            index
            for index, interval in enumerate(tier)
            if start <= interval.start and interval.end <= end
        ]
        for unit, tier in clip.tiers.items()
    }
    tiers = {
        unit: tuple(clip.tiers[unit][index].shift(-start) for index in indices)
        for unit, indices in indices_by_unit.items()
        if indices
    }
    fields: dict[str, object] = {"tiers": tiers}
    for name, role in clip.unit_roles.items():
        indices = indices_by_unit[role.unit]
        if not set(role.indices) <= set(indices):
            raise InputError(
                f"clip {clip.name!r}: the {name} is not wholly between {start} and {end} s"
            )
        new_indices = [indices.index(index) for index in role.indices]
        fields[name] = make_unit_role(tiers, None, role.unit, new_indices).request
    return cast("ClipFields", fields)


def file_part(clip: Clip, start: Seconds, end: Seconds) -> Clip:
    """Return a part of a clip without words; the samples of a file stay there until they are needed.

    Start and end are seconds.
    """
    if clip.path is None:
        return clip.replace(words=None, cue=None, target=None, foil=None).cut(start, end)
    return Clip(
        AudioPart(clip.path, start, end),
        name=f"{clip.name}_{start:g}-{end:g}",
        language=clip.language,
        meta=clip.meta,
    )


SEGMENT_SECONDS: Seconds = 0.25
VOICE, FRAMES = "voice", "frames"

_MIN_SECONDS = 0.02  # no model of the package has finer frames
_SAMPLE_RATE = 16_000
_VOICE_DB = 30.0  # dB below the loudest, above which there is voice
_VOICE_WINDOW, _VOICE_HOP = 1024, 256  # samples
_MAX_GAP, _MIN_VOICE = 0.1, 0.05  # seconds: a closure is part of a stretch, a click is none
# wav2vec 2.0's: each model of the package has at least one frame in each of these
_KERNELS, _STRIDES = (10, 3, 3, 3, 3, 2, 2), (5, 2, 2, 2, 2, 2, 2)

SegmentOption = float | str


def segment_clip(
    clip: Clip, segments: SegmentOption = SEGMENT_SECONDS, *, grid: FrameGrid | None = None
) -> Clip:
    """Return the clip with segments of its sound in place of words.

    Maps, explanations and interventions take segments as they take words: as units, and as sources
    that can be muted. No model is fed their labels as text. The clip has no cue, target or foil
    any more; its text stays.

    Parameters
    ----------
    clip : Clip
        With or without words.
    segments : float or {"voice", "frames"}
        Seconds of each segment; a rest shorter than half of it belongs to the last one. "voice":
        stretches that are at most 30 dB softer than the loudest, by `librosa.effects.split`; gaps
        below 0.1 s are closed, stretches below 0.05 s left out. "frames": each encoder frame.
    grid : FrameGrid, optional
        Of "frames": the frames of a model (``model.grid(samples)``), by default those of
        wav2vec 2.0, every 20 ms.

    Returns
    -------
    Clip

    Raises
    ------
    InputError
        For any other value, segments below 0.02 s or longer than the clip, or "voice" in digital
        silence.

    Examples
    --------
    >>> from speechmix.inputs import bundled
    >>> clip = segment_clip(bundled.clips()[1], 0.5)   # synthetic: "nos maisons"
    >>> [word.text for word in clip.words], clip.spoken_words, clip.text
    (['0.00-0.50 s', '0.50-1.19 s'], (), 'nos maisons')
    """
    if segments == VOICE:
        ranges = _voice_ranges(clip)
    elif segments == FRAMES:
        ranges = _frame_ranges(clip, grid)
    else:
        ranges = _equal_ranges(clip, segments)
    return clip.replace(
        words=_label_ranges(ranges),
        alignment=SEGMENTS,
        doubts=(),
        text=clip.text or join_words(clip.spoken_words) or None,
        cue=None,
        target=None,
        foil=None,
    )


def _equal_ranges(clip: Clip, seconds: SegmentOption) -> list[tuple[Seconds, Seconds]]:
    if (
        not isinstance(seconds, Real)
        or isinstance(seconds, bool)
        or not _MIN_SECONDS <= seconds <= clip.duration
    ):
        raise InputError(
            f"clip {clip.name!r}: expected segments as seconds, from {_MIN_SECONDS:g} to the "
            f"{clip.duration:g} s of the clip, {VOICE!r} or {FRAMES!r}; found {seconds!r}"
        )
    count = max(1, math.floor(clip.duration / seconds + 0.5 + 1e-9))
    starts = [round(index * float(seconds), 6) for index in range(count)]
    return list(pairwise([*starts, clip.duration]))


def _frame_ranges(clip: Clip, grid: FrameGrid | None) -> list[tuple[Seconds, Seconds]]:
    """Times of each frame; the first and the last reach to the ends of the clip."""
    if grid is None:
        grid = FrameGrid.from_convolutions(len(clip.audio(_SAMPLE_RATE)), _KERNELS, _STRIDES)
    count = max(1, grid.frames_between(0.0, clip.duration)[1])
    starts = [round(grid.frame_times(frame, frame + 1)[0], 6) for frame in range(1, count)]
    return list(pairwise([0.0, *starts, clip.duration]))


def _voice_ranges(clip: Clip) -> Sequence[tuple[Seconds, Seconds]]:
    import librosa

    audio = clip.audio(_SAMPLE_RATE)
    if not audio.any():
        raise InputError(
            f"clip {clip.name!r} is digital silence: give segments in seconds, there is no voice"
        )
    voiced = librosa.effects.split(
        audio, top_db=_VOICE_DB, frame_length=_VOICE_WINDOW, hop_length=_VOICE_HOP
    )
    ranges = [
        (start / _SAMPLE_RATE, min(stop / _SAMPLE_RATE, clip.duration))
        for start, stop in voiced.tolist()
    ]
    stretches = [
        (start, end)
        for start, end in merge_ranges(ranges, where=f"clip {clip.name!r}", tolerance=_MAX_GAP)
        if end - start >= _MIN_VOICE
    ]
    return stretches or ranges


def _label_ranges(ranges: Sequence[tuple[Seconds, Seconds]]) -> list[Word]:
    """Words that are labelled with their times, in hundredths of a second where these suffice."""
    is_coarse = all(abs(start * 100 - round(start * 100)) < 1e-6 for start, _ in ranges)
    digits = 2 if is_coarse else 3
    return [Word(f"{start:.{digits}f}-{end:.{digits}f} s", start, end) for start, end in ranges]
