"""Maps of several objectives that share their passes, against `mix` of each objective alone;
float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import speechmix
from speechmix.errors import InputError
from speechmix.mixing.passes.forward_pass import mix_objectives
from tests.conftest import inputs_of
from tests.measures.test_gradients import SPANS, with_head

OBJECTIVES = [(3, 7, 9), (5, 2), (1, 4), (3, 7, 9)]
MEASURES = ("gradient_input", "integrated_gradients", "deeplift", "chefer")
# Each measure in one family, and the two that differ most in one with all stacks.
QUICK = {
    *(("gpt2", measure) for measure in MEASURES),
    *(("whisper-80", measure) for measure in ("gradient_input", "chefer")),
}


@pytest.mark.filterwarnings("ignore:integrated gradients")
@pytest.mark.parametrize(
    ("name", "measure"),
    [
        pytest.param(name, measure, marks=[pytest.mark.long] * ((name, measure) not in QUICK))
        for name in ("whisper-80", "gpt2", "bert", "wav2vec2-post")
        for measure in MEASURES
    ],
)
def test_each_is_that_of_mix(name, measure):
    if measure == "deeplift":
        pytest.importorskip("captum")
    model = with_head(name)
    options = {"spans": SPANS if model.hears else None}
    measure = f"{measure}:steps=3" if measure == "integrated_gradients" else measure
    together = mix_objectives(model, inputs_of(model), OBJECTIVES, measure, **options)
    assert len(together) == len(OBJECTIVES)
    for objective, found in zip(OBJECTIVES, together, strict=True):
        alone = speechmix.mix(
            model, inputs_of(model), measures=measure, objective=objective, **options
        )
        assert found.keys() == alone.keys()
        for key, expected in alone.items():
            np.testing.assert_allclose(found[key].scores, expected.scores, rtol=1e-12, atol=1e-300)
            assert found[key].provenance == expected.provenance
            assert found[key].targets == expected.targets


@pytest.mark.parametrize("measure", ["gradient_input", "chefer"])
def test_one_pass_forward_serves_all(measure, monkeypatch):
    model, runs = with_head("whisper-80"), []
    hook = model.module.register_forward_hook(lambda *_: runs.append(torch.is_grad_enabled()))
    try:
        mix_objectives(model, inputs_of(model), OBJECTIVES, measure, layers=0)
        assert runs == [True]  # beside that of the stacks alone, which says what there is
        monkeypatch.setattr("speechmix.mixing.passes.forward_pass._OBJECTIVES_PER_PASS", 2)
        mix_objectives(model, inputs_of(model), OBJECTIVES, measure, layers=0)
        assert runs == [True] * 3
    finally:
        hook.remove()


def test_the_one_that_is_not_finite_is_named():
    model = with_head("bert")
    with pytest.raises(InputError, match=r"is \[(inf|nan)\]"):
        mix_objectives(
            model,
            inputs_of(model),
            [(3, 7), lambda output: output.logits[0, 0, 0] * torch.inf],
            "gradient_input",
        )
