"""Parser for French noun phrases and subject pronouns, from the lexicon alone.

In: a sentence. Out: its tokens and the `Link`s between them. It reads from left to right with
closed lists and the frequencies of a spelling's readings, and knows no more grammar than the three
relations of `parser_interface` need.
"""

from __future__ import annotations

from ..parser_interface import RELATIONS, Link
from .lexicon import Lexicon
from .spoken import Token, tokenize
from .subjects import SubjectNouns, find_pronoun_verb
from .words import (
    DETERMINER_BITS,
    MONTHS,
    PLURAL,
    PRONOUN_PERSONS,
    SINGULAR,
    TITLES,
    WordKind,
    WordKinds,
)

_WORDS_BEFORE_VERB = frozenset("je j' tu il on ils ne n' me m' te t' se s'".split())
_VERBS_AFTER_CE = frozenset(
    "fut fût furent fussent sera serait seraient seront soit soient était étaient est sont doit "
    "peut".split()
)
# What follows a noun (le reste du temps, le fait que) far more often than a verb whose object
# stands before it.
_WORDS_AFTER_NOUN = frozenset("de du des d' que qu'".split())
# Before un, a number: l'amendement numéro un fait débat.
_NUMBERED_NOUNS = frozenset("numéro numéros article chapitre page acte tome".split())
# Around a noun, or an adjective before it, they change nothing: la « maison », un "grand" jour.
_QUOTES = frozenset('« » " “ ” „ ‹ ›'.split())
_FIXED_PHRASES = {
    ("du", "tout"),
    ("un", "peu"),
    ("le", "mieux"),
    ("la", "la"),
    ("un", "petit", "peu"),
}


class LexiconParser:
    """Find determiner and subject links in French text."""

    relations = RELATIONS

    def __init__(self, lexicon: Lexicon):
        self._kinds = WordKinds(lexicon)

    def refusal_reason(self, relation: str, cue: str) -> str:
        """Say why a form can never be a cue; "" if it can."""
        known_forms = tuple(PRONOUN_PERSONS) if relation == "subject" else tuple(DETERMINER_BITS)
        cue_kind = "subject pronoun" if relation == "subject" else "determiner"
        return (
            ""
            if cue in known_forms
            else f"it is no {cue_kind} that the parser knows; there are {', '.join(known_forms)}"
        )

    def parse(self, text: str) -> tuple[list[Token], list[Link]]:
        """Return the tokens of a sentence and the links between them."""
        tokens = tokenize(text)
        kinds = [self._kinds[token.key] for token in tokens]
        subjects = SubjectNouns(tokens, kinds, lambda index: _find_noun(tokens, kinds, index))
        links = []
        for index, kind in enumerate(kinds):
            if kind.determiner_bits:
                noun = _find_noun(tokens, kinds, index)
                if noun is not None:
                    links.append(Link("determiner", index, noun))
                    verb = subjects.find_verb(index, noun)
                    if verb is not None:
                        links.append(
                            Link(
                                "determiner+subject",
                                index,
                                verb.position,
                                noun,
                                verb.is_coordinated,
                            )
                        )
            if kind.subject_person:
                verb = find_pronoun_verb(kinds, index, lambda position: _next_word(kinds, position))
                if verb is not None:
                    links.append(
                        Link("subject", index, verb.position, is_impersonal=verb.is_impersonal)
                    )
        return tokens, links


def _find_noun(tokens: list[Token], kinds: list[WordKind], determiner_index: int) -> int | None:
    """Noun of a determiner: walk over what may stand before it. None if there is none."""
    first_index = _next_word(kinds, determiner_index, skipped_keys=_QUOTES)
    if first_index is None or not _is_determiner(kinds, determiner_index, first_index):
        return None
    agreement_bits = kinds[determiner_index].determiner_bits
    index: int | None = first_index
    is_compared = False
    while index is not None:
        word, next_index = kinds[index], _next_word(kinds, index, skipped_keys=_QUOTES)
        next_word = None if next_index is None else kinds[next_index]
        if tokens[index].is_capitalized and index > 0 and word.key not in TITLES:
            return None
        if word.is_degree_word:
            is_compared = True
        elif not _is_skipped(word, next_word, agreement_bits, is_first=index == first_index):
            if word.is_function_word:
                return index if word.key in ("son", "ton") and agreement_bits & 1 else None
            if not _is_modifier(word, next_word, agreement_bits, is_compared):
                before_name = (
                    word.is_prenominal
                    and next_index is not None
                    and tokens[next_index].is_capitalized
                )
                return (
                    index
                    if not (is_compared or before_name)
                    and _is_head_noun(word, agreement_bits, is_first=index == first_index)
                    else None
                )
            is_compared = False
        index = next_index
    return None


def _is_determiner(kinds: list[WordKind], index: int, next_index: int) -> bool:
    """Whether a determiner's form is one here, and no pronoun (ce fut, je le porte), noun or part
    of a locution."""
    kind, next_kind = kinds[index], kinds[next_index]
    previous_kind = kinds[index - 1] if index else None
    key = kind.key
    third_key = kinds[next_index + 1].key if next_index + 1 < len(kinds) else ""
    if (
        (key, next_kind.key) in _FIXED_PHRASES
        or next_kind.key == key
        or (key, next_kind.key, third_key) in _FIXED_PHRASES
    ):
        return False
    if key == "ce":
        return next_kind.key not in _VERBS_AFTER_CE
    if key in ("un", "une") and previous_kind is not None and previous_kind.key in _NUMBERED_NOUNS:
        return False
    is_repeated = previous_kind is kind
    if (
        key in ("son", "ton", "un", "une")
        and previous_kind is not None
        and previous_kind.determiner_bits & SINGULAR
        and not is_repeated
    ):
        return False  # itself the noun (le son, la une), or a numeral
    if key in ("le", "la", "les", "l'", "leur"):
        return not _is_object_pronoun(kinds, index, next_index)
    return True


def _is_object_pronoun(kinds: list[WordKind], index: int, next_index: int) -> bool:
    """Whether le, la, les is a pronoun before its verb (je le porte) and no determiner (le
    port)."""
    kind, next_kind = kinds[index], kinds[next_index]
    previous_kind = kinds[index - 1] if index else None
    if (
        previous_kind is not None
        and previous_kind.key == "en"
        and next_kind.participle_frequency
        and next_kind.key.endswith("ant")
    ):
        return True
    verbal_frequency = next_kind.finite_frequency + next_kind.infinitive_frequency
    if not verbal_frequency and not (
        next_kind.is_clitic and next_kind.key not in ("leur", "nous", "vous", "le", "la", "les")
    ):
        return False
    if next_kind.is_clitic:
        return True
    nominal_frequency = next_kind.nominal_frequency
    if previous_kind is None or previous_kind.is_sign:
        return verbal_frequency > 20 * nominal_frequency
    if previous_kind.key in _WORDS_BEFORE_VERB:
        return True
    if (
        next_kind.noun_frequency
        and next_index + 1 < len(kinds)
        and kinds[next_index + 1].key in _WORDS_AFTER_NOUN
    ):
        return False
    if previous_kind.key in ("de", "à") and kind.key in ("le", "les"):
        return True
    if previous_kind.key in ("elle", "elles", "nous", "vous", "qui"):
        return bool(next_kind.persons) or next_kind.infinitive_frequency > next_kind.noun_frequency
    if previous_kind.is_preposition or previous_kind.determiner_bits:
        return next_kind.infinitive_frequency > next_kind.noun_frequency
    if next_kind.infinitive_frequency > next_kind.noun_frequency:
        return True
    if (
        previous_kind.noun_share > 0.5
        and not previous_kind.is_function_word
        and next_kind.persons & {"3s", "3p"}
    ):
        return next_kind.finite_frequency > 0.3 * nominal_frequency
    return next_kind.finite_frequency > 5 * nominal_frequency


def _is_skipped(
    word: WordKind, next_kind: WordKind | None, agreement_bits: int, *, is_first: bool
) -> bool:
    """Whether the word is neither noun nor adjective, but may stand before them: a number, très,
    et."""
    if word.is_quantity:
        can_be_date = word.key.isdigit() or (next_kind is not None and next_kind.key in MONTHS)
        return bool(agreement_bits & PLURAL) or not can_be_date
    if word.can_precede_adjective:
        precedes_adjective = (
            next_kind is not None
            and next_kind.adjective_bits & agreement_bits
            and not next_kind.is_function_word
        )
        return not word.noun_bits & agreement_bits or bool(precedes_adjective)
    return word.key in ("et", "ou") and not is_first


def _is_modifier(
    word: WordKind, next_kind: WordKind | None, agreement_bits: int, is_compared: bool
) -> bool:
    """Whether the word stands as an adjective before the noun that follows."""
    if (
        not word.adjective_bits & agreement_bits
        or next_kind is None
        or next_kind.is_sign
        or next_kind.is_preposition
    ):
        return False
    if next_kind.key in ("et", "ou") or next_kind.can_precede_adjective or next_kind.is_degree_word:
        return not word.noun_bits & agreement_bits or (
            word.is_prenominal and not is_compared and word.noun_share < 0.1
        )
    if next_kind.is_function_word or next_kind.is_filler:
        return False
    is_noun = bool(next_kind.noun_bits & agreement_bits)
    if word.is_prenominal:
        if next_kind.key == "possible":  # le plus cher possible
            return False
        return bool(next_kind.adjective_bits & agreement_bits and next_kind.is_prenominal) or (
            is_noun and next_kind.noun_share > 0.05
        )
    if is_compared:
        return False
    if (
        next_kind.adjective_bits & agreement_bits
        and not word.noun_bits & agreement_bits
        and not is_noun
    ):
        return True
    return (
        is_noun
        and next_kind.is_known
        and next_kind.noun_share > word.noun_share
        and word.noun_share < 0.5
    )


def _is_head_noun(word: WordKind, agreement_bits: int, *, is_first: bool) -> bool:
    """Whether the word is the noun that the determiner belongs to."""
    is_elliptic = word.is_quantity or word.can_be_elliptic or (word.key in MONTHS and not is_first)
    return bool(word.noun_bits & agreement_bits) and not is_elliptic


def _next_word(
    kinds: list[WordKind], index: int, skipped_keys: frozenset[str] = frozenset()
) -> int | None:
    """Index of the next word, over hesitations, the commas beside them and the signs named; None at
    others and at the end."""
    for next_index in range(index + 1, len(kinds)):
        kind, neighbours = kinds[next_index], kinds[next_index - 1 : next_index + 2 : 2]
        is_pause = (
            kind.key in (",", "...", "…")
            and len(neighbours) == 2
            and (any(word.is_hesitation for word in neighbours) or neighbours[0] is neighbours[1])
        )
        is_skipped_sign = kind.is_sign and kind.key in skipped_keys
        if not (kind.is_hesitation or is_pause or is_skipped_sign):
            return None if kind.is_sign else next_index
    return None
