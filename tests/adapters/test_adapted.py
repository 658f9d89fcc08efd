"""Adapters of PEFT: scores are those of merge_and_unload(), and the object given stays as it is."""

from __future__ import annotations

import builtins
import json

import numpy as np
import pytest
import torch

import speechmix
from speechmix.errors import MissingExtraError, ModelError
from tests.adapters.test_lending import assert_same, state_of
from tests.conftest import build, inputs_of

MODELS = {
    "llama": ["q_proj", "v_proj", "up_proj"],
    "wav2vec2-post": ["v_proj", "out_proj", "output_dense"],
    "whisper-80": ["q_proj", "v_proj", "fc1"],
    "bert": ["query", "value", "dense"],
}
SOME_LONG = ["llama", "whisper-80"]
SOME_LONG += [pytest.param(name, marks=pytest.mark.long) for name in ("wav2vec2-post", "bert")]


@pytest.fixture
def peft():
    return pytest.importorskip("peft", reason="peft is not installed")


def adapted(peft, name, **options):
    """A model with LoRA weights that are not zero."""
    module = build(name)
    config = peft.LoraConfig(
        r=3, lora_alpha=9, lora_dropout=0.2, target_modules=MODELS[name], **options
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = peft.get_peft_model(module, config)
        for path, weight in model.named_parameters():
            if "lora_" in path:
                weight.data.normal_(0, 0.2)
    return model


def assert_scores_are_those_of_merging(model, merged):
    inputs = {
        key: x.float() if x.is_floating_point() else x for key, x in inputs_of(merged).items()
    }
    measures = ["value_zeroing", "attention", "alti"]
    found, expected = (speechmix.mix(one, inputs, measures=measures) for one in (model, merged))
    assert list(found) == list(expected)
    for key in expected:
        np.testing.assert_array_equal(found[key].scores, expected[key].scores)


@pytest.mark.parametrize("name", MODELS)
def test_an_object_is_merged_on_a_copy(peft, name):
    given = adapted(peft, name).train()
    before = state_of(given)
    model = speechmix.load(given)
    assert_same(before, state_of(given))
    assert_scores_are_those_of_merging(model, speechmix.load(given.merge_and_unload()))


def test_scores_are_not_those_of_the_base(peft):
    given = adapted(peft, "llama")
    model, base = speechmix.load(given), speechmix.load(build("llama"))
    assert model.fingerprint != base.fingerprint
    inputs = inputs_of(base)
    found, expected = (
        speechmix.mix(one, inputs)["value_zeroing", "decoder"].scores for one in (model, base)
    )
    assert np.abs(found - expected).max() > 1e-3


@pytest.mark.parametrize("name", SOME_LONG)
def test_adapters_inside_a_plain_model(peft, name):
    """What transformers' own add_adapter makes, and the model inside a PeftModel."""
    given = adapted(peft, name)
    expected = speechmix.load(given)
    inside = given.base_model.model
    before = state_of(inside)
    model = speechmix.load(inside)
    assert_same(before, state_of(inside))
    assert_scores_are_those_of_merging(model, expected)


def test_parts_trained_whole(peft):
    given = adapted(peft, "wav2vec2-post", modules_to_save=["lm_head"])
    weight = given.base_model.model.lm_head.modules_to_save["default"].weight
    weight.data += 1
    for source in (given, given.base_model.model):
        assert torch.equal(speechmix.load(source).module.lm_head.weight, weight)


@pytest.fixture
def folders(peft, tmp_path):
    """A base model and its adapter, saved."""

    def saved(name, base="base"):
        model = adapted(peft, name)
        build(name).save_pretrained(
            tmp_path / "adapter" / base if base == "beside" else tmp_path / base
        )
        model.save_pretrained(tmp_path / "adapter")
        path = tmp_path / "adapter" / "adapter_config.json"
        config = json.loads(path.read_text())
        config["base_model_name_or_path"] = "beside" if base == "beside" else str(tmp_path / base)
        path.write_text(json.dumps(config))
        return tmp_path / "adapter"

    return saved


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("whisper-80", "base"),
        ("llama", "beside"),
        *(
            pytest.param(name, "base", marks=pytest.mark.long)
            for name in MODELS
            if name != "whisper-80"
        ),
    ],
)
def test_a_folder_is_loaded_onto_its_base(peft, folders, name, base):
    model = speechmix.load(folders(name, base), device="cpu")
    assert model.name == "adapter"
    assert not any(part.training for part in model.module.modules())
    assert_scores_are_those_of_merging(
        model, speechmix.load(adapted(peft, name).merge_and_unload())
    )


def test_a_twin_of_an_adapted_model_is_that_of_its_base(folders):
    folder = folders("llama")
    found, expected = (
        speechmix.load(path, init="random", seed=2, device="cpu").module.state_dict()
        for path in (folder, folder.parent / "base")
    )
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_an_adapter_of_another_model(folders):
    folder = folders("llama")
    build("bert").save_pretrained(folder.parent / "base")
    with pytest.raises(ModelError, match="adapter"):
        speechmix.load(folder, device="cpu")


def test_an_adapter_that_fits_in_part(folders):
    folder = folders("llama")
    build("llama", num_hidden_layers=2).save_pretrained(folder.parent / "base")
    with pytest.raises(ModelError, match=r"does not fit LlamaForCausalLM.*no place there"):
        speechmix.load(folder, device="cpu")


def test_adapters_given_after_loading_are_noticed(peft):
    """Their change of the weights would be in the forward pass, and not in what is made of the
    weights."""
    module = build("llama")
    model = speechmix.load(module)
    peft.get_peft_model(module, peft.LoraConfig(r=3, target_modules=MODELS["llama"]))
    with pytest.raises(ModelError, match="given adapters after loading"):
        speechmix.mix(model, inputs_of(model))


def test_prompts_change_no_weights(peft):
    config = peft.PromptTuningConfig(
        task_type="CAUSAL_LM", num_virtual_tokens=3, token_dim=32, num_layers=3
    )
    with pytest.raises(ModelError, match=r"prompts.*get_base_model"):
        speechmix.load(peft.get_peft_model(build("llama"), config))


def test_an_adapter_with_whole_numbers_below_is_quantised(peft):
    given = adapted(peft, "llama")
    given.config.quantization_config = {"quant_method": "bitsandbytes"}
    with pytest.raises(ModelError, match="quantised"):
        speechmix.load(given)


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", '{"base_model_name_or_path": null}', '{"base_model_name_or_path": 3}'],
)
def test_a_damaged_adapter_config(tmp_path, content):
    (tmp_path / "adapter_config.json").write_text(content)
    with pytest.raises(ModelError, match=r"adapter_config\.json"):
        speechmix.load(tmp_path)


def test_a_base_that_is_not_there(tmp_path):
    (tmp_path / "adapter_config.json").write_text(
        json.dumps({"base_model_name_or_path": "/no/such/base"})
    )
    with pytest.raises(ModelError, match="no such folder: '/no/such/base'"):
        speechmix.load(tmp_path)


def test_without_peft_the_extra_is_named(tmp_path, monkeypatch):
    build("llama").save_pretrained(tmp_path / "base")
    (tmp_path / "adapter_config.json").write_text(
        json.dumps({"base_model_name_or_path": str(tmp_path / "base")})
    )
    imported = builtins.__import__

    def without_peft(name, *arguments, **options):
        if name == "peft":
            raise ModuleNotFoundError("No module named 'peft'", name="peft")
        return imported(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without_peft)
    with pytest.raises(MissingExtraError, match=r"needs peft: pip install .*\[peft\]'"):
        speechmix.load(tmp_path, device="cpu")
