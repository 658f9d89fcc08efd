"""Find the homophone of a word in the other number, person or tense.

In: a lexicon, a spelling, and the number or person it has where it stands. Out: its `Partner`, or
the reason why it has none. A spelling of several lemmas (je suis, les fils) has a partner only if
all of them agree on it. Where Lexique has a gap, a partner follows from French spelling, if that
leaves no choice (parle, parlent; internaute, internautes).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..contrasts import CONTRASTS, NUMBER, TENSE, WORD, verb_contrast
from ..pair_template import PARTICIPLES, TENSES, VERBAL

if TYPE_CHECKING:
    from .lexicon import Lexicon, WordReading

# Also of a verb that Lexique does not name with them (fondre, voir, peindre, moudre), whose
# singular sounds different.
_AMBIGUOUS_VERB_FORMS = frozenset("fondent virent peignent moulent refondent".split())
# A lemma with a smaller share of the most frequent one's uses is not meant (restent of ruer).
_MIN_FREQUENCY_RATIO = 0.01
# Singulars that end otherwise have a plural in -s for certain.
_IRREGULAR_PLURAL_ENDINGS = ("s", "x", "z", "al", "ail", "au", "eu", "ou")


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


NOT_IN_LEXICON = NoPartner("target not in the lexicon")
INVARIANT = NoPartner("spelled alike in the other number")
AUDIBLE = NoPartner("sounds different in the other number")
OTHER_NUMBER_UNKNOWN = NoPartner("other number not in the lexicon")
AMBIGUOUS = NoPartner("several lemmas, several other spellings")
WRONG_NUMBER = NoPartner("cue and target disagree")
WRONG_MEANING = NoPartner("the cue says another meaning than the target has")


def find_nominal_partner(
    lexicon: Lexicon, form: str, number: str, pos: tuple[str, ...]
) -> Partner | NoPartner:
    """Find the spelling of a noun, adjective or participle in the other number; see
    `Lexicon.noun_partner`."""
    readings = [
        reading for reading in lexicon.readings(form) if reading.pos in pos and _is_nominal(reading)
    ]
    if not readings:
        return NOT_IN_LEXICON
    readings = [reading for reading in readings if number in reading.number]
    if not readings:
        return WRONG_NUMBER
    outcomes = {_find_reading_partner(lexicon, form, reading, number, pos) for reading in readings}
    partners = [result for result in outcomes if isinstance(result, Partner)]
    # fils is the plural of fil and of fils: without knowing which, its singular is not known either
    if len({partner.form for partner in partners}) > 1 or (partners and INVARIANT in outcomes):
        return AMBIGUOUS
    if partners:
        return max(partners)
    reason = next(
        (reason for reason in (INVARIANT, AUDIBLE) if reason in outcomes), OTHER_NUMBER_UNKNOWN
    )
    if (
        reason is OTHER_NUMBER_UNKNOWN
        and number == "s"
        and lexicon.is_french
        and not form.endswith(_IRREGULAR_PLURAL_ENDINGS)
    ):
        return (
            Partner(form + "s", readings[0].lemma, NUMBER) if form + "s" not in lexicon else reason
        )
    return reason


def _is_nominal(reading: WordReading) -> bool:
    return reading.pos not in VERBAL or any(tense in PARTICIPLES for tense, _ in reading.verb)


def _find_reading_partner(
    lexicon: Lexicon, form: str, reading: WordReading, number: str, pos: tuple[str, ...]
) -> Partner | NoPartner:
    other_number = "p" if number == "s" else "s"
    if other_number in reading.number:
        return INVARIANT
    # neveux and plaines have lemmas of their own in Lexique, so the regular spelling is tried, too
    regular_forms = (
        ((form + "s", form + "x") if number == "s" else (form[:-1],)) if lexicon.is_french else ()
    )
    candidates = [
        (
            other_reading.lemma == reading.lemma,
            other_reading.sound == reading.sound,
            other_reading.frequency,
            other_form,
            other_reading.lemma,
        )
        for other_form in (*lexicon.list_forms(reading.lemma), *regular_forms)
        for other_reading in lexicon.readings(other_form)
        if other_reading.pos in pos
        and _is_nominal(other_reading)
        and other_reading.number == other_number
        and other_form != form
        if other_reading.lemma == reading.lemma
        or (other_reading.sound == reading.sound and other_form in regular_forms)
        if not (reading.gender and other_reading.gender and reading.gender != other_reading.gender)
    ]
    if not candidates:
        return OTHER_NUMBER_UNKNOWN
    _, is_homophone, _, other_form, other_lemma = max(candidates)
    return (
        Partner(other_form, reading.lemma if number == "s" else other_lemma, NUMBER)
        if is_homophone
        else AUDIBLE
    )


def find_verb_partner(lexicon: Lexicon, form: str, person: str) -> Partner | NoPartner:
    """Find the homophone of a finite verb; see `Lexicon.find_verb_partner`."""
    verbs = [reading for reading in lexicon.readings(form) if reading.pos in VERBAL]
    if not verbs:
        return NOT_IN_LEXICON
    readings_by_lemma: dict[str, list[tuple[int, WordReading, str]]] = {}
    for reading in verbs:
        for tense, reading_person in reading.verb:
            if reading_person == person and tense != "imp:pre":
                readings_by_lemma.setdefault(reading.lemma, []).append(
                    (_tense_rank(tense), reading, tense)
                )
    if not readings_by_lemma:
        return WRONG_NUMBER
    if lexicon.is_french and person == "3p" and form in _AMBIGUOUS_VERB_FORMS:
        return AMBIGUOUS
    frequency_by_lemma = {
        lemma: max(reading.frequency for _, reading, _ in readings)
        for lemma, readings in readings_by_lemma.items()
    }
    readings_by_lemma = {
        lemma: readings
        for lemma, readings in readings_by_lemma.items()
        if frequency_by_lemma[lemma] >= _MIN_FREQUENCY_RATIO * max(frequency_by_lemma.values())
    }
    partner_by_lemma = {
        lemma: _find_lemma_partner(lexicon, form, person, readings)
        for lemma, readings in readings_by_lemma.items()
    }
    # je suis is of être, which has no partner here, or of suivre, which has: it has none
    if (
        len(
            {
                partner.form if isinstance(partner, Partner) else None
                for partner in partner_by_lemma.values()
            }
        )
        > 1
    ):
        return AMBIGUOUS
    return partner_by_lemma[max(partner_by_lemma, key=lambda lemma: frequency_by_lemma[lemma])]


def _find_lemma_partner(
    lexicon: Lexicon, form: str, person: str, readings: list[tuple[int, WordReading, str]]
) -> Partner | NoPartner:
    # mettent is read as the indicative, whose singular sounds different, though the subjunctive has
    # mette
    best_rank = min(rank for rank, _, _ in readings)
    ranked_partners = [
        ranked_partner
        for rank, reading, tense in readings
        if rank == best_rank
        for ranked_partner in _rank_partners(lexicon, form, reading, tense, person)
    ]
    if ranked_partners and max(ranked_partners)[1].contrast == NUMBER:
        result: Partner | NoPartner = max(ranked_partners)[1]
        return result
    _, reading, tense = min(readings, key=lambda ranked_reading: ranked_reading[0])
    regular_partner = _derive_regular_partner(lexicon, form, reading, tense, person)
    return regular_partner or (max(ranked_partners)[1] if ranked_partners else AUDIBLE)


def _rank_partners(
    lexicon: Lexicon, form: str, reading: WordReading, tense: str, person: str
) -> list[tuple[tuple[int, float], Partner]]:
    """Homophones of one lemma, each with its rank: the other number, first of the same person;
    another person; a tense."""
    own_persons = {other_person for own_tense, other_person in reading.verb if own_tense == tense}
    own_tenses = {own_tense for own_tense, other_person in reading.verb if other_person == person}
    ranked_partners = []
    for other_form in lexicon.list_forms(reading.lemma):
        for other_reading in lexicon.readings(other_form) if other_form != form else ():
            if (
                other_reading.pos not in VERBAL
                or other_reading.lemma != reading.lemma
                or other_reading.sound != reading.sound
            ):
                continue
            for other_tense, other_person in other_reading.verb:
                is_same_tense = (
                    other_tense == tense and other_person and other_person not in own_persons
                )
                if is_same_tense or (
                    other_person == person
                    and other_tense in TENSES
                    and other_tense not in own_tenses
                ):
                    contrast = verb_contrast(person, other_person) if is_same_tense else TENSE
                    partner = Partner(other_form, reading.lemma, contrast, tense)
                    ranked_partners.append(
                        ((-CONTRASTS.index(contrast), reading.frequency), partner)
                    )
    return ranked_partners


def _derive_regular_partner(
    lexicon: Lexicon, form: str, reading: WordReading, tense: str, person: str
) -> Partner | None:
    """A form of the third person that Lexique lacks, where French spelling leaves no choice: -e,
    -ent; -ait, -aient."""
    is_first_group = reading.lemma.endswith("er") and tense in ("ind:pre", "sub:pre")
    is_imperfect = reading.lemma.endswith("er") and tense in ("ind:imp", "cnd:pre")
    other_form = ""
    if person == "3s" and (is_first_group and form.endswith("e")):
        other_form = form + "nt"
    elif person == "3s" and is_imperfect and form.endswith("ait"):
        other_form = form[:-1] + "ent"
    elif person == "3p" and is_imperfect and form.endswith("aient"):
        other_form = form[:-3] + "t"
    elif person == "3p" and is_first_group and form.endswith("ent"):
        other_form = form[:-2]
    if not other_form or other_form in lexicon or not lexicon.is_french:
        return None
    return Partner(other_form, reading.lemma, NUMBER, tense)


def find_meaning_partner(
    lexicon: Lexicon, form: str, meaning: str, other_meanings: tuple[str, ...]
) -> Partner | NoPartner:
    """Find the spelling that sounds the same and means another thing; see
    `Lexicon.find_meaning_partner`."""
    readings = [reading for reading in lexicon.readings(form) if _has_meaning(reading, meaning)]
    if not readings:
        return WRONG_MEANING if form in lexicon else NOT_IN_LEXICON
    ranked_partners = []
    for reading in readings:
        is_mood = meaning != reading.meaning
        for other_form in (
            lexicon.list_forms(reading.lemma) if is_mood else lexicon.list_homophones(reading.sound)
        ):
            for other_reading in lexicon.readings(other_form) if other_form != form else ():
                if other_reading.sound == reading.sound and any(
                    _has_meaning(other_reading, name) for name in other_meanings
                ):
                    # of aimé, aimée, aimés, aimées the first stands for all
                    rank = (
                        other_reading.gender != "f",
                        "s" in other_reading.number,
                        other_reading.frequency,
                    )
                    partner = Partner(
                        other_form,
                        reading.lemma,
                        TENSE if is_mood else WORD,
                        meaning if is_mood else "",
                    )
                    ranked_partners.append((rank, partner))
    return max(ranked_partners)[1] if ranked_partners else AUDIBLE


def _has_meaning(reading: WordReading, meaning: str) -> bool:
    return meaning == reading.meaning or any(meaning == mood for mood, _ in reading.verb)


def _tense_rank(tense: str) -> int:
    return TENSES.index(tense) if tense in TENSES else len(TENSES)
