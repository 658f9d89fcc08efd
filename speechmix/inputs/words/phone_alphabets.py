"""Alphabets of phone labels, each with what turns a label into IPA.

In: a label. Out: IPA, or "" where the alphabet has no such label. ARPABET is that of CMU's dictionary,
with or without stress (``AH0``), and in small letters that of TIMIT and Buckeye (``ah``, closures
``bcl``, nasal vowels ``ahn``). X-SAMPA is read by PanPhon's table (extra `phones`). A label of IPA, X-SAMPA
or Praat is of one phone: most small letters are signs of each, so that signs alone do not tell a phone
from a word.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from .praat_symbols import decode_praat_symbols

IPA, ARPABET, X_SAMPA, PRAAT = "ipa", "arpabet", "x-sampa", "praat"

_ARPABET = dict(
    part.split("=")
    for part in """
    AA=ɑ AE=æ AH=ʌ AH0=ə AO=ɔ AW=aʊ AX=ə AX-H=ə̥ AXR=ɚ AY=aɪ EH=ɛ ER=ɝ ER0=ɚ EY=eɪ IH=ɪ IX=ɨ IY=i OW=oʊ
    OY=ɔɪ UH=ʊ UW=u UX=ʉ B=b BCL=b̚ CH=tʃ D=d DCL=d̚ DH=ð DX=ɾ EL=l̩ EM=m̩ EN=n̩ ENG=ŋ̍ F=f G=ɡ GCL=ɡ̚ HH=h
    HV=ɦ JH=dʒ K=k KCL=k̚ L=l M=m N=n NG=ŋ NX=ɾ̃ P=p PCL=p̚ Q=ʔ R=ɹ S=s SH=ʃ T=t TCL=t̚ TH=θ TQ=ʔ V=v W=w
    WH=ʍ Y=j Z=z ZH=ʒ
    AAN=ɑ̃ AEN=æ̃ AHN=ʌ̃ AON=ɔ̃ AWN=ãʊ̃ AYN=ãɪ̃ EHN=ɛ̃ ERN=ɝ̃ EYN=ẽɪ̃ IHN=ɪ̃ IYN=ĩ OWN=õʊ̃ OYN=ɔ̃ɪ̃ UHN=ʊ̃ UWN=ũ""".split()
)
# Of X-SAMPA (Wells 1995), what PanPhon's table lacks or has otherwise: contour tones, steps, global pitch, the
# Swedish fricative, the linking mark.
_OTHER_X_SAMPA = {
    "_R": "\u030c",
    "_/": "\u030c",
    "_F": "\u0302",
    "_\\": "\u0302",
    "!": "ꜜ",
    "^": "ꜛ",
    "<R>": "↗",
    "<F>": "↘",
    "x\\": "ɧ",
    "-\\": "‿",
}
# Letters of the IPA beside a to z: those in Latin-1 and Greek, the blocks of IPA extensions, modifier
# letters, combining marks and phonetic extensions, clicks, and signs between and behind letters.
_IPA_LETTERS = "a-zæçðøħŋœβθχⱱǀ-ǃⁿ\u0250-\u02ff\u0300-\u036f\u1d00-\u1dbf"
_IPA_SIGNS = ".:'’‖‿|↓↑↗↘¹²³⁴⁵⁰-"
_IPA_LABEL = re.compile(
    f"[{_IPA_LETTERS}{re.escape(_IPA_SIGNS)}]*[{_IPA_LETTERS}]"
    f"[{_IPA_LETTERS}{re.escape(_IPA_SIGNS)}]*([1-5]{{2,3}})?"  # one digit would be stress: of ARPABET
)
_VOWELS = "aeiouyæœøɶɐɑɒɔɘəɚɛɜɝɞɤɨɪɩɯɷʉʊʏʌɿʅʮʯᴇᵻᵿ"
_GLIDES = "jwɥɰ"
# A consonant, long or an affricate, with a nasal before it; or up to three vowels with glides, and the r, l
# or nasal that is one phone with them, as espeak-ng has it. Letters without their diacritics.
_ONE_PHONE = re.compile(
    f"[^{_VOWELS}]{{0,3}}|(?=.{{1,5}}$)[{_GLIDES}]?[{_VOWELS}{_GLIDES}]{{1,3}}([nŋ]ɡ|[lɫɭrɹɾɻʀʁmnɲŋ])?"
)


def arpabet_to_ipa(label: str) -> str:
    """IPA of an ARPABET label in capitals or in small letters; "" for anything else.

    Examples
    --------
    >>> arpabet_to_ipa("AH0"), arpabet_to_ipa("axr"), arpabet_to_ipa("Ah"), arpabet_to_ipa("a")
    ('ə', 'ɚ', '', '')
    """
    if not (label.isupper() or label.islower()):
        return ""
    label = label.upper()
    return _ARPABET.get(label) or _ARPABET.get(re.sub("[012]$", "", label), "")


def ipa_to_ipa(label: str) -> str:
    """The label, if it may be one phone in IPA, with tones as digits behind it; else "".

    Examples
    --------
    >>> ipa_to_ipa("tʃʰ"), ipa_to_ipa("ɑ̃"), ipa_to_ipa("a55"), ipa_to_ipa("aɪ1"), ipa_to_ipa("cat")
    ('tʃʰ', 'ɑ̃', 'a55', '', '')
    """
    is_ipa = _IPA_LABEL.fullmatch(unicodedata.normalize("NFD", label)) is not None
    return label if is_ipa and _is_one_phone(label) else ""


def praat_to_ipa(label: str) -> str:
    """IPA of a label with Praat's backslash symbols; "" if there are letters that are none."""
    return ipa_to_ipa(decode_praat_symbols(label))


def xsampa_to_ipa(label: str) -> str:
    """IPA of an X-SAMPA label by PanPhon's table; "" if a sign in it is not in the table, or it is of
    several phones.

    PanPhon's own function leaves such signs out in silence, and its table lacks some of X-SAMPA.
    """
    table, ipa, rest = xsampa_table(), "", label
    while rest:
        match = table.xs_regex.match(rest)
        table_signs = [match[0]] if match else []
        sign = max([*table_signs, *filter(rest.startswith, _OTHER_X_SAMPA)], key=len, default="")
        if not sign:
            return ""
        # A backspace stands before one tone of the table.
        ipa += _OTHER_X_SAMPA[sign] if sign in _OTHER_X_SAMPA else table.xs2ipa[sign].strip("\b")
        rest = rest[len(sign) :]
    return unicodedata.normalize("NFC", ipa) if _is_one_phone(ipa) else ""


def _is_one_phone(ipa: str) -> bool:
    letters = (
        sign
        for sign in unicodedata.normalize("NFD", ipa)
        if unicodedata.category(sign) in ("Ll", "Lo")
    )
    return _ONE_PHONE.fullmatch("".join(letters)) is not None


@lru_cache(maxsize=1)
def xsampa_table() -> Any:
    """PanPhon's table of X-SAMPA; None if it is not installed."""
    try:
        from panphon.xsampa import XSampa
    except ImportError:
        return None
    return XSampa()


CONVERTERS: dict[str, Callable[[str], str]] = {
    IPA: ipa_to_ipa,
    ARPABET: arpabet_to_ipa,
    X_SAMPA: xsampa_to_ipa,
    PRAAT: praat_to_ipa,
}
ALPHABETS = tuple(CONVERTERS)
