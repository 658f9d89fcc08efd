"""What of a string is text: one spelling for strings that look alike, labels that are no words, and blanks.

In: texts and labels of files. Out: the same in Unicode's composed form (NFC) without invisible marks; labels
that aligners and recognisers give to noise; words in a row, as their script writes them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

# Soft hyphens, direction marks, joiners of lines and byte order marks: they say how to set a text, not what it
# says. The joiners of Persian and of India's scripts (U+200C, U+200D) are spelling and stay.
_INVISIBLE_MARKS = re.compile("[\u00ad\u061c\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff]")
# Thai, Lao, Tibetan, Burmese, Khmer, kana and Chinese characters.
_SCRIPTS_WITHOUT_BLANKS = re.compile(
    "[\u0e00-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff]"
)
# "<unk>", "[*]", "[noise]", "{laugh}", and the aligners' "spn" and "nsn"; "noise" alone is a word.
_NOISE_LABEL = re.compile(r"<.*>|\[.*\]|\{.*\}|spn|nsn", re.IGNORECASE)


def normalize_text(text: str) -> str:
    """Return a text in NFC without soft hyphens and direction marks.

    Examples
    --------
    >>> normalize_text("e\\u0301te\\u0301"), normalize_text("Kaf\\u00adfee")
    ('été', 'Kaffee')
    """
    return unicodedata.normalize("NFC", _INVISIBLE_MARKS.sub("", text))


def is_noise_label(label: str) -> bool:
    """Whether a label names a noise or unknown speech, so that nobody says it as a word.

    Examples
    --------
    >>> [is_noise_label(label) for label in ("<unk>", "[*]", "spn", "noise")]
    [True, True, True, False]
    """
    return _NOISE_LABEL.fullmatch(label.strip()) is not None


def is_written_without_blanks(character: str) -> bool:
    """Whether a character is of a script that puts no blanks between words (Chinese, Japanese, Thai, ...)."""
    return _SCRIPTS_WITHOUT_BLANKS.match(character) is not None


def join_labels(labels: Iterable[str]) -> str:
    """Labels of words in a row: with blanks between them, where their script has blanks.

    Examples
    --------
    >>> join_labels(["les", "livres"]), join_labels(["日本", "語"])
    ('les livres', '日本語')
    """
    text = ""
    for label in filter(None, labels):
        if text and not any(map(is_written_without_blanks, (text[-1], label[0]))):
            text += " "
        text += label
    return text
