"""Response curves: planted thresholds are found, models that ignore the sound have no crossing."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pandas as pd
import pytest
import torch

import speechmix
from speechmix.errors import InputError
from speechmix.extensions.continua.continua import Continuum
from speechmix.extensions.continua.response_curves import (
    ResponseCurve,
    find_crossing,
    read_responses,
)
from speechmix.inputs import bundled
from speechmix.interventions.decision import Decision
from tests.models.audio_classifiers import CLASSIFIERS, build_classifier

RATE = 16_000
TONES = (500, 2000, 4000)  # Hz: of one end, of the other, and of the item in both
LABELS = ("angry", "happy")


@pytest.fixture(scope="module")
def classifier():
    module = build_classifier("wav2vec2")
    return speechmix.load(module, processor=CLASSIFIERS["wav2vec2"][3]())


@contextmanager
def planted(model, margin):
    """Let a classifier's margin be a function of the shares of two tones in the sound.

    The margin is a function of share of the second tone, and threshold of the item.
    """

    def replace(module, args, kwargs, output):
        sounds = args[0] if args else kwargs["input_values"]
        frequencies = torch.fft.rfft(sounds.double()).abs()
        bins = [round(tone * sounds.shape[-1] / RATE) for tone in TONES]
        first, second, item = (frequencies[:, index] for index in bins)
        share, threshold = second / (first + second), item / (first + second)
        output.logits = torch.zeros_like(output.logits)
        output.logits[:, 0] = margin(share, threshold).to(output.logits)
        return output

    hook = model.module.register_forward_hook(replace, with_kwargs=True)
    try:
        yield
    finally:
        hook.remove()


def tones(threshold, name, steps=7, seed=0):
    """A continuum from one tone to another, whose items have thresholds and noise of their own."""
    times = np.arange(RATE // 10) / RATE
    first, second, item = (np.sin(2 * np.pi * tone * times) for tone in TONES)
    noise = 1e-3 * np.random.default_rng(seed).normal(size=len(times))
    ends = [
        speechmix.Clip.from_array(
            0.2 * (tone + threshold * item + noise), RATE, name=f"{name}{end}"
        )
        for end, tone in (("a", first), ("b", second))
    ]
    return speechmix.continuum(*ends, steps, method="mix")


def reverse(steps):
    return Continuum(steps.clips[::-1], steps.values, steps.name, steps.label)


def pair(number, **options):
    clips = {clip.name: clip for clip in bundled.clips()}
    singular, plural = clips[f"{number}_sg"], clips[f"{number}_pl"]
    return speechmix.continuum(singular, plural, 5, method="mix", **options)


class TestPlantedThresholds:
    @pytest.mark.parametrize(
        "steps",
        [3, pytest.param(5, marks=pytest.mark.long), 7]
        + [pytest.param(steps, marks=pytest.mark.long) for steps in (11, 21)],
    )
    def test_of_one_continuum_within_a_step(self, classifier, steps):
        rng = np.random.default_rng(steps)
        for seed in range(8):
            threshold, slope = rng.uniform(0.1, 0.9), rng.uniform(3, 60)
            with planted(classifier, lambda share, item, slope=slope: slope * (item - share)):
                curve = speechmix.response_curve(
                    classifier, tones(threshold, "x", steps, seed), labels=LABELS
                )
            row = curve.crossings.iloc[0]
            assert row["crossing"] == pytest.approx(threshold, abs=1 / (steps - 1))
            assert np.isnan(row["low"])
            assert "no interval: it needs 5 groups of continua, found 1" in curve.summary

    def test_of_several_with_an_interval_around_it(self, classifier):
        thresholds = np.random.default_rng(0).normal(0.4, 0.08, 10)
        items = [tones(threshold, f"x{i}", seed=i) for i, threshold in enumerate(thresholds)]
        with planted(classifier, lambda share, item: 30 * (item - share)):
            curve = speechmix.response_curve(classifier, items, labels=LABELS)
            doubled = speechmix.response_curve(
                classifier,
                items
                + [Continuum(x.clips, x.values, f"other {x.name}") for x in items[:5]]
                + items,
                labels=LABELS,
            )
            mirrored = speechmix.response_curve(
                classifier, [reverse(item) for item in items], labels=LABELS
            )
        row = curve.crossings.iloc[0]
        assert row["crossing"] == pytest.approx(thresholds.mean(), abs=1 / 6)
        assert row["low"] < thresholds.mean() < row["high"]
        assert row["high"] - row["low"] < 0.2
        numbers = ["crossing", "low", "high", "slope", "groups"]
        pd.testing.assert_frame_equal(doubled.crossings[numbers], curve.crossings[numbers])
        assert doubled.table["continuum"].nunique() == 25
        other = mirrored.crossings.iloc[0]
        assert other["crossing"] == pytest.approx(1 - row["crossing"], abs=1e-6)
        assert (other["low"], other["high"]) == pytest.approx((1 - row["high"], 1 - row["low"]))
        means = [c.table.groupby("value")["response"].mean() for c in (curve, mirrored)]
        np.testing.assert_allclose(means[0], means[1][::-1])

    def test_three_items_thrice_are_three_groups(self, classifier):
        items = [tones(threshold, f"x{threshold}") for threshold in (0.3, 0.4, 0.5)]
        with planted(classifier, lambda share, item: 30 * (item - share)):
            curve = speechmix.response_curve(classifier, items * 3, labels=LABELS)
        assert curve.crossings["groups"].item() == 3
        assert np.isnan(curve.crossings["low"].item())

    @pytest.mark.parametrize(
        "margin",
        [
            pytest.param(lambda share, item: 0 * share, marks=pytest.mark.long),
            lambda share, item: 1e-6 * torch.sin(1e6 * share),  # rounding on both sides of 50 %
            lambda share, item: 40 * (item - 0.4) + 0 * share,
        ],
        ids=["never sure", "rounding", "of the item alone"],
    )
    def test_a_model_that_ignores_the_steps_has_none(self, classifier, margin):
        items = [tones(0.3 + 0.02 * i, f"x{i}", seed=i) for i in range(10)]
        with planted(classifier, margin):
            for some in (items[:1], items):
                curve = speechmix.response_curve(classifier, some, labels=LABELS)
                assert np.isnan(curve.crossings["crossing"].item())
                assert curve.summary.startswith("share of the second clip: no crossing")

    def test_one_that_changes_its_mind_thrice_has_none(self, classifier):
        with planted(classifier, lambda share, item: torch.cos(3 * np.pi * share)):
            curve = speechmix.response_curve(classifier, tones(0.5, "x"), labels=LABELS)
        assert "the mean responses cross 50 % 3 times" in curve.summary


class TestIntervals:
    """Of items with thresholds around a known one, and of items without any."""

    @pytest.mark.parametrize("seeds", [40, pytest.param(100, marks=pytest.mark.long)])
    def test_nine_of_ten_cover_the_threshold(self, seeds):
        values, hits = np.linspace(0, 1, 7), 0
        for seed in range(seeds):
            rng = np.random.default_rng(seed)
            thresholds = rng.normal(0.45, 0.12, 10)[:, None]
            slopes = rng.lognormal(3, 0.3, 10)[:, None]
            result = find_crossing(values, 1 / (1 + np.exp(slopes * (values - thresholds))))
            hits += result["low"] < 0.45 < result["high"]
        assert hits >= 0.9 * seeds

    @pytest.mark.parametrize("groups", [1, 5, 12])
    def test_several_crossings_are_reported_as_several(self, groups):
        means = np.array([0.95, 0.9, 0.3, 0.1, 0.3, 0.6, 0.7])
        for seed in range(11):
            noise = np.random.default_rng(seed).normal(0, 0.03, (groups, 7))
            result = find_crossing(np.linspace(0, 1, 7), np.clip(means + noise, 0, 1))
            assert np.isnan([result["crossing"], result["low"], result["high"]]).all()
            text = "no single crossing: the mean responses cross 50 % 2 times, at "
            assert result["conclusion"].startswith(text)
            places = [float(x) for x in result["conclusion"].removeprefix(text).split(", ")]
            assert places == pytest.approx([0.278, 0.778], abs=0.05)

    def test_a_curve_that_the_fit_does_not_describe_has_no_crossing(self):
        """Half of the items change early and half late: none of them changes in the middle."""
        values = np.linspace(0, 1, 7)
        for seed in range(11):
            rng = np.random.default_rng(seed)
            thresholds = np.tile([0.15, 0.85], 6)[:12, None] + rng.normal(0, 0.03, (12, 1))
            thresholds[0] = 0.85  # the plateau lies above 50 %
            result = find_crossing(values, 1 / (1 + np.exp(40 * (values - thresholds))))
            assert np.isnan([result["crossing"], result["low"], result["high"]]).all()
            assert result["misfit"] > 0.1
            assert "no crossing: the fitted curve is up to" in result["conclusion"]
            assert "cross 50 % at 0." in result["conclusion"]

    @pytest.mark.parametrize("seeds", [20, pytest.param(50, marks=pytest.mark.long)])
    def test_designs_with_one_threshold_are_rarely_refused(self, seeds):
        values, refused = np.linspace(0, 1, 7), 0
        for seed in range(seeds):
            rng = np.random.default_rng(seed)
            thresholds = rng.normal(0.45, 0.12, (8, 1))
            result = find_crossing(values, 1 / (1 + np.exp(20 * (values - thresholds))))
            refused += np.isnan(result["crossing"])
        assert refused <= 0.06 * seeds

    @pytest.mark.parametrize("groups", [5, 12])
    def test_responses_without_a_trend_rarely_cross(self, groups):
        claims, seeds = 0, 100
        for seed in range(seeds):
            rng = np.random.default_rng(seed)
            margins = rng.normal(0, 1, (groups, 1)) + rng.normal(0, 0.5, (groups, 7))
            result = find_crossing(np.linspace(0, 1, 7), 1 / (1 + np.exp(-margins)))
            claims += np.isfinite(result["crossing"])
        assert claims <= 0.1 * seeds

    def test_limits_beyond_the_steps_are_open(self):
        thresholds = np.array([-1.0, -1.0, 0.3, 1.0, 3.0, 3.0])[:, None]
        values = np.linspace(0, 1, 5)
        result = find_crossing(values, 1 / (1 + np.exp(20 * (values - thresholds))))
        assert (result["low"], result["high"]) == (-np.inf, np.inf)


class TestBundledModels:
    def test_what_is_said_later_decides(self):
        """Questions, whose first word Whisper spells by its verb; an untrained twin cannot."""
        steps = [pair(number) for number in ("right_01", "right_07")]
        trained, random = (
            speechmix.load("bundled:tiny-french-whisper", **options)
            for options in ({}, {"init": "random", "seed": 0})
        )
        curve = speechmix.response_curve(trained, steps, attribution="value_zeroing")
        responses = curve.table.set_index(["continuum", "step"])["response"].unstack()
        assert (responses[1] > 0.9).all()
        assert (responses[5] < 0.1).all()
        assert 0.2 < curve.crossings["crossing"].item() < 0.9
        margins = [Decision.prepare(trained, clip).margin for clip in steps[0].clips]
        np.testing.assert_allclose(curve.table["margin"][:5], margins)
        maps = speechmix.mix(trained, steps[0].clips[0])["value_zeroing", "encoder"]
        share = speechmix.cue_contribution(maps, cue=2, target=0).mean()
        assert curve.table["attribution"][0] == pytest.approx(share)
        clips = speechmix.response_curve(trained, steps[0].clips)
        assert clips.table["value"].tolist() == clips.table["step"].tolist() == [1, 2, 3, 4, 5]
        np.testing.assert_allclose(clips.table["margin"], margins)
        untrained = speechmix.response_curve(random, steps[:1])
        assert "no crossing" in untrained.summary

    def test_text_that_the_decoder_reads_decides(self):
        curve = speechmix.response_curve(
            speechmix.load("bundled:tiny-french-whisper"), pair("left_00")
        )
        assert "no crossing: all mean responses are on one side" in curve.summary


class TestTables:
    @pytest.fixture
    def curve(self):
        rows = [
            {"continuum": "x", "context": context, "step": step, "value": value, "group": "x"}
            | {"response": float(value < threshold)}
            for context, threshold in (("word", 0.6), ("nonword", 0.3))
            for step, value in enumerate((0, 0.25, 0.5, 0.75, 1.0), start=1)
        ]
        return ResponseCurve(pd.DataFrame(rows), "share of b", {"model": "m", "init": "trained"})

    @pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl"])
    @pytest.mark.parametrize("target", [None, "d"])
    def test_trials_of_listeners(self, curve, tmp_path, suffix, target):
        rng = np.random.default_rng(0)
        trials = pd.DataFrame(
            [
                {"continuum": "x", "step": step, "context": context, "listener": f"L{listener}"}
                | {"response": int(rng.uniform() < 1 / (1 + np.exp(3 * (step - threshold))))}
                for context, threshold in (("word", 3.4), ("nonword", 2.2))
                for listener in range(8)
                for step in range(1, 6)
                for _ in range(6)
            ]
        )
        if target:
            trials["response"] = trials["response"].map({1: "d", 0: "t"})
        path = tmp_path / f"trials{suffix}"
        {
            ".csv": lambda: trials.to_csv(path, index=False),
            ".tsv": lambda: trials.to_csv(path, sep="\t", index=False),
            ".jsonl": lambda: trials.to_json(path, orient="records", lines=True),
        }[suffix]()
        listeners = read_responses(path, curve, target=target)
        found = listeners.crossings.set_index("context")
        for context, value in (("word", 2.4 / 4), ("nonword", 1.2 / 4)):
            assert found["low"][context] < value < found["high"][context]
        assert (found["groups"] == 8).all()
        axes = curve.plot(listeners=listeners)
        assert len(axes.figure.axes) == 1
        assert axes.get_legend().get_texts()[2].get_text() == "listeners word"
        curve.table["attribution"] = 0.1
        assert len(curve.plot().figure.axes) == 2

    @pytest.mark.parametrize(
        ("row", "problem"),
        [
            ("x,6,1", "row 2: expected a step from 1 to 5 .* found step 6"),
            ("x,1,2", "row 2: .* response 2"),
            ("x,one,1", "row 2: .* 'one'"),
            ("x,1,d", "or words, and target="),
            ("x,1", "row 2: .* 'response'"),
            (",1,1", "row 2: .* 'continuum'"),
            ("", "expected a row for each response, found none"),
        ],
    )
    def test_rows_that_cannot_be_read(self, curve, tmp_path, row, problem):
        path = tmp_path / "trials.csv"
        path.write_text(f"continuum,step,response\n{row}\n", encoding="utf-8")
        with pytest.raises(InputError, match=problem):
            read_responses(path, curve)

    def test_a_column_that_is_missing(self, curve, tmp_path):
        (tmp_path / "trials.csv").write_text("continuum,step\nx,1\n", encoding="utf-8")
        with pytest.raises(InputError, match="column response"):
            read_responses(tmp_path / "trials.csv", curve)


class TestBadInput:
    def test_no_foil(self):
        model = speechmix.load("bundled:tiny-french-ctc")
        steps = pair("left_00")
        bare = Continuum([clip.replace(foil=None) for clip in steps.clips], steps.values)
        with pytest.raises(InputError, match="objective='contrast' needs foil="):
            speechmix.response_curve(model, bare)

    def test_no_labels(self, classifier):
        with pytest.raises(InputError, match="give labels=, two of angry, happy, sad, calm"):
            speechmix.response_curve(classifier, tones(0.5, "x"))

    def test_other_values(self, classifier):
        items = [tones(0.5, "x"), tones(0.4, "y", steps=5)]
        with pytest.raises(InputError, match="expected the same values in all continua"):
            speechmix.response_curve(classifier, items, labels=LABELS)
        with pytest.raises(InputError, match="expected a continuum, found none"):
            speechmix.response_curve(classifier, [], labels=LABELS)
