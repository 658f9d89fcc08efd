"""Effects of removals in the decoder for one item: by window of layers, by head, and by patched states.

In: a model, an item, another sound. Out: rows with the part of m(own) - m(other), the difference of the log-odds of the
right answer, that each removal takes away (see `sound_routes.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ...adapters.capture.device_copy import inputs_to_device
from ...adapters.patching.patched_runs import run_patches
from ...adapters.patching.patches import Patch
from ...adapters.transformers_types import ModelOutput
from ...errors import InputError
from ...interventions.patching import capture_states, match_positions
from ...interventions.value_knock_out import layer_windows
from .questions import OTHER, OWN, Question

if TYPE_CHECKING:
    from torch import Tensor

    from ...adapters.model import Model
    from ...inputs.clips.clip import Clip
    from .items import ListeningItem

INPUT, KNOCK_OUT, PATCH = "input", "knock-out", "patch"


def item_routes(
    model: Model, item: ListeningItem, donor: Clip, *, window: int = 1
) -> list[dict[str, Any]]:
    """Measure the effects of all removals for one item.

    Returns
    -------
    list of dict
        removal, stack, layer (the first), layer_count, head (NaN for all heads), effect (nats); of the row "input" also
        needs (1: right with its own sound only, -1: with the other only, 0).

    Raises
    ------
    InputError
        If its options part in several places.
    """
    question = Question(model, item, donor)
    contexts = question.reading.contexts
    if len(contexts) > 1:
        raise InputError(f"{item.name}: its options part in several places")
    stack, _ = question.sound_positions(question.inputs(OWN))
    places: list[tuple[str, range, int | None]] = [
        (KNOCK_OUT, layers, None) for layers in _windows(question, stack, window)
    ]
    places += [
        (KNOCK_OUT, range(layer, layer + 1), head)
        for layer in range(len(question.model.stacks[stack]))
        for head in range(question.model.stacks[stack].heads)
    ]
    clean, removed = {}, {}
    for sound in (OWN, OTHER):
        inputs = question.inputs(sound)
        positions = question.sound_positions(inputs)[1]
        patches = [
            Patch(stack, layers, positions, heads=None if head is None else (head,))
            for _, layers, head in places
        ]
        clean[sound], removed[sound] = _run(question, inputs, patches)
    total, needs = (clean[OWN] - clean[OTHER]).tolist()
    effects = total - (removed[OWN] - removed[OTHER])
    patched = _patch_effects(question, stack, clean[OWN][0])
    places += [(PATCH, layers, None) for layers, _ in patched]
    values = [*effects.tolist(), *(effect for _, effect in patched)]
    rows = [{**_row(INPUT, INPUT, range(0), None, total), "needs": needs}]
    return rows + [
        _row(removal, stack, layers, head, value)
        for (removal, layers, head), value in zip(places, values, strict=True)
    ]


def _row(
    removal: str, stack: str, layers: range, head: int | None, effect: float
) -> dict[str, Any]:
    number = np.nan if head is None else float(head)
    place = {"layer": layers.start, "layer_count": len(layers), "head": number}
    return {"removal": removal, "stack": stack, **place, "effect": effect}


def _windows(question: Question, stack: str, window: int) -> list[range]:
    """Windows that fit, and the whole stack."""
    count = len(question.model.stacks[stack])
    found = [layers for layers in layer_windows(count, window) if len(layers) == window]
    return [*found, range(count)] if window < count else [range(count)]


def _run(
    question: Question, inputs: Mapping[str, Tensor], patches: Sequence[Patch]
) -> tuple[np.ndarray, np.ndarray]:
    """Log-odds of the right answer of the intact run, with whether it is preferred, and log-odds with each patch."""
    model, reading = question.model, question.reading
    [context], right = reading.contexts, reading.options.index(question.item.answer)

    def read(output: ModelOutput) -> Tensor:
        log_probs = [question.read_rows(output, inputs, context)]
        odds, is_right = reading.log_odds(log_probs, right), reading.is_right(log_probs, right)
        return torch.stack([odds, is_right.double()], dim=1)

    with model.in_use(model.state_dtype):
        fed = question.with_answer(inputs, context)
        clean, patched = run_patches(
            model,
            inputs_to_device(fed, model.device, model.state_dtype),
            patches,
            read,
        )
    return clean.numpy(), patched[:, 0].numpy()


def _patch_effects(question: Question, stack: str, clean: float) -> list[tuple[range, float]]:
    """Loss when the sound's states, from a layer on, are those of the other sound; behind an encoder its values in one
    layer of cross-attention.
    """
    model, [context] = question.model, question.reading.contexts
    own, other = question.inputs(OWN), question.inputs(OTHER)
    positions = question.sound_positions(own)[1]
    donor_positions = match_positions(len(positions), list(question.sound_positions(other)[1]))
    fed = question.with_answer(other, context)
    what = "values" if stack == "cross" else "states"
    with model.in_use(model.state_dtype):
        states = capture_states(model, inputs_to_device(fed, model.device, model.state_dtype), what)
    windows = [range(layer, layer + 1) for layer in range(len(model.stacks[stack]))]
    patches = []
    for layers in windows:
        new = states[stack, layers.start][..., donor_positions, :]
        replaced: dict[str, Any] = (
            {"values": {layers.start: new}} if what == "values" else {"states": new}
        )
        patches.append(Patch(stack, layers, positions, **replaced))
    patched = _run(question, own, patches)[1]
    return list(zip(windows, (clean - patched).tolist(), strict=True))
