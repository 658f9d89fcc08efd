"""The reference perturbation "states": how far a word's state moves when another word is removed.

The other perturbations read the output, so they need a head. This one also works for an encoder
without a head: each word of an item in turn is the target, every other word is removed
(`extensions.faithfulness.state_perturbation`), and the shift of the target's last state is compared with the scores
that a measure assigns to these words. In: a model, with or without a head, and an item with words.
Out: rows of the evaluation, means over the targets.

A state that moves need not matter for the output: this perturbation says what states are made of,
as maps do, and nothing about a decision.

State shifts: how far each word's state moves, layer by layer, when another word is taken away.

The intervention of `ablate_input`, read at the states instead of at a decision. It asks for no
output, so it is there for encoders without a head (XLSR, HuBERT, the encoder of a Whisper). In: a
model and a clip with words, or a text. Out: a `MixingMap`; its layer l holds all that happens up to
there, as that of a map rolled out does.

Silence a word, and its neighbours' states have moved before the first layer has run: convolutions
hear over its borders, some front-ends scale a clip as a whole. No map of the layers can know that.
So by default only the word's own positions change where they enter the first layer, and all others
enter it as they were.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ...adapters.capture.forward_pass import INPUT, hidden_states, stacks_with_states
from ...errors import InputError, SpeechmixError
from ...inputs.clips.clip import Clip
from ...interventions.removals import SOUND, TEXT_IDS, Removal, change_inputs
from ...mixing.maps.mixing_map import MixingMap
from ...mixing.maps.numerics import find_distance, normalize_rows
from ...mixing.passes.batches import resolve_state_dtype
from ...mixing.passes.forward_pass import map_provenance
from ...mixing.passes.item_view import Item
from ...mixing.passes.mix import mix_one
from ...mixing.passes.request import MixRequest
from ...mixing.passes.view_kinds import make_view
from ..occlusion.input_ablation import SIDE_VERBS, possible_fills
from .leaderboard import ORACLE
from .output_scores import explains_output
from .perturbations import get_perturbation, register_builtin
from .word_scores import (
    RANK_METRICS,
    WordScores,
    chance_value,
    draw_random_orders,
    rank_metrics,
    scores_by_layers,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ...adapters.model import Model
    from ...inputs.sentences.sentence import Sentence
    from ...inputs.words.spans import Span
    from .options import EvaluationOptions

WHERE_OPTIONS = ("first layer", "input")


def state_shifts(
    model: Model,
    item: Item,
    *,
    fill: str | None = None,
    where: str = "first layer",
    layers: Sequence[int] | None = None,
    distance: str = "cosine",
) -> MixingMap:
    """Take each word away, and measure how far the states of all words move.

    Parameters
    ----------
    model : Model
        With or without its head.
    item : Clip, Sentence or str
        With words; of a clip with their times.
    fill : str, optional
        What takes a word's place: of a sound "zeros" (by default), "room", "noise" or "word"
        (`mute`); of a text "mask", "unk" or "pad" (by default the first of them that the model
        has).
    where : {"first layer", "input"}
        "input": the sound (or text) is another one, with whatever comes of that before the first
        layer. "first layer": what enters the first layer is that of the other sound at the word's
        own positions, and as it was at all others.
    layers : sequence of int, optional
        Counted from 0, all by default; -1 is what enters the first.
    distance : str
        As of Value Zeroing: "cosine", "euclidean", ...

    Returns
    -------
    MixingMap [L, W, W]
        Of the stack that reads the words (the encoder, or the only decoder): the distance between
        the state of the target and that without the source, mean over the target's frames (or
        tokens). The measure is "mute (zeros)" or "blank (mask)".

    Raises
    ------
    InputError
        If the item has no words, or there is no such fill or layer.

    Examples
    --------
    >>> from speechmix.inputs import bundled
    >>> model = speechmix.load(bundled.models()["tiny-french-ctc"])
    >>> clip = next(clip for clip in bundled.clips() if clip.name == "left_00_pl")  # synthetic: "nos maisons"
    >>> state_shifts(model, clip)
    MixingMap(mute (zeros), encoder: 4 layers, 2 targets x 2 sources)
    """
    side, stack = model.capabilities.sides[0], model.capabilities.input_stack
    request = MixRequest(units="word", layers=None if layers is None else tuple(layers))
    if model.hears and isinstance(item, Clip) and not item.words:
        raise InputError(
            f"{item.name} has no words with times: give words=, or align it with speechmix.align"
        )
    view = make_view(model, item, request, (stack,))
    layer_indices = _resolve_layers(len(model.stacks[stack]), layers, stack)
    words = [span for span in view.sources(stack) if span.word is not None]
    fills = shift_fills(model)
    if not fills:
        raise InputError(
            f"{model.name} has no token to put in a word's place: neither mask, unknown nor padding"
        )
    fill = fills[0] if fill is None else fill
    if fill not in fills:
        raise InputError(f"fill should be one of {fills} for {model.name}, found {fill!r}")

    if where not in WHERE_OPTIONS:
        raise InputError(f"where should be one of {WHERE_OPTIONS}, found {where!r}")

    intact = _read_states(model, view.prepared.inputs, stack, Tensor.clone)
    scores = np.empty((len(layer_indices), len(words), len(words)))
    distance_function = find_distance(distance)
    for column, source in enumerate(words):
        if side == SOUND:
            removal = Removal(SOUND, (source.word or 0,), fill)
        else:
            removal = Removal(TEXT_IDS, tuple(source.positions), fill)
        inputs, _ = change_inputs(model, view.item, view.prepared.inputs, [removal])
        entering = (
            None if where == "input" else partial(_replace_positions, intact[0], source.positions)
        )
        read = partial(_shift_distances, iter(intact), distance_function, words)
        shifts = _read_states(model, inputs, stack, read, entering)
        scores[:, :, column] = np.stack(shifts)[[layer - INPUT for layer in layer_indices]]
    provenance = map_provenance(model, view, request, resolve_state_dtype(model, request))
    provenance |= {"distance": distance, "fill": fill, "taken away at": where}
    measure = f"{SIDE_VERBS[side]} ({fill})"
    return MixingMap(scores, tuple(words), tuple(words), measure, stack, layer_indices, provenance)


def shift_fills(model: Model) -> tuple[str, ...]:
    """Return the fills that keep the positions of all other words (all but removal)."""
    fills = possible_fills(model, model.capabilities.sides[0])
    return tuple(fill for fill in fills if fill != "remove")


def _resolve_layers(
    count: int, requested_layers: Sequence[int] | None, stack: str
) -> tuple[int, ...]:
    layer_indices = (
        range(count)
        if requested_layers is None
        else sorted({int(layer) for layer in requested_layers})
    )
    if not layer_indices or not all(INPUT <= layer < count for layer in layer_indices):
        raise InputError(
            f"layers={requested_layers}: the {stack} has layers 0 to {count - 1}, and {INPUT}, what enters "
            "the first"
        )
    return tuple(layer_indices)


def _read_states(
    model: Model,
    inputs: Mapping[str, Tensor],
    stack: str,
    read: Callable[[Tensor], Any],
    entering: Callable[[Tensor], Tensor] | None = None,
) -> list[Any]:
    """Read the states [T, D] of each layer, beginning with the input of the first layer."""
    return hidden_states(
        model, inputs, lambda _, states: read(states[0]), stacks=[stack], transform_input=entering
    )[stack]


def _replace_positions(intact: Tensor, positions: Sequence[int], states: Tensor) -> Tensor:
    """Return intact states [T, D] with other states [1, T, D] at some positions."""
    replaced_states = intact.clone()[None]
    replaced_states[:, list(positions)] = states[:, list(positions)]
    return replaced_states


def _shift_distances(
    intact: Iterator[Tensor],
    distance_function: Callable[[Tensor, Tensor], Tensor],
    words: Sequence[Span],
    states: Tensor,
) -> np.ndarray:
    """Compute the distance of a layer's states [T, D] from the intact ones, mean over each word's
    positions, [W]."""
    distances = distance_function(next(intact), states)
    return np.array(
        [float(distances[torch.as_tensor(word.positions)].double().mean()) for word in words]
    )


STATES = "states"
_Rows = list[dict[str, object]]
_Notes = list[dict[str, str]]
_RowKey = tuple[str, str, str, int | None]  # stack, measure, aggregation, layer


def evaluate_state_shifts(
    perturbation: str,
    model: Model,
    item: Clip | Sentence,
    names: Sequence[str],
    options: EvaluationOptions,
) -> tuple[_Rows, _Notes]:
    """Compare the measures of one item with the state shifts of its words.

    Parameters
    ----------
    perturbation : str
        "states", the mean over all possible fills, or "states (zeros)".
    model, item, names, options
        As for `evaluate`; of the metrics those of ranks.

    Returns
    -------
    rows : list of dict
        Columns of `leaderboard.VALUE_COLUMNS` without item and group.
    notes : list of dict
        What could not be evaluated: what, reason.
    """
    stack = stacks_with_states(model)[0]
    reference, fills = get_perturbation(perturbation)
    fill_options = {"fills": fills} if "fills" in reference.option_names else {}
    shifts, reasons = reference.function(model, item, stack, **fill_options)
    notes = [{"what": perturbation, "reason": reason} for reason in reasons]
    maps, map_notes = _mix_measures_one_by_one(model, item, names, stack) if shifts else ([], [])
    values: dict[tuple[_RowKey, str], list[float]] = {}
    counts = []
    for target, other_words in _list_targets(shifts, stack, options.min_words):
        counts.append(len(other_words))
        mean_shifts = np.mean([shift.scores[0, target, other_words] for shift in shifts], axis=0)
        for key, metrics in _target_metrics(
            shifts[0], target, other_words, mean_shifts, maps, options.aggregations
        ):
            for metric in set(RANK_METRICS) & set(options.metrics):
                values.setdefault((key, metric), []).append(metrics[metric])
    if shifts and not counts:
        notes.append(
            {"what": "words", "reason": f"no word has {options.min_words} others beside it"}
        )
    key_names = ("stack", "measure", "aggregation", "layer")
    rows: _Rows = [
        {
            **dict(zip(key_names, key, strict=True)),
            "words": max(counts),
            "perturbation": perturbation,
            "metric": metric,
            "value": float(np.mean(target_values)),
            "chance": float(np.mean([chance_value(metric, count) for count in counts])),
        }
        for (key, metric), target_values in values.items()
    ]
    return rows, [*notes, *map_notes]


@register_builtin(
    STATES,
    description="the sound or tokens of a word are replaced, and the states of other words are "
    "compared",
    reads="states",
)
def _measure_shifts(
    model: Model, item: Clip | Sentence, stack: str, *, fills: Sequence[str] = ()
) -> tuple[list[MixingMap], list[str]]:
    """Measure how far states of the last layer move, by each fill, and why fills were not possible."""
    shifts, reasons = [], []
    for fill in fills or shift_fills(model):
        try:
            shifts.append(
                state_shifts(model, item, fill=fill, layers=[len(model.stacks[stack]) - 1])
            )
        except SpeechmixError as error:
            reasons.append(f"{fill}: {error}")
    return shifts, reasons


def _mix_measures_one_by_one(
    model: Model, item: Clip | Sentence, names: Sequence[str], stack: str
) -> tuple[list[MixingMap], _Notes]:
    """Compute maps of words by each measure, with notes of measures that fail or explain an
    output."""
    maps, notes = [], []
    for name in names:
        try:
            if explains_output(name):
                notes.append({"what": name, "reason": f"{name} explains an output, and no states"})
            else:
                maps.append(
                    mix_one(model, item, measures=[name], stacks=[stack], units="word")[name, stack]
                )
        except SpeechmixError as error:
            notes.append({"what": name, "reason": str(error)})
    return maps, notes


def _list_targets(
    shifts: Sequence[MixingMap], stack: str, min_words: int
) -> Iterator[tuple[int, list[int]]]:
    """Yield words with enough other words, and these; in a causal stack only earlier words."""
    count = len(shifts[0].targets) if shifts else 0
    for target in range(count):
        other_words = [
            word
            for word in range(count)
            if word != target and (stack == "encoder" or word < target)
        ]
        if len(other_words) >= min_words:
            yield target, other_words


def _target_metrics(
    shift: MixingMap,
    target: int,
    other_words: Sequence[int],
    mean_shifts: np.ndarray,
    maps: Sequence[MixingMap],
    aggregations: Sequence[str],
) -> Iterator[tuple[_RowKey, dict[str, float]]]:
    """Yield the metrics of every way to rank the other words: measures, baselines, the oracle."""
    words = [shift.sources[word].word for word in other_words]
    row = partial(_row_shares, target=shift.targets[target].word, words=words)
    candidates = [
        candidate
        for mixing_map in maps
        for candidate in scores_by_layers(mixing_map, row, aggregations)
    ]
    orders = {
        "length": np.array([len(shift.sources[word]) for word in other_words], dtype=float),
        "position": -np.abs(np.array(other_words, dtype=float) - target),
        ORACLE: mean_shifts,
    }
    candidates += [
        WordScores(shift.stack, name, "", None, scores) for name, scores in orders.items()
    ]
    random_scores = draw_random_orders(len(other_words), f"{shift.provenance['clip']} {target}")
    metrics_list = rank_metrics(
        [*(candidate.scores for candidate in candidates), *random_scores], mean_shifts
    )
    for candidate, metrics in zip(candidates, metrics_list, strict=False):
        yield (candidate.stack, candidate.measure, candidate.aggregation, candidate.layer), metrics
    random_metrics = {
        name: float(np.mean([metrics[name] for metrics in metrics_list[len(candidates) :]]))
        for name in RANK_METRICS
    }
    yield (shift.stack, "random", "", None), random_metrics


def _row_shares(
    mixing_map: MixingMap, target: int | None, words: Sequence[int | None]
) -> np.ndarray:
    """Return the shares of some words in the row of a target, layer by layer, [L, W]."""
    row_index = next(i for i, span in enumerate(mixing_map.targets) if span.word == target)
    columns = [
        next(i for i, span in enumerate(mixing_map.sources) if span.word == word) for word in words
    ]
    return normalize_rows(mixing_map.mean_heads().scores[:, row_index, columns].astype(float))
