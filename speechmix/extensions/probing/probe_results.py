"""Scores and answers of probes, and the files that a run keeps of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path

import pandas as pd

from ...errors import InputError
from ...files.text_files import read_csv, write_csv

FILE, ANSWERS_FILE = "probes.csv", "probe_answers.csv"
MODEL_KEYS = ["model", "init", "seed"]
PLACE_KEYS = ["part", "stack", "position", "layer", "depth", "label"]
SCORE_COLUMNS = {
    "logistic": [
        "accuracy",
        "low",
        "high",
        "majority",
        "control",
        "gain_over_baseline",
        "memorised",
        "macro_f1",
    ],
    "online_code": [
        "bits",
        "compression",
        "low",
        "high",
        "frequencies",
        "control",
        "gain_over_baseline",
    ],
    "ridge": ["r2", "low", "high", "r", "by_position", "control", "gain_over_baseline", "p"],
}
ANSWER_COLUMNS = {
    "logistic": ["predicted", "right", "control"],
    "online_code": ["bits"],
    "ridge": ["predicted", "explained", "by_position"],
}
LEFT_OUT_COLUMNS = [*MODEL_KEYS, "part", "item", "stack", "position", "reason"]


@dataclass(frozen=True, eq=False)
class Probes:
    """What probes found.

    Parameters
    ----------
    scores : DataFrame
        One row for each model, part, stack, position and layer: model, init, seed, part ("all"
        unless parted), stack, position, layer (-1: the input of the first layer), depth (0 first
        layer, 1 last), label, method; n (items), groups. Logistic: accuracy with low and high (95 %
        over groups), majority (share of the most frequent label), control (accuracy on random
        labels for each word, in the same kind of folds), gain_over_baseline (accuracy less the
        larger of majority and control), memorised (the same random labels in folds that share
        words), macro_f1. Online code: bits, compression with low and high, frequencies (compression
        by label frequencies alone), control (compression of random labels), gain_over_baseline
        (compression less the larger of both). Ridge: r2 (share of variance) with low and high, r
        (correlation), by_position (R^2 of the position in the clip alone), control (R^2 of random
        values for each word), gain_over_baseline (r2 less the largest of both and 0), p (of shuffles,
        corrected over layers); see `value_fits`.
    answers : DataFrame
        One row for each of them and item: item, group, true; predicted, right (0 or 1), control; or
        bits; or predicted, explained (its part of R^2, whose mean is r2), by_position (likewise).
    left_out : DataFrame
        Columns model, init, seed, item, stack, position, reason; empty where it is of all of them.
    ties : str
        What ties items into groups, in words.
    provenance : dict
        Label, positions, settings; grouping (how many groups and speakers there are, in a sentence).
    """

    scores: pd.DataFrame
    answers: pd.DataFrame
    left_out: pd.DataFrame
    ties: str = ""
    provenance: Mapping[str, object] = field(default_factory=dict)

    def to_dataframe(self) -> pd.DataFrame:
        """Return a copy of the scores, a row for each model, part, stack, position and layer."""
        return self.scores.copy()

    def write(self, folder: str | PathLike[str]) -> Path:
        """Write ``probes.csv`` and, item by item, ``probe_answers.csv`` into a folder; of numbers
        ``value_probes.csv`` and ``value_probe_answers.csv``.

        A run's page shows them (`speechmix report`). Rows of other models, or labels, that are
        there already stay.

        Raises
        ------
        InputError
            If such a file is there and holds another table.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        prefix = "value_" if "r2" in self.scores else ""
        for name, table in ((ANSWERS_FILE, self.answers), (FILE, self.scores)):
            path = folder / f"{prefix}{name}"
            write_csv(_append_stored_rows(table, path), path)
        return path

    def __repr__(self) -> str:
        provenance = self.provenance
        positions = ", ".join(
            dict.fromkeys(f"{row.stack} {row.position}" for row in self.scores.itertuples())
        )
        models = self.scores[MODEL_KEYS].drop_duplicates().shape[0] if len(self.scores) else 0
        text = (
            f"{provenance.get('label')}: {models} models, {positions or 'nothing could be probed'}"
        )
        grouping = str(provenance.get("grouping", "")).rstrip(".")
        return f"Probes({'; '.join(filter(None, (text, grouping)))})"


def _append_stored_rows(table: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Put a table behind the rows of other models and labels in a file."""
    if not path.is_file():
        return table
    stored_table, keys = read_csv(path), [*MODEL_KEYS, "label"]
    if set(stored_table) != set(table):
        raise InputError(
            f"{path} holds another table: write to another folder, or take the file away"
        )
    table_keys = set(
        table[keys].astype(object).fillna("").astype(str).itertuples(index=False, name=None)
    )
    is_other = [
        row not in table_keys for row in stored_table[keys].itertuples(index=False, name=None)
    ]
    return pd.concat([stored_table[is_other], table.astype(object)], ignore_index=True)
