"""A module that is measured is given back as it was, bit for bit, and was in evaluation mode
meanwhile."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
import transformers

import speechmix
from speechmix.adapters.capture.module_access import precision_context
from speechmix.adapters.generation.greedy_generation import transcribe
from speechmix.alignment import place_words
from speechmix.errors import ModelError
from speechmix.extensions.synthetic_french.synthetic_corpus import log_likelihoods
from speechmix.inputs.bundled import clips, models
from speechmix.interventions.value_knock_out import ablate
from tests.conftest import ALL_FAMILIES, build, inputs_of, tiny


def state_of(module):
    """All that can be seen of a module, with the identity and the bits of every tensor."""

    def bits(tensor):
        return (
            None
            if tensor is None
            else (id(tensor), tensor.data_ptr(), tensor.dtype, tensor.device, tensor.clone())
        )

    parts = {}
    for name, part in module.named_modules():
        parts[name] = {
            "training": part.training,
            "parameters": {
                key: (bits(x), x is not None and x.requires_grad)
                for key, x in part._parameters.items()
            },
            "buffers": {key: bits(x) for key, x in part._buffers.items()},
            "not stored": set(part._non_persistent_buffers_set),
            "attributes": {
                key: value
                for key, value in vars(part).items()
                if isinstance(value, (int, float, str, type(None)))
            },
            "hooks": (len(part._forward_hooks), len(part._forward_pre_hooks)),
            "config": getattr(getattr(part, "config", None), "_attn_implementation", None),
        }
    return parts


def assert_same(before, now):
    assert before.keys() == now.keys()
    for name, part in before.items():
        for key in ("training", "not stored", "attributes", "hooks", "config"):
            assert part[key] == now[name][key], (name, key)
        for table in ("parameters", "buffers"):
            assert list(part[table]) == list(now[name][table]), name
            for key, value in part[table].items():
                _assert_same_bits(value, now[name][table][key], f"{name}.{key}")


def _assert_same_bits(a, b, where):
    if a is None or b is None or isinstance(a, bool):
        assert a == b, where
    elif isinstance(a[-1], torch.Tensor):
        assert a[:-1] == b[:-1], where
        assert torch.equal(a[-1].view(-1).view(torch.uint8), b[-1].view(-1).view(torch.uint8)), (
            where
        )
    else:
        _assert_same_bits(a[0], b[0], where)
        assert a[1] == b[1], where


def in_training(name, **changes):
    """A model as somebody has it who trains it: dropout, training mode but for a frozen part,
    gradients but for a part."""
    config = tiny(name).config
    rates = {
        key: 0.3
        for key, value in vars(config).items()
        if "drop" in key and isinstance(value, float)
    }
    module = build(name, **{**rates, **changes}).train().requires_grad_(True)
    for part in [*module.modules()][3:9]:
        part.training = False
    for parameter in [*module.parameters()][::3]:
        parameter.requires_grad_(False)
    return module


MEASURES = ["value_zeroing", "attention", "attention_norm"]


_IN_FLOAT32 = ("whisper-80", "llama")  # the others in bfloat16, whose weights are converted, too


@pytest.mark.every_family
@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        pytest.param(
            dtype,
            name,
            marks=[pytest.mark.long] * (dtype == torch.float32 and name not in _IN_FLOAT32),
        )
        for dtype in (torch.float32, torch.bfloat16)
        for name in ALL_FAMILIES
    ],
)
def test_a_model_in_training_is_given_back_as_it_was(name, dtype):
    module = in_training(name).to(dtype)
    before = state_of(module)
    model = speechmix.load(module)
    assert_same(before, state_of(module))
    inputs = {key: x.float() if x.is_floating_point() else x for key, x in inputs_of(model).items()}
    speechmix.mix(model, inputs, measures=MEASURES, layers=[1])
    assert_same(before, state_of(module))
    with pytest.raises(speechmix.SpeechmixError):
        speechmix.mix(model, inputs, spans=[(0, 10_000)])
    assert_same(before, state_of(module))


def test_a_half_precision_rotary_model_keeps_its_tables_and_its_predictions(tmp_path):
    build("llama").save_pretrained(tmp_path)
    module = transformers.LlamaForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16)
    table = module.model.rotary_emb.inv_freq
    assert table.dtype == torch.float32
    ids = torch.arange(4, 34)[None]
    with torch.no_grad():
        before, exact = module(ids).logits, table.clone()
    model = speechmix.load(module)
    speechmix.mix(model, {"input_ids": ids})
    with torch.no_grad():
        assert torch.equal(module(ids).logits, before)
    assert module.model.rotary_emb.inv_freq is table
    assert torch.equal(table, exact)


@pytest.mark.parametrize("origin", ["folder", "converted object"])
def test_half_precision_asked_of_load_rounds_no_rotary_table(tmp_path, origin):
    build("llama").save_pretrained(tmp_path)
    source = tmp_path if origin == "folder" else build("llama")
    model = speechmix.load(source, dtype="bfloat16", device="cpu")
    expected = build("llama").model.rotary_emb.inv_freq
    assert model.dtype == torch.bfloat16
    assert torch.equal(model.module.model.rotary_emb.inv_freq, expected)


@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_rotary_tables_that_grow_with_the_text_are_given_back(kind):
    scaling = {"rope_type": kind, "factor": 2.0, "rope_theta": 10_000.0}
    if kind == "longrope":
        scaling |= {
            "long_factor": [2.0] * 4,
            "short_factor": [1.0] * 4,
            "original_max_position_embeddings": 20,
        }
    module = build(
        "llama", max_position_embeddings=20 if kind == "dynamic" else 40, rope_parameters=scaling
    )
    before = state_of(module)
    model = speechmix.load(module)
    speechmix.mix(model, {"input_ids": torch.arange(4, 40)[None]})
    assert_same(before, state_of(module))


def test_asked_precision_is_that_of_a_copy():
    module = in_training("wav2vec2-stable")
    before = state_of(module)
    model = speechmix.load(module, dtype="float64")
    assert model.module is not module
    assert model.dtype == torch.float64
    assert not any(part.training for part in model.module.modules())
    assert_same(before, state_of(module))


def test_the_own_precision_and_device_are_no_reason_to_copy():
    module = build("wav2vec2-stable")
    assert speechmix.load(module, dtype="float32", device="cpu").module is module


def test_tied_weights_stay_tied_meanwhile():
    module = build("gpt2").to(torch.bfloat16)
    assert module.lm_head.weight is module.transformer.wte.weight
    with precision_context(module, torch.float32):
        assert module.lm_head.weight is module.transformer.wte.weight
        assert module.lm_head.weight.dtype == torch.float32


def test_training_goes_on_with_the_same_optimiser():
    module = in_training("bert")
    optimiser = torch.optim.SGD(module.parameters(), lr=0.1)
    model = speechmix.load(module)
    inputs = inputs_of(model)
    speechmix.mix(model, inputs)
    module(**inputs).logits.square().mean().backward()
    weight = module.bert.encoder.layer[0].output.dense.weight
    asked = [parameter for parameter in module.parameters() if parameter.requires_grad]
    before = [parameter.clone() for parameter in asked]
    optimiser.step()
    assert weight.is_leaf
    assert sum(not torch.equal(a, b) for a, b in zip(asked, before, strict=True)) > len(asked) // 2


@pytest.mark.every_family
@pytest.mark.parametrize("name", ALL_FAMILIES)
def test_scores_of_a_model_put_into_training_mode_are_those_of_evaluation(name):
    module = in_training(name).double()
    model = speechmix.load(module)
    module.train()
    inputs = inputs_of(model)
    measures = (
        [*MEASURES, "gradient_input"]
        if hasattr(module, "lm_head") and name in ("llama", "gpt2")
        else MEASURES
    )
    objective = (3, 5) if len(measures) > 3 else "auto"
    found = speechmix.mix(model, inputs, measures=measures, layers=[0, 2], objective=objective)
    module.eval()
    expected = speechmix.mix(model, inputs, measures=measures, layers=[0, 2], objective=objective)
    for key in expected:
        np.testing.assert_array_equal(found[key].scores, expected[key].scores)


@pytest.mark.parametrize("name", ["tiny-french-ctc", "tiny-french-whisper"])
def test_ablation_spelling_likelihood_and_alignment_of_a_model_in_training(name):
    clip = next(clip for clip in clips() if clip.meta["control"] == "no")
    model = speechmix.load(models()[name], device="cpu")

    def answers():
        text = transcribe(model, clip)
        table = ablate(model, clip)
        likely = log_likelihoods(model, clip, [clip.text, clip.meta["other_text"]])
        words = place_words(
            clip, clip.text, model=model, method="ctc" if name.endswith("ctc") else "whisper"
        ).words
        maps = speechmix.mix(model, clip, measures="gradient_input", targets="target")
        return (
            text,
            table.margin.tolist(),
            likely.tolist(),
            words,
            [m.scores.tolist() for m in maps.values()],
        )

    expected = answers()
    for part in model.module.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.4
        for rate in (
            "dropout",
            "activation_dropout",
            "layerdrop",
            "hidden_dropout",
            "attention_dropout",
        ):
            if isinstance(getattr(part, rate, None), float):
                setattr(part, rate, 0.4)
    model.module.train().requires_grad_(True)
    assert answers() == expected
    assert all(part.training for part in model.module.modules())


def test_layers_exchanged_after_loading_are_noticed():
    module = build("bert")
    model = speechmix.load(module)
    module.bert.encoder.layer[1] = build("bert", seed=1).bert.encoder.layer[1]
    with pytest.raises(ModelError, match=r"layers of the encoder were exchanged.*load it again"):
        speechmix.mix(model, inputs_of(model))


def test_a_feed_forward_run_in_chunks_is_run_whole_meanwhile():
    """Chunks save memory and refuse lengths that they do not divide."""
    chunked, plain = (build("bert", chunk_size_feed_forward=size).double() for size in (4, 0))
    inputs = inputs_of(speechmix.load(plain))
    found, expected = (
        speechmix.mix(speechmix.load(module), inputs, units="token")[
            "value_zeroing", "encoder"
        ].scores
        for module in (chunked, plain)
    )
    np.testing.assert_array_equal(found, expected)
    assert chunked.bert.encoder.layer[0].chunk_size_feed_forward == 4


@pytest.mark.parametrize("measure", ["value_zeroing", "gradient_input"])
def test_threads_that_share_a_model_take_turns(measure):
    shared, other = (
        speechmix.load(build("wav2vec2-post"), init="random", seed=0) for _ in range(2)
    )
    inputs = inputs_of(shared)
    asked = {"measures": measure, "spans": [(0, 5), (5, 20)], "objective": (3, 2)}

    def scores(model):
        return speechmix.mix(model, inputs, **asked)[measure, "encoder"].scores

    expected = scores(shared)
    with ThreadPoolExecutor(4) as threads:
        for found in threads.map(scores, [shared, shared, other, shared, other, shared] * 2):
            np.testing.assert_array_equal(found, expected)
