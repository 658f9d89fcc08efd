"""Compute the maps of one item for several objectives.

In: a `Model`, an item, objectives as in `mix`. Out: `Maps` for each, as `mix` returns for that
objective alone. What does not depend on the objective is computed once: the forward pass, whose
graph is kept while each objective is taken back through it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...adapters.capture.attention_block import Block
from ...adapters.model import Model
from ..maps.map_set import Maps
from ..measures.availability import check_defined
from ..measures.measure_functions import find_measure
from ..measures.unit_positions import Units
from .batches import split_into_groups
from .forward_pass import compute_gradient_maps, run_forward
from .item_view import Item
from .map_labels import map_provenance
from .precision import Precision
from .request import MixRequest, ObjectiveOption
from .requested_layers import resolve_layers, resolve_stacks
from .view_kinds import make_view

# What a measure makes of all objectives at once is in memory: of integrated gradients the states'
# gradients of each.
_OBJECTIVES_PER_PASS = 32


def mix_objectives(
    model: Model, item: Item, objectives: Sequence[ObjectiveOption], measure: str, **options: Any
) -> list[Maps]:
    """Return the maps of one measure for each of P objectives.

    The measure must have an objective and the model a head; the options are those of `mix` that
    decide scores. Errors as in `mix`.
    """
    request = MixRequest.of({**options, "measures": measure})
    precision, view = Precision.of(model, request), make_view(model, item, request)
    layers = resolve_layers(model, resolve_stacks(model, [view], request), request)
    for stack in layers:
        check_defined(find_measure(measure), model.stacks[stack])
    view.prepare(model.capabilities.prepared_stacks)
    units: dict[str, Units] = {}

    def on_block(block: Block) -> None:
        if block.stack.name not in units:
            units[block.stack.name] = view.units(block)

    run_forward(model, [view], tuple(layers), on_block, request, precision)
    gradient_arguments = (
        units,
        map_provenance(model, view, request, precision),
        layers,
        request,
        precision,
    )
    maps = []
    for objective_group in split_into_groups(objectives, _OBJECTIVES_PER_PASS):
        maps += [
            Maps(objective_maps)
            for objective_maps in compute_gradient_maps(
                model, view, *gradient_arguments, objective_group
            )
        ]
    return maps
