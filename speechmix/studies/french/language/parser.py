"""Which noun belongs to a determiner, which verb to a subject pronoun? A parser for French that
needs only the lexicon.

In: a sentence. Out: its tokens and the `Link`s between them. It reads from left to right with
closed lists and the frequencies of a spelling's readings, and knows no more grammar than the three
relations of `parsing` need.
"""

from __future__ import annotations

from ..parser_interface import RELATIONS, Link
from .lexicon import Lexicon
from .subjects import SubjectNouns, verb_of_pronoun
from .text import Token, tokenize
from .words import DETERMINERS, MONTHS, PLURAL, SINGULAR, SUBJECTS, TITLES, WordKind, WordKinds

_CERTAIN_BEFORE_VERB = frozenset("je j' tu il on ils ne n' me m' te t' se s'".split())
_BE_LIKE = frozenset(
    "fut fût furent fussent sera serait seraient seront soit soient était étaient est sont doit "
    "peut".split()
)
# What follows a noun (le reste du temps, le fait que) far more often than a verb whose object
# stands before it.
_AFTER_NOUN = frozenset("de du des d' que qu'".split())
# Before un, a number: l'amendement numéro un fait débat.
_NUMBERED = frozenset("numéro numéros article chapitre page acte tome".split())
# Around a noun, or an adjective before it, they change nothing: la « maison », un "grand" jour.
_QUOTES = frozenset('« » " “ ” „ ‹ ›'.split())
_FROZEN = {("du", "tout"), ("un", "peu"), ("le", "mieux"), ("la", "la"), ("un", "petit", "peu")}


class LexiconParser:
    """Find determiner and subject links in French text.

    Parameters
    ----------
    lexicon : Lexicon

    Examples
    --------
    >>> parser = LexiconParser(Lexicon.load())
    >>> tokens, links = parser.parse("Pour les jeunes gens qui viennent, ils aiment la tourmente.")
    >>> [(link.relation, tokens[link.cue].key, tokens[link.target].key) for link in links]
    [('determiner', 'les', 'gens'), ('subject', 'ils', 'aiment'), ('determiner', 'la', 'tourmente')]
    """

    relations = RELATIONS

    def __init__(self, lexicon: Lexicon):
        self._kinds = WordKinds(lexicon)

    def refused(self, relation: str, cue: str) -> str:
        """Say why a form can never be a cue; "" if it can."""
        forms = tuple(SUBJECTS) if relation == "subject" else tuple(DETERMINERS)
        what = "subject pronoun" if relation == "subject" else "determiner"
        return (
            ""
            if cue in forms
            else f"it is no {what} that the parser knows; there are {', '.join(forms)}"
        )

    def parse(self, text: str) -> tuple[list[Token], list[Link]]:
        """Return the tokens of a sentence and the links between them."""
        tokens = tokenize(text)
        kinds = [self._kinds[token.key] for token in tokens]
        subjects = SubjectNouns(tokens, kinds, lambda index: _noun_of(tokens, kinds, index))
        links = []
        for index, kind in enumerate(kinds):
            if kind.determiner:
                noun = _noun_of(tokens, kinds, index)
                if noun is not None:
                    links.append(Link("determiner", index, noun))
                    verb = subjects.verb_of(index, noun)
                    if verb is not None:
                        links.append(
                            Link("determiner+subject", index, verb.place, noun, verb.coordinated)
                        )
            if kind.subject:
                verb = verb_of_pronoun(kinds, index, lambda at: _next(kinds, at))
                if verb is not None:
                    links.append(Link("subject", index, verb.place, impersonal=verb.impersonal))
        return tokens, links


def _noun_of(tokens: list[Token], kinds: list[WordKind], index: int) -> int | None:
    """Noun of a determiner: walk over what may stand before it. None if there is none."""
    after = _next(kinds, index, over=_QUOTES)
    if after is None or not _is_determiner(kinds, index, after):
        return None
    bits = kinds[index].determiner
    at: int | None = after
    compared = False
    while at is not None:
        word, following = kinds[at], _next(kinds, at, over=_QUOTES)
        next_word = None if following is None else kinds[following]
        if tokens[at].capital and at > 0 and word.key not in TITLES:
            return None
        if word.degree:
            compared = True
        elif not _is_skipped(word, next_word, bits, first=at == after):
            if word.function:
                return at if word.key in ("son", "ton") and bits & 1 else None
            if not _is_modifier(word, next_word, bits, compared):
                before_name = (
                    word.prenominal and following is not None and tokens[following].capital
                )
                return (
                    at
                    if not (compared or before_name) and _is_head(word, bits, first=at == after)
                    else None
                )
            compared = False
        at = following
    return None


def _is_determiner(kinds: list[WordKind], index: int, after: int) -> bool:
    """Whether a determiner's form is one here, and no pronoun (ce fut, je le porte), noun or part
    of a locution."""
    kind, following = kinds[index], kinds[after]
    before = kinds[index - 1] if index else None
    key = kind.key
    further = kinds[after + 1].key if after + 1 < len(kinds) else ""
    if (
        (key, following.key) in _FROZEN
        or following.key == key
        or (key, following.key, further) in _FROZEN
    ):
        return False
    if key == "ce":
        return following.key not in _BE_LIKE
    if key in ("un", "une") and before is not None and before.key in _NUMBERED:
        return False
    repeated = before is kind
    if (
        key in ("son", "ton", "un", "une")
        and before is not None
        and before.determiner & SINGULAR
        and not repeated
    ):
        return False  # itself the noun (le son, la une), or a numeral
    if key in ("le", "la", "les", "l'", "leur"):
        return not _is_object(kinds, index, after)
    return True


def _is_object(kinds: list[WordKind], index: int, after: int) -> bool:
    """Whether le, la, les is a pronoun before its verb (je le porte) and no determiner (le
    port)."""
    kind, following = kinds[index], kinds[after]
    before = kinds[index - 1] if index else None
    if (
        before is not None
        and before.key == "en"
        and following.participle
        and following.key.endswith("ant")
    ):
        return True
    verbal = following.finite + following.infinitive
    if not verbal and not (
        following.clitic and following.key not in ("leur", "nous", "vous", "le", "la", "les")
    ):
        return False
    if following.clitic:
        return True
    nominal = following.noun + following.adjective
    if before is None or before.sign:
        return verbal > 20 * nominal
    if before.key in _CERTAIN_BEFORE_VERB:
        return True
    if following.noun and after + 1 < len(kinds) and kinds[after + 1].key in _AFTER_NOUN:
        return False
    if before.key in ("de", "à") and kind.key in ("le", "les"):
        return True
    if before.key in ("elle", "elles", "nous", "vous", "qui"):
        return bool(following.persons) or following.infinitive > following.noun
    if before.preposition or before.determiner:
        return following.infinitive > following.noun
    if following.infinitive > following.noun:
        return True
    if before.noun_share > 0.5 and not before.function and following.persons & {"3s", "3p"}:
        return following.finite > 0.3 * nominal
    return following.finite > 5 * nominal


def _is_skipped(word: WordKind, following: WordKind | None, bits: int, *, first: bool) -> bool:
    """Whether the word is neither noun nor adjective, but may stand before them: a number, très,
    et."""
    if word.counted:
        date = word.key.isdigit() or (following is not None and following.key in MONTHS)
        return bool(bits & PLURAL) or not date
    if word.before_adjective:
        before_adjective = (
            following is not None and following.adjective_bits & bits and not following.function
        )
        return not word.noun_bits & bits or bool(before_adjective)
    return word.key in ("et", "ou") and not first


def _is_modifier(word: WordKind, following: WordKind | None, bits: int, compared: bool) -> bool:
    """Whether the word stands as an adjective before the noun that follows."""
    if (
        not word.adjective_bits & bits
        or following is None
        or following.sign
        or following.preposition
    ):
        return False
    if following.key in ("et", "ou") or following.before_adjective or following.degree:
        return not word.noun_bits & bits or (
            word.prenominal and not compared and word.noun_share < 0.1
        )
    if following.function or following.filler:
        return False
    is_noun = bool(following.noun_bits & bits)
    if word.prenominal:
        if following.key == "possible":  # le plus cher possible
            return False
        return bool(following.adjective_bits & bits and following.prenominal) or (
            is_noun and following.noun_share > 0.05
        )
    if compared:
        return False
    if following.adjective_bits & bits and not word.noun_bits & bits and not is_noun:
        return True
    return (
        is_noun
        and following.known
        and following.noun_share > word.noun_share
        and word.noun_share < 0.5
    )


def _is_head(word: WordKind, bits: int, *, first: bool) -> bool:
    """Whether the word is the noun that the determiner belongs to."""
    elliptic = word.counted or word.elliptic or (word.key in MONTHS and not first)
    return bool(word.noun_bits & bits) and not elliptic


def _next(kinds: list[WordKind], index: int, over: frozenset[str] = frozenset()) -> int | None:
    """Index of the next word, over hesitations, the commas beside them and the signs named; None at
    others and at the end."""
    at = index + 1
    while at < len(kinds):
        kind = kinds[at]
        pause = kind.key in (",", "...", "…") and at + 1 < len(kinds)
        if (
            kind.hesitation
            or (kind.sign and kind.key in over)
            or (
                pause
                and (
                    kinds[at + 1].hesitation
                    or kinds[at - 1].hesitation
                    or kinds[at + 1] is kinds[at - 1]
                )
            )
        ):
            at += 1
        else:
            return None if kind.sign else at
    return None
