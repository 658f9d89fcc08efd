"""Count how many frames of an encoder become how many positions of an audio language model's decoder."""

from __future__ import annotations

import math

from torch import nn

from ...adapters.transformers_types import HookArguments, HookKeywords, PretrainedModule
from ...errors import ModelError
from .drawn_tokens import count_audio_positions
from .input_search import InputForm
from .recording import iterate_tensors

_LARGEST_STEP, _MOST_POSITIONS = 64, 8


def find_projector_step(
    base: PretrainedModule, form: InputForm, first_layer: nn.Module
) -> tuple[int, int]:
    """Find the smallest step that explains the positions of sounds of several lengths.

    Raises
    ------
    ModelError
        If there is none.
    """
    pairs = []
    for share in (1.0, 0.87, 0.61, 0.5, 0.34):
        pair = _count_pair(base, form, first_layer, round(share * form.length))
        if pair is not None:
            pairs.append(pair)
    for positions in range(1, _MOST_POSITIONS + 1):
        for frames in range(1, _LARGEST_STEP + 1):
            if pairs and all(
                n_positions in (positions * (n // frames), positions * math.ceil(n / frames))
                for n, n_positions in pairs
            ):
                return frames, positions
    raise ModelError(
        f"frames of the encoder become positions of the decoder in no even step: {pairs}"
    )


def _count_pair(
    base: PretrainedModule, form: InputForm, first_layer: nn.Module, length: int
) -> tuple[int, int] | None:
    """Frames of the encoder and positions of the decoder for a sound, None if it does not run."""
    counts: list[int] = []

    def count_frames(module: nn.Module, args: HookArguments, kwargs: HookKeywords) -> None:
        states = next(iterate_tensors((args, kwargs)))
        counts.append(math.prod(states.shape[:-1]))

    hook = first_layer.register_forward_pre_hook(count_frames, with_kwargs=True)
    try:
        inputs = form.make(base, length=length)
        counts.clear()
        position_count = count_audio_positions(base, form.select_audio(inputs))
        return counts[0], position_count
    except (RuntimeError, ValueError, IndexError):
        return None
    finally:
        hook.remove()
