"""Rows of the tables of one item of a faithfulness evaluation.

In: scores, metrics and curves. Out: rows of `leaderboard.VALUE_COLUMNS`, of curves and of texts,
without item and group, and the `ItemResult` that holds them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from .curves import removed_counts, removed_shares
from .item_maps import Note
from .word_scores import WordScores

if TYPE_CHECKING:
    from ...interventions.decision import Decision

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
