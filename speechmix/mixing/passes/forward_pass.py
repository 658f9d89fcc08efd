"""One forward pass: the maps of the items that share it, every measure and stack at once.

In: items, a `MixRequest`, a `Precision`. The blocks are handled while the pass runs, one at a time,
each measure pooled to words at once, so that the memory beyond the plain pass is about one layer's
maps. Every block's mixing strength is computed with them. Out: `Maps`, one for each item. Measures
that differentiate the whole model take a pass of their own behind it.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...adapters.capture.block import Block
from ...adapters.capture.device_copy import inputs_to_device, to_host
from ...adapters.capture.features import store_encoder_states
from ...adapters.capture.forward_pass import Capture, use_attention
from ...adapters.capture.precision_context import dtype_named
from ...adapters.delta.products import TF32, Product, usable_products
from ...adapters.model import Model
from ...errors import InputError
from ...files.json_files import Json, JsonObject
from ...files.timing import phase
from ...files.versions import versions
from ...inputs.words.spans import Span
from ..maps.map_files import written_to
from ..maps.map_set import Maps
from ..maps.mixing_map import MixingMap
from ..measures.availability import check_defined, mixing_between_layers
from ..measures.gradient_pass import GradientPass
from ..measures.measure import Measure
from ..measures.mixing_strength import STRENGTH
from ..measures.objectives import objective_of
from ..measures.registry import measure_named
from ..measures.unit_positions import Units
from .batches import bytes_of_pairs, padded_together, pairs_at_once, rows_at_once
from .request import MixRequest, ObjectiveOption
from .score_collection import FinishedMaps, ScoresByLayer, maps_from
from .views import Item, View, make_view


class Precision(NamedTuple):
    """Types of numbers: of the states, and of the delta engine's products."""

    states: torch.dtype
    products: torch.dtype | str

    @classmethod
    def of(cls, model: Model, request: MixRequest) -> Precision:
        """Float32 or better unless asked: scores are small differences of states, which half
        precision rounds away."""
        states, products = model.state_dtype, request.product_dtype
        if request.dtype is not None:
            states = dtype_named(request.dtype)
            if states.itemsize < 4:
                warnings.warn(
                    f"scores are computed on {states} states: expect relative errors of tens of "
                    "percent, and small scores "
                    "to be noise; product_dtype='bfloat16' is as fast and keeps errors below 1 %",
                    stacklevel=3,
                )
        if products == TF32 and model.device.type != "cuda":
            raise InputError(
                f"product_dtype='tf32' is for CUDA devices; {model.name} is on {model.device}"
            )
        if products is None or products == TF32:
            return cls(states, products or states)
        return cls(states, usable_products(dtype_named(products), model.device))


# Fields of a map behind its scores: targets, sources, measure, stack, layers, provenance, strength.
MapLabels = tuple[
    tuple[Span, ...], tuple[Span, ...], str, str, tuple[int, ...], JsonObject, np.ndarray | None
]

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
        "product": Product(precision.products, model.weight_products),
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
                _labelled(view, scores, provenance, layers, of_blocks, request)
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


@contextmanager
def inference_context(model: Model, precision: Precision) -> Iterator[None]:
    """Have a model run as it is: its own weights in this precision, no gradients, no random number
    taken from the caller."""
    with (
        torch.inference_mode(False),  # a caller's, in which nothing could be differentiated
        model.in_use(precision.states),
        torch.no_grad(),
        use_attention(model.module, model.readable_attention),
    ):
        yield


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
        {key: _of_numbers(MixingMap(next(arrays), *labels)) for key, (_, labels) in of_one.items()}
        for of_one in made
    ]


def _labelled(
    view: View,
    finished: FinishedMaps,
    provenance: JsonObject,
    layers: Mapping[str, tuple[int, ...]],
    measures: Sequence[Measure],
    request: MixRequest,
) -> dict[tuple[str, str], MixingMap]:
    """Maps of the collected scores, with what is only known now: the position that predicts the
    deciding token."""
    tokens = view.prepared.tokens
    if tokens is not None and tokens.deciding is not None:
        provenance["deciding_position"] = tokens.deciding - 1
    maps = {}
    for measure in measures:
        noted = (
            {**provenance, "distance": request.distance}
            if "distance" in measure.options
            else provenance
        )
        for stack, layers_here in layers.items():
            strength = finished.strengths[stack]
            labels = (*view.labels(stack), measure.name, stack, layers_here, dict(noted), strength)
            maps[measure.name, stack] = finished((measure.name, stack), _labelling(labels))
    return maps


def _labelling(labels: MapLabels) -> Callable[[np.ndarray], MixingMap]:
    return lambda scores: _of_numbers(MixingMap(scores, *labels))


def _of_numbers(made: MixingMap) -> MixingMap:
    """Return a map as it is; of states that are zero, or not finite themselves, there is none."""
    if wrong := [
        layer
        for layer, scores in zip(made.layers, made.scores, strict=True)
        if not np.isfinite(scores).all()
    ]:
        raise InputError(
            f"{made.provenance['clip'] or 'prepared inputs'}: {made.measure} is not a number in "
            "layer "
            f"{', '.join(map(str, wrong))} of the {made.stack} of {made.provenance['model']}. Its "
            "states there are zero, as of "
            "a sound that is silent throughout, or not finite, as of damaged weights: leave the "
            "clip out, or check the model"
        )
    return made


def stacks_of(model: Model, views: Sequence[View], request: MixRequest) -> tuple[str, ...]:
    """Requested stacks in the model's order; by default those that the items reach, which must be
    the same."""
    if request.stacks is not None:
        unknown = set(request.stacks) - set(model.stacks)
        if unknown or not request.stacks:
            raise InputError(
                f"{model.name} has the stacks {list(model.stacks)}; asked for "
                f"{sorted(set(request.stacks))}"
            )
        return tuple(name for name in model.stacks if name in request.stacks)
    reached = {
        tuple(
            name
            for name in model.stacks
            if name == "encoder" or "encoder" not in model.stacks or view.feeds_decoder
        )
        for view in views
    }
    if len(reached) > 1:
        raise InputError(
            "clips with and without text cannot share a forward pass: say stacks=, or "
            "clips_at_once=1"
        )
    return reached.pop()


def layers_of(
    model: Model, stacks: Sequence[str], request: MixRequest
) -> dict[str, tuple[int, ...]]:
    """Layers asked for, by stack."""
    layers = request.layers
    if layers is None:
        return {stack: tuple(range(len(model.stacks[stack]))) for stack in stacks}
    fewest = min(len(model.stacks[stack]) for stack in stacks)
    if not layers or not all(layer in range(fewest) for layer in layers):
        raise InputError(
            f"layers={list(layers)}: layers are counted from 0; {', '.join(stacks)} have 0 to "
            f"{fewest - 1}"
        )
    return {stack: tuple(sorted({int(layer) for layer in layers})) for stack in stacks}


def map_provenance(
    model: Model, view: View, request: MixRequest, precision: Precision
) -> JsonObject:
    """What a map, or what is taken apart, says of where it comes from."""
    return {
        "model": model.name,
        "family": model.family.name,
        "init": model.init,
        "seed": model.seed,
        "weights": model.fingerprint,
        **view.provenance(),
        "dtype": str(precision.states).removeprefix("torch."),
        "engine": request.engine,
        "product_dtype": str(precision.products).removeprefix("torch."),
        **{name: getattr(request, name) for name in ("units", "pooling", "heads", "rounding")},
        "include": list(request.include),
        **({"between_layers": between} if (between := mixing_between_layers(model)) else {}),
        "versions": versions(),
    }
