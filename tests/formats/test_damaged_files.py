"""Damaged and foreign files of other engines: one clear line, no code is run, and nothing is allocated for
a length that the file does not hold."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch

import speechmix
from speechmix.adapters.loading.foreign_checkpoint import open_checkpoint
from speechmix.errors import InputError, ModelError, SpeechmixError
from tests.formats import writers
from tests.formats.damage import damage
from tests.formats.test_formats import write

FORMATS = (
    "ggml",
    pytest.param("f16", marks=pytest.mark.long),  # in all but the blocks like "ggml" and "q5_0"
    "q5_0",
    pytest.param("q8_0", marks=pytest.mark.long),
    "openai",
    "MLX",
    "MLX safetensors",
    "CTranslate2",
    "CTranslate2 wav2vec2",
    "ONNX",
)
# What a value of a text file may be instead.
ODD_VALUES = (None, "x", -1, 0, 2**31, 10**30, 1.5, float("nan"), [], [[]], ["x"], {}, [[0, 10**9]])
pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="limits memory as Linux does"),
]


@pytest.fixture(scope="module")
def module():
    return writers.small_whisper()


@contextlib.contextmanager
def memory_limit(more: int):
    """Let this process have so many more bytes: an allocation over them is a MemoryError."""
    resource = pytest.importorskip("resource")
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + more, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


def open_all(path: Path) -> str | None:
    """Open a checkpoint and everything in it; return the error's message, None without one."""
    try:
        with memory_limit(2**29):
            checkpoint = open_checkpoint(path)
            if checkpoint is not None:
                checkpoint.load_module(torch.float32)
                checkpoint.load_tokenizer()
                checkpoint.load_extractor()
    except SpeechmixError as error:
        return str(error)
    return None


@pytest.mark.usefixtures("quick_tokenizer")
@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("count", [12, pytest.param(1000, marks=pytest.mark.long)])
def test_damaged_files_are_one_clear_error(kind, count, module, tmp_path):
    path, file = write(kind, module, tmp_path / "model")
    data, rng = file.read_bytes(), np.random.default_rng(0)
    messages = []
    for number in range(count):
        is_archive = kind in ("openai", "MLX")
        file.write_bytes(damage(data, rng, number, is_list_at_end=is_archive))
        if (message := open_all(path)) is not None:
            messages.append(message)
    assert len(messages) >= count / 8
    assert all("\n" not in message and str(path) in message for message in messages)
    file.write_bytes(data[:100])
    with pytest.raises((ModelError, InputError), match=re.escape(str(path))):
        speechmix.load(path)


def list_places(value, place=()):
    """Yield where a value is in a JSON document: the keys that lead to it."""
    yield place
    if isinstance(value, (dict, list)):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, part in list(items)[:40]:
            yield from list_places(part, (*place, key))


def replace_value(text: str, place, value) -> str:
    content = json.loads(text)
    if not place:
        return json.dumps(value)
    holder = content
    for key in place[:-1]:
        holder = holder[key]
    holder[place[-1]] = value
    return json.dumps(content)


@pytest.mark.usefixtures("quick_tokenizer")
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("CTranslate2", "config.json"),
        ("CTranslate2", "tokenizer.json"),
        ("CTranslate2 wav2vec2", "vocab.json"),
        ("CTranslate2 wav2vec2", "tokenizer_config.json"),
        ("CTranslate2 wav2vec2", "preprocessor_config.json"),
        ("MLX", "config.json"),
        ("ONNX", "config.json"),
        ("ONNX", "generation_config.json"),
    ],
)
@pytest.mark.parametrize("count", [12, pytest.param(1000, marks=pytest.mark.long)])
def test_odd_values_in_the_texts_beside_are_one_clear_error(kind, name, count, module, tmp_path):
    path, file = write(kind, module, tmp_path / "model")
    file = file.with_name(name)
    text = file.read_text()
    cases = [(place, odd) for place in list_places(json.loads(text)) for odd in ODD_VALUES]
    order = np.random.default_rng(0).permutation(len(cases))[:count]
    messages = []
    for place, odd in (cases[index] for index in order):
        file.write_text(replace_value(text, place, odd))
        if (message := open_all(path)) is not None:
            messages.append(message)
    assert messages or name == "generation_config.json"
    assert all("\n" not in message and str(tmp_path) in message for message in messages)


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("alignment_heads", [["x", 0]]),
        ("alignment_heads", [[0, 4]]),
        ("suppress_ids", [10**9]),
        ("lang_ids", 3),
    ],
)
def test_rules_that_no_model_has_are_named(part, value, module, tmp_path):
    path, file = write("CTranslate2", module, tmp_path / "model")
    described = json.loads(file.with_name("config.json").read_text())
    file.with_name("config.json").write_text(json.dumps({**described, part: value}))
    with pytest.raises(ModelError, match="damaged"):
        open_checkpoint(path).load_module(torch.float32)


def test_positions_that_are_not_in_the_file_are_not_allocated(module, tmp_path):
    path, file = write("MLX", module, tmp_path / "model")
    sizes = json.loads(file.with_name("config.json").read_text())
    sizes |= {"n_audio_ctx": 2**14 - 1, "n_audio_state": 2**14 - 2, "n_text_state": 2**14 - 2}
    file.with_name("config.json").write_text(json.dumps(sizes))
    assert "16383 positions of the width 16382" in open_all(path)


@pytest.mark.parametrize(
    "weight",
    [
        torch.zeros(32, device="meta"),
        torch.zeros(32).to_sparse(),
        torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)]),
        torch.zeros(32, dtype=torch.complex64),
        None,
    ],
    ids=["meta", "sparse", "nested", "complex", "none"],
)
def test_a_weight_that_is_no_array_of_numbers_is_named(weight, module, tmp_path):
    weights = {**writers.openai_weights(module), "encoder.ln_post.bias": weight}
    sizes = writers.openai_sizes(module.config)
    torch.save({"dims": sizes, "model_state_dict": weights}, tmp_path / "model.pt")
    with pytest.raises(
        ModelError, match=r"is no weight of float32|no checkpoint of openai-whisper"
    ):
        speechmix.load(tmp_path / "model.pt")


def test_a_damaged_graph_neither_goes_in_circles_nor_multiplies_lengths(module, tmp_path):
    onnx = pytest.importorskip("onnx", reason="the extra `engines` is not installed")
    from speechmix.extensions.engines.onnx_graph import OnnxGraph

    make, numbers = onnx.helper, onnx.numpy_helper.from_array
    nodes = [
        make.make_node("Identity", ["circle"], ["again"]),
        make.make_node("Identity", ["again"], ["circle"]),
        make.make_node("MatMul", ["input", "matrix"], ["product"]),
        make.make_node("Add", ["product", "circle"], ["output"]),
        make.make_node("DequantizeLinear", ["long", "scales"], ["square"], axis=1),
    ]
    constants = [
        numbers(np.ones((2, 2), dtype=np.float32), "matrix"),
        numbers(np.ones((2**15, 1), dtype=np.int8), "long"),
        numbers(np.ones(2**15, dtype=np.float32), "scales"),
    ]
    graph = make.make_graph(nodes, "damaged", [], [], constants)
    onnx.save(make.make_model(graph), tmp_path / "encoder_model.onnx")
    read = OnnxGraph(tmp_path / "encoder_model.onnx")
    with memory_limit(2**29):
        assert read.linear_weights() == {}
        with pytest.raises(ValueError, match="32768 scales of a weight"):
            read.array("square")


def test_no_code_of_a_checkpoint_is_run(module, tmp_path):
    class Code:
        def __reduce__(self):
            return (open, (str(tmp_path / "run"), "w"))

    torch.save({"dims": Code(), "model_state_dict": {}}, tmp_path / "model.pt")
    with pytest.raises(ModelError, match="no checkpoint of openai-whisper"):
        speechmix.load(tmp_path / "model.pt")
    assert not (tmp_path / "run").exists()


def test_weights_that_claim_more_than_the_file_holds(module, tmp_path):
    weights = writers.openai_weights(module)
    weights["decoder.token_embedding.weight"] = torch.zeros(1).expand(51864, 2**20)
    sizes = writers.openai_sizes(module.config)
    torch.save({"dims": sizes, "model_state_dict": weights}, tmp_path / "model.pt")
    with pytest.raises(ModelError, match="larger than the file"):
        speechmix.load(tmp_path / "model.pt")
