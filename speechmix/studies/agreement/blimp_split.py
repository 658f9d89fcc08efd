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
from ...inputs.clips.rows import RejectedRow
from ...inputs.sentences.sentence import Sentence
from .blimp import PUBLISHED, BlimpItem

SEED = 42  # of the published fine-tuning; that of the published split is not known
_BALANCED = "regular_plural_subject_verb_agreement_1"


def unified_set(
    items: Iterable[BlimpItem], *, paradigms: Sequence[str] = PUBLISHED, seed: int = SEED
) -> tuple[list[BlimpItem], list[RejectedRow]]:
    """Put the paradigms together, the subject-verb one balanced by drawing from the number that has
    more.

    Parameters
    ----------
    items : iterable of BlimpItem
        Those that can be used, as `one_token_items` leaves them: what is drawn depends on them.
    paradigms : sequence of str
        Which; the published five by default.
    seed : int

    Returns
    -------
    unified : list of BlimpItem
        In the order of `items`.
    rejected : list of Rejected
        Items of these paradigms that were not drawn.

    Raises
    ------
    InputError
        If a paradigm has no item: the set would be another one.

    Examples
    --------
    >>> subjects = ["Ann has", "Bob has", "Dan has", "Dogs have"]
    >>> items = [BlimpItem(f"{_BALANCED}-{i}", _BALANCED, f"{subject} left.", 1, "", (0,),
    ...                    "plural" if "have" in subject else "singular") for i, subject in enumerate(subjects)]
    >>> unified, rejected = unified_set(items, paradigms=[_BALANCED])
    >>> [item.number for item in unified], len(rejected)
    (['singular', 'plural'], 2)
    """
    items = [item for item in items if item.paradigm in paradigms]
    missing = [name for name in paradigms if not any(item.paradigm == name for item in items)]
    if missing:
        raise InputError(
            f"expected usable items of {', '.join(paradigms)}; found none of {', '.join(missing)}: "
            "get the files from "
            "github.com/alexwarstadt/blimp (data folder), or name other paradigms"
        )
    sides = [
        [
            item.name
            for item in items
            if item.paradigm == _BALANCED and (item.number == "plural") is plural
        ]
        for plural in (False, True)
    ]
    fewer, more = sorted(sides, key=len)
    left = set(more) - set(random.Random(f"{seed} balance").sample(more, len(fewer)))
    reason = f"{len(more)} of one number and {len(fewer)} of the other: as many of both are drawn"
    rejected = [
        RejectedRow(item.name, "not drawn for balance", reason)
        for item in items
        if item.name in left
    ]
    return [item for item in items if item.name not in left], rejected


def split_halves(
    items: Iterable[BlimpItem], *, seed: int = SEED
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
    >>> items = [BlimpItem(f"{name}-{i}", name, f"{who} sees this dog.", 3, "dogs", (2,), "singular")
    ...          for i, who in enumerate(["Ann", "Bob", "Dan", "ann"])]
    >>> train, test = split_halves(items)
    >>> len(train), len(test), {item.name[-1] for item in train} in ({"0", "3"}, {"1", "2"})
    (2, 2, True)
    """
    items = list(items)
    strata: dict[tuple[str, str], list[list[BlimpItem]]] = defaultdict(list)
    for group in _groups(items):
        strata[group[0].paradigm, group[0].number].append(group)
    train: set[str] = set()
    for stratum, groups in strata.items():
        draw = random.Random(f"{seed} {' '.join(stratum)}")
        groups.sort(key=lambda group: group[0].name)
        draw.shuffle(groups)
        more = draw.choice([-1, 0])  # who gets the odd one: items in train minus items in test
        for group in sorted(
            groups, key=len, reverse=True
        ):  # large ones first, so that single ones even out
            if more < 0:
                train.update(item.name for item in group)
            more += len(group) if more < 0 else -len(group)
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


def _groups(items: Sequence[BlimpItem]) -> list[list[BlimpItem]]:
    """Items connected by shared sentences, each group sorted by name."""
    group_of: dict[
        str, list[tuple[BlimpItem, tuple[str, str, str]]]
    ] = {}  # members with their sentences, by sentence
    for item in sorted(items, key=lambda item: item.name):
        merged = [(item, item_sentences(item))]
        for former in {
            id(group): group for group in map(group_of.get, merged[0][1]) if group
        }.values():
            merged += former
        for _, sentences in merged:
            group_of.update(dict.fromkeys(sentences, merged))
    groups = {id(group): group for group in group_of.values()}.values()
    return [sorted((item for item, _ in group), key=lambda item: item.name) for group in groups]
