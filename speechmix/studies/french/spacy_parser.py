"""Parser that uses a spaCy model.

In: a sentence and the name of a model with a dependency parser (fr_core_news_md, ...). Out: tokens
and `Link`s as `parser_interface` defines them, read off universal dependencies, so that any
language's UD model will do.
"""

from __future__ import annotations

from typing import Any

from ...errors import InputError, MissingExtraError
from .language.french_tokens import Token, lookup_key
from .parser_interface import RELATIONS, Link

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
