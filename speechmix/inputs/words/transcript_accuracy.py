"""How far a transcript is from what was said."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
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
