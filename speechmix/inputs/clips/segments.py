"""A part of a clip: its samples between two times, and the words that lie wholly in it, moved to
their new times."""

from __future__ import annotations

from typing import cast

from ...errors import InputError
from ..audio.audio_source import AudioPart, Recording
from ..audio.frame_grid import Seconds
from ..words.cue_and_target import RoleRequests
from ..words.unit_roles import make_unit_role
from ..words.words_in_text import cut_text
from .clip import Clip
from .clip_metadata import ClipFields


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
