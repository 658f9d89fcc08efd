"""The reference perturbation "states": how far a word's state moves when another word is removed.

The other perturbations read the output, so they need a head. This one also works for an encoder
without a head: each word of an item in turn is the target, every other word is removed
(`extensions.faithfulness.state_shifts`), and the shift of the target's last state is compared with the scores
that a measure assigns to these words. In: a model, with or without a head, and an item with words.
Out: rows of the evaluation, means over the targets.

A state that moves need not matter for the output: this perturbation says what states are made of,
as maps do, and nothing about a decision.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ...adapters.capture.forward_pass import stacks_with_states
from ...errors import SpeechmixError
from ...mixing.maps.numerics import normalize_rows
from ...mixing.passes.mix import mix_one
from .leaderboard import ORACLE
from .output_scores import explains_output
from .perturbations import get_perturbation, register_builtin
from .scores import RANK_METRICS, chance_value, rank_metrics
from .state_shifts import shift_fills, state_shifts
from .word_scores import WordScores, draw_random_orders, scores_by_layers

if TYPE_CHECKING:
    from ...adapters.model import Model
    from ...inputs.clips.clip import Clip
    from ...inputs.sentences.sentence import Sentence
    from ...mixing.maps.mixing_map import MixingMap
    from .options import EvaluationOptions

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
