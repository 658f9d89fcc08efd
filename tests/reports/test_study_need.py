"""The first screen's sentences: contribution and need together, each as its test says."""

from __future__ import annotations

import pandas as pd
import pytest

from speechmix.reporting.pages.cue_need_sentences import (
    controls_table,
    format_need_table,
    need_by_number,
    need_table,
    short_answers,
    stack_sentences,
)

NOTHING = pd.DataFrame()


def contribution(stack: str, difference: float, *, claim: str = "more", **others) -> dict:
    row = {
        "side": "left",
        "model": "m",
        "stack": stack,
        "measure": "value_zeroing",
        "trained": 50.0,
        "random": 20.0,
    }
    row |= {"twins": 9, "groups": 20, "mixing_strength": 0.3}
    row |= {"difference": difference, "low": difference - 2, "high": difference + 2}
    return {**row, "claim": claim, **others}


def need(stack: str, without: float, verdict: str, **others) -> dict:
    row = {
        "side": "left",
        "model": "m",
        "ablated": stack,
        "right": 100.0,
        "right_low": 83.0,
        "right_high": 100.0,
        "without_cue": without,
        "without_other": 98.0,
    }
    row |= {
        "lost": 100 - without,
        "low": 95 - without,
        "high": 105 - without,
        "drop": 5.0,
        "drop_other": 0.1,
    }
    return {**row, "groups": 20, "clips": 40, "verdict": verdict, **others}


def test_a_high_contribution_that_is_not_needed_is_said_in_one_sentence_with_the_stack_that_is():
    headline = pd.DataFrame([contribution("encoder", 41.5), contribution("decoder", 15.5)])
    needs = pd.DataFrame([need("encoder", 100.0, "not needed"), need("decoder", 50.0, "needed")])
    numbers = pd.DataFrame(
        [{"side": "left", "model": "m", "ablated": "decoder", "pl": 0.0, "sg": 100.0}]
    )
    assert stack_sentences(headline, needs, numbers) == [
        "m, left cue: In the encoder, the cue contributes 41.5 percentage points more to the target "
        "than in untrained models. However, ablating the cue there costs less than 5 points of accuracy "
        "(100 % intact, 100 % ablated). With another word ablated, it is 98 %. In the decoder, the "
        "cue contributes 15.5 percentage points more to the target than in untrained models. Ablating the cue "
        "there lowers spelling accuracy from 100 % to 50 % (plural: to 0 %, singular: to 100 %). With "
        "another word ablated, it is 98 %. The contribution is largest in the encoder, but the loss "
        "by ablation is largest in the decoder. A high contribution is no evidence that the model "
        "uses the cue."
    ]


def test_the_short_answer_says_where_the_cue_is_needed_and_where_it_contributes_more():
    rows = [
        contribution("encoder", 41.5),
        contribution("decoder", 15.5),
        contribution("cross", 2.0, claim=""),
    ]
    needs = [
        need("encoder", 100.0, "not needed"),
        need("decoder", 50.0, "needed"),
        need("cross", 100.0, "not needed"),
    ]
    assert short_answers(pd.DataFrame(rows), pd.DataFrame(needs)) == [
        "m, left cue: Spelling accuracy falls if the cue is ablated in the "
        "decoder (from 100 % to 50 %). Ablating the cue costs less than 5 points of accuracy in the "
        "encoder or cross-attention. Compared with untrained models, the cue contributes more to "
        "the target in the encoder (+41.5 points, 95 % interval 39.5 to 43.5) and the decoder (+15.5 points, "
        "95 % interval 13.5 to 17.5). The comparison with untrained "
        "models is inconclusive in cross-attention (+2.0 points, 95 % interval 0.0 to 4.0)."
    ]


@pytest.mark.parametrize(
    ("row", "verdict", "answer"),
    [
        (
            {"claim": ""},
            "",
            "It is inconclusive whether spelling needs the cue in the encoder. The comparison with "
            "untrained models is inconcl",
        ),
        (
            {"claim": "", "twins": 3},
            None,
            "The cue's contribution differs from untrained models by +3.0 points in the encoder. "
            "Nothing is concluded from 3 untrained twins: 2 more are needed (5).",
        ),
        (
            {"claim": "", "groups": 7},
            None,
            "Nothing is concluded from 7 independent groups of clips: 8 more are needed (15)",
        ),
        (
            {},
            "at chance",
            "The need for the cue cannot be tested in the encoder: the intact model spells no better "
            "than chance. Compared with untrained models",
        ),
        (
            {"claim": "less", "difference": -8.0, "low": -9.0, "high": -7.0},
            None,
            "the cue contributes less to the target in the encoder (-8.0 points, 95 % interval -9.0 to -7.0).",
        ),
        (
            {"claim": "", "mixing_strength": 0.002},
            None,
            "m, left cue: The encoder changes the target's representation by only 0.2 % (minimum 1 "
            "%), so nothing is concluded from the cue's share there.",
        ),
        (
            {"difference": float("nan")},
            "not needed",
            "The cue's share in the target is 50.0 % in the encoder. The run has no untrained model "
            "to compare with.",
        ),
    ],
)
def test_the_short_answer_claims_no_more_than_the_long_one(row, verdict, answer):
    headline = pd.DataFrame([{**contribution("encoder", 3.0), **row}])
    needs = NOTHING if verdict is None else pd.DataFrame([need("encoder", 90.0, verdict)])
    assert answer in short_answers(headline, needs)[0]


def test_with_few_groups_no_verdict_on_need_is_in_the_short_answer():
    needs = pd.DataFrame([need("encoder", 0.0, "", groups=7)])
    (answer,) = short_answers(pd.DataFrame([contribution("encoder", 41.5)]), needs)
    assert (
        "It was not tested whether spelling needs the cue: the test needs 15 groups of clips, and this run "
        "has 7 groups." in answer
    )


def test_a_stack_without_twins_is_left_out_of_the_differences():
    rows = [
        contribution("encoder", 41.5, claim="", twins=4),
        contribution("decoder", float("nan"), claim="", twins=4),
    ]
    (answer,) = short_answers(pd.DataFrame(rows), NOTHING)
    assert "differs from untrained models by +41.5 points in the encoder. Nothing" in answer


def test_a_run_without_untrained_models_has_no_ranking():
    rows = [contribution("encoder", 0.0), contribution("decoder", 0.0)]
    headline = pd.DataFrame(rows).drop(columns=["random", "difference", "claim"])
    needs = pd.DataFrame([need("encoder", 100.0, "not needed"), need("decoder", 50.0, "needed")])
    (sentence,) = stack_sentences(headline, needs, NOTHING)
    assert "untrained models" not in sentence
    assert "The contribution is largest" not in sentence


def test_agreement_is_said_too():
    headline = pd.DataFrame([contribution("cross", 41.5), contribution("encoder", 15.5)])
    needs = pd.DataFrame([need("cross", 50.0, "needed"), need("encoder", 100.0, "not needed")])
    assert stack_sentences(headline, needs, NOTHING)[0].endswith(
        "Cross-attention has both the largest contribution and the largest loss by ablation."
    )


@pytest.mark.parametrize(
    ("row", "changes", "sentence"),
    [
        (
            {"claim": ""},
            {},
            "it is inconclusive whether the cue contributes more or less than in untrained models: "
            "+3.0 points, 95 % interval 1.0 to 5.0. Ablating "
            "the cue there costs less than 5 points",
        ),
        (
            {"claim": "less", "difference": -8.0},
            {},
            "8.0 percentage points less to the target than in untrained models",
        ),
        (
            {"difference": float("nan")},
            {},
            "In the encoder, the cue contributes 50.0 % to the target. ",
        ),
        (
            {"mixing_strength": 0.002, "claim": ""},
            {},
            "the target's representation changes by less than 1 %, so the cue's share says nothing",
        ),
        (
            {},
            {"verdict": "", "low": -3.0, "high": 20.0},
            "It is inconclusive whether spelling needs the cue there. Accuracy is 100 % for the intact "
            "model and 90 % with the cue ablated",
        ),
        (
            {},
            {"verdict": "", "low": -3.0, "high": 20.0},
            "(confidence interval of the loss: -3.0 to 20.0 points)",
        ),
        (
            {},
            {"verdict": "", "low": float("nan"), "groups": 1},
            "(1 group of clips; a test needs 15)",
        ),
        (
            {},
            {"verdict": "", "right_low": 44.0},
            "intact accuracy is 44 to 100 %, which includes chance)",
        ),
        (
            {},
            {"verdict": "at chance", "right": 53.0},
            "no better than chance (53 % correct), so the need for the cue cannot be tested",
        ),
        ({}, {"without_other": float("nan")}, "(100 % intact, 90 % ablated)."),
    ],
)
def test_what_is_not_known_is_not_claimed(row, changes, sentence):
    headline = pd.DataFrame([{**contribution("encoder", 3.0), **row}])
    needs = pd.DataFrame([{**need("encoder", 90.0, "not needed"), **changes}])
    assert sentence in stack_sentences(headline, needs, NOTHING)[0]


def test_without_ablation_need_was_not_tested():
    (sentence,) = stack_sentences(pd.DataFrame([contribution("encoder", 3.0)]), NOTHING, NOTHING)
    assert "It was not tested whether spelling needs the cue there." in sentence


def test_models_without_a_trained_one_have_no_sentence():
    headline = pd.DataFrame([contribution("encoder", float("nan"), trained=float("nan"))])
    assert stack_sentences(headline, NOTHING, NOTHING) == []


def test_controls_are_in_the_row_of_each_claim():
    headline = pd.DataFrame([contribution("encoder", 3.0, claim=""), contribution("decoder", 9.0)])
    invariant = pd.DataFrame([contribution("encoder", 2.0)])
    table = controls_table(
        headline,
        pd.DataFrame([need("decoder", 50.0, "needed")]),
        {"invariant": invariant, "after": None},
    )
    assert table.to_dict("records") == [
        {
            "side": "left",
            "model": "m",
            "stack": "encoder",
            "trained - untrained (points)": "+3.0 (1.0 to 5.0)",
            "invariant": "+2.0 (0.0 to 4.0)",
            "intact (%)": "",
            "cue ablated (%)": "",
            "another word ablated (%)": "",
        },
        {
            "side": "left",
            "model": "m",
            "stack": "decoder",
            "trained - untrained (points)": "+9.0 (7.0 to 11.0)",
            "invariant": "",
            "intact (%)": "100",
            "cue ablated (%)": "50",
            "another word ablated (%)": "98",
        },
    ]


def test_the_table_is_shown_rounded_with_its_interval():
    shown = format_need_table(pd.DataFrame([need("decoder", 52.36, "needed", side="all")]))
    assert "side" not in shown
    assert shown.loc[0, ["stack", "cue ablated (%)", "95 % interval"]].tolist() == [
        "decoder",
        52.4,
        "42.6 to 52.6",
    ]


def test_a_run_without_ablation_has_no_need():
    assert need_table(pd.DataFrame()).empty
    assert need_by_number(pd.DataFrame()).empty
