"""Sentence: what a text model is asked about; the counterpart of `Clip`.

In: a text, optionally the second text of a pair, or the translation a sequence-to-sequence model is made to write; which
words are cue and target. Out: its words with their characters, punctuation and special markers ("<mask>") apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

from .errors import InputError

PARTS = ("text", "pair", "translation")

# A marker such as <mask> or [MASK]; a word with its inner apostrophes and hyphens; any other sign by itself.
_WORD = re.compile(r"<\|?\w+\|?>|\[[A-Z]+\]|\w+(?:['’\-]\w+)*|[^\w\s]")


@dataclass(frozen=True)
class TextWord:
    """A word and where it is written.

    Parameters
    ----------
    text : str
    start, stop : int
        Characters [start, stop) of its part of the sentence.
    part : {"text", "pair", "translation"}
    """

    text: str
    start: int
    stop: int
    part: str = "text"


@dataclass(frozen=True)
class Sentence:
    """A text for a text model.

    Parameters
    ----------
    text : str
        "<mask>" stands for the model's own mask token.
    pair : str, optional
        The second text of a pair, behind a separator.
    translation : str, optional
        What a sequence-to-sequence model's decoder is made to write (teacher forcing).
    cue, target : int or str, optional
        Indices into `words`, or a word that occurs once; kept as indices.
    foil : str, optional
        Another spelling of the target, which the model should not prefer.
    name : str, optional
        For tables and files; the text itself if not given.
    meta : mapping of str to str
        Anything else that is known.

    Raises
    ------
    InputError
        For an empty text, or a cue or target that is not (or more than once) among the words.

    Examples
    --------
    >>> sentence = Sentence("Either you win the game or you <mask> the game.", cue="Either", target="<mask>")
    >>> sentence.cue, sentence.target, [word.text for word in sentence.words][-3:]
    (0, 7, ['the', 'game', '.'])
    """

    text: str
    pair: str | None = None
    translation: str | None = None
    cue: int | None = None
    target: int | None = None
    foil: str | None = None
    name: str | None = None
    meta: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self):
        if not isinstance(self.text, str) or not self.text.strip():
            raise InputError(f"expected a text with words, found {self.text!r}")
        for role in ("cue", "target"):
            object.__setattr__(self, role, self._index(getattr(self, role), role))
        object.__setattr__(self, "name", self.name or self.text)
        object.__setattr__(self, "meta", MappingProxyType(dict(self.meta)))

    @cached_property
    def words(self) -> tuple[TextWord, ...]:
        """Words of the text, then those of the pair and of the translation."""
        return tuple(word for part in PARTS for word in _words(getattr(self, part) or "", part))

    def _index(self, given: int | str | None, role: str) -> int | None:
        texts = [word.text for word in self.words]
        if given is None:
            return None
        if isinstance(given, str):
            found = [index for index, text in enumerate(texts) if text == given]
            if len(found) != 1:
                raise InputError(
                    f"{role}={given!r} occurs {len(found)} times among the words {texts}: give its index instead"
                )
            return found[0]
        if not 0 <= given < len(texts):
            raise InputError(f"{role}={given}: the sentence has {len(texts)} words, 0 to {len(texts) - 1}: {texts}")
        return int(given)


def _words(text: str, part: str) -> Iterator[TextWord]:
    for match in _WORD.finditer(text):
        yield TextWord(match.group(), match.start(), match.end(), part)
