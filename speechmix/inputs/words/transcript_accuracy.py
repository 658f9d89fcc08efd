"""How far a transcript is from what was said."""

from __future__ import annotations

import unicodedata

from rapidfuzz.distance import Levenshtein

# A model whose transcripts differ from the text by more than this does not transcribe the clips it
# is asked about.
MAX_ERROR_RATE = 0.5


def character_error_rate(text: str, transcript: str) -> float:
    """Edits between two texts per character of the first; case, punctuation and runs of spaces
    aside, accents kept.

    Examples
    --------
    >>> character_error_rate("Les livres.", "les livre")
    0.1
    """
    reference, hypothesis = normalize_transcript(text), normalize_transcript(transcript)
    return Levenshtein.distance(reference, hypothesis) / max(1, len(reference))


def count_word_errors(text: str, transcript: str) -> int:
    """Count the words to insert, delete or replace between two texts; case and punctuation aside.

    Examples
    --------
    >>> count_word_errors("Les livres.", "les livre de Jean")
    3
    """
    return Levenshtein.distance(
        *(normalize_transcript(each).split() for each in (text, transcript))
    )


def describe_accuracy(transcript: str, text: str | None) -> str:
    """What a model writes, for people, and how that compares with what was said.

    Parameters
    ----------
    transcript : str
    text : str, optional
        What was said, if that is known.

    Examples
    --------
    >>> describe_accuracy("les livres", "Les livres.")
    'writes: les livres (as given)'
    >>> describe_accuracy("les livre de Jean", "les livres de Jean")
    'writes: les livre de Jean (1 of 4 words differs)'
    >>> describe_accuracy("merci", "les livres de Jean")
    'writes: merci (4 of 4 words differ: it does NOT transcribe this clip)'
    """
    sentence = f"writes: {transcript}" if transcript else "writes nothing"
    reference_words = normalize_transcript(text or "").split()
    if not reference_words:
        return sentence
    error_count = min(count_word_errors(text or "", transcript), len(reference_words))
    if not error_count:
        return f"{sentence} (as given)"
    error_summary = (
        f"{error_count} of {len(reference_words)} words differ{'s' if error_count == 1 else ''}"
    )
    is_unusable = character_error_rate(text or "", transcript) > MAX_ERROR_RATE
    return (
        f"{sentence} ({error_summary}{': it does NOT transcribe this clip' if is_unusable else ''})"
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
