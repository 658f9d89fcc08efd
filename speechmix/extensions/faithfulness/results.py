"""FaithfulnessResults: what a faithfulness evaluation found, as numbers, tables, sentences and
files.

In: one number for each item, row, perturbation and metric (`item_evaluation.py`). Out: means with
intervals, leaderboards, mean curves, how far perturbations agree, and ``faithfulness.csv`` in a folder.

Results of a faithfulness evaluation as text: layers by measures, and mean curves.

In: tables of `FaithfulnessResults`. Out: the same as text and as a grid.

Rows of the tables of one item of a faithfulness evaluation.

In: scores, metrics and curves. Out: rows of `leaderboard.VALUE_COLUMNS`, of curves and of texts,
without item and group, and the `ItemResult` that holds them.

Maps of the measures that are evaluated on one item.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ...errors import InputError, SpeechmixError
from ...evaluation.statistics.intervals import FEWEST_GROUPS
from ...files.text_files import read_csv, write_csv
from ...interventions.decision import Decision
from ...mixing.maps.measure_registry import measure_facts
from ...mixing.measures.token_objectives import check_maps_reach_label
from ...mixing.passes.mix import mix_one
from .curves import removed_counts, removed_shares
from .leaderboard import (
    BASELINES,
    DROP_COLUMNS,
    FILE,
    MODEL_KEYS,
    ORACLE,
    ROW_KEYS,
    VALUES_FILE,
    describe_leaderboard,
    leaderboard,
    perturbation_agreement,
    summarize_values,
)
from .perturbations import is_reported_last, split_fills_from_name
from .word_scores import CURVE_METRICS, WordScores

if TYPE_CHECKING:
    from ...mixing.maps.map_set import Maps

_SHARES = (10, 20, 50, 100)  # percent of the words, of curves that go one by one


def layer_measure_grid(table: pd.DataFrame) -> pd.DataFrame:
    """Arrange the mean values of one model and perturbation in a table [aggregations, measures]."""
    rows = table[table["aggregation"] != ""]
    grid = rows.pivot_table(index="aggregation", columns="measure", values="value", sort=False)
    names = list(dict.fromkeys(rows["aggregation"]))
    layers = [name for name in names if name.startswith("layer ")]
    layers.sort(key=lambda name: int(name.split()[1]))
    other_names = [name for name in names if name not in layers]
    return grid.reindex(index=[*layers, *other_names], columns=rows["measure"].unique())


def baseline_values(table: pd.DataFrame) -> dict[str, float]:
    """Return the mean values of the baselines, by name."""
    orders = table[table["aggregation"] == ""].drop_duplicates("measure")
    return dict(zip(orders["measure"], orders["value"].astype(float), strict=True))


def describe_text_count(table: pd.DataFrame) -> str:
    """Describe the number of texts and the perturbation: "2 sentences, blank (mask)"."""
    count = int(table["clips"].max())
    return f"{count:,} sentence{'' if count == 1 else 's'}, {table['perturbation'].iloc[0]}"


def layers_text(table: pd.DataFrame) -> str:
    """Render a table of layers by measures for each model, with the baselines."""
    texts = []
    for _, rows in table.groupby(MODEL_KEYS, sort=False, dropna=False):
        first_row = rows.iloc[0]
        init_text = "" if first_row["init"] == "trained" else f", random (seed {first_row['seed']})"
        grid = layer_measure_grid(rows)
        grid.columns.name, grid.index.name = None, ""
        table_text = grid.reset_index().to_string(
            index=False, na_rep="-", float_format="{:.2f}".format
        )
        values = baseline_values(rows)
        names = [name for name in (*BASELINES, ORACLE) if name in values]
        baselines = ", ".join(f"{name} {values[name]:.2f}" for name in names)
        texts.append(
            f"{first_row['model']}{init_text}: {describe_text_count(rows)}\n{table_text}\n{baselines}"
        )
    return "\n\n".join(texts)


def curves_text(
    means: pd.DataFrame,
    table: pd.DataFrame,
    texts: pd.DataFrame,
    accuracy: float,
    provenance: Mapping[str, object],
) -> str:
    """Render what the model predicts, and for each measure the remaining probability and the
    metrics.

    `table` is of one perturbation; `provenance` is the provenance.
    """
    has_bins = provenance.get("bins") is not None
    shares = [share for share in means["share"].unique() if has_bins or share in _SHARES]
    probabilities_left = means[means["share"].isin(shares) & (means["share"] > 0)]
    probabilities_left = probabilities_left.pivot_table(
        index=ROW_KEYS, columns="share", values="removed", sort=False
    )
    probabilities_left.columns = [f"left {share:g} %" for share in probabilities_left.columns]
    metrics = table.pivot_table(index=ROW_KEYS, columns="metric", values="value", sort=False)
    names = [name for name in CURVE_METRICS if name in metrics]
    table_with_metrics = probabilities_left.join(metrics[names]).reset_index().drop(columns="stack")
    table_text = table_with_metrics.to_string(index=False, float_format="{:.2f}".format)
    count, perturbation = len(texts), table["perturbation"].iloc[0]
    accuracy_text = (
        "" if np.isnan(accuracy) else f" {100 * accuracy:.0f} % of the labels are right."
    )
    return (
        f"{provenance.get('model')}: {count} text{'' if count == 1 else 's'}, {perturbation}; "
        f"probability of the label with all {provenance.get('units')}s "
        f"{texts['probability'].mean():.2f}.{accuracy_text}\n{table_text}"
    )


CUE = (
    "cue"  # in the column perturbation of average precision, which compares with the annotated cue
)
_SHARE_GRID = np.arange(
    0, 101, 5
)  # percent of words, where curves of different lengths are averaged


@dataclass(frozen=True, eq=False)
class FaithfulnessResults:
    """What a faithfulness evaluation found.

    Parameters
    ----------
    values : DataFrame
        One number for each item, row, perturbation and metric: item, group, words (how many competed),
        stack, measure, aggregation, layer (where one was chosen), perturbation, metric, value, chance; and
        model, init, seed.
    left_out : DataFrame
        Columns item, what ("item", a perturbation, a measure), reason; and model.
    drops : DataFrame
        What each perturbation, and each fill alone, says of every word: item, group, stack, perturbation, word
        (index; of a token its position), drop (nats, or of the probability); and model, init, seed.
    ties : str
        What ties items into groups, in words.
    provenance : dict
        Model, initialisation, seed, weights, options; items and groups (how many), grouping (a sentence).
    points : DataFrame
        Every point of every curve, of `speechmix.deletion_curves` alone: item, group, stack,
        measure, aggregation, layer, perturbation, share (percent of words), count (words), removed
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

    def to_dataframe(self) -> pd.DataFrame:
        """Return means over groups with 95 % intervals: models, perturbations, metrics, rows."""
        return self._means.copy()

    @cached_property
    def _means(self) -> pd.DataFrame:
        tables = []
        for _, values in self.values.groupby(MODEL_KEYS, sort=False, dropna=False):
            tables.append(summarize_values(values))
            for name in MODEL_KEYS:
                tables[-1][name] = values[name].iloc[0]
        return pd.concat(tables, ignore_index=True) if tables else summarize_values(self.values)

    @property
    def perturbations(self) -> list[str]:
        """Perturbations as they were named; knock-out, which is Value Zeroing's own, last."""
        names = list(dict.fromkeys(self.values["perturbation"]))
        return sorted((name for name in names if name != CUE), key=is_reported_last)

    @property
    def accuracy(self) -> float:
        """Share of the texts with a label that the model gives that label; NaN if none has one."""
        is_right = self.texts["right"].dropna() if len(self.texts) else pd.Series(dtype=float)
        return float(is_right.astype(bool).mean()) if len(is_right) else float("nan")

    def leaderboard(
        self, metric: str | None = None, *, perturbation: str | None = None
    ) -> pd.DataFrame:
        """Rank the rows of one perturbation and metric (the first by default); see
        `leaderboard.leaderboard`.

        Raises
        ------
        InputError
            If there is no such metric of this perturbation, or there are several models.
        """
        perturbation = perturbation or self._first_perturbation()
        if len(self.values[MODEL_KEYS].drop_duplicates()) > 1:
            raise InputError("a leaderboard is of one model: evaluate one at a time")
        return leaderboard(
            self.values, perturbation=perturbation, metric=metric or self._first_metric()
        )

    def sentence(self, metric: str | None = None, *, perturbation: str | None = None) -> str:
        """Say which measure is best by one perturbation and metric, and how sure that is."""
        perturbation, metric = (
            perturbation or self._first_perturbation(),
            metric or self._first_metric(),
        )
        noun = "texts" if len(self.texts) else "clips"
        board = self.leaderboard(metric, perturbation=perturbation)
        text = describe_leaderboard(board, perturbation=perturbation, metric=metric, noun=noun)
        return " ".join(filter(None, [text, str(self.provenance.get("grouping", ""))]))

    def with_notes(self, reasons: Mapping[str, str]) -> FaithfulnessResults:
        """Record measures that are not defined for the model, by name with the reason."""
        notes = [{"item": "", "what": name, "reason": reason} for name, reason in reasons.items()]
        reason_rows = pd.DataFrame(notes, columns=["item", "what", "reason"])
        reason_rows = reason_rows.assign(model=model_columns(self.provenance)["model"])
        return replace(self, left_out=pd.concat([reason_rows, self.left_out], ignore_index=True))

    def perturbation_agreement(self) -> pd.DataFrame:
        """Correlate the effects of perturbations, and of the fills of one, over words; see
        `leaderboard.perturbation_agreement`."""
        return perturbation_agreement(self.drops)

    def perturbation_table(self, perturbation: str | None = None) -> pd.DataFrame:
        """Return the rows of `table` of one perturbation; by default the first of each model.

        Raises
        ------
        InputError
            If there is no such perturbation, or nothing was evaluated.
        """
        self._first_perturbation()
        first_perturbations = self._means.groupby(MODEL_KEYS, sort=False, dropna=False)[
            "perturbation"
        ].transform("first")
        rows = self._means[
            self._means["perturbation"]
            == (first_perturbations if perturbation is None else perturbation)
        ]
        if rows.empty:
            raise InputError(
                f"perturbation should be one of {self.perturbations}, found {perturbation!r}"
            )
        return rows

    def mean_curves(self) -> pd.DataFrame:
        """Average curves over texts at each bin; without bins at every 5 % of the words,
        interpolated.

        Columns stack, measure, aggregation, share, removed, kept.
        """
        perturbation, points = self._first_perturbation(), self.points
        points = points[points["perturbation"] == perturbation]
        if self.provenance.get("bins") is None:
            keys = ["item", *ROW_KEYS]
            curves = [
                _interpolate_curve(curve, keys) for _, curve in points.groupby(keys, sort=False)
            ]
            points = pd.concat(curves)
        means = points.groupby([*ROW_KEYS, "share"], sort=False)[["removed", "kept"]].mean()
        return means.reset_index()

    def text(self, perturbation: str | None = None) -> str:
        """Render curves as a table; without curves, layers by measures for each model and one
        perturbation (the first by default)."""
        if not len(self.points):
            return layers_text(self.perturbation_table(perturbation))
        table = self.perturbation_table(self._first_perturbation())
        return curves_text(self.mean_curves(), table, self.texts, self.accuracy, self.provenance)

    def write(self, folder: str | PathLike[str]) -> Path:
        """Write ``faithfulness.csv`` into a folder: the leaderboards of all perturbations and metrics, one
        under the other.

        A run's page shows it (`speechmix report`). ``faithfulness_values.csv`` has one number an
        item. Rows of other models that are there already stay.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        perturbation_metrics = self.values[["perturbation", "metric"]].drop_duplicates().astype(str)
        boards = [
            self.leaderboard(metric, perturbation=perturbation).assign(
                perturbation=perturbation, metric=metric
            )
            for perturbation, metric in perturbation_metrics.itertuples(index=False, name=None)
        ]
        board = pd.concat(boards, ignore_index=True) if boards else self._means
        model_cells = {name: str(self.provenance.get(name)) for name in MODEL_KEYS}
        for name, table in {VALUES_FILE: self.values, FILE: board}.items():
            path = folder / name
            write_csv(_append_other_models(table.assign(**model_cells), path, model_cells), path)
        return folder / FILE

    def _first_perturbation(self) -> str:
        if not self.perturbations:
            raise InputError(self._describe())
        return self.perturbations[0]

    def _first_metric(self) -> str:
        metrics = list(self.values["metric"])
        return "spearman" if "spearman" in metrics or not metrics else str(metrics[0])

    def _describe(self) -> str:
        """Describe how many items were evaluated, or why none was, and how many groups it takes."""
        groups = self.provenance.get("groups")
        if not isinstance(groups, int):
            groups = int(self.values["group"].nunique())
        if self.perturbations:
            items = _format_count(self.values["item"].nunique(), "item")
            text = f"{items} in {_format_count(groups, 'group')} compared with {', '.join(self.perturbations)}"
        else:
            reasons = "; ".join(self.left_out["reason"].drop_duplicates().head(3))
            items = _format_count(self.provenance.get("items", 0), "item")
            text = f"none of {items} could be evaluated: {reasons or 'there were no items'}"
        if groups >= FEWEST_GROUPS:
            return text
        needed = f"a comparison of measures needs {FEWEST_GROUPS} groups of items"
        return f"{text}; {needed}, there {'is' if groups == 1 else 'are'} {groups}"

    def __repr__(self) -> str:
        grouping = str(self.provenance.get("grouping", "")).rstrip(".")
        text = "; ".join(filter(None, (self._describe(), grouping)))
        return f"FaithfulnessResults({self.provenance.get('model')}: {text})"


def model_columns(provenance: Mapping[str, object]) -> dict[str, str | int | None]:
    """Return the columns that name the model in all tables."""
    seed = provenance.get("seed")
    return {
        "model": str(provenance.get("model")),
        "init": str(provenance.get("init")),
        "seed": seed if isinstance(seed, int) else None,
    }


def concatenate_results(results: Sequence[FaithfulnessResults]) -> FaithfulnessResults:
    """Concatenate the results of several models; the provenance is that of the first."""
    tables = {
        name: pd.concat([getattr(result, name) for result in results], ignore_index=True)
        for name in ("values", "left_out", "drops")
    }
    return replace(results[0], **tables)


def _interpolate_curve(curve: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Interpolate the curve of one text at the shares of `_SHARE_GRID`."""
    interpolated = {
        name: np.interp(_SHARE_GRID, curve["share"], curve[name]) for name in ("removed", "kept")
    }
    return pd.DataFrame(
        {**{key: curve[key].iloc[0] for key in keys}, "share": _SHARE_GRID, **interpolated}
    )


def _format_count(count: object, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _append_other_models(
    table: pd.DataFrame, path: Path, model_cells: Mapping[str, str]
) -> pd.DataFrame:
    """Put a table behind the rows of other models in a file."""
    if not path.is_file():
        return table
    stored_table = read_csv(path)
    if not set(model_cells) <= set(stored_table):
        raise InputError(f"{path} holds another table: write to another folder, or remove the file")
    other_rows = stored_table[
        (stored_table[list(model_cells)] != pd.Series(dict(model_cells))).any(axis=1)
    ]
    if len(other_rows) and set(stored_table) != set(table):
        models = ", ".join(other_rows["model"].unique())
        raise InputError(
            f"{path} holds a table of {models} with other columns: write to another folder, or "
            "remove the file"
        )
    if not len(other_rows):
        return table
    return pd.concat([other_rows, table.astype(object)], ignore_index=True)


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
