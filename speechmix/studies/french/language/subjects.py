"""Find the noun or pronoun subject of a finite verb.

In: the tokens of a sentence, what kinds of words they are, and a noun phrase or a pronoun. Out: the
verb's index. From a noun that can begin a clause the walk goes over what may stand between it and
its verb: adjectives, adverbs, phrases with a preposition (la plupart des élèves), a relative
clause, an insertion between commas, clitics.

Detect impersonal "il", as in il faut or il y a.

Others are il fait froid, il est dix heures, il me semble voir, il peut y avoir.

In: what kinds of words a sentence has, and where il and its verb are. Out: yes or no. Where both
can be (il était arrivé un lundi, il vient des Vosges), it is taken to: a number that nobody has is
worse than a pair that is left out.

Where a name, a phrase with a preposition, an insertion and a relative clause end.

In: the tokens of a sentence and what kinds of words they are. Out: indices of words. `subjects`
steps over these on the way from a noun to its verb.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from .spoken import Token
from .words import CONJUNCTIONS, RELATIVE_PRONOUNS, SINGULAR, WordKind

# Nobody is meant by il before these verbs (il faut), or with a clause or a noun behind (il semble
# que, il existe un).
IMPERSONAL_VERBS = frozenset("falloir pleuvoir neiger geler grêler venter bruiner advenir".split())
_IMPERSONAL_VERBS_BY_COMPLEMENT = {
    # "parer" is paraître without its circumflex (il parait que)
    "que": frozenset(
        "sembler paraître parer arriver suffire importer convenir apparaître résulter ressortir "
        "rester être".split()
    ),
    "de": frozenset("convenir suffire importer plaire déplaire tarder".split()),
    "un": frozenset("exister rester manquer suffire arriver venir survenir".split()),
}
_QUANTIFIERS = frozenset("un une des plusieurs aucun aucune nul nulle rien".split())
# Il peut y avoir, il doit être midi: il belongs to the infinitive behind these.
_SEMI_AUXILIARIES = frozenset("pouvoir devoir aller sembler paraître".split())
_EXPERIENCERS = frozenset("me m' te t' nous vous lui leur".split())
_APPROXIMATIONS = frozenset("près de d' environ presque plus moins déjà".split())
# Il est difficile de partir: these are said of what is done, not of him who does it.
_EVALUATIVE_ADJECTIVES = frozenset(
    """
    possible impossible difficile facile nécessaire utile inutile permis défendu interdit urgent rare superflu logique normal
    important essentiel indispensable préférable souhaitable juste injuste naturel évident inconcevable dangereux agréable
    recommandé conseillé obligatoire bon
    """.split()
)
_COPULAS = frozenset("être devenir sembler paraître".split())
_WEATHER_WORDS = frozenset("froid chaud beau nuit jour noir sombre doux frais bon mauvais".split())
_TIME_WORDS = frozenset("temps tard tôt midi minuit".split())


def is_impersonal(kinds: Sequence[WordKind], pronoun_index: int, verb_index: int) -> bool:
    """Say whether il stands for nobody: il y a, il faut, il s'agit, il fait froid, il semble que.

    There may be clitics between il and its verb.
    """
    lemmas = kinds[verb_index].verb_lemmas
    clitics = {kind.key for kind in kinds[pronoun_index + 1 : verb_index]}
    if (
        lemmas & IMPERSONAL_VERBS
        or ("y" in clitics and "avoir" in lemmas)
        or ("s'" in clitics and "agir" in lemmas)
    ):
        return True
    if "valoir" in lemmas and verb_index + 1 < len(kinds) and kinds[verb_index + 1].key == "mieux":
        return True
    if "en" in clitics and (
        kinds[verb_index].key in ("soit", "fût") or lemmas & {"résulter", "ressortir"}
    ):
        return True  # quoi qu'il en soit, il en résulte
    if "rester" in lemmas and clitics & _EXPERIENCERS:
        return True  # il me reste
    infinitive_index = _find_infinitive(kinds, verb_index)
    if infinitive_index is not None and lemmas & _SEMI_AUXILIARIES:
        if clitics & _EXPERIENCERS and lemmas & _COPULAS:
            return True  # il me semble voir
        return is_impersonal(kinds, verb_index, infinitive_index)
    if "être" in lemmas and _is_hour(kinds[verb_index + 1 : verb_index + 7]):
        return True
    following_kinds = [
        kind
        for kind in kinds[verb_index + 1 : verb_index + 6]
        if kind.key in _TIME_WORDS
        or not (kind.can_precede_adjective or kind.is_filler or _is_adverb(kind))
    ]
    if [kind.key for kind in following_kinds[:2]] == ["à", "peine"]:
        following_kinds = following_kinds[2:]
    if not following_kinds:
        return False
    if "avoir" in lemmas and following_kinds[0].verb_lemmas:
        has_mieux = "mieux" in {kind.key for kind in kinds[verb_index + 1 : verb_index + 3]}
        if following_kinds[0].verb_lemmas <= IMPERSONAL_VERBS or (
            has_mieux and "valoir" in following_kinds[0].verb_lemmas
        ):
            return True  # il a fallu, il aurait mieux valu
    if "faire" in lemmas and following_kinds[0].key in _WEATHER_WORDS:
        return True
    second_key = following_kinds[1].key if len(following_kinds) > 1 else ""
    if (
        lemmas & _COPULAS
        and not clitics & {"se", "s'"}
        and following_kinds[0].key in _EVALUATIVE_ADJECTIVES
        and second_key in ("de", "d'")
    ):
        return True
    has_quantity = len(following_kinds) > 1 and (
        second_key in _QUANTIFIERS or following_kinds[1].is_quantity
    )
    if (
        has_quantity
        and "être" in lemmas
        and following_kinds[0].is_past_participle
        and following_kinds[0].verb_lemmas & _IMPERSONAL_VERBS_BY_COMPLEMENT["un"]
    ):
        return True  # il est arrivé un
    if "être" in lemmas:
        is_hour = second_key in ("heure", "heures") and not following_kinds[0].is_preposition
        return (
            following_kinds[0].key in _TIME_WORDS
            or is_hour
            or (bool(following_kinds[0].adjective_bits) and second_key in ("que", "qu'"))
        )
    complement = (
        "que"
        if following_kinds[0].key in ("que", "qu'")
        else "de"
        if following_kinds[0].key in ("de", "d'")
        else ""
    )
    if not complement and (
        following_kinds[0].key in _QUANTIFIERS or following_kinds[0].is_quantity
    ):
        complement = "un"
    return bool(lemmas & _IMPERSONAL_VERBS_BY_COMPLEMENT.get(complement, frozenset()))


def _find_infinitive(kinds: Sequence[WordKind], verb_index: int) -> int | None:
    """Index of an infinitive behind a verb, over adverbs and clitics."""
    for index in range(verb_index + 1, min(verb_index + 6, len(kinds))):
        kind = kinds[index]
        if kind.infinitive_frequency > kind.nominal_frequency:
            return index
        if not (kind.is_clitic or _is_adverb(kind)):
            return None
    return None


def _is_hour(following_kinds: Sequence[WordKind]) -> bool:
    """Whether what stands behind a verb says the time: (près de) huit heures."""
    first_index = next(
        (index for index, kind in enumerate(following_kinds) if kind.key not in _APPROXIMATIONS),
        len(following_kinds),
    )
    time_kinds = following_kinds[first_index : first_index + 2]
    return (
        bool(time_kinds)
        and not time_kinds[0].is_preposition
        and [kind.key for kind in time_kinds[1:]] in (["heure"], ["heures"])
    )


def _is_adverb(kind: WordKind) -> bool:
    return kind.key == "pas" or (
        kind.adverb_frequency > 0
        and kind.adverb_frequency > kind.nominal_frequency + kind.finite_frequency
    )


# Two words that stand anywhere, and are no verb (en fait) and no noun (au final) there.
ADVERBIAL_PAIRS = frozenset(
    tuple(pair.split())
    for pair in (
        "en fait|au final|du coup|en effet|par exemple|en général|au moins|au fond|d' accord|de "
        "nouveau|sans doute|en plus"
    ).split("|")
)
_AUXILIARIES = frozenset(("avoir", "être"))
_MAX_INSERTION_WORDS = 6  # words between two commas


FindNounOfDeterminer = Callable[[int], "int | None"]


class PhraseBoundaries:
    """Ends of the phrases and clauses of a sentence.

    `find_noun` takes the index of a determiner and returns that of its noun, or None.
    """

    def __init__(
        self, tokens: Sequence[Token], kinds: Sequence[WordKind], find_noun: FindNounOfDeterminer
    ):
        self._tokens, self._kinds, self._find_noun = tokens, kinds, find_noun

    def find_name_end(self, start_index: int) -> int | None:
        """Last word of a name: words with a capital, or one that the lexicon lacks (transcripts
        have no capitals)."""
        kinds, index = self._kinds, start_index
        while (
            index < len(kinds) and self._tokens[index].is_capitalized and not kinds[index].is_sign
        ):
            index += 1
        if index == start_index and not kinds[index].is_known and not kinds[index].is_sign:
            index += 1
        return index - 1 if index > start_index else None

    def find_phrase_last_word(self, preposition: int) -> int | None:
        """Noun that ends a phrase with a preposition: d'anglais, du petit jardin, à cette heure;
        None if there is none."""
        kinds, index = self._kinds, preposition + 1
        is_contracted = kinds[preposition].key in ("du", "des", "au", "aux")
        if index >= len(kinds):
            return None
        if is_contracted:
            return self._find_noun(preposition) if kinds[preposition].determiner_bits else index
        if kinds[index].determiner_bits:
            return self._find_noun(index)
        while index < len(kinds) and (kinds[index].is_prenominal or kinds[index].is_quantity):
            index += 1
        if index >= len(kinds) or kinds[index].is_sign or kinds[index].is_function_word:
            return None
        name_end = self.find_name_end(index)
        if name_end is not None:
            return name_end
        return index if kinds[index].noun_bits or kinds[index].infinitive_frequency else None

    def find_closing_comma(self, opening_comma: int) -> int | None:
        """Comma that ends an insertion of a few words without a verb of its own (ma meilleure amie,
        donc Manon, me dit)."""
        kinds = self._kinds
        for index in range(
            opening_comma + 1, min(opening_comma + _MAX_INSERTION_WORDS + 2, len(kinds))
        ):
            word = kinds[index]
            if word.key == ",":
                return index if index > opening_comma + 1 else None
            is_strong_verb = (
                word.persons
                and word.finite_frequency
                > word.nominal_frequency + word.participle_frequency + word.adverb_frequency
            )
            if (
                word.is_sign
                or word.subject_person
                or word.key == "et"
                or is_strong_verb
                or (index == opening_comma + 1 and word.determiner_bits)
            ):
                return None
        return None

    def find_resumption_after_relative(self, pronoun: int) -> int | None:
        """Where the clause goes on behind a relative clause: behind its comma, or at the second
        finite verb."""
        kinds, verb_count, index = self._kinds, 0, pronoun + 1
        has_auxiliary = False
        while index < len(kinds):
            word = kinds[index]
            if word.key == "," and verb_count:
                return index + 1
            if word.is_sign or word.key in CONJUNCTIONS:
                return None
            if index + 1 < len(kinds) and (word.key, kinds[index + 1].key) in ADVERBIAL_PAIRS:
                index += 1
            elif word.determiner_bits and not (word.is_clitic and kinds[index - 1].is_clitic):
                noun_index = self._find_noun(index)
                index = index if noun_index is None else noun_index
            elif (
                word.persons
                and word.finite_frequency > word.nominal_frequency
                and not word.is_preposition
            ):
                if not (has_auxiliary and word.is_past_participle):
                    verb_count += 1
                    has_auxiliary = bool(word.verb_lemmas & _AUXILIARIES)
                if (
                    verb_count == 2
                    and not kinds[index - 1].is_clitic
                    and not kinds[index - 1].subject_person
                ):
                    return index
            index += 1
        return None


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
