"""The first screen's sentences: contribution and need together, each as its test says."""

from __future__ import annotations

import pandas as pd
import pytest

from speechmix.reports.study_need import (
    joint_sentences,
    need_by_number,
    need_table,
    short_answers,
    shown_need,
    with_controls,
)

NOTHING = pd.DataFrame()


def contribution(stack: str, difference: float, *, claim: str = "more", **others) -> dict:
    row = {"side": "left", "model": "m", "stack": stack, "measure": "value_zeroing", "trained": 50.0, "random": 20.0}
    return {**row, "difference": difference, "claim": claim, **others}


def need(stack: str, without: float, verdict: str, **others) -> dict:
    row = {
        "side": "left",
        "model": "m",
        "ablated": stack,
        "right": 100.0,
        "without_cue": without,
        "without_other": 98.0,
    }
    row |= {
        "lost": 100 - without,
        "low": 95 - without,
        "high": 105 - without,
        "q": 0.01,
        "drop": 5.0,
        "drop_other": 0.1,
    }
    return {**row, "groups": 20, "clips": 40, "verdict": verdict, **others}


def test_a_high_contribution_that_is_not_needed_is_said_in_one_sentence_with_the_stack_that_is():
    headline = pd.DataFrame([contribution("encoder", 41.5), contribution("decoder", 15.5)])
    needs = pd.DataFrame([need("encoder", 100.0, "not needed"), need("decoder", 50.0, "needed")])
    numbers = pd.DataFrame([{"side": "left", "model": "m", "ablated": "decoder", "pl": 0.0, "sg": 100.0}])
    assert joint_sentences(headline, needs, numbers) == [
        "m, left cue: the encoder gives the cue 41.5 points more than untrained models do, yet spelling does not need it there "
        "(100 % right, 100 % without it, 98 % without another word); the decoder gives the cue 15.5 points more than untrained "
        "models do, and spelling needs it there: 100 % right, 50 % without it (plural 0 %, singular 100 %), 98 % without "
        "another word. Contribution puts the encoder first; what is needed is the decoder: do not read the one for the other."
    ]


def test_the_short_answer_says_where_the_cue_is_needed_and_where_it_is_given_more():
    given = [contribution("encoder", 41.5), contribution("decoder", 15.5), contribution("cross", 2.0, claim="")]
    needs = [need("encoder", 100.0, "not needed"), need("decoder", 50.0, "needed"), need("cross", 100.0, "not needed")]
    assert short_answers(pd.DataFrame(given), pd.DataFrame(needs)) == [
        "m, left cue: spelling needs it in the decoder (100 % right, 50 % without it), not in the encoder or cross-attention. "
        "It is given more than in untrained models in the encoder (+41.5 points) and the decoder (+15.5 points)."
    ]


@pytest.mark.parametrize(
    ("row", "asked", "answer"),
    [
        (
            {"claim": ""},
            "",
            "whether spelling needs it cannot be told in the encoder. In no stack is it given more than",
        ),
        (
            {"claim": "", "difference": 41.0, "q": float("nan")},
            None,
            "Against untrained models it is given +41.0 points in the encoder: too few clips or twins to claim anything",
        ),
        ({}, "at chance", "it spells no better than chance in the encoder. It is given more than"),
        (
            {"claim": "less", "difference": -8.0},
            None,
            "was not asked in the encoder. It is given less than in untrained models",
        ),
        (
            {"difference": float("nan")},
            "not needed",
            "does not need it in the encoder. It is given 50.0 % in the encoder (no untr",
        ),
    ],
)
def test_the_short_answer_claims_no_more_than_the_long_one(row, asked, answer):
    headline = pd.DataFrame([{**contribution("encoder", 3.0), **row}])
    needs = NOTHING if asked is None else pd.DataFrame([need("encoder", 90.0, asked)])
    assert answer in short_answers(headline, needs)[0]


def test_the_short_answer_tells_what_was_tested_from_what_could_not_be():
    given = [contribution("encoder", 41.5), {**contribution("decoder", 15.5, claim=""), "q": float("nan")}]
    given[0]["q"] = 0.01
    (answer,) = short_answers(pd.DataFrame(given), NOTHING)
    assert answer.endswith(
        "more than in untrained models in the encoder (+41.5 points); the decoder: too few clips or twins to claim anything."
    )


def test_a_run_without_untrained_models_has_no_ranking():
    rows = [contribution("encoder", 0.0), contribution("decoder", 0.0)]
    headline = pd.DataFrame(rows).drop(columns=["random", "difference", "claim"])
    needs = pd.DataFrame([need("encoder", 100.0, "not needed"), need("decoder", 50.0, "needed")])
    (sentence,) = joint_sentences(headline, needs, NOTHING)
    assert "no untrained model to compare with" in sentence
    assert "Contribution" not in sentence


def test_agreement_is_said_too():
    headline = pd.DataFrame([contribution("cross", 41.5), contribution("encoder", 15.5)])
    needs = pd.DataFrame([need("cross", 50.0, "needed"), need("encoder", 100.0, "not needed")])
    assert joint_sentences(headline, needs, NOTHING)[0].endswith("Contribution and need both point to cross-attention.")


@pytest.mark.parametrize(
    ("row", "asked", "said"),
    [
        ({"claim": ""}, {}, "no more than untrained models may (+3.0 points)"),
        ({"claim": "", "q": float("nan")}, {}, "+3.0 points against untrained models (too few clips"),
        ({"claim": "less", "difference": -8.0}, {}, "8.0 points less than untrained models do"),
        ({"difference": float("nan")}, {}, "gives the cue 50.0 % (no untrained model to compare with)"),
        ({}, {"verdict": "", "low": -3.0, "high": 20.0}, "cannot be told (100 % right, 90 % without it, 98 % without"),
        ({}, {"verdict": "", "low": -3.0, "high": 20.0}, "; between -3.0 and 20.0 points lost)"),
        ({}, {"verdict": "", "low": float("nan"), "high": float("nan"), "groups": 1}, "without another word; 1 group)"),
        ({}, {"verdict": "at chance", "right": 53.0}, "no better than chance (53 % right), so need cannot be asked"),
        ({}, {"without_other": float("nan")}, "(100 % right, 90 % without it)"),
    ],
)  # fmt: skip
def test_what_is_not_known_is_not_claimed(row, asked, said):
    headline = pd.DataFrame([{**contribution("encoder", 3.0), **row}])
    needs = pd.DataFrame([{**need("encoder", 90.0, "not needed"), **asked}])
    assert said in joint_sentences(headline, needs, NOTHING)[0]


def test_without_ablation_need_was_not_asked():
    (sentence,) = joint_sentences(pd.DataFrame([contribution("encoder", 3.0)]), NOTHING, NOTHING)
    assert "whether spelling needs it there was not asked" in sentence


def test_models_without_a_trained_one_have_no_sentence():
    headline = pd.DataFrame([contribution("encoder", float("nan"), trained=float("nan"))])
    assert joint_sentences(headline, NOTHING, NOTHING) == []


def test_controls_stand_beside_each_claim():
    headline = pd.DataFrame([contribution("encoder", 3.0, claim=""), contribution("decoder", 9.0)])
    invariant = pd.DataFrame([contribution("encoder", 2.0)])
    table = with_controls(
        headline, pd.DataFrame([need("decoder", 50.0, "needed")]), {"invariant": invariant, "after": None}
    )
    assert table.to_dict("records") == [
        {"side": "left", "model": "m", "stack": "encoder", "trained - untrained": "+3.0 (no claim)", "invariant": "+2.0",
         "right (%)": "", "cue silenced": "", "another word silenced": ""},
        {"side": "left", "model": "m", "stack": "decoder", "trained - untrained": "+9.0", "invariant": "",
         "right (%)": "100", "cue silenced": "50", "another word silenced": "98"},
    ]  # fmt: skip


def test_the_table_is_shown_rounded_with_its_interval():
    shown = shown_need(pd.DataFrame([need("decoder", 52.36, "needed", side="all")]))
    assert "side" not in shown
    assert shown.loc[0, ["stack", "cue silenced (%)", "95 % interval", "q"]].tolist() == [
        "decoder",
        52.4,
        "42.6 to 52.6",
        "0.010",
    ]


def test_a_run_of_an_earlier_version_has_no_need():
    assert need_table(pd.DataFrame()).empty
    assert need_by_number(pd.DataFrame()).empty
