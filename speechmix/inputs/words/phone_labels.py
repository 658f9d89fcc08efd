"""Labels of phones in IPA: from ARPABET, and from SAMPA and X-SAMPA.

In: the labels of a tier. Out: IPA, and the file's own label where it differs. A tier is ARPABET if all
its labels are ("AH0"), and X-SAMPA if all are ASCII and one of them is no plain small letter ("E~",
"@"). Anything else is IPA already. X-SAMPA is read by PanPhon's table (extra `phones`).
"""

from __future__ import annotations

import re
import unicodedata
import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from ...errors import install_command
from .timed_words import Word

_ARPABET = dict(
    part.split("=")
    for part in """
    AA=ɑ AE=æ AH=ʌ AH0=ə AO=ɔ AW=aʊ AX=ə AXR=ɚ AY=aɪ EH=ɛ ER=ɝ ER0=ɚ EY=eɪ IH=ɪ IX=ɨ IY=i OW=oʊ OY=ɔɪ
    UH=ʊ UW=u UX=ʉ B=b CH=tʃ D=d DH=ð DX=ɾ EL=l̩ EM=m̩ EN=n̩ F=f G=ɡ HH=h HV=ɦ JH=dʒ K=k L=l M=m N=n
    NG=ŋ NX=ɾ̃ P=p Q=ʔ R=ɹ S=s SH=ʃ T=t TH=θ V=v W=w WH=ʍ Y=j Z=z ZH=ʒ""".split()
)
_NOISE = frozenset({"spn", "sil", "<unk>", "<usb>", "<nib>", "noise"})  # of aligners: no phones


def convert_to_ipa(phones: Sequence[Word], *, where: str = "phones") -> tuple[Word, ...]:
    """Return the phones of a tier with labels in IPA; what is converted keeps its label as
    `source_label`.

    Parameters
    ----------
    phones : sequence of Word
    where : str
        What to call the tier in a warning: without PanPhon, X-SAMPA stays as it is.

    Examples
    --------
    >>> [phone.text for phone in convert_to_ipa([Word("HH", 0, 1), Word("AH0", 1, 2), Word("L", 2, 3)])]
    ['h', 'ə', 'l']
    """
    labels = [phone.text for phone in phones if phone.text.casefold() not in _NOISE]
    if labels and all(_arpabet_to_ipa(label) for label in labels):
        convert = _arpabet_to_ipa
    elif "".join(labels).isascii() and any(re.search("[^a-z:]", label) for label in labels):
        if _xsampa() is None:
            warnings.warn(
                f"{where}: its labels look like X-SAMPA and stay as they are. To have them in IPA, "
                f"run {install_command('phones')}",
                stacklevel=2,
            )
            return tuple(phones)
        convert = _xsampa_to_ipa
    else:
        return tuple(phones)
    converted = []
    for phone in phones:
        ipa = "" if phone.text.casefold() in _NOISE else convert(phone.text)
        if ipa not in ("", phone.text):
            phone = replace(phone, text=ipa, source_label=phone.text)
        converted.append(phone)
    return tuple(converted)


def are_phone_labels(words: Sequence[Word]) -> bool:
    """Whether words are phones by their labels: all short, with letters that only IPA has, or all
    ARPABET with its stress.

    Examples
    --------
    >>> are_phone_labels([Word("l", 0, 1), Word("ə", 1, 2), Word("ʃ", 2, 3)])
    True
    """
    labels = [word.text for word in words]
    is_ipa = all(len(label) <= 3 for label in labels) and any(
        0x250 <= ord(letter) <= 0x2AF for label in labels for letter in label
    )
    is_arpabet = all(map(_arpabet_to_ipa, labels)) and any(label[-1:] in "012" for label in labels)
    return len(labels) > 2 and (is_ipa or is_arpabet)


def _arpabet_to_ipa(label: str) -> str:
    """IPA of an ARPABET label with or without its stress; "" for anything else."""
    return _ARPABET.get(label) or _ARPABET.get(re.sub("[012]$", "", label), "")


def _xsampa_to_ipa(label: str) -> str:
    return unicodedata.normalize("NFC", _xsampa().convert(label))


@lru_cache(maxsize=1)
def _xsampa() -> Any:
    """PanPhon's table of X-SAMPA; None if it is not installed."""
    try:
        from panphon.xsampa import XSampa
    except ImportError:
        return None
    return XSampa()
