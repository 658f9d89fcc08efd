"""What a run costs is counted from a config alone; nothing here asks how long anything takes."""

from __future__ import annotations

import math

import pytest
import torch
import transformers

import speechmix
from speechmix.errors import InputError, ModelError
from speechmix.extensions.estimate import command
from speechmix.extensions.estimate import estimate as estimates
from speechmix.extensions.estimate.estimate import SHARE_OF_PRODUCTS
from speechmix.interfaces.cli.command_line import main
from tests.conftest import ALL_FAMILIES, build, tiny

FEW_LAYERS = {"encoder_layers": 1, "decoder_layers": 2}  # each of them is counted
CLIP = speechmix.Clip.from_array([0.1] * 16_000, 16_000)


@pytest.fixture(autouse=True)
def _rate_of_a_round_number(monkeypatch):
    monkeypatch.setattr(estimates, "measure_matmul_rate", lambda device, *, width, inner: 100.0)


@pytest.fixture
def folder(tmp_path):
    config = {**ALL_FAMILIES["whisper-80"][2], **FEW_LAYERS}
    transformers.WhisperConfig(**config).save_pretrained(tmp_path / "whisper-mine")
    return tmp_path / "whisper-mine"


@pytest.mark.parametrize(
    "name",
    [
        *("whisper-80", "bert", "gpt2", "wavlm-stable"),
        # Whisper has an encoder and a decoder, too, and WavLM a convolution.
        *(pytest.param(name, marks=pytest.mark.long) for name in ("wav2vec2-post", "marian")),
    ],
)
def test_parameters_and_stacks_are_those_of_the_loaded_model(name):
    module = build(name)
    of_module = speechmix.estimate(module, seconds=1)
    assert of_module.parameters == sum(weight.numel() for weight in module.parameters())
    model = tiny(name)
    stacks = {stack.name: (len(stack), stack.heads, stack.width) for stack in model.stacks.values()}
    assert of_module.stacks == stacks == speechmix.estimate(model, seconds=1).stacks
    assert of_module.weight_bytes == sum(
        x.nbytes for x in (*module.parameters(), *module.buffers())
    )


def test_a_folder_with_a_config_alone_is_enough(folder):
    of_folder = speechmix.estimate(folder, seconds=1)
    module = build("whisper-80", **FEW_LAYERS)
    assert of_folder.parameters == sum(weight.numel() for weight in module.parameters())
    assert of_folder.model == "whisper-mine"
    assert not [path for path in folder.iterdir() if path.suffix == ".safetensors"]


@pytest.mark.parametrize(
    ("size", "layers", "width", "heads", "million"),
    [
        ("tiny", (4, 4), 384, 6, 37.8),
        ("turbo", (32, 4), 1280, 20, 808.9),
        pytest.param("large-v3", (32, 32), 1280, 20, 1543.5, marks=pytest.mark.long),
    ],
)
def test_published_whispers_have_the_parameters_that_are_published(
    size, layers, width, heads, million, tmp_path
):
    transformers.WhisperConfig(
        d_model=width,
        encoder_layers=layers[0],
        decoder_layers=layers[1],
        encoder_attention_heads=heads,
        decoder_attention_heads=heads,
        encoder_ffn_dim=4 * width,
        decoder_ffn_dim=4 * width,
        num_mel_bins=80 if size == "tiny" else 128,
        vocab_size=51_865 if size == "tiny" else 51_866,
    ).save_pretrained(tmp_path)
    of_size = speechmix.estimate(tmp_path, targets="target")
    assert of_size.row["million parameters"] == million
    assert [n for n, _, _ in of_size.stacks.values()] == [layers[0], layers[1], layers[1]]
    assert of_size.weight_bytes == pytest.approx(4e6 * million, rel=0.01)


def test_time_is_operations_by_the_rate_and_grows_with_clips_and_twins(folder):
    single = speechmix.estimate(folder, seconds=1)
    assert single.seconds_per_clip == single.operations.total / (100e9 * SHARE_OF_PRODUCTS)
    many = speechmix.estimate(folder, seconds=1, clips=7, twins=2)
    assert math.isclose(many.total_seconds, 21 * single.total_seconds)
    assert many.memory_bytes == single.memory_bytes  # one model at a time
    rows = speechmix.estimate(folder, seconds=1, targets="target")
    assert rows.operations.total < single.operations.total
    assert rows.operations.forward == single.operations.forward


def test_what_is_counted_measured_and_computed_is_said(folder):
    text = speechmix.estimate(folder, seconds=1, measures=["attention", "gradient_input"]).text()
    assert "(counted)" in text
    assert "100 GFLOP/s measured" in text
    assert "computed from 40% of the peak in float32, not measured" in text
    assert "not counted: gradient_input" in text
    row = speechmix.estimate(folder, seconds=1).to_dataframe()
    assert len(row) == 1
    assert row["stacks (layers x heads)"][0] == "encoder 1 x 4, decoder 2 x 4, cross 2 x 4"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clips": 0}, "clips should be a whole number of at least 1, found 0"),
        ({"twins": -1}, "twins should be a whole number of at least 0"),
        ({"seconds": 0}, "seconds should be the length of a clip"),
        ({"seconds": 31.0}, r"hears 1\.2 s at a time, found seconds=31"),
        ({"targets": "all", "seconds": 1}, "targets should be 'target' or None"),
        ({"measures": "vale_zeroing", "seconds": 1}, "unknown measure 'vale_zeroing'"),
        ({"measures": "globenc", "seconds": 1}, "globenc is defined for post-norm stacks"),
        ({"stacks": ["side"], "seconds": 1}, "has the stacks"),
    ],
)
def test_bad_options_are_refused(folder, options, message):
    with pytest.raises(InputError, match=message):
        speechmix.estimate(folder, **options)


def test_bad_sources_are_refused(tmp_path):
    with pytest.raises(ModelError, match="no such folder"):
        speechmix.estimate(tmp_path / "nowhere")
    with pytest.raises(InputError, match="reads 40 tokens at a time; a text of 300 s"):
        speechmix.estimate(build("bert"), seconds=300)


def test_the_model_that_is_estimated_stays_as_it_is():
    module = build("whisper-80")
    before, state = (
        {name: x.clone() for name, x in module.state_dict().items()},
        torch.get_rng_state(),
    )
    speechmix.estimate(module, seconds=1)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(x, before[name]) for name, x in module.state_dict().items())
    assert len(module.model.encoder.layers) == 3
    assert module.device.type == "cpu"


def test_the_command_prints_each_model(folder, capsys):
    asked = [
        "--clip-count",
        "40",
        "--seconds",
        "1",
        "--twins",
        "2",
        "--target-rows-only",
    ]
    assert main(["estimate", "--model", str(folder), "--model", str(folder), *asked]) == 0
    printed = capsys.readouterr().out
    assert printed.count("whisper-mine: ") == 2
    assert "40 clips with the model and 2 random twins" in printed
    assert main(["estimate", "--model", str(folder / "nowhere")]) == 1


class TestBeforeARun:
    @pytest.fixture(autouse=True)
    def _short(self, monkeypatch):
        monkeypatch.setattr(command, "_SMALL_COST", 0)

    def test_a_long_run_is_announced_once_and_a_short_one_is_not(self, monkeypatch):
        model, lines = tiny("whisper-80"), []
        loaders = command.announce_duration(
            [lambda: model] * 3, [CLIP] * 5, lines.append, measures=["value_zeroing"]
        )
        assert [load() for load in loaders] == [model] * 3
        assert not lines
        monkeypatch.setattr(command, "_LONG_SECONDS", 0)
        assert [load() for load in loaders] == [model] * 3
        (line,) = lines
        assert "for 5 clips and 3 models like" in line
        assert "estimated" in line

    def test_nothing_that_goes_wrong_in_it_makes_a_run_fail(self, monkeypatch):
        monkeypatch.setattr(command, "_LONG_SECONDS", 0)
        monkeypatch.setattr(estimates, "estimate", lambda *args, **options: 1 / 0)
        model, lines = tiny("whisper-80"), []
        (load,) = command.announce_duration([lambda: model], [CLIP], lines.append)
        assert load() is model
        assert not lines

    def test_the_model_s_own_error_is_not_hidden(self):
        def fails():
            raise ModelError("gone")

        (load,) = command.announce_duration([fails], [CLIP], print)
        with pytest.raises(ModelError, match="gone"):
            load()

    def test_a_short_run_is_not_estimated_at_all(self, monkeypatch):
        monkeypatch.setattr(command, "_SMALL_COST", 10**9)
        monkeypatch.setattr(estimates, "estimate", lambda *args, **options: 1 / 0)
        assert command.describe_duration(tiny("whisper-80"), 2, [CLIP]) == ""
