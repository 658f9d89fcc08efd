"""The measured model is the model that was given: attention sinks, ALiBi and caps are in what is
measured, or loading fails."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import transformers
from torch.nn.functional import cosine_similarity

import speechmix
from speechmix.adapters import family_of_type
from speechmix.adapters.binding import self_check
from speechmix.adapters.families import registry

SHAPE = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "vocab_size": 60,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
WINDOWS = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 4}
IDS = torch.tensor([[5, 6, 7, 8, 9, 10, 11]])
SINKS = {
    "gpt_oss": (
        "GptOss",
        {"num_local_experts": 2, "num_experts_per_tok": 1, "head_dim": 8, **WINDOWS},
    ),
    "flint": ("Flint", {"head_dim": 8}),
    "granite_swa": ("GraniteSWA", {}),
    "granitemoe_swa": ("GraniteMoeSWA", {"num_local_experts": 2, "num_experts_per_tok": 1}),
    "mimo_v2_flash": ("MiMoV2Flash", {"head_dim": 8, "v_head_dim": 8, **WINDOWS}),
}


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    """What a test registers is forgotten behind it."""
    monkeypatch.setattr(registry, "_FAMILIES", dict(registry._FAMILIES))


def drawn(model_class, config, **options):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = model_class._from_config(config, **options).eval().float()
        for name, tensor in module.named_parameters():
            if "sink" in name or tensor.ndim >= 2:
                tensor.data.normal_(0, 1.0 if "sink" in name else 0.3)
    return module


def with_sinks(name):
    """A tiny model of an architecture with attention sinks, its table borrowed from Llama as the
    docs say."""
    stem, options = SINKS[name]
    module_path = f"transformers.models.{name}"
    try:
        model_class = getattr(
            __import__(f"{module_path}.modeling_{name}", fromlist=["x"]), f"{stem}ForCausalLM"
        )
    except (ImportError, AttributeError):
        pytest.skip(f"transformers {transformers.__version__} has no {name}")
    config = model_class.config_class(**SHAPE, **options)
    llama = family_of_type("llama")
    plans = tuple(replace(plan, feed_forwards=()) for plan in llama.stacks(config))
    speechmix.register(
        replace(llama, name=name, model_types=(config.model_type,), stacks=lambda config: plans)
    )
    return drawn(model_class, config)


def value_zeroing(module, layers, values, norm):
    """Cosine distances [L, T, T] by the definition: the value vectors of a source zeroed, each
    layer run again as given."""
    seen = []
    hooks = [
        layer.register_forward_hook(
            lambda layer, args, kwargs, output: seen.append((args, kwargs, output)),
            with_kwargs=True,
        )
        for layer in layers
    ]
    with torch.no_grad():
        module(IDS, use_cache=False)
        for hook in hooks:
            hook.remove()
        scores = []
        for place, (layer, (args, kwargs, output)) in enumerate(zip(layers, seen, strict=True)):
            finish = norm if place == len(layers) - 1 else (lambda states: states)
            before = finish(first(output))
            columns = []
            for source in range(IDS.shape[1]):

                def zeroed(projection, args, output, source=source):
                    output = output.clone()
                    output[:, source] = 0
                    return output

                hook = values(layer).register_forward_hook(zeroed)
                columns.append(
                    1 - cosine_similarity(finish(first(layer(*args, **kwargs))), before, dim=-1)[0]
                )
                hook.remove()
            scores.append(torch.stack(columns, dim=-1))
    return torch.stack(scores)


def first(output):
    return output[0] if isinstance(output, tuple) else output


@pytest.mark.parametrize("name", SINKS)
def test_attention_sinks_are_read(name):
    module = with_sinks(name)
    model = speechmix.load(module)
    maps = speechmix.mix(model, {"input_ids": IDS}, measures=["attention", "value_zeroing"])
    attention = torch.from_numpy(maps["attention", "decoder"].scores)
    with torch.no_grad():
        own = module(IDS, output_attentions=True).attentions[0][0].mean(dim=0)
    if not name.startswith("granite"):  # which gives its weights without the sinks' factor
        torch.testing.assert_close(attention[0], own.to(attention.dtype), rtol=0, atol=1e-6)
    assert (attention[0].sum(dim=-1) < 0.97).any()  # the rest goes to the sink
    inner = module.model
    expected = value_zeroing(module, inner.layers, lambda layer: layer.self_attn.v_proj, inner.norm)
    torch.testing.assert_close(
        torch.from_numpy(maps["value_zeroing", "decoder"].scores),
        expected,
        rtol=0,
        atol=2e-5,
        check_dtype=False,
    )


def test_the_measured_model_has_a_fingerprint_of_its_own():
    config = transformers.FalconConfig(
        **{**SHAPE, "alibi": True, "new_decoder_architecture": False}
    )
    eager = speechmix.load(
        drawn(transformers.FalconForCausalLM, config, attn_implementation="eager")
    )
    sdpa = speechmix.load(drawn(transformers.FalconForCausalLM, config, attn_implementation="sdpa"))
    assert eager.needs_eager_attention != sdpa.needs_eager_attention
    assert eager.fingerprint != sdpa.fingerprint


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_falcon_with_alibi_is_measured_as_it_was_given(implementation):
    config = transformers.FalconConfig(
        **{**SHAPE, "alibi": True, "new_decoder_architecture": False}
    )
    module = drawn(transformers.FalconForCausalLM, config, attn_implementation=implementation)
    attention = speechmix.mix(speechmix.load(module), {"input_ids": IDS}, measures="attention")[
        "attention", "decoder"
    ]
    if implementation == "eager":
        with torch.no_grad():
            own = module(IDS, output_attentions=True).attentions[0][0].mean(dim=0)
        torch.testing.assert_close(
            torch.from_numpy(attention.scores[0]), own, rtol=0, atol=1e-6, check_dtype=False
        )


def test_capped_scores_are_read_as_they_are():
    config = transformers.Gemma2Config(
        **SHAPE, head_dim=8, attn_logit_softcapping=2.0, sliding_window=4
    )
    module = drawn(transformers.Gemma2ForCausalLM, config)
    maps = speechmix.mix(speechmix.load(module), {"input_ids": IDS}, measures="attention")
    with torch.no_grad():
        own = module(IDS, output_attentions=True).attentions[0][0].mean(dim=0)
    torch.testing.assert_close(
        torch.from_numpy(maps["attention", "decoder"].scores[0]),
        own,
        rtol=0,
        atol=1e-6,
        check_dtype=False,
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_model_that_computes_the_same_both_ways_is_read_from_sdpa(dtype):
    config = transformers.LlamaConfig(**SHAPE)
    model = speechmix.load(
        drawn(transformers.LlamaForCausalLM, config, attn_implementation="eager").to(dtype)
    )
    assert model.readable_attention == "sdpa"
    assert not model.needs_eager_attention


def test_where_neither_way_gives_the_same_loading_names_the_reason(monkeypatch):
    module = with_sinks("gpt_oss")
    monkeypatch.setattr(self_check, "measure_difference", lambda model: 0.3)
    with pytest.raises(
        speechmix.SpeechmixError, match="attention sinks are ignored by the sdpa path"
    ):
        speechmix.load(module)
