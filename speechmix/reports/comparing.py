"""compare(): several runs side by side: models by depth, by stack and by measure, and whether measures agree.

In: folders of runs (`speechmix score`, a recipe) on the same clips or on others. Out: a `Comparison` of tidy tables in percent;
`write` makes a page of it. Layers of models of different depth are compared at their relative depth (0 first, 1 last), in
quarters. Differences between models are paired on the clips that both have scored. Claims are made as on a study's page, by
clips and by twins, corrected over all comparisons of the page.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ..errors import InputError
from ..evaluation.agreement import curve_agreement, measure_agreement
from ..evaluation.groups import groups_of
from ..evaluation.statistics import (
    cross_fitted_layer,
    heard_by_all,
    over_groups,
    trained_against_random,
    with_claims,
)
from ..evaluation.twins import crossed_interval, two_gains
from ..experiments.reading import StoredRun
from ..files.text_files import write_csv
from ..files.whole_files import write_text
from ..plots.cue_curves import cue_figure
from ..plots.cue_heat_maps import cue_heat_map
from ..plots.panels import write_figure
from .page import Part, SortableTable, page
from .study import Study
from .study_tables import KEYS, headline, shown, without_control
from .text_tables import markdown
from .wording import LENGTH, READING, method

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..experiments.run import Run

QUARTERS = ("first quarter", "second quarter", "third quarter", "last quarter")
_GAP = "difference low high clips_low clips_high p p_clips p_twins effect groups".split()
_DEPTH = "Trained - random twins (points) in each quarter of a stack's depth: the mean over its layers, with a 95 % interval."
_PAIRS = (
    "One model against another, stack by stack: (trained - random) of the first less (trained - random) of the second, on "
    "the clips that both have scored, each at its own best layer (cross-fitted). Positive: the first lets in more of the "
    "cue. The test over twins is Welch's, of two models that are each one more draw of an untrained one; the layers were "
    "chosen on the same twins, so its p is a little too small."
)
_AGREEMENT = (
    "Spearman's rank correlation between measures over clips, in each layer: do the same clips get more? 1: the same order; "
    "0: none; -1: the reverse."
)


@dataclass(frozen=True)
class Comparison:
    """What several runs show together.

    Attributes
    ----------
    table : DataFrame
        Cue contributions (0 to 1) of all runs, with run, side, group and depth.
    headline : DataFrame
        By side, model, stack and measure, in %, at the best layer (cross-fitted). q of this table and of the next two is over
        the rows of all three.
    by_depth : DataFrame
        The same in each quarter of the depth.
    pairs : DataFrame
        Model against model on shared clips; empty if there is one model, or no clip in common.
    agreement : DataFrame
        Rank correlation between measures, layer by layer.
    curves : DataFrame
        Rank correlation between the measures' curves over layers.
    ties : str
        What makes clips one group.
    """

    table: pd.DataFrame
    headline: pd.DataFrame
    by_depth: pd.DataFrame
    pairs: pd.DataFrame
    agreement: pd.DataFrame
    curves: pd.DataFrame
    ties: str

    def figure(self, *, published: bool = False) -> Figure:
        """Curves over relative depth, all models in one panel for each stack and measure."""
        return cue_figure(without_control(self.table), x="depth", published=published)

    def write(self, out: str | PathLike, *, published: bool = False) -> Path:
        """Write the page, its tables as CSV and the headline as Markdown into a folder; returns the page's path."""
        out = Path(out)
        try:
            return self._write(out, published)
        except OSError as error:
            raise InputError(
                f"cannot write the comparison into {out} ({error}): expected a folder that can be written"
            ) from error

    def _write(self, out: Path, published: bool) -> Path:
        tables = {name: getattr(self, name) for name in ("headline", "by_depth", "pairs", "agreement", "curves")}
        for name, table in tables.items():
            write_csv(table, out / f"{name}.csv")
        write_text(out / "headline.md", markdown(shown(self.headline)) + "\n")
        heat_map = cue_heat_map(without_control(self.table), published=published)
        figures = [self.figure(published=published), heat_map]
        for name, figure in zip(("by_depth", "heat_map"), figures, strict=True):
            write_figure(figure, out / f"{name}.pdf")
        path = out / "comparison.html"
        write_text(path, page("Runs compared", self._parts(*figures)))
        return path

    def _parts(self, curves: Figure, heat_map: Figure) -> list[Part]:
        runs = self.table.groupby("run", sort=False)
        listed = runs.agg(models=("model", _listed), clips=("clip", "nunique")).reset_index()
        parts: list[Part] = [
            ("What is compared", [listed, READING, LENGTH, method(self.ties, self.headline.twins)]),
            ("By stack and measure", [shown(self.headline)]),
            ("By depth", [_DEPTH, curves, SortableTable(shown(self.by_depth))]),
            ("Layer by layer", [heat_map]),
        ]
        if len(self.pairs):
            parts.append(("Model against model", [_PAIRS, shown(self.pairs)]))
        if len(self.agreement):
            rounded = self.agreement.assign(rho=self.agreement.rho.map(_rounded)).drop(columns="p")
            parts.append(("Do the measures agree?", [_AGREEMENT, SortableTable(rounded)]))
        return parts


def compare(
    *runs: str | PathLike | Run | StoredRun,
    measures: Sequence[str] | None = None,
    stacks: Sequence[str] | None = None,
) -> Comparison:
    """Compare the models of one or several runs.

    Parameters
    ----------
    *runs : path, Run or StoredRun
        Folders of finished runs.
    measures, stacks : sequence of str, optional
        Only these; all by default.

    Returns
    -------
    Comparison

    Raises
    ------
    InputError
        If a folder holds no run, no run has a cue contribution, or one name stands for different clips.
    """
    if not runs:
        raise InputError("compare needs at least one run's folder")
    studies = [Study.of(run) for run in runs]
    groups, ties = _groups([study.run for study in studies])
    table = _compared(studies, measures, stacks)
    table = table.assign(group=table["clip"].map(groups))
    used = without_control(table)
    quarter = (4 * used.depth).astype(int).clip(upper=3).map(dict(enumerate(QUARTERS)))
    percent = used.assign(contribution=100 * used.contribution.astype(float), quarter=quarter)
    by_depth = trained_against_random(percent, by=[*KEYS, "quarter"], group="group")
    best, by_depth, pairs = with_claims(headline(table), by_depth, _pairs(percent))
    return Comparison(
        table=table,
        headline=best,
        by_depth=by_depth.drop(columns=["share_of_length", "length_matched", "positive", "effect"], errors="ignore"),
        pairs=pairs,
        agreement=measure_agreement(used),
        curves=curve_agreement(used),
        ties=ties,
    )


def _compared(studies: Sequence[Study], measures: Sequence[str] | None, stacks: Sequence[str] | None) -> pd.DataFrame:
    """Contributions of all runs, of the measures and stacks asked for, each with its run and relative depth."""
    names = _names([study.run for study in studies])
    tables = [study.table.assign(run=name) for study, name in zip(studies, names, strict=True)]
    table = pd.concat([table for table in tables if "contribution" in table] or [pd.DataFrame()], ignore_index=True)
    for column, asked in (("measure", measures), ("stack", stacks)):
        if asked is not None and len(table):
            table = table[table[column].isin(list(asked))]
    if table.empty or not table.contribution.notna().any():
        raise InputError("these runs hold no cue contribution to compare: it needs clips with a cue and a target")
    table = table.assign(model=_distinct(table))
    if "depth" not in table:
        table["depth"] = float("nan")
    last = table.groupby(["model", "stack"]).layer.transform("max").clip(lower=1)
    return table.assign(depth=table.depth.fillna(table.layer / last))  # runs of before the column was there


def _names(runs: Sequence[StoredRun]) -> list[str]:
    """Names of the folders, whole paths where these are alike."""
    short = [run.out.resolve().name for run in runs]
    return short if len(set(short)) == len(short) else [str(run.out) for run in runs]


def _groups(runs: Sequence[StoredRun]) -> tuple[dict[str, str], str]:
    """Groups of the clips of all runs together."""
    clips = pd.concat([run.clips for run in runs], ignore_index=True).fillna("")
    for column in ("text", "sound", "cue", "target", "foil"):
        if column not in clips:  # a run of before the column was there
            continue
        values = clips[clips[column] != ""].groupby("clip")[column].nunique()
        if (values > 1).any():
            name, what = values.index[values > 1][0], "recordings" if column == "sound" else f"{column}s"
            raise InputError(
                f"the clip {name!r} has different {what} in these runs: clips of one name must be the same"
            )
    clips = clips.drop_duplicates("clip").reset_index(drop=True)
    groups, ties = groups_of(clips)
    return dict(zip(clips["clip"], groups, strict=True)), ties


def _distinct(table: pd.DataFrame) -> pd.Series:
    """Model names, with the run's where a model is in several runs."""
    runs = table.groupby("model").run.transform("nunique")
    return table.model.where(runs == 1, table.model + " (" + table.run + ")")


def _pairs(table: pd.DataFrame) -> pd.DataFrame:
    """Differences of trained - random between models, at the best layer of each, paired by group over shared clips."""
    best = cross_fitted_layer(table, by=KEYS, group="group")
    seeds = best["seed"].astype("Int64").fillna(-1).astype(int) if "seed" in best else 0
    best = best.assign(seed=seeds)[best.contribution.notna()]
    rows: list[dict[str, Any]] = []
    for key, part in best.groupby(["side", "stack", "measure"], sort=False):
        for model, other in itertools.combinations(part.model.unique(), 2):
            shared = set(part[part.model == model]["clip"]) & set(part[part.model == other]["clip"])
            columns = dict(zip(("side", "stack", "measure", "model", "other"), (*key, model, other), strict=True))
            gap = _gap(part[part["clip"].isin(shared)], model, other)
            rows += [{**columns, **gap, "clips": len(shared)}] if gap else []
    return pd.DataFrame(rows)


def _gap(table: pd.DataFrame, model: str, other: str) -> dict[str, float]:
    """Difference of two models' gains over their twins, from the clips of both; nothing where one has no gain."""
    means = (
        table.groupby(["model", "init", "seed", "group"], sort=False)
        .contribution.mean()
        .unstack(["model", "init", "seed"])
    )
    gains, twins = [], []
    for name in (model, other):
        if not {"trained", "random"} <= set(table[table.model == name]["init"]):
            return {}
        twins.append(means[name]["random"])
        gains.append(means[name]["trained"].mean(axis="columns") - twins[-1].mean(axis="columns"))
    differences = gains[0] - gains[1]
    numbers = over_groups(differences)
    p_twins, reach = two_gains(numbers["difference"], *(heard_by_all(part).mean() for part in twins))
    low, high = crossed_interval(numbers["difference"], numbers["clips_low"], numbers["clips_high"], reach)
    p = float(np.maximum(numbers["p_clips"], p_twins))
    numbers = {**numbers, "p_twins": p_twins, "p": p, "low": low, "high": high, "groups": differences.notna().sum()}
    return {name: numbers[name] for name in _GAP}


def _listed(names: pd.Series) -> str:
    return ", ".join(dict.fromkeys(names))


def _rounded(rho: float) -> str:
    return "" if rho != rho else f"{rho:.2f}"
