"""Rows of the tables of one item of a faithfulness evaluation.

In: scores, metrics and curves. Out: rows of `leaderboard.VALUE_COLUMNS`, of curves and of texts,
without item and group, and the `ItemResult` that holds them.

Maps of the measures that are evaluated on one item.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ...errors import InputError, SpeechmixError
from ...interventions.decision import Decision
from ...mixing.maps.measure_registry import measure_facts
from ...mixing.measures.token_objectives import check_maps_reach_label
from ...mixing.passes.mix import mix_one
from .curves import removed_counts, removed_shares
from .perturbations import split_fills_from_name
from .word_scores import WordScores

if TYPE_CHECKING:
    from ...mixing.maps.map_set import Maps

Note = dict[str, str]


def maps_by_measure(
    decision: Decision, measures: Sequence[str]
) -> tuple[dict[str, Maps], list[Note]]:
    """Compute the maps of an item by measure, and notes of the measures that fail.

    Of measures that have none there are none, nor of one that reads one position where the margin
    is read at several.
    """
    has_one_position = bool(decision.objective.details.keys() & {"position", "row"})
    measures = [
        name for name in measures if measure_facts(split_fills_from_name(name)[0]).gives_maps
    ]
    measures = [
        name for name in measures if has_one_position or not measure_facts(name).at_one_position
    ]
    if not measures:
        return {}, []
    with suppress(SpeechmixError):
        all_maps = _mix_measures(decision, measures)
        return dict.fromkeys(measures, all_maps), []
    maps, notes = {}, []
    for name in measures:
        try:
            maps[name] = _mix_measures(decision, [name])
        except SpeechmixError as error:
            notes.append({"what": name, "reason": str(error)})
    return maps, notes


def _mix_measures(decision: Decision, measures: Sequence[str]) -> Maps:
    if decision.item is None:
        raise InputError("prepared inputs have no words to rank: give clips or sentences")
    if any(measure_facts(name).scope == "layer" for name in measures):
        check_maps_reach_label(decision.model)
    units, objective = decision.units, decision.objective
    return mix_one(
        decision.model, decision.item, measures=measures, units=units, objective=objective
    )


Row = dict[str, object]  # column to value


@dataclass(frozen=True)
class ItemResult:
    """Results of one item.

    Parameters
    ----------
    rows, drops, points, texts : list of dict
        Columns of the tables of `FaithfulnessResults`, without item and group.
    notes : list of dict
        What could not be evaluated: what, reason.
    """

    rows: list[Row] = field(default_factory=list)
    drops: list[Row] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    points: list[Row] = field(default_factory=list)
    texts: list[Row] = field(default_factory=list)

    def add_note(self, what: str, reason: str) -> None:
        """Record what could not be evaluated."""
        self.notes.append({"what": what, "reason": reason})


def value_row(
    vector: WordScores, perturbation: str, metric: str, value: float, chance: float
) -> Row:
    """Return the row of one metric."""
    return {
        **_score_columns(vector),
        "words": len(vector.scores),
        "perturbation": perturbation,
        "metric": metric,
        "value": value,
        "chance": chance,
    }


def curve_point_rows(
    vector: WordScores, perturbation: str, curve: np.ndarray, bins: Sequence[float] | None
) -> Iterator[Row]:
    """Yield every point of a curve [2, P]: percent and count of words, and both probabilities."""
    count = len(vector.scores)
    names = ("share", "count", "removed", "kept")
    for values in zip(
        removed_shares(count, bins), removed_counts(count, bins), *curve, strict=True
    ):
        cells = dict(zip(names, values, strict=True))
        yield {**_score_columns(vector), "perturbation": perturbation, **cells}


def text_row(decision: Decision, word_count: int, probability: float) -> Row:
    """Return the predicted label of a text, its probability, and whether it is the text's label."""
    label, item = decision.objective.details.get("label", ""), decision.item
    gold = "" if item is None else item.meta.get("label", "")
    return {
        "label": label,
        "probability": probability,
        "gold": gold,
        "right": label == gold if gold and decision.model.has_label_head else None,
        "units": word_count,
    }


def _score_columns(vector: WordScores) -> Row:
    return {name: value for name, value in vector._asdict().items() if name != "scores"}
