"""Files of whisper.cpp, openai-whisper and MLX: weights, tokens and rules come back; what a file lacks is
said."""

from __future__ import annotations

import contextlib
import io
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import speechmix
from speechmix.adapters.loading.foreign_checkpoint import open_checkpoint
from speechmix.errors import ModelError
from speechmix.extensions.engines import whisper_tokens
from speechmix.extensions.engines.engine_runtimes import open_runtime
from speechmix.extensions.engines.onnx_files import decoder_file
from speechmix.mixing.passes.mix import mix
from tests.formats import writers
from tests.formats.onnx_merge import merge_decoder
from tests.formats.onnx_writer import quantise, write_onnx
from tests.formats.test_ctranslate2 import (
    WAV2VEC2_FILES,
    convert_wav2vec2,
    tiny_whisper,
    write_ctranslate2,
    write_wav2vec2,
)

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*it has no tokenizer", "ignore:.*no alignment heads"
)


@pytest.fixture(scope="module")
def module():
    return writers.small_whisper()


_ONNX_FILES: dict[str, bytes] = {}  # of `small_whisper()`, which all tests write


def _write_onnx(module, folder):
    """Export once: it takes longer than all that is tested with it."""
    if not _ONNX_FILES:
        with contextlib.redirect_stdout(io.StringIO()):
            path = write_onnx(module, folder, is_quantised=True)
        _ONNX_FILES.update({file.name: file.read_bytes() for file in path.iterdir()})
    for name, content in _ONNX_FILES.items():
        (folder / name).write_bytes(content)
    return folder / "encoder_model_quantized.onnx", folder / "encoder_model_quantized.onnx"


def write(kind: str, module, folder):
    """Write a model; return what to load and the file that holds its weights."""
    folder.mkdir(parents=True, exist_ok=True)
    if kind == "CTranslate2":
        path = write_ctranslate2(tiny_whisper(), folder, "int8")
        return path, path / "model.bin"
    if kind == "CTranslate2 wav2vec2":
        source = write_wav2vec2(folder.with_name("hf"))
        path = convert_wav2vec2(source, folder, "int8", *WAV2VEC2_FILES)
        return path, path / "model.bin"
    if kind.startswith("MLX"):
        path = writers.write_mlx(module, folder, is_npz=kind == "MLX")
        name = "weights.npz" if kind == "MLX" else "weights.safetensors"
        return path, path / name
    if kind == "ONNX":
        pytest.importorskip("onnxruntime", reason="the extra `engines` is not installed")
        pytest.importorskip("onnx", reason="the extra `engines` is not installed")
        return _write_onnx(module, folder)
    if kind == "openai":
        path = writers.write_openai(module, folder / "model.pt", torch.float32)
    else:
        number_type = {"ggml": "f32", "quantised ggml": "q8_0"}.get(kind, kind)  # or f16, q5_0
        if number_type.startswith("q"):
            pytest.importorskip("gguf", reason="the extra `engines` is not installed")
        path = writers.write_ggml(module, folder / "model.bin", number_type)
    return path, path


@pytest.mark.usefixtures("quick_tokenizer")
@pytest.mark.parametrize(
    ("kind", "largest"),
    [
        ("ggml", 0.0),
        ("openai", 0.0),
        ("MLX", 1e-3),
        ("MLX safetensors", 1e-3),
        ("quantised ggml", 1e-2),
    ],
)
def test_weights_come_back(kind, largest, module, tmp_path):
    path, _ = write(kind, module, tmp_path / "model")
    model = speechmix.load(path, device="cpu", check=False)
    for name, value in module.state_dict().items():
        difference = (model.module.state_dict()[name] - value).abs().max()
        assert difference <= largest * value.abs().max(), name
    assert model.origin.format_name.startswith(kind.split()[-1].removesuffix("safetensors"))
    assert f"sha256 {model.origin.sha256[:12]}" in repr(model)
    inputs = {
        "input_features": torch.zeros(1, 80, 100),
        "decoder_input_ids": torch.tensor([[50257, 7]]),
    }
    maps = mix(model, inputs, measures="attention")
    assert maps["attention", "encoder"].provenance["checkpoint"]["sha256"] == model.origin.sha256


@pytest.mark.filterwarnings("ignore")
def test_matrices_of_onnx_are_found_through_the_graph(module, tmp_path):
    path, _ = write("ONNX", module, tmp_path / "model")
    for source, largest in ((path.parent, 0.0), (path, 5e-3)):
        checkpoint = open_checkpoint(source)
        again = checkpoint.load_module(torch.float32).state_dict()
        for name, value in module.state_dict().items():
            difference = (again[name] - value).abs().max()
            assert difference <= largest * value.abs().max(), name
    for name in ("encoder_model.onnx", "decoder_model.onnx"):
        (path.parent / name).unlink()
    assert open_checkpoint(path.parent).format_name == "ONNX, uint8"  # the only one there is
    (path.parent / "decoder_model_quantized.onnx").unlink()
    with pytest.raises(ModelError, match=r"expected a decoder_model\.onnx beside it"):
        speechmix.load(path)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("order", ["float", "quantised before", "quantised after"])
def test_a_merged_decoder_of_onnx_is_read_and_run(order, module, tmp_path):
    """As optimum merges decoders: both branches of an If node use the same weights, under new names."""
    quantised, _ = write("ONNX", module, tmp_path / "model")
    decoder = quantised.with_name("decoder_model.onnx")
    quantised_decoder = quantised.with_name("decoder_model_quantized.onnx")
    source = quantised if "quantised" in order else quantised.with_name("encoder_model.onnx")
    merged = merge_decoder(
        quantised_decoder if order == "quantised before" else decoder, heads=2, head_width=16
    )
    if order == "quantised after":
        merged = quantise(merged)
    decoder.unlink()
    quantised_decoder.unlink()
    assert decoder_file(source) == merged
    again = open_checkpoint(source).load_module(torch.float32)
    for name, value in module.state_dict().items():
        difference = (again.state_dict()[name] - value).abs().max()
        assert difference <= (5e-3 if "quantised" in order else 0.0) * value.abs().max(), name
    model = SimpleNamespace(config=module.config)
    runtime = open_runtime("onnxruntime", "", source)
    features = torch.randn(1, 80, 100, generator=torch.Generator().manual_seed(0))
    states = runtime._sessions[0].run(None, {"input_features": features.numpy()})[0]
    logits = runtime._decode(model, [50257, 7, 8], states)
    with torch.no_grad():
        expected = again(features, decoder_input_ids=torch.tensor([[50257, 7, 8]])).logits
    largest = 0.1 if "quantised" in order else 1e-4  # its runtime quantises activations, too
    np.testing.assert_allclose(logits, expected.numpy(), rtol=0, atol=largest)


@pytest.mark.usefixtures("quick_tokenizer")
@pytest.mark.parametrize("kind", ["q4_0", "q4_1", "q5_0", "q5_1", "q8_0"])
def test_types_of_ggml_are_dequantised_as_gguf_does(kind, module, tmp_path):
    gguf = pytest.importorskip("gguf", reason="the extra `engines` is not installed")
    path = writers.write_ggml(module, tmp_path / "model.bin", kind)
    checkpoint = open_checkpoint(path)
    again = checkpoint.load_module(torch.float32)
    weight = module.model.decoder.layers[0].fc1.weight.detach().numpy()
    quantised = gguf.GGMLQuantizationType[kind.upper()]
    expected = gguf.quants.dequantize(gguf.quants.quantize(weight, quantised), quantised)
    found = again.model.decoder.layers[0].fc1.weight.detach().numpy()
    np.testing.assert_array_equal(found, expected)
    assert kind in checkpoint.format_name


def test_tokens_and_rules_follow_from_the_ranks(module, tmp_path):
    model = speechmix.load(
        writers.write_ggml(module, tmp_path / "a.bin"), device="cpu", check=False
    )
    tokenizer, generation = model.tokenizer, model.module.generation_config
    assert tokenizer.encode("ab", add_special_tokens=False) == [256 + 256 * 97 + 98]
    assert tokenizer.decode([104, 105]) == "hi"
    assert tokenizer.convert_tokens_to_ids("<|notimestamps|>") == 50362
    assert generation.begin_suppress_tokens == [32, 50256]
    assert generation.suppress_tokens == [50257, 50357, 50358, 50359, 50360, 50361]
    many = writers.small_whisper(writers.MULTILINGUAL)
    model = speechmix.load(writers.write_ggml(many, tmp_path / "b.bin"), device="cpu", check=False)
    assert model.module.generation_config.lang_to_id["<|fr|>"] == 50265
    assert len(model.module.generation_config.lang_to_id) == 99


def test_what_a_file_lacks_is_said(module, tmp_path, monkeypatch):
    path = writers.write_openai(module, tmp_path / "model.pt")
    monkeypatch.setattr(whisper_tokens, "_TIKTOKEN_PACKAGES", ())
    with pytest.warns(UserWarning, match="it has no tokenizer, so texts cannot be read") as caught:
        model = speechmix.load(path, device="cpu", check=False)
    assert len(caught) == 1
    assert "it names no alignment heads" in str(caught[0].message)
    assert model.tokenizer is None
    assert "no tokenizer" in model.describe()
    writers.write_tiktoken(tmp_path / "gpt2.tiktoken", writers.made_up_tokens())
    with pytest.warns(UserWarning, match=r"gpt2\.tiktoken beside it has its tokens"):
        model = speechmix.load(path, device="cpu", check=False)
    assert model.tokenizer.decode([104, 105]) == "hi"


def test_alignment_heads_of_mlx_are_read(module, tmp_path):
    folder = writers.write_mlx(module, tmp_path / "mlx", heads=[(0, 1), (0, 0)])
    model = speechmix.load(folder, device="cpu", check=False)
    assert model.module.generation_config.alignment_heads == [[0, 1], [0, 0]]


def test_a_file_of_another_kind_is_named(tmp_path):
    path = tmp_path / "notes.bin"
    path.write_bytes(b"some notes")
    with pytest.raises(ModelError, match="is a file of no known format"):
        speechmix.load(path)
    torch.save({"weights": torch.zeros(3)}, tmp_path / "other.pt")
    with pytest.raises(ModelError, match="no checkpoint of openai-whisper"):
        speechmix.load(tmp_path / "other.pt")
