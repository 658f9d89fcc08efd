"""BART, mBART and Marian (opus-mt): a text encoder, a causal decoder, and cross-attention between them.

BART and Marian are post-norm without a final norm; mBART is pre-norm with one behind each stack. In the decoder, input
position p holds token p and predicts token p + 1: target rows are labelled with what they predict.
"""

from __future__ import annotations

from dataclasses import replace

from ...errors import InputError
from ..plans import AttentionPlan, Family, FeedForwardPlan, StackPlan
from ..text import architecture, prepare_translation, tiny_ids

_SELF = AttentionPlan.of("self_attn", norm="self_attn_layer_norm")
_CROSS = AttentionPlan.of("encoder_attn", query="q_proj", norm="encoder_attn_layer_norm")
_FEED_FORWARD = FeedForwardPlan(norm="final_layer_norm", up="fc1", down="fc2", activation="activation_fn")


def _stacks(config):
    pre = config.model_type == "mbart"
    encoder = StackPlan(
        name="encoder",
        layers="encoder.layers",
        blocks=(_SELF,),
        norm_order="pre" if pre else "post",
        final_norm="encoder.layer_norm" if pre else None,
        feed_forwards=(_FEED_FORWARD,),
    )
    decoder = replace(
        encoder,
        name="decoder",
        layers="decoder.layers",
        blocks=(_SELF, _CROSS),
        final_norm="decoder.layer_norm" if pre else None,
        causal=True,
    )
    return encoder, decoder, replace(decoder, name="cross", block=1, causal=False)


def _run(base, inputs, stacks):
    if not set(stacks) & {"decoder", "cross"}:
        return base.encoder(**{name: value for name, value in inputs.items() if not name.startswith("decoder_")})
    if "decoder_input_ids" not in inputs:
        raise InputError(
            "decoder and cross stacks need decoder_input_ids beside input_ids (a Sentence with translation=); "
            "give them, or ask for stacks=['encoder']"
        )
    return base(**inputs, use_cache=False)


def _tiny_inputs(config):
    ids = tiny_ids(config)["input_ids"]
    return {"input_ids": ids, "decoder_input_ids": ids.flip(-1)}


def _heads(config, stack):
    return config.encoder_attention_heads if stack == "encoder" else config.decoder_attention_heads


def _family(name):
    return Family(
        name,
        (name,),
        stacks=_stacks,
        grid=None,
        prepare=prepare_translation,
        run=_run,
        tiny_inputs=_tiny_inputs,
        auto_class=architecture,
        batches=lambda config: True,
        heads=_heads,
    )


FAMILIES = (_family("bart"), _family("mbart"), _family("marian"))
