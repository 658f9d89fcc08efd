"""The classes of models whose weights can be set by hand, by the name of their family."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from .blueprint import Blueprint
from .speech_models import spectrogram_inputs, wav2vec2, waveform_inputs, whisper
from .text_models import bert, gpt2, token_inputs


@dataclass(frozen=True)
class PlantedFamily:
    """A class of models that cases are planted in.

    Parameters
    ----------
    build : callable
        Makes the model of a `Blueprint`.
    prepare : callable
        Makes prepared inputs of contents: for each stack in `inputs`, +1 or -1 at every position,
        0 at the first.
    stacks, inputs : tuple of str
        Stacks of the model, and those that take in contents.
    """

    build: Callable[[Blueprint], nn.Module]
    prepare: Callable[[Mapping[str, Sequence[int]]], dict[str, Tensor]]
    stacks: tuple[str, ...]
    inputs: tuple[str, ...]


FAMILIES = {
    "bert": PlantedFamily(bert, token_inputs, ("encoder",), ("encoder",)),
    "gpt2": PlantedFamily(gpt2, token_inputs, ("decoder",), ("decoder",)),
    "wav2vec2": PlantedFamily(wav2vec2, waveform_inputs, ("encoder",), ("encoder",)),
    "whisper": PlantedFamily(
        whisper, spectrogram_inputs, ("encoder", "decoder", "cross"), ("encoder", "decoder")
    ),
}
