"""BART, mBART, Marian (opus-mt), M2M-100/NLLB, T5 and mT5: a text encoder, a causal decoder,
cross-attention between them.

BART and Marian are post-norm without a final norm; the others are pre-norm with one behind each
stack. In the decoder, input position p holds token p and predicts token p + 1: target rows are
labelled with what they predict.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from torch import Tensor

from ...errors import InputError
from ..generation.text_tokens import generate_translation, prepare_translation, translate_sentence
from ..transformers_types import Config, Inputs, ModelOutput, PretrainedModule
from .family import Family
from .specs import AttentionSpec, FeedForwardSpec, StackSpec, checkpoint_class, tiny_ids

_SELF_ATTENTION = AttentionSpec.of("self_attn", norm="self_attn_layer_norm")
_CROSS_ATTENTION = AttentionSpec.of("encoder_attn", query="q_proj", norm="encoder_attn_layer_norm")
_FEED_FORWARD = FeedForwardSpec(
    norm="final_layer_norm", up="fc1", down="fc2", activation="activation_fn"
)


_BART_ENCODER = StackSpec(
    name="encoder",
    layers="encoder.layers",
    blocks=(_SELF_ATTENTION,),
    norm_order="post",
    feed_forwards=(_FEED_FORWARD,),
)


def seq2seq_stacks(encoder: StackSpec, decoder: StackSpec) -> tuple[StackSpec, ...]:
    """Return the encoder, the causal decoder, and the decoder's cross-attention as stacks."""
    decoder = replace(decoder, name="decoder", causal=True)
    return encoder, decoder, replace(decoder, name="cross", block_index=1, causal=False)


BART = seq2seq_stacks(
    _BART_ENCODER,
    replace(_BART_ENCODER, layers="decoder.layers", blocks=(_SELF_ATTENTION, _CROSS_ATTENTION)),
)
MBART = tuple(
    replace(spec, norm_order="pre", final_norm=spec.layers.replace("layers", "layer_norm"))
    for spec in BART
)


def _t5_attention(index: int, name: str) -> AttentionSpec:
    return AttentionSpec.of(
        f"layer.{index}.{name}",
        value="v",
        key="k",
        output="o",
        query="q",
        norm=f"layer.{index}.layer_norm",
    )


def _t5_stacks(config: Config) -> tuple[StackSpec, ...]:
    up, gate = ("wi_1", "wi_0") if config.is_gated_act else ("wi", None)

    def stack(name: str, *blocks: AttentionSpec) -> StackSpec:
        layer_path = f"layer.{len(blocks)}"
        dense_path = f"{layer_path}.DenseReluDense"
        feed_forward = FeedForwardSpec(
            norm=f"{layer_path}.layer_norm",
            up=f"{dense_path}.{up}",
            gate=gate and f"{dense_path}.{gate}",
            down=f"{dense_path}.wo",
            activation=f"{dense_path}.act",
        )
        return StackSpec(
            name=name,
            layers=f"{name}.block",
            blocks=blocks,
            norm_order="pre",
            final_norm=f"{name}.final_layer_norm",
            feed_forwards=(feed_forward,),
        )

    self_attention = _t5_attention(0, "SelfAttention")
    return seq2seq_stacks(
        stack("encoder", self_attention),
        stack("decoder", self_attention, _t5_attention(1, "EncDecAttention")),
    )


def run_seq2seq(
    base: PretrainedModule,
    inputs: Inputs,
    stacks: tuple[str, ...],
    *,
    tokens_name: str = "decoder_input_ids",
) -> ModelOutput:
    """Run a base model: its encoder alone where no other stack is requested; `tokens_name` is its
    name for the decoder's."""
    if not set(stacks) & {"decoder", "cross"}:
        return base.encoder(
            **{name: value for name, value in inputs.items() if not name.startswith("decoder_")}
        )
    if tokens_name not in inputs:
        raise InputError(
            "decoder and cross stacks need decoder_input_ids beside the encoder's input (a "
            "Sentence with translation=); "
            "give them, or ask for stacks=['encoder']"
        )
    return base(**inputs, use_cache=False)


def _tiny_inputs(config: Config) -> dict[str, Tensor]:
    ids = tiny_ids(config)["input_ids"]
    return {"input_ids": ids, "decoder_input_ids": ids.flip(-1)}


def count_heads(config: Config, stack: str) -> int:
    """Heads of an encoder, or of a decoder behind it, that the config tells apart."""
    result: int = (
        config.encoder_attention_heads if stack == "encoder" else config.decoder_attention_heads
    )
    return result


def _make_family(
    name: str,
    *model_types: str,
    stacks: Callable[[Config], tuple[StackSpec, ...]],
    heads: Callable[[Config, str], int] = count_heads,
) -> Family:
    return Family(
        name,
        model_types,
        stacks=stacks,
        grid=None,
        prepare=prepare_translation,
        run=run_seq2seq,
        generate=generate_translation,
        translate=translate_sentence,
        tiny_inputs=_tiny_inputs,
        auto_class=checkpoint_class,
        can_batch=lambda config: True,
        heads=heads,
    )


FAMILIES = (
    _make_family("bart", "bart", stacks=lambda config: BART),
    _make_family("mbart", "mbart", stacks=lambda config: MBART),
    _make_family("marian", "marian", stacks=lambda config: BART),
    _make_family("m2m-100", "m2m_100", stacks=lambda config: MBART),
    _make_family(
        "t5", "t5", "mt5", stacks=_t5_stacks, heads=lambda config, stack: config.num_heads
    ),
)
