"""The reference "states", which needs no decision: how far a word's state moves when another word
is taken away.

The other judges ask what the output needs, and so need an output. An encoder without one has its
states: each word of an item in turn is the target, every other word is taken away
(`interventions.state_shifts`), and how far the target's last state has moved is held against what a
measure gives to these words. In: a model, with or without a head, and an item with words. Out: its
part of a trial, means over the targets.

A state that moves need not matter to anybody: this judge says what states are made of, as maps do,
and nothing of a decision.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ...adapters.capture.hidden_states import stacks_with_states
from ...errors import SpeechmixError
from ...interventions.state_shifts import shift_fills, state_shifts
from ...mixing.maps.numerics import normalize_rows
from ...mixing.passes.mix import mix_one
from .leaderboard import ORACLE
from .perturbations import package_perturbation, perturbation_named
from .scores import RANK_METRICS, chance_of, of_ranks
from .to_output import goes_to_output
from .words import WordScores, orders_drawn, scores_by_layers

if TYPE_CHECKING:
    from ...adapters.model import Model
    from ...inputs.clips.clip import Clip
    from ...inputs.sentences.sentence import Sentence
    from ...mixing.maps.mixing_map import MixingMap
    from .options import EvaluationOptions

STATES = "states"
_Rows = list[dict[str, object]]
_Notes = list[dict[str, str]]
_Way = tuple[str, str, str, int | None]  # stack, measure, aggregation, layer


def rows_by_states(
    judge: str,
    model: Model,
    item: Clip | Sentence,
    names: Sequence[str],
    options: EvaluationOptions,
) -> tuple[_Rows, _Notes]:
    """Judge one item by the states of its words.

    Parameters
    ----------
    judge : str
        "states", the mean over all fills that are possible, or "states (zeros)".
    model, item, names, options
        As for `evaluate`; of the metrics those of ranks.

    Returns
    -------
    rows : list of dict
        Columns of `leaderboard.VALUE_COLUMNS` without item and group.
    notes : list of dict
        What could not be judged: what, reason.
    """
    stack = stacks_with_states(model)[0]
    perturbation, fills = perturbation_named(judge)
    given = {"fills": fills} if "fills" in perturbation.takes else {}
    shifts, reasons = perturbation.function(model, item, stack, **given)
    notes = [{"what": judge, "reason": reason} for reason in reasons]
    maps, failed = _maps(model, item, names, stack) if shifts else ([], [])
    values: dict[tuple[_Way, str], list[float]] = {}
    counts = []
    for target, others in _targets(shifts, stack, options.fewest):
        counts.append(len(others))
        moved = np.mean([shift.scores[0, target, others] for shift in shifts], axis=0)
        for way, metrics in _of_target(
            shifts[0], target, others, moved, maps, options.aggregations
        ):
            for metric in set(RANK_METRICS) & set(options.metrics):
                values.setdefault((way, metric), []).append(metrics[metric])
    if shifts and not counts:
        notes.append({"what": "words", "reason": f"no word has {options.fewest} others beside it"})
    places = ("stack", "measure", "aggregation", "layer")
    rows: _Rows = [
        {
            **dict(zip(places, way, strict=True)),
            "words": max(counts),
            "judge": judge,
            "metric": metric,
            "value": float(np.mean(of_targets)),
            "chance": float(np.mean([chance_of(metric, count) for count in counts])),
        }
        for (way, metric), of_targets in values.items()
    ]
    return rows, [*notes, *failed]


@package_perturbation(
    STATES,
    description="the sound or tokens of a word are replaced, and the states of other words are "
    "compared",
    reads="states",
)
def _shifts(
    model: Model, item: Clip | Sentence, stack: str, *, fills: Sequence[str] = ()
) -> tuple[list[MixingMap], list[str]]:
    """How far states of the last layer move, by each fill; and reasons why fills were not
    possible."""
    shifts, reasons = [], []
    for fill in fills or shift_fills(model):
        try:
            shifts.append(
                state_shifts(model, item, fill=fill, layers=[len(model.stacks[stack]) - 1])
            )
        except SpeechmixError as error:
            reasons.append(f"{fill}: {error}")
    return shifts, reasons


def _maps(
    model: Model, item: Clip | Sentence, names: Sequence[str], stack: str
) -> tuple[list[MixingMap], _Notes]:
    """Maps of words by each measure; and notes of measures that fail, or explain an output."""
    maps, notes = [], []
    for name in names:
        try:
            if goes_to_output(name):
                notes.append({"what": name, "reason": f"{name} explains an output, and no states"})
            else:
                maps.append(
                    mix_one(model, item, measures=[name], stacks=[stack], units="word")[name, stack]
                )
        except SpeechmixError as error:
            notes.append({"what": name, "reason": str(error)})
    return maps, notes


def _targets(
    shifts: Sequence[MixingMap], stack: str, fewest: int
) -> Iterator[tuple[int, list[int]]]:
    """Words that have enough others beside them, and these: in a causal stack those before them."""
    count = len(shifts[0].targets) if shifts else 0
    for target in range(count):
        others = [
            word
            for word in range(count)
            if word != target and (stack == "encoder" or word < target)
        ]
        if len(others) >= fewest:
            yield target, others


def _of_target(
    shift: MixingMap,
    target: int,
    others: Sequence[int],
    moved: np.ndarray,
    maps: Sequence[MixingMap],
    aggregations: Sequence[str],
) -> Iterator[tuple[_Way, dict[str, float]]]:
    """The metrics of every way to rank the other words: measures, baselines, and the judge
    itself."""
    words = [shift.sources[word].word for word in others]
    row = partial(_row, target=shift.targets[target].word, words=words)
    ranked = [way for mixing_map in maps for way in scores_by_layers(mixing_map, row, aggregations)]
    orders = {
        "length": np.array([len(shift.sources[word]) for word in others], dtype=float),
        "position": -np.abs(np.array(others, dtype=float) - target),
        ORACLE: moved,
    }
    ranked += [WordScores(shift.stack, name, "", None, scores) for name, scores in orders.items()]
    drawn = orders_drawn(len(others), f"{shift.provenance['clip']} {target}")
    numbers = of_ranks([*(way.scores for way in ranked), *drawn], moved)
    for way, metrics in zip(ranked, numbers, strict=False):
        yield (way.stack, way.measure, way.aggregation, way.layer), metrics
    at_random = {
        name: float(np.mean([metrics[name] for metrics in numbers[len(ranked) :]]))
        for name in RANK_METRICS
    }
    yield (shift.stack, "random", "", None), at_random


def _row(mixing_map: MixingMap, target: int | None, words: Sequence[int | None]) -> np.ndarray:
    """Shares of some words in the row of one, layer by layer, [L, W]."""
    number = next(i for i, span in enumerate(mixing_map.targets) if span.word == target)
    columns = [
        next(i for i, span in enumerate(mixing_map.sources) if span.word == word) for word in words
    ]
    return normalize_rows(mixing_map.mean_heads().scores[:, number, columns].astype(float))
