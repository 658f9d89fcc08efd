"""OPT, GPT-NeoX/Pythia, Phi and Falcon: causal decoder stacks with layer norms, most with
feed-forwards in parallel to attention.

In a parallel layer attention and feed-forward read the same states and are added together: nothing
lies behind attention, and there is no sum of residual and attention alone for measures to count.
Which order a checkpoint has is in its config.
"""

from __future__ import annotations

from ..transformers_types import Config
from .specs import AttentionSpec, FeedForwardSpec, StackSpec
from .text_decoders import decoder_only_family


def _make_fused_attention(module: str, norm: str) -> AttentionSpec:
    """Attention whose queries, keys and values come from one projection."""
    return AttentionSpec.of(
        module, value="query_key_value", key="query_key_value", output="dense", norm=norm
    )


def _make_feed_forward(norm: str, up: str, down: str, activation: str) -> FeedForwardSpec:
    return FeedForwardSpec(norm, up=f"mlp.{up}", down=f"mlp.{down}", activation=f"mlp.{activation}")


def _make_opt_stack(config: Config) -> StackSpec:
    has_final_norm = config.do_layer_norm_before and not getattr(
        config, "_remove_final_layer_norm", False
    )
    return StackSpec(
        name="decoder",
        layers="decoder.layers",
        blocks=(AttentionSpec.of("self_attn", norm="self_attn_layer_norm"),),
        norm_order="pre" if config.do_layer_norm_before else "post",
        final_norm="decoder.final_layer_norm" if has_final_norm else None,
        causal=True,
        feed_forwards=(
            FeedForwardSpec("final_layer_norm", up="fc1", down="fc2", activation="activation_fn"),
        ),
    )


def _make_gpt_neox_stack(config: Config) -> StackSpec:
    return StackSpec(
        name="decoder",
        layers="layers",
        blocks=(_make_fused_attention("attention", norm="input_layernorm"),),
        norm_order="pre",
        final_norm="final_layer_norm",
        causal=True,
        feed_forwards=(
            _make_feed_forward("post_attention_layernorm", "dense_h_to_4h", "dense_4h_to_h", "act"),
        ),
        parallel=config.use_parallel_residual,
    )


def _make_phi_stack(config: Config) -> StackSpec:
    return StackSpec(
        name="decoder",
        layers="layers",
        blocks=(AttentionSpec.of("self_attn", output="dense", norm="input_layernorm"),),
        norm_order="pre",
        final_norm="final_layernorm",
        causal=True,
        feed_forwards=(_make_feed_forward("input_layernorm", "fc1", "fc2", "activation_fn"),),
        parallel=True,
    )


def _make_falcon_stack(config: Config) -> StackSpec:
    parallel = config.parallel_attn or config.new_decoder_architecture
    has_two_norms = config.parallel_attn and config.num_ln_in_parallel_attn == 2
    attention_norm = "ln_attn" if has_two_norms else "input_layernorm"
    feed_forward_norm = (
        "ln_mlp"
        if has_two_norms
        else "input_layernorm"
        if config.parallel_attn
        else "post_attention_layernorm"
    )
    return StackSpec(
        name="decoder",
        layers="h",
        blocks=(_make_fused_attention("self_attention", norm=attention_norm),),
        norm_order="pre",
        final_norm="ln_f",
        causal=True,
        feed_forwards=(
            _make_feed_forward(feed_forward_norm, "dense_h_to_4h", "dense_4h_to_h", "act"),
        ),
        parallel=parallel,
    )


FAMILIES = (
    decoder_only_family("opt", _make_opt_stack, "opt"),
    decoder_only_family("gpt-neox", _make_gpt_neox_stack, "gpt_neox"),
    decoder_only_family("phi", _make_phi_stack, "phi"),
    decoder_only_family("falcon", _make_falcon_stack, "falcon"),
)
