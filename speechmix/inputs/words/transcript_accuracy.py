"""How far a transcript is from what was said.

What of a string is text: one spelling for strings that look alike, labels that are no words, and blanks.

In: texts and labels of files. Out: the same in Unicode's composed form (NFC) without invisible marks; labels
that aligners and recognisers give to noise; words in a row, as their script writes them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable
from functools import cache

from rapidfuzz.distance import Levenshtein

_HALVES = re.compile(r"(\d+) and a half\b", re.IGNORECASE)
_PERCENT = re.compile(r"(?<=\d) (?=%)")

# A model whose transcripts differ from the text by more than this does not transcribe the clips it
# is asked about.
MAX_ERROR_RATE = 0.5


def character_error_rate(text: str, transcript: str, language: str | None = None) -> float:
    """Edits between two texts per character of the first; case, punctuation and runs of spaces
    aside, accents kept. In English, numbers and spellings count alike (`normalize_language`).

    Examples
    --------
    >>> character_error_rate("Les livres.", "les livre")
    0.1
    """
    reference, hypothesis = (normalize_language(each, language) for each in (text, transcript))
    return Levenshtein.distance(reference, hypothesis) / max(1, len(reference))


def count_word_errors(text: str, transcript: str, language: str | None = None) -> int:
    """Count the words to insert, delete or replace between two texts; case and punctuation aside.
    In English, numbers and spellings count alike (`normalize_language`).

    Examples
    --------
    >>> count_word_errors("Les livres.", "les livre de Jean")
    3
    """
    return Levenshtein.distance(
        *(normalize_language(each, language).split() for each in (text, transcript))
    )


def describe_accuracy(transcript: str, text: str | None, language: str | None = None) -> str:
    """Describe the transcript of a model in a sentence, and how it compares with the text, if
    known."""
    sentence = f"writes: {transcript}" if transcript else "writes nothing"
    reference_words = normalize_language(text or "", language).split()
    if not reference_words:
        return sentence
    edits = Levenshtein.editops(reference_words, normalize_language(transcript, language).split())
    added_count = sum(edit.tag == "insert" for edit in edits)
    changed_count = len(edits) - added_count
    added = f", and {added_count} word{'s' * (added_count > 1)} more" if added_count else ""
    if not changed_count:
        return f"{sentence} (as given{added})"
    is_other = is_other_text(transcript, text or "", language)
    return (
        f"{sentence} ({changed_count} of {len(reference_words)} words differ"
        f"{'s' if changed_count == 1 else ''}{added}"
        f"{': it does NOT transcribe this clip' if is_other else ''})"
    )


def is_other_text(transcript: str, text: str, language: str | None = None) -> bool:
    """Whether a model does not transcribe a clip: words of the text are missing or changed, and the
    character error rate is over `MAX_ERROR_RATE`.

    Examples
    --------
    >>> is_other_text("merci", "les livres de Jean"), is_other_text("les livre", "les livres")
    (True, False)
    >>> is_other_text("les livres de Jean", "les livres")   # all of it is there
    False
    """
    reference, hypothesis = (
        normalize_language(each, language).split() for each in (text, transcript)
    )
    edits = Levenshtein.editops(reference, hypothesis)
    return (
        any(edit.tag != "insert" for edit in edits)
        and character_error_rate(text, transcript, language) > MAX_ERROR_RATE
    )


def normalize_transcript(text: str) -> str:
    """Text as it is compared: small letters, no punctuation, single spaces; accents are kept.

    Examples
    --------
    >>> normalize_transcript("L’été,  oui !")
    "l'été oui"
    """
    characters = (
        c if c.isalnum() or c == "'" else " "
        for c in unicodedata.normalize("NFC", text).lower().replace("’", "'")
    )
    return " ".join("".join(characters).split())


def normalize_language(text: str, language: str | None) -> str:
    """Text as transcripts of a language are compared: in English with numbers as digits, contractions
    in full and without fillers, by the normaliser of Whisper's authors (in transformers); in other
    languages as `normalize_transcript`.

    Examples
    --------
    >>> normalize_language("Five and a half, it's 75 percent", "en")
    '5.5 it is 75%'
    >>> normalize_language("Il a 4 ans.", "fr")
    'il a 4 ans'
    """
    if not _is_english(language):
        return normalize_transcript(text)
    normalized = _english_normalizer()(_HALVES.sub(r"\1.5", _PERCENT.sub("", text)))
    return " ".join(normalized.split())


def normalization_entry(language: str | None) -> dict[str, object]:
    """Return what the comparison of transcripts adds to a cache key: nothing but in English, whose numbers
    count alike whatever their spelling."""
    return {"normalization": "en"} if _is_english(language) else {}


def _is_english(language: str | None) -> bool:
    return (language or "").split("-")[0].lower() in ("en", "english")


def is_same_text(text: str, other: str, language: str | None) -> bool:
    """Whether two texts differ at most in numbers, spellings and spaces between words.

    Examples
    --------
    >>> is_same_text("Never mind", "nevermind", "en"), is_same_text("two", "too", "en")
    (True, False)
    """
    first, second = (normalize_language(each, language).replace(" ", "") for each in (text, other))
    return first == second


@cache
def _english_normalizer() -> Callable[[str], str]:
    from transformers.models.whisper.english_normalizer import EnglishTextNormalizer

    normalizer: Callable[[str], str] = EnglishTextNormalizer({})
    return normalizer


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
