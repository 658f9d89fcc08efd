"""Mixed models and power, against closed forms, known simulated truths and lme4."""

from __future__ import annotations

import re
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.stats import nct, ttest_ind
from scipy.stats import t as student

import speechmix
from speechmix.errors import InputError, MissingExtraError
from speechmix.extensions.mixed_models import mixed_models as reml
from speechmix.extensions.mixed_models.mixed_models import fit_design
from speechmix.extensions.mixed_models.model_design import build_design

pytest.importorskip("statsmodels")


# Estimates and standard errors of lme4 1.1-31 for the table of `test_unbalanced_tables_are_as_in_lme4`;
# z and n are layer and number, standardised.
LME4 = {
    # lmer(contribution ~ layer * number + (1 + z | clip))
    "clip": [
        (0.19343408, 0.02497407), (-0.02182867, 0.03666243),
        (0.01724823, 0.00759877), (0.00158675, 0.01132402),
    ],
    # lmer(contribution ~ layer * number + (1 | clip) + (0 + z | clip) + (1 | speaker) + (0 + z | speaker)
    #      + (0 + n | speaker))
    "crossed": [
        (0.191541112, 0.02582546), (-0.011614387, 0.03295936),
        (0.017423745, 0.00739354), (0.000974538, 0.01097702),
    ],
}  # fmt: skip


def simulated(seed, *, clips=20, layers=6, slope=0.02, speakers=0):
    """A synthetic table: level and slope differ between clips; number has no effect."""
    rng = np.random.default_rng(seed)
    clip, layer = np.repeat(np.arange(clips), layers), np.tile(np.arange(layers), clips)
    level, slopes = rng.normal(0.2, 0.05, clips), rng.normal(slope, 0.01, clips)
    y = level[clip] + slopes[clip] * layer + rng.normal(0, 0.05, len(clip))
    table = pd.DataFrame({"clip": [f"c{i}" for i in clip], "layer": layer, "contribution": y})
    table["number"] = np.where(clip % 2, "pl", "sg")
    if speakers:
        speaker = rng.permutation(np.arange(clips) % speakers)[clip]
        table["speaker"] = [f"s{i}" for i in speaker]
        table["contribution"] += rng.normal(0, 0.05, speakers)[speaker]
    return table


def test_a_balanced_one_way_layout_is_its_analysis_of_variance():
    rng = np.random.default_rng(3)
    clip = np.repeat(np.arange(15), 5)
    table = pd.DataFrame({"clip": clip, "y": 3 + rng.normal(0, 2, 15)[clip] + rng.normal(size=75)})
    by_clip = table.groupby("clip")["y"]
    between, within = 5 * by_clip.mean().var(ddof=1), by_clip.var(ddof=1).mean()
    fitted = speechmix.mixed_model(table, "y ~ 1")
    sds = [np.sqrt((between - within) / 5), np.sqrt(within)]
    np.testing.assert_allclose(fitted.random["sd"], sds, rtol=1e-5)
    row, error = fitted.fixed.iloc[0], np.sqrt(between / 75)
    half = student.ppf(0.975, 14) * error
    expected = [table["y"].mean(), error, 14, table["y"].mean() - half, table["y"].mean() + half]
    np.testing.assert_allclose(
        row[["estimate", "error", "df", "low", "high"]].astype(float), expected, rtol=1e-5
    )
    assert not fitted.notes


def test_a_within_effect_is_the_paired_t_test():
    table = simulated(0, layers=2)
    values = table.pivot(index="clip", columns="layer", values="contribution")
    differences = values[1] - values[0]
    t = differences.mean() / (differences.std(ddof=1) / np.sqrt(20))
    fitted = speechmix.mixed_model(table, "contribution ~ layer")
    assert fitted.fixed["p"][1] == pytest.approx(2 * student.sf(abs(t), 19), rel=1e-4)
    assert "too few rows for each 'clip'" in str(fitted)


@pytest.mark.parametrize(
    ("groups", "errors"),
    [
        ("clip", LME4["clip"]),
        (["clip", "speaker"], LME4["crossed"]),
    ],
)
def test_unbalanced_tables_are_as_in_lme4(groups, errors):
    table = simulated(7, clips=24, layers=5, speakers=9).sample(frac=0.6, random_state=1)
    fixed = speechmix.mixed_model(table, "contribution ~ layer * number", groups).fixed
    np.testing.assert_allclose(
        fixed[["estimate", "error"]].to_numpy(), errors, rtol=1e-4, atol=1e-6
    )


def test_a_variance_of_zero_is_told():
    table = simulated(1)
    layer_mean = table.groupby("layer")["contribution"].transform("mean")
    rng = np.random.default_rng(0)
    table["contribution"] = layer_mean + rng.normal(0, 0.1, len(table))  # clips differ in nothing
    assert "singular fit" in speechmix.mixed_model(table, "contribution ~ layer").summary


def test_a_singular_fit_of_a_balanced_table_estimates_the_means():
    """Slopes follow levels exactly, so their covariance is singular; a last digit of the data must not matter."""
    rng = np.random.default_rng(0)
    clip, layer = np.repeat(np.arange(12), 6), np.tile(np.repeat(np.arange(3), 2), 12)
    table = pd.DataFrame({"clip": clip, "layer": layer, "number": ["sg", "pl"] * 36})
    level = rng.normal(0, 0.13, 12)[clip]
    table["y"] = 0.4 - 0.15 * layer + level * (1 - layer) + rng.normal(0, 0.15, 72)
    means = table.groupby("number")["y"].mean()
    for _ in range(5):
        changed = table.assign(y=table["y"] * (1 + 1e-9 * rng.normal(size=72)))
        fitted = speechmix.mixed_model(changed, "y ~ layer + number")
        assert "singular fit" in fitted.summary
        estimate = fitted.fixed.set_index("term")["estimate"]
        assert estimate["number[T.sg]"] == pytest.approx(means["sg"] - means["pl"], abs=1e-8)
        expected = table["y"].mean() - estimate["layer"] - estimate["number[T.sg]"] / 2
        assert estimate["Intercept"] == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("seeds", [range(3), pytest.param(range(3, 12), marks=pytest.mark.long)])
def test_fits_are_the_best_of_several_starts(seeds):
    """Random slopes with small variances: a search with bounds stops early in some of these."""
    for seed in seeds:
        rng, codes = np.random.default_rng(seed), np.repeat(np.arange(20), 7)
        slope = rng.normal(size=(140, 2))
        z = np.column_stack([np.ones(140), slope])
        effects = (0.1 * slope * rng.normal(size=(20, 2))[codes]).sum(axis=1)
        y = 1 + 0.3 * rng.normal(size=20)[codes] + effects + rng.normal(size=140)
        groups = [(codes, z)]
        products, places = reml._products(z, y, groups), np.tril_indices(3)

        def deviance(parameters, products=products, places=places):
            factor = np.zeros((3, 3))
            factor[places] = parameters
            return reml._profile(products, factor, 140)[0]

        fit = reml.fit_reml(z, y, groups)
        values, vectors = np.linalg.eigh(fit.covariances[0] / fit.residual)
        # Any factor of the covariance has the deviance of the fit; a triangle is that of a QR decomposition.
        factor = np.linalg.qr((vectors * np.sqrt(values.clip(0))).T)[1].T
        found = deviance(factor[places])
        starts = rng.normal(size=(4, 6)) * 0.5
        best = min(minimize(deviance, start, method="BFGS").fun for start in starts)
        assert found < best + 1e-3


def test_a_search_that_leaps_far_comes_back():
    rng = np.random.default_rng(229)
    count = rng.integers(3, 10, 20)
    clip = np.repeat(np.arange(20), count)
    layer = np.concatenate([np.arange(n) for n in count])
    table = pd.DataFrame({"clip": clip, "layer": layer, "number": np.where(clip % 2, "pl", "sg")})
    level, slopes = rng.normal(size=20)[clip] * 0.5, 0.3 * rng.normal(size=20)[clip] * layer
    table["y"] = level + slopes + rng.normal(size=len(table))
    assert np.isfinite(speechmix.mixed_model(table, "y ~ layer * number").fixed["error"]).all()


@pytest.mark.parametrize(
    ("change", "formula", "groups", "message"),
    [
        ({}, "contribution ~ layers", "clip", "columns: clip, layer"),
        ({}, "contribution ~ layer", "speaker", "no column 'speaker'"),
        ({}, "contribution ~ layer + I(2 * layer)", "clip", "not independent"),
        (
            {"stack": ["encoder", "decoder"] * 60},
            "contribution ~ layer",
            "clip",
            "several values of 'stack'",
        ),
        ({"init": ["trained", "random"] * 60}, "contribution ~ init", "clip", "compare_with_twins"),
        (
            {"speaker": ["a", "b"] * 60},
            "contribution ~ layer",
            ["clip", "speaker"],
            "2 different values of 'speaker'",
        ),
        ({"right": [True, False] * 60}, "right ~ layer", "clip", "only true or false"),
    ],
)
def test_what_cannot_be_fitted_is_refused(change, formula, groups, message):
    with pytest.raises(InputError, match=message.replace("(", r"\(")):
        speechmix.mixed_model(simulated(0).assign(**change), formula, groups)


@pytest.mark.parametrize(
    ("change", "formula", "message"),
    [
        ({"clip": {3: None, 7: ""}}, "contribution ~ layer", "no value of 'clip' in the rows 3 (clip None), 7"),
        ({"contribution": {3: np.inf}}, "contribution ~ layer", "infinite value of 'contribution' in the rows 3 (clip c0)"),
        ({"layer": {8: -np.inf}}, "contribution ~ layer", "infinite value of 'layer' in the rows 8 (clip c1)"),
        ({"contribution": {3: 0.0}}, "np.log(contribution) ~ layer", "the logarithm of 0) in the rows 3 (clip c0)"),
        ({"contribution": {3: -1.0}}, "np.log(contribution) ~ layer", "in the rows 3 (clip c0)"),
        ({}, "contribution ~ np.log(layer)", "0 (clip c0), 6 (clip c1), 12 (clip c2), 18 (clip c3), 24 (clip c4) and 15 more"),
    ],
)  # fmt: skip
def test_rows_without_a_group_or_a_finite_number_are_named(change, formula, message):
    table = simulated(0).astype({"layer": float, "clip": object})
    for column, values in change.items():
        for row, value in values.items():
            table.loc[row, column] = value
    with pytest.raises(InputError, match=re.escape(message)):
        speechmix.mixed_model(table, formula)


def test_rows_with_missing_values_are_left_out_and_counted():
    table = simulated(0)
    table.loc[[3, 9], "contribution"] = np.nan
    table.loc[3, "clip"] = None  # without a number the row needs no group
    fitted = speechmix.mixed_model(table, "contribution ~ layer")
    assert fitted.counts["rows"] == 118
    assert "2 rows with missing values are left out" in fitted.notes


def test_rows_and_clips_that_come_twice_count_once():
    table = simulated(2)
    renamed = table.assign(clip=table["clip"] + " (2)")
    once = speechmix.mixed_model(table, "contribution ~ layer")
    for other in (table, renamed):
        twice = speechmix.mixed_model(pd.concat([table, other]), "contribution ~ layer")
        pd.testing.assert_frame_equal(twice.fixed, once.fixed)
        assert "left out" in twice.notes[0]


def test_without_statsmodels_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "statsmodels.regression.linear_model", None)
    with pytest.raises(MissingExtraError, match="statistics"):
        speechmix.mixed_model(simulated(0), "contribution ~ layer")


def drops(count, mean=0.5, seed=0):
    """A synthetic pilot: one normal number for each clip, with exactly this mean and deviation 1."""
    values = np.random.default_rng(seed).normal(size=count)
    values = (values - values.mean()) / values.std(ddof=1)
    return pd.DataFrame({"clip": [f"c{i}" for i in range(count)], "drop": values + mean})


def power_of_t_test(effect, count):
    limit, shift = student.ppf(0.975, count - 1), effect * np.sqrt(count)
    return nct.sf(limit, count - 1, shift) + nct.cdf(-limit, count - 1, shift)


def test_power_is_that_of_the_t_test_within_the_error_of_the_simulation():
    plan = speechmix.power(drops(100, 0.4), "drop ~ 1", clips=[20, 40], simulations=80)
    for row in plan.itertuples():
        assert row.low <= power_of_t_test(0.4, row.clips) <= row.high
        assert row.power_low < row.power < row.power_high


def test_without_an_effect_power_is_the_level():
    plan = speechmix.power(drops(60), "drop ~ 1", clips=[20], effect=0.0, simulations=150)
    assert plan["low"][0] <= 0.05 <= plan["high"][0]


@pytest.mark.parametrize("suffix", [pytest.param("", marks=pytest.mark.long), " (2)"])
def test_clips_that_are_in_the_pilot_twice_give_no_power(suffix):
    pilot = drops(12)
    twice = pd.concat([pilot, pilot.assign(clip=pilot["clip"] + suffix)])
    options = {"clips": [20], "simulations": 40}
    with pytest.warns(UserWarning, match="pilot of 12 clips leaves the power of Intercept open"):
        plan = speechmix.power(pilot, "drop ~ 1", **options)
    with pytest.warns(UserWarning, match="pilot of 12 clips"):
        pd.testing.assert_frame_equal(speechmix.power(twice, "drop ~ 1", **options), plan)


def test_power_of_a_mixed_model():
    plan = speechmix.power(
        simulated(0, clips=12, layers=4), "contribution ~ layer", "layer",
        clips=[8], test="mixed_model", effect=0.1, simulations=4,
    )  # fmt: skip
    assert plan["power"].tolist() == [1.0]


def test_power_refuses_a_term_that_is_not_there():
    with pytest.raises(InputError, match="found 'number'"):
        speechmix.power(simulated(0), "contribution ~ number", "number")
    with pytest.raises(InputError, match="at least 8"):
        speechmix.power(drops(5), "drop ~ 1")


@pytest.mark.long
def test_intervals_cover_and_null_tests_reject_as_often_as_they_say():
    """250 tables; the limits allow for the error of so many."""
    covers, rejections = [], []
    for seed in range(250):
        fixed = fit_design(build_design(simulated(seed), "contribution ~ layer * number", "clip"))[
            0
        ]
        fixed = fixed.set_index("term")
        covers.append(fixed.loc["layer", "low"] <= 0.02 <= fixed.loc["layer", "high"])
        rejections.append(fixed["p"].drop(["Intercept", "layer"]) < 0.05)
    assert 0.92 <= np.mean(covers) <= 0.98
    assert 0.02 <= np.mean(rejections) <= 0.08


@pytest.mark.long
def test_the_range_of_power_holds_the_true_one():
    """100 pilots of 15 clips of a population with a known power."""
    true, inside = power_of_t_test(0.5, 30), []
    for seed in range(100):
        values = np.random.default_rng(seed).normal(0.5, 1, 15)
        pilot = pd.DataFrame({"clip": range(15), "drop": values})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # most pilots leave much open
            plan = speechmix.power(pilot, "drop ~ 1", clips=[30], simulations=60).iloc[0]
        inside.append(plan["power_low"] - 0.1 <= true <= plan["power_high"] + 0.1)
    assert np.mean(inside) >= 0.9


def skewed_slopes(seed, clips=12):
    """Slopes that differ between clips, lognormal, with a mean of zero."""
    rng = np.random.default_rng(seed)
    clip, layer = np.repeat(np.arange(clips), 6), np.tile(np.arange(6), clips)
    slopes = rng.lognormal(size=clips) - np.exp(0.5)
    y = rng.normal(size=clips)[clip] + slopes[clip] * layer + 0.3 * rng.normal(size=len(clip))
    return pd.DataFrame({"clip": clip, "layer": layer, "y": y})


def unequal_spread(seed, few=2, clips=16, ratio=4.0):
    """Clips of two conditions with one mean, a few of which vary more."""
    rng, clip = np.random.default_rng(seed), np.repeat(np.arange(clips), 6)
    level = rng.normal(size=clips) * np.where(np.arange(clips) < few, ratio, 1)
    y = level[clip] + 0.3 * rng.normal(size=len(clip))
    return pd.DataFrame({"clip": clip, "condition": np.where(clip < few, "b", "a"), "y": y})


def test_skewed_slopes_of_few_clips_conclude_nothing_without_a_note():
    for seed in range(4):
        fitted = speechmix.mixed_model(skewed_slopes(seed), "y ~ layer")
        assert any(
            "12 values of 'clip' are few: nothing is concluded, 3 more" in n for n in fitted.notes
        )
    skewed = speechmix.mixed_model(skewed_slopes(0, clips=40), "y ~ layer")
    assert any(note.startswith("layer: effects of 'clip' are skewed") for note in skewed.notes)


def test_two_clips_with_a_larger_spread_are_no_effect():
    """Student's p and sign flips find an effect far too often; robust errors do not, and a note says so."""
    found = []
    for seed in range(11):
        fitted = speechmix.mixed_model(unequal_spread(seed), "y ~ condition")
        found.append(fitted.fixed.iloc[1])
        assert found[-1]["robust_df"] < 2
        note = next(
            n for n in fitted.notes if n.startswith("condition[T.b]: the design is unbalanced")
        )
        assert "one condition has 2 of 16" in note
        if found[-1]["p"] < 0.05 <= found[-1]["robust_p"]:
            assert "condition[T.b]: robust errors do not confirm the effect" in fitted.notes
    assert sum(row["p"] < 0.05 for row in found) >= 3
    assert sum(row["robust_p"] < 0.05 for row in found) <= 1


def test_balanced_conditions_with_another_spread_get_a_note():
    fitted = speechmix.mixed_model(unequal_spread(0, few=8), "y ~ condition")
    assert any("'clip' differ in spread" in note for note in fitted.notes)
    equal = speechmix.mixed_model(unequal_spread(0, few=8, ratio=1), "y ~ condition")
    assert not any("spread" in note for note in equal.notes)


def test_the_robust_p_has_the_t_of_welch_and_is_that_of_student():
    table = unequal_spread(3, few=5)
    means = table.groupby(["clip", "condition"])["y"].mean().reset_index()
    sides = [means.loc[means["condition"] == name, "y"] for name in "ab"]
    row = speechmix.mixed_model(table, "y ~ condition").fixed.iloc[1]
    t = ttest_ind(*sides, equal_var=False).statistic
    assert row["robust_p"] == pytest.approx(2 * student.sf(abs(t), row["robust_df"]), rel=1e-6)
    # Pustejovsky & Tipton 2018, of two groups with n and m members and equal spread
    n, m = 5, 11
    df = (1 / n + 1 / m) ** 2 / (1 / (n**2 * (n - 1)) + 1 / (m**2 * (m - 1)))
    assert row["robust_df"] == pytest.approx(df, rel=1e-6)
    fixed = speechmix.mixed_model(simulated(0), "contribution ~ layer").fixed
    assert fixed["robust_p"][1] == pytest.approx(fixed["p"][1], rel=1e-3)  # balanced
    alone = speechmix.mixed_model(unequal_spread(0, few=1), "y ~ condition").fixed.iloc[1]
    assert (alone["robust_p"], alone["robust_df"]) == (1, 0)  # one clip has no spread
