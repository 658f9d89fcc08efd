"""A clip's model run on other sounds and other decoder tokens, and something read of the logits of
each run.

In: a `Decision` and changes. Out: what a function makes of the logits of each, which stand at the
positions of the unchanged tokens. Changes that share a sound share the pass of the encoder.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from ..adapters.capture.features import wrap_encoder_states
from ..inputs.clips.clip import Clip
from .decision import Decision
from .input_ablation import inputs_of_sound
from .token_removal import blanked

T = TypeVar("T")
_RUNS_AT_ONCE = 16  # of one length
_IDS = "decoder_input_ids"


@dataclass(frozen=True, eq=False)
class Change:
    """What of a clip is other than it was.

    Parameters
    ----------
    sound : Clip, optional
        The clip with another sound of the same length.
    blanked : tuple of int
        Positions of the decoder's tokens.
    fill : str or int
        What takes their place, as in `tokens.blanked`.
    """

    sound: Clip | None = None
    blanked: tuple[int, ...] = ()
    fill: str | int = "remove"


def of_changes(
    decision: Decision, changes: Sequence[Change], read: Callable[[Tensor], T]
) -> list[T]:
    """What is read of each changed run.

    Parameters
    ----------
    decision : Decision
        Of a clip.
    changes : sequence of Change
        An empty one is the clip as it is.
    read : callable
        Of logits [T, V], in double precision. Row p stands for position p of the unchanged tokens:
        it is what the model predicts after all tokens up to p that are left. What follows a removed
        token is read behind the one before it.

    Raises
    ------
    InputError
        If a tokenizer has no such token to fill with, or nothing would be left.
    """
    model = decision.model
    with model.in_use(model.state_dtype), torch.no_grad():
        if _IDS in decision.prepared.inputs:
            return _of_decoder(decision, changes, read)
        readings: list[T] = []
        for start in range(0, len(changes), _RUNS_AT_ONCE):
            sounds = [
                _heard(decision, change.sound) for change in changes[start : start + _RUNS_AT_ONCE]
            ]
            inputs = {name: torch.cat([sound[name] for sound in sounds]) for name in sounds[0]}
            readings += [
                read(logits.double()) for logits in model.module(**inputs, return_dict=True).logits
            ]
        return readings


def _of_decoder(
    decision: Decision, changes: Sequence[Change], read: Callable[[Tensor], T]
) -> list[T]:
    model, length = decision.model, decision.prepared.inputs[_IDS].shape[1]
    states: dict[int, Tensor] = {}  # [1, T, D] by sound
    for change in changes:
        if id(change.sound) not in states:
            heard = _heard(decision, change.sound)
            heard.pop(_IDS)
            states[id(change.sound)] = model.module.get_encoder()(
                **heard, return_dict=True
            ).last_hidden_state
    runs: dict[
        int, list[tuple[int, Tensor, list[int]]]
    ] = {}  # by number of tokens: place, ids, positions left
    for number, change in enumerate(changes):
        inputs, left = decision.inputs, list(range(length))
        if change.blanked:
            inputs, left = blanked(model, inputs, change.blanked, fill=change.fill, side=_IDS)
        runs.setdefault(len(left), []).append((number, inputs[_IDS], left))
    readings: dict[int, Any] = {}
    for together in runs.values():
        for start in range(0, len(together), _RUNS_AT_ONCE):
            numbers, ids, lefts = zip(*together[start : start + _RUNS_AT_ONCE], strict=True)
            hidden = torch.cat([states[id(changes[number].sound)] for number in numbers])
            output = model.module(
                encoder_outputs=wrap_encoder_states(hidden),
                decoder_input_ids=torch.cat(ids),
                use_cache=False,
                return_dict=True,
            )
            for number, left, logits in zip(numbers, lefts, output.logits, strict=True):
                rows = [max(bisect_right(left, position) - 1, 0) for position in range(length)]
                readings[number] = read(logits[rows].double())
    return [readings[number] for number in range(len(changes))]


def _heard(decision: Decision, sound: Clip | None) -> dict[str, Tensor]:
    """Inputs with another sound, on the model's device."""
    return dict(decision.inputs) | (
        {} if sound is None else decision.moved(inputs_of_sound(decision, sound))
    )
