"""Labels of a tier that are no units, and units that have no length.

In: the words, phones or syllables of a clip, read from a file, given or aligned. Out: those that are
some, and a warning that says what is left out: pauses (``sil``, TIMIT's ``h#``), noise between phones
(``spn``), marks of another language (``(en)``), and whatever ends where it starts, since no frame of
the sound is its own. "spn" and "<unk>" among words are speech that an aligner could not name: words. So
is what a transcriber puts in brackets ("(uh)"), unless it is the code of a language that espeak-ng has.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence

from .text_normalization import is_noise_label
from .timed_words import Word
from .word_lookup import describe_word

WORD = "word"
# What aligners and corpora write where nobody speaks: MFA, Kaldi, WebMAUS, TIMIT, Festival.
_PAUSES = frozenset({"", "sp", "sil", "<sil>", "<eps>", "<p:>", "<p>", "<pau>", "h#"})
_PAUSES_BETWEEN_PHONES = frozenset(
    {"pau", "epi", "#", "##", "_", "__", "pause", "silence", "(.)", "(..)", "...", "-"}
)
_NOISE = frozenset(  # of WebMAUS and Buckeye
    {"noise", "vocnoise", "iver", "laugh", "unknown", "cutoff", "error", "exclude"}
)
_LANGUAGE_MARK = re.compile(r"\(([a-z]{2,3})(-[a-z0-9]+)*\)")
_ESPEAK_LANGUAGES = frozenset(  # without those of three letters that are words: (the), (les), (und)
    """af am an ar as az ba be bg bn bs ca cmn cs cy da de el en eo es et eu fa fi fr ga gd gn grc gu hak haw he
    hi hr ht hu hy ia id io is it ja jbo ka kk kl kn ko kok ku ky la lb lfn lt ltg lv mi mk ml mr ms mt mto my
    nb nci ne nl nog om or pa pap pl ps pt py qdb qu quc qya ro ru sd si sjn sk sl smj sq sr sv sw ta te th tk
    tn tr tt ug uk ur uz vi yue""".split()
)
_MIN_SECONDS = 1e-4  # less than two samples of 16 kHz


def unit_indices(units: Sequence[Word], unit: str) -> list[int]:
    """Return the indices of what is a unit ("word", "phone" or "syllable") and has a length.

    Examples
    --------
    >>> unit_indices([Word("h#", 0, 0.2), Word("n", 0.2, 0.3), Word("o", 0.3, 0.3)], "phone")
    [1]
    """
    return [
        index
        for index, word in enumerate(units)
        if not is_non_unit(word.text, unit) and not has_no_length(word)
    ]


def is_non_unit(label: str, unit: str) -> bool:
    """Whether a label stands for a pause, for noise or for a change of language.

    Examples
    --------
    >>> is_non_unit("spn", "phone"), is_non_unit("spn", "word"), is_non_unit("(en)", "word")
    (True, False, True)
    """
    label = label.strip().casefold()
    mark = _LANGUAGE_MARK.fullmatch(label)
    if label in _PAUSES or unit == WORD:
        return label in _PAUSES or (mark is not None and mark[1] in _ESPEAK_LANGUAGES)
    return label in _PAUSES_BETWEEN_PHONES | _NOISE or mark is not None or is_noise_label(label)


def has_no_length(word: Word) -> bool:
    """Whether a unit ends where it starts, or has no sample of its own."""
    return word.end - word.start < _MIN_SECONDS


def keep_units(units: Sequence[Word], unit: str, *, where: str) -> list[Word]:
    """Return what is a unit and has a length, with a warning about the rest."""
    indices = unit_indices(units, unit)
    warn_left_out(units, indices, unit, where=where)
    return [units[index] for index in indices]


def warn_left_out(units: Sequence[Word], indices: Sequence[int], unit: str, *, where: str) -> None:
    """Say which labels are left out, once for all files, and where a unit has no length."""
    left_out = [(index, units[index]) for index in sorted(set(range(len(units))) - set(indices))]
    labels = sorted({word.text for _, word in left_out if is_non_unit(word.text, unit)} - {""})
    if labels:
        warnings.warn(
            f"left out of the {unit}s, because they are no {unit}s: {', '.join(map(repr, labels))}",
            stacklevel=3,
        )
    empty = [
        describe_word(word, index, unit)
        for index, word in left_out
        if not is_non_unit(word.text, unit)
    ]
    if empty:
        more = f" and {len(empty) - 5} more" if len(empty) > 5 else ""
        warnings.warn(
            f"{where}: left out of the {unit}s, because they have no length: {', '.join(empty[:5])}{more}",
            stacklevel=3,
        )
