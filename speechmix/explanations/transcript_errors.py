"""Where a transcript errs: words that were misheard, made up or left out, found by aligning it with what was said.

In: the words that were said, with their times where they are known, and the words that a model wrote. Out: `TranscriptError`s in
the order of the transcript. rapidfuzz aligns; case and punctuation are no errors (`evaluation.spelling.plain`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rapidfuzz.distance import Levenshtein

from ..evaluation.spelling import plain
from ..inputs.spans import Word

KINDS = ("substitution", "insertion", "deletion")
_KIND_OF = {"replace": "substitution", "insert": "insertion", "delete": "deletion"}


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
        Index of the written word; of a deletion that of the word that follows it, or their number at the end.
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
        return f"{self.said!r}{when} is missing{', beside ' if neighbours else ''}{' and '.join(neighbours)}"


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
        In the order of the transcript. Where several alignments cost the same, rapidfuzz's choice decides.

    Examples
    --------
    >>> for error in transcript_errors("elle a perdu les livres".split(), "elle perdu le livre oui".split()):
    ...     print(error)
    'a' is missing, beside 'elle' and 'perdu'
    'les' was written 'le'
    'livres' was written 'livre'
    'oui' was written, which nobody said
    """
    reference, transcript = _compared(said), _compared(written)
    edits = Levenshtein.editops([word for _, word in reference], [word for _, word in transcript])
    errors = []
    for edit in edits:
        place = transcript[edit.dest_pos][0] if edit.dest_pos < len(transcript) else len(written)
        index = None if edit.tag == "insert" else reference[edit.src_pos][0]
        word = None if index is None else said[index]
        has_word = edit.tag != "delete"
        before = transcript[edit.dest_pos - 1][0] if edit.dest_pos else None
        behind = edit.dest_pos + has_word
        errors.append(
            TranscriptError(
                _KIND_OF[edit.tag],
                said=word.text if isinstance(word, Word) else word,
                wrote=written[place] if has_word else None,
                reference=index,
                written=place,
                onset=word.start if isinstance(word, Word) else None,
                offset=word.end if isinstance(word, Word) else None,
                before=None if before is None else written[before],
                after=written[transcript[behind][0]] if behind < len(transcript) else None,
            )
        )
    return errors


def _compared(words: Sequence[Word | str]) -> list[tuple[int, str]]:
    """Index and plain form of each word that has letters."""
    forms = [(index, plain(word.text if isinstance(word, Word) else word)) for index, word in enumerate(words)]
    return [(index, form) for index, form in forms if form]
