"""Find the noun or pronoun subject of a finite verb.

In: the tokens of a sentence, what kinds of words they are, and a noun phrase or a pronoun. Out: the
verb's index. From a noun that can begin a clause the walk goes over what may stand between it and
its verb: adjectives, adverbs, phrases with a preposition (la plupart des élèves), a relative
clause, an insertion between commas, clitics.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from .french_tokens import Token
from .impersonal import IMPERSONAL_VERBS, is_impersonal
from .phrase_boundaries import ADVERBIAL_PAIRS, FindNounOfDeterminer, PhraseBoundaries
from .words import CONJUNCTIONS, RELATIVE_PRONOUNS, SINGULAR, WordKind

# Behind these, elle is no subject (avec elle).
_PREPOSITIONS_BEFORE_PRONOUN = frozenset(
    "à de d' avec sans chez pour sur contre vers entre devant derrière par malgré selon".split()
)
# Joined to a noun by et, they leave the verb in the third person.
_STRESSED_PRONOUNS = frozenset("lui elle eux elles".split())
# Verbs by their letters, prepositions behind a noun: le match entre eux, la lutte contre lui.
_PREPOSITION_LIKE_VERBS = frozenset("entre contre outre sauf passé".split())
_ANSWERS = frozenset("oui non si là même dont voilà".split())
_PREDETERMINERS = frozenset("tout toute tous toutes".split())


class FiniteVerb(NamedTuple):
    """A finite verb's position among the tokens, and what is known of its subject."""

    position: int
    is_coordinated: bool = False
    is_impersonal: bool = False


def find_pronoun_verb(
    kinds: Sequence[WordKind], pronoun_index: int, next_word: Callable[[int], int | None]
) -> FiniteVerb | None:
    """Find the finite verb of a subject pronoun, behind its clitics.

    `next_word` returns the index of the next word over hesitations, None at the end.
    """
    pronoun = kinds[pronoun_index]
    previous_key = kinds[pronoun_index - 1].key if pronoun_index else ""
    if pronoun.key in ("elle", "elles") and previous_key in _PREPOSITIONS_BEFORE_PRONOUN:
        return None
    index = next_word(pronoun_index)
    while index is not None:
        word = kinds[index]
        if not word.is_clitic:
            if pronoun.subject_person not in word.persons:
                return None
            is_nobody = pronoun.key == "il" and is_impersonal(kinds, pronoun_index, index)
            return FiniteVerb(index, is_impersonal=is_nobody)
        index = next_word(index)
    return None


class SubjectNouns:
    """The nouns of a sentence, and the verbs whose subjects they are.

    `find_noun` takes the index of a determiner and returns that of its noun, or None.
    """

    def __init__(
        self, tokens: Sequence[Token], kinds: Sequence[WordKind], find_noun: FindNounOfDeterminer
    ):
        self._kinds, self._find_noun = kinds, find_noun
        self._boundaries = PhraseBoundaries(tokens, kinds, find_noun)
        # determiners of nouns that et joins to a subject before them
        self._coordinated_determiners: set[int] = set()

    def find_verb(self, determiner: int, noun_index: int) -> FiniteVerb | None:
        """Return the finite verb of a determiner's noun; None if the noun is no subject, or its
        verb is not found."""
        kinds = self._kinds
        if determiner in self._coordinated_determiners or not self._can_begin_clause(determiner):
            return None
        person = "3s" if kinds[determiner].determiner_bits & SINGULAR else "3p"
        if noun_index + 1 < len(kinds) and kinds[noun_index + 1].key == "et":
            coordinated_verb = self._find_coordinated_verb(noun_index)
            return (
                None
                if coordinated_verb is None
                else FiniteVerb(coordinated_verb, is_coordinated=True)
            )
        verb = self._find_verb_after(noun_index, person, kinds[determiner].determiner_bits)
        return None if verb is None else FiniteVerb(verb)

    def _can_begin_clause(self, determiner: int) -> bool:
        """Whether a subject may begin here: not behind a preposition, not as the object of a
        verb."""
        kinds, index = self._kinds, determiner - 1
        if kinds[determiner].key == "du":
            return False  # de + le: du coup
        while index >= 0 and (
            kinds[index].key in _PREDETERMINERS or kinds[index] is kinds[determiner]
        ):
            index -= 1
        has_pause = index >= 0 and kinds[index].is_filler
        while index >= 0 and kinds[index].is_filler:
            index -= 1
        if index >= 1 and (kinds[index - 1].key, kinds[index].key) in ADVERBIAL_PAIRS:
            return True
        previous_kind = kinds[index] if index >= 0 else None
        if (
            previous_kind is None
            or previous_kind.is_sign
            or previous_kind.key in CONJUNCTIONS
            or previous_kind.key in _ANSWERS
        ):
            return True
        if (
            previous_kind.is_preposition
            or previous_kind.is_clitic
            or previous_kind.determiner_bits
            or previous_kind.subject_person
            or previous_kind.is_function_word
        ):
            return False
        if (
            previous_kind.adverb_frequency
            and previous_kind.adverb_frequency
            > previous_kind.finite_frequency + previous_kind.nominal_frequency
        ):
            return (
                previous_kind.key.endswith("ment")
                or index == 0
                or kinds[index - 1].is_sign
                or kinds[index - 1].is_conjunction
            )
        if (
            has_pause
            and not previous_kind.finite_frequency + previous_kind.infinitive_frequency
            > previous_kind.nominal_frequency + previous_kind.participle_frequency
        ):
            return True
        # a phrase before the subject (ce jour-là les enfants, du coup le match); des would be de +
        # les there
        is_nominal = previous_kind.noun_share > 0.8 and previous_kind.is_known
        return bool(
            is_nominal and kinds[determiner].key != "des" and self._phrase_begins_clause(index)
        )

    def _phrase_begins_clause(self, last_index: int) -> bool:
        """Whether the phrase that ends here stands at the beginning of its clause: (et) du coup."""
        kinds, index = self._kinds, last_index - 1
        while (
            index >= 0
            and last_index - index < 4
            and (
                kinds[index].determiner_bits
                or kinds[index].is_preposition
                or kinds[index].adjective_bits
            )
        ):
            index -= 1
        begins_clause = (
            index < 0
            or kinds[index].is_sign
            or kinds[index].key in CONJUNCTIONS
            or kinds[index].is_filler
        )
        first_kind = kinds[index + 1]
        return bool(
            begins_clause
            and index + 1 < last_index
            and (first_kind.is_preposition or first_kind.key in ("au", "aux", "ce", "cette"))
        )

    def _find_coordinated_verb(self, noun_index: int) -> int | None:
        """Plural verb behind a noun and what et joins to it: a noun, a name, lui or eux (le club et
        Alexander se séparent).

        What is joined must be a subject too: in "il voit le chat et Marie dort" the verb is
        singular, so nothing is found.
        """
        kinds, start_index = self._kinds, noun_index + 2
        if start_index >= len(kinds):
            return None
        first_kind, agreement_bits = kinds[start_index], 0
        last_index: int | None
        if first_kind.determiner_bits:
            last_index, agreement_bits = self._find_noun(start_index), first_kind.determiner_bits
        elif first_kind.key in _STRESSED_PRONOUNS:
            last_index = start_index
        else:
            last_index = self._boundaries.find_name_end(start_index)
        verb = (
            None if last_index is None else self._find_verb_after(last_index, "3p", agreement_bits)
        )
        if verb is not None:
            self._coordinated_determiners.add(start_index)
        return verb

    def _find_verb_after(self, noun_index: int, person: str, agreement_bits: int) -> int | None:
        """Finite verb behind a noun and what belongs to it."""
        kinds, index, after_clitic, has_insertion = self._kinds, noun_index + 1, False, False
        while index < len(kinds):
            word = kinds[index]
            next_kind = kinds[index + 1] if index + 1 < len(kinds) else None
            if word.key == "," and not has_insertion:
                closing_comma = self._boundaries.find_closing_comma(index)
                if closing_comma is None:
                    return None
                index, has_insertion = closing_comma + 1, True
            elif (
                word.is_sign or word.subject_person or word.key in CONJUNCTIONS - RELATIVE_PRONOUNS
            ):
                return None
            elif next_kind is not None and (word.key, next_kind.key) in ADVERBIAL_PAIRS:
                index += 2
            elif word.is_hesitation or self._is_clitic(index, next_kind, person):
                after_clitic |= word.is_clitic
                index += 1
            elif self._is_verb(word, next_kind, person, after_clitic=after_clitic):
                return index
            elif word.key in RELATIVE_PRONOUNS:
                clause_index = self._boundaries.find_resumption_after_relative(index)
                if clause_index is None:
                    return None
                index = clause_index
            elif word.is_preposition and word.key not in ("voilà", "voici", "comme", "que", "qu'"):
                phrase_end = self._boundaries.find_phrase_last_word(index)
                if phrase_end is None:
                    return None
                index = phrase_end + 1
            elif (
                word.key in ("le", "la", "les")
                and next_kind is not None
                and next_kind.is_degree_word
            ):
                index += 2  # mes souvenirs les plus jeunes
            elif self._is_modifier(word, agreement_bits, noun_index, index):
                index += 1
            else:
                return None
        return None

    def _is_clitic(self, index: int, next_kind: WordKind | None, person: str) -> bool:
        """Whether a word is a clitic of the verb: en and le only right before it (les parents en
        ont; la maison en bois)."""
        word = self._kinds[index]
        if not word.is_clitic or next_kind is None:
            return False
        if word.key in ("en", "le", "la", "les", "l'", "leur"):
            verbal = (
                person in next_kind.persons
                and next_kind.finite_frequency > next_kind.nominal_frequency
            )
            return verbal or (next_kind.is_clitic and word.key != "en")
        return True

    def _is_verb(
        self, word: WordKind, next_kind: WordKind | None, person: str, *, after_clitic: bool
    ) -> bool:
        """Whether a word is the finite verb of a subject in this person."""
        if person not in word.persons or word.verb_lemmas <= IMPERSONAL_VERBS:
            return False
        if after_clitic and not word.noun_share > 0.5:
            return True
        if word.key in _PREPOSITION_LIKE_VERBS and next_kind is not None and not next_kind.is_sign:
            return next_kind.is_preposition
        return (
            word.finite_frequency > word.nominal_frequency
            and not word.participle_frequency > word.finite_frequency
        )

    def _is_modifier(
        self, word: WordKind, agreement_bits: int, noun_index: int, index: int
    ) -> bool:
        """Whether an adjective, participle or adverb belongs to the noun, or stands before its
        verb."""
        if word.is_function_word:
            return word.can_precede_adjective or word.key in ("là", "ici") or word.is_degree_word
        if word.adverb_frequency and word.adverb_frequency >= word.nominal_frequency:
            return True
        return (
            bool(word.adjective_bits & agreement_bits or word.can_precede_adjective)
            and index - noun_index <= 4
        )
