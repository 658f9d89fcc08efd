"""Where a transcript errs: words that were misheard, made up or left out, found by aligning it with
what was said.

In: the words that were said, with their times where they are known, and the words that a model
wrote. Out: `TranscriptError`s in the order of the transcript. Of the alignments with the fewest
errors (the word error rate's), that one whose exchanged words are spelled most alike, by rapidfuzz;
case, punctuation and (in English) the spelling of numbers are no errors (`normalize_language`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rapidfuzz.distance import Levenshtein

from ...inputs.words.timed_words import Word
from ...inputs.words.transcript_accuracy import is_same_text, normalize_transcript

KINDS = ("substitution", "insertion", "deletion")


@dataclass(frozen=True)
class TranscriptError:
    """Words that were misheard, made up or left out.

    Parameters
    ----------
    kind : {"substitution", "insertion", "deletion"}
    said, wrote : str or None
        What was said and what was written; None where there is nothing.
    reference : int or None
        Index of the first word that was said, among those said.
    written : int
        Index of the first written word; of a deletion that of the word that follows it, or their number
        at the end.
    onset, offset : float or None
        Seconds of what was said.
    before, after : str or None
        The written words on both sides; None at the ends.
    written_stop : int
        Index behind the last written word; `written` of a deletion.
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
    written_stop: int = 0

    def __str__(self) -> str:
        when = "" if self.onset is None else f" ({self.onset:.2f} to {self.offset:.2f} s)"
        if self.kind == "substitution":
            return f"{self.said!r}{when} was written {self.wrote!r}"
        if self.kind == "insertion":
            return f"{self.wrote!r} was written, which is not in the reference"
        neighbours = [repr(word) for word in (self.before, self.after) if word is not None]
        return (
            f"{self.said!r}{when} is "
            f"missing{', beside ' if neighbours else ''}{' and '.join(neighbours)}"
        )


def transcript_errors(
    said: Sequence[Word | str], written: Sequence[str], language: str | None = None
) -> list[TranscriptError]:
    """Align what was said with what was written.

    Exchanged words are errors one by one. Where words are inserted or missing, all that differs in a row is
    one error. What is the same after the language's normalisation of numbers and spellings is none.

    Parameters
    ----------
    said : sequence of Word or str
        The reference.
    written : sequence of str
        The transcript.
    language : str, optional
        As "en"; see `normalize_language`.

    Returns
    -------
    list of TranscriptError
        In the order of the transcript.

    Examples
    --------
    >>> for error in transcript_errors("elle a perdu les livres".split(), "elle perdu le livre oui".split()):
    ...     print(error)
    'a' is missing, beside 'elle' and 'perdu'
    'les livres' was written 'le livre oui'
    >>> transcript_errors("for 4 and a half minutes".split(), "for 4.5 minutes".split(), "en")
    []
    """
    reference, transcript = _comparable_words(said), _comparable_words(written)
    edits = align_words([form for _, form in reference], [form for _, form in transcript])
    errors: list[TranscriptError] = []
    for rows, columns in list_runs(edits):
        near = 1  # "75 percent" and "75%" share a word
        said_text, written_text = (
            " ".join(
                _text_of(words[index])
                for index, _ in pairs[max(0, span.start - near) : span.stop + near]
            )
            for words, pairs, span in ((said, reference, rows), (written, transcript, columns))
        )
        if is_same_text(said_text, written_text, language):
            continue
        if len(rows) == len(columns):
            parts = [(range(i, i + 1), range(j, j + 1)) for i, j in zip(rows, columns, strict=True)]
        else:
            parts = [(rows, columns)]
        errors += [
            _make_error(said, written, reference, transcript, *part)
            for part in parts
            if not is_same_text(
                " ".join(_text_of(said[reference[i][0]]) for i in part[0]),
                " ".join(written[transcript[j][0]] for j in part[1]),
                language,
            )
        ]
    return errors


def list_runs(edits: Sequence[tuple[str, int, int]]) -> list[tuple[range, range]]:
    """Edits that follow each other without an equal word between them, as ranges of the words that were
    said and written."""
    runs: list[tuple[range, range]] = []
    for kind, row, column in edits:
        stop = (row + (kind != "insertion"), column + (kind != "deletion"))
        if runs and (runs[-1][0].stop, runs[-1][1].stop) == (row, column):
            rows, columns = runs[-1]
            runs[-1] = range(rows.start, stop[0]), range(columns.start, stop[1])
        else:
            runs.append((range(row, stop[0]), range(column, stop[1])))
    return runs


def _make_error(
    reference_words: Sequence[Word | str],
    transcript_words: Sequence[str],
    reference: Sequence[tuple[int, str]],
    transcript: Sequence[tuple[int, str]],
    rows: range,
    columns: range,
) -> TranscriptError:
    kind = "insertion" if not rows else "deletion" if not columns else "substitution"
    spoken = [reference_words[reference[row][0]] for row in rows]
    wrote = [transcript_words[transcript[column][0]] for column in columns]
    timed = [word for word in spoken if isinstance(word, Word)]
    at = transcript[columns.start][0] if columns.start < len(transcript) else len(transcript_words)
    return TranscriptError(
        kind,
        said=" ".join(map(_text_of, spoken)) or None,
        wrote=" ".join(wrote) or None,
        reference=reference[rows.start][0] if rows else None,
        written=at,
        onset=timed[0].start if timed else None,
        offset=timed[-1].end if timed else None,
        before=transcript_words[transcript[columns.start - 1][0]] if columns.start else None,
        after=transcript_words[transcript[columns.stop][0]]
        if columns.stop < len(transcript)
        else None,
        written_stop=transcript[columns.stop - 1][0] + 1 if columns else at,
    )


def _text_of(word: Word | str) -> str:
    return word.text if isinstance(word, Word) else word


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
    forms = [(index, normalize_transcript(_text_of(word))) for index, word in enumerate(words)]
    return [(index, form) for index, form in forms if form]
