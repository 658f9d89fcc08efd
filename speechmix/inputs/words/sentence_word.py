"""A word of a sentence: what it is and which characters of the text it has."""

from __future__ import annotations

from dataclasses import dataclass

from .ranges import format_unit


@dataclass(frozen=True)
class TextWord:
    """A word and where it is written.

    Parameters
    ----------
    text : str
    start, stop : int
        Characters [start, stop) of its part of the sentence.
    part : {"text", "pair", "translation"}
    pieces : tuple of (int, int)
        Ranges of characters of a word in several parts (*ne ... pas*); empty for any other.
    """

    text: str
    start: int
    stop: int
    part: str = "text"
    pieces: tuple[tuple[int, int], ...] = ()

    @property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        """Characters that it has: one range, or several."""
        return self.pieces or ((self.start, self.stop),)

    def __repr__(self) -> str:
        return format_unit(self)
