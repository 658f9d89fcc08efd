"""GPT-2, Llama, Mistral, Qwen, SmolLM, Phi-3, OLMo 2, Gemma: one causal, pre-norm decoder stack
over tokens, a final norm.

GPT-2 keeps queries, keys and values in one projection and its weights transposed. The others have
RMS norms, gated feed-forwards and may share keys and values between heads (grouped attention);
Gemma 3 norms each block's output too, OLMo 2 nothing else. Of Qwen3-MoE each token takes experts of
its own, so that its layers are replayed. A Gemma 3 that sees images holds the same language model,
and is fed text alone.
Position p holds token p and predicts token p + 1; both sides of a map are labelled with the token
that is held.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ...errors import InputError
from ..generation.text_tokens import prepare_sentence
from ..transformers_types import Config, Inputs, ModelOutput, PretrainedModule
from .family import Family
from .specs import AttentionSpec, FeedForwardSpec, StackSpec, checkpoint_class, tiny_ids

_GPT2 = StackSpec(
    name="decoder",
    layers="h",
    blocks=(AttentionSpec.of("attn", value="c_attn", key="c_attn", output="c_proj", norm="ln_1"),),
    norm_order="pre",
    final_norm="ln_f",
    causal=True,
    feed_forwards=(
        FeedForwardSpec(norm="ln_2", up="mlp.c_fc", down="mlp.c_proj", activation="mlp.act"),
    ),
)
_ATTENTION = AttentionSpec.of("self_attn", output="o_proj", norm="input_layernorm")
_GATED_FEED_FORWARD = FeedForwardSpec(
    norm="post_attention_layernorm",
    up="mlp.up_proj",
    down="mlp.down_proj",
    activation="mlp.act_fn",
    gate="mlp.gate_proj",
)
LLAMA = StackSpec(
    name="decoder",
    layers="layers",
    blocks=(_ATTENTION,),
    norm_order="pre",
    final_norm="norm",
    causal=True,
    feed_forwards=(_GATED_FEED_FORWARD,),
)
_GEMMA3 = replace(
    LLAMA,
    blocks=(replace(_ATTENTION, branch_norm="post_attention_layernorm"),),
    feed_forwards=(
        replace(
            _GATED_FEED_FORWARD,
            norm="pre_feedforward_layernorm",
            branch_norm="post_feedforward_layernorm",
        ),
    ),
)
_PHI3 = replace(
    LLAMA,
    blocks=(
        AttentionSpec.of(
            "self_attn", value="qkv_proj", key="qkv_proj", output="o_proj", norm="input_layernorm"
        ),
    ),
    feed_forwards=(
        replace(
            _GATED_FEED_FORWARD,
            gate="mlp.gate_up_proj:0",
            up="mlp.gate_up_proj:1",
            activation="mlp.activation_fn",
        ),
    ),
)
_OLMO2 = replace(
    LLAMA,
    blocks=(replace(_ATTENTION, norm=None, branch_norm="post_attention_layernorm"),),
    feed_forwards=(),
)


def _run_decoder(base: PretrainedModule, inputs: Inputs, stacks: tuple[str, ...]) -> ModelOutput:
    return base(**inputs, use_cache=False)


def _run_text_decoder(
    base: PretrainedModule, inputs: Inputs, stacks: tuple[str, ...]
) -> ModelOutput:
    if "pixel_values" in inputs:
        raise InputError(
            "Gemma 3 is measured on text: positions of an image see each other both ways, and are "
            "no words. Leave pixel_values "
            "and its image tokens out"
        )
    return _run_decoder(base, inputs, stacks)


def decoder_only_family(
    name: str, spec_for: Callable[[Config], StackSpec], *model_types: str
) -> Family:
    """Family of a language model: ``spec_for(config)`` returns its one stack."""

    def stacks(config: Config) -> tuple[StackSpec, ...]:
        spec = spec_for(config)
        if getattr(
            getattr(config, "text_config", config), "attn_logit_softcapping", None
        ):  # which torch's attention function cannot do
            spec = replace(
                spec, blocks=tuple(replace(block, needs_eager=True) for block in spec.blocks)
            )
        return (spec,)

    return Family(
        name,
        model_types,
        stacks=stacks,
        grid=None,
        prepare=prepare_sentence,
        run=_run_decoder,
        tiny_inputs=tiny_ids,
        auto_class=checkpoint_class,
        can_batch=lambda config: True,
    )


def _make_family(name: str, spec: StackSpec, *model_types: str) -> Family:
    return decoder_only_family(name, lambda config: spec, *model_types)


FAMILIES = (
    _make_family("gpt2", _GPT2, "gpt2"),
    _make_family("llama", LLAMA, "llama", "mistral", "smollm3"),
    _make_family("qwen", LLAMA, "qwen2", "qwen3"),
    _make_family("qwen-moe", replace(LLAMA, feed_forwards=()), "qwen3_moe"),
    _make_family("phi3", _PHI3, "phi3"),
    _make_family("olmo2", _OLMO2, "olmo2"),
    _make_family("gemma", LLAMA, "gemma"),
    _make_family("gemma3", _GEMMA3, "gemma3_text", "gemma2"),
    replace(
        decoder_only_family(
            "gemma3-multimodal", lambda config: _GEMMA3.with_root("language_model"), "gemma3"
        ),
        run=_run_text_decoder,
        tiny_inputs=lambda config: tiny_ids(config.text_config),
        heads=lambda config, stack: config.text_config.num_attention_heads,
    ),
)
