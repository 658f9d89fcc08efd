"""BLiMP: sentences in which one word, the cue, decides the form of another, the target.

In: a folder with agreement paradigms of BLiMP (Warstadt et al. 2020, "BLiMP: The Benchmark of
Linguistic Minimal Pairs for English", TACL) as <paradigm>.jsonl. Out: `BlimpItem`s, the acceptable
sentence with contractions expanded, its target, the foil (what the unacceptable sentence has in its
place) and the cue; and what cannot be used, with reasons.

The cue follows from how each paradigm was built, or, if asked for, from a dependency parse. The
published text study (Mohebbi et al. 2023) took five paradigms, `PUBLISHED`: in its determiner
paradigms (those ending in 2) the determiner is the target and the noun the cue; in their twins that
end in 1 it is the other way round.

Where the cue is in a sentence of BLiMP: by how its paradigm was built, or by a dependency parse.

In: the words of an acceptable sentence, the index of its target, and what kind of word the cue is
(the values of `PARADIGMS`). Out: the indices of the cue's words, none if there is none; and the
number of the target.

The two ways differ in "A lot of cashiers have": by construction the cue is the noun that agrees,
"cashiers"; a parse says "lot". Of an antecedent all words are the cue, as the first mention of the
published study's coreference.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from ...errors import InputError, MissingExtraError
from ...files.json_files import parse_json
from ...files.text_files import read_text
from ...inputs.clips.corpus_row import RejectedRow
from ...inputs.sentences.sentence import Sentence

_DEMONSTRATIVES = {"this": "singular", "that": "singular", "these": "plural", "those": "plural"}
_DETERMINERS = {*_DEMONSTRATIVES, *"a an the some all most many every each no few several".split()}
_SINGULAR_DETERMINERS = {"this", "that", "a", "an", "every", "each"}
_VERB_NUMBERS = {"is": "singular", "was": "singular", "has": "singular", "does": "singular"}
_VERB_NUMBERS |= {"are": "plural", "were": "plural", "have": "plural", "do": "plural"}
_SUBJECT_RELATIONS = ("nsubj", "nsubjpass", "nsubj:pass", "csubj")


def find_cue_by_construction(cue_kind: str, words: list[str], target: int) -> tuple[int, ...]:
    """Indices of the cue's words.

    Examples
    --------
    >>> find_cue_by_construction("head of the subject", "A niece of most senators has left .".split(), 5)
    (1,)
    >>> find_cue_by_construction("antecedent", "A lot of girls cure themselves .".split(), 5)
    (0, 1, 2, 3)
    """
    lowered_words = [word.lower() for word in words]
    if (
        cue_kind == "determiner"
    ):  # this (good) sketch: there may be another demonstrative in the subject
        return tuple([i for i in range(target) if lowered_words[i] in _DEMONSTRATIVES][-1:])
    if cue_kind == "noun":  # the object ends the sentence, compounds have their head last
        return tuple([i for i in range(target + 1, len(words)) if words[i][0].isalnum()][-1:])
    if (
        cue_kind == "head of the subject"
    ):  # A niece of most senators has: the noun before "of" or "about"
        return tuple([i - 1 for i in range(1, target) if lowered_words[i] in ("of", "about")][:1])
    if cue_kind == "subject":  # A lot of cashiers impress: the noun before the verb
        return (target - 1,) if target else ()
    noun_index = (
        3
        if lowered_words[:3] == ["a", "lot", "of"]
        else 1
        if lowered_words[0] in _DETERMINERS
        else 0
    )
    stop = noun_index + 1
    while stop < target and words[stop][0].isupper():  # Harvard University
        stop += 1
    return tuple(range(stop)) if stop <= target else ()


def find_cue_by_dependency(
    cue_kind: str, text: str, target: int, parse: Callable[[str], Any]
) -> tuple[int, ...]:
    """Indices of the cue's words from a parse: the determiner's head, the noun's determiner, the
    verb's subject.

    Parameters
    ----------
    parse : callable
        Gives the tokens of a text, with spaCy's attributes i, idx, dep_ and head.
    """
    words = Sentence(text).words
    tokens = list(parse(text))
    word_index_by_token = {
        token.i: next((i for i, word in enumerate(words) if token.idx < word.stop), len(words) - 1)
        for token in tokens
    }
    target_token = next((token for token in tokens if word_index_by_token[token.i] == target), None)
    if target_token is None:  # a token of the parse may take in two words
        return ()
    if cue_kind == "noun":
        cue_tokens = [target_token.head] if target_token.dep_ == "det" else []
    elif cue_kind == "determiner":
        cue_tokens = [
            token for token in tokens if token.head.i == target_token.i and token.dep_ == "det"
        ]
    else:
        governors = {target_token.i, target_token.head.i}
        if cue_kind == "antecedent":  # the reflexive may hang on a preposition of the verb
            governors.add(target_token.head.head.i)
        cue_tokens = [
            token
            for token in tokens
            if token.dep_ in _SUBJECT_RELATIONS
            and token.head.i in governors
            and word_index_by_token[token.i] < target
        ][:1]
        if cue_kind == "antecedent" and cue_tokens:
            head = cue_tokens[0].i
            cue_tokens = [
                token
                for token in tokens
                if head in (token.i, *_list_ancestors(token))
                and word_index_by_token[token.i] < target
            ]
    return tuple(dict.fromkeys(word_index_by_token[token.i] for token in cue_tokens))


def _list_ancestors(token: Any) -> list[int]:
    """Indices of the token's head, that one's head, ... up to the root, which is its own head."""
    ancestor_indices = []
    while token.head.i != token.i:
        token = token.head
        ancestor_indices.append(token.i)
    return ancestor_indices


def target_number(cue_kind: str, words: list[str], target: int, foil: str) -> str:
    """Number of the target, "singular" or "plural"."""
    lowered_words = [word.lower() for word in words]
    form = lowered_words[target]
    if cue_kind == "antecedent":
        return "plural" if form == "themselves" else "singular"
    if cue_kind == "noun":
        return _DEMONSTRATIVES.get(form, "singular")
    if cue_kind == "determiner":
        numbers = [
            _DEMONSTRATIVES[word] for word in lowered_words[:target] if word in _DEMONSTRATIVES
        ]
        return numbers[-1] if numbers else "singular" if len(form) < len(foil) else "plural"
    return _VERB_NUMBERS.get(form) or (
        "singular" if len(form) > len(foil) else "plural"
    )  # a regular verb: the one with -s


def is_plural_subject(subject: list[str]) -> bool:
    """Whether a subject with a determiner has a noun in -s: "those drivers", "a lot of
    pedestrians", "the Clintons"."""
    subject = [word.lower() for word in subject]
    is_quantified = (
        subject[:3] == ["a", "lot", "of"] or subject[0] in _DETERMINERS - _SINGULAR_DETERMINERS
    )
    return (
        is_quantified
        and len(subject) > 1
        and subject[-1].endswith("s")
        and not subject[-1].endswith("ss")
    )


def load_spacy_pipeline(model: str = "en_core_web_sm") -> Callable[[str], Any]:
    """Return a spaCy pipeline, for `read_blimp(parse=...)`.

    Raises
    ------
    MissingExtraError
        If spaCy is not installed.
    InputError
        If the pipeline is not there.
    """
    try:
        import spacy
    except ImportError as error:
        raise MissingExtraError("spacy", "spacy", "finding cues by dependency") from error
    try:
        return spacy.load(model)
    except OSError as error:
        raise InputError(
            f"expected the spaCy pipeline {model!r}: python -m spacy download {model} ({error})"
        ) from error


# What is the cue: by construction, and which dependency says the same.
PARADIGMS = {
    "anaphor_number_agreement": "antecedent",
    "determiner_noun_agreement_1": "determiner",
    "determiner_noun_agreement_2": "noun",
    "determiner_noun_agreement_with_adjective_1": "determiner",
    "determiner_noun_agreement_with_adj_2": "noun",
    "distractor_agreement_relational_noun": "head of the subject",
    "regular_plural_subject_verb_agreement_1": "subject",
}
PUBLISHED = (
    "anaphor_number_agreement",
    "determiner_noun_agreement_2",
    "determiner_noun_agreement_with_adj_2",
    "distractor_agreement_relational_noun",
    "regular_plural_subject_verb_agreement_1",
)

_CONTRACTIONS = (
    (re.compile(r"\b(c)an't\b", re.IGNORECASE), r"\1annot"),
    (re.compile(r"\b(w)on't\b", re.IGNORECASE), r"\1ill not"),
    (re.compile(r"\b(sha)n't\b", re.IGNORECASE), r"\1ll not"),
    (re.compile(r"\b(\w+)n't\b", re.IGNORECASE), r"\1 not"),
)


@dataclass(frozen=True)
class BlimpItem:
    """One minimal pair.

    Parameters
    ----------
    name : str
        Paradigm and number of the pair.
    paradigm : str
    text : str
        The acceptable sentence, contractions expanded.
    target : int
        Index of the word that the two sentences differ in, among the words of `Sentence(text)`.
    foil : str
        What the unacceptable sentence has in its place.
    cue : tuple of int
        Indices of the words that decide between target and foil; the last is the head. More than
        one only for an antecedent of several words ("Most ladies"), which is a cue as a whole.
    number : {"singular", "plural"}
        Of the target.
    """

    name: str
    paradigm: str
    text: str
    target: int
    foil: str
    cue: tuple[int, ...]
    number: str

    @property
    def form(self) -> str:
        """The target as it is written."""
        return Sentence(self.text).words[self.target].text

    @property
    def attractors(self) -> tuple[int, ...]:
        """Indices of words of the other number that could be mistaken for the cue, where the
        paradigm has them by construction.

        Those are the nouns behind "of" or "about" in distractor_agreement_relational_noun, right
        before the verb. Other paradigms have none that follows from how they were built.
        """
        previous_index = self.target - 1
        return (
            (previous_index,)
            if PARADIGMS[self.paradigm] == "head of the subject" and previous_index not in self.cue
            else ()
        )

    def sentence(self, *, masked: bool) -> Sentence:
        """Return the sentence for `speechmix.mix`, with "<mask>" in place of the target or with the
        target itself."""
        text = self.text
        if masked:
            word = Sentence(text).words[self.target]
            text = f"{text[: word.start]}<mask>{text[word.stop :]}"
        meta = {"paradigm": self.paradigm, "number": self.number}
        foil = None if masked else self.foil
        return Sentence(
            text, cue=self.cue[-1], target=self.target, foil=foil, name=self.name, meta=meta
        )


def read_blimp(
    folder: str | PathLike[str],
    *,
    paradigms: Sequence[str] | None = None,
    parse: Callable[[str], Any] | None = None,
) -> tuple[list[BlimpItem], list[RejectedRow]]:
    """Read the paradigms in a folder.

    Parameters
    ----------
    folder : path
        Holds <paradigm>.jsonl files as BLiMP distributes them.
    paradigms : sequence of str, optional
        Keys of `PARADIGMS`; by default those the folder has.
    parse : callable, optional
        Gives a text's dependencies, as `speechmix.extensions.agreement.blimp.load_spacy_pipeline` does;
        without it the cue follows from the paradigm's construction.

    Returns
    -------
    items : list of BlimpItem
        In the order of the files.
    rejected : list of RejectedRow
        Pairs that cannot be used: not one word that differs, no cue found, or the two sentences
        exchanged by mistake ("Those drivers disgusts Dan." is given as acceptable; 10 of the 1,000
        pairs of the regular plural paradigm).

    Raises
    ------
    InputError
        If a paradigm is unknown or has no file, or a file is not BLiMP's.

    Examples
    --------
    >>> import json, tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> pair = {"sentence_good": "Most ladies haven't left.", "sentence_bad": "Most ladies hasn't left.", "pairID": "7"}
    >>> _ = (folder / "regular_plural_subject_verb_agreement_1.jsonl").write_text(json.dumps(pair))
    >>> items, rejected = read_blimp(folder)
    >>> items[0].text, items[0].target, items[0].foil, items[0].cue, items[0].number
    ('Most ladies have not left.', 2, 'has', (1,), 'plural')
    """
    folder = Path(folder)
    paradigms = list(
        paradigms or (name for name in PARADIGMS if (folder / f"{name}.jsonl").is_file())
    )
    unknown_paradigms = [name for name in paradigms if name not in PARADIGMS]
    if unknown_paradigms or not paradigms:
        raise InputError(
            f"{folder}: expected one or more of "
            f"{', '.join(f'{name}.jsonl' for name in PARADIGMS)}, found "
            f"{', '.join(unknown_paradigms) or 'none'}: get them from github.com/alexwarstadt/blimp (data "
            "folder)"
        )
    items: list[BlimpItem] = []
    rejected: list[RejectedRow] = []
    for paradigm in paradigms:
        for name, good, bad in _read_pairs(folder / f"{paradigm}.jsonl", paradigm):
            item = _make_item(name, paradigm, good, bad, parse)
            if isinstance(item, BlimpItem):
                items.append(item)
            else:
                rejected.append(item)
    return items, rejected


def _read_pairs(path: Path, paradigm: str) -> Iterator[tuple[str, str, str]]:
    """Name, acceptable and unacceptable sentence of each line, contractions expanded."""
    if not path.is_file():
        raise InputError(
            f"{path}: no such file; get it from github.com/alexwarstadt/blimp (data folder)"
        )
    for line_index, line in enumerate(read_text(path).split("\n")):
        if not line.strip():
            continue
        where = f"{path}, line {line_index + 1}"
        pair = parse_json(line, where=where)
        sentences = (
            [pair.get(key) for key in ("sentence_good", "sentence_bad")]
            if isinstance(pair, dict)
            else []
        )
        good_and_bad = [sentence for sentence in sentences if isinstance(sentence, str)]
        if len(good_and_bad) != 2:
            raise InputError(
                f"{where}: expected a JSON object with sentence_good and sentence_bad, found "
                f"{line[:200]!r}"
            )
        good, bad = map(expand_contractions, good_and_bad)
        yield f"{paradigm}-{pair.get('pairID', line_index)}", good, bad


def expand_contractions(text: str) -> str:
    """Write negations out; a possessive stays as it is.

    Examples
    --------
    >>> expand_contractions("Lisa's cats can't run and weren't fed.")
    "Lisa's cats cannot run and were not fed."
    """
    for pattern, replacement in _CONTRACTIONS:
        text = pattern.sub(replacement, text)
    return text


def _make_item(
    name: str, paradigm: str, good: str, bad: str, parse: Callable[[str], Any] | None
) -> BlimpItem | RejectedRow:
    words, foil_words = ([word.text for word in Sentence(text).words] for text in (good, bad))
    differing_indices = [
        i for i, (a, b) in enumerate(zip(words, foil_words, strict=False)) if a != b
    ]
    if len(words) != len(foil_words) or len(differing_indices) != 1:
        return RejectedRow(
            name,
            "not one word differs",
            f"{good!r} and {bad!r} differ in more or less than one word",
        )
    target = differing_indices[0]
    cue_kind = PARADIGMS[paradigm]
    cue = (
        find_cue_by_dependency(cue_kind, good, target, parse)
        if parse
        else find_cue_by_construction(cue_kind, words, target)
    )
    if not cue or target in cue:
        return RejectedRow(name, "no cue found", f"no {cue_kind} for {words[target]!r} in {good!r}")
    number = target_number(cue_kind, words, target, foil_words[target])
    if cue_kind == "subject" and number == "singular" and is_plural_subject(words[:target]):
        return RejectedRow(
            name,
            "mistake in BLiMP",
            f"{good!r} is given as the acceptable sentence, {bad!r} as the other",
        )
    return BlimpItem(name, paradigm, good, target, foil_words[target], cue, number)
