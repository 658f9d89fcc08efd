"""One forward pass: the maps of the items that share it, every measure and stack at once.

In: items, a `MixRequest`, a `Precision`. The blocks are handled while the pass runs, one at a time,
each measure pooled to words at once, so that the memory beyond the plain pass is about one layer's
maps. Every block's mixing strength is computed with them. Out: `Maps`, one for each item. Measures
that differentiate the whole model take a pass of their own behind it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...adapters.capture.block import Block
from ...adapters.capture.device_copy import inputs_to_device, to_host
from ...adapters.capture.features import store_encoder_states
from ...adapters.capture.forward_pass import Capture
from ...adapters.delta_engine.matrix_products import MatrixProduct
from ...adapters.model import Model
from ...files.json_files import Json
from ...files.timing import phase
from ..maps.map_files import written_to
from ..maps.map_set import Maps
from ..maps.mixing_map import MixingMap
from ..measures.availability import check_defined
from ..measures.gradient_pass import GradientPass
from ..measures.measure import Measure
from ..measures.mixing_strength import STRENGTH
from ..measures.objectives import objective_of
from ..measures.registry import measure_named
from ..measures.unit_positions import Units
from .batches import bytes_of_pairs, padded_together, pairs_at_once, rows_at_once
from .map_labels import MapLabels, labelled, map_provenance, of_numbers
from .precision import Precision, inference_context
from .request import MixRequest, ObjectiveOption
from .requested_layers import layers_of, stacks_of
from .score_collection import ScoresByLayer, maps_from
from .view import Item, View
from .views import make_view

# From a prepared view, the units of its stacks as they are seen, and the precision: what is told of
# each block.
Beside = Callable[[View, Mapping[str, Units], Precision], Callable[[Block], None]]


def compute_maps(
    model: Model,
    items: Sequence[Item],
    folders: Iterator[Path | None],
    request: MixRequest,
    precision: Precision,
    batch_size: int | str,
    beside: Beside | None = None,
) -> list[Maps]:
    """Maps of items that share a forward pass; each takes the next of the folders.

    What is `beside` them, of a single item, is told of the same blocks.
    """
    folders_here = list(itertools.islice(folders, len(items)))
    views = [make_view(model, item, request) for item in items]
    layers = layers_of(model, stacks_of(model, views, request), request)
    measures = [measure_named(name) for name in request.measures]
    for measure, stack in itertools.product(measures, layers):
        check_defined(measure, model.stacks[stack])
    for view in views:
        view.prepare(
            tuple(model.stacks) if any(measure.objective for measure in measures) else tuple(layers)
        )
    provenances = [map_provenance(model, view, request, precision) for view in views]
    units_of: list[dict[str, Units]] = [{} for _ in views]
    of_blocks = [measure for measure in measures if measure.scope == "layer"]
    strength = [STRENGTH] if any(not measure.objective for measure in measures) else []
    resources = {
        "product": MatrixProduct(precision.products, model.weight_products),
        "batch_size": batch_size,
        "bytes_of_pairs": bytes_of_pairs(model.device),
    }
    with ExitStack() as unfinished:  # whatever happens, no half a file is left
        collected = [
            unfinished.enter_context(ScoresByLayer(layers, folder)) for folder in folders_here
        ]

        also = None
        if beside is not None:
            with inference_context(model, precision):
                also = beside(views[0], units_of[0], precision)

        def on_block(block: Block) -> None:
            with phase("maps"):
                stack, units_here = block.stack.name, units_of[block.clip]
                if stack not in units_here:
                    units_here[stack] = views[block.clip].units(block)
                scored = scores_of_block(
                    block, units_here[stack], [*of_blocks, *strength], request, resources
                )
                scores = {measure.name: tensor for measure, tensor in scored}
                strengths = scores.pop(STRENGTH.name)[:, 0] if strength else None
                collected[block.clip].append(stack, scores, strengths)
            if also is not None:
                also(block)

        run_forward(model, views, tuple(layers), on_block, request, precision)
        with phase("maps"):
            finished = maps_from(collected)
            maps_of = [
                labelled(view, scores, provenance, layers, of_blocks, request)
                for view, scores, provenance in zip(views, finished, provenances, strict=True)
            ]
    if len(of_blocks) < len(measures):
        for index, view in enumerate(views):
            asked = (
                units_of[index],
                provenances[index],
                layers,
                request,
                precision,
                [request.objective],
            )
            [maps] = maps_by_gradients(model, view, *asked, strengths=finished[index].strengths)
            maps_of[index] |= {
                key: written_to(folders_here[index], made) for key, made in maps.items()
            }
    return [
        Maps({(name, stack): maps[name, stack] for name in request.measures for stack in layers})
        for maps in maps_of
    ]


def run_forward(
    model: Model,
    views: Sequence[View],
    stacks: Sequence[str],
    on_block: Callable[[Block], None],
    request: MixRequest,
    precision: Precision,
) -> None:
    """The forward pass of the items together; their blocks are handled while it runs."""
    inputs = padded_together(model, [view.prepared.inputs for view in views])
    with (
        inference_context(
            model, precision
        ),  # from here on the stacks are bound to the modules as they are now
        Capture([model.stacks[stack] for stack in stacks], on_block, layers=request.layers),
        phase("forward"),
    ):
        output = model.family.run(
            model.base, inputs_to_device(inputs, model.device, precision.states), tuple(stacks)
        )
    states = getattr(output, "encoder_last_hidden_state", None)
    if states is not None:
        store_encoder_states(
            model, states, views[0].prepared.sound, attention=model.readable_attention
        )


def scores_of_block(
    block: Block,
    units: Units,
    measures: Sequence[Measure],
    request: MixRequest,
    resources: Mapping[str, Any],
) -> Iterator[tuple[Measure, Tensor]]:
    """Each measure's scores [(H,) W_t, W_s] of one block, some rows at a time."""
    if resources["batch_size"] == "auto":
        resources = {**resources, "batch_size": pairs_at_once(block, resources["bytes_of_pairs"])}
    scores_of: dict[str, list[Tensor]] = {measure.name: [] for measure in measures}
    for group in units.groups(rows_at_once(block)):
        for measure in measures:
            with phase(measure.name):
                scores = measure(block, group, **_read_by(measure, request, resources))
            scores_of[measure.name].append(scores)
    for measure in measures:
        parts = scores_of[measure.name]
        yield measure, torch.cat(parts, dim=-2) if parts[1:] else parts[0]


def _read_by(
    measure: Measure, request: MixRequest, resources: Mapping[str, object]
) -> dict[str, object]:
    """The options that a measure's function takes."""
    return {
        name: resources[name] if name in resources else getattr(request, name)
        for name in measure.takes
    }


def maps_by_gradients(
    model: Model,
    view: View,
    units: Mapping[str, Units],
    provenance: Mapping[str, Json],
    layers: Mapping[str, tuple[int, ...]],
    request: MixRequest,
    precision: Precision,
    objectives: Sequence[ObjectiveOption],
    strengths: Mapping[str, np.ndarray] | None = None,
) -> list[dict[tuple[str, str], MixingMap]]:
    """Maps of the measures that differentiate the whole model, for one item: those of each
    objective.

    Mixing strengths [L, W_t] by stack go to the maps that have a row for each target.
    """
    measures = [
        measure for measure in map(measure_named, request.measures) if measure.scope == "model"
    ]
    made: list[dict[tuple[str, str], tuple[Tensor, MapLabels]]] = []
    with inference_context(model, precision):
        inputs = inputs_to_device(view.prepared.inputs, model.device, precision.states)
        if any(measure.objective for measure in measures):
            resolved = [
                objective_of(option, model, view.item, view.prepared) for option in objectives
            ]
            with phase("forward"):
                passes = GradientPass.of_each(model, inputs, layers, resolved)
        else:
            with phase("forward"):
                passes = [GradientPass(model, inputs, layers)]
        while passes:
            run = passes.pop(0)  # and let go behind it, with what it alone has computed
            made.append({})
            for measure, (stack, layers_here) in itertools.product(measures, layers.items()):
                with phase(measure.name):
                    scores, notes = measure(
                        run, stack, units[stack], **_read_by(measure, request, {})
                    )
                targets, sources = view.labels(stack)
                strength = None if strengths is None or measure.objective else strengths.get(stack)
                if measure.objective:
                    targets, notes = (
                        (run.objective.span,),
                        {"objective": run.objective.details, **notes},
                    )
                labels = (
                    targets,
                    sources,
                    measure.name,
                    stack,
                    layers_here,
                    {**provenance, **notes},
                    strength,
                )
                made[-1][measure.name, stack] = scores, labels
    arrays = iter(to_host([scores for of_one in made for scores, _ in of_one.values()]))
    return [
        {key: of_numbers(MixingMap(next(arrays), *labels)) for key, (_, labels) in of_one.items()}
        for of_one in made
    ]
