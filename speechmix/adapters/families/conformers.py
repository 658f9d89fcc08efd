"""wav2vec2-BERT, wav2vec2-conformer, SeamlessM4T v2 (speech encoder), Parakeet, Granite-speech's
encoder: Conformers.

A layer is half a feed-forward, attention, a convolution over time, half a feed-forward and a norm
of the sum. The convolution takes a change of one frame's attention to the frames around it. All
read mel features, in frames of 20 ms or (Parakeet) 80 ms; wav2vec2-conformer reads the waveform.

What a transducer (RNN-T, TDT) adds to the table of its encoder.

In: the family of the encoder, written or traced, and the config of the whole model. Out: a family
whose models write. No architecture is named here: transformers builds all of them alike (Parakeet,
Nemotron).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from torch import Tensor

from ...inputs.audio.frame_grid import FrameGrid
from ...inputs.clips.clip import Clip
from ..capture.model_use import extract_features
from ..generation.emission_paths import (
    add_text_and_path,
    generate_emissions,
    run_along_path,
    select_encoder_inputs,
)
from ..generation.model_inputs import PreparedInputs
from ..transformers_types import Config, Inputs, ModelOutput, PretrainedModule
from . import wav2vec2
from .family import Family
from .specs import (
    AttentionSpec,
    ConvolutionSpec,
    FeedForwardSpec,
    StackSpec,
    ctc_checkpoint_class,
    random_features,
)

if TYPE_CHECKING:
    from ...inputs.clips.clip import Clip
    from ..model import Model


def add_transducer(family: Family, config: Config) -> Family:
    """Return the family of an encoder, with what is behind it if that is a transducer.

    `config` is that of the whole model: a transducer's says how many tokens it emits at a frame at
    most.
    """
    is_transducer = hasattr(config, "blank_token_id") and hasattr(config, "max_symbols_per_step")
    return make_transducer(family) if is_transducer and family.run_head is None else family


def make_transducer(encoder: Family) -> Family:
    """Return the family of transducers with the encoder of another family."""
    return replace(
        encoder,
        prepare=partial(_prepare_transducer, encoder),
        run=partial(_run_encoder, encoder),
        run_head=run_along_path,
        generate=generate_emissions,
    )


def _prepare_transducer(
    encoder: Family, model: Model, clip: Clip, stacks: tuple[str, ...]
) -> PreparedInputs:
    prepared = encoder.prepare(model, clip, ("encoder",))
    return add_text_and_path(model, clip, stacks, prepared)


def _run_encoder(
    encoder: Family, base: PretrainedModule, inputs: Inputs, stacks: tuple[str, ...]
) -> ModelOutput:
    return encoder.run(base, select_encoder_inputs(inputs), stacks)


_CONVOLUTION = ConvolutionSpec(
    norm="conv_module.layer_norm",
    expand="conv_module.pointwise_conv1",
    depthwise="conv_module.depthwise_conv",
    depthwise_norm="conv_module.batch_norm",
    activation="conv_module.activation",
    contract="conv_module.pointwise_conv2",
)
_FAIRSEQ_CONFORMER = StackSpec(
    name="encoder",
    layers="encoder.layers",
    blocks=(
        AttentionSpec.of(
            "self_attn",
            value="linear_v",
            key="linear_k",
            output="linear_out",
            norm="self_attn_layer_norm",
        ),
    ),
    norm_order="pre",
    convolution=_CONVOLUTION,
    feed_forwards=(
        FeedForwardSpec(
            norm="ffn2_layer_norm",
            up="ffn2.intermediate_dense",
            down="ffn2.output_dense",
            activation="ffn2.intermediate_act_fn",
            scale=0.5,
        ),
    ),
    closing_norm="final_layer_norm",
)
_CAUSAL_CONFORMER = replace(
    _FAIRSEQ_CONFORMER,
    convolution=replace(
        _CONVOLUTION, depthwise_norm="conv_module.depthwise_layer_norm", causal=True
    ),
)
_PARAKEET = StackSpec(
    name="encoder",
    layers="layers",
    blocks=(AttentionSpec.of("self_attn", output="o_proj", norm="norm_self_att"),),
    norm_order="pre",
    convolution=ConvolutionSpec(
        norm="norm_conv",
        expand="conv.pointwise_conv1",
        depthwise="conv.depthwise_conv",
        depthwise_norm="conv.norm",
        activation="conv.activation",
        contract="conv.pointwise_conv2",
    ),
    feed_forwards=(
        FeedForwardSpec(
            norm="norm_feed_forward2",
            up="feed_forward2.linear1",
            down="feed_forward2.linear2",
            activation="feed_forward2.activation",
            scale=0.5,
        ),
    ),
    closing_norm="norm_out",
)
GRANITE = StackSpec(
    name="encoder",
    layers="layers",
    blocks=(
        AttentionSpec.of("attn", value="to_kv", key="to_kv", output="to_out", norm="attn.pre_norm"),
    ),
    norm_order="pre",
    convolution=ConvolutionSpec(
        norm="conv.norm",
        expand="conv.up_conv",
        depthwise="conv.depth_conv.conv",
        depthwise_norm="conv.batch_norm",
        activation="conv.silu",
        contract="conv.down_conv",
    ),
    feed_forwards=(
        FeedForwardSpec(
            norm="ff2.pre_norm",
            up="ff2.up_proj",
            down="ff2.down_proj",
            activation="ff2.silu",
            scale=0.5,
        ),
    ),
    closing_norm="post_norm",
)


def _make_stacks(
    spec: StackSpec, *root_paths: str, final_norm: str | None = None
) -> Callable[[Config], tuple[StackSpec, ...]]:
    """Return specs of an encoder that may lie in a whole model or be loaded alone."""
    specs = tuple(
        replace(spec, layers=root + spec.layers, final_norm=final_norm and root + final_norm)
        for root in root_paths or ("",)
    )
    return lambda config: specs


def _mel_grid(config: Config, n_samples: int) -> FrameGrid:
    """Two mel frames (25 ms every 10 ms, none beyond the sound) make a frame of 20 ms."""
    return FrameGrid.from_convolutions(n_samples, [400, 2], [160, 2])


def _parakeet_grid(config: Config, n_samples: int) -> FrameGrid:
    """Mel frames centred every 10 ms, halved by padded convolutions until frame i is centred at i
    times 80 ms."""
    config = _encoder_config(config)
    n_frames, width, hop = n_samples // 160, 1, 1
    kernel, stride = config.subsampling_conv_kernel_size, config.subsampling_conv_stride
    for _ in range(int(math.log2(config.subsampling_factor))):
        n_frames = (n_frames + (kernel - 1) // 2 * 2 - kernel) // stride + 1
        width, hop = width + (kernel - 1) * hop, hop * stride
    return FrameGrid(n_frames, 0.01 * hop, 0.0, 0.01 * (width - 1) + 0.025, n_samples / 16_000)


def granite_grid(config: Config, n_samples: int) -> FrameGrid:
    """Two centred mel frames make a frame of 20 ms; an odd one at the end is left out."""
    return FrameGrid((n_samples // 160 + 1) // 2, 0.02, 0.005, 0.035, n_samples / 16_000)


def _prepare_clip(model: Model, clip: Clip, stacks: tuple[str, ...]) -> PreparedInputs:
    features = extract_features(model, clip)
    return PreparedInputs(dict(features.tensors), audio_hash=features.audio_hash)


def _prepare_granite(model: Model, clip: Clip, stacks: tuple[str, ...]) -> PreparedInputs:
    """Prepare inputs: the feature extractor takes the sound alone, and returns features without a
    mask."""
    if model.feature_extractor is None:
        return _prepare_clip(model, clip, stacks)
    return PreparedInputs(
        {"input_features": model.feature_extractor(clip.audio(model.sample_rate))["input_features"]}
    )


def _make_run(
    encoder_name: str,
) -> Callable[[PretrainedModule, Inputs, tuple[str, ...]], ModelOutput]:
    """Run the encoder of a whole model, or an encoder alone."""

    def run(base: PretrainedModule, inputs: Inputs, stacks: tuple[str, ...]) -> ModelOutput:
        encoder: PretrainedModule = getattr(base, encoder_name, base)
        return encoder(**inputs)

    return run


def _run_granite(base: PretrainedModule, inputs: Inputs, stacks: tuple[str, ...]) -> ModelOutput:
    return base(inputs["input_features"])


def _encoder_config(config: Config) -> Config:
    return getattr(config, "encoder_config", config)


def _make_tiny_mel(
    mel_bins: Callable[[Config], int], n_frames: int
) -> Callable[[Config], dict[str, Tensor]]:
    return lambda config: {"input_features": random_features(1, n_frames, mel_bins(config))}


_PARAKEET_FAMILY = Family(
    "parakeet",
    ("parakeet_ctc", "parakeet_encoder"),
    stacks=_make_stacks(_PARAKEET, "encoder.", ""),
    grid=_parakeet_grid,
    prepare=_prepare_clip,
    run=_make_run("encoder"),
    tiny_inputs=_make_tiny_mel(lambda config: _encoder_config(config).num_mel_bins, 72),
    auto_class=lambda config: {"parakeet_ctc": "AutoModelForCTC"}.get(
        config.model_type, "AutoModel"
    ),
    heads=lambda config, stack: _encoder_config(config).num_attention_heads,
    can_batch=lambda config: True,
    feature_rows=(160, 0),
)
FAMILIES = (
    Family(
        "wav2vec2-bert",
        ("wav2vec2-bert",),
        stacks=_make_stacks(_CAUSAL_CONFORMER),
        grid=_mel_grid,
        prepare=_prepare_clip,
        run=_make_run("speech_encoder"),
        tiny_inputs=_make_tiny_mel(lambda config: config.feature_projection_input_dim, 9),
        auto_class=ctc_checkpoint_class,
        # Rotary models have one table for all clips, not one for each.
        can_batch=lambda config: config.position_embeddings_type != "rotary",
        feature_rows=(320, 240),
    ),
    replace(
        wav2vec2.FAMILIES[0],
        name="wav2vec2-conformer",
        model_types=("wav2vec2-conformer",),
        stacks=_make_stacks(_FAIRSEQ_CONFORMER, final_norm="encoder.layer_norm"),
        can_batch=lambda config: False,  # its convolutions mix a clip with its padding
    ),
    Family(
        "seamless-m4t-v2",
        ("seamless_m4t_v2",),
        stacks=_make_stacks(
            _CAUSAL_CONFORMER, "speech_encoder.", "", final_norm="encoder.layer_norm"
        ),
        grid=_mel_grid,
        prepare=_prepare_clip,
        run=_make_run("speech_encoder"),
        tiny_inputs=_make_tiny_mel(lambda config: config.feature_projection_input_dim, 9),
        auto_class=lambda config: "AutoModelForSpeechSeq2Seq",
        heads=lambda config, stack: config.speech_encoder_attention_heads,
        can_batch=lambda config: True,
        feature_rows=(320, 240),
    ),
    _PARAKEET_FAMILY,
    make_transducer(
        replace(
            _PARAKEET_FAMILY,
            name="parakeet-transducer",
            model_types=("parakeet_rnnt", "parakeet_tdt"),
        )
    ),
    Family(
        "granite-speech-encoder",
        ("granite_speech_encoder",),
        stacks=_make_stacks(GRANITE),
        grid=granite_grid,
        prepare=_prepare_granite,
        run=_run_granite,
        tiny_inputs=_make_tiny_mel(lambda config: _encoder_config(config).input_dim, 9),
        auto_class=lambda config: "AutoModel",
        heads=lambda config, stack: _encoder_config(config).num_heads,
        feature_rows=(320, -160),
    ),
)
