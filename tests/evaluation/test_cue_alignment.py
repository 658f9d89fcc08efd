"""Dot product and average precision on rows worked out by hand: ties, special tokens, sub-tokens,
heads, causal rows."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speechmix import MixingMap, Span
from speechmix.errors import InputError
from speechmix.evaluation.cue_need import average_precision, chance_level, dot_product
from speechmix.evaluation.statistics.intervals import mean_interval
from speechmix.extensions.agreement.cue_alignment import cue_alignment, mean_alignment

CUE = np.array([False, True, False, True])


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([0.1, 0.4, 0.2, 0.3], 1.0),  # both cue columns on top
        ([0.4, 0.3, 0.2, 0.1], (1 / 2 + 2 / 4) / 2),
        ([0.4, 0.1, 0.3, 0.2], (1 / 3 + 2 / 4) / 2),
        ([0.3, 0.3, 0.1, 0.2], (1 / 2 + 2 / 3) / 2),  # a tie counts against the cue
        ([0.0, 0.0, 0.0, 0.0], 1 / 2),  # nothing known: the share of cue columns
        ([1.0, 0.0, 1.0, 0.0], 2 / 4),
    ],
)
def test_average_precision_by_hand(scores, expected):
    assert average_precision(np.array(scores), CUE) == pytest.approx(expected)


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=12), st.randoms())
@settings(max_examples=200, deadline=None)
def test_average_precision_is_the_step_wise_area_whatever_the_order_of_columns(columns, shuffle):
    """Sum over thresholds of (gain in recall) x precision, the textbook (and scikit-learn's)
    definition."""
    if not any(cue for _, cue in columns):
        columns[0] = (columns[0][0], True)
    cues, area, before = sum(cue for _, cue in columns), 0.0, 0
    for threshold in sorted({score for score, _ in columns}, reverse=True):
        hits = sum(cue for score, cue in columns if score >= threshold)
        ranked = sum(score >= threshold for score, _ in columns)
        area += (hits - before) / cues * hits / ranked
        before = hits
    shuffled = shuffle.sample(columns, len(columns))
    for some in (columns, shuffled):
        scores, cue = np.array([s for s, _ in some], float), np.array([c for _, c in some])
        assert average_precision(scores, cue) == pytest.approx(area)
        assert average_precision(10 * scores + 3, cue) == pytest.approx(
            area
        )  # only the order matters


def test_rows_at_once_and_rows_that_are_not_finite():
    scores = np.array([[[0.1, 0.4, 0.2, 0.3]], [[0.25, 0.25, 0.25, 0.25]]])
    assert average_precision(scores, CUE).tolist() == [[1.0], [0.5]]
    assert dot_product(scores, CUE).tolist() == [[0.7], [0.5]]
    assert np.isnan(average_precision(np.array([np.nan, 1, 2, 3]), CUE))


@pytest.mark.parametrize(("columns", "cues"), [(5, 1), (6, 2), (4, 4), (1, 1)])
def test_chance_level_is_the_mean_over_all_orders(columns, cues):
    cue = np.arange(columns) < cues
    orders = [
        average_precision(np.array(order, float), cue)
        for order in itertools.permutations(range(columns))
    ]
    assert chance_level(cue)["average_precision"] == pytest.approx(np.mean(orders))
    assert chance_level(cue)["dot_product"] == pytest.approx(cues / columns)


def test_cues_that_do_not_fit_are_refused():
    with pytest.raises(InputError, match=r"found \(4,\) and \(3,\)"):
        dot_product(np.ones(4), CUE[:3])
    with pytest.raises(InputError, match="with 0 true"):
        average_precision(np.ones(4), np.zeros(4, bool))


# [CLS] most lad ##ies [MASK] left . [SEP]
TOKENS = (
    Span(0, 1, "[CLS]", "special"),
    Span(1, 2, "most", "token", 0),
    Span(2, 3, "lad", "token", 1),
    Span(3, 4, "##ies", "token", 1),
    Span(4, 5, "[MASK]", "token", 2),
    Span(5, 6, "left", "token", 3),
    Span(6, 7, "[SEP]", "special"),
)
ROW = np.array([3.0, 1.0, 2.0, 1.0, 0.0, 1.0, 2.0])


def encoder_map(row=ROW, layers=2):
    scores = np.ones((layers, 7, 7))
    scores[:, 4] = row
    return MixingMap(scores, TOKENS, TOKENS, "value_zeroing", "encoder", tuple(range(layers)))


def test_the_masks_row_and_all_sub_tokens_of_the_cue():
    found = cue_alignment(encoder_map(), cue=[1], target=2)
    assert found["layer"].tolist() == [0, 1]
    assert found["dot_product"].tolist() == pytest.approx([0.3, 0.3])
    assert found["average_precision"].tolist() == pytest.approx([(1 / 3 + 2 / 6) / 2] * 2)
    assert found["chance_dot_product"].tolist() == pytest.approx([2 / 7] * 2)


def test_options_leave_out_special_tokens_or_later_sub_tokens():
    without = cue_alignment(encoder_map(), cue=[1], target=2, drop=["special"])
    assert without["dot_product"][0] == pytest.approx(3 / 5)
    assert without["average_precision"][0] == pytest.approx((1 + 2 / 4) / 2)
    assert without["chance_dot_product"][0] == pytest.approx(2 / 5)
    first = cue_alignment(encoder_map(), cue=[1], target=2, subtokens="first")
    assert first["dot_product"][0] == pytest.approx(0.2)
    both = cue_alignment(encoder_map(), cue=[0, 1], target=2)
    assert both["dot_product"][0] == pytest.approx(0.4)


def test_raw_and_normalised_maps_give_the_same():
    pd.testing.assert_frame_equal(
        cue_alignment(encoder_map(), cue=[1], target=2),
        cue_alignment(encoder_map().normalized(), cue=[1], target=2),
    )


def test_heads_are_normalised_before_they_are_averaged():
    scores = np.stack(
        [encoder_map(layers=1).scores[0], 100 * encoder_map(ROW[::-1], layers=1).scores[0]]
    )[None]
    heads = MixingMap(scores, TOKENS, TOKENS, "attention", "encoder", (0,))
    expected = (0.3 + (ROW[::-1][2] + ROW[::-1][3]) / 10) / 2
    assert cue_alignment(heads, cue=[1], target=2)["dot_product"][0] == pytest.approx(expected)


def test_a_map_of_the_targets_row_alone_gives_the_same():
    whole = encoder_map()
    row = MixingMap(
        whole.scores[:, 4:5], TOKENS[4:5], TOKENS, "value_zeroing", "encoder", whole.layers
    )
    pd.testing.assert_frame_equal(
        cue_alignment(row, cue=[1], target=2), cue_alignment(whole, cue=[1], target=2)
    )


def causal_map():
    """Most lad ##ies have left: position 2 predicts "have", which position 3 holds."""
    words = [0, 1, 1, 2, 3]
    units = tuple(Span(i, i + 1, str(word), "token", word) for i, word in enumerate(words))
    scores = np.tril(np.arange(1.0, 6.0)[None, None, :] * np.ones((1, 5, 1)))
    return MixingMap(scores, units, units, "value_zeroing", "decoder", (0,))


def test_in_a_decoder_the_row_is_the_one_that_predicts_the_target_and_later_columns_do_not_count():
    found = cue_alignment(causal_map(), cue=[1], target=2)
    assert found["dot_product"][0] == pytest.approx((2 + 3) / (1 + 2 + 3))
    assert found["average_precision"][0] == 1.0
    assert found["chance_dot_product"][0] == pytest.approx(2 / 3)


def test_what_a_decoder_cannot_see_is_an_error():
    with pytest.raises(InputError, match="comes after word 1"):
        cue_alignment(causal_map(), cue=[3], target=1)
    with pytest.raises(InputError, match="nothing comes before"):
        cue_alignment(causal_map(), cue=[1], target=0)


def test_cue_and_target_that_are_not_in_the_map_are_named():
    with pytest.raises(InputError, match=r"cue word 9 is not among the sources .* lad\[1\]"):
        cue_alignment(encoder_map(), cue=[9], target=2)
    with pytest.raises(InputError, match="target word 9 has no row"):
        cue_alignment(encoder_map(), cue=[1], target=9)
    with pytest.raises(InputError, match="no cue is given"):
        cue_alignment(encoder_map(), cue=[], target=2)
    with pytest.raises(InputError, match="subtokens must be one of"):
        cue_alignment(encoder_map(), cue=[1], target=2, subtokens="last")


def test_means_are_over_items_and_seeds_of_a_twin_are_averaged_first():
    rows = []
    for name, trained, seeds in (("a", 0.2, (0.0, 0.2)), ("b", 0.4, (0.3,)), ("c", 0.6, (0.2,))):
        for init, values in (("trained", [trained]), ("random", seeds)):
            rows += [
                ("m", init, "encoder", "attention", 0, name, value, 1 - value, 0.25)
                for value in values
            ]
    columns = [
        "model",
        "init",
        "stack",
        "measure",
        "layer",
        "item",
        "dot_product",
        "average_precision",
    ]
    table = pd.DataFrame(rows, columns=[*columns, "chance_dot_product"])
    means = mean_alignment(table).set_index(["init", "metric"])
    assert means.loc[("trained", "dot_product"), "mean"] == pytest.approx(0.4)
    assert means.loc[("random", "dot_product"), "mean"] == pytest.approx((0.1 + 0.3 + 0.2) / 3)
    assert means.loc[("random", "average_precision"), "mean"] == pytest.approx(0.8)
    assert (means["items"] == 3).all()
    assert means.loc[("trained", "dot_product"), "chance"] == 0.25
    assert np.isnan(means.loc[("trained", "average_precision"), "chance"])
    assert means[["low", "high"]].isna().all(axis=None)  # of three items


def test_means_of_eight_items_have_an_interval():
    values = np.linspace(0.2, 0.6, 8)
    table = pd.DataFrame(
        {"item": [*"abcdefgh"], "layer": 0, "dot_product": values, "average_precision": 1 - values}
    )
    means = mean_alignment(table, by=["layer"]).set_index("metric")
    assert tuple(means.loc["dot_product", ["low", "high"]]) == pytest.approx(mean_interval(values))
    assert (means["low"] < means["mean"]).all()
    assert (means["mean"] < means["high"]).all()
    assert mean_alignment(table.head(7), by=["layer"])[["low", "high"]].isna().all(axis=None)


def test_means_of_the_wrong_table_say_what_is_missing():
    with pytest.raises(InputError, match=r"found 1 rows, and item, .* missing"):
        mean_alignment(pd.DataFrame({"layer": [0]}))
