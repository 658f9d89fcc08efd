"""Words and tiers for a clip, from a file or as sequences.

In: what a caller says of words and tiers. Out: the fields that `Clip.replace` takes.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike

from ...errors import InputError
from ..audio.byte_ranges import parse_location
from ..audio.frame_grid import Seconds
from ..words.phone_labels import check_alphabet, convert_to_ipa
from ..words.timed_words import Word
from ..words.unit_tiers import PHONE, Tiers, check_tiers
from ..words.word_checks import WordLike, check_words
from .clip_metadata import ClipFields
from .immutable_clip import ClipValue

# A path of a word file, or the words themselves.
WordSource = str | PathLike[str] | Iterable[WordLike]
# By unit, the name of a tier of the word file, or its intervals.
TierSource = Mapping[str, str | Iterable[WordLike]]


def annotation_fields(
    clip: ClipValue,
    words: WordSource | None,
    *,
    alignment: str | None = None,
    tier: str | None = None,
    tiers: TierSource | None = None,
    alphabet: str | None = None,
) -> ClipFields:
    """Fields of a clip with these words and tiers; the parameters are those of `Clip.with_words`.

    InputError if a file cannot be used, or has no tier of the given name.
    """
    where = f"clip {clip.name!r}"
    check_alphabet(alphabet, where)
    names = {unit: source for unit, source in (tiers or {}).items() if isinstance(source, str)}
    intervals = {
        unit: given_units(source, unit, alphabet=alphabet, where=f"{where}, tier {unit!r}")
        for unit, source in (tiers or {}).items()
        if not isinstance(source, str)
    }
    fields = ClipFields() if tiers is None else ClipFields(tiers=intervals)
    if not isinstance(words, (str, PathLike)):
        if names:
            raise InputError(
                f"{where}: the tiers {', '.join(map(repr, names.values()))} are named, expected a file "
                "that has them as words=, or their intervals"
            )
        if words is not None:
            fields |= ClipFields(words=words, alignment=alignment)
        return fields
    from ..formats.word_files import read_word_file, word_file_kind  # only for a file

    is_whole_file = clip.path is not None and parse_location(clip.path) is None
    timed_words, file_tiers, text = read_word_file(
        words,
        tier=tier,
        tiers=None if tiers is None else names,
        utterance=clip.path.stem if is_whole_file and clip.path is not None else clip.name,
        alphabet=alphabet,
    )
    if timed_words:
        fields |= ClipFields(words=timed_words, alignment=alignment or word_file_kind(words))
    if text is not None and clip.text is None:
        fields["text"] = text
    if tiers is not None:
        fields["tiers"] = {**file_tiers, **intervals}
        return fields
    if file_tiers:
        fields["tiers"] = usable_tiers(file_tiers, timed_words, clip.duration, where=str(words))
    return fields


def given_units(
    units: Iterable[WordLike], unit: str, *, alphabet: str | None, where: str
) -> tuple[Word, ...]:
    """Checked units of a tier that a caller gives, phones in IPA.

    InputError if they cannot be right, or are phones in no known alphabet.
    """
    checked = check_words(units, where=where, unit=unit)
    return convert_to_ipa(checked, alphabet=alphabet, where=where) if unit == PHONE else checked


def usable_tiers(
    tiers: Tiers, words: Sequence[Word], duration: Seconds | None = None, *, where: str
) -> Tiers:
    """Return tiers that nobody requested by name; none, with a warning, if they cannot be right."""
    try:
        return check_tiers(tiers, words, duration=duration, where=where)
    except InputError as error:
        warnings.warn(f"the tiers below the words are left out: {error}", stacklevel=2)
        return {}
