"""Moonshine and Speech2Text: a speech encoder, a causal decoder, and cross-attention between them.

All stacks are pre-norm with a final norm. Moonshine hears the waveform, in frames of 24 ms; Speech2Text mel features, in frames
of 40 ms. A clip feeds their encoder; their decoder is scored on prepared inputs, with ``decoder_input_ids``.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from ...errors import InputError
from ...inputs.frames import FrameGrid
from ..plans import AttentionPlan, Family, FeedForwardPlan, StackPlan
from ..prepared import Prepared
from ..remembering import features_of
from .seq2seq import MBART, run_seq2seq

_SELF = AttentionPlan.of("self_attn", output="o_proj", norm="input_layernorm")
_CROSS = AttentionPlan.of("encoder_attn", output="o_proj", query="q_proj", norm="post_attention_layernorm")
_PLAIN = FeedForwardPlan("post_attention_layernorm", up="mlp.fc1", down="mlp.fc2", activation="mlp.activation_fn")
_ENCODER = StackPlan(
    name="encoder",
    layers="encoder.layers",
    blocks=(_SELF,),
    norm_order="pre",
    final_norm="encoder.layer_norm",
    feed_forwards=(_PLAIN,),
)
_DECODER = replace(
    _ENCODER,
    name="decoder",
    layers="decoder.layers",
    blocks=(_SELF, _CROSS),
    final_norm="decoder.norm",
    causal=True,
    feed_forwards=(replace(_PLAIN, norm="final_layernorm", gate="mlp.fc1:1", up="mlp.fc1:0"),),
)
_MOONSHINE = (_ENCODER, _DECODER, replace(_DECODER, name="cross", block=1, causal=False))
_KERNELS, _STRIDES = (127, 7, 3), (64, 3, 2)


def _moonshine_grid(config, n_samples):
    return FrameGrid.from_convolutions(n_samples, _KERNELS, _STRIDES)


def _speech2text_grid(config, n_samples):
    """Mel frames of 25 ms every 10 ms, none beyond the sound, and two padded convolutions that halve them."""
    n_frames, width, hop = (n_samples - 240) // 160, 1, 1
    for kernel in config.conv_kernel_sizes:
        n_frames = (n_frames + 2 * (kernel // 2) - kernel) // 2 + 1
        width, hop = width + (kernel - 1) * hop, 2 * hop
    return FrameGrid(n_frames, 0.01 * hop, 0.0125, 0.01 * (width - 1) + 0.025, n_samples / 16_000)


def _prepare(*names: str):
    def prepare(model, clip, stacks):
        if set(stacks) & {"decoder", "cross"}:
            raise InputError(
                f"{model.name}: a clip feeds its encoder alone. Ask for stacks=['encoder'], or give prepared inputs with "
                "decoder_input_ids"
            )
        features = features_of(model, clip)
        return Prepared(
            {name: features.tensors[name] for name in names if name in features.tensors}, sound=features.sound
        )

    return prepare


def _tiny(name: str, *shape: int):
    def tiny_inputs(config):
        noise = torch.randn(*shape, generator=torch.Generator().manual_seed(0))
        return {name: noise, "decoder_input_ids": torch.arange(4, 12)[None] % config.vocab_size}

    return tiny_inputs


FAMILIES = (
    Family(
        "moonshine",
        ("moonshine",),
        stacks=lambda config: _MOONSHINE,
        grid=_moonshine_grid,
        prepare=_prepare("input_values"),
        run=run_seq2seq,
        tiny_inputs=_tiny("input_values", 1, 4_000),
        auto_class=lambda config: "AutoModelForSpeechSeq2Seq",
        heads=lambda config, stack: (
            config.encoder_num_attention_heads if stack == "encoder" else config.decoder_num_attention_heads
        ),
        feeds_decoder=False,
    ),
    Family(
        "speech-to-text",
        ("speech_to_text",),
        stacks=lambda config: MBART,
        grid=_speech2text_grid,
        prepare=_prepare("input_features", "attention_mask"),
        run=run_seq2seq,
        tiny_inputs=lambda config: _tiny("input_features", 1, 33, config.input_feat_per_channel)(config),
        auto_class=lambda config: "AutoModelForSpeechSeq2Seq",
        heads=lambda config, stack: (
            config.encoder_attention_heads if stack == "encoder" else config.decoder_attention_heads
        ),
        feeds_decoder=False,
        feature_rows=(160, 240),
    ),
)
