"""Interface of parsers: tokens of a sentence and the links between them.

In: the name of a parser: "lexicon", "spacy:MODEL", or "MODULE:FUNCTION" of one's own. Out: an
object with ``parse(text) -> (tokens, links)``. A link is of a relation: "determiner" (determiner ->
noun), "subject" (pronoun -> finite verb), "determiner+subject" (determiner -> finite verb, by way
of the noun), or what a parser of one's own calls it.

Parser that uses a spaCy model.

In: a sentence and the name of a model with a dependency parser (fr_core_news_md, ...). Out: tokens
and `Link`s as `parser_interface` defines them, read off universal dependencies, so that any
language's UD model will do.

Parser that only splits a text of any language into neighbouring words.

In: a sentence. Out: tokens with their places; an apostrophe or hyphen within a word does not cut it
(it's, well-known).
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import re
import sys
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from ...errors import InputError, MissingExtraError
from ...files.cache_keys import file_digest
from .language.lexicon import Lexicon
from .language.spoken import Token, lookup_key

RELATIONS = ("determiner", "subject", "determiner+subject")


class Link(NamedTuple):
    """A relation between two tokens of a sentence, by their indices.

    Parameters
    ----------
    relation : str
    cue, target : int
    via : int or None
        The noun between.
    is_coordinated : bool
        Whether the noun is the first of several subjects that "et" joins (le club et Alexander se
        séparent): the verb is plural then, whatever the determiner says.
    is_impersonal : bool
        Whether the cue is a subject that stands for nobody (il y avait), so that it has no number.
    """

    relation: str
    cue: int
    target: int
    via: int | None = None
    is_coordinated: bool = False
    is_impersonal: bool = False


class Parser(Protocol):
    """Anything that finds links."""

    @property
    def relations(self) -> tuple[str, ...]:
        """Those that it can find; empty if it does not say."""
        ...

    def parse(self, text: str) -> tuple[list[Token], list[Link]]:
        """Return the tokens of a sentence and the links between them."""
        ...

    def refusal_reason(self, relation: str, cue: str) -> str:
        """Say why a cue's form can never be found in a relation; "" if it can."""
        ...


class _ParserFunction:
    """A user-supplied parser: a function, text -> (tokens, links).

    `relations` are what it finds; if they are empty, no template is refused.

    Examples
    --------
    >>> from speechmix.studies.french.parser_interface import split_into_tokens
    >>> parser = _ParserFunction(lambda text: (split_into_tokens(text), [Link("compound", 0, 1)]))
    >>> parser.parse("Hand book")[1][0].relation
    'compound'
    """

    def __init__(self, function: Callable[..., Any], relations: tuple[str, ...] = ()):
        self._import_function, self.relations = function, relations

    def parse(self, text: str) -> tuple[list[Token], list[Link]]:
        """Return the tokens of a sentence and the links between them."""
        result: tuple[list[Token], list[Link]] = self._import_function(text)
        return result

    def refusal_reason(self, relation: str, cue: str) -> str:
        """A function does not say which cues it knows."""
        return ""


@functools.lru_cache(maxsize=8)
def find_parser(name: str, lexicon: Lexicon, language: str = "fr") -> Parser:
    """Return the parser of that name.

    Parameters
    ----------
    name : str
        "lexicon" (in other languages than French it only cuts words, for the relations "before" and
        "after"), "spacy:MODEL", or "MODULE:FUNCTION": a function, text -> (tokens, links), of a
        module in the working folder or installed. An attribute `relations` of it, a tuple of names,
        says what it finds.
    lexicon : Lexicon
    language : str

    Raises
    ------
    InputError
        For another name, a spaCy model that is not installed, or a module or function that is not
        there.
    MissingExtraError
        If spaCy is not installed.
    """
    from .language.parser import LexiconParser

    if name == "lexicon":
        return (
            LexiconParser(lexicon)
            if language == "fr"
            else _ParserFunction(lambda text: (split_into_tokens(text), []), ("",))
        )
    kind, _, target = str(name).partition(":")
    if not kind or not target:
        raise InputError(
            f"parser must be 'lexicon', 'spacy:MODEL' or 'MODULE:FUNCTION', found {name!r}"
        )
    if kind == "spacy":
        return SpacyParser.load(target)
    function = _import_function(kind, target)
    return _ParserFunction(function, tuple(getattr(function, "relations", ())))


def parser_code(name: str) -> str:
    """Hash of the file of a parser of one's own, which decides what is mined; "" for the others.

    Examples
    --------
    >>> parser_code("lexicon")
    ''
    """
    module, _, function = name.partition(":")
    if not function or module == "spacy":
        return ""
    path = inspect.getsourcefile(_import_function(module, function))
    return file_digest(path) if path else ""


def _import_function(module: str, name: str) -> Callable[..., Any]:
    """Import a function; the working folder is looked in, too, as `python -m` does."""
    working_dir = os.getcwd()
    if working_dir not in sys.path:
        sys.path.append(working_dir)
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(
            f"parser {module}:{name}: cannot be imported ({error}): name an installed module, or "
            f"one in {working_dir}"
        ) from error
    if not callable(function):
        raise InputError(
            f"parser {module}:{name} must be a function, found {type(function).__name__}"
        )
    result: Callable[..., Any] = function
    return result


# Preposition and article in one French word: la porte du jardin.
_CONTRACTED_ARTICLES = ("du", "des")
_SUBJECT_RELATIONS = ("nsubj", "expl:subj")


class SpacyParser:
    """Reads determiner and subject links off a spaCy parse; `pipeline` turns text into a spaCy
    `Doc`."""

    relations = RELATIONS

    def __init__(self, pipeline: Any) -> None:
        self._pipeline = pipeline

    def refusal_reason(self, relation: str, cue: str) -> str:
        """A model does not say which cues it knows."""
        return ""

    @classmethod
    def load(cls, model: str) -> SpacyParser:
        """Load an installed spaCy model.

        MissingExtraError if spaCy is not installed; InputError if the model is not, or has no
        dependency parser.
        """
        try:
            import spacy
        except ImportError as error:
            raise MissingExtraError("spacy", "spacy", f"parser 'spacy:{model}'") from error
        try:
            pipeline = spacy.load(model)
        except OSError as error:
            raise InputError(
                f"spaCy model {model!r} is not installed: python -m spacy download {model}"
            ) from error
        if "parser" not in pipeline.pipe_names:
            raise InputError(
                f"spaCy model {model!r} has no dependency parser, only {pipeline.pipe_names}: use "
                "another"
            )
        return cls(pipeline)

    def parse(self, text: str) -> tuple[list[Token], list[Link]]:
        """Return the tokens of a sentence and the links between them."""
        doc = self._pipeline(text)
        tokens = [
            Token(
                lookup_key(token.text.replace("’", "'")),
                token.idx,
                token.idx + len(token.text),
                token.text[:1].isupper(),
            )
            for token in doc
        ]
        links = []
        for token in doc:
            is_contracted = token.dep_ == "case" and tokens[token.i].key in _CONTRACTED_ARTICLES
            if (
                (token.dep_.startswith("det") or is_contracted)
                and token.head.pos_ == "NOUN"
                and token.i < token.head.i
            ):
                links.append(Link("determiner", token.i, token.head.i))
                if token.head.dep_.startswith(_SUBJECT_RELATIONS):
                    verb = _find_agreeing_word(token.head.head)
                    if verb is not None and verb.i > token.head.i:
                        is_coordinated = any(
                            child.dep_ == "conj" and child.i < verb.i
                            for child in token.head.children
                        )
                        links.append(
                            Link(
                                "determiner+subject", token.i, verb.i, token.head.i, is_coordinated
                            )
                        )
            elif token.pos_ == "PRON" and token.dep_.startswith(_SUBJECT_RELATIONS):
                verb = _find_agreeing_word(token.head)
                if verb is not None and verb.i > token.i:
                    links.append(
                        Link(
                            "subject", token.i, verb.i, is_impersonal=token.dep_.startswith("expl")
                        )
                    )
        return tokens, links


def _find_agreeing_word(head: Any) -> Any:
    """Return the word of a predicate that agrees with the subject: a finite auxiliary or copula,
    else the head."""
    auxiliaries = [child for child in head.children if child.dep_.startswith(("aux", "cop"))]
    for word in (*auxiliaries, head):
        if "Fin" in word.morph.get("VerbForm"):
            return word
    return (
        head
        if not auxiliaries and head.pos_ in ("VERB", "AUX") and not head.morph.get("VerbForm")
        else None
    )


_TOKEN = re.compile(r"[^\W_]+(?:['’\-][^\W_]+)*|[^\w\s]+|_+")


def split_into_tokens(text: str) -> list[Token]:
    """Cut a sentence into words and signs.

    Examples
    --------
    >>> [token.key for token in split_into_tokens("It’s over there, isn't it?")]
    ["it's", 'over', 'there', ',', "isn't", 'it', '?']
    """
    return [
        Token(match.group().lower().replace("’", "'"), *match.span(), match.group()[0].isupper())
        for match in _TOKEN.finditer(text)
    ]
