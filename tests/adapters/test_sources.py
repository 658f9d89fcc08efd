"""What load() says to things that people pass, and the names that options have in transformers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file

import speechmix
from speechmix.errors import InputError, ModelError, SpeechmixError
from speechmix.inputs.bundled import clips, models
from tests.conftest import build, inputs_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "bert"
    build("bert").save_pretrained(path)
    return path


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    import huggingface_hub.constants

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)


class TestPlaces:
    @pytest.mark.parametrize(
        "place",
        ["./nowhere", "../no/where", "/no/such/place", "~/no-such-model", "a/b/c", "models/"],
    )
    def test_a_path_that_leads_nowhere_is_called_that(self, place):
        with pytest.raises(ModelError, match="no such folder"):
            speechmix.load(place)

    def test_and_says_how_far_it_leads(self, tmp_path):
        with pytest.raises(ModelError) as error:
            speechmix.load(tmp_path / "runs" / "best")
        assert f"{str(tmp_path)!r} is there, 'runs' is not in it" in str(error.value)

    def test_a_name_beside_a_folder_may_be_either(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "runs").mkdir()
        with pytest.raises(
            ModelError,
            match=r"hub id or a folder.*no such folder: 'runs' is there, but 'best' is not",
        ):
            speechmix.load("runs/best")

    def test_a_relative_folder_and_one_at_home_are_found(self, folder, monkeypatch):
        monkeypatch.chdir(folder.parent)
        monkeypatch.setenv("HOME", str(folder.parent))
        for place in ("bert", "./bert", "~/bert"):
            assert speechmix.load(place, device="cpu").name == "bert"

    def test_a_folder_without_a_model(self, tmp_path):
        with pytest.raises(ModelError, match=r"no config\.json.*found nothing.*save_pretrained"):
            speechmix.load(tmp_path)
        (tmp_path / "notes.txt").touch()
        build("bert").save_pretrained(tmp_path / "checkpoint-20")
        with pytest.raises(
            ModelError, match=r"found checkpoint-20, notes\.txt.*its folder 'checkpoint-20'"
        ):
            speechmix.load(tmp_path)

    def test_a_file_in_place_of_its_folder(self, folder):
        with pytest.raises(ModelError, match=rf"is a file.*pass the folder \({str(folder)!r}\)"):
            speechmix.load(folder / "model.safetensors")

    @pytest.mark.parametrize(
        "config",
        [
            "",
            "{",
            "[]",
            "null",
            '"bert"',
            "{}",
            '{"model_type": 3}',
            '{"model_type": "bert", "hidden_size": "wide"}',
            "\0\0",
        ],
    )
    def test_a_damaged_config(self, tmp_path, folder, config):
        (tmp_path / "config.json").write_text(config)
        (tmp_path / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
        for init in ("trained", "random"):
            with pytest.raises(SpeechmixError):
                speechmix.load(tmp_path, init=init, device="cpu")

    @pytest.mark.parametrize(
        "content", [b"", b"{}", b'\x08\0\0\0\0\0\0\0{"a":1}', b"<html>not found</html>" * 9]
    )
    def test_damaged_weights(self, tmp_path, folder, content):
        (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
        for name in ("model.safetensors", "pytorch_model.bin"):
            (tmp_path / name).write_bytes(content)
            with pytest.raises(ModelError, match="weights"):
                speechmix.load(tmp_path, device="cpu")
            (tmp_path / name).unlink()

    @pytest.mark.parametrize("name", ["", "a" * 5_000, "a\0b", "nobody/no such model", "//", "-"])
    def test_odd_names(self, name):
        with pytest.raises(SpeechmixError):
            speechmix.load(name)


class TestThings:
    @pytest.mark.parametrize(
        ("thing", "says"),
        [
            (None, "found None"),
            (3, "found 3 of type int"),
            (transformers.BertModel, r"the class BertModel: pass BertModel\.from_pretrained"),
            (transformers.BertConfig(), r"BertConfig: a config has no weights"),
            (
                transformers.WhisperFeatureExtractor(),
                r"WhisperFeatureExtractor: pass the model, and this as processor=",
            ),
            ({"weight": torch.zeros(3)}, r"weights alone \(a state dict of 1 tensors\)"),
            ([1, 2], "found \\[1, 2\\]"),
        ],
        ids=str,
    )
    def test_what_is_no_model(self, thing, says):
        with pytest.raises(InputError, match=says):
            speechmix.load(thing)

    def test_a_processor_and_a_loaded_model(self):
        model = speechmix.load(models()["tiny-french-ctc"], device="cpu")
        with pytest.raises(InputError, match="Wav2Vec2CTCTokenizer: pass the model"):
            speechmix.load(model.tokenizer)
        with pytest.raises(InputError, match=r"loaded already.*\.module"):
            speechmix.load(model)

    def test_a_module_that_is_no_transformers_model(self):
        with pytest.raises(ModelError, match="Linear, which has no config"):
            speechmix.load(torch.nn.Linear(3, 3))

    @pytest.mark.parametrize("name", ["tiny-french-ctc", "tiny-french-whisper"])
    def test_a_pipeline_brings_its_processor(self, name):
        pytest.importorskip("torchaudio")
        pipeline = transformers.pipeline(
            "automatic-speech-recognition", str(models()[name]), device="cpu"
        )
        model, expected = (
            speechmix.load(pipeline),
            speechmix.load(models()[name], device="cpu", dtype="auto"),
        )
        assert model.module is pipeline.model
        assert model.fingerprint == expected.fingerprint
        clip = clips()[1]
        for key, scores in speechmix.mix(expected, clip).items():
            np.testing.assert_array_equal(speechmix.mix(model, clip)[key].scores, scores.scores)

    @pytest.mark.long
    def test_wrappers_are_taken_off(self):
        module = build("bert")
        assert speechmix.load(torch.nn.DataParallel(module)).module is module
        assert speechmix.load(torch.compile(module)).module is module

    def test_processor_that_is_none(self, folder):
        with pytest.raises(InputError, match="processor= takes a processor"):
            speechmix.load(folder, processor="facebook/wav2vec2", device="cpu")

    def test_a_model_that_is_not_in_memory(self):
        with torch.device("meta"):
            module = transformers.BertModel(build("bert").config)
        with pytest.raises(ModelError, match=r"lies on meta.*in memory, whole"):
            speechmix.load(module)

    def test_a_model_on_two_devices(self):
        module = build("bert")
        module.bert.encoder.layer[2].to("meta")
        with pytest.raises(ModelError, match=r"lies on cpu, meta.*device_map"):
            speechmix.load(module)


class TestQuantised:
    def test_torch_int8(self):
        module = build("bert")
        torch.ao.quantization.quantize_dynamic(
            module, {torch.nn.Linear}, dtype=torch.qint8, inplace=True
        )
        with pytest.raises(ModelError, match=r"is quantised.*coarse.*checkpoint it was made from"):
            speechmix.load(module)

    def test_an_object_that_says_so(self):
        module = build("bert")
        module.config.quantization_config = transformers.BitsAndBytesConfig(load_in_8bit=True)
        with pytest.raises(ModelError, match="bitsandbytes"):
            speechmix.load(module)

    def test_weights_that_are_whole_numbers(self):
        module = build("bert")
        module.bert.encoder.layer[0].output.dense.weight = torch.nn.Parameter(
            torch.zeros(32, 48, dtype=torch.int8), requires_grad=False
        )
        with pytest.raises(ModelError, match=r"quantised.*output\.dense\.weight is torch\.int8"):
            speechmix.load(module)

    @pytest.mark.parametrize("method", ["gptq", "awq", "bitsandbytes"])
    def test_a_checkpoint(self, tmp_path, folder, method):
        config = json.loads((folder / "config.json").read_text())
        config["quantization_config"] = {"quant_method": method, "bits": 4, "load_in_8bit": True}
        (tmp_path / "config.json").write_text(json.dumps(config))
        with pytest.raises(ModelError, match=rf"quantised \({method}\)"):
            speechmix.load(tmp_path)


class TestOptionsAsInTransformers:
    def test_torch_dtype(self, folder):
        assert (
            speechmix.load(folder, torch_dtype=torch.float64, device="cpu").dtype == torch.float64
        )
        with pytest.raises(InputError, match="one option"):
            speechmix.load(folder, torch_dtype="float64", dtype="float32")

    def test_auto_is_the_checkpoints_own(self, tmp_path, folder):
        build("bert").to(torch.bfloat16).save_pretrained(tmp_path)
        assert speechmix.load(tmp_path, torch_dtype="auto", device="cpu").dtype == torch.bfloat16
        assert speechmix.load(folder, dtype="auto", device="cpu").dtype == torch.float32
        module = build("bert").double()
        assert speechmix.load(module, dtype="auto").module is module

    @pytest.mark.parametrize(
        "device_map",
        ["cpu", "auto", {"": "cpu"}, torch.device("cpu"), {"bert": "cpu", "cls": "cpu"}],
    )
    def test_one_device(self, folder, device_map):
        model = speechmix.load(folder, device_map=device_map)
        assert model.device.type in ("cpu", "cuda")

    @pytest.mark.parametrize("device_map", [{"a": 0, "b": "cpu"}, {"": "disk"}])
    def test_several_devices_are_refused_with_the_reason(self, folder, device_map):
        with pytest.raises(InputError, match=r"spreads a model.*one device"):
            speechmix.load(folder, device_map=device_map)

    def test_device_that_is_not_there(self, folder):
        with pytest.raises(InputError, match="device should be"):
            speechmix.load(folder, device_map="gpu")

    @pytest.mark.parametrize(
        ("option", "says"),
        [
            ({"attn_implementation": "eager"}, "leave it out"),
            ({"trust_remote_code": True}, "pass the object"),
            ({"load_in_8bit": True}, "quantised"),
            ({"tokenizer": object()}, "processor="),
            ({"devices": "cpu"}, r"did you mean device=\?"),
            ({"anything": 1}, "no option anything="),
        ],
        ids=lambda value: " ".join(value) if isinstance(value, dict) else None,
    )
    def test_others_are_refused_by_name(self, folder, option, says):
        with pytest.raises(InputError, match=says):
            speechmix.load(folder, **option)


@pytest.mark.long
def test_loading_and_mixing_change_no_global_state(folder):
    """Environment, defaults of torch, random states: looked at in a process of its own."""
    code = """
import os, random, sys, warnings
import numpy as np, torch, transformers
before_import = dict(os.environ)
import speechmix
assert dict(os.environ) == before_import
transformers.AutoModel, transformers.AutoTokenizer  # what transformers itself does on import is its own
def state():
    return (
        dict(os.environ), torch.get_default_dtype(), str(torch.get_default_device()), torch.is_grad_enabled(),
        torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate(), torch.get_num_threads(),
        torch.are_deterministic_algorithms_enabled(), torch.backends.cuda.matmul.allow_tf32, list(warnings.filters),
        torch.get_float32_matmul_precision(), transformers.logging.get_verbosity(), os.getcwd(), sys.path[:],
    )
torch.set_default_dtype(torch.float64)
speechmix.load(sys.argv[1], device="cpu")  # once, for lazy imports
before = state()
for init in ("trained", "random"):
    model = speechmix.load(sys.argv[1], init=init, device="cpu")
    assert model.dtype == torch.float32
    speechmix.load(model.module, dtype="float64", init=init)
    speechmix.mix(model, {"input_ids": torch.arange(4, 12)[None]})
    model.fingerprint
assert [a == b for a, b in zip(before, state())] == [True] * len(before)
"""
    here = str(Path(speechmix.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": here}
    found = subprocess.run(
        [sys.executable, "-c", code, folder],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert found.returncode == 0, found.stderr


def test_a_twin_is_the_same_under_any_default_precision(folder):
    expected = speechmix.load(folder, init="random", seed=3, device="cpu").module.state_dict()
    torch.set_default_dtype(torch.float64)
    try:
        twins = [
            speechmix.load(source, init="random", seed=3, device="cpu")
            for source in (folder, build("bert").float())
        ]
    finally:
        torch.set_default_dtype(torch.float32)
    for twin in twins:
        weights = twin.module.state_dict()
        assert all(torch.equal(weights[name], expected[name]) for name in expected)


def test_given_weights_are_read_whole(folder):
    stored = load_file(folder / "model.safetensors")
    model = speechmix.load(folder, device="cpu")
    weights = model.module.state_dict()
    assert all(torch.equal(weights[name], tensor) for name, tensor in stored.items())
    assert inputs_of(model)
