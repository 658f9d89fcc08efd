"""The published text study's set of BLiMP items, and its halves for training and test.

In: items of `read_blimp` that a model can be asked about. Out: the *unified set* of Mohebbi et al.
2023 (Quantifying Context Mixing in Transformers, EACL): five paradigms, with as many singular as
plural subjects in the paradigm that has twice as many of one; and two halves.

The published code draws the balance with replacement and splits without a seed, so that copies of
an item can be in both halves. Here both are drawn without replacement and from a seed, and no
sentence is in both halves: not the acceptable one, not the unacceptable one, not the one with the
mask. Words do occur in both, as they did there.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Sequence

from ...errors import InputError
from ...inputs.clips.corpus_row import RejectedRow
from ...inputs.sentences.sentence import Sentence
from .blimp import PUBLISHED, BlimpItem

SPLIT_SEED = 42  # of the published fine-tuning; that of the published split is not known
_BALANCED_PARADIGM = "regular_plural_subject_verb_agreement_1"


def build_unified_set(
    items: Iterable[BlimpItem], *, paradigms: Sequence[str] = PUBLISHED, seed: int = SPLIT_SEED
) -> tuple[list[BlimpItem], list[RejectedRow]]:
    """Put the paradigms together, the subject-verb one balanced by drawing from the number that has
    more.

    Parameters
    ----------
    items : iterable of BlimpItem
        Those that can be used, as `select_one_token_items` leaves them: what is drawn depends on them.
    paradigms : sequence of str
        Which; the published five by default.
    seed : int

    Returns
    -------
    unified : list of BlimpItem
        In the order of `items`.
    rejected : list of RejectedRow
        Items of these paradigms that were not drawn.

    Raises
    ------
    InputError
        If a paradigm has no item: the set would be another one.

    Examples
    --------
    >>> subjects = ["Ann has", "Bob has", "Dan has", "Dogs have"]
    >>> items = [BlimpItem(f"{_BALANCED_PARADIGM}-{i}", _BALANCED_PARADIGM, f"{subject} left.", 1, "", (0,),
    ...                    "plural" if "have" in subject else "singular") for i, subject in enumerate(subjects)]
    >>> unified, rejected = build_unified_set(items, paradigms=[_BALANCED_PARADIGM])
    >>> [item.number for item in unified], len(rejected)
    (['singular', 'plural'], 2)
    """
    items = [item for item in items if item.paradigm in paradigms]
    missing_paradigms = [
        name for name in paradigms if not any(item.paradigm == name for item in items)
    ]
    if missing_paradigms:
        raise InputError(
            f"expected usable items of {', '.join(paradigms)}; found none of {', '.join(missing_paradigms)}: "
            "get the files from "
            "github.com/alexwarstadt/blimp (data folder), or name other paradigms"
        )
    names_by_number = [
        [
            item.name
            for item in items
            if item.paradigm == _BALANCED_PARADIGM and (item.number == "plural") is is_plural
        ]
        for is_plural in (False, True)
    ]
    smaller_side, larger_side = sorted(names_by_number, key=len)
    undrawn_names = set(larger_side) - set(
        random.Random(f"{seed} balance").sample(larger_side, len(smaller_side))
    )
    reason = f"{len(larger_side)} of one number and {len(smaller_side)} of the other: as many of both are drawn"
    rejected = [
        RejectedRow(item.name, "not drawn for balance", reason)
        for item in items
        if item.name in undrawn_names
    ]
    return [item for item in items if item.name not in undrawn_names], rejected


def split_halves(
    items: Iterable[BlimpItem], *, seed: int = SPLIT_SEED
) -> tuple[list[BlimpItem], list[BlimpItem]]:
    """Part items into two halves that share no sentence, alike in paradigms and numbers.

    Items that have an acceptable, unacceptable or masked sentence in common (in whatever case) stay
    together. Which half a group goes to does not depend on the order of the items, nor (but for
    sentences in common) on other paradigms.

    Parameters
    ----------
    items : iterable of BlimpItem
        Before a model's tokenizer has its say, so that all models have the same halves.
    seed : int

    Returns
    -------
    train, test : list of BlimpItem
        In the order of `items`.

    Examples
    --------
    >>> name = "determiner_noun_agreement_1"
    >>> items = [BlimpItem(f"{name}-{i}", name, f"{subject} sees this dog.", 3, "dogs", (2,), "singular")
    ...          for i, subject in enumerate(["Ann", "Bob", "Dan", "ann"])]
    >>> train, test = split_halves(items)
    >>> len(train), len(test), {item.name[-1] for item in train} in ({"0", "3"}, {"1", "2"})
    (2, 2, True)
    """
    items = list(items)
    strata: dict[tuple[str, str], list[list[BlimpItem]]] = defaultdict(list)
    for group in _group_by_shared_sentence(items):
        strata[group[0].paradigm, group[0].number].append(group)
    train: set[str] = set()
    for stratum, groups in strata.items():
        generator = random.Random(f"{seed} {' '.join(stratum)}")
        groups.sort(key=lambda group: group[0].name)
        generator.shuffle(groups)
        train_surplus = generator.choice(
            [-1, 0]
        )  # who gets the odd one: items in train minus items in test
        for group in sorted(
            groups, key=len, reverse=True
        ):  # large ones first, so that single ones even out
            if train_surplus < 0:
                train.update(item.name for item in group)
            train_surplus += len(group) if train_surplus < 0 else -len(group)
    return [item for item in items if item.name in train], [
        item for item in items if item.name not in train
    ]


def item_sentences(item: BlimpItem) -> tuple[str, str, str]:
    """The acceptable sentence, the unacceptable one, and the one with the mask, in lower case."""
    word = Sentence(item.text).words[item.target]
    forms = (word.text, item.foil, "<mask>")
    good, bad, masked = (
        f"{item.text[: word.start]}{form}{item.text[word.stop :]}".lower() for form in forms
    )
    return good, bad, masked


def _group_by_shared_sentence(items: Sequence[BlimpItem]) -> list[list[BlimpItem]]:
    """Items connected by shared sentences, each group sorted by name."""
    group_by_sentence: dict[
        str, list[tuple[BlimpItem, tuple[str, str, str]]]
    ] = {}  # members with their sentences, by sentence
    for item in sorted(items, key=lambda item: item.name):
        merged_group = [(item, item_sentences(item))]
        for existing_group in {
            id(group): group for group in map(group_by_sentence.get, merged_group[0][1]) if group
        }.values():
            merged_group += existing_group
        for _, sentences in merged_group:
            group_by_sentence.update(dict.fromkeys(sentences, merged_group))
    groups = {id(group): group for group in group_by_sentence.values()}.values()
    return [sorted((item for item, _ in group), key=lambda item: item.name) for group in groups]
