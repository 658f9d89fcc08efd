"""maps_and_logits(): maps of layers, and contributions to logits, from one forward pass.

In: a `Model` with its head, and one item. Out: what `mix` and `logit_contributions` give for it,
each of which would run the model, and read the same attention weights, by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ...adapters.capture.block import Block
from ...adapters.capture.device_copy import inputs_to_device
from ...adapters.model import Model
from ...errors import InputError
from ...files.timing import phase
from ..maps.logit_contributions import LogitContributions
from ..maps.map_files import folders_of
from ..maps.map_set import Maps
from ..measures.measure import BlockReader
from ..measures.objectives import Objective
from ..measures.registry import measure_named
from ..measures.unit_positions import Units
from .forward_pass import Precision, compute_maps
from .logit_contributions import (
    check_splits_logits,
    contributions_provenance,
    labelled_contributions,
    logit_objective,
)
from .request import MixRequest, ObjectiveOption
from .views import Item, View


def maps_and_logits(
    model: Model,
    item: Item,
    measures: Sequence[str],
    logit_measure: str,
    objectives: Sequence[ObjectiveOption],
    **options: Any,
) -> tuple[Maps, list[LogitContributions]]:
    """Maps of measures of single layers, in all stacks, and contributions to each objective.

    Parameters
    ----------
    model : Model
    item : Clip, Sentence, str or dict of tensors
        As in `mix`.
    measures : sequence of str
        Of the maps.
    logit_measure : str
        Of the contributions; one that has a `block_reader`.
    objectives : sequence
        Each as in `logit_contributions`.
    **options
        Further ones of both.

    Raises
    ------
    InputError, ModelError
        As both.
    """
    contributing = measure_named(logit_measure)
    if contributing.block_reader is None:
        raise InputError(f"{logit_measure} needs a pass of its own: speechmix.logit_contributions")
    read_blocks = partial(contributing.block_reader, **contributing.values)
    check_splits_logits(model, logit_measure)
    request = MixRequest.of({**options, "measures": list(measures), "stacks": list(model.stacks)})
    precision = Precision.of(model, request)
    begun: list[tuple[View, list[Objective], BlockReader]] = []

    def beside(
        view: View, units: Mapping[str, Units], precision: Precision
    ) -> Callable[[Block], None]:
        resolved = [logit_objective(option, model, view, logit_measure) for option in objectives]
        inputs = inputs_to_device(view.prepared.inputs, model.device, precision.states)
        with phase(logit_measure):
            reader = read_blocks(model, view, request, inputs, resolved, units)
            begun.append((view, resolved, reader))

        def on_block(block: Block) -> None:
            with phase(logit_measure):
                begun[0][2].on_block(block)

        return on_block

    [maps] = compute_maps(
        model, [item], folders_of(None, [item]), request, precision, "auto", beside
    )
    view, resolved, taken = begun[0]
    provenance = contributions_provenance(model, view, request, precision, contributing)
    return maps, labelled_contributions(
        model, view, logit_measure, taken.values(), resolved, provenance, precision
    )
