"""Which noun belongs to a determiner, which verb to a subject pronoun? A parser for French that needs only the lexicon.

In: a sentence. Out: its tokens and the `Link`s between them. It reads from left to right with closed lists and the
frequencies of a spelling's readings, and knows no more grammar than the three relations of `parsing` need.
"""

from __future__ import annotations

from ..parsing import Link
from .lexicon import Lexicon
from .text import Token, tokenize
from .words import MONTHS, PLURAL, SINGULAR, TITLES, WordKind, WordKinds

_CERTAIN_BEFORE_VERB = frozenset("je j' tu il on ils ne n' me m' te t' se s'".split())
# Behind these, elle is no subject (avec elle).
_STRESSED_AFTER = frozenset(
    "à de d' avec sans chez pour sur contre vers entre devant derrière par malgré selon".split()
)
_BE_LIKE = frozenset(
    "fut fût furent fussent sera serait seraient seront soit soient était étaient est sont doit peut".split()
)
# Joined to a noun by et, they leave the verb in the third person.
_STRESSED = frozenset("lui elle eux elles".split())
# What follows a noun (le reste du temps, le fait que) far more often than a verb whose object stands before it.
_AFTER_NOUN = frozenset("de du des d' que qu'".split())
# Before un, a number: l'amendement numéro un fait débat.
_NUMBERED = frozenset("numéro numéros article chapitre page acte tome".split())
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

    def __init__(self, lexicon: Lexicon):
        self._kinds = WordKinds(lexicon)

    def parse(self, text: str) -> tuple[list[Token], list[Link]]:
        """Return the tokens of a sentence and the links between them."""
        tokens = tokenize(text)
        kinds = [self._kinds[token.key] for token in tokens]
        links = []
        for index, kind in enumerate(kinds):
            if kind.determiner:
                noun = _noun_of(tokens, kinds, index)
                if noun is not None:
                    links.append(Link("determiner", index, noun))
                    verb = _verb_of_noun(kinds, index, noun)
                    coordinated = False
                    if verb is None:
                        verb = _verb_of_coordination(tokens, kinds, index, noun)
                        coordinated = verb is not None
                    if verb is not None:
                        links.append(Link("determiner+subject", index, verb, noun, coordinated))
            if kind.subject:
                verb = _verb_of_pronoun(kinds, index)
                if verb is not None:
                    links.append(Link("subject", index, verb))
        return tokens, links


def _noun_of(tokens: list[Token], kinds: list[WordKind], index: int) -> int | None:
    """Noun of a determiner: walk over what may stand before it. None if there is none."""
    after = _next(kinds, index)
    if after is None or not _is_determiner(kinds, index, after):
        return None
    bits = kinds[index].determiner
    at: int | None = after
    compared = False
    while at is not None:
        word, following = kinds[at], _next(kinds, at)
        next_word = None if following is None else kinds[following]
        if tokens[at].capital and at > 0 and word.key not in TITLES:
            return None
        if word.degree:
            compared = True
        elif not _is_passed_over(word, next_word, bits, first=at == after):
            if word.function:
                return at if word.key in ("son", "ton") and bits & 1 else None
            if not _is_modifier(word, next_word, bits, compared):
                before_name = word.prenominal and following is not None and tokens[following].capital
                return at if not (compared or before_name) and _is_head(word, bits, first=at == after) else None
            compared = False
        at = following
    return None


def _is_determiner(kinds: list[WordKind], index: int, after: int) -> bool:
    """Whether a determiner's form is one here, and no pronoun (ce fut, je le porte), noun or part of a locution."""
    kind, following = kinds[index], kinds[after]
    before = kinds[index - 1] if index else None
    key = kind.key
    further = kinds[after + 1].key if after + 1 < len(kinds) else ""
    if (key, following.key) in _FROZEN or following.key == key or (key, following.key, further) in _FROZEN:
        return False
    if key == "ce":
        return following.key not in _BE_LIKE
    if key in ("un", "une") and before is not None and before.key in _NUMBERED:
        return False
    repeated = before is kind
    if key in ("son", "ton", "un", "une") and before is not None and before.determiner & SINGULAR and not repeated:
        return False  # itself the noun (le son, la une), or a numeral
    if key in ("le", "la", "les", "l'", "leur"):
        return not _is_object(kinds, index, after)
    return True


def _is_object(kinds: list[WordKind], index: int, after: int) -> bool:
    """Whether le, la, les is a pronoun before its verb (je le porte) and no determiner (le port)."""
    kind, following = kinds[index], kinds[after]
    before = kinds[index - 1] if index else None
    if before is not None and before.key == "en" and following.participle and following.key.endswith("ant"):
        return True
    verbal = following.finite + following.infinitive
    if not verbal and not (following.clitic and following.key not in ("leur", "nous", "vous", "le", "la", "les")):
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


def _verb_of_pronoun(kinds: list[WordKind], index: int) -> int | None:
    """Finite verb behind a subject pronoun and its clitics."""
    kind = kinds[index]
    before = kinds[index - 1] if index else None
    if kind.key in ("elle", "elles") and before is not None and before.key in _STRESSED_AFTER:
        return None
    at = _next(kinds, index)
    while at is not None:
        word = kinds[at]
        if word.clitic:
            at = _next(kinds, at)
        else:
            return at if kind.subject in word.persons else None
    return None


def _verb_of_noun(kinds: list[WordKind], determiner: int, noun: int) -> int | None:
    """Finite verb behind a noun (one adjective and clitics between) that begins its clause, so is its subject."""
    bits = kinds[determiner].determiner
    if not _begins_clause(kinds, determiner):
        return None
    return _verb_behind(kinds, noun, "3s" if bits & SINGULAR else "3p", bits)


def _begins_clause(kinds: list[WordKind], determiner: int) -> bool:
    before = kinds[determiner - 1] if determiner else None
    return before is None or before.sign or before.conjunction


def _verb_of_coordination(tokens: list[Token], kinds: list[WordKind], determiner: int, noun: int) -> int | None:
    """Plural verb behind a noun and what "et" joins to it: another noun, a name, lui or eux (le club et Alexander se séparent).

    What is joined must be a subject too: in "il voit le chat et Marie dort" the verb is singular, so nothing is found.
    """
    at = noun + 1
    if not _begins_clause(kinds, determiner) or at + 1 >= len(kinds) or kinds[at].key != "et":
        return None
    first = kinds[at + 1]
    if first.determiner:
        last = _noun_of(tokens, kinds, at + 1)
        bits = first.determiner
    elif first.key in _STRESSED:
        last, bits = at + 1, 0
    else:
        last, bits = _end_of_name(tokens, kinds, at + 1), 0
    return None if last is None else _verb_behind(kinds, last, "3p", bits)


def _end_of_name(tokens: list[Token], kinds: list[WordKind], start: int) -> int | None:
    """Last word of a name: words with a capital, or one that the lexicon lacks (transcripts have no capitals)."""
    at = start
    while at < len(kinds) and tokens[at].capital and not kinds[at].sign:
        at += 1
    if at == start and not kinds[at].known and not kinds[at].sign:
        at += 1
    return at - 1 if at > start else None


def _verb_behind(kinds: list[WordKind], noun: int, person: str, bits: int) -> int | None:
    """Finite verb behind a noun, one adjective and clitics between."""
    at = noun + 1
    while at < len(kinds):
        word = kinds[at]
        if word.sign:
            return None
        if word.clitic and word.key != "en":
            at += 1
        elif person in word.persons and word.finite > word.noun + word.adjective:
            return at
        elif at == noun + 1 and word.adjective_bits & bits and not word.function:
            at += 1
        else:
            return None
    return None


def _is_passed_over(word: WordKind, following: WordKind | None, bits: int, *, first: bool) -> bool:
    """Whether the word is neither noun nor adjective, but may stand before them: a number, très, et."""
    if word.counted:
        date = word.key.isdigit() or (following is not None and following.key in MONTHS)
        return bool(bits & PLURAL) or not date
    if word.before_adjective:
        before_adjective = following is not None and following.adjective_bits & bits and not following.function
        return not word.noun_bits & bits or bool(before_adjective)
    return word.key in ("et", "ou") and not first


def _is_modifier(word: WordKind, following: WordKind | None, bits: int, compared: bool) -> bool:
    """Whether the word stands as an adjective before the noun that follows."""
    if not word.adjective_bits & bits or following is None or following.sign or following.preposition:
        return False
    if following.key in ("et", "ou") or following.before_adjective or following.degree:
        return not word.noun_bits & bits or (word.prenominal and not compared and word.noun_share < 0.1)
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
    return is_noun and following.known and following.noun_share > word.noun_share and word.noun_share < 0.5


def _is_head(word: WordKind, bits: int, *, first: bool) -> bool:
    """Whether the word is the noun that the determiner belongs to."""
    elliptic = word.counted or word.elliptic or (word.key in MONTHS and not first)
    return bool(word.noun_bits & bits) and not elliptic


def _next(kinds: list[WordKind], index: int) -> int | None:
    """Index of the next word, over hesitations and the commas beside them; None at other signs and at the end."""
    at = index + 1
    while at < len(kinds):
        kind = kinds[at]
        pause = kind.key in (",", "...", "…") and at + 1 < len(kinds)
        if kind.hesitation or (
            pause and (kinds[at + 1].hesitation or kinds[at - 1].hesitation or kinds[at + 1] is kinds[at - 1])
        ):
            at += 1
        else:
            return None if kind.sign else at
    return None
