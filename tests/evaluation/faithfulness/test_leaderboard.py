"""The leaderboard: who wins on made-up numbers, by hand; and a measure that knows nothing is not named winner."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest

from speechmix.errors import InputError
from speechmix.evaluation.faithfulness import leaderboard as boards
from speechmix.evaluation.faithfulness.words import LAYER


def values_of(rows: dict[tuple[str, str], np.ndarray], metric: str = "spearman", per_group: int = 1) -> pd.DataFrame:
    """Numbers of items by (measure, aggregation), `per_group` items of a group in a row."""
    parts = []
    for (measure, aggregation), numbers in rows.items():
        part = pd.DataFrame({"value": numbers, "item": [f"i{i}" for i in range(len(numbers))]})
        part["group"] = [f"g{i // per_group:02d}" for i in range(len(numbers))]
        parts.append(part.assign(measure=measure, aggregation=aggregation))
    shared = {"stack": "encoder", "judge": "silence", "metric": metric, "words": 3, "layer": None, "chance": 0.0}
    return pd.concat(parts, ignore_index=True).assign(**shared)[boards.VALUE_COLUMNS]


def baselines(generator: np.random.Generator, count: int) -> dict[tuple[str, str], np.ndarray]:
    names = [("random", ""), ("length", ""), ("position", "")]
    return {name: generator.uniform(-1, 1, count) for name in names}


def test_a_measure_that_is_better_is_named_with_its_numbers():
    generator = np.random.default_rng(0)
    rows = baselines(generator, 20) | {("good", "mean"): generator.uniform(0.8, 1, 20)}
    rows |= {("bad", "mean"): generator.uniform(-1, 0, 20), ("oracle", ""): np.ones(20)}
    values = values_of(rows)
    board = boards.leaderboard(values, judge="silence", metric="spearman")
    assert board["measure"].tolist()[:2] == ["oracle", "good"]
    good = board[board["measure"] == "good"].iloc[0]
    assert good["value"] == pytest.approx(rows["good", "mean"].mean())
    assert good["over_length"] == pytest.approx((rows["good", "mean"] - rows["length", ""]).mean())
    assert good["better"]
    assert good["p"] == max(good[["p_random", "p_length", "p_position"]])
    assert not board[board["measure"] == "bad"].iloc[0]["better"]
    said = boards.sentence(board, judge="silence", metric="spearman")
    assert said.startswith("By silence (spearman, 20 clips in 20 groups) good (encoder, mean) with 0.9")
    assert "corrected for all 2 ways" in said


def test_small_numbers_win_where_they_are_good():
    generator = np.random.default_rng(1)
    rows = baselines(generator, 20) | {("good", "mean"): generator.uniform(-1.2, -1, 20)}
    board = boards.leaderboard(values_of(rows, "sufficiency"), judge="silence", metric="sufficiency")
    assert board["measure"].iloc[0] == "good"
    assert board["better"].iloc[0]
    assert board["over_length"].iloc[0] > 0


def test_none_is_better_than_length_is_said():
    generator = np.random.default_rng(2)
    length = generator.uniform(0.6, 0.9, 20)
    rows = baselines(generator, 20) | {
        ("length", ""): length,
        ("slave", "mean"): length + generator.normal(0, 0.02, 20),
    }
    board = boards.leaderboard(values_of(rows), judge="silence", metric="spearman")
    said = boards.sentence(board, judge="silence", metric="spearman")
    assert "none of 1 ways to rank words is surely better than the order by length." in said


def test_few_groups_are_said_to_be_few():
    generator = np.random.default_rng(3)
    rows = baselines(generator, 8) | {("good", "mean"): generator.uniform(0.9, 1, 8)}
    board = boards.leaderboard(values_of(rows, per_group=2), judge="silence", metric="spearman")
    assert board["groups"].max() == 4
    assert "fewer than six groups" in boards.sentence(board, judge="silence", metric="spearman")


@pytest.mark.parametrize("count", [10, 30])
@pytest.mark.parametrize(("values", "chance"), [((-1, -0.5, -0.5, 0.5, 0.5, 1), 0), ((0, 0, 1), 1 / 3)])
def test_measures_that_know_nothing_are_not_named_winners(values, chance, count):
    generator = np.random.default_rng(4)
    named, runs = 0, 100
    for _ in range(runs):
        rows = baselines(generator, count) | {("random", ""): np.full(count, chance)}
        rows |= {(f"guess {i}", "mean"): generator.choice(values, count) for i in range(8)}
        differences = np.array([[rows[row] - rows[base] for row in rows if row[0] not in boards.BASELINES]
                                for base in list(rows)[:3]])  # fmt: skip
        p = np.max([boards.surely_above(over_one) for over_one in differences], axis=0)
        named += bool((p < 0.05).any())
    assert named <= 0.05 * runs


def test_one_row_is_tested_as_by_all_sign_flips():
    differences = np.array([0.4, 0.1, -0.2, 0.5, 0.3])

    def t(values):
        return values.mean() / values.std(ddof=1)

    flips = [t(np.array(signs) * differences) for signs in itertools.product((1, -1), repeat=5)]
    expected = np.mean(np.array(flips) >= t(differences) - 1e-9)
    assert boards.surely_above(differences[None])[0] == pytest.approx(expected)
    assert np.isnan(boards.surely_above(np.full((1, 5), np.nan))).all()


def test_groups_that_miss_a_row_are_left_out_of_it_alone():
    generator = np.random.default_rng(5)
    full = generator.normal(0.3, 1, (1, 8))
    short = full.copy()
    short[0, 6:] = np.nan
    assert boards.surely_above(short)[0] == pytest.approx(boards.surely_above(full[:, :6])[0])


def test_the_best_layer_is_chosen_on_the_other_half():
    numbers = {0: [1.0, 0.0, 1.0, 0.0], 1: [0.0, 0.9, 0.0, 0.9]}  # layer 0 is best for even groups, 1 for odd ones
    parts = [values_of({("m", LAYER): np.array(of_layer)}).assign(layer=layer) for layer, of_layer in numbers.items()]
    best = boards.with_best_layer(pd.concat([*parts, values_of({("m", "mean"): np.ones(4)})], ignore_index=True))
    assert set(best["aggregation"]) == {"mean", "best layer"}
    chosen = best[best["aggregation"] == "best layer"].set_index("group").sort_index()
    assert chosen["layer"].tolist() == [1, 0, 1, 0]
    assert chosen["value"].tolist() == [0, 0, 0, 0]


def test_an_unknown_judge_is_refused_with_those_there_are():
    with pytest.raises(InputError, match=r"nothing by 'jury' and 'spearman'; there is \('silence', 'spearman'\)"):
        boards.leaderboard(values_of({("m", "mean"): np.ones(4)}), judge="jury", metric="spearman")
