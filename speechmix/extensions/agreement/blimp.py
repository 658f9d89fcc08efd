"""BLiMP: sentences in which one word, the cue, decides the form of another, the target.

In: a folder with agreement paradigms of BLiMP (Warstadt et al. 2020, "BLiMP: The Benchmark of
Linguistic Minimal Pairs for English", TACL) as <paradigm>.jsonl. Out: `BlimpItem`s, the acceptable
sentence with contractions expanded, its target, the foil (what the unacceptable sentence has in its
place) and the cue; and what cannot be used, with reasons.

The cue follows from how each paradigm was built, or, if asked for, from a dependency parse. The
published text study (Mohebbi et al. 2023) took five paradigms, `PUBLISHED`: in its determiner
paradigms (those ending in 2) the determiner is the target and the noun the cue; in their twins that
end in 1 it is the other way round.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from ...errors import InputError
from ...files.json_files import parse_json
from ...files.text_files import read_text
from ...inputs.clips.corpus_row import RejectedRow
from ...inputs.sentences.sentence import Sentence
from .blimp_cues import (
    find_cue_by_construction,
    find_cue_by_dependency,
    is_plural_subject,
    target_number,
)

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
        Gives a text's dependencies, as `speechmix.extensions.agreement.blimp_cues.load_spacy_pipeline` does;
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
