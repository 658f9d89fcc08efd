"""One forward pass: the maps of the items that share it, every measure and stack at once.

In: items, a `MixRequest`, the precision of the states. The blocks are handled while the pass runs, one at a time,
each measure pooled to words at once, so that the memory beyond the plain pass is about one layer's
maps. Every block's mixing strength is computed with them. Out: `Maps`, one for each item. Measures
that differentiate the whole model take a pass of their own behind it.

Compute the maps of one item for several objectives.

In: a `Model`, an item, objectives as in `mix`. Out: `Maps` for each, as `mix` returns for that
objective alone. What does not depend on the objective is computed once: the forward pass, whose
graph is kept while each objective is taken back through it.

Collect scores layer by layer and copy them to the host.

In: each layer's scores, of all measures. Out: maps of the clips that shared a forward pass.

Labels and provenance of finished maps.
"""

from __future__ import annotations

import itertools
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...adapters.capture.device_copy import inputs_to_device, to_host
from ...adapters.capture.encoder_cache import store_encoder_states
from ...adapters.capture.forward_pass import Capture
from ...adapters.capture.layer_run import Block
from ...adapters.delta_engine.matrix_products import MatrixProduct, resolve_product_dtype
from ...adapters.generation.emission_paths import select_encoder_inputs
from ...adapters.model import Model
from ...errors import InputError
from ...files.cache_keys import versions
from ...files.json_files import Json, JsonObject
from ...files.timing import phase
from ...inputs.words.spans import Span
from ..maps.map_files import LayerWriter, map_path, reopen_map, write_and_reopen
from ..maps.map_set import Maps
from ..maps.mixing_map import MixingMap
from ..measures.gradient_pass import GradientPass
from ..measures.measure import Measure, check_defined, mixing_between_layers
from ..measures.measure_functions import find_measure
from ..measures.mixing_strength import choose_strength_measure
from ..measures.objectives import resolve_objective
from ..measures.unit_positions import Units
from .batches import pad_batch, pair_batch_bytes, pair_batch_size, row_batch_size, split_into_groups
from .item_view import Item, View, describe_unheard_text, resolve_layers, resolve_stacks
from .precision import inference_context, resolve_state_dtype
from .request import MixRequest, ObjectiveOption
from .view_kinds import make_view

Key = tuple[str, str]  # measure and stack


class ScoresByLayer:
    """Layers' scores of one clip: kept on the device until the pass is over, or written to files at
    once.

    As a context manager, it removes what is unfinished when the block ends. `scores` (by measure
    and stack) are those kept on the device, where `strengths` [W_t] (by stack) stay in any case.
    """

    def __init__(self, layers: Mapping[str, Sequence[int]], folder: Path | None):
        self._layers, self._folder = layers, folder
        self.scores: dict[Key, list[Tensor]] = defaultdict(list)
        self.strengths: dict[str, list[Tensor]] = defaultdict(list)
        self._writers: dict[Key, LayerWriter] = {}

    def append(
        self, stack: str, by_measure: Mapping[str, Tensor], strength: Tensor | None = None
    ) -> None:
        """Take in one layer's scores, and its mixing strength [W_t]."""
        if strength is not None:
            self.strengths[stack].append(strength)
        if self._folder is None:
            for measure, scores in by_measure.items():
                self.scores[measure, stack].append(scores)
            return
        for measure, array in zip(by_measure, to_host([*by_measure.values()]), strict=True):
            key = measure, stack
            if key not in self._writers:
                self._writers[key] = LayerWriter(
                    map_path(self._folder, key), len(self._layers[stack])
                )
            self._writers[key].append(array)

    def finish_file(self, key: Key, make_map: Callable[[np.ndarray], MixingMap]) -> MixingMap:
        """Finish the file of a map."""
        writer = self._writers[key]
        return reopen_map(writer.close(make_map(writer.scores())))

    def __enter__(self) -> ScoresByLayer:
        return self

    def __exit__(
        self, kind: type | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for writer in self._writers.values():
            writer.discard()


class HostScores:
    """What was collected of one clip, on the host: makes the map of a measure and stack.
    `strengths` are [L, W_t] by stack."""

    def __init__(
        self,
        collection: ScoresByLayer,
        scores: Mapping[Key, np.ndarray],
        strengths: Mapping[str, np.ndarray],
    ):
        self._collection, self._scores, self.strengths = collection, scores, strengths

    def __call__(self, key: Key, make_map: Callable[[np.ndarray], MixingMap]) -> MixingMap:
        return (
            make_map(self._scores[key])
            if key in self._scores
            else self._collection.finish_file(key, make_map)
        )


def copy_scores_to_host(collections: Sequence[ScoresByLayer]) -> list[HostScores]:
    """Bring the scores of all clips of a pass to the host, together."""
    stacked_scores = [
        {
            **{key: torch.stack(layers) for key, layers in collection.scores.items()},
            **_stack_strengths(collection),
        }
        for collection in collections
    ]
    arrays = iter(
        to_host([tensor for collection in stacked_scores for tensor in collection.values()])
    )
    host_scores = []
    for collection, tensors in zip(collections, stacked_scores, strict=True):
        host_arrays = dict(zip(tensors, arrays, strict=False))
        scores = {key: host_arrays[key] for key in collection.scores}
        host_scores.append(
            HostScores(
                collection,
                scores,
                {stack: host_arrays["", stack] for stack in collection.strengths},
            )
        )
    return host_scores


def _stack_strengths(collection: ScoresByLayer) -> dict[Key, Tensor]:
    """Mixing strengths [L, W_t] under keys that no measure has."""
    return {("", stack): torch.stack(layers) for stack, layers in collection.strengths.items()}


# Fields of a map behind its scores: targets, sources, measure, stack, layers, provenance, strength.
MapLabels = tuple[
    tuple[Span, ...], tuple[Span, ...], str, str, tuple[int, ...], JsonObject, np.ndarray | None
]


def make_maps(
    view: View,
    host_scores: HostScores,
    provenance: JsonObject,
    layers: Mapping[str, tuple[int, ...]],
    measures: Sequence[Measure],
    device: torch.device,
) -> dict[tuple[str, str], MixingMap]:
    """Maps of the collected scores, with what is only known now: the position that predicts the
    deciding token."""
    tokens = view.prepared.tokens
    if tokens is not None and tokens.deciding_index is not None:
        provenance["deciding_position"] = tokens.deciding_index - 1
    if view.prepared.deciding_frame is not None:
        provenance["deciding_frame"] = view.prepared.deciding_frame
    maps = {}
    for measure in measures:
        measure_provenance = {**provenance, **_option_provenance(measure, device)}
        for stack, stack_layers in layers.items():
            strength = host_scores.strengths[stack]
            labels = (
                *view.labels(stack),
                measure.name,
                stack,
                stack_layers,
                dict(measure_provenance),
                strength,
            )
            maps[measure.name, stack] = host_scores((measure.name, stack), _map_maker(labels))
    return maps


def _option_provenance(measure: Measure, device: torch.device) -> JsonObject:
    """How a measure's scores were computed, where that is an option of its own."""
    options = measure.option_values
    provenance: JsonObject = {
        name: str(options[name]) for name in ("distance", "engine") if name in options
    }
    if product_name := options.get("product_dtype"):
        product_dtype = resolve_product_dtype(str(product_name), device)
        provenance["product_dtype"] = str(product_dtype).removeprefix("torch.")
    return provenance


def _map_maker(labels: MapLabels) -> Callable[[np.ndarray], MixingMap]:
    return lambda scores: check_finite_map(MixingMap(scores, *labels))


def check_finite_map(mixing_map: MixingMap) -> MixingMap:
    """Return a map as it is; of states that are zero, or not finite themselves, there is none."""
    if nonfinite_layers := [
        layer
        for layer, scores in zip(mixing_map.layers, mixing_map.scores, strict=True)
        if not np.isfinite(scores).all()
    ]:
        raise InputError(
            f"{mixing_map.provenance['clip'] or 'prepared inputs'}: {mixing_map.measure} is not a number in "
            "layer "
            f"{', '.join(map(str, nonfinite_layers))} of the {mixing_map.stack} of {mixing_map.provenance['model']}. Its "
            "states there are zero, as of "
            "a sound that is silent throughout, or not finite, as of damaged weights: leave the "
            "clip out, or check the model"
        )
    return mixing_map


def map_provenance(
    model: Model, view: View, request: MixRequest, dtype: torch.dtype, *, engine: str = "delta"
) -> JsonObject:
    """Provenance of a map, or of a decomposition; `engine` is that of mixing strengths."""
    dtype_name = str(dtype).removeprefix("torch.")
    return {
        "model": model.name,
        "family": model.family.name,
        "init": model.init,
        "seed": model.seed,
        "weights": model.fingerprint,
        **({"checkpoint": asdict(model.origin)} if model.origin else {}),
        **(
            {"inference_engine": model.engine.provenance(model, view.item)}
            if model.engine is not None and view.item is not None
            else {}
        ),
        **view.provenance(),
        "dtype": dtype_name,
        "engine": engine,
        "product_dtype": dtype_name,
        **{name: getattr(request, name) for name in ("units", "pooling", "heads", "rounding")},
        "include": list(request.include),
        **({"between_layers": between} if (between := mixing_between_layers(model)) else {}),
        "versions": versions(),
    }


# From a prepared view, the units of its stacks as they are seen, and the precision: what is told of
# each block.
ObserverFactory = Callable[[View, Mapping[str, Units], torch.dtype], Callable[[Block], None]]


def compute_maps(
    model: Model,
    items: Sequence[Item],
    folders: Iterator[Path | None],
    request: MixRequest,
    dtype: torch.dtype,
    batch_size: int | str = "auto",
    make_observer: ObserverFactory | None = None,
) -> list[Maps]:
    """Maps of items that share a forward pass; each takes the next of the folders.

    The observer that `make_observer` makes for a single item is called with the same blocks.
    """
    item_folders = list(itertools.islice(folders, len(items)))
    views = [make_view(model, item, request) for item in items]
    layers = resolve_layers(model, resolve_stacks(model, views, request), request)
    measures = [find_measure(name) for name in request.measures]
    for measure, stack in itertools.product(measures, layers):
        check_defined(measure, model.stacks[stack])
    for view in views:
        view.prepare(
            model.capabilities.prepared_stacks
            if view.decides_at_frame or any(measure.objective for measure in measures)
            else tuple(layers)
        )
    item_units: list[dict[str, Units]] = [{} for _ in views]
    layer_measures = [measure for measure in measures if measure.scope == "layer"]
    strength_measure = choose_strength_measure(measures)
    strength_measures = [strength_measure] if any(not each.objective for each in measures) else []
    engine = str(strength_measure.option_values["engine"])
    provenances = [map_provenance(model, view, request, dtype, engine=engine) for view in views]
    resources = {
        "product": MatrixProduct(dtype, model.weight_products),
        "batch_size": batch_size,
        "bytes_of_pairs": pair_batch_bytes(model.device),
    }
    with ExitStack() as cleanup:  # whatever happens, no half a file is left
        score_collections = [
            cleanup.enter_context(ScoresByLayer(layers, folder)) for folder in item_folders
        ]

        observer = None
        if make_observer is not None:
            with inference_context(model, dtype):
                observer = make_observer(views[0], item_units[0], dtype)

        def on_block(block: Block) -> None:
            with phase("maps"):
                stack, clip_units = block.stack.name, item_units[block.clip]
                if stack not in clip_units:
                    clip_units[stack] = views[block.clip].units(block)
                measure_scores = score_block(
                    block,
                    clip_units[stack],
                    [*layer_measures, *strength_measures],
                    request,
                    resources,
                )
                scores = {measure.name: tensor for measure, tensor in measure_scores}
                strengths = scores.pop(strength_measure.name)[:, 0] if strength_measures else None
                score_collections[block.clip].append(stack, scores, strengths)
            if observer is not None:
                observer(block)

        notes = run_forward(model, views, tuple(layers), on_block, request, dtype)
        for provenance, note in zip(provenances, notes, strict=True):
            if note is not None:
                provenance["unheard_text"] = note
                warnings.warn(
                    f"{provenance['clip']}: {model.label} {note}: its maps are of a model that does not hear the "
                    "text. Check the loudness of the recording, and whether text and language are its own",
                    stacklevel=2,
                )
        with phase("maps"):
            host_scores = copy_scores_to_host(score_collections)
            item_maps = [
                make_maps(view, scores, provenance, layers, layer_measures, model.device)
                for view, scores, provenance in zip(views, host_scores, provenances, strict=True)
            ]
    if len(layer_measures) < len(measures):
        for index, view in enumerate(views):
            gradient_arguments = (
                item_units[index],
                provenances[index],
                layers,
                request,
                dtype,
                [request.objective],
            )
            [maps] = compute_gradient_maps(
                model, view, *gradient_arguments, strengths=host_scores[index].strengths
            )
            item_maps[index] |= {
                key: write_and_reopen(item_folders[index], mixing_map)
                for key, mixing_map in maps.items()
            }
    return [
        Maps({(name, stack): maps[name, stack] for name in request.measures for stack in layers})
        for maps in item_maps
    ]


def run_forward(
    model: Model,
    views: Sequence[View],
    stacks: Sequence[str],
    on_block: Callable[[Block], None],
    request: MixRequest,
    dtype: torch.dtype,
) -> list[str | None]:
    """Run the forward pass of the items together; their blocks are handled while it runs.

    Returns, for each item, what the model writes instead of its text (`describe_unheard_text`), or
    None.
    """
    item_inputs = [view.prepared.inputs for view in views]
    if model.capabilities.is_transducer:  # only the encoder runs
        item_inputs = [select_encoder_inputs(inputs) for inputs in item_inputs]
    inputs = pad_batch(model, item_inputs)
    with (
        inference_context(
            model, dtype
        ),  # from here on the stacks are bound to the modules as they are now
        Capture([model.stacks[stack] for stack in stacks], on_block, layers=request.layers),
        phase("forward"),
    ):
        output = model.family.run(
            model.base, inputs_to_device(inputs, model.device, dtype), tuple(stacks)
        )
        notes = [
            describe_unheard_text(model, view, output, row, stacks)
            for row, view in enumerate(views)
        ]
    states = getattr(output, "encoder_last_hidden_state", None)
    if states is not None:
        store_encoder_states(
            model, states, views[0].prepared.audio_hash, attention=model.readable_attention
        )
    return notes


def score_block(
    block: Block,
    units: Units,
    measures: Sequence[Measure],
    request: MixRequest,
    resources: Mapping[str, Any],
) -> Iterator[tuple[Measure, Tensor]]:
    """Each measure's scores [(H,) W_t, W_s] of one block, some rows at a time."""
    if resources["batch_size"] == "auto":
        resources = {**resources, "batch_size": pair_batch_size(block, resources["bytes_of_pairs"])}
    group_scores: dict[str, list[Tensor]] = {measure.name: [] for measure in measures}
    for group in units.groups(row_batch_size(block)):
        for measure in measures:
            with phase(measure.name):
                scores = measure(block, group, **_measure_options(measure, request, resources))
            group_scores[measure.name].append(scores)
    for measure in measures:
        group_tensors = group_scores[measure.name]
        yield measure, torch.cat(group_tensors, dim=-2) if group_tensors[1:] else group_tensors[0]


def _measure_options(
    measure: Measure, request: MixRequest, resources: Mapping[str, object]
) -> dict[str, object]:
    """The options that a measure's function takes."""
    return {
        name: resources[name] if name in resources else getattr(request, name)
        for name in measure.takes
    }


def compute_gradient_maps(
    model: Model,
    view: View,
    units: Mapping[str, Units],
    provenance: Mapping[str, Json],
    layers: Mapping[str, tuple[int, ...]],
    request: MixRequest,
    dtype: torch.dtype,
    objectives: Sequence[ObjectiveOption],
    strengths: Mapping[str, np.ndarray] | None = None,
) -> list[dict[tuple[str, str], MixingMap]]:
    """Maps of the measures that differentiate the whole model, for one item: those of each
    objective.

    Mixing strengths [L, W_t] by stack go to the maps that have a row for each target.
    """
    measures = [
        measure for measure in map(find_measure, request.measures) if measure.scope == "model"
    ]
    labelled_scores: list[dict[tuple[str, str], tuple[Tensor, MapLabels]]] = []
    with inference_context(model, dtype):
        inputs = inputs_to_device(view.prepared.inputs, model.device, dtype)
        if any(measure.objective for measure in measures):
            resolved_objectives = [
                resolve_objective(option, model, view.item, view.prepared) for option in objectives
            ]
            with phase("forward"):
                passes = GradientPass.make_passes(model, inputs, layers, resolved_objectives)
        else:
            with phase("forward"):
                passes = [GradientPass(model, inputs, layers)]
        while passes:
            gradient_pass = passes.pop(0)  # and let go behind it, with what it alone has computed
            labelled_scores.append({})
            for measure, (stack, stack_layers) in itertools.product(measures, layers.items()):
                with phase(measure.name):
                    scores, extra_provenance = measure(
                        gradient_pass, stack, units[stack], **_measure_options(measure, request, {})
                    )
                targets, sources = view.labels(stack)
                stack_strength = (
                    None if strengths is None or measure.objective else strengths.get(stack)
                )
                if measure.objective:
                    targets, extra_provenance = (
                        (gradient_pass.objective.span,),
                        {"objective": gradient_pass.objective.details, **extra_provenance},
                    )
                labels = (
                    targets,
                    sources,
                    measure.name,
                    stack,
                    stack_layers,
                    {**provenance, **extra_provenance},
                    stack_strength,
                )
                labelled_scores[-1][measure.name, stack] = scores, labels
    arrays = iter(
        to_host(
            [
                scores
                for objective_scores in labelled_scores
                for scores, _ in objective_scores.values()
            ]
        )
    )
    return [
        {
            key: check_finite_map(MixingMap(next(arrays), *labels))
            for key, (_, labels) in objective_scores.items()
        }
        for objective_scores in labelled_scores
    ]


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
    dtype, view = resolve_state_dtype(model, request), make_view(model, item, request)
    layers = resolve_layers(model, resolve_stacks(model, [view], request), request)
    for stack in layers:
        check_defined(find_measure(measure), model.stacks[stack])
    view.prepare(model.capabilities.prepared_stacks)
    units: dict[str, Units] = {}

    def on_block(block: Block) -> None:
        if block.stack.name not in units:
            units[block.stack.name] = view.units(block)

    run_forward(model, [view], tuple(layers), on_block, request, dtype)
    gradient_arguments = (
        units,
        map_provenance(model, view, request, dtype),
        layers,
        request,
        dtype,
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
