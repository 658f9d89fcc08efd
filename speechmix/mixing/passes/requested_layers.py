"""Which stacks and layers a request names."""

from __future__ import annotations

from collections.abc import Sequence

from ...adapters.model import Model
from ...errors import InputError
from .item_view import View
from .request import MixRequest


def resolve_stacks(model: Model, views: Sequence[View], request: MixRequest) -> tuple[str, ...]:
    """Requested stacks in the model's order; by default those that the items reach, which must be
    the same."""
    if request.stacks is not None:
        unknown_stacks = set(request.stacks) - set(model.stacks)
        if unknown_stacks or not request.stacks:
            raise InputError(
                f"{model.name} has the stacks {list(model.stacks)}; asked for "
                f"{sorted(set(request.stacks))}"
            )
        return tuple(name for name in model.stacks if name in request.stacks)
    reachable_stacks = {
        tuple(
            name
            for name in model.stacks
            if name == "encoder" or "encoder" not in model.stacks or view.has_decoder_input
        )
        for view in views
    }
    if len(reachable_stacks) > 1:
        raise InputError(
            "clips with and without text cannot share a forward pass: say stacks=, or "
            "clips_at_once=1"
        )
    return reachable_stacks.pop()


def resolve_layers(
    model: Model, stacks: Sequence[str], request: MixRequest
) -> dict[str, tuple[int, ...]]:
    """Requested layers, by stack."""
    layers = request.layers
    if layers is None:
        return {stack: tuple(range(len(model.stacks[stack]))) for stack in stacks}
    min_layers = min(len(model.stacks[stack]) for stack in stacks)
    if not layers or not all(layer in range(min_layers) for layer in layers):
        raise InputError(
            f"layers={list(layers)}: layers are counted from 0; {', '.join(stacks)} have 0 to "
            f"{min_layers - 1}"
        )
    return {stack: tuple(sorted({int(layer) for layer in layers})) for stack in stacks}
