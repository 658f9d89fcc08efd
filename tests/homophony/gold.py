"""Gold homophone pairs from a Universal Dependencies treebank, to measure what the parsers find.

The rules, with their reasons, their effect on the score and the date of every change, are in prose
in data_templates/french/README.md; here they are carried out. The names in `OWN_RULES` are those
that depart from the trees, or from what a reader of trees would expect: each can be left out
(`without`), so that its effect on F1 is a figure (`python -m benchmarks.mining --trees ...` prints
them).

In: a file of trees, a template, a lexicon. Out: pairs of character ranges, and a score of what was
mined. Both sides pass the same test, that the lexicon has a homophone partner of a contrast that
the template takes: what is measured is the parse, the positions, and the foil, which must be a form
of the tree's lemma.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from speechmix.studies.french import Lexicon, Template
from speechmix.studies.french.language.partners import AUDIBLE, Partner
from speechmix.studies.french.language.spoken import lookup_key

SHARED = Path(__file__).parents[3] / "shared" / "data"
TREEBANK = SHARED / "treebank_fr"
THIRD_PERSON = frozenset("il elle ils elles".split())
OWN_RULES = {
    "others": "les autres is a pronoun, also where the tree says noun",
    "du tout": "du tout is a locution, also where the tree has noun and determiner",
    "de la": "of de la the cue is la, also where the tree makes it a part of de (fixed)",
    "nearest": "of two determiners of a noun the nearest is the cue",
    "il y a": "il y a has a subject in all its uses, also where the tree calls them case or dep",
    "fixed verb": "of a predicate that the tree calls fixed (se dit) the finite word counts",
}


class Word(NamedTuple):
    form: str
    upos: str
    features: str
    head: int
    relation: str
    start: int
    stop: int
    lemma: str = ""


class GoldPair(NamedTuple):
    cue: tuple[int, int]
    target: tuple[int, int]


@functools.cache
def sentences(path: Path) -> list[tuple[str, dict[int, Word]]]:
    """`read_sentences`, read once for all tests, which change none."""
    return list(read_sentences(path))


def read_sentences(path: Path) -> Iterator[tuple[str, dict[int, Word]]]:
    """Text and words (by their number in the tree, with their places in the text) of every sentence
    of a file."""
    for block in path.read_text(encoding="utf-8").strip().split("\n\n"):
        lines = block.split("\n")
        text = next(line for line in lines if line.startswith("# text = "))[len("# text = ") :]
        words: dict[int, Word] = {}
        position, contracted_to, places = 0, 0, (0, 0)
        for line in lines:
            if line.startswith("#"):
                continue
            number, form, lemma, upos, _, features, head, relation, _, _ = line.split("\t")
            if "-" in number or int(number) > contracted_to:
                start = text.index(form, position)
                assert not text[position:start].strip(), (text, form)
                position = start + len(form)
                places = (start, position)
            if "-" in number:
                contracted_to, contraction = int(number.split("-")[1]), form
                continue
            form = contraction if int(number) <= contracted_to else form
            words[int(number)] = Word(
                form, upos, features, int(head), relation.split(":")[0], *places, lemma
            )
            if relation == "expl:subj":
                words[int(number)] = words[int(number)]._replace(relation="nsubj")
        yield text, words


def determiner_pairs(
    words: dict[int, Word], template: Template, lexicon: Lexicon, without: Collection[str] = ()
) -> set[GoldPair]:
    """Determiner and noun."""
    pairs: dict[tuple, GoldPair] = {}
    for word in words.values():
        cue = template.cues.get(_key(word.form))
        relation, head = word.relation, words.get(word.head)
        if cue is None or head is None or word.upos != "DET":
            continue
        if (
            relation == "fixed"
            and head.relation == "det"
            and _key(word.form) == "la"
            and "de la" not in without
        ):
            relation, head = "det", words[head.head]
        if (_key(word.form), _key(head.form)) == ("du", "tout") and "du tout" not in without:
            continue
        if _key(head.form) == "autres" and "others" not in without:
            continue
        if relation != "det" or head.upos != "NOUN" or head.start < word.start:
            continue
        # words come in order, so the nearest determiner is the last
        if isinstance(lexicon.noun_partner(_key(head.form), cue.agreement), Partner):
            place = (word.start,) * ("nearest" in without) + (head.start, head.stop)
            pairs[place] = GoldPair((word.start, word.stop), (head.start, head.stop))
    return set(pairs.values())


def subject_pairs(
    words: dict[int, Word], template: Template, lexicon: Lexicon, without: Collection[str] = ()
) -> set[GoldPair]:
    """Subject pronoun and finite verb."""
    pairs = set()
    for number, word in words.items():
        cue = template.cues.get(_key(word.form))
        if cue is None or word.upos != "PRON":
            continue
        verb = None if "il y a" in without else _there_is(words, number)
        if verb is None and word.relation == "nsubj":
            verb = _finite(words, word.head, word.start, without)
        if verb is None or verb.start < word.start:
            continue
        if _has_partner(lexicon, verb, cue.agreement, template):
            pairs.add(GoldPair((word.start, word.stop), (verb.start, verb.stop)))
    return pairs


def noun_verb_pairs(
    words: dict[int, Word], template: Template, lexicon: Lexicon, without: Collection[str] = ()
) -> set[GoldPair]:
    """Determiner and the finite verb behind it whose subject the determiner's noun is, or begins
    (coordination)."""
    pairs: dict[tuple[int, int], GoldPair] = {}
    for word in words.values():
        cue, noun = template.cues.get(_key(word.form)), words.get(word.head)
        if (
            cue is None
            or noun is None
            or (word.upos, word.relation, noun.upos) != ("DET", "det", "NOUN")
        ):
            continue
        verb = _finite(words, noun.head, word.start, without) if noun.relation == "nsubj" else None
        if verb is None or verb.start < noun.start or noun.start < word.start:
            continue
        joined = any(
            other.relation == "conj" and words.get(other.head) is noun and other.start < verb.start
            for other in words.values()
        )
        if joined and not template.allow_coordinated_subjects:
            continue
        if (
            not template.allow_number_marked_noun
            and lexicon.noun_partner(_key(noun.form), cue.agreement) is AUDIBLE
        ):
            continue
        if _has_partner(lexicon, verb, "3p" if joined else "3" + cue.agreement, template):
            pairs[verb.start, verb.stop] = GoldPair(
                (word.start, word.stop), (verb.start, verb.stop)
            )
    return set(pairs.values())


def _has_partner(lexicon: Lexicon, verb: Word, person: str, template: Template) -> bool:
    partner = lexicon.verb_partner(_key(verb.form), person)
    return isinstance(partner, Partner) and partner.contrast in template.partner_contrasts


def _finite(words: dict[int, Word], head: int, after: int, without: Collection[str]) -> Word | None:
    # "se dit" may be one predicate: se the head, dit `fixed`
    helpers, fixed = (
        [word for word in words.values() if word.head == head and word.relation in names]
        for names in (("aux", "cop"), () if "fixed verb" in without else ("fixed",))
    )
    # of "c'est que je pense" the copula belongs to c'
    candidates = [word for word in (*helpers, words[head], *fixed) if word.start > after]
    return next((word for word in candidates if "VerbForm=Fin" in word.features), None)


def _there_is(words: dict[int, Word], number: int) -> Word | None:
    """The verb of il y a, il n'y a, il y avait."""
    if _key(words[number].form) != "il":
        return None
    following = [words[n] for n in range(number + 1, number + 4) if n in words]
    forms = [_key(word.form) for word in following]
    for at in (0, 1):
        if forms[at : at + 1] == ["y"] and len(following) > at + 1 and forms[:at] in ([], ["n'"]):
            verb = following[at + 1]
            return verb if "VerbForm=Fin" in verb.features else None
    return None


def _key(form: str) -> str:
    return lookup_key(form.replace("’", "'"))


class Score(NamedTuple):
    """Agreement of found and gold pairs."""

    right: int
    found: int
    gold: int

    @property
    def precision(self) -> float:
        return self.right / max(self.found, 1)

    @property
    def recall(self) -> float:
        return self.right / max(self.gold, 1)

    @property
    def f1(self) -> float:
        return 2 * self.right / max(self.found + self.gold, 1)

    def shown(self) -> str:
        """All figures in one line."""
        shares = f"P {self.precision:.4f}  R {self.recall:.4f}  F1 {self.f1:.4f}"
        return f"{shares}  ({self.right} of {self.found}, gold {self.gold})"


def compare(
    files,
    template: Template,
    lexicon: Lexicon,
    mine,
    *,
    cues=None,
    errors: list | None = None,
    without: Collection[str] = (),
) -> Score:
    """Score a template's pairs against the trees.

    `cues` restricts both sides, `errors` collects the differences, `without` leaves rules of
    `OWN_RULES` out. A pair that is found with a wrong foil is an error.
    """
    extract = _EXTRACT[template.relation]
    right = found = gold = 0
    for file in files:
        for text, words in sentences(file):
            expected = extract(words, template, lexicon, without)
            mined = {GoldPair(pair.cue, pair.target): pair.foil for pair in mine(text).pairs}
            if cues is not None:
                expected = {pair for pair in expected if _key(text[slice(*pair.cue)]) in cues}
                mined = {
                    pair: foil
                    for pair, foil in mined.items()
                    if _key(text[slice(*pair.cue)]) in cues
                }
            lemma_at = {(word.start, word.stop): word.lemma for word in words.values()}
            wrong = {
                pair
                for pair, foil in mined.items()
                if not is_foil(
                    lexicon,
                    foil,
                    _key(text[slice(*pair.target)]),
                    lemma_at.get(pair.target, ""),
                    template,
                )
            }
            right += len(expected & mined.keys() - wrong)
            found, gold = found + len(mined), gold + len(expected)
            if errors is not None:
                errors += [("extra", text, pair) for pair in sorted(mined.keys() - expected)]
                errors += [("missed", text, pair) for pair in sorted(expected - mined.keys())]
                errors += [("wrong foil", text, pair) for pair in sorted(wrong & expected)]
    return Score(right, found, gold)


def is_foil(lexicon: Lexicon, foil: str | None, form: str, lemma: str, template: Template) -> bool:
    """Whether a foil is a form of the tree's lemma, where the lexicon leaves a choice (suit is none
    of je suis)."""
    lemmas = {
        reading.lemma for reading in lexicon.readings(form) if reading.pos in template.target_pos
    }
    if foil is None or len(lemmas) < 2 or lemma not in lemmas:
        return True
    return (
        any(reading.lemma == lemma for reading in lexicon.readings(_key(foil)))
        or _key(foil) not in lexicon
    )


_EXTRACT = {
    "determiner": determiner_pairs,
    "subject": subject_pairs,
    "determiner+subject": noun_verb_pairs,
}
