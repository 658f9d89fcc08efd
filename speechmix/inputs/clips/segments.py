"""A part of a clip: its samples between two times, and the words that lie wholly in it, moved to
their new times."""

from __future__ import annotations

from ...errors import InputError
from ..audio.frame_grid import Seconds
from ..audio.recordings import Recording
from ..words.cue_and_target import RoleRequests
from ..words.multipart_words import join_words
from .clip import Clip


def part_of(
    clip: Clip, recording: Recording, requests: RoleRequests, start: Seconds, end: Seconds
) -> Clip:
    """Return the part of a clip between two times: see `Clip.cut`.

    Parameters
    ----------
    clip : Clip
    recording : AudioFile or AudioInMemory
        Of the clip.
    requests : mapping of "cue" and "target" to what was asked for
        They stay as they are while there are no words.
    start, end : float
        Seconds.

    Raises
    ------
    InputError
        If the part is empty, or the cue or target is not in it.
    """
    if not 0 <= start < end:
        raise InputError(
            f"clip {clip.name!r}: expected 0 <= start < end (seconds) to cut, found {start} and "
            f"{end}"
        )
    samples = recording.part(start, end)
    if not len(samples):
        raise InputError(
            f"clip {clip.name!r} of {clip.duration:.2f} s has nothing between {start} and {end} s"
        )
    words = clip.words or ()
    places = [index for index, word in enumerate(words) if start <= word.start and word.end <= end]
    asked = dict(requests)
    for role, index in (*(("cue", index) for index in clip.cue_words), ("target", clip.target)):
        if index is not None and index not in places:
            raise InputError(
                f"clip {clip.name!r}: the {role} is not wholly between {start} and {end} s"
            )
    if words:
        asked["cue"] = [places.index(index) for index in clip.cue_words] or None
        asked["target"] = None if clip.target is None else places.index(clip.target)
    part = Clip.from_array(
        samples,
        recording.rate,
        name=f"{clip.name}_{start:g}-{end:g}",
        text=join_words([words[index] for index in places]) or None if words else None,
        cue=asked["cue"],
        target=asked["target"],
        foil=clip.foil,
        language=clip.language,
        meta=clip.meta,
    )
    moved = [words[index].moved(-start) for index in places]
    return part.with_words(moved, alignment=clip.alignment) if moved else part
