"""Removal of input sources: what is removed, and what replaces it.

In: an item's inputs and `Removal`s. Out: other inputs, and which rows of their logits stand for the former positions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from ..adapters.generation.audio_prompt import audio_inputs
from ..adapters.generation.transducer_path import PATH_STATES
from ..errors import InputError
from ..inputs.clips.clip import Clip
from .audio_removal import mute, scale_words, splice_words
from .token_removal import blank_tokens

if TYPE_CHECKING:
    from torch import Tensor

    from ..adapters.model import Model
    from ..inputs.sentences.sentence import Sentence

SOUND, TEXT_IDS, DECODER_IDS = SIDES = ("sound", "input_ids", "decoder_input_ids")

# For each former position the row of the logits that stands for it, -1 for none; None: its own.
RowIndices = tuple[int, ...] | None


class SoundRemover(ABC):
    """Removes parts of a clip's sound that are no words, such as cells of its spectrum."""

    @abstractmethod
    def remove(self, indices: Sequence[int], clip: Clip) -> Clip:
        """Return the clip without the parts of these indices."""


@dataclass(frozen=True)
class Removal:
    """Sources that are removed from one side of an input, and what replaces them.

    Parameters
    ----------
    side : {"sound", "input_ids", "decoder_input_ids"}
        The sound, or the tokens of this input of the model.
    indices : tuple of int
        Indices of the clip's words, or positions of tokens.
    fill : str, float, Clip, SoundRemover, int or tuple of int
        Of a sound: a fill of `mute`, a factor for its samples, a clip whose sound of the same words is put in, or
        a `SoundRemover`, whose parts the indices are. Of tokens:
        a fill of `blank`, the id of a token, or one id for each position, None for a position that is removed.
    """

    side: str
    indices: tuple[int, ...]
    fill: str | int | float | Clip | SoundRemover | tuple[int | None, ...]


def change_inputs(
    model: Model,
    item: Clip | Sentence | None,
    inputs: Mapping[str, Tensor],
    removals: Sequence[Removal],
) -> tuple[dict[str, Tensor], RowIndices]:
    """Apply removals to the inputs [1, ...] of an item (None for prepared inputs), at most one to
    each input of tokens.

    The row indices say, for each position of the unchanged inputs, which row of the new logits
    stands for it: that of the last token up to it that is left. They are None where no row moves.
    An InputError says that a fill is not possible, that nothing would be left, or that the sound of
    something else than a clip should change.
    """
    new_inputs, row_indices = dict(inputs), None
    if any(removal.side == SOUND for removal in removals):
        new_inputs |= _change_sound(
            model, item, inputs, [removal for removal in removals if removal.side == SOUND]
        )
    generated_side = None if model.has_label_head else model.capabilities.generated_input
    for removal in removals:
        side, fill, indices = removal.side, removal.fill, removal.indices
        if isinstance(fill, tuple):
            new_inputs[side] = inputs[side].clone()
            for position, token in zip(indices, fill, strict=True):
                if token is not None:
                    new_inputs[side][:, position] = token
            indices = tuple(i for i, token in zip(indices, fill, strict=True) if token is None)
            fill = "remove"
            if not indices:
                continue
        if side != SOUND and isinstance(fill, str | int):
            new_inputs, kept_positions = blank_tokens(
                model, new_inputs, indices, fill=fill, side=side
            )
            if len(kept_positions) < inputs[side].shape[1] and side == generated_side:
                row_indices = tuple(
                    bisect_right(kept_positions, position) - 1
                    for position in range(inputs[side].shape[1])
                )
    if row_indices is not None and PATH_STATES in inputs:
        # Rows stay at their frames; behind fewer tokens the prediction network is in other states.
        new_inputs[PATH_STATES] = torch.tensor(row_indices)[inputs[PATH_STATES].cpu()]
        row_indices = None
    return new_inputs, row_indices


def prepare_sound_inputs(model: Model, clip: Clip) -> dict[str, Tensor]:
    """Prepare the inputs that a clip's sound is in, without those of its text."""
    inputs = audio_inputs(model.family.prepare(model, clip, ("encoder",)).inputs)
    return {name: torch.as_tensor(tensor) for name, tensor in inputs.items()}


def _change_sound(
    model: Model,
    item: Clip | Sentence | None,
    inputs: Mapping[str, Tensor],
    removals: Sequence[Removal],
) -> dict[str, Tensor]:
    if not isinstance(item, Clip):
        raise InputError(
            f"{'inputs' if item is None else item.name}: only the sound of a clip can be silenced"
        )
    clip = item
    for removal in removals:
        if isinstance(removal.fill, Clip):
            clip = splice_words(clip, removal.fill, removal.indices)
        elif isinstance(removal.fill, SoundRemover):
            clip = removal.fill.remove(removal.indices, clip)
        elif isinstance(removal.fill, str):
            clip = mute(clip, removal.indices, fill=removal.fill)
        elif isinstance(removal.fill, int | float):
            clip = scale_words(clip, dict.fromkeys(removal.indices, removal.fill))
        else:
            raise InputError(f"{item.name}: expected a fill of a sound, found {removal.fill!r}")
    new_inputs = prepare_sound_inputs(model, clip)
    mask_names = [name for name, tensor in new_inputs.items() if not tensor.is_floating_point()]
    if TEXT_IDS in inputs and any(
        not torch.equal(new_inputs[name], inputs[name]) for name in mask_names
    ):
        raise InputError(
            f"{item.name}: with the other's sound the clip has another length, and an audio language model another number "
            "of positions; take words of one length, or swap states or values instead"
        )
    return new_inputs
