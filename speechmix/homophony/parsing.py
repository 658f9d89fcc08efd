"""Two parsers behind one function: what links two words of a sentence, as far as the templates ask.

In: the name of a parser, "lexicon" or "spacy:MODEL". Out: an object with ``parse(text) -> (tokens, links)``. A link is one
of three relations: "determiner" (determiner -> noun), "subject" (pronoun -> finite verb), "determiner+subject"
(determiner -> finite verb, by way of the noun).
"""

from __future__ import annotations

import functools
from typing import NamedTuple, Protocol

from ..errors import InputError
from .french.lexicon import Lexicon
from .french.text import Token


class Link(NamedTuple):
    """A relation between two tokens of a sentence, by their indices.

    Parameters
    ----------
    relation : str
    cue, target : int
    via : int or None
        The noun between.
    coordinated : bool
        Whether the noun is the first of several subjects that "et" joins (le club et Alexander se séparent): the verb is plural
        then, whatever the determiner says.
    """

    relation: str
    cue: int
    target: int
    via: int | None = None
    coordinated: bool = False


class Parser(Protocol):
    """Anything that finds links."""

    def parse(self, text: str) -> tuple[list[Token], list[Link]]:
        """Return the tokens of a sentence and the links between them."""
        ...


@functools.lru_cache(maxsize=4)
def find_parser(name: str, lexicon: Lexicon) -> Parser:
    """Return the parser of that name.

    Parameters
    ----------
    name : str
        "lexicon" or "spacy:MODEL".

    Raises
    ------
    InputError
        For another name, or a spaCy model that is not installed.
    MissingExtraError
        If spaCy is not installed.
    """
    from .french.parser import LexiconParser
    from .spacy_parser import SpacyParser

    if name == "lexicon":
        return LexiconParser(lexicon)
    kind, _, model = str(name).partition(":")
    if kind != "spacy" or not model:
        raise InputError(f"parser must be 'lexicon' or 'spacy:MODEL', found {name!r}")
    return SpacyParser.load(model)
