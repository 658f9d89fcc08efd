"""Word kinds (part of speech, gender, number, person) that a French spelling can have.

In: a token's key. Out: one `WordKind`, computed once a spelling: which determiners, pronouns or
adverbs it can be, with which genders and numbers it can be a noun or adjective, in which persons a
verb, and how frequent it is as each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..pair_template import VERBAL
from .lexicon import Lexicon
from .spoken import is_numeral

if TYPE_CHECKING:
    from .lexicon import WordReading

# Genders and numbers as bits: masculine singular, feminine singular, masculine plural, feminine
# plural.
_GENDER_NUMBER_BITS = {"ms": 1, "fs": 2, "mp": 4, "fp": 8}
SINGULAR, PLURAL, ANY_GENDER_NUMBER = 3, 12, 15

DETERMINER_BITS = {
    **dict.fromkeys("le un du ce cet".split(), 1),
    **dict.fromkeys("la une cette ma ta sa".split(), 2),
    # mon, ton, son stand before feminines that begin with a vowel, too
    **dict.fromkeys("mon ton son notre votre leur l' chaque".split(), SINGULAR),
    **dict.fromkeys("les des ces mes tes ses nos vos leurs aux plusieurs".split(), PLURAL),
    **dict.fromkeys("au quel aucun".split(), 1),
    **dict.fromkeys("quelle aucune".split(), 2),
    "quels": 4,
    "quelles": 8,
}
PRONOUN_PERSONS = {
    "je": "1s",
    "j'": "1s",
    "tu": "2s",
    "il": "3s",
    "elle": "3s",
    "on": "3s",
    "ils": "3p",
    "elles": "3p",
}
CLITICS = frozenset("ne n' me m' te t' se s' le la les l' lui leur y en nous vous".split())
FILLERS = frozenset(
    "euh heu hum mh mhm hm hmm ben bah bon hein ah oh eh voilà ouais enfin bref genre quoi donc "
    "alors du~ xxx".split()
)
_HESITATIONS = frozenset("euh heu hum mh mhm hm hmm ben bah hein ah oh eh".split())
PREPOSITIONS = frozenset(
    """
    à de d' en dans par pour sur sous avec sans chez vers entre contre depuis pendant avant après devant derrière dès
    malgré parmi selon hormis sauf durant outre jusque jusqu' envers voici voilà comme que qu' du des au aux
    """.split()
)
CONJUNCTIONS = frozenset(
    "et ou mais ni car or donc puis que qu' si comme quand lorsque lorsqu' où puisque".split()
)
RELATIVE_PRONOUNS = frozenset("qui que qu' dont où".split())
_FUNCTION_WORDS = frozenset(
    """
    qui quoi dont où ça cela ceci c' celui celle ceux celles moi toi soi eux pas rien jamais ici là y
    est sont a ont ai as es très trop assez bien peu mal non oui ne
    """.split()
)
DEGREE_WORDS = frozenset("plus moins".split())
_WORDS_BEFORE_ADJECTIVE = frozenset(
    "très trop si aussi tout toute toutes tous bien assez fort presque encore super hyper".split()
)
_QUANTIFIERS = frozenset(
    "quelques quelque divers diverses plusieurs certains certaines dizaine".split()
)
ELLIPTIC_ADJECTIVES = frozenset(
    """
    premier dernier autre même seul prochain suivant précédent meilleur pire moindre tel certain second unique bon mauvais
    nouveau vrai faux double demi long gros plein propre simple pur sacré fameux fort cher ancien
    """.split()
)
PRENOMINAL_ADJECTIVES = ELLIPTIC_ADJECTIVES | frozenset(
    """
    petit grand haut bas beau joli vieux jeune court bref énorme immense vaste large maigre mince lourd léger gentil brave
    vilain sale triste pauvre cher véritable excellent superbe magnifique splendide charmant délicieux terrible horrible affreux
    digne rare différent nombreux innombrable multiple éventuel futur célèbre illustre humble noble saint principal
    éternel grave profond vif doux dur rude étrange curieux singulier sombre maudit présent dit soi-disant
    bel nouvel nouvelle vieil fol mi semi vague fin
    """.split()
)
MONTHS = frozenset(
    "janvier février mars avril mai juin juillet août septembre octobre novembre décembre".split()
)


_CLOSED_CLASSES = frozenset({"PRON", "DET", "ADP", "CCONJ"})
# Written with a capital without being names.
TITLES = frozenset(
    """
    gouvernement parlement sénat conseil comité commission assemblée chambre état république ministre ministère président
    préfet préfecture député sénateur roi reine empereur impératrice prince princesse duc comte baron marquis docteur
    général colonel commandant capitaine maréchal amiral lieutenant père mère frère soeur abbé pape évêque maire mairie
    professeur maître constitution union
    """.split()
)


@dataclass(slots=True)
class WordKind:
    """What one spelling can be; frequencies are per million, bits are those of `DETERMINER_BITS`."""

    key: str
    determiner_bits: int = 0
    subject_person: str = ""
    is_clitic: bool = False
    is_filler: bool = False
    is_hesitation: bool = False
    is_sign: bool = False
    is_preposition: bool = False
    is_conjunction: bool = False
    is_function_word: bool = False
    is_degree_word: bool = False
    can_precede_adjective: bool = False
    is_quantity: bool = False
    is_prenominal: bool = False
    can_be_elliptic: bool = False
    is_known: bool = True
    noun_bits: int = 0
    noun_frequency: float = 0.0
    adjective_bits: int = 0
    adjective_frequency: float = 0.0
    finite_frequency: float = 0.0
    persons: frozenset[str] = frozenset()
    verb_lemmas: frozenset[str] = frozenset()
    is_past_participle: bool = False
    infinitive_frequency: float = 0.0
    participle_frequency: float = 0.0
    adverb_frequency: float = 0.0
    interjection_frequency: float = 0.0

    @property
    def nominal_frequency(self) -> float:
        """How often the word is a noun or an adjective."""
        return self.noun_frequency + self.adjective_frequency

    @property
    def noun_share(self) -> float:
        """How much of the word's use is as a noun, 0 to 1."""
        total = (
            self.nominal_frequency
            + self.finite_frequency
            + self.infinitive_frequency
            + self.participle_frequency
            + self.adverb_frequency
        )
        return self.noun_frequency / total if total else 0.0


class WordKinds(dict[str, WordKind]):
    """`WordKind` by key, filled as words are met."""

    def __init__(self, lexicon: Lexicon):
        super().__init__()
        self._lexicon = lexicon

    def __missing__(self, key: str) -> WordKind:
        kind = self[key] = self._make_kind(key)
        return kind

    def _make_kind(self, key: str) -> WordKind:
        kind = WordKind(key)
        kind.determiner_bits = DETERMINER_BITS.get(key, 0)
        kind.subject_person = PRONOUN_PERSONS.get(key, "")
        kind.is_clitic = key in CLITICS
        kind.is_filler, kind.is_hesitation = key in FILLERS, key in _HESITATIONS
        kind.is_sign = not key[:1].isalnum() and key[:1] != "-"
        kind.is_preposition, kind.is_conjunction = key in PREPOSITIONS, key in CONJUNCTIONS
        kind.is_function_word = (
            key in _FUNCTION_WORDS
            or key.startswith("-")
            or kind.is_clitic
            or bool(kind.determiner_bits or kind.subject_person)
        )
        kind.is_function_word = kind.is_function_word or kind.is_preposition or kind.is_conjunction
        kind.is_degree_word, kind.can_precede_adjective = (
            key in DEGREE_WORDS,
            key in _WORDS_BEFORE_ADJECTIVE,
        )
        kind.is_quantity = key in _QUANTIFIERS or (
            is_numeral(key) and key not in ("un", "une", "et")
        )
        if not kind.is_sign:
            self._add_open_classes(kind)
        return kind

    def _add_open_classes(self, kind: WordKind) -> None:
        readings = self._lexicon.readings(kind.key)
        kind.is_function_word |= bool(readings) and all(
            reading.pos in _CLOSED_CLASSES for reading in readings
        )
        if not readings:
            kind.is_known = kind.is_function_word or kind.is_quantity
            if not kind.is_known:
                self._guess_kind(kind)
            return
        persons: set[str] = set()
        for reading in readings:
            agreement_bits = _gender_number_bits(reading.gender, reading.number)
            if kind.key in ("espèce", "espèces"):
                agreement_bits = ANY_GENDER_NUMBER  # un espèce de is heard as often as une
            if reading.pos == "NOUN" and len(kind.key) > 1:
                kind.noun_bits |= agreement_bits
                kind.noun_frequency += reading.frequency + 0.01
            elif reading.pos == "ADJ":
                kind.adjective_bits |= agreement_bits
                kind.adjective_frequency += reading.frequency + 0.01
                kind.is_prenominal |= (
                    reading.lemma in PRENOMINAL_ADJECTIVES or reading.lemma.endswith("ième")
                )
                kind.can_be_elliptic |= (
                    reading.lemma in ELLIPTIC_ADJECTIVES or reading.lemma.endswith("ième")
                )
            elif reading.pos in VERBAL:
                self._add_verb(kind, reading, agreement_bits, persons)
            elif reading.pos == "ADV":
                kind.adverb_frequency += reading.frequency + 0.01
            elif reading.pos == "INTJ":
                kind.interjection_frequency += reading.frequency
        kind.persons = frozenset(persons)
        kind.verb_lemmas = frozenset(reading.lemma for reading in readings if reading.pos in VERBAL)

    def _add_verb(
        self, kind: WordKind, reading: WordReading, agreement_bits: int, persons: set[str]
    ) -> None:
        moods = {tense.partition(":")[0] for tense, _ in reading.verb}
        kind.is_past_participle |= any(tense == "par:pas" for tense, _ in reading.verb)
        if moods & {"ind", "sub", "cnd", "imp"}:
            persons.update(
                person for tense, person in reading.verb if person and not tense.startswith("imp")
            )
            kind.finite_frequency += reading.frequency + 0.01
        elif "inf" in moods:
            kind.infinitive_frequency += reading.frequency + 0.01
        else:
            kind.participle_frequency += reading.frequency + 0.01
            if any(tense == "par:pas" for tense, _ in reading.verb):
                kind.adjective_bits |= agreement_bits

    def _guess_kind(self, kind: WordKind) -> None:
        """A word that the lexicon lacks: for a compound, what its first or last part is; else a
        noun."""
        components = kind.key.split("-")
        for component in (components[0], components[-1]) if len(components) > 1 else ():
            part_kind = self[component] if component else None
            if part_kind is not None and part_kind.noun_bits and part_kind.is_known:
                kind.noun_bits, kind.noun_frequency = part_kind.noun_bits | kind.noun_bits, 0.5
        if not kind.noun_bits and "~" not in kind.key and kind.key.isascii() | kind.key.isalpha():
            kind.noun_bits = PLURAL | SINGULAR if kind.key[-1:] in "sxz" else SINGULAR
            kind.noun_frequency = 0.05


def _gender_number_bits(gender: str, number: str) -> int:
    return sum(
        bit
        for name, bit in _GENDER_NUMBER_BITS.items()
        if (not gender or gender == name[0]) and name[1] in number
    )
