"""Which finite verb has a noun for its subject, and which a pronoun?

In: the tokens of a sentence, what kinds of words they are, and a noun phrase or a pronoun. Out: the
verb's index. From a noun that can begin a clause the walk goes over what may stand between it and
its verb: adjectives, adverbs, phrases with a preposition (la plupart des élèves), a relative
clause, an insertion between commas, clitics.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from .impersonal import IMPERSONAL_VERBS, is_impersonal
from .text import Token
from .words import CONJUNCTIONS, RELATIVES, SINGULAR, WordKind

# Behind these, elle is no subject (avec elle).
_STRESSED_AFTER = frozenset(
    "à de d' avec sans chez pour sur contre vers entre devant derrière par malgré selon".split()
)
# Joined to a noun by et, they leave the verb in the third person.
_STRESSED = frozenset("lui elle eux elles".split())
# Verbs by their letters, prepositions behind a noun: le match entre eux, la lutte contre lui.
_PREPOSITION_RATHER = frozenset("entre contre outre sauf passé".split())
# Two words that stand anywhere, and are no verb (en fait) and no noun (au final) there.
_ADVERBIAL = frozenset(
    tuple(two.split())
    for two in (
        "en fait|au final|du coup|en effet|par exemple|en général|au moins|au fond|d' accord|de "
        "nouveau|sans doute|en plus"
    ).split("|")
)
_ANSWERS = frozenset("oui non si là même dont voilà".split())
_BEFORE_DETERMINER = frozenset("tout toute tous toutes".split())
_AUXILIARIES = frozenset(("avoir", "être"))
_INSERTION = 6  # words between two commas

FindNoun = Callable[[int], "int | None"]


class FiniteVerb(NamedTuple):
    """A finite verb's place among the tokens, and what is known of its subject."""

    place: int
    coordinated: bool = False
    impersonal: bool = False


def verb_of_pronoun(
    kinds: Sequence[WordKind], index: int, following: Callable[[int], int | None]
) -> FiniteVerb | None:
    """Finite verb behind a subject pronoun and its clitics.

    Parameters
    ----------
    kinds : sequence of WordKind
    index : int
        Of the pronoun.
    following : callable
        Index -> the next word over hesitations, None at the end.
    """
    kind = kinds[index]
    before = kinds[index - 1] if index else None
    if kind.key in ("elle", "elles") and before is not None and before.key in _STRESSED_AFTER:
        return None
    at = following(index)
    while at is not None:
        word = kinds[at]
        if not word.clitic:
            if kind.subject not in word.persons:
                return None
            return FiniteVerb(at, impersonal=kind.key == "il" and is_impersonal(kinds, index, at))
        at = following(at)
    return None


class SubjectNouns:
    """The nouns of a sentence, and the verbs whose subjects they are.

    Parameters
    ----------
    tokens : sequence of Token
    kinds : sequence of WordKind
        Of each token.
    noun_of : callable
        Index of a determiner -> that of its noun, or None.
    """

    def __init__(self, tokens: Sequence[Token], kinds: Sequence[WordKind], noun_of: FindNoun):
        self._tokens, self._kinds, self._noun_of = tokens, kinds, noun_of
        self._joined: set[int] = (
            set()
        )  # determiners of nouns that et joins to a subject before them

    def verb_of(self, determiner: int, noun: int) -> FiniteVerb | None:
        """Return the finite verb of a determiner's noun; None if the noun is no subject, or its
        verb is not found."""
        kinds = self._kinds
        if determiner in self._joined or not self._begins_clause(determiner):
            return None
        person = "3s" if kinds[determiner].determiner & SINGULAR else "3p"
        if noun + 1 < len(kinds) and kinds[noun + 1].key == "et":
            joined = self._verb_of_joined(noun)
            return None if joined is None else FiniteVerb(joined, coordinated=True)
        verb = self._verb_behind(noun, person, kinds[determiner].determiner)
        return None if verb is None else FiniteVerb(verb)

    def _begins_clause(self, determiner: int) -> bool:
        """Whether a subject may begin here: not behind a preposition, not as the object of a
        verb."""
        kinds, at = self._kinds, determiner - 1
        if kinds[determiner].key == "du":
            return False  # de + le: du coup
        while at >= 0 and (kinds[at].key in _BEFORE_DETERMINER or kinds[at] is kinds[determiner]):
            at -= 1
        paused = at >= 0 and kinds[at].filler
        while at >= 0 and kinds[at].filler:
            at -= 1
        if at >= 1 and (kinds[at - 1].key, kinds[at].key) in _ADVERBIAL:
            return True
        before = kinds[at] if at >= 0 else None
        if before is None or before.sign or before.key in CONJUNCTIONS or before.key in _ANSWERS:
            return True
        if (
            before.preposition
            or before.clitic
            or before.determiner
            or before.subject
            or before.function
        ):
            return False
        if before.adverb and before.adverb > before.finite + before.noun + before.adjective:
            return (
                before.key.endswith("ment")
                or at == 0
                or kinds[at - 1].sign
                or kinds[at - 1].conjunction
            )
        if (
            paused
            and not before.finite + before.infinitive
            > before.noun + before.adjective + before.participle
        ):
            return True
        # a phrase before the subject (ce jour-là les enfants, du coup le match); des would be de +
        # les there
        nominal = before.noun_share > 0.8 and before.known
        return bool(nominal and kinds[determiner].key != "des" and self._phrase_begins_clause(at))

    def _phrase_begins_clause(self, last: int) -> bool:
        """Whether the phrase that ends here stands at the beginning of its clause: (et) du coup."""
        kinds, at = self._kinds, last - 1
        while (
            at >= 0
            and last - at < 4
            and (kinds[at].determiner or kinds[at].preposition or kinds[at].adjective_bits)
        ):
            at -= 1
        begins = at < 0 or kinds[at].sign or kinds[at].key in CONJUNCTIONS or kinds[at].filler
        first = kinds[at + 1]
        return bool(
            begins
            and at + 1 < last
            and (first.preposition or first.key in ("au", "aux", "ce", "cette"))
        )

    def _verb_of_joined(self, noun: int) -> int | None:
        """Plural verb behind a noun and what et joins to it: a noun, a name, lui or eux (le club et
        Alexander se séparent).

        What is joined must be a subject too: in "il voit le chat et Marie dort" the verb is
        singular, so nothing is found.
        """
        kinds, start = self._kinds, noun + 2
        if start >= len(kinds):
            return None
        first, bits = kinds[start], 0
        last: int | None
        if first.determiner:
            last, bits = self._noun_of(start), first.determiner
        elif first.key in _STRESSED:
            last = start
        else:
            last = self._end_of_name(start)
        verb = None if last is None else self._verb_behind(last, "3p", bits)
        if verb is not None:
            self._joined.add(start)
        return verb

    def _end_of_name(self, start: int) -> int | None:
        """Last word of a name: words with a capital, or one that the lexicon lacks (transcripts
        have no capitals)."""
        kinds, at = self._kinds, start
        while at < len(kinds) and self._tokens[at].capital and not kinds[at].sign:
            at += 1
        if at == start and not kinds[at].known and not kinds[at].sign:
            at += 1
        return at - 1 if at > start else None

    def _verb_behind(self, noun: int, person: str, bits: int) -> int | None:
        """Finite verb behind a noun and what belongs to it."""
        kinds, at, certain, inserted = self._kinds, noun + 1, False, False
        while at < len(kinds):
            word = kinds[at]
            following = kinds[at + 1] if at + 1 < len(kinds) else None
            if word.key == "," and not inserted:
                closing = self._closing_comma(at)
                if closing is None:
                    return None
                at, inserted = closing + 1, True
            elif word.sign or word.subject or word.key in CONJUNCTIONS - RELATIVES:
                return None
            elif following is not None and (word.key, following.key) in _ADVERBIAL:
                at += 2
            elif word.hesitation or self._is_clitic(at, following, person):
                certain |= word.clitic
                at += 1
            elif self._is_verb(word, following, person, certain=certain):
                return at
            elif word.key in RELATIVES:
                behind = self._behind_relative(at)
                if behind is None:
                    return None
                at = behind
            elif word.preposition and word.key not in ("voilà", "voici", "comme", "que", "qu'"):
                end = self._end_of_phrase(at)
                if end is None:
                    return None
                at = end + 1
            elif word.key in ("le", "la", "les") and following is not None and following.degree:
                at += 2  # mes souvenirs les plus jeunes
            elif self._is_modifier(word, bits, noun, at):
                at += 1
            else:
                return None
        return None

    def _is_clitic(self, at: int, following: WordKind | None, person: str) -> bool:
        """Whether a word is a clitic of the verb: en and le only right before it (les parents en
        ont; la maison en bois)."""
        word = self._kinds[at]
        if not word.clitic or following is None:
            return False
        if word.key in ("en", "le", "la", "les", "l'", "leur"):
            verbal = (
                person in following.persons
                and following.finite > following.noun + following.adjective
            )
            return verbal or (following.clitic and word.key != "en")
        return True

    def _is_verb(
        self, word: WordKind, following: WordKind | None, person: str, *, certain: bool
    ) -> bool:
        """Whether a word is the finite verb of a subject in this person."""
        if person not in word.persons or word.verbs <= IMPERSONAL_VERBS:
            return False
        if certain and not word.noun_share > 0.5:
            return True
        if word.key in _PREPOSITION_RATHER and following is not None and not following.sign:
            return following.preposition
        return word.finite > word.noun + word.adjective and not word.participle > word.finite

    def _is_modifier(self, word: WordKind, bits: int, noun: int, at: int) -> bool:
        """Whether an adjective, participle or adverb belongs to the noun, or stands before its
        verb."""
        if word.function:
            return word.before_adjective or word.key in ("là", "ici") or word.degree
        if word.adverb and word.adverb >= word.noun + word.adjective:
            return True
        return bool(word.adjective_bits & bits or word.before_adjective) and at - noun <= 4

    def _closing_comma(self, opening: int) -> int | None:
        """Comma that ends an insertion of a few words without a verb of its own (ma meilleure amie,
        donc Manon, me dit)."""
        kinds = self._kinds
        for at in range(opening + 1, min(opening + _INSERTION + 2, len(kinds))):
            word = kinds[at]
            if word.key == ",":
                return at if at > opening + 1 else None
            strong = (
                word.persons
                and word.finite > word.noun + word.adjective + word.participle + word.adverb
            )
            if (
                word.sign
                or word.subject
                or word.key == "et"
                or strong
                or (at == opening + 1 and word.determiner)
            ):
                return None
        return None

    def _end_of_phrase(self, preposition: int) -> int | None:
        """Noun that ends a phrase with a preposition: d'anglais, du petit jardin, à cette heure;
        None if there is none."""
        kinds, at = self._kinds, preposition + 1
        contracted = kinds[preposition].key in ("du", "des", "au", "aux")
        if at >= len(kinds):
            return None
        if contracted:
            return self._noun_of(preposition) if kinds[preposition].determiner else at
        if kinds[at].determiner:
            return self._noun_of(at)
        while at < len(kinds) and (kinds[at].prenominal or kinds[at].counted):
            at += 1
        if at >= len(kinds) or kinds[at].sign or kinds[at].function:
            return None
        named = self._end_of_name(at)
        if named is not None:
            return named
        return at if kinds[at].noun_bits or kinds[at].infinitive else None

    def _behind_relative(self, pronoun: int) -> int | None:
        """Where the clause goes on behind a relative clause: behind its comma, or at the second
        finite verb."""
        kinds, verbs, at = self._kinds, 0, pronoun + 1
        auxiliary = False
        while at < len(kinds):
            word = kinds[at]
            if word.key == "," and verbs:
                return at + 1
            if word.sign or word.key in CONJUNCTIONS:
                return None
            if at + 1 < len(kinds) and (word.key, kinds[at + 1].key) in _ADVERBIAL:
                at += 1
            elif word.determiner and not (word.clitic and kinds[at - 1].clitic):
                noun = self._noun_of(at)
                at = at if noun is None else noun
            elif word.persons and word.finite > word.noun + word.adjective and not word.preposition:
                if not (auxiliary and word.past_participle):
                    verbs += 1
                    auxiliary = bool(word.verbs & _AUXILIARIES)
                if verbs == 2 and not kinds[at - 1].clitic and not kinds[at - 1].subject:
                    return at
            at += 1
        return None
