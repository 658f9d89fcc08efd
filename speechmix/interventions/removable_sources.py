"""Sources: what an intervention can take away from a stack, a word, several together, or a token.

In: the spans of a stack. Out: `Source`s, each with its positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..inputs.words.spans import Span


@dataclass(frozen=True)
class Source:
    """What an intervention takes away from a stack: a word, several together, or a token.

    Parameters
    ----------
    index : int
        Among the item's words (of several, the first); of a token its position; of prepared inputs,
        among the stack's units.
    label : str
    positions : tuple of int
        In the stack: frames or tokens.
    parts : tuple of Source
        Of several words, each by itself.
    of_word : int or None
        Index of the word that this is, or a token is part of; None of several words and of prepared
        inputs.
    """

    index: int
    label: str
    positions: tuple[int, ...]
    parts: tuple[Source, ...] = ()
    of_word: int | None = None

    @property
    def words(self) -> tuple[int, ...]:
        """Indices of all its words."""
        return tuple(part.index for part in self.parts) or (self.index,)


def together(parts: tuple[Source, ...]) -> Source:
    """Several words as one source."""
    positions = tuple(position for part in parts for position in part.positions)
    return Source(parts[0].index, " ".join(part.label for part in parts), positions, parts)


def words_as_sources(spans: Sequence[Span], words: Sequence[str] | None) -> tuple[Source, ...]:
    """Spans as sources: those of one word together, and what belongs to no word left out; each by
    itself without words."""
    if words is None:
        return tuple(Source(i, span.label, tuple(span.positions)) for i, span in enumerate(spans))
    positions: dict[int, list[int]] = {}
    for span in spans:
        if span.word is not None:
            positions.setdefault(span.word, []).extend(span.positions)
    return tuple(
        Source(word, words[word], tuple(positions[word]), of_word=word)
        for word in sorted(positions)
    )


def heard_and_written(
    spans: Sequence[Span], words: Sequence[str], answer: int
) -> tuple[Source, ...]:
    """Words of an audio language model's decoder: as they are heard, and numbered on behind them as
    they are written.

    Examples
    --------
    >>> said_twice = [Span(3, 9, "les", word=0), Span(12, 13, "les", "token", 0)]
    >>> [(source.index, source.label, source.positions[0]) for source in heard_and_written(said_twice, ["les"], 12)]
    [(0, 'les', 3), (1, 'les (written)', 12)]
    """
    heard = words_as_sources([span for span in spans if span.start < answer], words)
    written = words_as_sources([span for span in spans if span.start >= answer], words)
    return heard + tuple(
        replace(source, index=len(words) + source.index, label=f"{source.label} (written)")
        for source in written
    )


def tokens_as_sources(spans: Sequence[Span]) -> tuple[Source, ...]:
    """Tokens of a text as sources, special ones left out."""
    return tuple(
        Source(span.start, span.label, tuple(span.positions), of_word=span.word)
        for span in spans
        if span.word is not None
    )
