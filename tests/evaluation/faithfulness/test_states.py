"""The judge "states": its numbers by hand, what it says where there is no head, and that it knows
nothing of chance."""

from __future__ import annotations

import numpy as np
import pytest
import transformers
from scipy.stats import spearmanr

import speechmix
from speechmix.extensions.faithfulness.state_perturbation import state_shifts
from speechmix.inputs import bundled
from tests.conftest import trained
from tests.models.text_models import bert

CLIPS = [clip for clip in bundled.clips() if len(clip.words) >= 4][:3]
ASKED = {"perturbations": "states (zeros)", "metrics": ["spearman", "top_1"]}


def test_a_measure_s_number_by_hand():
    model, clip = trained("tiny-french-ctc"), CLIPS[0]
    trial = speechmix.faithfulness(
        model, [clip], measures="value_zeroing", aggregations=["last"], **ASKED
    )
    scores = speechmix.mix(model, clip, measures="value_zeroing")[
        "value_zeroing", "encoder"
    ].scores[-1]
    moved = state_shifts(model, clip).scores[-1]
    by_target = []
    for target in range(len(clip.words)):
        others = [word for word in range(len(clip.words)) if word != target]
        by_target.append(spearmanr(scores[target, others], moved[target, others])[0])
    values = trial.values.query("metric == 'spearman'").set_index("measure")["value"]
    assert values["value_zeroing"] == pytest.approx(np.mean(by_target), abs=1e-12)
    assert values["oracle"] == 1
    assert abs(values["random"]) < 0.35  # the mean of twenty orders for each of a few targets
    assert set(trial.values["stack"]) == {"encoder"}


def test_a_model_without_a_head_is_judged_by_its_states():
    folder = bundled.models()["tiny-french-ctc"]
    extractor = transformers.AutoFeatureExtractor.from_pretrained(folder)
    headless = speechmix.load(trained("tiny-french-ctc").module.base_model, processor=extractor)
    asked = {"measures": "attention", "aggregations": ["last"], "metrics": ["spearman", "top_1"]}
    trial = speechmix.faithfulness(headless, CLIPS[:2], **asked)
    assert trial.perturbations == ["states"]  # the mean over all fills
    with_head = speechmix.faithfulness(
        trained("tiny-french-ctc"), CLIPS[:2], perturbations="states", **asked
    )
    assert trial.values["value"].to_numpy() == pytest.approx(
        with_head.values["value"].to_numpy(), abs=1e-6
    )


def test_beside_a_judge_of_decisions():
    trial = speechmix.faithfulness(
        trained("tiny-french-ctc"),
        CLIPS[:1],
        perturbations=["states (zeros)", "mute (zeros)"],
        measures=["attention", "gradient_input", "lrp", "occlusion"],
        metrics=["spearman"],
    )
    assert trial.perturbations == ["states (zeros)", "mute (zeros)"]
    to_output = ("gradient_input", "lrp", "occlusion")
    assert set(trial.left_out["reason"]) == {
        f"{name} explains an output, and no states" for name in to_output
    }
    by_silence = trial.values.query("perturbation == 'mute (zeros)'")
    assert "gradient_input" in set(by_silence["measure"])


def test_text_and_what_cannot_be_judged():
    text = "the cats are very here"
    trial = speechmix.faithfulness(
        bert(),
        [speechmix.Sentence(text)],
        measures="alti",
        **{**ASKED, "perturbations": "states (mask)"},
    )
    assert {"alti", "oracle", "length", "position", "random"} == set(trial.values["measure"])
    short = speechmix.faithfulness(
        bert(), [speechmix.Sentence("the cats play")], measures="alti", **ASKED
    )
    assert short.values.empty
    assert "fill should be one of" in short.left_out["reason"].iloc[0]
    few = speechmix.faithfulness(
        bert(),
        [speechmix.Sentence("the cats play")],
        measures="alti",
        perturbations="states (mask)",
    )
    assert few.left_out["reason"].tolist() == ["no word has 3 others beside it"]
