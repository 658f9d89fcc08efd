"""Which spelling sounds the same in the other number (person, tense), and is there only one that
can be meant?

In: a lexicon, a spelling, and the number or person it has where it stands. Out: its `Partner`, or
the reason why it has none. A spelling of several lemmas (je suis, les fils) has a partner only if
all of them agree on it. Where Lexique has a gap, a partner follows from French spelling, if that
leaves no choice (parle, parlent; internaute, internautes).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..contrasts import CONTRASTS, NUMBER, TENSE, WORD, verb_contrast
from ..tags import PARTICIPLES, TENSES, VERBAL

if TYPE_CHECKING:
    from .lexicon import Lexicon, WordReading

# Also of a verb that Lexique does not name with them (fondre, voir, peindre, moudre), whose
# singular sounds different.
_ALSO_OTHER_VERBS = frozenset("fondent virent peignent moulent refondent".split())
_RARE = 0.01  # a lemma with less of the most frequent one's uses is not meant (restent of ruer)
# Singulars that end otherwise have a plural in -s for certain.
_NO_CERTAIN_PLURAL = ("s", "x", "z", "al", "ail", "au", "eu", "ou")


class Partner(NamedTuple):
    """A spelling's homophone partner: the other spelling, the lemma, the kind of contrast, mood and
    tense of a verb."""

    form: str | None
    lemma: str
    contrast: str
    tense: str = ""


class NoPartner(NamedTuple):
    """Why a spelling has no homophone partner."""

    reason: str


UNKNOWN = NoPartner("target not in the lexicon")
INVARIANT = NoPartner("spelled alike in the other number")
AUDIBLE = NoPartner("sounds different in the other number")
NO_OTHER = NoPartner("other number not in the lexicon")
AMBIGUOUS = NoPartner("several lemmas, several other spellings")
WRONG_NUMBER = NoPartner("cue and target disagree")
WRONG_MEANING = NoPartner("the cue says another meaning than the target has")


def nominal_partner(
    lexicon: Lexicon, form: str, number: str, pos: tuple[str, ...]
) -> Partner | NoPartner:
    """Find the spelling of a noun, adjective or participle in the other number; see
    `Lexicon.noun_partner`."""
    readings = [
        reading for reading in lexicon.readings(form) if reading.pos in pos and _is_nominal(reading)
    ]
    if not readings:
        return UNKNOWN
    readings = [reading for reading in readings if number in reading.number]
    if not readings:
        return WRONG_NUMBER
    results = {_partner_of_nominal(lexicon, form, reading, number, pos) for reading in readings}
    partners = [result for result in results if isinstance(result, Partner)]
    # fils is the plural of fil and of fils: without knowing which, its singular is not known either
    if len({partner.form for partner in partners}) > 1 or (partners and INVARIANT in results):
        return AMBIGUOUS
    if partners:
        return max(partners)
    reason = next((reason for reason in (INVARIANT, AUDIBLE) if reason in results), NO_OTHER)
    if (
        reason is NO_OTHER
        and number == "s"
        and lexicon.is_french
        and not form.endswith(_NO_CERTAIN_PLURAL)
    ):
        return (
            Partner(form + "s", readings[0].lemma, NUMBER) if form + "s" not in lexicon else reason
        )
    return reason


def _is_nominal(reading: WordReading) -> bool:
    return reading.pos not in VERBAL or any(tense in PARTICIPLES for tense, _ in reading.verb)


def _partner_of_nominal(
    lexicon: Lexicon, form: str, reading: WordReading, number: str, pos: tuple[str, ...]
) -> Partner | NoPartner:
    other_number = "p" if number == "s" else "s"
    if other_number in reading.number:
        return INVARIANT
    # neveux and plaines have lemmas of their own in Lexique, so the regular spelling is tried, too
    regular = (
        ((form + "s", form + "x") if number == "s" else (form[:-1],)) if lexicon.is_french else ()
    )
    others = [
        (
            other.lemma == reading.lemma,
            other.sound == reading.sound,
            other.frequency,
            other_form,
            other.lemma,
        )
        for other_form in (*lexicon.family(reading.lemma), *regular)
        for other in lexicon.readings(other_form)
        if other.pos in pos
        and _is_nominal(other)
        and other.number == other_number
        and other_form != form
        if other.lemma == reading.lemma or (other.sound == reading.sound and other_form in regular)
        if not (reading.gender and other.gender and reading.gender != other.gender)
    ]
    if not others:
        return NO_OTHER
    _, same_sound, _, other_form, other_lemma = max(others)
    return (
        Partner(other_form, reading.lemma if number == "s" else other_lemma, NUMBER)
        if same_sound
        else AUDIBLE
    )


def verb_partner(lexicon: Lexicon, form: str, person: str) -> Partner | NoPartner:
    """Find the homophone of a finite verb; see `Lexicon.verb_partner`."""
    verbs = [reading for reading in lexicon.readings(form) if reading.pos in VERBAL]
    if not verbs:
        return UNKNOWN
    agreeing: dict[str, list[tuple[int, WordReading, str]]] = {}
    for reading in verbs:
        for tense, who in reading.verb:
            if who == person and tense != "imp:pre":
                agreeing.setdefault(reading.lemma, []).append((_tense_rank(tense), reading, tense))
    if not agreeing:
        return WRONG_NUMBER
    if lexicon.is_french and person == "3p" and form in _ALSO_OTHER_VERBS:
        return AMBIGUOUS
    uses = {
        lemma: max(reading.frequency for _, reading, _ in readings)
        for lemma, readings in agreeing.items()
    }
    agreeing = {
        lemma: readings
        for lemma, readings in agreeing.items()
        if uses[lemma] >= _RARE * max(uses.values())
    }
    results = {
        lemma: _partner_of_lemma(lexicon, form, person, readings)
        for lemma, readings in agreeing.items()
    }
    # je suis is of être, which has no partner here, or of suivre, which has: it has none
    if (
        len(
            {partner.form if isinstance(partner, Partner) else None for partner in results.values()}
        )
        > 1
    ):
        return AMBIGUOUS
    return results[max(results, key=lambda lemma: uses[lemma])]


def _partner_of_lemma(
    lexicon: Lexicon, form: str, person: str, readings: list[tuple[int, WordReading, str]]
) -> Partner | NoPartner:
    # mettent is read as the indicative, whose singular sounds different, though the subjunctive has
    # mette
    best = min(rank for rank, _, _ in readings)
    ranked = [
        ranked_partner
        for rank, reading, tense in readings
        if rank == best
        for ranked_partner in _ranked_partners(lexicon, form, reading, tense, person)
    ]
    if ranked and max(ranked)[1].contrast == NUMBER:
        result: Partner | NoPartner = max(ranked)[1]
        return result
    _, reading, tense = min(readings, key=lambda agreeing: agreeing[0])
    regular = _regular_other_number(lexicon, form, reading, tense, person)
    return regular or (max(ranked)[1] if ranked else AUDIBLE)


def _ranked_partners(
    lexicon: Lexicon, form: str, reading: WordReading, tense: str, person: str
) -> list[tuple[tuple[int, float], Partner]]:
    """Homophones of one lemma, each with its rank: the other number, first of the same person;
    another person; a tense."""
    own = {who for own_tense, who in reading.verb if own_tense == tense}
    own_tenses = {own_tense for own_tense, who in reading.verb if who == person}
    ranked = []
    for other_form in lexicon.family(reading.lemma):
        for other in lexicon.readings(other_form) if other_form != form else ():
            if (
                other.pos not in VERBAL
                or other.lemma != reading.lemma
                or other.sound != reading.sound
            ):
                continue
            for other_tense, who in other.verb:
                in_tense = other_tense == tense and who and who not in own
                if in_tense or (
                    who == person and other_tense in TENSES and other_tense not in own_tenses
                ):
                    contrast = verb_contrast(person, who) if in_tense else TENSE
                    partner = Partner(other_form, reading.lemma, contrast, tense)
                    ranked.append(((-CONTRASTS.index(contrast), reading.frequency), partner))
    return ranked


def _regular_other_number(
    lexicon: Lexicon, form: str, reading: WordReading, tense: str, person: str
) -> Partner | None:
    """A form of the third person that Lexique lacks, where French spelling leaves no choice: -e,
    -ent; -ait, -aient."""
    first_group = reading.lemma.endswith("er") and tense in ("ind:pre", "sub:pre")
    imperfect = reading.lemma.endswith("er") and tense in ("ind:imp", "cnd:pre")
    other = ""
    if person == "3s" and (first_group and form.endswith("e")):
        other = form + "nt"
    elif person == "3s" and imperfect and form.endswith("ait"):
        other = form[:-1] + "ent"
    elif person == "3p" and imperfect and form.endswith("aient"):
        other = form[:-3] + "t"
    elif person == "3p" and first_group and form.endswith("ent"):
        other = form[:-2]
    if not other or other in lexicon or not lexicon.is_french:
        return None
    return Partner(other, reading.lemma, NUMBER, tense)


def meaning_partner(
    lexicon: Lexicon, form: str, meaning: str, others: tuple[str, ...]
) -> Partner | NoPartner:
    """Find the spelling that sounds the same and means another thing; see
    `Lexicon.meaning_partner`."""
    own = [reading for reading in lexicon.readings(form) if _means(reading, meaning)]
    if not own:
        return WRONG_MEANING if form in lexicon else UNKNOWN
    ranked = []
    for reading in own:
        in_mood = meaning != reading.meaning
        for other_form in (
            lexicon.family(reading.lemma) if in_mood else lexicon.spelled_as(reading.sound)
        ):
            for other in lexicon.readings(other_form) if other_form != form else ():
                if other.sound == reading.sound and any(_means(other, name) for name in others):
                    # of aimé, aimée, aimés, aimées the first stands for all
                    rank = (other.gender != "f", "s" in other.number, other.frequency)
                    partner = Partner(
                        other_form,
                        reading.lemma,
                        TENSE if in_mood else WORD,
                        meaning if in_mood else "",
                    )
                    ranked.append((rank, partner))
    return max(ranked)[1] if ranked else AUDIBLE


def _means(reading: WordReading, meaning: str) -> bool:
    return meaning == reading.meaning or any(meaning == tense for tense, _ in reading.verb)


def _tense_rank(tense: str) -> int:
    return TENSES.index(tense) if tense in TENSES else len(TENSES)
