"""Result of an aligner: times of each word, and confidence.

In: audio and its transcript. Out: an `Alignment`, one `Word` for each item of `aligned_words(text)`, in
order. All aligners of this folder share this contract, so a pipeline can swap them. An aligner that
cannot place the words raises `AlignmentError` (a run records it and goes on); one that places them
but has reasons not to be believed says so in `doubts`, and the caller decides.

Do aligners agree? Word times of the same clips by several methods, side by side.

In: clips with text (those with words are their own reference) and named aligners. Out: one row per
clip, word and method, and a summary: how far the word starts and ends are from the reference, how
often an aligner fails, how long it takes. Without a reference, the median of the other methods
stands in for it, and the summary says so.
"""

from __future__ import annotations

import re
import time
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ..errors import InputError, SpeechmixError
from ..files.json_files import JsonObject
from ..inputs.clips.clip import Clip
from ..inputs.words.timed_words import Word

# Raised when any aligner of this folder places words elsewhere, scores them otherwise or has other
# doubts than before: word times that are kept with another revision are made again.
REVISION = 5
PHONE_REVISION = 2  # the same of phones

# The doubt that all clips of a language share; the others concern one clip.
NOT_CALIBRATED = (
    "Scores of word times are calibrated on French and not calibrated on {language}: a word with a high score "
    "may also be more than 100 ms off."
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


Aligner = Callable[[Clip], tuple[Word, ...]]


def compare_aligners(clips: Iterable[Clip], aligners: Mapping[str, Aligner]) -> pd.DataFrame:
    """Align clips that have text with every aligner, a function of a clip.

    Each aligner returns the same number of words for a clip; an error of this package is recorded.
    The table has the columns clip, method, word (index), text, start, end, score, seconds_taken (of
    the clip, on its first word), reason (of a failure; then word, start and end are missing). A
    clip's own words are the method "reference".
    """
    rows = []
    for clip in clips:
        if clip.words is not None:
            rows += _rows(clip, "reference", clip.words, None)
        for name, aligner in aligners.items():
            begun = time.perf_counter()
            try:
                rows += _rows(clip, name, aligner(clip), time.perf_counter() - begun)
            except SpeechmixError as error:
                rows.append({"clip": clip.name, "method": name, "reason": str(error)})
    columns = ["clip", "method", "word", "text", "start", "end", "score", "seconds_taken", "reason"]
    return pd.DataFrame(rows, columns=columns)


def summarize_aligners(table: pd.DataFrame) -> pd.DataFrame:
    """Summarise a table of `compare_aligners`, one row per method.

    The columns say against what it is measured ("reference", or "others": their median), words,
    failures (clips), median distance of word starts and ends in ms, share of the starts within 20,
    50 and 100 ms in %, median seconds a clip. If no clip was aligned by any method, an InputError
    is raised.
    """
    placed = table[table.reason.isna()]
    if placed.empty:
        raise InputError(
            f"no aligner placed any clip: {'; '.join(table.reason.dropna().unique()[:3])}"
        )
    against = "reference" if (placed.method == "reference").any() else "others"
    result = []
    for method in dict.fromkeys(table.method[table.method != "reference"]):
        truth = placed[
            placed.method == "reference" if against == "reference" else placed.method != method
        ]
        reference = truth.groupby(["clip", "word"])[["start", "end"]].median()
        method_rows = placed[placed.method == method].join(
            reference, on=["clip", "word"], rsuffix="_reference"
        )
        method_rows = method_rows.dropna(subset=["start_reference"])
        starts, ends = (
            1000 * (method_rows[side] - method_rows[f"{side}_reference"]).abs()
            for side in ("start", "end")
        )
        row = {"method": method, "against": against, "words": len(method_rows)}
        row["failures"] = int(table.reason[table.method == method].notna().sum())
        row |= {
            "start_ms": round(float(starts.median()), 1),
            "end_ms": round(float(ends.median()), 1),
        }
        row |= {
            f"within_{ms}_ms": round(100 * float((starts <= ms + 1e-6).mean()), 1)
            for ms in (20, 50, 100)
        }
        row["seconds_a_clip"] = round(float(method_rows.seconds_taken.median()), 3)
        result.append(row)
    return pd.DataFrame(result)


def _rows(
    clip: Clip, method: str, words: Iterable[Word], taken: float | None
) -> list[dict[str, object]]:
    rows = []
    for index, word in enumerate(words):
        row: dict[str, object] = {
            "clip": clip.name,
            "method": method,
            "word": index,
            "text": word.text,
        }
        row |= {"start": word.start, "end": word.end, "score": word.score}
        rows.append({**row, "seconds_taken": (taken if index == 0 else np.nan)})
    return rows
