"""Attributions of the measures to the output: sums over a word's tokens of what each says of one
logit."""

from __future__ import annotations

import numpy as np
import pytest

import speechmix
from speechmix.errors import InputError
from tests.explanations.test_explain import CTC, WHISPER, clip_named, model_named

NEW = ["chefer", "lrp", "entropy_attention", "value_zeroing_share"]


@pytest.fixture(scope="module", params=[CTC, pytest.param(WHISPER, marks=pytest.mark.long)])
def explained(request):
    model = model_named(request.param)
    return model, speechmix.explain(model, clip_named(), measures=NEW, against="runner_up")


def test_all_are_asked_of_both_models(explained):
    _, why = explained
    assert list(why.attributions) == NEW
    assert {name: attribution.of for name, attribution in why.attributions.items()} == {
        "chefer": "size",
        "lrp": "logit",
        "entropy_attention": "share",
        "value_zeroing_share": "share",
    }
    for attribution in why.attributions.values():
        reached = attribution.values[np.isfinite(attribution.values)]
        assert len(reached)
        assert reached.any()


def test_what_lrp_claims_and_the_rest_are_the_logits(explained):
    _, why = explained
    attribution = why.attributions["lrp"]
    np.testing.assert_allclose(
        np.nansum(attribution.values, axis=1) + attribution.rest,
        attribution.totals,
        rtol=0,
        atol=1e-10,
    )
    assert np.abs(attribution.rest).max() > 1e-3


def test_a_word_is_the_sum_of_its_tokens(explained):
    model, by_word = explained
    by_token = speechmix.explain(
        model, clip_named(), measures=["chefer", "lrp"], against=(), by="token"
    )
    for measure in ("chefer", "lrp"):
        tokens = by_token.attributions[measure].values
        for row, choice in enumerate(by_word.choices):
            if choice.contrast is None:
                heard = [
                    place for place, source in enumerate(by_word.sources) if source.side == "sound"
                ]
                places = [
                    place for place, _ in enumerate(by_token.choices) if place in choice.tokens
                ]
                np.testing.assert_allclose(
                    by_word.attributions[measure].values[row, heard],
                    tokens[places][:, heard].sum(0),
                    rtol=0,
                    atol=1e-10,
                )


def test_chefer_is_asked_for_logits_alone():
    model = model_named(CTC)
    with pytest.raises(InputError, match="reads one row of its relevances"):
        speechmix.mix(model, clip_named(), measures="chefer", objective="ctc")


@pytest.mark.parametrize(
    ("name", "together"),
    [
        (CTC, ["attention", "alti_logit", "value_zeroing"]),
        (WHISPER, ["attention", "alti_logit", "value_zeroing"]),
        (CTC, ["attention", "entropy_attention"]),
        pytest.param(WHISPER, ["attention", "entropy_attention"], marks=pytest.mark.long),
    ],
)
def test_measures_of_one_pass_claim_what_each_claims_alone(name, together):
    model, passes = model_named(name), []

    def asked(*measures):
        runs = []
        hook = (
            model.stacks["encoder"]
            .layers[-1]
            .module.register_forward_hook(lambda *_: runs.append(1))
        )
        try:
            return speechmix.explain(
                model, clip_named(), measures=measures, against="runner_up", by="token", top=0
            )
        finally:
            hook.remove()
            passes.append(len(runs))

    found, *alone = [asked(*together), *(asked(measure) for measure in together)]
    assert passes[0] == max(passes[1:])  # one more measure is no further pass
    assert list(found.attributions) == together
    for measure, why in zip(together, alone, strict=True):
        np.testing.assert_allclose(
            found.attributions[measure].values,
            why.attributions[measure].values,
            rtol=1e-12,
            atol=1e-14,
            equal_nan=True,
        )
        if measure == "alti_logit":
            np.testing.assert_allclose(
                found.attributions[measure].totals, why.attributions[measure].totals, rtol=1e-12
            )


def test_one_that_is_not_defined_is_left_out_and_the_others_are_there(monkeypatch):
    model = model_named(CTC)

    def fails(*_):
        raise InputError("not today")

    monkeypatch.setattr(
        "speechmix.extensions.logit_decompositions.alti_logit_passes.output_head", fails
    )
    why = speechmix.explain(model, clip_named(), top=0)
    assert ("alti_logit", "not today") in why.left_out
    assert {"occlusion", "gradient_input"} <= why.attributions.keys()
