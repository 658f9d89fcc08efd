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
from types import MappingProxyType, TracebackType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...adapters.capture.attention_calls import LayerTrace
from ...adapters.capture.block_batch import BlockBatch
from ...adapters.capture.device_copy import inputs_to_device, to_host
from ...adapters.capture.forward_pass import Capture
from ...adapters.capture.layer_run import Block
from ...adapters.capture.model_use import store_encoder_states
from ...adapters.delta_engine.matrix_products import MatrixProduct, resolve_product_dtype
from ...adapters.generation.emission_paths import select_encoder_inputs
from ...adapters.model import Model
from ...errors import InputError
from ...files.cache_keys import versions
from ...files.json_files import JsonObject
from ...files.timing import phase
from ...inputs.words.spans import Span
from ..maps.map_files import LayerWriter, map_path, reopen_map, write_and_reopen
from ..maps.map_set import Maps
from ..maps.mixing_map import MixingMap
from ..measures.gradient_pass import GradientPass
from ..measures.measure import Measure, Units, UnitsBatch, check_defined, mixing_between_layers
from ..measures.measure_functions import find_measure
from ..measures.objectives import resolve_objective
from ..measures.value_zeroing import choose_strength_measure
from .batches import (
    clips_in_batch,
    inference_context,
    pad_batch,
    pair_batch_bytes,
    pair_batch_size,
    resolve_state_dtype,
    row_batch_size,
    split_into_groups,
)
from .item_view import Item, View, decides_at_frame, describe_unheard_text, resolve_layers
from .request import MixRequest, ObjectiveOption
from .view_kinds import make_view, resolve_stacks

Key = tuple[str, str]  # measure and stack


# Fields of a map behind its scores: targets, sources, measure, stack, layers, provenance, strength.
MapLabels = tuple[
    tuple[Span, ...], tuple[Span, ...], str, str, tuple[int, ...], JsonObject, np.ndarray | None
]


class ItemScores:
    """One item on its way through the pass: its view, its units, and the scores of its layers.

    Scores stay on the device until the pass is over, or are written to files of `folder` at once;
    strengths stay there in any case. As a context manager, it removes what is unfinished when the
    block ends. `units` are by stack, `provenance` is that of every map.
    """

    def __init__(
        self,
        view: View,
        layers: Mapping[str, tuple[int, ...]],
        provenance: JsonObject,
        folder: Path | None = None,
    ):
        self.view, self.layers, self.provenance, self.folder = view, layers, provenance, folder
        self.units: dict[str, Units] = {}
        self._layer_scores: dict[Key, list[Tensor]] = defaultdict(list)  # strengths: ("", stack)
        self._writers: dict[Key, LayerWriter] = {}
        self._arrays: dict[Key, np.ndarray] = {}  # on the host [L, ...]

    def block_units(self, block: Block) -> Units:
        """Return the units of a block's stack, made when its first block is seen."""
        stack = block.stack.name
        if stack not in self.units:
            self.units[stack] = self.view.units(block)
        return self.units[stack]

    def append(
        self, stack: str, by_measure: Mapping[str, Tensor], strength: Tensor | None = None
    ) -> None:
        """Take in one layer's scores, and its mixing strength [W_t]."""
        if strength is not None:
            self._layer_scores["", stack].append(strength)
        if self.folder is None:
            for measure, scores in by_measure.items():
                self._layer_scores[measure, stack].append(scores)
            return
        for measure, array in zip(by_measure, to_host([*by_measure.values()]), strict=True):
            key = measure, stack
            if key not in self._writers:
                path = map_path(self.folder, key)
                self._writers[key] = LayerWriter(path, len(self.layers[stack]))
            self._writers[key].append(array)

    @staticmethod
    def copy_to_host(items: Sequence[ItemScores]) -> None:
        """Bring the scores of all items of a pass to the host, together."""
        keys = [(item, key) for item in items for key in item._layer_scores]
        arrays = to_host([torch.stack(item._layer_scores.pop(key)) for item, key in keys])
        for (item, key), array in zip(keys, arrays, strict=True):
            item._arrays[key] = array

    def strength(self, stack: str) -> np.ndarray | None:
        """Return the mixing strengths [L, W_t] of a stack on the host, if they were computed."""
        return self._arrays.get(("", stack))

    def maps(self, measures: Sequence[Measure], device: torch.device) -> dict[Key, MixingMap]:
        """Return the maps of the scores on the host, with what is only known now: the position
        that predicts the deciding token."""
        prepared = self.view.prepared
        if prepared.tokens is not None and prepared.tokens.deciding_index is not None:
            self.provenance["deciding_position"] = prepared.tokens.deciding_index - 1
        if prepared.deciding_frame is not None:
            self.provenance["deciding_frame"] = prepared.deciding_frame
        maps = {}
        for measure in measures:
            provenance = {**self.provenance, **_option_provenance(measure, device)}
            for stack, layers in self.layers.items():
                spans, strength = self.view.labels(stack), self.strength(stack)
                labels = (*spans, measure.name, stack, layers, dict(provenance), strength)
                maps[measure.name, stack] = self._finished((measure.name, stack), labels)
        return maps

    def _finished(self, key: Key, labels: MapLabels) -> MixingMap:
        if key in self._arrays:
            return check_finite_map(MixingMap(self._arrays[key], *labels))
        writer = self._writers[key]
        return reopen_map(writer.close(check_finite_map(MixingMap(writer.scores(), *labels))))

    def __enter__(self) -> ItemScores:
        return self

    def __exit__(
        self, kind: type | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for writer in self._writers.values():
            writer.discard()


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
    layers = resolve_layers(model, resolve_stacks(model, items, request), request)
    measures = [find_measure(name) for name in request.measures]
    for measure, stack in itertools.product(measures, layers):
        check_defined(measure, model.stacks[stack])
    reads_output = any(measure.objective for measure in measures)
    layer_measures = [measure for measure in measures if measure.scope == "layer"]
    strength_measure = choose_strength_measure(measures)
    strength_measures = [strength_measure] if any(not each.objective for each in measures) else []
    engine = str(strength_measure.option_values["engine"])
    resources = {
        "product": MatrixProduct(dtype, model.weight_products),
        "batch_size": batch_size,
        "bytes_of_pairs": pair_batch_bytes(model.device),
    }
    with ExitStack() as cleanup:  # whatever happens, no half a file is left
        item_scores = []
        for item, folder in zip(items, item_folders, strict=True):
            needs_all_stacks = reads_output or decides_at_frame(model, item)
            stacks = model.capabilities.prepared_stacks if needs_all_stacks else tuple(layers)
            view = make_view(model, item, request, stacks)
            provenance = map_provenance(model, view, request, dtype, engine=engine)
            scores = ItemScores(view, layers, provenance, folder)
            item_scores.append(cleanup.enter_context(scores))
        views = [scores.view for scores in item_scores]

        observer = None
        if make_observer is not None:
            with inference_context(model, dtype):
                observer = make_observer(views[0], item_scores[0].units, dtype)

        block_measures = [*layer_measures, *strength_measures]

        unit_batches: dict[tuple[str, range], UnitsBatch] = {}

        def on_block(
            block: Block, batched_scores: Mapping[str, Tensor] = MappingProxyType({})
        ) -> None:
            with phase("maps"):
                scores = item_scores[block.clip]
                measure_scores = score_block(
                    block,
                    scores.block_units(block),
                    [measure for measure in block_measures if measure.name not in batched_scores],
                    request,
                    resources,
                )
                by_measure = {measure.name: tensor for measure, tensor in measure_scores}
                by_measure |= batched_scores
                strengths = (
                    by_measure.pop(strength_measure.name)[:, 0] if strength_measures else None
                )
                scores.append(block.stack.name, by_measure, strengths)
            if observer is not None:
                observer(block)

        def on_blocks(blocks: Sequence[Block], trace: LayerTrace, output: Tensor) -> None:
            with phase("maps"):
                units = [item_scores[block.clip].block_units(block) for block in blocks]
                clip_scores = score_block_batches(
                    blocks, trace, output, units, unit_batches, block_measures, request, resources
                )
            for block, batched_scores in zip(blocks, clip_scores, strict=True):
                on_block(block, batched_scores)

        notes = run_forward(
            model, views, tuple(layers), on_block, request, dtype, on_blocks=on_blocks
        )
        for scores, note in zip(item_scores, notes, strict=True):
            if note is not None:
                scores.provenance["unheard_text"] = note
                warnings.warn(
                    f"{scores.provenance['clip']}: {model.label} {note}: its maps are of a model that does not hear the "
                    "text. Check the loudness of the recording, and whether text and language are its own",
                    stacklevel=2,
                )
        with phase("maps"):
            ItemScores.copy_to_host(item_scores)
            item_maps = [scores.maps(layer_measures, model.device) for scores in item_scores]
    if len(layer_measures) < len(measures):
        for scores, maps in zip(item_scores, item_maps, strict=True):
            [model_maps] = compute_gradient_maps(model, scores, request, dtype, [request.objective])
            maps |= {
                key: write_and_reopen(scores.folder, mixing_map)
                for key, mixing_map in model_maps.items()
            }
    return [
        Maps({(name, stack): maps[name, stack] for name in request.measures for stack in layers})
        for maps in item_maps
    ]


def has_custom_code(request: MixRequest) -> bool:
    """Whether a measure or an objective is user-supplied, and so may draw random numbers."""
    is_custom = getattr(request.objective, "is_custom", callable(request.objective))
    return is_custom or not all(find_measure(name).is_builtin for name in request.measures)


def run_forward(
    model: Model,
    views: Sequence[View],
    stacks: Sequence[str],
    on_block: Callable[[Block], None],
    request: MixRequest,
    dtype: torch.dtype,
    *,
    on_blocks: Callable[[Sequence[Block], LayerTrace, Tensor], None] | None = None,
) -> list[str | None]:
    """Run the forward pass of the items together; their blocks are handled while it runs, with
    `on_blocks` those of all items at once.

    Returns, for each item, what the model writes instead of its text (`describe_unheard_text`), or
    None.
    """
    item_inputs = [view.prepared.inputs for view in views]
    if model.capabilities.is_transducer:  # only the encoder runs
        item_inputs = [select_encoder_inputs(inputs) for inputs in item_inputs]
    inputs = pad_batch(model, item_inputs)
    with (
        # From here on the stacks are bound to the modules as they are now.
        inference_context(model, dtype, is_sampling=has_custom_code(request)),
        Capture(
            [model.stacks[stack] for stack in stacks],
            on_block,
            layers=request.layers,
            on_blocks=on_blocks,
        ),
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
            _check_scores(
                measure,
                scores,
                **({"H": None} if request.heads == "each" else {}),
                targets=len(group.targets),
                sources=len(group.sources),
            )
            group_scores[measure.name].append(scores)
    for measure in measures:
        group_tensors = group_scores[measure.name]
        yield measure, torch.cat(group_tensors, dim=-2) if group_tensors[1:] else group_tensors[0]


def score_block_batches(
    blocks: Sequence[Block],
    trace: LayerTrace,
    output: Tensor,
    units: Sequence[Units],
    unit_batches: dict[tuple[str, range], UnitsBatch],
    measures: Sequence[Measure],
    request: MixRequest,
    resources: Mapping[str, Any],
) -> list[dict[str, Tensor]]:
    """Scores that the clips of a pass get together in one layer, for each clip by measure name.

    As many clips form a batch as the memory for attention weights allows; a clip alone gets no scores
    here. `unit_batches` keeps the tables of a stack's units for its later layers.
    """
    clip_scores: list[dict[str, Tensor]] = [{} for _ in blocks]
    functions = [
        (measure, function)
        for measure in measures
        if (function := measure.batched_function(request.heads)) is not None
    ]
    if not functions or not BlockBatch.is_possible(blocks[0], trace):
        return clip_scores
    if resources["batch_size"] == "auto":
        pair_count = pair_batch_size(blocks[0], resources["bytes_of_pairs"])
        resources = {**resources, "batch_size": pair_count}
    batch_clip_count = clips_in_batch(blocks[0], max(len(each.positions) for each in units))
    for first in range(0, len(blocks), batch_clip_count):
        clips = range(first, min(first + batch_clip_count, len(blocks)))
        if len(clips) == 1:
            continue
        batch = BlockBatch([blocks[clip] for clip in clips], trace, output)
        key = batch.stack.name, clips
        if key not in unit_batches:
            unit_batches[key] = UnitsBatch([units[clip] for clip in clips])
        for measure, function in functions:
            options = _measure_options(measure, request, resources)
            with phase(measure.name):
                results = function(batch, unit_batches[key], **options)
            for clip, scores in zip(clips, results, strict=True):
                clip_scores[clip][measure.name] = scores
    return clip_scores


def _check_scores(measure: Measure, scores: object, **lengths: int | None) -> None:
    """Raise `InputError` unless a custom measure returned a Tensor of these axes; None: any length."""
    if measure.is_builtin:
        return
    shape = tuple(scores.shape) if isinstance(scores, Tensor) else None
    if (
        shape is None
        or len(shape) != len(lengths)
        or any(
            wanted not in (None, size) for wanted, size in zip(lengths.values(), shape, strict=True)
        )
    ):
        wanted = ", ".join(
            name if length is None else f"{name} {length}" for name, length in lengths.items()
        )
        raise InputError(
            f"{measure.name}: its function should return a Tensor [{wanted}], found "
            + (
                f"{type(scores).__module__}.{type(scores).__qualname__}"
                if shape is None
                else f"shape {shape}"
            )
        )


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
    item: ItemScores,
    request: MixRequest,
    dtype: torch.dtype,
    objectives: Sequence[ObjectiveOption],
) -> list[dict[tuple[str, str], MixingMap]]:
    """Maps of the measures that differentiate the whole model, for one item: those of each
    objective.

    Mixing strengths, where the item has them, go to the maps that have a row for each target.
    """
    view, layers = item.view, item.layers
    measures = [
        measure for measure in map(find_measure, request.measures) if measure.scope == "model"
    ]
    labelled_scores: list[dict[tuple[str, str], tuple[Tensor, MapLabels]]] = []
    with inference_context(model, dtype, is_sampling=has_custom_code(request)):
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
                    result = measure(
                        gradient_pass,
                        stack,
                        item.units[stack],
                        **_measure_options(measure, request, {}),
                    )
                if not (isinstance(result, tuple) and len(result) == 2):
                    raise InputError(
                        f"{measure.name}: its function should return scores and a dict of further "
                        f"provenance, found {type(result).__name__}"
                    )
                scores, extra_provenance = result
                rows = 1 if measure.objective else len(item.units[stack].targets)
                _check_scores(
                    measure,
                    scores,
                    layers=len(stack_layers),
                    targets=rows,
                    sources=len(item.units[stack].sources),
                )
                targets, sources = view.labels(stack)
                stack_strength = None if measure.objective else item.strength(stack)
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
                    {**item.provenance, **extra_provenance},
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
    dtype = resolve_state_dtype(model, request)
    layers = resolve_layers(model, resolve_stacks(model, [item], request), request)
    for stack in layers:
        check_defined(find_measure(measure), model.stacks[stack])
    view = make_view(model, item, request, model.capabilities.prepared_stacks)
    scores = ItemScores(view, layers, map_provenance(model, view, request, dtype))

    def on_block(block: Block) -> None:
        scores.block_units(block)

    run_forward(model, [view], tuple(layers), on_block, request, dtype)
    return [
        Maps(objective_maps)
        for objective_group in split_into_groups(objectives, _OBJECTIVES_PER_PASS)
        for objective_maps in compute_gradient_maps(model, scores, request, dtype, objective_group)
    ]
