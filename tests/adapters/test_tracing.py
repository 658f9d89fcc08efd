"""Tables found by tracing are those that were written by hand, field by field."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from functools import cache

import pytest
import torch
import transformers

import speechmix
from speechmix.adapters import family_of_type
from speechmix.adapters.families import registry
from speechmix.extensions.tracing import layer_lists as mask_kinds
from speechmix.extensions.tracing.infer_stacks import infer_stacks
from speechmix.interfaces.cli import main
from tests.models import ALL_FAMILIES, build
from tests.models.more_families import MORE_FAMILIES, built

# Fields in which the traced table differs from the written one: family -> {path of the field: reason}.
_TABLE_OF_POSITIONS = (
    "traced: the layer's table of positions has no axis of clips; not in the table"
)
DIFFERENCES = {
    "wav2vec2-bert, rotary": {"encoder.shared": _TABLE_OF_POSITIONS},
    "wav2vec2-conformer, rotary": {"encoder.shared": _TABLE_OF_POSITIONS},
    "granite-speech-encoder": {"encoder.shared": _TABLE_OF_POSITIONS},
    "granite-speech": {"encoder.shared": _TABLE_OF_POSITIONS},
    "granite-speech, scaled": {"encoder.shared": _TABLE_OF_POSITIONS},
    "qwen2.5-omni": {
        "encoder.final_norm": "behind code that sorts frames and averages pairs; not understood"
    },
}
# Tracing names the query projection wherever it is a module of its own. Written tables name it only
# where a change is carried through cross-attention, and leave it out elsewhere.
OPTIONAL = "query"


@cache
def traced(name: str):
    module = (build(name) if name in ALL_FAMILIES else built(name)).float()
    model = speechmix.load(module, check=False)
    entry = MORE_FAMILIES.get(name)
    inputs = (
        entry.inputs(entry.length)
        if entry is not None and entry.heard
        else model.family.tiny_inputs(module.config)
    )
    inputs = {key: x.float() if x.is_floating_point() else x for key, x in inputs.items()}
    stacks = tuple(model.stacks)
    found = infer_stacks(
        model.base, inputs, run=lambda given: model.family.run(model.base, given, stacks)
    )
    return found, {stack.name: stack.spec for stack in model.stacks.values()}


def list_differences(found: object, written: object, path: str) -> Iterator[str]:
    """Yield the paths of fields that differ."""
    if type(found) is type(written) and is_dataclass(found):
        for field in fields(found):
            value, expected = getattr(found, field.name), getattr(written, field.name)
            if field.name == OPTIONAL and expected is None:
                continue
            yield from list_differences(value, expected, f"{path}.{field.name}")
    elif isinstance(found, tuple) and isinstance(written, tuple) and len(found) == len(written):
        for index, (value, expected) in enumerate(zip(found, written, strict=True)):
            is_spec = is_dataclass(value)
            yield from list_differences(value, expected, f"{path}[{index}]" if is_spec else path)
    elif found != written:
        yield path


@pytest.mark.every_family
@pytest.mark.parametrize("name", [*ALL_FAMILIES, *MORE_FAMILIES])
def test_traced_stacks_are_the_written_ones(name):
    found, written = traced(name)
    specs = {spec.name: spec for spec in found.stacks}
    assert list(specs) == [key for key in ("encoder", "decoder", "cross") if key in written]
    differences = {
        path for key in specs for path in list_differences(specs[key], written[key], key)
    }
    assert differences == set(DIFFERENCES.get(name, {})), found.text()


@pytest.mark.parametrize("name", ["whisper-80", "wav2vec2-bert", "gemma3_text", "t5"])
def test_the_table_is_written_as_a_file_that_makes_it_again(name):
    found, _ = traced(name)
    variables: dict[str, object] = {}
    exec(found.table_source(), variables)
    assert variables["STACKS"] == found.stacks


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("mistral", "a window of 3 positions before, "),
        ("granite-speech-encoder", "chunks of 80"),
        ("qwen2.5-omni", "chunks of 60"),
        ("whisper-80", "every position sees all"),
        ("llama", "causal"),
    ],
)
def test_the_report_says_which_positions_attention_sees(name, words):
    descriptions = [line for line in traced(name)[0].findings if "layers in" in line]
    assert words in descriptions[0]


_TARGETS, _SOURCES = torch.arange(12)[:, None], torch.arange(12)


@pytest.mark.parametrize(
    ("allowed", "words"),
    [
        (_TARGETS >= _SOURCES, ""),
        ((_TARGETS - _SOURCES).abs() <= 2, "a window of 2 positions before and 2 behind"),
        (_TARGETS // 4 == _SOURCES // 4, "chunks of 4"),
        (
            (_TARGETS // 4 >= _SOURCES // 4) & (_TARGETS // 4 * 4 - _SOURCES <= 2),
            "chunks of 4 with 2 positions before",
        ),
        ((_TARGETS - _SOURCES) % 2 == 0, "a mask of another form"),
    ],
)
def test_masks_are_described_by_what_they_allow(allowed, words):
    assert mask_kinds._describe_mask(allowed, 12) == words


_REFUSED = {
    "mamba": (
        lambda: transformers.MambaModel(
            transformers.MambaConfig(
                hidden_size=16, state_size=4, num_hidden_layers=2, vocab_size=30
            )
        ),
        "state-space",
    ),
    "fnet": (
        lambda: transformers.FNetModel(
            transformers.FNetConfig(
                hidden_size=16, num_hidden_layers=2, intermediate_size=24, vocab_size=30
            )
        ),
        "Fourier mixing",
    ),
    "reformer": (
        lambda: transformers.ReformerModel(
            transformers.ReformerConfig(
                attn_layers=["lsh", "lsh"],
                num_attention_heads=2,
                attention_head_size=8,
                hidden_size=16,
                feed_forward_size=24,
                axial_pos_embds=False,
                max_position_embeddings=64,
                lsh_attn_chunk_length=4,
                num_buckets=4,
                vocab_size=30,
                is_decoder=True,
            )
        ),
        "hash attention",
    ),
}


@pytest.mark.parametrize("name", _REFUSED)
def test_layers_without_attention_are_refused_by_name(name):
    build_module, reason = _REFUSED[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = build_module().eval()
    found = infer_stacks(module, {"input_ids": torch.arange(4, 12)[None]})
    assert found.stacks == ()
    assert reason in found.text()


def test_a_family_without_a_table_is_found_from_a_config():
    config = transformers.BioGptConfig(
        hidden_size=32,
        num_hidden_layers=5,
        num_attention_heads=2,
        intermediate_size=64,
        vocab_size=50,
    )
    found = speechmix.infer_family(config)
    (spec,) = found.stacks
    assert (spec.name, spec.norm_order, spec.final_norm) == ("decoder", "pre", "layer_norm")
    assert spec.causal
    assert spec.blocks[0].value == "self_attn.v_proj"
    assert config.num_hidden_layers == 5


def test_the_command_writes_the_table_and_prints_the_report(tmp_path, capsys):
    path = tmp_path / "table.py"
    command = ["describe-architecture", "bundled:tiny-french-ctc", "--out", str(path)]
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert "encoder: " in printed
    variables: dict[str, object] = {}
    exec(path.read_text(encoding="utf-8"), variables)
    assert variables["MODEL_TYPE"] == "wav2vec2"
    assert main(["describe-architecture", str(tmp_path / "nowhere")]) == 1


def test_the_command_reads_a_config_file(tmp_path, capsys):
    transformers.BertConfig(**_SHAPE).save_pretrained(tmp_path)
    assert main(["describe-architecture", str(tmp_path / "config.json")]) == 0
    assert "encoder: 2 layers in encoder.layer" in capsys.readouterr().out


@pytest.mark.parametrize(
    "name", ["whisper-80", "llama", "gemma3_text", "bert", "wav2vec2-bert", "deberta-v2"]
)
def test_traced_tables_pass_the_self_check(name, monkeypatch):
    module = (build(name) if name in ALL_FAMILIES else built(name)).double()
    family = family_of_type(module.config.model_type)
    specs = traced(name)[0].stacks
    table = replace(family, stacks=lambda config: specs)
    monkeypatch.setitem(registry._FAMILIES, module.config.model_type, table)
    model = speechmix.load(module)
    assert [stack.unknown_sum_reason for stack in model.stacks.values()] == [""] * len(specs)


_SHAPE = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "vocab_size": 60,
}


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (
            transformers.BloomConfig(hidden_size=32, n_layer=2, n_head=4, vocab_size=60),
            "may add the residual itself",
        ),
        (
            transformers.ConvBertConfig(embedding_size=16, **_SHAPE),
            "joined with something else",
        ),
    ],
    ids=["bloom", "convbert"],
)
def test_attention_that_a_table_cannot_describe_is_refused_with_the_reason(config, reason):
    found = speechmix.infer_family(config)
    assert [spec.blocks[0].is_rerun for spec in found.stacks] == [True]  # for review
    assert reason in found.text()
    with pytest.raises(speechmix.SpeechmixError, match=reason):
        speechmix.load(transformers.AutoModel.from_config(config))
