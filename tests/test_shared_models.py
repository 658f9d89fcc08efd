"""The guard over models that tests share: whatever a test leaves changed is found, and the model is
made anew."""

from __future__ import annotations

import pytest
import torch

import speechmix
from tests.conftest import build
from tests.models import shared_models

KEY = ("for this test alone",)


def made():
    return speechmix.load(build("bert"))


CHANGES = {
    "a weight, behind torch's back": lambda model: next(model.module.parameters()).data.add_(1e-6),
    "a frozen weight": lambda model: next(model.module.parameters()).requires_grad_(True),
    "training": lambda model: model.module.train(),
    "a hook": lambda model: model.module.cls.register_forward_hook(lambda *_: None),
    "the config": lambda model: setattr(model.config, "layer_norm_eps", 1.0),
    "attention": lambda model: setattr(model.config, "_attn_implementation", "eager"),
    "a tokenizer": lambda model: setattr(model, "tokenizer", "another"),
    "stacks": lambda model: model.stacks.clear(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_found_and_the_model_made_anew(change):
    model = shared_models.shared(KEY, made)
    assert shared_models.changed_since_taken() == []
    assert shared_models.shared(KEY, made) is model
    CHANGES[change](model)
    assert shared_models.changed_since_taken() == [KEY]
    assert shared_models.shared(KEY, made) is not model
    assert shared_models.changed_since_taken() == []


def test_what_measuring_does_is_no_change():
    model = shared_models.shared(KEY, made)
    ids = {"input_ids": torch.arange(4, 12)[None]}
    speechmix.mix(model, ids, measures=["value_zeroing", "alti", "hta"])
    with torch.no_grad():
        model.module(**ids, output_attentions=True)
    assert shared_models.changed_since_taken() == []
