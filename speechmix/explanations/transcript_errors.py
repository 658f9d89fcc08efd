"""Where a transcript errs: words that were misheard, made up or left out, found by aligning it with
what was said.

In: the words that were said, with their times where they are known, and the words that a model
wrote. Out: `TranscriptError`s in the order of the transcript. Of the alignments with the fewest
errors (the word error rate's), that one whose exchanged words are spelled most alike, by rapidfuzz;
case and punctuation are no errors (`normalize_transcript`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rapidfuzz.distance import Levenshtein

from ..inputs.words.timed_words import Word
from ..inputs.words.transcript_accuracy import normalize_transcript

KINDS = ("substitution", "insertion", "deletion")


@dataclass(frozen=True)
class TranscriptError:
    """A word that was misheard, made up or left out.

    Parameters
    ----------
    kind : {"substitution", "insertion", "deletion"}
    said, wrote : str or None
        The word that was said and the one that was written; None where there is none.
    reference : int or None
        Index of the word that was said, among those said.
    written : int
        Index of the written word; of a deletion that of the word that follows it, or their number
        at the end.
    onset, offset : float or None
        Seconds of the word that was said.
    before, after : str or None
        The written words on both sides; None at the ends.
    """

    kind: str
    said: str | None
    wrote: str | None
    reference: int | None
    written: int
    onset: float | None = None
    offset: float | None = None
    before: str | None = None
    after: str | None = None

    def __str__(self) -> str:
        when = "" if self.onset is None else f" ({self.onset:.2f} to {self.offset:.2f} s)"
        if self.kind == "substitution":
            return f"{self.said!r}{when} was written {self.wrote!r}"
        if self.kind == "insertion":
            return f"{self.wrote!r} was written, which nobody said"
        neighbours = [repr(word) for word in (self.before, self.after) if word is not None]
        return (
            f"{self.said!r}{when} is "
            f"missing{', beside ' if neighbours else ''}{' and '.join(neighbours)}"
        )


def transcript_errors(said: Sequence[Word | str], written: Sequence[str]) -> list[TranscriptError]:
    """Align what was said with what was written, word by word.

    Parameters
    ----------
    said : sequence of Word or str
        The reference.
    written : sequence of str
        The transcript.

    Returns
    -------
    list of TranscriptError
        In the order of the transcript.

    Examples
    --------
    >>> for error in transcript_errors("elle a perdu les livres".split(), "elle perdu le livre oui".split()):
    ...     print(error)
    'a' is missing, beside 'elle' and 'perdu'
    'les' was written 'le'
    'livres' was written 'livre'
    'oui' was written, which nobody said
    """
    reference, transcript = _comparable_words(said), _comparable_words(written)
    errors = []
    for kind, row, column in align_words(
        [form for _, form in reference], [form for _, form in transcript]
    ):
        word_index = transcript[column][0] if column < len(transcript) else len(written)
        index = None if kind == "insertion" else reference[row][0]
        word = None if index is None else said[index]
        next_column = column + (kind != "deletion")
        errors.append(
            TranscriptError(
                kind,
                said=word.text if isinstance(word, Word) else word,
                wrote=None if kind == "deletion" else written[word_index],
                reference=index,
                written=word_index,
                onset=word.start if isinstance(word, Word) else None,
                offset=word.end if isinstance(word, Word) else None,
                before=written[transcript[column - 1][0]] if column else None,
                after=written[transcript[next_column][0]]
                if next_column < len(transcript)
                else None,
            )
        )
    return errors


def align_words(reference: Sequence[str], transcript: Sequence[str]) -> list[tuple[str, int, int]]:
    """The fewest edits between two rows of words, each as (kind, place in the reference, place in
    the transcript).

    Examples
    --------
    >>> align_words(["oui", "notre", "maison"], ["nos", "maisons"])
    [('deletion', 0, 0), ('substitution', 1, 0), ('substitution', 2, 1)]
    """
    # costs[i][j] of turning the first i words into the first j: how many align_words, then how unlike the
    # exchanged words are.
    costs: list[list[tuple[int, float]]] = [[(j, 0.0) for j in range(len(transcript) + 1)]]
    for i, word in enumerate(reference, start=1):
        row = [(i, 0.0)]
        for j, other in enumerate(transcript, start=1):
            ways = [
                _add_edit(costs[-1][j], 1),
                _add_edit(row[-1], 1),
                _add_edit(costs[-1][j - 1], *_substitution_cost(word, other)),
            ]
            row.append(min(ways))
        costs.append(row)
    edits, i, j = [], len(reference), len(transcript)
    while i or j:
        exchanged = (
            i
            and j
            and costs[i][j]
            == _add_edit(
                costs[i - 1][j - 1], *_substitution_cost(reference[i - 1], transcript[j - 1])
            )
        )
        if exchanged:
            i, j = i - 1, j - 1
            if reference[i] != transcript[j]:
                edits.append(("substitution", i, j))
        elif i and costs[i][j] == _add_edit(costs[i - 1][j], 1):
            i -= 1
            edits.append(("deletion", i, j))
        else:
            j -= 1
            edits.append(("insertion", i, j))
    return edits[::-1]


def _substitution_cost(word: str, other: str) -> tuple[int, float]:
    return (0, 0.0) if word == other else (1, Levenshtein.normalized_distance(word, other))


def _add_edit(cost: tuple[int, float], count: int, unlikeness: float = 0.0) -> tuple[int, float]:
    return cost[0] + count, cost[1] + unlikeness


def _comparable_words(words: Sequence[Word | str]) -> list[tuple[int, str]]:
    """Index and plain form of each word that has letters."""
    forms = [
        (index, normalize_transcript(word.text if isinstance(word, Word) else word))
        for index, word in enumerate(words)
    ]
    return [(index, form) for index, form in forms if form]
