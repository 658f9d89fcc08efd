"""Moonshine, Speech2Text and SpeechT5: a speech encoder, a causal decoder, and cross-attention
between them.

Stacks of Moonshine and Speech2Text are pre-norm with a final norm; SpeechT5's are post-norm.
Moonshine hears the waveform, in frames of 24 ms; Speech2Text mel features, in frames of 40 ms;
SpeechT5 is wav2vec2 before its layers, with frames of 20 ms. SpeechT5 computes attention by code of
its own, in the encoder with a term for the distance of two frames: it is read off the softmax, so
that the term is in it. In the decoder, position p holds token p and predicts token p + 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...errors import ModelError
from ...inputs.audio.frame_grid import FrameGrid
from ...inputs.clips.clip import Clip
from ..capture.model_use import extract_features
from ..generation.greedy_generation import add_decoder_tokens, generate_transcript
from ..generation.model_inputs import PreparedInputs
from ..transformers_types import Config, Inputs, ModelOutput, PretrainedModule
from .family import Family
from .seq2seq import MBART, count_heads, run_seq2seq, seq2seq_stacks
from .specs import AttentionSpec, FeedForwardSpec, StackSpec, random_features
from .wav2vec2 import FEED_FORWARD, convolution_grid

if TYPE_CHECKING:
    from ..model import Model

_SELF_ATTENTION = AttentionSpec.of("self_attn", output="o_proj", norm="input_layernorm")
_CROSS_ATTENTION = AttentionSpec.of(
    "encoder_attn", output="o_proj", query="q_proj", norm="post_attention_layernorm"
)
_FEED_FORWARD = FeedForwardSpec(
    "post_attention_layernorm", up="mlp.fc1", down="mlp.fc2", activation="mlp.activation_fn"
)
_ENCODER = StackSpec(
    name="encoder",
    layers="encoder.layers",
    blocks=(_SELF_ATTENTION,),
    norm_order="pre",
    final_norm="encoder.layer_norm",
    feed_forwards=(_FEED_FORWARD,),
)
_DECODER = replace(
    _ENCODER,
    layers="decoder.layers",
    blocks=(_SELF_ATTENTION, _CROSS_ATTENTION),
    final_norm="decoder.norm",
    feed_forwards=(
        replace(_FEED_FORWARD, norm="final_layernorm", gate="mlp.fc1:1", up="mlp.fc1:0"),
    ),
)
_MOONSHINE = seq2seq_stacks(_ENCODER, _DECODER)
_SPEECHT5_ENCODER = StackSpec(
    name="encoder",
    layers="encoder.wrapped_encoder.layers",
    blocks=(AttentionSpec.of("attention", norm="layer_norm", needs_eager=True),),
    norm_order="post",
    feed_forwards=(FEED_FORWARD,),
    shared=("position_bias",),
)
_SPEECHT5_DECODER = replace(
    _SPEECHT5_ENCODER,
    layers="decoder.wrapped_decoder.layers",
    blocks=(
        AttentionSpec.of("self_attn", norm="self_attn_layer_norm", needs_eager=True),
        AttentionSpec.of("encoder_attn", norm="encoder_attn_layer_norm", needs_eager=True),
    ),
    shared=(),
)
_SPEECHT5 = seq2seq_stacks(_SPEECHT5_ENCODER, _SPEECHT5_DECODER)
_SPEECH_TO_TEXT = "SpeechT5ForSpeechToText"
_MOONSHINE_KERNELS, _MOONSHINE_STRIDES = (127, 7, 3), (64, 3, 2)


def _moonshine_grid(config: Config, n_samples: int) -> FrameGrid:
    return FrameGrid.from_convolutions(n_samples, _MOONSHINE_KERNELS, _MOONSHINE_STRIDES)


def _speech2text_grid(config: Config, n_samples: int) -> FrameGrid:
    """Mel frames of 25 ms every 10 ms, none beyond the sound, and two padded convolutions that
    halve them."""
    FrameGrid.from_convolutions(
        n_samples, (400,), (160,)
    )  # refuses what is shorter than one mel frame
    n_frames, width, hop = (n_samples - 240) // 160, 1, 1
    for kernel in config.conv_kernel_sizes:
        n_frames = (n_frames + 2 * (kernel // 2) - kernel) // 2 + 1
        width, hop = width + (kernel - 1) * hop, 2 * hop
    return FrameGrid(n_frames, 0.01 * hop, 0.0125, 0.01 * (width - 1) + 0.025, n_samples / 16_000)


def _make_prepare(*names: str) -> Callable[[Model, Clip, tuple[str, ...]], PreparedInputs]:
    def prepare(model: Model, clip: Clip, stacks: tuple[str, ...]) -> PreparedInputs:
        model.grid(
            len(clip.audio(model.sample_rate))
        )  # says what is too short, where extractors stumble
        features = extract_features(model, clip)
        inputs = {name: features.tensors[name] for name in names if name in features.tensors}
        return add_decoder_tokens(
            model, clip, stacks, PreparedInputs(inputs, audio_hash=features.audio_hash)
        )

    return prepare


def _make_tiny_inputs(name: str, *shape: int) -> Callable[[Config], dict[str, Tensor]]:
    def tiny_inputs(config: Config) -> dict[str, Tensor]:
        ids = torch.arange(4, 12)[None] % config.vocab_size
        return {name: random_features(*shape), "decoder_input_ids": ids}

    return tiny_inputs


def _speecht5_class(config: Config) -> str:
    """SpeechT5 comes in three models of one type, of which one hears and writes."""
    other_class = next(
        (name for name in config.architectures or () if name != _SPEECH_TO_TEXT), None
    )
    if other_class is not None:
        raise ModelError(_unsupported_message(other_class))
    return _SPEECH_TO_TEXT


def _run_speecht5(base: PretrainedModule, inputs: Inputs, stacks: tuple[str, ...]) -> ModelOutput:
    if not hasattr(getattr(base.encoder, "prenet", None), "feature_encoder") or not hasattr(
        getattr(base.decoder, "prenet", None), "embed_tokens"
    ):
        raise ModelError(_unsupported_message(f"this {type(base).__name__}"))
    renamed_inputs = {
        "decoder_input_values" if name == "decoder_input_ids" else name: x
        for name, x in inputs.items()
    }
    return run_seq2seq(base, renamed_inputs, stacks, tokens_name="decoder_input_values")


def _unsupported_message(class_name: str) -> str:
    return (
        f"of SpeechT5 {_SPEECH_TO_TEXT} can be measured, which hears and writes text; {class_name} "
        "does not"
    )


FAMILIES = (
    Family(
        "moonshine",
        ("moonshine",),
        stacks=lambda config: _MOONSHINE,
        grid=_moonshine_grid,
        prepare=_make_prepare("input_values"),
        run=run_seq2seq,
        generate=generate_transcript,
        tiny_inputs=_make_tiny_inputs("input_values", 1, 4_000),
        auto_class=lambda config: "AutoModelForSpeechSeq2Seq",
        heads=lambda config, stack: (
            config.encoder_num_attention_heads
            if stack == "encoder"
            else config.decoder_num_attention_heads
        ),
    ),
    Family(
        "speech-to-text",
        ("speech_to_text",),
        stacks=lambda config: MBART,
        grid=_speech2text_grid,
        prepare=_make_prepare("input_features", "attention_mask"),
        run=run_seq2seq,
        generate=generate_transcript,
        tiny_inputs=lambda config: _make_tiny_inputs(
            "input_features", 1, 33, config.input_feat_per_channel
        )(config),
        auto_class=lambda config: "AutoModelForSpeechSeq2Seq",
        heads=count_heads,
        feature_rows=(160, 240),
    ),
    Family(
        "speecht5",
        ("speecht5",),
        stacks=lambda config: _SPEECHT5,
        grid=convolution_grid,
        prepare=_make_prepare("input_values"),
        run=_run_speecht5,
        generate=generate_transcript,
        tiny_inputs=_make_tiny_inputs("input_values", 1, 5_000),
        auto_class=_speecht5_class,
        heads=count_heads,
    ),
)
