"""Gold homophone pairs from a Universal Dependencies treebank, to measure what the parsers find.

Gold policy (written down before the parser was tuned; data_templates/french/README.md has it in prose)
1. A determiner pair is a word of the template's cue forms with UPOS DET and relation `det` (or a subtype) to a head with
   UPOS NOUN that follows it. Proper nouns, elliptic adjectives and numerals (le premier, les deux), pronouns (le tien;
   les autres, even where the tree says NOUN) and cut-off words are no targets. Otherwise what is tagged NOUN counts.
2. Contractions: du and des count as the written word, whether the tree splits them (de + le) or has one partitive article.
   au and aux sound alike and are no cues. Of de la, partitive (tree: `de` det, `la` fixed) or not, the cue is la.
3. Adverbial locutions count where the tree keeps the noun's determiner (du coup, à la fois, la plupart, un jour); what
   the tree calls `fixed` or `advmod` does not (un peu, au moins, le plus vite, le mieux). du tout never does; the trees
   call it `fixed` twelve times and a noun with its determiner six times.
4. A determiner that the speaker repairs (`reparandum`) is no cue; of two determiners of one noun the nearest is.
   Hesitations and commas between cue and target do not matter.
5. A pronoun pair is je, j', tu, il, elle, on, ils, elles with relation `nsubj`, `expl:subj` (or a subtype), before the
   finite word that agrees with it: the first finite auxiliary or copula of its head, else the head if that is finite.
   So auxiliaries are targets (il a mangé: a). Impersonal il is a subject, and il y a counts in all its uses, though the
   tree calls some of them `case` or `dep`. Inverted subjects (dit-il) come after the verb and do not count.
6. Both sides then pass the same test, that the lexicon has a homophone partner for the target: what is measured is the
   parse and the positions, not the lexicon. Cue and target must both be at the exact characters.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from speechmix.homophony import Lexicon, Template
from speechmix.homophony.french.lexicon import Partner
from speechmix.homophony.french.text import key_of

SHARED = Path(__file__).parents[3] / "shared" / "data"
TREEBANK = SHARED / "treebank_fr"
THIRD_PERSON = frozenset("il elle ils elles".split())


class Word(NamedTuple):
    form: str
    upos: str
    features: str
    head: int
    relation: str
    start: int
    stop: int


class GoldPair(NamedTuple):
    cue: tuple[int, int]
    target: tuple[int, int]


def sentences(path: Path) -> Iterator[tuple[str, dict[int, Word]]]:
    """Text and words (by their number in the tree, with their places in the text) of every sentence of a file."""
    for block in path.read_text(encoding="utf-8").strip().split("\n\n"):
        lines = block.split("\n")
        text = next(line for line in lines if line.startswith("# text = "))[len("# text = ") :]
        words: dict[int, Word] = {}
        position, contracted_to, places = 0, 0, (0, 0)
        for line in lines:
            if line.startswith("#"):
                continue
            number, form, _, upos, _, features, head, relation, _, _ = line.split("\t")
            if "-" in number or int(number) > contracted_to:
                start = text.index(form, position)
                assert not text[position:start].strip(), (text, form)
                position = start + len(form)
                places = (start, position)
            if "-" in number:
                contracted_to, contraction = int(number.split("-")[1]), form
                continue
            form = contraction if int(number) <= contracted_to else form
            words[int(number)] = Word(form, upos, features, int(head), relation.split(":")[0], *places)
            if relation == "expl:subj":
                words[int(number)] = words[int(number)]._replace(relation="nsubj")
        yield text, words


def determiner_pairs(words: dict[int, Word], template: Template, lexicon: Lexicon) -> set[GoldPair]:
    pairs: dict[tuple[int, int], GoldPair] = {}
    for word in words.values():
        cue = template.cues.get(_key(word.form))
        relation, head = word.relation, words.get(word.head)
        if cue is None or head is None or word.upos != "DET":
            continue
        if relation == "fixed" and head.relation == "det" and _key(word.form) == "la":
            relation, head = "det", words[head.head]
        if (_key(word.form), _key(head.form)) == ("du", "tout") or _key(head.form) == "autres":
            continue
        if relation != "det" or head.upos != "NOUN" or head.start < word.start:
            continue
        # words come in order, so the nearest determiner is the last
        if isinstance(lexicon.noun_partner(_key(head.form), cue.agreement), Partner):
            pairs[head.start, head.stop] = GoldPair((word.start, word.stop), (head.start, head.stop))
    return set(pairs.values())


def subject_pairs(words: dict[int, Word], template: Template, lexicon: Lexicon) -> set[GoldPair]:
    pairs = set()
    for number, word in words.items():
        cue = template.cues.get(_key(word.form))
        if cue is None or word.upos != "PRON":
            continue
        verb = _there_is(words, number)
        if verb is None and word.relation == "nsubj":
            verb = _finite(words, word.head, word.start)
        if verb is None or verb.start < word.start:
            continue
        if isinstance(lexicon.verb_partner(_key(verb.form), cue.agreement), Partner):
            pairs.add(GoldPair((word.start, word.stop), (verb.start, verb.stop)))
    return pairs


def noun_verb_pairs(words: dict[int, Word], template: Template, lexicon: Lexicon) -> set[GoldPair]:
    """Determiner and the finite verb behind it whose subject the determiner's noun is, or begins (coordination)."""
    pairs: dict[tuple[int, int], GoldPair] = {}
    for word in words.values():
        cue, noun = template.cues.get(_key(word.form)), words.get(word.head)
        if cue is None or noun is None or (word.upos, word.relation, noun.upos) != ("DET", "det", "NOUN"):
            continue
        verb = _finite(words, noun.head, word.start) if noun.relation == "nsubj" else None
        if verb is None or verb.start < noun.start or noun.start < word.start:
            continue
        joined = any(
            other.relation == "conj" and words.get(other.head) is noun and other.start < verb.start
            for other in words.values()
        )
        if joined and not template.coordinated:
            continue
        if isinstance(lexicon.verb_partner(_key(verb.form), "3p" if joined else "3" + cue.agreement), Partner):
            pairs[verb.start, verb.stop] = GoldPair((word.start, word.stop), (verb.start, verb.stop))
    return set(pairs.values())


def _finite(words: dict[int, Word], head: int, after: int) -> Word | None:
    # "se dit" may be one predicate: se the head, dit `fixed`
    helpers, fixed = (
        [word for word in words.values() if word.head == head and word.relation in names]
        for names in (("aux", "cop"), ("fixed",))
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
    return key_of(form.replace("’", "'"))


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
        return f"P {self.precision:.4f}  R {self.recall:.4f}  F1 {self.f1:.4f}  ({self.right} of {self.found}, gold {self.gold})"


def compare(files, template: Template, lexicon: Lexicon, mine, *, cues=None, errors: list | None = None) -> Score:
    """Score a template's pairs against the trees; `cues` restricts both sides, `errors` collects the differences."""
    extract = _EXTRACT[template.relation]
    right = found = gold = 0
    for file in files:
        for text, words in sentences(file):
            expected = extract(words, template, lexicon)
            mined = {GoldPair(pair.cue, pair.target) for pair in mine(text).pairs}
            if cues is not None:
                expected, mined = ({p for p in side if _key(text[slice(*p.cue)]) in cues} for side in (expected, mined))
            right, found, gold = right + len(expected & mined), found + len(mined), gold + len(expected)
            if errors is not None:
                errors += [("extra", text, pair) for pair in sorted(mined - expected)]
                errors += [("missed", text, pair) for pair in sorted(expected - mined)]
    return Score(right, found, gold)


_EXTRACT = {"determiner": determiner_pairs, "subject": subject_pairs, "determiner+subject": noun_verb_pairs}
