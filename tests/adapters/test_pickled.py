"""A model goes through pickle and comes back as the same model; its repr is one line."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch

import speechmix
from speechmix.adapters.families import registry
from speechmix.inputs import bundled
from speechmix.inputs.bundled import clips
from tests.conftest import build, inputs_of, tiny, trained


@pytest.mark.parametrize("name", ["bert", "gpt2", "whisper-80", "wav2vec2-stable", "gemma3_text"])
def test_a_model_comes_back_from_pickle(name):
    model = tiny(name)
    again = pickle.loads(pickle.dumps(model))
    assert again.fingerprint == model.fingerprint
    assert repr(again) == repr(model)
    inputs = inputs_of(model)
    expected, found = (
        speechmix.mix(which, inputs, measures="value_zeroing") for which in (model, again)
    )
    for key, mixing_map in expected.items():
        np.testing.assert_array_equal(found[key].scores, mixing_map.scores)


def test_processors_and_what_the_decoder_is_told_come_along():
    model = trained("tiny-french-whisper")
    again = pickle.loads(pickle.dumps(model))
    clip = clips()[0]
    expected, found = (speechmix.mix(which, clip, measures="attention") for which in (model, again))
    assert all(
        (found[key].scores == mixing_map.scores).all() for key, mixing_map in expected.items()
    )


def test_a_copy_has_its_own_weights_and_a_shallow_one_the_same():
    model = tiny("bert")
    assert copy.deepcopy(model).module is not model.module
    assert copy.copy(model).module is model.module


def test_an_architecture_must_be_registered_where_it_is_restored(monkeypatch):
    data = pickle.dumps(tiny("bert"))
    monkeypatch.setattr(registry, "_FAMILIES", {})
    with pytest.raises(
        speechmix.SpeechmixError, match=r"no family for model type 'bert'.*speechmix.register"
    ):
        pickle.loads(data)


def test_a_changed_module_that_torch_cannot_pickle_says_what_to_do():
    module = build("wav2vec2-stable")
    module.feature_projection.projection = torch.nn.Linear(
        module.config.conv_dim[-1], module.config.hidden_size, bias=False
    )
    data = pickle.dumps(speechmix.load(module))
    with pytest.raises(
        speechmix.SpeechmixError, match=r"save it .save_pretrained., and pass the folder"
    ):
        pickle.loads(data)


def test_the_repr_is_one_line():
    shown = repr(tiny("whisper-80"))
    assert "\n" not in shown
    assert shown.startswith("Model(WhisperForConditionalGeneration: ")
    assert "; encoder 3 x 4, decoder 3 x 4, cross 3 x 4)" in shown


def test_buffers_that_no_checkpoint_stores_keep_their_precision():
    model = speechmix.load(build("gemma3_text").to(torch.float64))
    model.module.register_forward_hook(lambda *_: None)  # built again, not pickled as it is
    again = pickle.loads(pickle.dumps(model))
    assert again.fingerprint == model.fingerprint
    assert {buffer.dtype for buffer in again.module.buffers() if buffer.is_floating_point()} == {
        torch.float64
    }


def test_a_model_with_hooks_and_shared_weights_comes_back():
    """transformers leaves hooks on a model that are local functions, which pickle does not take."""
    model = speechmix.load(bundled.models()["tiny-french-whisper"])
    model.module.model.encoder.register_forward_hook(lambda *_: None)
    again = pickle.loads(pickle.dumps(model))
    assert again.fingerprint == model.fingerprint
    assert again.module.proj_out.weight is again.module.model.decoder.embed_tokens.weight
