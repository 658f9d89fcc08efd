"""BERT, RoBERTa, XLM-R, CamemBERT, ELECTRA, DistilBERT, DeBERTa-v2/v3 and ModernBERT: one encoder
stack over tokens.

All but ModernBERT are post-norm: every layer norm follows a residual sum and there is no final
norm. BERT's output projection and norm lie beside its attention module, DistilBERT's projection
inside it. ModernBERT is pre-norm, gated and ends in a norm.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..generation.text_tokens import prepare_sentence
from ..transformers_types import Config, Inputs, ModelOutput, PretrainedModule
from .family import Family
from .specs import AttentionSpec, FeedForwardSpec, StackSpec, checkpoint_class, tiny_ids

_BERT = StackSpec(
    name="encoder",
    layers="encoder.layer",
    blocks=(
        AttentionSpec(
            module="attention.self",
            value="attention.self.value",
            key="attention.self.key",
            output="attention.output.dense",
            norm="attention.output.LayerNorm",
        ),
    ),
    norm_order="post",
    feed_forwards=(
        FeedForwardSpec(
            norm="output.LayerNorm",
            up="intermediate.dense",
            down="output.dense",
            activation="intermediate.intermediate_act_fn",
        ),
    ),
)
# Positions relative to each other enter its scores by code of its own.
_DEBERTA = replace(
    _BERT,
    blocks=(
        replace(
            _BERT.blocks[0],
            value="attention.self.value_proj",
            key="attention.self.key_proj",
            needs_eager=True,
        ),
    ),
    shared=("relative_pos", "rel_embeddings"),
)
_DISTILBERT = StackSpec(
    name="encoder",
    layers="transformer.layer",
    blocks=(
        AttentionSpec.of(
            "attention", value="v_lin", key="k_lin", output="out_lin", norm="sa_layer_norm"
        ),
    ),
    norm_order="post",
    feed_forwards=(
        FeedForwardSpec(
            norm="output_layer_norm", up="ffn.lin1", down="ffn.lin2", activation="ffn.activation"
        ),
    ),
)
_MODERNBERT = StackSpec(
    name="encoder",
    layers="layers",
    blocks=(AttentionSpec.of("attn", value="Wqkv", key="Wqkv", output="Wo", norm="attn_norm"),),
    norm_order="pre",
    final_norm="final_norm",
    feed_forwards=(
        FeedForwardSpec(
            norm="mlp_norm", gate="mlp.Wi:0", up="mlp.Wi:1", down="mlp.Wo", activation="mlp.act"
        ),
    ),
)


def _make_deberta_stack(config: Config) -> StackSpec:
    has_convolution = (getattr(config, "conv_kernel_size", 0) or 0) > 0
    return replace(
        _DEBERTA, between="a convolution behind its first layer" if has_convolution else ""
    )


def _run_encoder(base: PretrainedModule, inputs: Inputs, stacks: tuple[str, ...]) -> ModelOutput:
    return base(**inputs)


def _make_family(
    name: str, spec: StackSpec | Callable[[Config], StackSpec], *model_types: str
) -> Family:
    return Family(
        name,
        model_types,
        stacks=lambda config: (spec(config) if callable(spec) else spec,),
        grid=None,
        prepare=prepare_sentence,
        run=_run_encoder,
        tiny_inputs=tiny_ids,
        auto_class=checkpoint_class,
        can_batch=lambda config: True,
    )


FAMILIES = (
    _make_family("bert", _BERT, "bert"),
    _make_family("roberta", _BERT, "roberta", "xlm-roberta", "camembert"),
    _make_family("electra", _BERT, "electra"),
    _make_family("distilbert", _DISTILBERT, "distilbert"),
    _make_family("deberta-v2", _make_deberta_stack, "deberta-v2"),
    _make_family("modernbert", _MODERNBERT, "modernbert"),
)
