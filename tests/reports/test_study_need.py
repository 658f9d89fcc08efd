"""The first screen's sentences: contribution and need together, each as its test says."""

from __future__ import annotations

import pandas as pd
import pytest

from speechmix.reporting.pages.cue_need_sentences import short_answers, stack_sentences
from speechmix.reporting.pages.cue_need_tables import (
    controls_table,
    format_need_table,
    need_by_number,
    need_table,
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
    row |= {"twins": 39, "groups": 20, "mixing_strength": 0.3, "more_in": "", "less_in": ""}
    return {**row, "difference": difference, "claim": claim, **others}


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
        "p": 0.01,
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
        "m, left cue: In the encoder, the cue contributes 41.5 points more than in untrained "
        "models, but ablating it there "
        "loses less than 5 points (100 % right, 100 % without the cue, 98 % without another word). "
        "In the decoder, the cue "
        "contributes 15.5 points more than in untrained models, and ablating it there lowers "
        "spelling accuracy (100 % right, "
        "50 % without the cue (plural 0 %, singular 100 %), 98 % without another word). The "
        "contribution is largest in the "
        "encoder, but the largest loss by ablation is in the decoder: a high contribution is no "
        "evidence that the model uses "
        "the cue."
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
        "m, left cue: Ablating the cue lowers spelling accuracy in the decoder (from 100 % to 50 % "
        "right). Ablating it loses "
        "less than 5 points in the encoder or cross-attention. Compared with untrained models, the "
        "cue contributes more in the "
        "encoder (+41.5 points) and the decoder (+15.5 points). The comparison with untrained "
        "models is inconclusive in "
        "cross-attention."
    ]


@pytest.mark.parametrize(
    ("row", "verdict", "answer"),
    [
        (
            {"claim": ""},
            "",
            "Whether spelling needs the cue is inconclusive in the encoder. The comparison with "
            "untrained models is inconcl",
        ),
        (
            {"claim": "", "twins": 10},
            None,
            "The cue's contribution differs from untrained models by +3.0 points in the encoder. "
            "With 10 untrained twins "
            "nothing is claimed (39 are needed).",
        ),
        (
            {"claim": "", "groups": 7},
            None,
            "With 7 groups of clips nothing is claimed (8 are needed)",
        ),
        (
            {},
            "at chance",
            "no better than chance, so need cannot be tested in the encoder. Compared with "
            "untrained models",
        ),
        (
            {"claim": "less", "difference": -8.0},
            None,
            "the cue contributes less in the encoder (-8.0 points).",
        ),
        (
            {"claim": "", "more_in": "2"},
            None,
            "the cue contributes more in single layers of the encoder.",
        ),
        (
            {"claim": "", "mixing_strength": 0.002},
            None,
            "m, left cue: The encoder changes the target's representation by only 0.2 % (minimum 1 "
            "%), so no claim is made "
            "of the cue's share there.",
        ),
        (
            {"difference": float("nan")},
            "not needed",
            "less than 5 points in the encoder. The cue contributes 50.0 % in the encoder (no "
            "untrained model to compare with)",
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
    assert "With 7 groups of clips nothing is claimed about need (8 are needed)." in answer


def test_a_stack_without_twins_is_left_out_of_the_differences():
    rows = [
        contribution("encoder", 41.5, claim="", twins=5),
        contribution("decoder", float("nan"), claim="", twins=5),
    ]
    (answer,) = short_answers(pd.DataFrame(rows), NOTHING)
    assert "differs from untrained models by +41.5 points in the encoder. With" in answer


def test_a_run_without_untrained_models_has_no_ranking():
    rows = [contribution("encoder", 0.0), contribution("decoder", 0.0)]
    headline = pd.DataFrame(rows).drop(columns=["random", "difference", "claim"])
    needs = pd.DataFrame([need("encoder", 100.0, "not needed"), need("decoder", 50.0, "needed")])
    (sentence,) = stack_sentences(headline, needs, NOTHING)
    assert "no untrained model to compare with" in sentence
    assert "The contribution is largest" not in sentence


def test_agreement_is_said_too():
    headline = pd.DataFrame([contribution("cross", 41.5), contribution("encoder", 15.5)])
    needs = pd.DataFrame([need("cross", 50.0, "needed"), need("encoder", 100.0, "not needed")])
    assert stack_sentences(headline, needs, NOTHING)[0].endswith(
        "Contribution and need both point to cross-attention."
    )


@pytest.mark.parametrize(
    ("row", "changes", "sentence"),
    [
        (
            {"claim": ""},
            {},
            "the difference to untrained models is inconclusive (+3.0 points), and ablating it "
            "there loses",
        ),
        ({"claim": "less", "difference": -8.0}, {}, "8.0 points less than in untrained models"),
        (
            {"claim": "", "more_in": "2"},
            {},
            "contributes more than in untrained models in single layers (+3.0 points overall)",
        ),
        (
            {"difference": float("nan")},
            {},
            "the cue contributes 50.0 % to the target (no untrained model to compare with)",
        ),
        (
            {"mixing_strength": 0.002, "claim": ""},
            {},
            "no source moves the target by 1 % of its state",
        ),
        (
            {},
            {"verdict": "", "low": -3.0, "high": 20.0},
            "inconclusive (100 % right, 90 % without the cue, 98 % without",
        ),
        ({}, {"verdict": "", "low": -3.0, "high": 20.0}, "; -3.0 to 20.0 points lost)"),
        (
            {},
            {"verdict": "", "low": float("nan"), "groups": 1},
            "without another word; 1 group, 8 are needed)",
        ),
        (
            {},
            {"verdict": "", "right_low": 44.0},
            "; the intact accuracy lies between 44 and 100 %)",
        ),
        (
            {},
            {"verdict": "at chance", "right": 53.0},
            "no better than chance (53 % right): need cannot be tested",
        ),
        ({}, {"without_other": float("nan")}, "(100 % right, 90 % without the cue)"),
    ],
)
def test_what_is_not_known_is_not_claimed(row, changes, sentence):
    headline = pd.DataFrame([{**contribution("encoder", 3.0), **row}])
    needs = pd.DataFrame([{**need("encoder", 90.0, "not needed"), **changes}])
    assert sentence in stack_sentences(headline, needs, NOTHING)[0]


def test_without_ablation_need_was_not_tested():
    (sentence,) = stack_sentences(pd.DataFrame([contribution("encoder", 3.0)]), NOTHING, NOTHING)
    assert "it was not tested whether spelling needs it there" in sentence


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
            "trained - untrained": "+3.0 (inconclusive)",
            "invariant": "+2.0",
            "right (%)": "",
            "cue ablated": "",
            "another word ablated": "",
        },
        {
            "side": "left",
            "model": "m",
            "stack": "decoder",
            "trained - untrained": "+9.0",
            "invariant": "",
            "right (%)": "100",
            "cue ablated": "50",
            "another word ablated": "98",
        },
    ]


def test_the_table_is_shown_rounded_with_its_interval():
    shown = format_need_table(pd.DataFrame([need("decoder", 52.36, "needed", side="all")]))
    assert "side" not in shown
    assert shown.loc[0, ["stack", "cue ablated (%)", "95 % interval", "p"]].tolist() == [
        "decoder",
        52.4,
        "42.6 to 52.6",
        "0.010",
    ]


def test_a_run_without_ablation_has_no_need():
    assert need_table(pd.DataFrame()).empty
    assert need_by_number(pd.DataFrame()).empty
