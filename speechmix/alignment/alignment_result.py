"""Result of an aligner: times of each word, and confidence.

In: audio and its transcript. Out: an `Alignment`, one `Word` for each item of `aligned_words(text)`, in
order. All aligners of this folder share this contract, so a pipeline can swap them. An aligner that
cannot place the words raises `AlignmentError` (a run records it and goes on); one that places them
but has reasons not to be believed says so in `doubts`, and the caller decides.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..files.json_files import JsonObject
from ..inputs.words.timed_words import Word

# Raised when any aligner of this folder places words elsewhere, scores them otherwise or has other
# doubts than before: word times that are kept with another revision are made again.
REVISION = 5
PHONE_REVISION = 2  # the same of phones

# The doubt that all clips of a language share; the others concern one clip.
NOT_CALIBRATED = (
    "Scores and warnings of word times were tuned on French: in {language}, a word with a high score may also "
    "be more than 100 ms off."
)
# The same of an aligner whose scores are calibrated on no language.
ATTENTION_NOT_CALIBRATED = (
    "Scores of word times by Whisper's attention are not calibrated: a word with a high score may also be more than "
    "100 ms off."
)

# Words that are scored lower are named among the doubts, by all methods but attention. Of synthesis: in development
# (where the weights were fitted) 51 % of the words that are off are scored lower, and half of those named are
# off; on held-out sentences 44 and 40 %, and without noise 3 of 41 words that are off.
MIN_TRUSTED_WORD_SCORE = 0.75

# Marks that are read aloud though Unicode files them under punctuation; currency and mathematical
# signs are symbols.
_PRONOUNCED_SIGNS = frozenset("%‰&@#§°")
_APOSTROPHES, _MINUS_SIGNS = ("'", "’"), ("-", "−")


@dataclass(frozen=True)
class Alignment:
    """Words of a transcript with their times.

    There is one of `words` for each item of ``aligned_words(text)``, in order, in seconds; words do
    not overlap, and a pause belongs to none of them. ``Word.score`` is between 0 (no better than
    any other place or text) and 1 (fits as well as the right words do); by synthesis, the
    probability that neither boundary is more than 100 ms off. `score` is the same for the whole
    clip: the mean over the words, weighted by their duration, unless the aligner says otherwise
    (synthesis: the probability that the text is what is said). Scores of different methods are not
    on one scale.

    `doubts` are sentences, each a reason why the alignment cannot be trusted. `phonemes` say where
    each phoneme (IPA, with stress marks) is, in seconds; `phones` are those of each word, without
    gaps inside it, in IPA, and their ``Word.score`` is the probability that neither boundary is
    more than 20 ms off. Both are empty if the aligner has none.
    """

    words: tuple[Word, ...]
    method: str
    score: float
    doubts: tuple[str, ...] = ()
    phonemes: tuple[Word, ...] = ()
    phones: tuple[Word, ...] = ()

    @property
    def trusted(self) -> bool:
        """True if the aligner found no reason for doubt."""
        return not self.doubts


def without_calibration_note(doubts: str) -> str:
    """Joined doubts without the sentences that every clip in another language, or placed by attention, has."""
    pattern = re.escape(NOT_CALIBRATED).replace(re.escape("{language}"), r"\S+")
    return re.sub(pattern, "", doubts.replace(ATTENTION_NOT_CALIBRATED, "")).strip()


def list_unsure_words(words: Iterable[Word], min_score: float = MIN_TRUSTED_WORD_SCORE) -> str:
    """The words whose score is too low to be trusted, with their scores; "" if there are none.

    Examples
    --------
    >>> list_unsure_words([Word("les", 0.1, 0.2, 0.9), Word("livres", 0.2, 0.7, 0.4)])
    'livres (0.40)'
    """
    unsure = [
        f"{word.text} ({word.score:.2f})"
        for word in words
        if word.score is not None and word.score < min_score
    ]
    return ", ".join(unsure[:5]) + (f" and {len(unsure) - 5} more" if len(unsure) > 5 else "")


def later_changes(method: str, language: str | None, *, has_model: bool) -> JsonObject:
    """Say what changed without a revision of all word times, for the cache keys of those it
    concerns.

    These are the wildcards of CTC, the doubts of other methods than synthesis and outside French,
    and the heads of a Whisper that names none.
    """
    by_synthesis = method == "synthesis" or (method == "auto" and not has_model)
    is_french = (language or "").startswith("fr")
    doubts: JsonObject = {} if by_synthesis and is_french else {"doubts": 3}
    return doubts | ({"heads": 2, "doubts": 4} if method == "whisper" else {})


def aligned_words(text: str) -> list[str]:
    """Split a transcript at white space into its written words.

    A token of nothing but punctuation (``« : ! ? — …``) is no word and is dropped; a sign that is
    read aloud (``%``, ``€``, ``&``) is one. Punctuation that touches a word stays on it, and
    ``l'enfant`` or ``petits-pois`` is one word: white space is the only boundary that every
    transcript and every corpus agrees on.

    Examples
    --------
    >>> aligned_words("« L'enfant » mange 50 % : bravo !")
    ["L'enfant", 'mange', '50', '%', 'bravo']
    """
    return [token for token in text.split() if any(map(is_pronounced, token))]


def remove_signs(words: Sequence[str]) -> list[str]:
    """Cut off the signs around written words that are not read aloud: quotation marks, commas,
    question marks.

    Aligners look for what this returns, so that a sign never moves a word. Apostrophes stay
    (``l'``), and so does a minus sign before a figure (``-5``).

    Examples
    --------
    >>> remove_signs(["«L'enfant", "dit:", "(80%)", "est-il?", "l'", "Bon…"])
    ["L'enfant", 'dit', '80%', 'est-il', "l'", 'Bon']
    """
    return [_remove_signs_from_word(word) for word in words]


def _remove_signs_from_word(word: str) -> str:
    inside = [index for index, character in enumerate(word) if is_pronounced(character)]
    first, last = inside[0], inside[-1]
    opens, closes = word[:first].endswith(_APOSTROPHES), word[last + 1 :].startswith(_APOSTROPHES)
    if word[:first].endswith(_MINUS_SIGNS) and word[first].isdigit():
        first -= 1
    if opens != closes:  # both are quotation marks
        first, last = first - opens, last + closes
    return word[first : last + 1]


def is_pronounced(character: str) -> bool:
    """Whether a character is read aloud: a letter, a digit, or a sign such as %.

    Examples
    --------
    >>> [is_pronounced(character) for character in "a8%,"]
    [True, True, True, False]
    """
    return (
        character.isalnum()
        or character in _PRONOUNCED_SIGNS
        or unicodedata.category(character) in ("Sc", "Sm")
    )
