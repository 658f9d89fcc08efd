"""Trials of tiny and bundled models: against brute force, and what is recorded when something
cannot be judged."""

from __future__ import annotations

import functools
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import spearmanr

import speechmix
from speechmix.errors import InputError
from speechmix.extensions.faithfulness import curves
from speechmix.extensions.faithfulness.curves import removal_effects
from speechmix.extensions.faithfulness.evaluate import pair_item_indices
from speechmix.extensions.faithfulness.word_scores import source_words, word_scores
from speechmix.extensions.occlusion.input_ablation import build_word_removals
from speechmix.extensions.occlusion.shapley import RemovalMargins
from speechmix.inputs import bundled
from speechmix.interventions.decision import Decision
from speechmix.interventions.removals import change_inputs, scale_words
from speechmix.mixing.measures.measure_functions import forget_measure
from tests.conftest import trained
from tests.models import text_models

MEASURES = ("value_zeroing", "attention", "gradient_input")
ROW = ["stack", "measure", "aggregation"]


@functools.cache
def clips():
    """Four clips of four words, two pairs."""
    return tuple(clip for clip in bundled.clips() if len(clip.words) >= 4)[:4]


@functools.cache
def trial_of(name: str):
    return speechmix.faithfulness(trained(name), clips(), measures=MEASURES)


def test_a_trial_of_two_clips_says_how_many_groups_are_needed_and_there():
    model = trained("tiny-french-ctc")
    short = [clip for clip in bundled.clips() if len(clip.words) < 4][:2]
    nothing = speechmix.faithfulness(
        model, short, measures="attention", perturbations="mute (zeros)"
    )
    assert "none of 2 items could be evaluated: fewer than 3 words besides the target" in repr(
        nothing
    )
    assert "needs 8 groups of items, there is 1" in repr(nothing)
    with pytest.raises(InputError, match="needs 8 groups of items, there is 1"):
        nothing.sentence()
    options = {"metrics": ["spearman"], "aggregations": ["last"]}
    judged = speechmix.faithfulness(
        model, clips()[:2], measures="attention", perturbations="mute (zeros)", **options
    )
    assert (
        "2 items in 1 group compared with mute (zeros); a comparison of measures needs 8 groups"
        in repr(judged)
    )
    assert (
        "2 clips in 1 group), no measure can be compared: that needs 8 groups" in judged.sentence()
    )


@pytest.mark.long
def test_the_judge_as_its_own_oracle_gets_one():
    table = trial_of("tiny-french-whisper").to_dataframe()
    rank_metrics = table[
        (table["measure"] == "oracle") & table["metric"].isin(["top_1", "spearman", "kendall"])
    ]
    assert set(rank_metrics["perturbation"]) == {"mute", "patch", "knock-out"}
    assert np.allclose(rank_metrics["value"], 1)


@pytest.mark.long
def test_every_way_to_aggregate_is_a_row_beside_its_baselines():
    trial = trial_of("tiny-french-whisper")
    rows = set(trial.leaderboard()[ROW].itertuples(index=False, name=None))
    ways = {
        "encoder": ("best layer", "mean", "last", "rollout"),
        "cross": ("best layer", "mean", "last"),
        "composed": ("composed",),
    }
    for stack, aggregations in ways.items():
        for measure in ("value_zeroing", "attention"):
            assert {(stack, measure, aggregation) for aggregation in aggregations} <= rows
        assert {(stack, name, "") for name in ("random", "length", "position", "oracle")} <= rows
    assert not {
        row for row in rows if row[1] == "gradient_input" and row[2] in ("rollout", "composed")
    }
    assert not {row for row in rows if row[0] == "decoder"}  # silence says nothing of tokens
    assert trial.perturbations[-1] == "knock-out"
    assert "4 clips in 2 groups" in trial.sentence()
    assert np.allclose(
        trial.to_dataframe()[trial.to_dataframe()["metric"] == "top_1"]["chance"], 1 / 3
    )
    precision = trial.to_dataframe()[trial.to_dataframe()["metric"] == "average_precision"]
    assert set(precision["perturbation"]) == {"cue"}
    assert np.allclose(precision["chance"], (1 + 1 / 2 + 1 / 3) / 3)


def test_drops_are_those_of_input_ablation():
    model, clip = trained("tiny-french-ctc"), clips()[0]
    decision = Decision.prepare(model, clip)
    (verdict,) = removal_effects("mute", decision)
    table = speechmix.ablate_input(model, clip, sides=["sound"]).table
    expected = table.groupby("word")["drop"].mean()
    assert clip.target not in verdict.drops
    assert verdict.drops == pytest.approx(
        {word: expected[word] for word in verdict.drops}, abs=1e-3
    )
    (zeros,) = removal_effects("mute (zeros)", decision)
    expected = table[table["intervention"] == "mute (zeros)"].set_index("word")["drop"]
    assert zeros.drops == pytest.approx({word: expected[word] for word in zeros.drops}, abs=1e-3)


def test_numbers_of_a_row_are_those_of_its_item():
    model, clip = trained("tiny-french-ctc"), clips()[0]
    trial = speechmix.faithfulness(model, [clip], measures="value_zeroing", perturbations="mute")
    decision = Decision.prepare(model, clip)
    (verdict,) = removal_effects("mute", decision)
    words = [word.index for word in source_words(decision, "encoder")]
    row = speechmix.mix(model, clip, measures="value_zeroing")["value_zeroing", "encoder"].scores[
        -1, clip.target, words
    ]
    values = trial.values[
        (trial.values["item"] == clip.name) & (trial.values["perturbation"] == "mute")
    ]
    last = values[
        (values["measure"] == "value_zeroing") & (values["aggregation"] == "last")
    ].set_index("metric")["value"]
    assert last["spearman"] == pytest.approx(spearmanr(row, verdict.word_drops(words))[0])
    order, counts = np.argsort(-row).tolist(), range(len(words) + 1)
    ((removed, kept),) = curves.perturbation_curves(verdict, words, [order], counts)
    assert last["comprehensiveness"] == pytest.approx(np.mean(removed[0] - removed[1:-1]))
    assert removed[0] == pytest.approx(kept[-1])
    assert removed[-1] == pytest.approx(kept[0])
    assert ((removed >= 0) & (removed <= 1)).all()


def test_sets_of_words_are_run_once_and_as_if_each_were_alone():
    decision = Decision.prepare(trained("tiny-french-whisper"), clips()[1])
    removals = RemovalMargins(decision, "sound", "zeros")
    together = removals.margins([(), (1,), (1, 3), (3, 1)])
    assert together[2] == together[3]
    both = build_word_removals(decision, [1, 3], side="sound", fill="zeros")
    changed = change_inputs(decision.model, decision.item, decision.prepared.inputs, both)
    assert decision.input_margin(*changed) == pytest.approx(together[2], abs=1e-3)
    decision.__dict__["read_output"] = None  # nothing new is run
    assert np.isfinite(removals.margins([(3, 1), ()])).all()


def test_silencing_several_words_leaves_the_others_and_fills_with_none_of_them():
    clip = clips()[0]
    silent = speechmix.mute(clip, [0, 3])
    for index, word in enumerate(clip.words):
        samples = slice(round(word.start * 16_000), round(word.end * 16_000))
        before, after = clip.audio(16_000)[samples], silent.audio(16_000)[samples]
        assert (after == 0).all() if index in (0, 3) else (after == before).all()
    with pytest.raises(InputError, match=r"word=\[0, 9\]"):
        speechmix.mute(clip, [0, 9])
    with pytest.raises(InputError, match="needs another word"):
        speechmix.mute(clip, range(len(clip.words)), fill="word")


def test_soft_versions_end_where_the_hard_ones_are():
    clip = clips()[0]
    assert np.array_equal(
        scale_words(clip, {1: 0.0}).audio(16_000), speechmix.mute(clip, 1).audio(16_000)
    )
    decision = Decision.prepare(trained("tiny-french-ctc"), clip)
    words = [word.index for word in source_words(decision, "encoder")]
    removals = RemovalMargins(decision, "sound", "zeros")
    all_of_one = np.eye(len(words))[1]
    (soft,) = curves.soft_metrics(removals, words, [all_of_one])
    others = [word for word in words if word != words[1]]
    intact, without, alone = removals.probabilities(removals.margins([(), (words[1],), others]))
    assert soft["soft_comprehensiveness"] == pytest.approx(intact - without, abs=1e-4)
    assert soft["soft_sufficiency"] == pytest.approx(intact - alone, abs=1e-4)


def test_soft_metrics_are_rows_when_asked_for():
    metrics = ("spearman", "soft_comprehensiveness", "soft_sufficiency")
    options = {
        "measures": "attention",
        "aggregations": ["last"],
        "metrics": metrics,
        "perturbations": ["mute (zeros)"],
    }
    trial = speechmix.faithfulness(trained("tiny-french-ctc"), clips()[:2], **options)
    assert set(trial.to_dataframe()["metric"]) == set(metrics)
    assert set(trial.perturbations) == {"mute (zeros)"}


SENTENCE = speechmix.Sentence("the cat is very here", cue="cat", target="is", foil="are")


def test_blank_out_is_the_published_protocol():
    model = text_models.bert()
    trial = speechmix.faithfulness(
        model,
        [SENTENCE],
        measures="attention",
        protocol="blank-out",
        perturbations=["blank (unk)"],
        min_words=3,
    )
    masked = SENTENCE.replace(text="the cat <mask> very here", target="<mask>", foil=None)
    ids = model.tokenizer("the cat [MASK] very here", return_tensors="pt")["input_ids"]
    is_id = model.tokenizer.convert_tokens_to_ids("is")

    def probability(tokens):
        with torch.no_grad():
            return model.module(input_ids=tokens).logits[0, 3].softmax(-1)[is_id].item()

    drops = []
    for place in (1, 2, 4, 5):
        blanked = ids.clone()
        blanked[0, place] = model.tokenizer.unk_token_id
        drops.append(probability(ids) - probability(blanked))
    rolled = speechmix.mix(model, masked, measures="attention", units="token")[
        "attention", "encoder"
    ].rollout()
    row = rolled.scores[-1, 3, [1, 2, 4, 5]]
    values = trial.values.set_index("measure")["value"]
    assert values["attention"] == pytest.approx(spearmanr(row, drops)[0])
    assert set(trial.values["metric"]) == {"spearman"}
    assert set(trial.values["aggregation"]) == {"rollout", ""}


def test_layers_are_also_rolled_out_by_strength_where_the_measure_does_not_hold_the_residual_stream():
    model = text_models.gpt2()
    sentence = SENTENCE.replace(text="the very cat here is", foil="are")
    trial = speechmix.faithfulness(
        model,
        [sentence],
        measures=["value_zeroing", "alti"],
        perturbations=["blank"],
        metrics=["spearman"],
    )
    assert set(trial.values.query("measure == 'value_zeroing'")["aggregation"]) >= {
        "rollout",
        "strength rollout",
    }
    assert "strength rollout" not in set(trial.values.query("measure == 'alti'")["aggregation"])
    decision = Decision.prepare(model, sentence)
    mixing_map = speechmix.mix(model, sentence, measures="value_zeroing", units="token")
    rolled = mixing_map["value_zeroing", "decoder"].rollout(residual="strength")
    (found,) = word_scores(mixing_map, "value_zeroing", decision, ["strength rollout"])
    row = rolled.scores[-1, decision.read_positions[0]]
    expected = [row[list(word.positions)].sum() for word in source_words(decision, "decoder")]
    np.testing.assert_allclose(found.scores, expected / np.sum(expected), rtol=1e-6)


def test_causal_models_compare_the_words_before():
    model = text_models.gpt2()
    sentence = SENTENCE.replace(text="the very cat here is", foil="are")
    trial = speechmix.faithfulness(
        model, [sentence], measures="value_zeroing", perturbations=["blank", "knock-out"]
    )
    assert set(trial.values["stack"]) == {"decoder"}
    assert set(trial.values["words"]) == {4}
    assert set(trial.perturbations) == {"blank", "knock-out"}


def test_the_position_that_is_read_is_not_removed():
    decision = Decision.prepare(text_models.bert(), SENTENCE)
    removals = RemovalMargins(decision, "text", "remove")
    assert np.isfinite(removals.margins([(0, 1), (3, 4)])).all()
    with pytest.raises(InputError, match="which cannot be removed"):
        removals.margins([(SENTENCE.target,)])


def test_what_cannot_be_judged_is_recorded_and_not_lost():
    model = trained("tiny-french-ctc")
    short = next(clip for clip in bundled.clips() if len(clip.words) == 2)
    wordless = clips()[0].replace(words=None, cue=None, target=None, foil=None, name="wordless")
    alone = clips()[0].replace(meta={})
    trial = speechmix.faithfulness(
        model,
        [short, wordless, alone, alone],
        measures="attention",
        perturbations=["patch", "mute"],
        metrics=["spearman"],
    )
    reasons = trial.left_out.groupby("item")["reason"].agg(" | ".join)
    assert "fewer than 3 words besides the target: encoder 1" in reasons[short.name]
    assert "wordless" in reasons
    assert "patch needs the other item of its pair" in reasons[alone.name]
    assert trial.perturbations == ["mute"]
    assert set(trial.values["item"]) == {
        alone.name,
        f"{alone.name} (2)",
    }  # two clips of one name stay two


def test_a_trial_of_nothing_says_why():
    model = trained("tiny-french-ctc")
    short = next(clip for clip in bundled.clips() if len(clip.words) == 2)
    trial = speechmix.faithfulness(model, [short], measures="attention")
    with pytest.raises(InputError, match="none of 1 item could be evaluated: fewer than 3 words"):
        trial.sentence()
    assert trial.to_dataframe().empty
    assert trial.perturbation_agreement().empty


def test_a_measure_that_fails_is_noted_and_the_others_are_judged():
    @speechmix.register_measure(
        "broken", description="fails", citation="none", no_heads=": it fails"
    )
    def broken(block, units):
        raise InputError("broken as it is")

    try:
        trial = speechmix.faithfulness(
            trained("tiny-french-ctc"),
            clips()[:1],
            measures=["attention", "broken"],
            perturbations="mute (zeros)",
            metrics=["spearman"],
        )
    finally:
        forget_measure("broken")
    assert set(trial.values["measure"]) == {"attention", "random", "length", "position", "oracle"}
    assert trial.left_out[["what", "reason"]].to_numpy().tolist() == [["broken", "broken as it is"]]


@pytest.mark.long
def test_gradient_measures_explain_what_judges_read():
    options = {
        "measures": "integrated_gradients",
        "aggregations": ["last"],
        "perturbations": "knock-out",
    }
    trial = speechmix.faithfulness(trained("tiny-french-ctc"), clips()[:1], **options)
    assert "integrated_gradients" in set(trial.values["measure"])


def test_pairs_are_of_two():
    assert pair_item_indices(clips()) == [1, 0, 3, 2]
    assert pair_item_indices([*clips(), clips()[0]])[:2] == [None, None]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"perturbations": ["jury"]}, "perturbations are blank, knock-out, mute, patch"),
        ({"perturbations": ["patch (zeros)"]}, "perturbations are"),
        ({"metrics": ["accuracy"]}, "metrics are some of"),
        ({"aggregations": []}, "aggregations are some of"),
        ({"protocol": "blank"}, "protocol should be one of"),
        ({"measures": ["globenc"]}, "globenc is defined for post-norm"),
        ({"measures": ["nothing"]}, "unknown measure 'nothing'"),
        ({"min_words": 1}, "min_words should be at least 2"),
    ],
)
def test_options_that_cannot_be_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        speechmix.faithfulness(trained("tiny-french-ctc"), clips()[:1], **options)


def test_all_measures_are_those_that_are_defined():
    from speechmix.extensions.faithfulness.options import resolve_measures

    names = resolve_measures(trained("tiny-french-ctc"), "all")
    assert not {"globenc", "hta", "random"} & set(names)
    assert {"value_zeroing", "alti", "integrated_gradients"} <= set(names)


@pytest.mark.long
def test_trials_of_several_models_lie_in_one_folder(tmp_path):
    from speechmix.extensions.faithfulness.section import FAITHFULNESS

    assert FAITHFULNESS.parts(SimpleNamespace(folder=tmp_path)) == []
    trial = trial_of("tiny-french-whisper")
    twins = [
        replace(
            trial,
            values=trial.values.assign(init="random", seed=seed),
            provenance={**trial.provenance, "init": "random", "seed": seed},
        )
        for seed in (0, 1)
    ]
    for written in (trial, *twins, trial):
        path = written.write(tmp_path)
    table = pd.read_csv(path)
    assert len(table) == 3 * len(trial.to_dataframe())
    ((title, items),) = FAITHFULNESS.parts(SimpleNamespace(folder=tmp_path))
    assert title == "Which measure is faithful on these clips?"
    sentence = trial.sentence().removesuffix(trial.provenance["grouping"]).strip()
    # Each untrained twin has a leaderboard of its own.
    for weights in ("trained", "random, seed 0", "random, seed 1"):
        assert f"tiny-french-whisper ({weights}). {sentence}" in items[1::2]
    path.write_text("a,b\n1,2\n")
    assert "found no column stack" in FAITHFULNESS.parts(SimpleNamespace(folder=tmp_path))[0][1][0]
    with pytest.raises(InputError, match="holds another table"):
        trial.write(tmp_path)


@pytest.mark.long
def test_judges_are_compared_word_by_word():
    trial = trial_of("tiny-french-whisper")
    drops = trial.drops[(trial.drops["stack"] == "cross")].pivot_table(
        index=["item", "word"], columns="perturbation", values="drop"
    )
    fills = drops.filter(like="mute (")
    assert np.allclose(fills.mean(axis=1), drops["mute"])
    agreement = trial.perturbation_agreement().set_index(["stack", "perturbation", "other"])
    by_hand = [spearmanr(part["mute"], part["patch"])[0] for _, part in drops.groupby("item")]
    assert agreement.loc[("cross", "mute", "patch"), "rho"] == pytest.approx(np.mean(by_hand))
    assert agreement["items"].max() == 4
