"""Build the parser and lexicon that each template needs.

In: templates, and the names of a parser and a lexicon. Out: for each parser the templates that it
reads for, each with its lexicon; or an error that says which template could never find a pair, and
why.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

from ...errors import InputError
from .language.lexicon import Lexicon
from .language.spoken import tokenize
from .pair_template import ADJACENCY_RELATIONS, Template
from .parser_interface import Parser, find_parser, split_into_tokens


class Miner(NamedTuple):
    """A parser, and the templates whose links it finds, each with its lexicon."""

    parser: Parser
    templates: tuple[tuple[Template, Lexicon], ...]


def build_miners(
    templates: tuple[Template, ...], parser: str, lexicon: Lexicon | None
) -> tuple[Miner, ...]:
    """Return the parsers of templates.

    The parser is that of `speechmix.studies.french.parser_interface.find_parser`. The lexicon is
    for all templates; by default each has its own, or Lexique. InputError for an unknown parser,
    and for a template that can find nothing: with a relation that the parser does not know, a cue
    that is never found, targets of a part of speech, a meaning or a tense that the lexicon lacks.
    """
    return _build_miners(
        templates,
        parser,
        tuple(lexicon or Lexicon.load(template.lexicon) for template in templates),
    )


@functools.lru_cache(maxsize=16)
def _build_miners(
    templates: tuple[Template, ...], parser: str, lexicons: tuple[Lexicon, ...]
) -> tuple[Miner, ...]:
    """The same once each lexicon is loaded: one that was written again is another."""
    miners: dict[Parser, list[tuple[Template, Lexicon]]] = {}
    for template, template_lexicon in zip(templates, lexicons, strict=True):
        template_parser = find_parser(parser, template_lexicon, template.language)
        _refuse_unproductive_template(template, template_parser, template_lexicon)
        miners.setdefault(template_parser, []).append((template, template_lexicon))
    return tuple(
        Miner(template_parser, tuple(parser_templates))
        for template_parser, parser_templates in miners.items()
    )


def _refuse_unproductive_template(template: Template, parser: Parser, lexicon: Lexicon) -> None:
    """Raise `InputError` for a template that can find nothing."""
    where = f"template {template.name!r} can find nothing"
    if (
        template.relation not in ADJACENCY_RELATIONS
        and parser.relations
        and template.relation not in parser.relations
    ):
        relations = ", ".join((*filter(None, parser.relations), *ADJACENCY_RELATIONS))
        raise InputError(
            f"{where}: the relation {template.relation!r} is unknown to the parser, which finds "
            f"{relations}"
        )
    is_french = template.language == "fr"
    for cue in template.cues:
        # a French clitic is cut off a word (gens-là)
        keys = [
            token.key
            for token in (
                tokenize(f"a{cue}" if cue[:1] == "-" else cue)
                if is_french
                else split_into_tokens(cue)
            )
        ]
        if keys[-1:] != [cue] or len(keys) > 1 + (cue[:1] == "-"):
            raise InputError(
                f"{where} by the cue {cue!r}: a cue is one word, and this is read as "
                f"{' '.join(keys) or 'none'}"
            )
        reason = (
            ""
            if template.relation in ADJACENCY_RELATIONS
            else parser.refusal_reason(template.relation, cue)
        )
        if reason:
            raise InputError(f"{where} by the cue {cue!r}: {reason}")
    for checked_template in (template, template.noun_template):
        if checked_template is not None:
            _refuse_missing_targets(checked_template, lexicon, where)


def _refuse_missing_targets(template: Template, lexicon: Lexicon, where: str) -> None:
    features = lexicon.features()
    for name, requested, available in (
        ("part of speech", template.target_pos, features.parts_of_speech),
        ("meaning", template.meanings, features.known_meanings | features.moods),
        ("tense", template.tenses, features.moods),
    ):
        missing = [entry for entry in requested if entry not in available]
        if missing and (name == "meaning" or len(missing) == len(requested)):
            listing = ", ".join(sorted(available)) or "none"
            raise InputError(
                f"{where}: no word of the lexicon has the {name} {', '.join(missing)}; there are "
                f"{listing}"
            )
