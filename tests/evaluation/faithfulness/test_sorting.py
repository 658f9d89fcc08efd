"""Measures of a real trained model whose task is known: one that sorts digits (skipped where its
weights are not)."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmarks import sorting as study
from tests.models.sorting_model import DIGITS, gpt_nano, sorting


@pytest.fixture(scope="module")
def model(shared_folder):
    return gpt_nano(shared_folder / "data" / "weights" / "gpt_nano_sort")[0]


@pytest.fixture(scope="module")
def shared_folder():
    from tests.conftest import SHARED

    if not (SHARED / "data" / "weights" / "gpt_nano_sort").is_dir():
        pytest.skip("no weights of gpt_nano_sort beside the project")
    return SHARED


@pytest.fixture(scope="module")
def table(model):
    measures = ("value_zeroing", "attention", "alti", "random")
    return study.table_of(model, step=83, measures=measures, places=(0, 3, 5))


def mean_of(table, column: str, measure: str, way: str) -> float:
    return table.loc[(table["measure"] == measure) & (table["way"] == way), column].mean()


def test_drops_are_one_forward_pass_for_each_exchanged_digit(model):
    inputs, solutions = sorting(97)
    for ids, solution in zip(inputs[1:3], solutions[1:3], strict=True):
        for place in (0, 4):

            def probability(changed, place=place, digit=int(solution[place])):
                with torch.no_grad():
                    logits = model.module(torch.tensor(changed[None])).logits[0, DIGITS - 1 + place]
                return logits.double().softmax(-1)[digit].item()

            expected = []
            for position in range(DIGITS):
                changed = [
                    np.where(np.arange(len(ids)) == position, other, ids) for other in range(3)
                ]
                lost = [
                    probability(ids) - probability(c)
                    for c in changed
                    if c[position] != ids[position]
                ]
                expected.append(np.mean(lost))
            np.testing.assert_allclose(
                study.drops_of(model, ids, place, int(solution[place])), expected, atol=1e-5
            )


def test_value_zeroing_points_to_the_digit_that_is_written(table):
    """As the page says: in layer 0 most of the row, where an even row has a third; random scores do
    not."""
    even = table["even"].mean()
    assert mean_of(table, "share", "value_zeroing", "layer 0") > 0.6 > 1.5 * even
    assert mean_of(table, "share", "value_zeroing", "layer 0") > mean_of(
        table, "share", "attention", "layer 0"
    )
    assert abs(mean_of(table, "share", "random", "layer 0") - even) < 0.05


def test_the_digits_that_the_answer_needs_are_better_ranked_by_alti(table):
    """Equal digits are one question, what the answer needs another: it depends on how many smaller
    ones there are, too."""
    assert mean_of(table, "spearman", "alti", "layer 1") > 0.25
    assert (
        mean_of(table, "spearman", "alti", "rollout")
        > mean_of(table, "spearman", "value_zeroing", "rollout") + 0.2
    )
    assert abs(table.loc[table["measure"] == "random", "spearman"].mean()) < 0.15
    known = mean_of(table, "spearman", study.KNOWN, "")
    assert 0 < known < 0.9
