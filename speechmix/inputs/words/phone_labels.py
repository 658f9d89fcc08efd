"""Labels of phones in IPA, from whatever alphabet a file has.

In: the labels of a tier. Out: IPA, and the file's own label where it differs. The alphabet is the one
that is named, else the only one that all labels fit; which one that is, is said. A tier whose labels
fit none is refused. An ASCII tier of plain small letters is read alike as IPA and as X-SAMPA.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import replace

from ...errors import InputError, MissingExtraError, install_command
from .non_units import is_non_unit
from .phone_alphabets import (
    ALPHABETS,
    ARPABET,
    CONVERTERS,
    IPA,
    PRAAT,
    X_SAMPA,
    arpabet_to_ipa,
    xsampa_table,
)
from .praat_symbols import has_praat_symbol
from .timed_words import Word
from .unit_tiers import PHONE

_EXAMPLES = {ARPABET: "'ih' is ɪ", X_SAMPA: "'I' is ɪ", PRAAT: r"'\ic' is ɪ"}


def check_alphabet(alphabet: str | None, where: str) -> None:
    """Refuse an alphabet of phones that is not known: a misspelt one would cost all phones.

    Raises
    ------
    InputError
    """
    if alphabet is not None and alphabet not in ALPHABETS:
        raise InputError(
            f"{where}: alphabet must be one of {', '.join(ALPHABETS)}, found {alphabet!r}"
        )


def convert_to_ipa(
    phones: Sequence[Word], *, alphabet: str | None = None, where: str = "phones"
) -> tuple[Word, ...]:
    """Return the phones of a tier with labels in IPA; what is converted keeps its label as
    `source_label`.

    Parameters
    ----------
    phones : sequence of Word
    alphabet : {"ipa", "arpabet", "x-sampa", "praat"}, optional
        Default: the one that the labels fit, with a warning if it is not IPA.
    where : str
        What to call the tier in an error.

    Raises
    ------
    InputError
        For labels that fit no alphabet, or not the one that is named.
    MissingExtraError
        If "x-sampa" is named and PanPhon is not installed.

    Examples
    --------
    >>> phones = [Word("HH", 0, 1), Word("AH0", 1, 2), Word("L", 2, 3)]
    >>> [phone.text for phone in convert_to_ipa(phones, alphabet="arpabet")]
    ['h', 'ə', 'l']
    """
    check_alphabet(alphabet, where)
    labels = [phone.text for phone in phones if not is_non_unit(phone.text, PHONE)]
    if alphabet == IPA or any(phone.source_label for phone in phones):
        return tuple(phones)  # named so, or converted before
    if alphabet == X_SAMPA and xsampa_table() is None:
        raise MissingExtraError("panphon", "phones", "phone labels in X-SAMPA")
    source_alphabet = alphabet or _find_alphabet(labels, where)
    if source_alphabet is None:
        return tuple(phones)
    convert = CONVERTERS[source_alphabet]
    if unknown := sorted({label for label in labels if not convert(label)}):
        raise InputError(
            f"{where}: expected labels in {source_alphabet}, found {_list_labels(unknown)}"
        )
    if alphabet is None and source_alphabet != IPA:
        warnings.warn(
            f"phones are taken as {source_alphabet} and converted to IPA ({_EXAMPLES[source_alphabet]}); if that is wrong, "
            "name their alphabet with alphabet= (--alphabet on the command line)",
            stacklevel=2,
        )
    converted = []
    for phone in phones:
        ipa = "" if is_non_unit(phone.text, PHONE) else convert(phone.text)
        if ipa not in ("", phone.text):
            phone = replace(phone, text=ipa, source_label=phone.text)
        converted.append(phone)
    return tuple(converted)


def are_phone_labels(words: Sequence[Word]) -> bool:
    """Whether words are phones by their labels: all short, with letters that only IPA has, or all
    ARPABET with its stress."""
    labels = [word.text for word in words if not is_non_unit(word.text, PHONE)]
    is_ipa = all(len(label) <= 3 for label in labels) and any(
        0x250 <= ord(letter) <= 0x2AF for label in labels for letter in label
    )
    is_arpabet = all(map(arpabet_to_ipa, labels)) and any(
        label[-1:] in "012" or label.islower() for label in labels
    )
    return len(labels) > 2 and (is_ipa or is_arpabet)


def _find_alphabet(labels: Sequence[str], where: str) -> str | None:
    """Return the alphabet that all labels fit, None for unreadable X-SAMPA, with a warning.

    InputError if they fit none, or more of them are ARPABET than are not.
    """
    distinct = sorted(set(labels))
    if any(map(has_praat_symbol, distinct)) and _fits(distinct, PRAAT):
        return PRAAT
    # Of one letter, labels may be of any alphabet; of two or more, ARPABET's are of no other as a rule.
    arpabet = [label for label in distinct if arpabet_to_ipa(label)]
    long_arpabet = [label for label in arpabet if len(re.sub("[012]$", "", label)) > 1]
    others = sorted({*distinct} - {*arpabet})
    if not others and (long_arpabet or any(label.isupper() for label in distinct)):
        return ARPABET
    if len(long_arpabet) > len(others) > 0:
        raise InputError(
            f"{where}: most labels are ARPABET, but not {_list_labels(others)}: correct them, or name "
            "the alphabet with alphabet= (--alphabet on the command line)"
        )
    if "".join(distinct).isascii() and any(re.search("[^a-z:]", label) for label in distinct):
        if xsampa_table() is None:
            warnings.warn(
                f"{where}: its labels look like X-SAMPA and stay as they are. To have them in IPA, "
                f"run {install_command('phones')}",
                stacklevel=3,
            )
            return None
        if _fits(distinct, X_SAMPA):
            return X_SAMPA
    if _fits(distinct, IPA):
        return IPA
    unfit = [label for label in distinct if not CONVERTERS[IPA](label)]
    raise InputError(
        f"{where}: its labels fit none of {', '.join(ALPHABETS)}: {_list_labels(unfit)} are not IPA: "
        "correct them, or name the alphabet with alphabet= (--alphabet on the command line)"
    )


def _fits(labels: Sequence[str], alphabet: str) -> bool:
    return all(map(CONVERTERS[alphabet], labels))


def _list_labels(labels: Sequence[str]) -> str:
    return ", ".join(map(repr, labels[:8])) + (" ..." if len(labels) > 8 else "")
