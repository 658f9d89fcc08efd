"""The unified set and its halves: on items made for it, where copies and twins are known, and on
the real paradigms."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest

from speechmix.errors import InputError
from speechmix.extensions.agreement.blimp import PUBLISHED, BlimpItem, read_blimp
from speechmix.extensions.agreement.item_selection import build_unified_set, split_halves

SUBJECTS, DETERMINERS = "regular_plural_subject_verb_agreement_1", "determiner_noun_agreement_2"
DISTRACTORS = "distractor_agreement_relational_noun"


def subject(i, number="singular", who=None):
    form, foil = ("has", "have") if number == "singular" else ("have", "has")
    return BlimpItem(
        f"{SUBJECTS}-{i}", SUBJECTS, f"{who or f'Ann{i}'} {form} left.", 1, foil, (0,), number
    )


def twins(i):
    """Items of two paradigms with one acceptable sentence, as the determiner paradigms 1 and 2 may
    have."""
    text = f"Ann{i} sees this dog."
    return [
        BlimpItem(
            f"determiner_noun_agreement_1-{i}",
            "determiner_noun_agreement_1",
            text,
            3,
            "dogs",
            (2,),
            "singular",
        ),
        BlimpItem(f"{DETERMINERS}-{i}", DETERMINERS, text, 2, "these", (3,), "singular"),
    ]


def sentences(item):
    """All three, written independently of the package: words joined again."""
    words = item.text.lower().replace(".", " .").split()
    return {
        " ".join([*words[: item.target], form, *words[item.target + 1 :]])
        for form in (words[item.target], item.foil, "MASK")
    }


def crossing(train, test):
    return set().union(*map(sentences, train)) & set().union(*map(sentences, test))


MANY = [subject(i) for i in range(40)] + [subject(i, "plural") for i in range(40, 60)]
# Copies: the same sentence, in capitals, and with target and foil exchanged (the masked one is then
# the same).
COPIES = [subject(100 + i, who=f"ANN{i}") for i in range(15)]
EXCHANGED = [subject(200 + i, "plural", who=f"Ann{i}") for i in range(5, 10)]
TWINS = [item for i in range(21) for item in twins(i)]
ALL = [*MANY, *COPIES, *EXCHANGED, *TWINS]


def test_halves_share_no_sentence_and_hold_every_item_once():
    train, test = split_halves(ALL)
    assert sorted(item.name for item in (*train, *test)) == sorted(item.name for item in ALL)
    assert not crossing(train, test)
    assert abs(len(train) - len(test)) <= 6
    for part in (train, test):
        counts = Counter((item.paradigm, item.number) for item in part)
        assert counts[SUBJECTS, "plural"] in range(8, 18)
    shuffled = random.Random(3).sample(ALL, len(ALL))
    assert split_halves(shuffled)[0] == [
        item for item in shuffled if item in train
    ]  # whatever the order
    assert split_halves(ALL, seed=7)[0] != train
    alone, _ = split_halves([item for item in ALL if item.paradigm == SUBJECTS])
    assert alone == [
        item for item in train if item.paradigm == SUBJECTS
    ]  # whatever other paradigms there are


def test_a_plain_shuffle_would_have_let_sentences_cross():
    """What the test above would show if the claim were false."""
    shuffled = random.Random(0).sample(ALL, len(ALL))
    assert crossing(shuffled[: len(ALL) // 2], shuffled[len(ALL) // 2 :])


def test_the_unified_set_is_balanced_without_replacement_and_names_what_is_missing():
    unified, rejected = build_unified_set([*MANY, *TWINS], paradigms=[SUBJECTS, DETERMINERS])
    counts = Counter((item.paradigm, item.number) for item in unified)
    assert counts == {
        (SUBJECTS, "singular"): 20,
        (SUBJECTS, "plural"): 20,
        (DETERMINERS, "singular"): 21,
    }
    assert len({item.name for item in unified}) == len(unified)
    assert len(rejected) == 20
    assert {item.reason_kind for item in rejected} == {"not drawn for balance"}
    other, _ = build_unified_set([*MANY, *TWINS], paradigms=[SUBJECTS, DETERMINERS], seed=1)
    assert unified != other
    assert (
        unified
        == build_unified_set([*TWINS, *MANY], paradigms=[SUBJECTS, DETERMINERS])[0][21:]
        + unified[-21:]
    )
    with pytest.raises(
        InputError, match=f"found none of anaphor_number_agreement, .*{DISTRACTORS}"
    ):
        build_unified_set([*MANY, *TWINS])


def test_attractors_are_the_nouns_behind_of_and_about():
    item = BlimpItem(
        "x-0", DISTRACTORS, "A niece of most senators has left.", 5, "have", (1,), "singular"
    )
    assert item.attractors == (4,)
    parsed = BlimpItem(
        "x-1", DISTRACTORS, "A niece of most senators has left.", 5, "have", (4,), "singular"
    )
    assert parsed.attractors == ()  # a parse that takes it for the subject: it cannot be both
    assert MANY[0].attractors == ()


def test_on_the_real_paradigms(shared):
    items, _ = read_blimp(shared / "data" / "blimp")
    train, test = split_halves(items)
    assert (len(train), len(test)) == pytest.approx((2495, 2495), abs=6)
    assert not crossing(train, test)
    there = [name for name in PUBLISHED if any(item.paradigm == name for item in items)]
    unified, _ = build_unified_set(items, paradigms=there)
    numbers = Counter(item.number for item in unified if item.paradigm == SUBJECTS)
    assert numbers["singular"] == numbers["plural"] == 296
    of_other_number = [item for item in items if item.attractors]
    assert len(of_other_number) == 1000
    assert all(
        a < item.target and a not in item.cue
        for item, a in itertools.chain.from_iterable(
            ((i, a) for a in i.attractors) for i in of_other_number
        )
    )
