"""Effects of removals in the decoder for one item: by window of layers, by head, and by patched states.

In: a model, an item, another sound. Out: rows with the part of m(own) - m(other), the difference of the log-odds of the
right answer, that each removal takes away (see `sound_routes.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ...adapters.patching.patched_runs import run_patches
from ...adapters.patching.patches import Patch
from ...adapters.transformers_types import ModelOutput
from ...errors import InputError
from ...interventions.value_knock_out import layer_windows
from ..patching.patching import capture_states, match_positions
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
        If its options first differ at different positions.
    """
    question = Question(model, item, donor)
    if len(question.reading.contexts) > 1:
        raise InputError(
            f"{item.name}: its options first differ at different positions: they cannot be compared in one run"
        )
    inputs = {sound: question.inputs(sound) for sound in (OWN, OTHER)}
    positions = {sound: question.sound_positions(sound, fed) for sound, fed in inputs.items()}
    stack = question.stack
    count = len(model.stacks[stack])
    layers = layer_windows(count, 1)
    # Windows that fit, the whole stack, and single heads.
    windows = [members for members in layer_windows(count, window) if len(members) == window]
    knock_outs: list[tuple[range, int | None]] = [
        (members, None) for members in dict.fromkeys([*windows, range(count)])
    ]
    knock_outs += product(layers, range(model.stacks[stack].heads))
    clean, removed = {}, {}
    for sound in (OWN, OTHER):
        patches = [
            Patch(stack, members, positions[sound], heads=None if head is None else (head,))
            for members, head in knock_outs
        ]
        clean[sound], removed[sound] = _run(question, inputs[sound], patches)
    total, needs = (clean[OWN] - clean[OTHER]).tolist()
    effects = total - (removed[OWN] - removed[OTHER])
    patches = _exchange_states(question, inputs[OTHER], positions)
    patched = clean[OWN][0] - _run(question, inputs[OWN], patches)[1]
    places = [(KNOCK_OUT, *knock_out) for knock_out in knock_outs]
    places += [(PATCH, layer, None) for layer in layers]
    rows: list[dict[str, Any]] = [
        {"removal": INPUT, "stack": INPUT, "layer": 0, "layer_count": 0, "head": np.nan}
        | {"effect": total, "needs": needs}
    ]
    for (removal, members, head), effect in zip(places, [*effects, *patched], strict=True):
        place = {"removal": removal, "stack": stack, "layer": members.start}
        number = np.nan if head is None else float(head)
        place |= {"layer_count": len(members), "head": number, "effect": float(effect)}
        rows.append(place)
    return rows


def _run(
    question: Question, inputs: Mapping[str, Tensor], patches: Sequence[Patch]
) -> tuple[np.ndarray, np.ndarray]:
    """Log-odds of the right answer of the intact run, with whether it is preferred, and log-odds with each patch."""
    model, reading = question.model, question.reading
    [context] = reading.contexts

    def read(output: ModelOutput) -> Tensor:
        log_probs = [question.read_rows(output, inputs, context)]
        return torch.stack(
            [reading.log_odds(log_probs), reading.is_right(log_probs).double()], dim=1
        )

    with model.in_use(model.state_dtype):
        fed = question.with_answer(inputs, context)
        clean, patched = run_patches(model, fed, patches, read)
    return clean.numpy(), patched[:, 0].numpy()


def _exchange_states(
    question: Question,
    other: Mapping[str, Tensor],
    positions: Mapping[str, Sequence[int]],
) -> list[Patch]:
    """Put in the states of the other sound, from each layer on; behind an encoder its values in each layer of
    cross-attention."""
    model, stack, [context] = question.model, question.stack, question.reading.contexts
    what = "values" if stack == "cross" else "states"
    states = capture_states(model, question.with_answer(other, context), what)
    donor_positions = match_positions(len(positions[OWN]), positions[OTHER])
    patches = []
    for layer in range(len(model.stacks[stack])):
        new = states[stack, layer][..., donor_positions, :]
        replacement: dict[str, Any] = (
            {"values": {layer: new}} if what == "values" else {"states": new}
        )
        patches.append(Patch(stack, range(layer, layer + 1), positions[OWN], **replacement))
    return patches
