"""compare(): several runs side by side: models by depth, by stack and by measure, and whether measures agree.

In: folders of runs (`speechmix score`, a recipe) on the same clips or on others. Out: a `Comparison` of tidy tables in percent;
`write` makes a page of it. Layers of models of different depth are compared at their relative depth (0 first, 1 last), in
quarters. Differences between models are paired on the clips that both have scored.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from ..errors import InputError
from ..evaluation.agreement import curve_agreement, measure_agreement
from ..evaluation.groups import groups_of
from ..evaluation.statistics import cross_fitted_layer, described, trained_against_random
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
_DEPTH = (
    "Trained - random twin (points) in each quarter of a stack's depth: the mean over its layers, with a 95 % interval."
)
_PAIRS = (
    "One model against another, stack by stack: (trained - random) of the first less (trained - random) of the second, on the "
    "clips that both have scored, each at its own best layer (cross-fitted). Positive: the first lets in more of the cue."
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
        By side, model, stack and measure, in %, at the best layer (cross-fitted).
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
            ("What is compared", [listed, READING, LENGTH, method(self.ties)]),
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
    return Comparison(
        table=table,
        headline=headline(table),
        by_depth=by_depth.drop(columns=["share_of_length", "length_matched", "positive", "effect"], errors="ignore"),
        pairs=_pairs(percent),
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
    means = best.groupby([*KEYS, "group", "clip", "init"], sort=False).contribution.mean().unstack("init")
    if not {"trained", "random"} <= set(means):
        return pd.DataFrame()
    gains = (means["trained"] - means["random"]).unstack("model")
    rows: list[dict[str, Any]] = []
    for key, part in gains.groupby(level=["side", "stack", "measure"], sort=False):
        for model, other in itertools.combinations(part.columns, 2):
            gap = (part[model] - part[other]).dropna()
            if len(gap):
                columns = dict(zip(("side", "stack", "measure", "model", "other"), (*key, model, other), strict=True))
                rows.append({**columns, **_gap(gap), "clips": len(gap)})
    return pd.DataFrame(rows)


def _gap(gap: pd.Series) -> dict[str, float]:
    by_group = gap.groupby(level="group", sort=False).mean()
    numbers = described(by_group)
    columns = {name: numbers[name] for name in ("difference", "low", "high", "p")}
    return {**columns, "effect size d": numbers["effect"], "groups": len(by_group)}


def _listed(names: pd.Series) -> str:
    return ", ".join(dict.fromkeys(names))


def _rounded(rho: float) -> str:
    return "" if rho != rho else f"{rho:.2f}"
