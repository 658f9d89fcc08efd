"""FaithfulnessResults: what a faithfulness evaluation found, as numbers, tables, sentences and
files.

In: one number for each item, row, judge and metric (`item_evaluation.py`). Out: means with
intervals, leaderboards, mean curves, how far judges agree, and ``faithfulness.csv`` in a folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import PathLike
from pathlib import Path

import numpy as np
import pandas as pd

from ...errors import InputError
from ...files.text_files import read_csv, write_csv
from ..statistics.intervals import FEWEST_GROUPS
from .leaderboard import DROP_COLUMNS, MODEL, ROW, judge_agreement, leaderboard, summary
from .leaderboard_sentences import sentence
from .perturbations import is_apart
from .result_text import curves_text, layers_text

FILE, VALUES_FILE = "faithfulness.csv", "faithfulness_values.csv"
CUE = "cue"  # the judge of average precision: the word that was annotated
_GRID = np.arange(0, 101, 5)  # percent of words, where curves of different lengths are averaged


@dataclass(frozen=True, eq=False)
class FaithfulnessResults:
    """What a faithfulness evaluation found.

    Parameters
    ----------
    values : DataFrame
        One number for each item, row, judge and metric: item, group, words (how many competed),
        stack, measure, aggregation, layer (where one was chosen), judge, metric, value, chance; and
        model, init, seed.
    left_out : DataFrame
        Columns item, what ("item", a judge, a measure), reason; and model.
    drops : DataFrame
        What each judge, and each fill alone, says of every word: item, group, stack, judge, word
        (index; of a token its position), drop (nats, or of the probability); and model, init, seed.
    ties : str
        What ties items into groups, in words.
    provenance : dict
        Model, initialisation, seed, weights, options; items and groups (how many there were).
    points : DataFrame
        Every point of every curve, of `speechmix.deletion_curves` alone: item, group, stack,
        measure, aggregation, layer, judge, share (percent of words), count (words), removed
        (probability without them), kept (with them alone).
    texts : DataFrame
        Likewise: item, group, label (evaluated for), probability (of the whole text), gold
        (``meta["label"]``), right, units.
    """

    values: pd.DataFrame
    left_out: pd.DataFrame
    drops: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=DROP_COLUMNS))
    ties: str = ""
    provenance: Mapping[str, object] = field(default_factory=dict)
    points: pd.DataFrame = field(default_factory=pd.DataFrame)
    texts: pd.DataFrame = field(default_factory=pd.DataFrame)

    @cached_property
    def table(self) -> pd.DataFrame:
        """Mean over groups of everything, with 95 % intervals: one row for each model, judge,
        metric and row."""
        tables = []
        for _, values in self.values.groupby(MODEL, sort=False, dropna=False):
            tables.append(summary(values))
            for name in MODEL:
                tables[-1][name] = values[name].iloc[0]
        return pd.concat(tables, ignore_index=True) if tables else summary(self.values)

    @property
    def judges(self) -> list[str]:
        """Judges as they were named, those apart (knock-out, which shares Value Zeroing's
        intervention) last."""
        names = list(dict.fromkeys(self.values["judge"]))
        return sorted((name for name in names if name != CUE), key=is_apart)

    @property
    def accuracy(self) -> float:
        """Share of the texts with a label that the model gives that label; NaN if none has one."""
        right = self.texts["right"].dropna() if len(self.texts) else pd.Series(dtype=float)
        return float(right.astype(bool).mean()) if len(right) else float("nan")

    def leaderboard(self, metric: str | None = None, *, judge: str | None = None) -> pd.DataFrame:
        """Rows by one judge and metric (the first by default), best first; see
        `leaderboard.leaderboard`.

        Raises
        ------
        InputError
            If this judge gave no such metric, or there are several models.
        """
        judge = judge or self._first_judge()
        if len(self.values[MODEL].drop_duplicates()) > 1:
            raise InputError("a leaderboard is of one model: evaluate one at a time")
        return leaderboard(self.values, judge=judge, metric=metric or self._first_metric())

    def sentence(self, metric: str | None = None, *, judge: str | None = None) -> str:
        """Who wins by one judge and metric, and how surely; or that no measure is better than the
        baselines."""
        judge, metric = judge or self._first_judge(), metric or self._first_metric()
        noun = "texts" if len(self.texts) else "clips"
        board = self.leaderboard(metric, judge=judge)
        return sentence(board, judge=judge, metric=metric, noun=noun)

    def with_notes(self, reasons: Mapping[str, str]) -> FaithfulnessResults:
        """Record measures that are not defined for the model, by name with the reason."""
        notes = [{"item": "", "what": name, "reason": why} for name, why in reasons.items()]
        former = pd.DataFrame(notes, columns=["item", "what", "reason"])
        former = former.assign(model=model_columns(self.provenance)["model"])
        return replace(self, left_out=pd.concat([former, self.left_out], ignore_index=True))

    def judge_agreement(self) -> pd.DataFrame:
        """How far the judges, and the fills of one, rank the words of an item alike; see
        `leaderboard.judge_agreement`."""
        return judge_agreement(self.drops)

    def judge_table(self, judge: str | None = None) -> pd.DataFrame:
        """Rows of `table` by one judge; by default the first of each model.

        Raises
        ------
        InputError
            If there is no such judge, or nothing was evaluated.
        """
        self._first_judge()
        firsts = self.table.groupby(MODEL, sort=False, dropna=False)["judge"].transform("first")
        rows = self.table[self.table["judge"] == (firsts if judge is None else judge)]
        if rows.empty:
            raise InputError(f"judge should be one of {self.judges}, found {judge!r}")
        return rows

    def mean_curves(self) -> pd.DataFrame:
        """Mean over texts at each bin; of curves one by one at every 5 % of the words, between
        points on a straight line.

        Columns stack, measure, aggregation, share, removed, kept.
        """
        judge, points = self._first_judge(), self.points
        points = points[points["judge"] == judge]
        if self.provenance.get("bins") is None:
            keys = ["item", *ROW]
            curves = [_at_grid(curve, keys) for _, curve in points.groupby(keys, sort=False)]
            points = pd.concat(curves)
        means = points.groupby([*ROW, "share"], sort=False)[["removed", "kept"]].mean()
        return means.reset_index()

    def text(self, judge: str | None = None) -> str:
        """Curves as a table, if there are any; else layers by measures for each model, by one judge
        (the first by default)."""
        if not len(self.points):
            return layers_text(self.judge_table(judge))
        table = self.judge_table(self._first_judge())
        return curves_text(self.mean_curves(), table, self.texts, self.accuracy, self.provenance)

    def write(self, folder: str | PathLike[str]) -> Path:
        """Write ``faithfulness.csv`` into a folder: the leaderboards of all judges and metrics, one
        under the other.

        A run's page shows it (`speechmix report`). ``faithfulness_values.csv`` has one number an
        item. Rows of other models that are there already stay.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        pairs = self.values[["judge", "metric"]].drop_duplicates().astype(str)
        boards = [
            self.leaderboard(metric, judge=judge).assign(judge=judge, metric=metric)
            for judge, metric in pairs.itertuples(index=False, name=None)
        ]
        board = pd.concat(boards, ignore_index=True) if boards else self.table
        facts = {name: str(self.provenance.get(name)) for name in MODEL}
        for name, table in {VALUES_FILE: self.values, FILE: board}.items():
            path = folder / name
            write_csv(_with_other_models(table.assign(**facts), path, facts), path)
        return folder / FILE

    def _first_judge(self) -> str:
        if not self.judges:
            raise InputError(self._description())
        return self.judges[0]

    def _first_metric(self) -> str:
        metrics = list(self.values["metric"])
        return "spearman" if "spearman" in metrics or not metrics else str(metrics[0])

    def _description(self) -> str:
        """How many items were evaluated by whom, or why none was; and how many groups a comparison
        of measures needs."""
        groups = self.provenance.get("groups")
        if not isinstance(groups, int):
            groups = int(self.values["group"].nunique())
        if self.judges:
            items = _count(self.values["item"].nunique(), "item")
            text = f"{items} in {_count(groups, 'group')} judged by {', '.join(self.judges)}"
        else:
            reasons = "; ".join(self.left_out["reason"].drop_duplicates().head(3))
            items = _count(self.provenance.get("items", 0), "item")
            text = f"none of {items} could be judged: {reasons or 'there were no items'}"
        if groups >= FEWEST_GROUPS:
            return text
        needed = f"a comparison of measures needs {FEWEST_GROUPS} groups of items"
        return f"{text}; {needed}, there {'is' if groups == 1 else 'are'} {groups}"

    def __repr__(self) -> str:
        return f"FaithfulnessResults({self.provenance.get('model')}: {self._description()})"


def model_columns(provenance: Mapping[str, object]) -> dict[str, str | int | None]:
    """Columns of all tables that name the model."""
    seed = provenance.get("seed")
    return {
        "model": str(provenance.get("model")),
        "init": str(provenance.get("init")),
        "seed": seed if isinstance(seed, int) else None,
    }


def concatenate(results: Sequence[FaithfulnessResults]) -> FaithfulnessResults:
    """Results of several models as one; the provenance is that of the first."""
    tables = {
        name: pd.concat([getattr(one, name) for one in results], ignore_index=True)
        for name in ("values", "left_out", "drops")
    }
    return replace(results[0], **tables)


def _at_grid(curve: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """One text's curve at the grid's shares."""
    at = {name: np.interp(_GRID, curve["share"], curve[name]) for name in ("removed", "kept")}
    return pd.DataFrame({**{key: curve[key].iloc[0] for key in keys}, "share": _GRID, **at})


def _count(count: object, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _with_other_models(table: pd.DataFrame, path: Path, facts: Mapping[str, str]) -> pd.DataFrame:
    """The table behind what a file holds of other models."""
    if not path.is_file():
        return table
    former = read_csv(path)
    if not set(facts) <= set(former):
        raise InputError(f"{path} holds another table: write to another folder, or remove the file")
    others = former[(former[list(facts)] != pd.Series(dict(facts))).any(axis=1)]
    if len(others) and set(former) != set(table):
        models = ", ".join(others["model"].unique())
        raise InputError(
            f"{path} holds a table of {models} with other columns: write to another folder, or "
            "remove the file"
        )
    if not len(others):
        return table
    return pd.concat([others, table.astype(object)], ignore_index=True)
