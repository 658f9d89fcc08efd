"""mix(): context-mixing maps of a clip (or prepared inputs), all measures and stacks in one forward pass.

In: a `Model` and a `Clip`. The blocks are handled while the pass runs, one at a time, each measure pooled to words at
once, so that the memory beyond the plain pass is about one layer's maps. Out: `Maps`, one `MixingMap` per measure and
stack, raw scores [layer, (head,) target, source].
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..adapters.block import Block
from ..adapters.capture import Capture, attention_readable
from ..adapters.delta.products import TF32, Product
from ..adapters.model import Model, dtype_named
from ..adapters.remembering import remember_encoder_states
from ..adapters.transfers import inputs_to_device, to_host
from ..errors import InputError
from ..inputs.clips import Clip
from ..inputs.sentences import Sentence
from ..inputs.spans import Span
from ..maps.files import folders_of, written_to
from ..maps.mixing import Maps, MixingMap
from ..measures.defined import check_defined
from ..measures.gradients import GradientPass
from ..measures.objectives import objective_of
from ..measures.registry import Measure, measure_named
from ..measures.units import Units
from ..versions import versions
from .batches import (
    bytes_of_pairs,
    clips_together,
    in_groups,
    padded_together,
    pairs_at_once,
    prepare_ahead,
    rows_at_once,
    rows_of,
)
from .collecting import FinishedMaps, ScoresByLayer, maps_from
from .question import ObjectiveOption, Question, Targets, several
from .views import Item, View, seen_by


def mix(
    model: Model,
    clip: Clip | Sentence | str | Mapping[str, Any] | Iterable[Clip | Sentence | str],
    *,
    measures: str | Sequence[str] = ("value_zeroing",),
    stacks: str | Sequence[str] | None = None,
    layers: int | Sequence[int] | None = None,
    units: str = "word",
    spans: Sequence[Span | tuple[int, int]] | None = None,
    targets: int | Targets | None = None,
    pooling: str = "mean",
    distance: str = "cosine",
    heads: str = "mean",
    rounding: str = "disjoint",
    include: Sequence[str] = (),
    dtype: str | torch.dtype | None = None,
    engine: str = "delta",
    product_dtype: str | torch.dtype | None = None,
    objective: ObjectiveOption = "auto",
    steps: int = 50,
    baseline: str = "mean",
    batch_size: int | str = "auto",
    clips_at_once: int | str = "auto",
    window: tuple[float, float] | None = None,
    out: str | PathLike | None = None,
    progress: bool = False,
) -> Maps | list[Maps]:
    """Score how much each source contributes to each target, layer by layer.

    Parameters
    ----------
    model : Model
        From `speechmix.load`.
    clip : Clip, Sentence or str, dict of tensors, or iterable of them
        A clip with word times for a model that hears, a text for one that reads (``<mask>`` stands for its mask token), or
        prepared model inputs (e.g. ``{"input_features": x, "decoder_input_ids": ids}``). Several clips, or prepared
        inputs of a batch of several, give a list; padding that an attention mask leaves out is no unit.
    measures : str or sequence of str
        Names in `speechmix.measures.MEASURES`; `speechmix.register_measure` adds one.
    stacks : str or sequence of str, optional
        "encoder", "decoder", "cross"; by default all that the model and its inputs have.
    layers : sequence of int, optional
        Layers counted from 0; all by default.
    units : {"word", "frame", "token"}
        What the encoder's side of a map is made of: words or frames of a clip; words (of one or more sub-words) or tokens
        of a text, then in a model with a decoder alone too. The decoder behind an encoder always has tokens.
    spans : sequence of (start, stop) or Span, optional
        Half-open encoder frames (or token positions) to use as units instead of words. For prepared inputs without
        spans every frame or token is a unit.
    targets : optional
        Compute only these rows: indices into the target side's units (spans, frames or token positions), a dict of
        such lists by stack, or "target" for the rows of the clip's target word (and the one that decides its
        spelling, with a foil). Much cheaper than the whole map.
    pooling : {"mean", "max"}
        Over the frames of a word.
    distance : {"cosine", "euclidean", "manhattan", "correlation", "unit_euclidean", "unit_manhattan"}
        Of Value Zeroing.
    heads : {"mean", "each"}
        "each" gives a map per head; for Value Zeroing it zeroes that head alone.
    rounding : {"disjoint", "paper"}
        Words to frames; see `speechmix.inputs.spans.word_spans`.
    include : sequence of {"silence", "padding"}
        Make the silence between words and the padding behind the clip units of their own.
    dtype : str or torch.dtype, optional
        Precision of the states, float32 or float64; by default the model's own, float32 for a half-precision model. A
        half-precision model can be asked to run in its own, with a warning: scores are then hardly more than noise.
    engine : {"delta", "replay"}
        How Value Zeroing is computed: by carrying the change through the layer, or by running the layer's modules again
        on the changed rows (slower, and less exact at the same precision; used by itself for a registered architecture
        whose layers are not described).
    product_dtype : str or torch.dtype, optional
        Precision of the delta engine's products with the feed-forward matrices alone: "bfloat16" (scores then within about
        5e-3, relatively), on a GPU also "tf32"; that of the states by default.
    objective : str, tuple or callable
        The number that gradient measures explain; their maps have one row, the target. "logit", "probability" (of the
        target's token), "log_probability" (of all its tokens; of a CTC model's transcript), "contrast" (its logit less the
        foil's), "ctc" (log-probability of the transcript less that without the target); "auto" is a contrast where there is
        a foil, and else "ctc" for a CTC model and "logit" for others.
        With several tokens: the one that decides between target and foil, or the target's first. A masked target is given
        as ("spelling",) or ("spelling", "foil"), by default the likeliest token. A classifier of texts is asked for the label
        that it gives, or for ("label",), or ("label", "label") for a contrast. For prepared inputs: (position, token id),
        (position, token id, foil's id), or a function of the model's output (a batch of one) that returns a scalar.
    steps : int
        Of integrated gradients.
    baseline : {"mean", "zero"}
        Of integrated gradients and DeepLift: every position at the mean of the states, or zeros, from where a layer norm
        makes nearly all of the change within the first thousandth of the path, so that no sum over steps is complete.
    batch_size : int or "auto"
        (Target position, source) pairs handled at once, about; "auto" takes what fits 32 MiB, on a GPU a quarter of
        what is free.
    clips_at_once : int or "auto"
        Of several clips, how many share a forward pass. "auto": some on a GPU, if padding changes nothing for the model
        (Whisper; wav2vec 2.0 with layer norm in its front end, as XLSR has; text models), otherwise one.
    window : (start, end), optional
        With units="frame", only the frames within these seconds of the clip.
    out : path, optional
        Folder to write the maps to while they are computed, one file a map, as `MixingMap.save` does; the maps returned
        then read their scores from there. For maps larger than memory. Each clip has a folder in it, named like the clip
        (two of one name are refused); several prepared inputs are numbered, ``inputs_0``, ``inputs_1``, ...; a single one
        has the folder itself.
    progress : bool
        Show a bar over clips.

    Returns
    -------
    Maps
        ``maps[measure, stack]`` is a `MixingMap`. A list of them for several clips.

    Raises
    ------
    InputError
        If the clip or an option cannot be used; the message says what to do.

    Examples
    --------
    >>> import transformers, speechmix, torch
    >>> config = transformers.Wav2Vec2Config(hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
    ...     intermediate_size=64, conv_dim=(16,) * 7, num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=2)
    >>> model = speechmix.load(transformers.Wav2Vec2Model(config), init="random", seed=0)
    >>> maps = mix(model, {"input_values": torch.randn(1, 16_000)}, spans=[(0, 20), (20, 49)])
    >>> maps["value_zeroing", "encoder"].scores.shape
    (2, 2, 2)
    """
    question = Question(
        measures=several(measures) or (),
        stacks=several(stacks),
        layers=several(layers),
        units=units,
        spans=spans,
        targets=several(targets) if isinstance(targets, int) else targets,
        pooling=pooling,
        distance=distance,
        heads=heads,
        rounding=rounding,
        include=several(include) or (),
        dtype=dtype,
        engine=engine,
        product_dtype=product_dtype,
        objective=objective,
        steps=steps,
        baseline=baseline,
        window=window,
    )
    for name, number in (("batch_size", batch_size), ("clips_at_once", clips_at_once)):
        if number != "auto" and not (isinstance(number, int) and number >= 1):
            raise InputError(f"{name} should be a whole number of at least 1, or 'auto'; found {number!r}")
    precision = Precision.of(model, question)
    if isinstance(clip, Mapping):
        rows = rows_of(clip)
        folders = folders_of(out, rows)
        maps_of_rows = [_answers(model, [row], folders, question, precision, batch_size)[0] for row in rows]
        return maps_of_rows[0] if len(rows) == 1 else maps_of_rows
    if isinstance(clip, (str, PathLike)) and model.hears:
        raise InputError(f"expected a Clip, found {clip!r}: make one with speechmix.Clip.from_file")
    if isinstance(clip, (Clip, Sentence, str)):
        return _answers(model, [clip], folders_of(out, [clip]), question, precision, batch_size)[0]
    if not isinstance(clip, Iterable):
        raise InputError(f"expected a clip, a text, prepared inputs or several of them, found {clip!r:.80}")
    if progress or out is not None:
        clip = list(clip)
    folders = folders_of(out, clip if isinstance(clip, Sequence) else ())
    if progress:
        from tqdm.auto import tqdm

        clip = tqdm(clip, unit="clip", desc=f"mix {model.name}")
    at_once = clips_together(model) if clips_at_once == "auto" else int(clips_at_once)
    with model.unchanged():
        return [
            maps
            for batch in in_groups(prepare_ahead(model, clip, count=at_once), at_once)
            for maps in _answers(model, batch, folders, question, precision, batch_size)
        ]


def mix_one(model: Model, item: Item, **options: Any) -> Maps:
    """`mix` of one item, which has one answer."""
    maps = mix(model, item, **options)
    return maps if isinstance(maps, Maps) else maps[0]


class Precision(NamedTuple):
    """Types of numbers: of the states, and of the delta engine's products."""

    states: torch.dtype
    products: torch.dtype | str

    @classmethod
    def of(cls, model: Model, question: Question) -> Precision:
        """Float32 or better unless asked: scores are small differences of states, which half precision rounds away."""
        states, products = model.state_dtype, question.product_dtype
        if question.dtype is not None:
            states = dtype_named(question.dtype)
            if states.itemsize < 4:
                warnings.warn(
                    f"scores are computed on {states} states: expect relative errors of tens of percent, and small scores "
                    "to be noise; product_dtype='bfloat16' is as fast and keeps errors below 1 %",
                    stacklevel=3,
                )
        if products == TF32 and model.device.type != "cuda":
            raise InputError(f"product_dtype='tf32' is for CUDA devices; {model.name} is on {model.device}")
        return cls(states, states if products is None else products if products == TF32 else dtype_named(products))


def _answers(
    model: Model,
    items: Sequence[Item],
    folders: Iterator,
    question: Question,
    precision: Precision,
    batch_size: int | str,
) -> list[Maps]:
    """Maps of items that share a forward pass; each takes the next of the folders."""
    folders_here = list(itertools.islice(folders, len(items)))
    views = [seen_by(model, item, question) for item in items]
    layers = _layers_of(model, _stacks_of(model, views, question), question)
    measures = [measure_named(name) for name in question.measures]
    for measure, stack in itertools.product(measures, layers):
        check_defined(measure, model.stacks[stack])
    for view in views:
        view.prepare(tuple(model.stacks) if any(measure.objective for measure in measures) else tuple(layers))
    provenances = [_provenance(model, view, question, precision) for view in views]
    units_of: list[dict[str, Units]] = [{} for _ in views]
    of_blocks = [measure for measure in measures if measure.scope == "block"]
    of_passes = [measure for measure in measures if measure.scope == "pass"]
    resources = {
        "product": Product(precision.products, model.weight_products),
        "batch_size": batch_size,
        "bytes_of_pairs": bytes_of_pairs(model.device),
    }
    with ExitStack() as unfinished:  # whatever happens, no half a file is left
        collected = [unfinished.enter_context(ScoresByLayer(layers, folder)) for folder in folders_here]

        def on_block(block: Block) -> None:
            stack, units_here = block.stack.name, units_of[block.clip]
            if stack not in units_here:
                units_here[stack] = views[block.clip].units(block)
            scored = _scored(block, units_here[stack], of_blocks, question, resources)
            collected[block.clip].append(stack, {measure.name: scores for measure, scores in scored})

        inputs = padded_together(model, [view.prepared.inputs for view in views])
        with (
            _running(model, precision),  # from here on the stacks are bound to the modules as they are now
            Capture([model.stacks[stack] for stack in layers], on_block, layers=question.layers),
        ):
            output = model.family.run(
                model.base, inputs_to_device(inputs, model.device, precision.states), tuple(layers)
            )
        states = getattr(output, "encoder_last_hidden_state", None)
        if states is not None:
            remember_encoder_states(model, states, views[0].prepared.sound, attention="sdpa")
        answers = [
            _labelled(view, scores, provenance, layers, of_blocks, question)
            for view, scores, provenance in zip(views, maps_from(collected), provenances, strict=True)
        ]
    if of_passes:
        for index, view in enumerate(views):
            maps = _differentiated(
                model, view, units_of[index], provenances[index], layers, of_passes, question, precision
            )
            answers[index] |= {key: written_to(folders_here[index], made) for key, made in maps.items()}
    return [
        Maps({(name, stack): maps[name, stack] for name in question.measures for stack in layers}) for maps in answers
    ]


@contextmanager
def _running(model: Model, precision: Precision) -> Iterator[None]:
    """Have a model run as it is: its own weights in this precision, no gradients, no random number taken from the caller."""
    with (
        model.in_use(precision.states),
        torch.no_grad(),
        torch.random.fork_rng(devices=[]),  # some transformers versions draw layer-drop numbers even in evaluation
        attention_readable(model.module),
    ):
        yield


def _scored(
    block: Block,
    units: Units,
    measures: Sequence[Measure],
    question: Question,
    resources: Mapping[str, Any],
) -> Iterator[tuple[Measure, Tensor]]:
    """Each measure's scores [(H,) W_t, W_s] of one block, some rows at a time."""
    if resources["batch_size"] == "auto":
        resources = {**resources, "batch_size": pairs_at_once(block, resources["bytes_of_pairs"])}
    parts_of: dict[str, list[Tensor]] = {measure.name: [] for measure in measures}
    for group in units.groups(rows_at_once(block)):
        for measure in measures:
            parts_of[measure.name].append(measure.function(block, group, **_read_by(measure, question, resources)))
    for measure in measures:
        parts = parts_of[measure.name]
        scores = torch.cat(parts, dim=-2) if parts[1:] else parts[0]
        yield measure, scores.float() if scores.dtype.itemsize < 4 else scores


def _read_by(measure: Measure, question: Question, resources: Mapping[str, Any]) -> dict[str, Any]:
    """The options that a measure's function takes."""
    return {name: resources[name] if name in resources else getattr(question, name) for name in measure.takes}


def _differentiated(
    model: Model, view: View, units, provenance, layers, measures: Sequence[Measure], question: Question, precision
) -> dict[tuple[str, str], MixingMap]:
    """Maps of the measures that differentiate the whole model, for one item."""
    made: dict[tuple[str, str], tuple[Tensor, tuple]] = {}
    with _running(model, precision):
        objective = None
        if any(measure.objective for measure in measures):
            objective = objective_of(question.objective, model, view.item, view.prepared)
        inputs = inputs_to_device(view.prepared.inputs, model.device, precision.states)
        whole = GradientPass(model, inputs, layers, objective)
        for measure, (stack, layers_here) in itertools.product(measures, layers.items()):
            scores, notes = measure.function(whole, stack, units[stack], **_read_by(measure, question, {}))
            targets, sources = view.labels(stack)
            if measure.objective and objective is not None:
                targets, notes = (objective.span,), {"objective": objective.details, **notes}
            labels = (targets, sources, measure.name, stack, layers_here, {**provenance, **notes})
            made[measure.name, stack] = scores, labels
    arrays = to_host([scores for scores, _ in made.values()])
    return {key: MixingMap(array, *labels) for (key, (_, labels)), array in zip(made.items(), arrays, strict=True)}


def _labelled(
    view: View, finished: FinishedMaps, provenance, layers, measures: Sequence[Measure], question: Question
) -> dict[tuple[str, str], MixingMap]:
    """Maps of the collected scores, with what is only known now: the position that predicts the deciding token."""
    tokens = view.prepared.tokens
    if tokens is not None and tokens.deciding is not None:
        provenance["deciding_position"] = tokens.deciding - 1
    maps = {}
    for measure in measures:
        noted = {**provenance, "distance": question.distance} if "distance" in measure.options else provenance
        for stack, layers_here in layers.items():
            labels = (*view.labels(stack), measure.name, stack, layers_here, dict(noted))
            maps[measure.name, stack] = finished((measure.name, stack), _labelling(labels))
    return maps


def _labelling(labels: tuple) -> Callable[[np.ndarray], MixingMap]:
    return lambda scores: MixingMap(scores, *labels)


def _stacks_of(model: Model, views: Sequence[View], question: Question) -> tuple[str, ...]:
    """Requested stacks in the model's order; by default those that the items reach, which must be the same."""
    if question.stacks is not None:
        unknown = set(question.stacks) - set(model.stacks)
        if unknown or not question.stacks:
            raise InputError(
                f"{model.name} has the stacks {list(model.stacks)}; asked for {sorted(set(question.stacks))}"
            )
        return tuple(name for name in model.stacks if name in question.stacks)
    reached = {
        tuple(name for name in model.stacks if name == "encoder" or "encoder" not in model.stacks or view.feeds_decoder)
        for view in views
    }
    if len(reached) > 1:
        raise InputError("clips with and without text cannot share a forward pass: say stacks=, or clips_at_once=1")
    return reached.pop()


def _layers_of(model: Model, stacks: Sequence[str], question: Question) -> dict[str, tuple[int, ...]]:
    """Layers asked for, by stack."""
    layers = question.layers
    if layers is None:
        return {stack: tuple(range(len(model.stacks[stack]))) for stack in stacks}
    fewest = min(len(model.stacks[stack]) for stack in stacks)
    if not layers or not all(0 <= layer < fewest for layer in layers):
        raise InputError(
            f"layers={list(layers)}: layers are counted from 0; {', '.join(stacks)} have 0 to {fewest - 1}"
        )
    return {stack: tuple(sorted({int(layer) for layer in layers})) for stack in stacks}


def _provenance(model: Model, view: View, question: Question, precision: Precision) -> dict[str, Any]:
    return {
        "model": model.name,
        "family": model.family.name,
        "init": model.init,
        "seed": model.seed,
        "weights": model.fingerprint,
        **view.provenance(),
        "dtype": str(precision.states).removeprefix("torch."),
        "engine": question.engine,
        "product_dtype": str(precision.products).removeprefix("torch."),
        **{name: getattr(question, name) for name in ("units", "pooling", "heads", "rounding")},
        "include": list(question.include),
        "versions": versions(),
    }
