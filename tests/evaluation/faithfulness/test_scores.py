"""Agreement of scores with a perturbation: by hand, by brute force, and at the ends of the scale."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from speechmix.extensions.faithfulness.word_scores import (
    comprehensiveness,
    deletion,
    insertion,
    kendall,
    rank_metrics,
    rank_words,
    spearman,
    sufficiency,
    top_1,
)

DROPS = np.array([0.5, 3.0, -1.0, 1.0])


def test_the_judge_itself_gets_one_and_its_reverse_minus_one():
    same, reverse, by_rank = rank_metrics([DROPS, -DROPS, np.array([2.0, 9.0, 1.0, 3.0])], DROPS)
    assert same == pytest.approx({"top_1": 1, "spearman": 1, "kendall": 1})
    assert reverse == pytest.approx({"top_1": 0, "spearman": -1, "kendall": -1})
    assert by_rank == pytest.approx(same)


def test_correlations_are_those_of_their_definitions():
    generator = np.random.default_rng(0)
    for _ in range(20):
        scores, drops = (
            generator.permutation(6).astype(float),
            generator.permutation(6).astype(float),
        )
        squares = ((scores - drops) ** 2).sum()  # permutations of 0 to 5 are their own ranks
        assert spearman(scores, drops) == pytest.approx(1 - 6 * squares / (6 * (36 - 1)))
        pairs = list(itertools.combinations(range(6), 2))
        agreeing = sum(
            np.sign(scores[i] - scores[j]) == np.sign(drops[i] - drops[j]) for i, j in pairs
        )
        assert kendall(scores, drops) == pytest.approx((2 * agreeing - len(pairs)) / len(pairs))


def test_a_measure_without_an_order_gets_nothing_and_a_judge_without_one_judges_nothing():
    constant = np.ones(4)
    assert rank_metrics([constant], DROPS) == [{"top_1": 0.25, "spearman": 0.0, "kendall": 0.0}]
    assert all(np.isnan(value) for value in rank_metrics([DROPS], constant)[0].values())
    assert np.isnan(top_1(DROPS, np.array([1.0, np.nan, 0.0, 2.0])))


def test_random_orders_get_chance():
    generator = np.random.default_rng(0)
    numbers = rank_metrics([generator.random(4) for _ in range(2000)], DROPS)
    means = {name: np.mean([number[name] for number in numbers]) for name in numbers[0]}
    assert means == pytest.approx({"top_1": 0.25, "spearman": 0.0, "kendall": 0.0}, abs=0.05)


def test_areas_by_hand():
    removed, kept = np.array([0.9, 0.3, 0.2, 0.1]), np.array([0.1, 0.6, 0.8, 0.9])
    assert comprehensiveness(removed) == pytest.approx((0.6 + 0.7) / 2)
    assert sufficiency(kept) == pytest.approx((0.3 + 0.1) / 2)
    assert deletion(removed) == pytest.approx((0.45 + 0.3 + 0.2 + 0.05) / 3)
    assert insertion(kept) == pytest.approx((0.05 + 0.6 + 0.8 + 0.45) / 3)


def test_order_is_from_the_most_important():
    assert rank_words(DROPS) == [1, 3, 0, 2]
