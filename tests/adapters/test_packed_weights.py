"""Models in 4 bits of bitsandbytes are measured as their unpacked selves; other quantised models
are refused (needs bitsandbytes, which speechmix does not)."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
import transformers

import speechmix
from speechmix.adapters.capture import module_access
from speechmix.adapters.capture import module_access as weight_conversion
from speechmix.errors import ModelError
from tests.adapters.test_lending import assert_same, state_of
from tests.conftest import build, inputs_of
from tests.models import audio_language_models

bnb = pytest.importorskip("bitsandbytes")


def packed(module, *, compute_dtype=torch.float32, skipped=("lm_head",)):
    """A copy of a model whose linear layers are in 4 bits, and one with the numbers they stand
    for."""
    unpacked = copy.deepcopy(module)
    module = copy.deepcopy(module)
    for name, layer in list(module.named_modules()):
        if type(layer) is torch.nn.Linear and not name.endswith(skipped):
            small = bnb.nn.Linear4bit(
                layer.in_features,
                layer.out_features,
                bias=layer.bias is not None,
                compute_dtype=compute_dtype,
                quant_type="nf4",
            )
            small.weight = bnb.nn.Params4bit(layer.weight.data, False, quant_type="nf4")
            small.bias = layer.bias
            small = small.to("cpu")  # packs
            module.set_submodule(name, small)
            numbers = bnb.functional.dequantize_4bit(small.weight.data, small.weight.quant_state)
            assert numbers.dtype == layer.weight.dtype
            unpacked.get_submodule(name).weight.data = numbers
    return module, unpacked


@pytest.fixture
def no_memory(monkeypatch):
    monkeypatch.setattr(module_access, "free_bytes", lambda device: 0)
    monkeypatch.setattr(weight_conversion, "_RECENT_BYTES", 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["llama", "qwen2", "wav2vec2-stable", "bart"])
def test_scores_are_those_of_the_unpacked_model(name, dtype, no_memory):
    module, unpacked = packed(build(name).to(dtype))
    before = state_of(module)
    model, expected_model = speechmix.load(module), speechmix.load(unpacked)
    inputs = {key: x.float() if x.is_floating_point() else x for key, x in inputs_of(model).items()}
    options = {"measures": ["value_zeroing", "attention", "attention_norm"]}
    if name == "llama":
        options = {"measures": [*options["measures"], "gradient_input"], "objective": (3, 5)}
    found, expected = (speechmix.mix(each, inputs, **options) for each in (model, expected_model))
    for key in expected:
        np.testing.assert_array_equal(found[key].scores, expected[key].scores)
    assert_same(before, state_of(module))


def test_states_are_those_of_the_model_itself():
    module, _ = packed(build("llama"))
    ids = torch.arange(4, 34)[None]
    own = module(ids).logits
    model = speechmix.load(module)
    with model.in_use(torch.float32), torch.no_grad():
        torch.testing.assert_close(model.module(ids).logits, own, rtol=1e-5, atol=1e-5)
    assert torch.equal(module(ids).logits, own)


def test_an_audio_language_model(no_memory):
    module, processor = audio_language_models.qwen2_audio()
    small, unpacked = packed(module.to(torch.bfloat16))
    clip = speechmix.Clip.from_array(
        np.random.default_rng(0).standard_normal(16_000).astype(np.float32) / 9,
        16_000,
        words=[("a", 0.1, 0.4), ("b", 0.5, 0.9)],
    )
    found, expected = (
        speechmix.mix(
            speechmix.load(each, processor=processor).with_prompt("Who?", answer="I"), clip
        )
        for each in (small, unpacked)
    )
    for key in expected:
        np.testing.assert_array_equal(found[key].scores, expected[key].scores)


def test_the_fingerprint_counts_the_scales():
    module, _ = packed(build("llama"))
    model = speechmix.load(module)
    before = model.fingerprint
    module.model.layers[0].mlp.up_proj.weight.quant_state.absmax.mul_(2)
    model.forget_fingerprint()
    assert model.fingerprint != before


def test_eight_bits_are_refused():
    module = build("llama")
    module.model.layers[0].mlp.up_proj = bnb.nn.Linear8bitLt(32, 48, has_fp16_weights=False)
    with pytest.raises(ModelError, match=r"quantised \(Linear8bitLt\)"):
        speechmix.load(module)
    module, _ = packed(build("llama"))
    module.model.layers[0].mlp.up_proj = bnb.nn.Linear8bitLt(32, 48, has_fp16_weights=False)
    with pytest.raises(ModelError, match=r"quantised \(Linear8bitLt\)"):
        speechmix.load(module)


def test_a_folder_says_how_to_load_it(tmp_path):
    build("llama").save_pretrained(tmp_path)
    config = transformers.AutoConfig.from_pretrained(tmp_path)
    config.quantization_config = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    config.save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="load the model with transformers and pass the object"):
        speechmix.load(tmp_path)
