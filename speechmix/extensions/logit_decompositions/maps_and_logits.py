"""maps_and_logits(): maps of layers, and contributions to logits, from one forward pass.

In: a `Model` with its head, and one item. Out: what `mix` and `logit_contributions` give for it,
each of which would run the model, and read the same attention weights, by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from ...adapters.capture.device_copy import inputs_to_device
from ...adapters.capture.layer_run import Block
from ...adapters.model import Model
from ...errors import InputError
from ...files.timing import phase
from ...mixing.maps.logit_contributions import LogitContributions
from ...mixing.maps.map_files import map_folders
from ...mixing.maps.map_set import Maps
from ...mixing.measures.measure import BlockReader
from ...mixing.measures.measure_functions import find_measure
from ...mixing.measures.token_objectives import Objective
from ...mixing.measures.unit_positions import Units
from ...mixing.passes.forward_pass import compute_maps
from ...mixing.passes.item_view import Item, View
from ...mixing.passes.precision import resolve_state_dtype
from ...mixing.passes.request import MixRequest, ObjectiveOption
from .logit_contributions import (
    check_splits_logits,
    contributions_provenance,
    label_contributions,
    logit_objective,
)


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
    configured_measure = find_measure(logit_measure)
    if configured_measure.block_reader is None:
        raise InputError(f"{logit_measure} needs a pass of its own: speechmix.logit_contributions")
    make_reader = partial(configured_measure.block_reader, **configured_measure.values)
    check_splits_logits(model, logit_measure)
    request = MixRequest.of({**options, "measures": list(measures), "stacks": list(model.stacks)})
    dtype = resolve_state_dtype(model, request)
    started_readers: list[tuple[View, list[Objective], BlockReader]] = []

    def make_observer(
        view: View, units: Mapping[str, Units], dtype: torch.dtype
    ) -> Callable[[Block], None]:
        resolved_objectives = [
            logit_objective(option, model, view, logit_measure) for option in objectives
        ]
        inputs = inputs_to_device(view.prepared.inputs, model.device, dtype)
        with phase(logit_measure):
            reader = make_reader(model, view, request, inputs, resolved_objectives, units)
            started_readers.append((view, resolved_objectives, reader))

        def on_block(block: Block) -> None:
            with phase(logit_measure):
                started_readers[0][2].on_block(block)

        return on_block

    [maps] = compute_maps(
        model, [item], map_folders(None, [item]), request, dtype, "auto", make_observer
    )
    view, resolved_objectives, reader = started_readers[0]
    provenance = contributions_provenance(model, view, request, dtype, configured_measure)
    return maps, label_contributions(
        model, view, logit_measure, reader.values(), resolved_objectives, provenance, dtype
    )
