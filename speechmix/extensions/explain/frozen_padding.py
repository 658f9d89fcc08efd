"""Run Whisper's encoder on a clip's own positions; padding keeps its states of the intact pass.

Whisper hears 30 s, whatever the clip: of a clip of 3 s nine tenths of an encoder's work are padding. When the
sound of a word is removed, only the clip's own positions are computed again, and attend to padding as it was.
What the word does by way of padding stays: `benchmarks/explain_real.py` compares with whole passes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from ...inputs.audio.frame_grid import FrameGrid
from ...inputs.clips.clip import Clip
from ...interventions.decision import Decision

# Positions behind the clip that its last samples reach: the window of a spectrum, and two convolutions.
_MARGIN = 4
_MAX_SHARE = 0.8  # of the window; a clip that fills more gains nothing


class FrozenPadding:
    """Encoder passes in which positions from `n_positions` on keep their states of the intact pass."""

    def __init__(self, decision: Decision, n_positions: int):
        self._decision, self._n_positions = decision, n_positions
        self._encoder: Any = decision.model.module.get_encoder()
        self._projections: list[nn.Module] = [
            projection
            for layer in self._encoder.layers
            for projection in (layer.self_attn.k_proj, layer.self_attn.v_proj)
        ]
        self._padding_projected: dict[nn.Module, Tensor] = {}  # keys or values [1, T - n, D]

        def keep(projection: nn.Module, _: object, output: Tensor) -> None:
            self._padding_projected[projection] = output[:, n_positions:].clone()

        with ExitStack() as stack:
            for projection in self._projections:
                stack.callback(projection.register_forward_hook(keep).remove)
            self._padding = decision.encode(decision.inputs)[:, n_positions:]

    @classmethod
    def of(cls, decision: Decision) -> FrozenPadding | None:
        """Of a clip in Whisper's window; None for other models, and where the clip fills most of it."""
        from transformers.models.whisper.modeling_whisper import WhisperEncoder

        if not (decision.can_share_encoder and isinstance(decision.item, Clip)):
            return None
        encoder = decision.model.module.get_encoder()
        if not isinstance(encoder, WhisperEncoder):
            return None
        window = FrameGrid.fixed_window(encoder.config.max_source_positions)
        seconds_per_position = window.duration / window.n_frames
        n_positions = math.ceil(decision.item.duration / seconds_per_position) + _MARGIN
        return cls(decision, n_positions) if n_positions <= _MAX_SHARE * window.n_frames else None

    def encode(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """Compute the states [1, T, D] of another sound of the same length."""
        n_positions = self._n_positions
        n_frames = 2 * n_positions + _MARGIN  # of features that the two convolutions read for them

        def cut_features(_: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            return (args[0][..., :n_frames],)

        def fill_window(_: nn.Module, __: object, output: Tensor) -> Tensor:
            n_window = self._encoder.config.max_source_positions
            return nn.functional.pad(output, (0, n_window - output.shape[-1]))

        def cut_positions(_: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            return (args[0][:, :n_positions], *args[1:])

        def add_padding(projection: nn.Module, _: object, output: Tensor) -> Tensor:
            return torch.cat([output, self._padding_projected[projection]], dim=1)

        with ExitStack() as stack:
            for handle in (
                self._encoder.conv1.register_forward_pre_hook(cut_features),
                self._encoder.conv2.register_forward_hook(fill_window),
                self._encoder.layers[0].register_forward_pre_hook(cut_positions),
                *(x.register_forward_hook(add_padding) for x in self._projections),
            ):
                stack.callback(handle.remove)
            states = self._decision.encode(inputs)
        return torch.cat([states, self._padding], dim=1)
