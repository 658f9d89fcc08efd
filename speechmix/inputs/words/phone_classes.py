"""Classes and features of phones, by their IPA labels (PanPhon's table, extra `phones`).

In: an IPA label as aligners write it, with stress marks, length, diacritics, a diphthong or an
affricate without a tie bar. Out: its class of manner, or its features. PanPhon's features do not tell trills and
taps from approximants, and call the glottal fricatives sonorants; `_CLASS_BY_BASE` has these.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from typing import Any

from ...errors import InputError, MissingExtraError

PHONE_CLASSES = (
    *("vowel", "approximant", "trill", "tap"),
    *("nasal", "fricative", "affricate", "stop"),
)
_CLASS_BY_BASE = dict.fromkeys("hɦʍ", "fricative") | dict.fromkeys("ʙrʀ", "trill")
_CLASS_BY_BASE |= dict.fromkeys("ɾɽɺⱱ", "tap")
# Other ways to write a symbol of PanPhon's, and marks that are no part of a segment: stress, breaks,
# ties between words, tones, espeak-ng's hyphen.
_SPELLINGS = {"g": "ɡ", ":": "ː", "ɚ": "ə˞", "ɝ": "ɜ˞", "ᵻ": "ɨ", "ⱱ": "ɾ", "͜": "͡"}
_SPELLINGS |= {"ʧ": "t͡ʃ", "ʤ": "d͡ʒ", "ʦ": "t͡s", "ʣ": "d͡z", "ʨ": "t͡ɕ", "ʥ": "d͡ʑ"}  # ligatures
_MARKS = "ˈˌ.‿|‖-˥˦˧˨˩"


def phone_class(label: str, *, where: str = "") -> str:
    """Return the class of a phone: vowel, approximant, trill, tap, nasal, fricative, affricate or
    stop.

    Parameters
    ----------
    label : str
        IPA. Diphthongs are vowels; a stop and its fricative are an affricate. Laterals are
        approximants or fricatives, clicks and implosives stops, nasalised vowels vowels.
    where : str
        Where the label is, for the error ("clip 'a', 1.20 s").

    Raises
    ------
    InputError
        For a label that is empty, no IPA, or several phones.
    MissingExtraError
        If PanPhon is not installed.

    Examples
    --------
    >>> [phone_class(label) for label in ("ˈɑ̃", "m", "dʒ", "ʁ", "j", "oʊ")]
    ['vowel', 'nasal', 'affricate', 'fricative', 'approximant', 'vowel']
    """
    segments = _segments(label, where)
    classes = [_segment_class(text, features) for text, features in segments]
    if classes[0] == "vowel" and {*classes[1:]} <= {"vowel", "approximant"}:
        return "vowel"
    if len(classes) > 1:
        raise InputError(
            f"{_locate(where)}{label!r} is several phones ({' '.join(text for text, _ in segments)}): expected "
            "one phone to a label; leave out labels of noise such as 'spn'"
        )
    return classes[0]


def articulatory_features(label: str, *, where: str = "") -> dict[str, int]:
    """Return the phonological features of a phone: 1 for +, -1 for -, 0 where it has none.

    A diphthong has the features of its first vowel. Labels and errors are those of `phone_class`.
    """
    phone_class(label, where=where)  # refuses labels of several phones
    features = _segments(label, where)[0][1]
    return {name: features[name] for name in features.names}


@lru_cache(maxsize=1)
def _feature_table() -> Any:
    try:
        import panphon
    except ImportError as error:
        raise MissingExtraError("panphon", "phones", "classes of phones") from error
    return panphon.FeatureTable()


def _segments(label: str, where: str) -> list[tuple[str, Any]]:
    """Return the IPA segments of a label with their features; one for an affricate without a tie
    bar."""
    text = unicodedata.normalize("NFD", "".join(c for c in label if c not in _MARKS).strip())
    text = "".join(_SPELLINGS.get(character, character) for character in text)
    table = _feature_table()
    segments = table.ipa_segs(text)
    if len(segments) == 2 and table.fts(tied := f"{segments[0]}͡{segments[1]}"):
        segments = [tied]
    unknown = text
    for segment in segments:
        unknown = unknown.replace(segment if segment in text else segment.replace("͡", ""), "", 1)
    # PanPhon leaves out some fine diacritics; a base symbol is another matter.
    unknown = "".join(c for c in unknown if unicodedata.category(c) not in ("Mn", "Lm", "Sk"))
    if unknown or not segments:
        symbols = f"no IPA symbol {unknown!r} is known" if unknown else "there is no phone in it"
        raise InputError(
            f"{_locate(where)}{label!r}: {symbols}: expected one phone in IPA, such as 'ʁ' or 'ɑ̃'"
        )
    return [(segment, table.fts(segment)) for segment in segments]


def _segment_class(text: str, features: Any) -> str:
    if text[0] in _CLASS_BY_BASE:
        return _CLASS_BY_BASE[text[0]]
    if features["syl"] == 1 and features["cons"] == -1:
        return "vowel"
    if features["nas"] == 1:
        return "nasal"
    if features["cont"] == 1:
        return "approximant" if features["son"] == 1 else "fricative"
    return "affricate" if features["delrel"] == 1 else "stop"


def _locate(where: str) -> str:
    return f"{where}: " if where else ""
