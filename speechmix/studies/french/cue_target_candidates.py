"""Find the words of a sentence that can be cue and target of a template.

In: tokens, links of a parser, a template. Out: links for the relations "before" and "after", which
no parser has to find, and the reason why a template's own conditions exclude a link.
"""

from __future__ import annotations

from collections.abc import Sequence

from .language.french_tokens import Token, is_numeral
from .language.lexicon import Lexicon
from .language.partners import AUDIBLE, WRONG_NUMBER, NoPartner
from .pair_template import ADJACENCY_RELATIONS, Template
from .parser_interface import Link


def find_template_links(
    template: Template, tokens: Sequence[Token], links: Sequence[Link], lexicon: Lexicon
) -> list[Link]:
    """Return the links of a template's relation.

    `links` are what the parser found; for "before" and "after" they are not used, but the spellings
    of the lexicon, which are the targets.
    """
    if template.relation not in ADJACENCY_RELATIONS:
        return [link for link in links if link.relation == template.relation]
    step = -1 if template.relation == "before" else 1
    adjacent_links = []
    for target, token in enumerate(tokens):
        if lexicon.tags(token.key).isdisjoint(template.target_pos):
            continue
        last_cue = target + step * (template.max_words_between + 1)
        for cue in range(target + step, last_cue + step, step):
            if not 0 <= cue < len(tokens) or not tokens[cue].key[-1:].isalnum() | tokens[
                cue
            ].key.endswith("'"):
                break  # beyond the sentence, or at a sign
            if tokens[cue].key in template.cues:
                adjacent_links.append(Link(template.relation, cue, target))
                break
    return adjacent_links


def count_words_between(tokens: Sequence[Token], link: Link) -> int:
    """How many words, not signs, stand between cue and target."""
    return sum([token.key[:1].isalnum() for token in tokens_between(tokens, link)])


def tokens_between(tokens: Sequence[Token], link: Link) -> Sequence[Token]:
    """What stands between cue and target, whichever comes first."""
    if link.target - link.cue in (1, -1):
        return ()
    return tokens[min(link.cue, link.target) + 1 : max(link.cue, link.target)]


def exclusion_reason(
    template: Template, agreement: str, tokens: Sequence[Token], link: Link, lexicon: Lexicon
) -> str:
    """Why the template's own conditions exclude a link; empty if they do not."""
    if not template.allow_capitalized_cue and tokens[link.cue].is_capitalized:
        return "capital cue is excluded by the template"
    words = tokens_between(tokens, link)
    if words and count_words_between(tokens, link) > template.max_words_between:
        return "more words between than the template allows"
    key = tokens[link.target].key
    if key in lexicon and lexicon.tags(key).isdisjoint(template.target_pos):
        return "part of speech is excluded by the template"
    if link.via is not None and not template.allow_number_marked_noun:
        noun = lexicon.noun_partner(tokens[link.via].key, agreement[-1])
        if isinstance(noun, NoPartner) and noun in (AUDIBLE, WRONG_NUMBER):
            return f"noun between: {noun.reason}"
    endings = template.target_endings.get(agreement)
    if template.target_endings and not (endings and key.endswith(endings)):
        return "ending is excluded by the template"
    if words and template.between_pos:
        for token in words:
            tags = lexicon.tags(token.key)
            if tags and tags.isdisjoint(template.between_pos):
                return f"{token.key!r} may not stand between in the template"
    return ""


def find_numeral_and_attractor(
    tokens: Sequence[Token], link: Link, number: str, lexicon: Lexicon
) -> tuple[bool, bool]:
    """Whether a number word is between cue and target, and whether a word of the other number
    does."""
    words = tokens_between(tokens, link)
    if not words or not number:
        return False, False
    other_number = "p" if number == "s" else "s"
    has_numeral = any(
        is_numeral(token.key) and token.key not in ("un", "une", "et") for token in words
    )
    first_index = min(link.cue, link.target) + 1
    word_numbers = {
        lexicon.unambiguous_nominal_number(token.key)
        for index, token in enumerate(words, first_index)
        if index != link.via
    }
    return has_numeral, other_number in word_numbers
