"""What a French word can be, as the lexicon parser sees it: closed classes by hand, open classes
from the lexicon.

In: a token's key. Out: one `WordKind`, computed once a spelling: which determiners, pronouns or
adverbs it can be, with which genders and numbers it can be a noun or adjective, in which persons a
verb, and how frequent it is as each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..tags import VERBAL
from .lexicon import Lexicon
from .text import is_numeral

if TYPE_CHECKING:
    from .lexicon import WordReading

# Genders and numbers as bits: masculine singular, feminine singular, masculine plural, feminine
# plural.
_BITS = {"ms": 1, "fs": 2, "mp": 4, "fp": 8}
SINGULAR, PLURAL, ANY = 3, 12, 15

DETERMINERS = {
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
SUBJECTS = {
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
RELATIVES = frozenset("qui que qu' dont où".split())
_FUNCTION_WORDS = frozenset(
    """
    qui quoi dont où ça cela ceci c' celui celle ceux celles moi toi soi eux pas rien jamais ici là y
    est sont a ont ai as es très trop assez bien peu mal non oui ne
    """.split()
)
DEGREE = frozenset("plus moins".split())
_BEFORE_ADJECTIVE = frozenset(
    "très trop si aussi tout toute toutes tous bien assez fort presque encore super hyper".split()
)
_COUNTED = frozenset(
    "quelques quelque divers diverses plusieurs certains certaines dizaine".split()
)
ELLIPTIC = frozenset(
    """
    premier dernier autre même seul prochain suivant précédent meilleur pire moindre tel certain second unique bon mauvais
    nouveau vrai faux double demi long gros plein propre simple pur sacré fameux fort cher ancien
    """.split()
)
PRENOMINAL = ELLIPTIC | frozenset(
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


_CLOSED = frozenset({"PRON", "DET", "ADP", "CCONJ"})
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
    """What one spelling can be; frequencies are per million, bits are those of `DETERMINERS`."""

    key: str
    determiner: int = 0
    subject: str = ""
    clitic: bool = False
    filler: bool = False
    hesitation: bool = False
    sign: bool = False
    preposition: bool = False
    conjunction: bool = False
    function: bool = False
    degree: bool = False
    before_adjective: bool = False
    counted: bool = False
    prenominal: bool = False
    elliptic: bool = False
    known: bool = True
    noun_bits: int = 0
    noun: float = 0.0
    adjective_bits: int = 0
    adjective: float = 0.0
    finite: float = 0.0
    persons: frozenset[str] = frozenset()
    verbs: frozenset[str] = frozenset()
    past_participle: bool = False
    infinitive: float = 0.0
    participle: float = 0.0
    adverb: float = 0.0
    interjection: float = 0.0

    @property
    def noun_share(self) -> float:
        """How much of the word's use is nominal, 0 to 1."""
        total = (
            self.noun
            + self.adjective
            + self.finite
            + self.infinitive
            + self.participle
            + self.adverb
        )
        return self.noun / total if total else 0.0


class WordKinds(dict[str, WordKind]):
    """`WordKind` by key, filled as words are met."""

    def __init__(self, lexicon: Lexicon):
        super().__init__()
        self._lexicon = lexicon

    def __missing__(self, key: str) -> WordKind:
        kind = self[key] = self._kind(key)
        return kind

    def _kind(self, key: str) -> WordKind:
        kind = WordKind(key)
        kind.determiner = DETERMINERS.get(key, 0)
        kind.subject = SUBJECTS.get(key, "")
        kind.clitic = key in CLITICS
        kind.filler, kind.hesitation = key in FILLERS, key in _HESITATIONS
        kind.sign = not key[:1].isalnum() and key[:1] != "-"
        kind.preposition, kind.conjunction = key in PREPOSITIONS, key in CONJUNCTIONS
        kind.function = (
            key in _FUNCTION_WORDS
            or key.startswith("-")
            or kind.clitic
            or bool(kind.determiner or kind.subject)
        )
        kind.function = kind.function or kind.preposition or kind.conjunction
        kind.degree, kind.before_adjective = key in DEGREE, key in _BEFORE_ADJECTIVE
        kind.counted = key in _COUNTED or (is_numeral(key) and key not in ("un", "une", "et"))
        if not kind.sign:
            self._open_classes(kind)
        return kind

    def _open_classes(self, kind: WordKind) -> None:
        readings = self._lexicon.readings(kind.key)
        kind.function |= bool(readings) and all(reading.pos in _CLOSED for reading in readings)
        if not readings:
            kind.known = kind.function or kind.counted
            if not kind.known:
                self._guess(kind)
            return
        persons: set[str] = set()
        for reading in readings:
            bits = _gender_number_bits(reading.gender, reading.number)
            if kind.key in ("espèce", "espèces"):
                bits = ANY  # un espèce de is heard as often as une
            if reading.pos == "NOUN" and len(kind.key) > 1:
                kind.noun_bits |= bits
                kind.noun += reading.frequency + 0.01
            elif reading.pos == "ADJ":
                kind.adjective_bits |= bits
                kind.adjective += reading.frequency + 0.01
                kind.prenominal |= reading.lemma in PRENOMINAL or reading.lemma.endswith("ième")
                kind.elliptic |= reading.lemma in ELLIPTIC or reading.lemma.endswith("ième")
            elif reading.pos in VERBAL:
                self._verb(kind, reading, bits, persons)
            elif reading.pos == "ADV":
                kind.adverb += reading.frequency + 0.01
            elif reading.pos == "INTJ":
                kind.interjection += reading.frequency
        kind.persons = frozenset(persons)
        kind.verbs = frozenset(reading.lemma for reading in readings if reading.pos in VERBAL)

    def _verb(self, kind: WordKind, reading: WordReading, bits: int, persons: set[str]) -> None:
        moods = {tense.partition(":")[0] for tense, _ in reading.verb}
        kind.past_participle |= any(tense == "par:pas" for tense, _ in reading.verb)
        if moods & {"ind", "sub", "cnd", "imp"}:
            persons.update(
                who for tense, who in reading.verb if who and not tense.startswith("imp")
            )
            kind.finite += reading.frequency + 0.01
        elif "inf" in moods:
            kind.infinitive += reading.frequency + 0.01
        else:
            kind.participle += reading.frequency + 0.01
            if any(tense == "par:pas" for tense, _ in reading.verb):
                kind.adjective_bits |= bits

    def _guess(self, kind: WordKind) -> None:
        """A word that the lexicon lacks: for a compound, what its first or last part is; else a
        noun."""
        parts = kind.key.split("-")
        for part in (parts[0], parts[-1]) if len(parts) > 1 else ():
            base = self[part] if part else None
            if base is not None and base.noun_bits and base.known:
                kind.noun_bits, kind.noun = base.noun_bits | kind.noun_bits, 0.5
        if not kind.noun_bits and "~" not in kind.key and kind.key.isascii() | kind.key.isalpha():
            kind.noun_bits = PLURAL | SINGULAR if kind.key[-1:] in "sxz" else SINGULAR
            kind.noun = 0.05


def _gender_number_bits(gender: str, number: str) -> int:
    return sum(
        bit
        for name, bit in _BITS.items()
        if (not gender or gender == name[0]) and name[1] in number
    )
