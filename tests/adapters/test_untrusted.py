"""Folders that somebody else made: code of their own is never run, and what is broken is an error
of this package."""

from __future__ import annotations

import io
import json
import shutil
import sys

import pytest
import safetensors.torch
import torch
import transformers

import speechmix
from speechmix.errors import ModelError
from speechmix.extensions.estimate.operation_count import build_meta_model
from tests.adapters.test_adapted import adapted
from tests.conftest import build

CODE = """
import pathlib
pathlib.Path(__file__).resolve()
pathlib.Path({witness!r}).write_text("ran")
from transformers import BertConfig, BertModel, BertTokenizer
class OwnConfig(BertConfig):
    model_type = {kind!r}
class OwnModel(BertModel):
    config_class = OwnConfig
class OwnTokenizer(BertTokenizer):
    pass
"""


@pytest.fixture
def answers_yes(monkeypatch):
    """Whoever asks on the terminal is told yes."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n" * 20))
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    monkeypatch.setattr(transformers.dynamic_module_utils, "HF_MODULES_CACHE", "/nowhere")


def folder_with_code(folder, kind, *, auto_map, architecture="OwnModel"):
    """A model whose config names a module of the folder; the module leaves a witness when it is
    run."""
    build("bert").save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": kind, "auto_map": auto_map, "architectures": [architecture]}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "own.py").write_text(CODE.format(witness=str(folder / "witness"), kind=kind))
    return folder


@pytest.mark.parametrize("init", ["trained", "random"])
def test_code_of_a_model_folder_is_not_run(tmp_path, answers_yes, init):
    auto_map = {"AutoConfig": "own.OwnConfig", "AutoModel": "own.OwnModel"}
    folder = folder_with_code(tmp_path / "model", "own_kind", auto_map=auto_map)
    with pytest.raises(ModelError, match=r"Python code of its own.*never runs"):
        speechmix.load(folder, init=init, device="cpu")
    with pytest.raises(ModelError, match=r"Python code of its own"):
        build_meta_model(folder)
    assert not (folder / "witness").exists()


def test_code_beside_a_known_model_is_not_run(tmp_path, answers_yes):
    auto_map = {"AutoModel": "own.OwnModel", "AutoConfig": "own.OwnConfig"}
    folder = folder_with_code(
        tmp_path / "model", "bert", auto_map=auto_map, architecture="BertForMaskedLM"
    )
    assert speechmix.load(folder, device="cpu").family.name == "bert"
    assert not (folder / "witness").exists()


def test_code_of_a_tokenizer_is_not_run(tmp_path, answers_yes):
    folder = tmp_path / "model"
    build("bert").save_pretrained(folder)
    told = {
        "tokenizer_class": "OwnTokenizer",
        "auto_map": {"AutoTokenizer": ["own.OwnTokenizer", None]},
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(told))
    (folder / "own.py").write_text(CODE.format(witness=str(folder / "witness"), kind="x"))
    speechmix.load(folder, device="cpu")  # with transformers' own tokenizer for BERT, or none
    assert not (folder / "witness").exists()


def test_an_attention_kernel_from_the_hub_is_refused(tmp_path):
    build("bert").save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(
        json.dumps({**config, "attn_implementation": "stranger/kernel"})
    )
    with pytest.raises(ModelError, match="code from the hub"):
        speechmix.load(tmp_path, device="cpu")


@pytest.fixture(scope="module")
def whole_adapter(tmp_path_factory):
    """A folder with a LoRA adapter of a tiny model, which no test changes."""
    peft = pytest.importorskip("peft", reason="peft is not installed")
    folder = tmp_path_factory.mktemp("adapter")
    build("bert").save_pretrained(folder / "base")
    adapted(peft, "bert").save_pretrained(folder / "adapter")
    change_config(folder / "adapter", base_model_name_or_path=str(folder / "base"))
    return folder / "adapter"


@pytest.fixture
def adapter(whole_adapter, tmp_path):
    """A copy of it to be damaged."""
    return shutil.copytree(whole_adapter, tmp_path / "adapter")


def change_config(adapter, **entries):
    path = adapter / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **entries}))


@pytest.mark.parametrize("length", [0, 7, 8, 100, -1])
def test_a_cut_adapter_is_a_clear_error(adapter, length):
    path = adapter / "adapter_model.safetensors"
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(ModelError, match="adapter"):
        speechmix.load(adapter, device="cpu")


def test_a_flipped_header_of_an_adapter_is_a_clear_error(adapter):
    path = adapter / "adapter_model.safetensors"
    whole = path.read_bytes()
    for position in range(0, 120, 13):
        damaged = bytearray(whole)
        damaged[position] ^= 0x20
        path.write_bytes(damaged)
        try:
            speechmix.load(adapter, device="cpu", check=False)
        except ModelError:
            continue


@pytest.mark.parametrize(
    "entries",
    [
        {"r": 10**9},
        {"r": -1},
        {"r": "3"},
        {"rank_pattern": {"query": 10**8}},
        {"peft_type": "NOTHING"},
        {"target_modules": "("},
        {"target_modules": 3},
        {"layers_to_transform": "x"},
        {"base_model_name_or_path": "a\0b"},
    ],
)
def test_a_hostile_adapter_config_is_a_clear_error(adapter, entries):
    change_config(adapter, **entries)
    with pytest.raises(ModelError, match="adapter"):
        speechmix.load(adapter, device="cpu")


def test_an_adapter_that_is_a_pickle_with_code_is_refused(adapter):
    class Hostile:
        def __reduce__(self):
            return (exec, (f"open({str(adapter / 'witness')!r}, 'w').close()",))

    (adapter / "adapter_model.safetensors").unlink()
    torch.save({"a": Hostile()}, adapter / "adapter_model.bin")
    with pytest.raises(ModelError, match="adapter"):
        speechmix.load(adapter, device="cpu")
    assert not (adapter / "witness").exists()


def test_an_adapter_of_other_weights_is_a_clear_error(adapter):
    safetensors.torch.save_file({"a": torch.zeros(3)}, adapter / "adapter_model.safetensors")
    with pytest.raises(ModelError, match="adapter"):
        speechmix.load(adapter, device="cpu")
