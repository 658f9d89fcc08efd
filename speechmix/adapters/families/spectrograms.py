"""AST, the Audio Spectrogram Transformer: one pre-norm encoder stack over patches of a spectrogram.

Positions are two tokens of its own, then patches, a band of frequencies after the other: what
sounds at one time lies at positions far apart, one in each band, and a word has all of them. A
frame is a column of patches (100 ms apart, of 175 ms each, so that neighbours overlap).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from ...errors import InputError
from ...inputs.audio.frame_grid import FrameGrid
from ...inputs.clips.clip import Clip
from ..capture.model_use import extract_features
from ..generation.model_inputs import PreparedInputs
from ..transformers_types import Config
from .family import Family
from .specs import AttentionSpec, FeedForwardSpec, StackSpec, checkpoint_class, random_features

if TYPE_CHECKING:
    from ..model import Model

_AST_STACK = StackSpec(
    name="encoder",
    layers="layers",
    blocks=(AttentionSpec.of("attention", output="o_proj", norm="layernorm_before"),),
    norm_order="pre",
    final_norm="layernorm",
    feed_forwards=(
        FeedForwardSpec(
            norm="layernorm_after", up="mlp.fc1", down="mlp.fc2", activation="mlp.activation_fn"
        ),
    ),
)


_MEL_STRIDE, _MEL_WIDTH = 0.01, 0.025  # seconds of the mel frames of AST's feature extractor


def _patch_grid(config: Config, n_samples: int) -> FrameGrid:
    """Columns of patches of the fixed window, and the bands of each."""
    size = config.patch_size
    width = (size - 1) * _MEL_STRIDE + _MEL_WIDTH
    return FrameGrid(
        n_frames=(config.max_length - size) // config.time_stride + 1,
        stride=config.time_stride * _MEL_STRIDE,
        first_centre=width / 2,
        width=width,
        duration=config.max_length * _MEL_STRIDE,
        is_fixed_window=True,
        bands=(config.num_mel_bins - size) // config.frequency_stride + 1,
        first_position=2,
    )


def _prepare_clip(model: Model, clip: Clip, stacks: tuple[str, ...]) -> PreparedInputs:
    seconds, window = clip.duration, _patch_grid(model.config, 0).duration
    if seconds > window + _MEL_WIDTH:
        raise InputError(
            f"{clip.name}: {seconds:.2f} s of audio, but {model.name} hears {window:g} s: cut it, "
            f"clip.cut(start, end) of up to {window:g} s (--cut 0:{window:g} on the command line)"
        )
    features = extract_features(model, clip)
    return PreparedInputs(
        {"input_values": features.tensors["input_values"]}, audio_hash=features.audio_hash
    )


def _tiny_inputs(config: Config) -> dict[str, Tensor]:
    return {"input_values": random_features(1, config.max_length, config.num_mel_bins)}


FAMILIES = (
    Family(
        "ast",
        ("audio-spectrogram-transformer",),
        stacks=lambda config: (_AST_STACK,),
        grid=_patch_grid,
        prepare=_prepare_clip,
        run=lambda base, inputs, stacks: base(**inputs),
        tiny_inputs=_tiny_inputs,
        sound_pooling=lambda config: "added tokens",
        auto_class=checkpoint_class,
    ),
)
