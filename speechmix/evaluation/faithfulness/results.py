"""Trial: what a trial of measures found, as numbers, tables, sentences and files.

In: one number for each item, row, judge and metric (`items.py`). Out: means with intervals,
leaderboards, how far judges agree, and ``faithfulness.csv`` in a folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import pandas as pd

from ...errors import InputError
from ...files.text_files import read_csv, write_csv
from ..statistics.intervals import FEWEST_GROUPS
from .leaderboard import DROP_COLUMNS, judge_agreement, leaderboard, sentence, summary
from .perturbations import is_apart

FILE, VALUES_FILE = "faithfulness.csv", "faithfulness_values.csv"
CUE = "cue"  # the judge of average precision: the word that was annotated


@dataclass(frozen=True, eq=False)
class Trial:
    """What a trial of measures found.

    Parameters
    ----------
    values : DataFrame
        One number for each item, row, judge and metric: item, group, words (how many competed),
        stack, measure, aggregation, layer (where one was chosen), judge, metric, value, chance.
    left_out : DataFrame
        Columns item, what ("item", a judge, a metric), reason.
    drops : DataFrame
        What each judge, and each fill alone, says of every word: item, group, stack, judge, word
        (index), drop (nats).
    ties : str
        What ties items into groups, in words.
    provenance : dict
        Model, initialisation, seed, weights, options; items and groups (how many there were).
    """

    values: pd.DataFrame
    left_out: pd.DataFrame
    drops: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=DROP_COLUMNS))
    ties: str = ""
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def table(self) -> pd.DataFrame:
        """Mean over groups of everything, with 95 % intervals: one row for each judge, metric,
        stack, measure, aggregation."""
        return summary(self.values)

    @property
    def judges(self) -> list[str]:
        """Judges in the order they were asked, those apart (knock-out, which shares Value Zeroing's
        intervention) last."""
        names = list(dict.fromkeys(self.values["judge"]))
        return sorted((name for name in names if name != CUE), key=is_apart)

    def leaderboard(self, metric: str = "spearman", *, judge: str | None = None) -> pd.DataFrame:
        """Rows by one judge (the first by default) and metric, best first; see
        `leaderboard.leaderboard`.

        Raises
        ------
        InputError
            If this judge gave no such metric.
        """
        return leaderboard(self.values, judge=judge or self._first_judge(), metric=metric)

    def sentence(self, metric: str = "spearman", *, judge: str | None = None) -> str:
        """Who wins by one judge and metric, and how surely; or that no measure is better than the
        baselines."""
        judge = judge or self._first_judge()
        return sentence(self.leaderboard(metric, judge=judge), judge=judge, metric=metric)

    def judge_agreement(self) -> pd.DataFrame:
        """How far the judges, and the fills of one, rank the words of an item alike; see
        `leaderboard.judge_agreement`."""
        return judge_agreement(self.drops)

    def write(self, folder: str | PathLike) -> Path:
        """Write ``faithfulness.csv`` into a folder: the leaderboards of all judges and metrics, one
        under the other.

        A run's page shows it (`speechmix report`). Beside it ``faithfulness_values.csv`` has one
        number an item. Rows of other models that are there already stay.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        asked = (
            self.values[["judge", "metric"]]
            .drop_duplicates()
            .astype(str)
            .itertuples(index=False, name=None)
        )
        boards = [
            self.leaderboard(metric, judge=judge).assign(judge=judge, metric=metric)
            for judge, metric in asked
        ]
        tables = {
            VALUES_FILE: self.values,
            FILE: pd.concat(boards, ignore_index=True) if boards else self.table,
        }
        facts = {name: str(self.provenance.get(name)) for name in ("model", "init", "seed")}
        for name, table in tables.items():
            write_csv(
                _beside_other_models(table.assign(**facts), folder / name, facts), folder / name
            )
        return folder / FILE

    def _first_judge(self) -> str:
        if not self.judges:
            raise InputError(self._text())
        return self.judges[0]

    def _text(self) -> str:
        """How many items were judged by whom, or why none was; and how many groups a comparison of
        measures needs."""
        groups = self.provenance.get("groups", self.values["group"].nunique())
        if self.judges:
            judged = (
                f"{_counted(self.values['item'].nunique(), 'item')} in "
                f"{_counted(groups, 'group')} judged by "
            )
            text = f"{judged}{', '.join(self.judges)}"
        else:
            reasons = (
                "; ".join(self.left_out["reason"].drop_duplicates().head(3))
                or "there were no items"
            )
            text = (
                f"none of {_counted(self.provenance.get('items', 0), 'item')} could be judged: "
                f"{reasons}"
            )
        there = f"there {'is' if groups == 1 else 'are'} {groups}"
        few = (
            f"; a comparison of measures needs {FEWEST_GROUPS} groups of items, {there}"
            if groups < FEWEST_GROUPS
            else ""
        )
        return f"{text}{few}"

    def __repr__(self) -> str:
        return f"Trial({self.provenance.get('model')}: {self._text()})"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _beside_other_models(table: pd.DataFrame, path: Path, facts: Mapping[str, str]) -> pd.DataFrame:
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
    return pd.concat([others, table.astype(object)], ignore_index=True) if len(others) else table
