"""AST, the Audio Spectrogram Transformer: one pre-norm encoder stack over patches of a spectrogram.

Positions are two tokens of its own, then patches, a band of frequencies after the other: what
sounds at one time lies at positions far apart, so that a word is no range of them. It is scored on
prepared inputs, patch by patch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from torch import Tensor

from ...errors import InputError
from ...inputs.clips.clip import Clip
from ..generation.model_inputs import PreparedInputs
from ..transformers_types import Config
from .checkpoint_classes import checkpoint_class
from .family import Family
from .specs import AttentionSpec, FeedForwardSpec, StackSpec
from .tiny_inputs import random_features

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


def _refuse_grid(config: Config, n_samples: int) -> NoReturn:
    raise InputError(
        "AST's positions are patches of time and frequency, so a word is no range of them: give "
        "prepared inputs, "
        "{'input_values': features}, with spans= or patch by patch"
    )


def _prepare_clip(model: Model, clip: Clip, stacks: tuple[str, ...]) -> PreparedInputs:
    _refuse_grid(model.config, 0)


def _tiny_inputs(config: Config) -> dict[str, Tensor]:
    return {"input_values": random_features(1, config.max_length, config.num_mel_bins)}


FAMILIES = (
    Family(
        "ast",
        ("audio-spectrogram-transformer",),
        stacks=lambda config: (_AST_STACK,),
        grid=_refuse_grid,
        prepare=_prepare_clip,
        run=lambda base, inputs, stacks: base(**inputs),
        tiny_inputs=_tiny_inputs,
        auto_class=checkpoint_class,
    ),
)
