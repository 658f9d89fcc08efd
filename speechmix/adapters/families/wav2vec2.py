"""wav2vec2/XLSR, HuBERT, WavLM, data2vec-audio, UniSpeech(-SAT) and SEW: convolutions over the
waveform, one encoder stack.

Two norm orders ("stable layer norm" is pre-norm, with a final norm; otherwise post-norm, where
`encoder.layer_norm` comes *before* layer 1 and is no final norm) and two front ends (group norm,
layer norm), read from the config. SEW's layers see the mean of every two frames.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from ...inputs.audio.frame_grid import FrameGrid
from ...inputs.clips.clip import Clip
from ..capture.model_use import extract_features
from ..generation.model_inputs import PreparedInputs
from ..transformers_types import Config, Inputs, ModelOutput, PretrainedModule
from .family import Family
from .specs import AttentionSpec, FeedForwardSpec, StackSpec, ctc_checkpoint_class, random_features

if TYPE_CHECKING:
    from ..model import Model

_ATTENTION = AttentionSpec.of("attention", norm="layer_norm")
FEED_FORWARD = FeedForwardSpec(
    norm="final_layer_norm",
    up="feed_forward.intermediate_dense",
    down="feed_forward.output_dense",
    activation="feed_forward.intermediate_act_fn",
)
_ADAPTER = FeedForwardSpec(
    norm="adapter_layer.norm",
    up="adapter_layer.linear_1",
    down="adapter_layer.linear_2",
    activation="adapter_layer.act_fn",
)


def _list_stacks(config: Config) -> tuple[StackSpec, ...]:
    is_pre_norm, has_adapters = (
        getattr(config, "do_stable_layer_norm", False),
        getattr(config, "adapter_attn_dim", None),
    )
    return (
        StackSpec(
            name="encoder",
            layers="encoder.layers",
            blocks=(_ATTENTION,),
            norm_order="pre" if is_pre_norm else "post",
            final_norm="encoder.layer_norm" if is_pre_norm else None,
            feed_forwards=(FEED_FORWARD, _ADAPTER)
            if is_pre_norm and has_adapters
            else (FEED_FORWARD,),
        ),
    )


def convolution_grid(config: Config, n_samples: int) -> FrameGrid:
    """Frames of a clip behind convolutions that the config tells."""
    return FrameGrid.from_convolutions(n_samples, config.conv_kernel, config.conv_stride)


def _sew_grid(config: Config, n_samples: int) -> FrameGrid:
    kernels, strides = (
        [*sizes, config.squeeze_factor] for sizes in (config.conv_kernel, config.conv_stride)
    )
    return FrameGrid.from_convolutions(n_samples, kernels, strides)


def _prepare_clip(model: Model, clip: Clip, stacks: tuple[str, ...]) -> PreparedInputs:
    features = extract_features(model, clip)
    return PreparedInputs(
        {"input_values": features.tensors["input_values"]}, audio_hash=features.audio_hash
    )


def _run_encoder(base: PretrainedModule, inputs: Inputs, stacks: tuple[str, ...]) -> ModelOutput:
    return base(**inputs)


def _tiny_inputs(config: Config) -> dict[str, Tensor]:
    # Long enough for a few frames; fixed noise, because silence would be normalised to all zeros.
    n_samples = 1_000
    for kernel, stride in zip(config.conv_kernel, config.conv_stride, strict=True):
        n_samples = max(n_samples, kernel * stride)
    return {"input_values": random_features(1, n_samples + 2_000)}


def _can_batch(config: Config) -> bool:
    """Group norm mixes a clip with its padding; layer norm does not, and the mask keeps padding out
    of attention."""
    return config.feat_extract_norm == "layer" and not getattr(config, "conv_pos_batch_norm", False)


def _make_family(name: str, *model_types: str, **options: Any) -> Family:
    grid = options.pop("grid", convolution_grid)
    return Family(
        name,
        model_types,
        _list_stacks,
        grid,
        _prepare_clip,
        _run_encoder,
        _tiny_inputs,
        ctc_checkpoint_class,
        **options,
    )


FAMILIES = (
    _make_family("wav2vec2", "wav2vec2", can_batch=_can_batch),
    _make_family("hubert", "hubert", can_batch=_can_batch),
    _make_family("wavlm", "wavlm"),
    _make_family("data2vec-audio", "data2vec-audio"),
    _make_family("unispeech", "unispeech", "unispeech-sat", can_batch=_can_batch),
    _make_family("sew", "sew", grid=_sew_grid),
)
