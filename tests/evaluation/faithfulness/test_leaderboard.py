"""The leaderboard: who wins on made-up numbers, by hand; and a measure that knows nothing is not
named winner."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest

from speechmix.errors import InputError
from speechmix.evaluation.statistics.intervals import corrected_p
from speechmix.extensions.faithfulness import leaderboard as boards
from speechmix.extensions.faithfulness.evaluate import choose_best_layer
from speechmix.extensions.faithfulness.leaderboard import describe_leaderboard
from speechmix.extensions.faithfulness.word_scores import LAYER_ROW


def values_of(
    rows: dict[tuple[str, str], np.ndarray], metric: str = "spearman", per_group: int = 1
) -> pd.DataFrame:
    """Numbers of items by (measure, aggregation), `per_group` items of a group in a row."""
    parts = []
    for (measure, aggregation), numbers in rows.items():
        part = pd.DataFrame({"value": numbers, "item": [f"i{i}" for i in range(len(numbers))]})
        part["group"] = [f"g{i // per_group:02d}" for i in range(len(numbers))]
        parts.append(part.assign(measure=measure, aggregation=aggregation))
    shared = {
        "stack": "encoder",
        "perturbation": "mute",
        "metric": metric,
        "words": 3,
        "layer": None,
        "chance": 0.0,
    }
    return pd.concat(parts, ignore_index=True).assign(**shared)[boards.VALUE_COLUMNS]


def baselines(generator: np.random.Generator, count: int) -> dict[tuple[str, str], np.ndarray]:
    names = [("random", ""), ("length", ""), ("position", "")]
    return {name: generator.uniform(-1, 1, count) for name in names}


def test_a_measure_that_is_better_is_named_with_its_numbers():
    generator = np.random.default_rng(0)
    rows = baselines(generator, 20) | {("good", "mean"): generator.uniform(0.8, 1, 20)}
    rows |= {("bad", "mean"): generator.uniform(-1, 0, 20), ("oracle", ""): np.ones(20)}
    values = values_of(rows)
    board = boards.leaderboard(values, perturbation="mute", metric="spearman")
    assert board["measure"].tolist()[:2] == ["oracle", "good"]
    good = board[board["measure"] == "good"].iloc[0]
    assert good["value"] == pytest.approx(rows["good", "mean"].mean())
    assert good["over_length"] == pytest.approx((rows["good", "mean"] - rows["length", ""]).mean())
    assert good["better"]
    assert good["p"] == max(good[["p_random", "p_length", "p_position"]])
    assert not board[board["measure"] == "bad"].iloc[0]["better"]
    said = describe_leaderboard(board, perturbation="mute", metric="spearman")
    assert said.startswith(
        "With mute as reference (spearman, 20 clips in 20 groups), the best row is good (encoder, "
        "mean) with 0.9"
    )
    assert "corrected for all 2 rows" in said


def test_small_numbers_win_where_they_are_good():
    generator = np.random.default_rng(1)
    rows = baselines(generator, 20) | {("good", "mean"): generator.uniform(-1.2, -1, 20)}
    board = boards.leaderboard(
        values_of(rows, "sufficiency"), perturbation="mute", metric="sufficiency"
    )
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
    board = boards.leaderboard(values_of(rows), perturbation="mute", metric="spearman")
    said = describe_leaderboard(board, perturbation="mute", metric="spearman")
    assert "none of 1 rows is significantly better than the order by length." in said


def board_of(values: pd.DataFrame) -> pd.DataFrame:
    return boards.leaderboard(values, perturbation="mute", metric=values["metric"].iloc[0])


def test_with_few_groups_nothing_is_compared_and_the_sentence_says_how_many_are_needed():
    generator = np.random.default_rng(3)
    rows = baselines(generator, 8) | {("good", "mean"): generator.uniform(0.9, 1, 8)}
    board = board_of(values_of(rows, per_group=2))
    good = board.set_index("measure").loc["good"]
    assert (good["groups"], good["note"], good["better"]) == (4, "too few groups", False)
    assert np.isnan(good[["low", "high", "p"]].astype(float)).all()
    said = describe_leaderboard(board, perturbation="mute", metric="spearman")
    assert said.startswith(
        "With mute as reference (spearman, 8 clips in 4 groups), no measure can be compared: that "
        "needs 8 groups"
    )


def study_with_a_perfect_measure(seed: int, count: int = 20) -> dict[tuple[str, str], np.ndarray]:
    generator = np.random.default_rng(seed)
    rows = baselines(generator, count) | {("random", ""): generator.normal(0, 0.15, count)}
    rows |= {(f"guess {i}", "mean"): generator.uniform(-1, 1, count) for i in range(6)}
    return rows | {("perfect", "mean"): np.ones(count)}


@pytest.mark.parametrize("seeds", [5, pytest.param(15, marks=pytest.mark.long)])
def test_a_row_that_only_two_groups_have_silences_nobody(seeds):
    named = 0
    for seed in range(seeds):
        rows = study_with_a_perfect_measure(seed)
        without = board_of(values_of(rows))
        two = np.full(20, np.nan)
        two[[3, 11]] = (0.9, 0.8)
        board = board_of(values_of(rows | {("rare", "mean"): two}))
        named += board["measure"].iloc[0] == "perfect" and bool(board["better"].iloc[0])
        last = board.iloc[-1]
        assert (last["measure"], last["note"], last["groups"]) == ("rare", "too few groups", 2)
        pd.testing.assert_frame_equal(board.iloc[:-1], without)
        assert "fewer than 8 groups have a number: rare (encoder, mean)." in describe_leaderboard(
            board, perturbation="mute", metric="spearman"
        )
    assert named == seeds


def test_a_row_with_just_enough_groups_silences_nobody_either():
    rows = study_with_a_perfect_measure(1)
    eight = np.where(np.arange(20) < 8, rows["guess 1", "mean"], np.nan)
    board = board_of(values_of(rows | {("fewer", "mean"): eight})).set_index("measure")
    assert board.loc["perfect", "better"]
    assert board.loc["fewer", "note"] == ""


def test_order_of_rows_doubled_clips_and_names_of_measures_change_nothing():
    rows = study_with_a_perfect_measure(2, count=30) | {
        ("good", "mean"): np.random.default_rng(9).uniform(0, 1, 30)
    }
    values = values_of(rows, per_group=2)
    layers = [
        values_of(
            {("m", LAYER_ROW): np.random.default_rng(layer).normal(0.1, 1, 30)}, per_group=2
        ).assign(layer=layer)
        for layer in range(3)
    ]
    values = pd.concat([values, *layers], ignore_index=True)
    board = board_of(choose_best_layer(values))
    shuffled = values.sample(frac=1, random_state=0)
    pd.testing.assert_frame_equal(board_of(choose_best_layer(shuffled)), board)
    doubled = values[values["group"].isin(["g03", "g08"])]
    doubled = doubled.assign(item=doubled["item"] + " (2)")
    more = board_of(
        choose_best_layer(
            pd.concat([values, doubled, doubled.assign(item=doubled["item"] + " (3)")])
        )
    )
    pd.testing.assert_frame_equal(more.drop(columns="clips"), board.drop(columns="clips"))
    renamed = values.assign(
        measure=values["measure"].replace({"perfect": "a", "good": "zz", "guess 2": "b"})
    )
    expected = board.assign(
        measure=board["measure"].replace({"perfect": "a", "good": "zz", "guess 2": "b"})
    )
    pd.testing.assert_frame_equal(board_of(choose_best_layer(renamed)), expected)


@pytest.mark.parametrize("count", [10, pytest.param(30, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    ("values", "chance"), [((-1, -0.5, -0.5, 0.5, 0.5, 1), 0), ((0, 0, 1), 1 / 3)]
)
def test_measures_that_know_nothing_are_not_named_winners(values, chance, count):
    generator = np.random.default_rng(4)
    named, runs = 0, 60
    for _ in range(runs):
        rows = baselines(generator, count) | {("random", ""): np.full(count, chance)}
        guesses = generator.choice(values, (8, count))
        named += bool(
            (
                np.max([corrected_p(guesses - baseline) for baseline in rows.values()], axis=0)
                < 0.05
            ).any()
        )
    assert named <= 0.05 * runs


@pytest.mark.parametrize(
    ("count", "share"), [(12, 0.95), pytest.param(20, 1.0, marks=pytest.mark.long)]
)
def test_a_perfect_measure_is_nearly_always_named_from_twelve_groups_on(count, share):
    better = [
        board_of(values_of(study_with_a_perfect_measure(seed, count))).iloc[0] for seed in range(20)
    ]
    assert np.mean([row["measure"] == "perfect" and row["better"] for row in better]) >= share


def test_p_is_the_smallest_p_of_all_rows_by_its_definition():
    differences = np.random.default_rng(6).normal(0.4, 1, (3, 6))
    differences[1, 4:] = np.nan
    flips = np.array(list(itertools.product((1, -1), repeat=6)))
    t = np.array(
        [
            [
                _t_of(flip[known] * row[known])
                for row in differences
                if (known := np.isfinite(row)).any()
            ]
            for flip in flips
        ]
    )
    p = (t[:, None] >= t[None] - 1e-9).mean(axis=0)  # of each row alone, with each set of signs
    expected = (p.min(axis=1)[:, None] <= p[0] + 1e-9).mean(axis=0)
    assert corrected_p(differences) == pytest.approx(expected)


def _t_of(values: np.ndarray) -> float:
    return values.mean() / values.std(ddof=1) * np.sqrt(len(values))


def test_p_does_not_depend_on_the_unit():
    differences = np.random.default_rng(7).normal(0.4, 1, (4, 15))
    assert corrected_p(1e-9 * differences) == pytest.approx(corrected_p(differences))


def test_one_row_is_tested_as_by_all_sign_flips():
    differences = np.array([0.4, 0.1, -0.2, 0.5, 0.3])

    def t(values):
        return values.mean() / values.std(ddof=1)

    flips = [t(np.array(signs) * differences) for signs in itertools.product((1, -1), repeat=5)]
    expected = np.mean(np.array(flips) >= t(differences) - 1e-9)
    assert corrected_p(differences[None])[0] == pytest.approx(expected)
    assert np.isnan(corrected_p(np.full((1, 5), np.nan))).all()


def test_groups_that_miss_a_row_are_left_out_of_it_alone():
    generator = np.random.default_rng(5)
    full = generator.normal(0.3, 1, (1, 8))
    short = full.copy()
    short[0, 6:] = np.nan
    assert corrected_p(short)[0] == pytest.approx(corrected_p(full[:, :6])[0])


def test_the_best_layer_is_chosen_on_the_other_half():
    numbers = {
        0: [1.0, 0.0, 1.0, 0.0],
        1: [0.0, 0.9, 0.0, 0.9],
    }  # layer 0 is best for even groups, 1 for odd ones
    parts = [
        values_of({("m", LAYER_ROW): np.array(of_layer)}).assign(layer=layer)
        for layer, of_layer in numbers.items()
    ]
    best = choose_best_layer(
        pd.concat([*parts, values_of({("m", "mean"): np.ones(4)})], ignore_index=True)
    )
    assert set(best["aggregation"]) == {"mean", "best layer"}
    chosen = best[best["aggregation"] == "best layer"].set_index("group").sort_index()
    assert chosen["layer"].tolist() == [1, 0, 1, 0]
    assert chosen["value"].tolist() == [0, 0, 0, 0]


def test_a_group_with_many_clips_counts_once_in_the_choice_of_a_layer():
    numbers = {0: [1.0, 0.0, 0.0, 0.0], 1: [0.0, 0.5, 0.5, 0.5]}
    parts = [
        values_of({("m", LAYER_ROW): np.array(of_layer)}).assign(layer=layer)
        for layer, of_layer in numbers.items()
    ]
    values = pd.concat(parts, ignore_index=True)
    many = pd.concat(
        [values, *(values[values["group"] == "g00"].assign(item=f"i0 ({n})") for n in range(9))]
    )
    layers = [
        choose_best_layer(table).groupby("group")["layer"].first().to_dict()
        for table in (values, many)
    ]
    assert layers[0] == layers[1]
    assert choose_best_layer(values[values["group"] == "g00"]).empty  # no other half


def test_an_unknown_judge_is_refused_with_those_there_are():
    with pytest.raises(
        InputError, match=r"nothing by 'jury' and 'spearman'; there is \('mute', 'spearman'\)"
    ):
        boards.leaderboard(
            values_of({("m", "mean"): np.ones(4)}), perturbation="jury", metric="spearman"
        )
