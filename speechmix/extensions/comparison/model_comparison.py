"""Compare the models of several runs: by stack, by depth and by measure.

In: folders of runs (`speechmix score`, a recipe) on the same clips or on others. Out: a
`ModelComparison` of tidy tables in percent; `write` makes a page of it. Models of different depth are
compared over whole stacks, and in quarters of their mixing. Differences between models are paired
on the clips that both have scored. Claims are made as on the page of a run: each model against
its own twins first, then the gap of two models against gaps of twins.

Compare two models: what each gains over its own untrained twins, on the clips that both have
scored.

In: contributions of several models, in percent, over whole stacks. Out: a row for each pair of
models, side, stack and measure. The k-th twin of one model is paired with the k-th of the other, so
the gap of the trained models has an interval to the gap of one more pair of untrained ones, as a
single model has to one more twin (`evaluation.statistics.random_twin_comparison`). A whole stack
weights each layer by its mixing strength, so neither depth nor idle layers make a gap.

Contributions of several runs in one table, with the groups of their clips and the options they
share.

In: runs, opened as studies. Out: the table that `model_comparison` compares models with.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ...errors import InputError
from ...evaluation.statistics.grouped_means import curve_agreement, grouped_means, measure_agreement
from ...evaluation.statistics.groups import assign_groups, describe_groups
from ...evaluation.statistics.random_twin_comparison import (
    STRENGTH,
    compare_with_twins,
    whole_stack,
)
from ...files.text_files import write_csv
from ...files.whole_files import write_text
from ...reporting.pages.cue_need_sentences import main_measure, short_answers
from ...reporting.pages.html_page import (
    FirstScreen,
    Part,
    Picture,
    SortableTable,
    page_svg,
    render_page,
)
from ...reporting.pages.result_sentences import (
    explain_columns,
    join_names,
    unclaimed_reason,
)
from ...reporting.pages.study_figures import (
    PUBLISHED_TITLE,
    published_caption,
    published_figures,
    published_notes,
    published_target_rows,
)
from ...reporting.pages.study_results import Study
from ...reporting.pages.study_tables import (
    KEYS,
    drop_control_clips,
    layer_rows,
    percent_table,
    stack_rows,
)
from ...reporting.pages.table_format import (
    format_contribution_table,
    markdown_table,
    stack_phrase,
)
from ...reporting.plots.cue_curves import cue_figure
from ...reporting.plots.cue_heat_maps import cue_heat_map
from ...reporting.plots.cue_tables import AS_PUBLISHED_ROWS
from ...reporting.plots.figure_style import model_name, write_figure
from ...runs.results.open_run import StoredRun

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ...runs.scored_run import Run


PAIRS_NOTE = (
    "The effect of training in one model against another, over whole stacks: (trained − untrained) "
    "of the first minus (trained − untrained) of the second, in percentage points. Only clips that "
    "both models have scored count. A positive difference means that training raised the cue's "
    "contribution more in the first model. The interval is that to the difference of one more pair "
    "of untrained models. A conclusion says that these two models differ. It does not say why: for "
    "sizes or training recipes, train several seeds of each."
)
_KEYS = ["side", "stack", "measure", "model", "other"]


def model_pairs(stacks: pd.DataFrame, headline: pd.DataFrame) -> pd.DataFrame:
    """Compare the gains of every two models, stack by stack.

    `stacks` has contributions of whole stacks (%), by clip, model, init and seed; `headline` the
    same against the twins, a row for each model, side, stack and measure. The result has the
    columns side, stack, measure, model, other, and those of `compare_with_twins`; it is empty for
    one model.
    """
    gaps = [
        _subtract_models(stacks[stacks["model"] == model], stacks[stacks["model"] == other])
        for model, other in itertools.combinations(pd.unique(stacks["model"].astype(object)), 2)
    ]
    gaps = [gap for gap in gaps if {"trained", "random"} <= set(gap["init"])]
    if not gaps:
        return pd.DataFrame()
    table = pd.concat(gaps, ignore_index=True)
    if STRENGTH in headline:
        strength = headline.set_index(["model", "side", "stack", "measure"])[STRENGTH]
        keys = [
            pd.MultiIndex.from_frame(table[[name, "side", "stack", "measure"]])
            for name in ("model", "other")
        ]
        table[STRENGTH] = np.minimum(*(strength.reindex(key).to_numpy() for key in keys))
    return compare_with_twins(table, by=_KEYS, group="group")


def _subtract_models(first: pd.DataFrame, second: pd.DataFrame) -> pd.DataFrame:
    """Subtract the second model from the first, clip by clip, for trained models and pairs of
    twins."""
    keys = ["side", "stack", "measure", "clip", "group", "init", "draw"]
    first, second = (
        _number_twins(model_table)[[*keys, "model", "contribution"]]
        for model_table in (first, second)
    )
    merged = first.merge(
        second.rename(columns={"model": "other"}), on=keys, suffixes=("", "_of_other")
    )
    merged["contribution"] -= merged.pop("contribution_of_other")
    return merged.rename(columns={"draw": "seed"})


def _number_twins(table: pd.DataFrame) -> pd.DataFrame:
    """Number twins in the order of their seeds, in a column "draw"."""
    plain_table = table.astype(
        {name: object for name in table if isinstance(table[name].dtype, pd.CategoricalDtype)}
    )
    seed = (
        plain_table["seed"].astype("Int64").fillna(-1)
        if "seed" in plain_table
        else pd.Series(-1, index=plain_table.index)
    )
    draw = seed.where(plain_table["init"] == "random", -1).rank(method="dense").astype(int)
    return plain_table.assign(draw=draw)


def pair_sentences(pairs: pd.DataFrame, *, measure: str) -> list[str]:
    """Write one sentence for each two models and side: in which stacks training raised the cue's
    contribution more."""
    sentences = []
    for (side, model, other), rows in pairs[pairs["measure"] == measure].groupby(
        ["side", "model", "other"], sort=False
    ):
        records = rows.to_dict("records")
        models_and_side = (
            f"{model_name(model)} and {model_name(other)}{'' if side == 'all' else f', {side} cue'}"
        )
        reasons = list(dict.fromkeys(filter(None, map(unclaimed_reason, records))))
        differences = [
            f"{row['claim']} in {stack_phrase(row['stack'])} ({row['difference']:+.1f} points)"
            for row in records
            if row["claim"]
        ]
        if reasons:
            sentences.append(f"{models_and_side}: {reasons[0]}.")
        elif differences:
            sentences.append(
                f"{models_and_side}: training raised the cue's contribution {join_names(differences)} in the first "
                "of the two."
            )
        else:
            stacks = join_names([stack_phrase(row["stack"]) for row in records])
            sentences.append(
                f"{models_and_side}: whether training raised the cue's contribution more in one is "
                f"inconclusive in {stacks}."
            )
    return sentences


QUARTER_NAMES = (
    "1st quarter",
    "2nd quarter",
    "3rd quarter",
    "4th quarter",
)  # names that sort in this order


def mixing_quarters(percent: pd.DataFrame) -> pd.Series:
    """Return the quarter of its stack's mixing in which each row's layer lies. Layers are as wide
    as their mixing strength; the middle of a layer decides."""
    keys = [
        name for name in ("side", "model", "init", "seed", "stack", "measure") if name in percent
    ]
    rows = percent.assign(
        width=percent[STRENGTH].astype(float).fillna(0) if STRENGTH in percent else 1.0
    )
    if "seed" in keys:
        rows["seed"] = rows["seed"].astype("Int64").fillna(-1)
    widths = grouped_means(rows, [*keys, "layer"], "width", sort=True)
    width = widths["width"] + 1e-12
    names = [widths[name] for name in keys]
    ends, total = (
        width.groupby(names, observed=True).transform(aggregation)
        for aggregation in ("cumsum", "sum")
    )
    quarter_index = (4 * (ends - width / 2) / total).astype(int).clip(0, 3)
    quarter = pd.Series(
        [QUARTER_NAMES[quarter_number] for quarter_number in quarter_index],
        index=pd.MultiIndex.from_frame(widths[[*keys, "layer"]]),
    )
    return pd.Series(
        quarter.reindex(pd.MultiIndex.from_frame(rows[[*keys, "layer"]])).to_numpy(),
        index=percent.index,
    )


def shared_options(studies: Sequence[Study]) -> dict[str, object]:
    """Return the options of `mix` that all runs share; None where they differ."""
    first, *others = (study.run.description.get("options", {}) for study in studies)
    return {
        name: value if all(other.get(name) == value for other in others) else None
        for name, value in first.items()
    }


def combine_contributions(
    studies: Sequence[Study],
    tables: Sequence[pd.DataFrame],
    measures: Sequence[str] | None,
    stacks: Sequence[str] | None,
) -> pd.DataFrame:
    """Join the contributions of all runs, of the requested measures and stacks, with run and
    relative depth."""
    names = _run_names([study.run for study in studies])
    tables = [table.assign(run=name) for table, name in zip(tables, names, strict=True)]
    table = pd.concat(
        [table for table in tables if "contribution" in table] or [pd.DataFrame()],
        ignore_index=True,
    )
    for column, requested in (("measure", measures), ("stack", stacks)):
        if requested is not None and len(table):
            table = table[table[column].isin(list(requested))]
    if table.empty or not table.contribution.notna().any():
        raise InputError(
            "these runs hold no cue contribution to compare: it needs clips with a cue and a target"
        )
    return table.assign(model=_distinct_model_names(table))


def _run_names(runs: Sequence[StoredRun]) -> list[str]:
    """Name runs by their folders, by whole paths where folder names are equal."""
    folder_names = [run.out.resolve().name for run in runs]
    return (
        folder_names
        if len(set(folder_names)) == len(folder_names)
        else [str(run.out) for run in runs]
    )


def combine_groups(
    runs: Sequence[StoredRun], group: str | None = None
) -> tuple[dict[str, str], str, str]:
    """Group the clips of all runs together, by a column of them or that of the runs; return groups,
    what ties clips, and how many groups there are in a sentence."""
    clips = pd.concat([run.clips for run in runs], ignore_index=True).fillna("")
    for column in ("text", "sound", "cue", "target", "foil"):
        values = clips[clips[column] != ""].groupby("clip")[column].nunique()
        if (values > 1).any():
            name, plural = (
                values.index[values > 1][0],
                "recordings" if column == "sound" else f"{column}s",
            )
            raise InputError(
                f"the clip {name!r} has different {plural} in these runs: clips of one name must be "
                "the same"
            )
    clips = clips.drop_duplicates("clip").reset_index(drop=True)
    if group is None and len({run.group for run in runs}) == 1:
        group = runs[0].group
    groups, ties = assign_groups(clips, group)
    grouping = describe_groups(clips.assign(group=groups), ties)
    return dict(zip(clips["clip"], groups, strict=True)), ties, grouping


def _distinct_model_names(table: pd.DataFrame) -> pd.Series:
    """Name models; add the run's name where several runs have the model."""
    names = table["model"].astype(object)
    runs = table.groupby(names).run.transform("nunique")
    return names.where(runs == 1, names + " (" + table["run"] + ")")


_DEPTH_NOTE = (
    "Trained minus untrained, in percentage points, in each quarter of a stack's mixing. The layers "
    "are in their order, and each is as wide as its mixing strength. So layers that mix little take "
    "little room, and models of different depth can be compared."
)
_AGREEMENT_NOTE = (
    "Spearman's rank correlation between two measures over clips, in each layer: does the cue "
    "contribute most in the same clips? 1 is the same order, 0 no relation, −1 the reverse order."
)


@dataclass(frozen=True)
class ModelComparison:
    """What several runs show together.

    Attributes
    ----------
    table : DataFrame
        Cue contributions (0 to 1) of all runs, with run, side, group and depth.
    table_as_published : DataFrame
        The same of all rows of the target, as the published figures are.
    headline : DataFrame
        By side, model, stack and measure, in %, over the whole stack.
    by_depth : DataFrame
        The same in each quarter of the stack's mixing.
    pairs : DataFrame
        Model against model on shared clips; empty if there is one model, or no clip in common.
    agreement : DataFrame
        Rank correlation between measures, layer by layer.
    curves : DataFrame
        Rank correlation between the measures' curves over layers.
    ties, grouping : str
        What makes clips one group; how many groups and speakers there are.
    options : dict
        Of `mix`, as far as all runs share them.
    """

    table: pd.DataFrame
    table_as_published: pd.DataFrame
    headline: pd.DataFrame
    by_depth: pd.DataFrame
    pairs: pd.DataFrame
    agreement: pd.DataFrame
    curves: pd.DataFrame
    ties: str
    grouping: str
    options: Mapping[str, object] = field(default_factory=dict)

    def to_dataframe(self) -> pd.DataFrame:
        """Return a copy of the cue contributions of all runs."""
        return self.table.copy()

    def show(self, *, published: bool | str = False) -> Figure:
        """Draw curves over relative depth, all models in one panel for each stack and measure."""
        if not published:
            return cue_figure(drop_control_clips(self.table), x="depth")
        table, target_rows = self._select_rows(published)
        return cue_figure(table, x="depth", published=True, target_rows=target_rows)

    def write(self, out: str | PathLike[str], *, published: bool | str = False) -> Path:
        """Write the page, its tables as CSV and the headline as Markdown into a folder; returns the
        page's path.

        Parameters
        ----------
        out : path
        published : bool or {"target", "deciding"}
            With the published figures, and one's own numbers beside of these rows; True is
            "target", as published.
        """
        out = Path(out)
        try:
            return self._write_files(out, published)
        except OSError as error:
            raise InputError(
                f"cannot write the comparison into {out} ({error}): expected a folder that can be "
                "written"
            ) from error

    def _select_rows(self, published: bool | str) -> tuple[pd.DataFrame, str]:
        """Select what is drawn beside the published figures, and say which target rows that is."""
        target_rows = published_target_rows(published)
        table = self.table_as_published if target_rows == AS_PUBLISHED_ROWS else self.table
        return drop_control_clips(table[table["contribution"].notna()]), target_rows

    def _write_files(self, out: Path, published: bool | str) -> Path:
        tables = {
            name: getattr(self, name)
            for name in ("headline", "by_depth", "pairs", "agreement", "curves")
        }
        for name, table in tables.items():
            write_csv(table, out / f"{name}.csv")
        write_text(
            out / "headline.md", markdown_table(format_contribution_table(self.headline)) + "\n"
        )
        figures, narrow_figures = self._draw_figures(), self._draw_figures(narrow=True)
        page_sections = self._make_parts(
            {name: _picture(figure, narrow_figures[name]) for name, figure in figures.items()}
        )
        if published:
            table, target_rows = self._select_rows(published)
            wide_published, narrow = (
                published_figures(table, target_rows=target_rows, narrow=narrow)
                for narrow in (False, True)
            )
            captioned = [
                _picture(figure, narrow[name], published_caption(name, table))
                for name, figure in wide_published.items()
            ]
            first_note, *other_notes = published_notes(self.options)
            page_sections.append((PUBLISHED_TITLE, [first_note, *captioned, *other_notes]))
            figures |= wide_published
        for name, figure in figures.items():
            write_figure(figure, out / f"{name}.pdf")
        path = out / "comparison.html"
        write_text(path, render_page("Runs compared", page_sections, first=self._first_screen()))
        return path

    def _first_screen(self) -> FirstScreen:
        """Say first how the models differ from each other, then how each differs from its twins."""
        main_rows = main_measure(self.headline)
        measure = str(main_rows["measure"].iloc[0]) if len(main_rows) else ""
        answer = pair_sentences(self.pairs, measure=measure) if len(self.pairs) else []
        return FirstScreen(answer=[*answer, *short_answers(self.headline, pd.DataFrame())])

    def _draw_figures(self, *, narrow: bool = False) -> dict[str, Figure]:
        studied_rows = drop_control_clips(self.table)
        return {
            "by_depth": cue_figure(studied_rows, x="depth", narrow=narrow),
            "heat_map": cue_heat_map(studied_rows, narrow=narrow),
        }

    def _make_parts(self, pictures: Mapping[str, Picture]) -> list[Part]:
        runs = self.table.groupby("run", sort=False)
        run_list = runs.agg(models=("model", _join_unique), clips=("clip", "nunique")).reset_index()
        headline = format_contribution_table(self.headline)
        legend = explain_columns(self.headline, ties=self.ties)
        by_depth = SortableTable(format_contribution_table(self.by_depth))
        page_sections: list[Part] = [
            ("Runs", [run_list, f"Groups: {self.grouping}"]),
            ("By stack and measure", [headline, *legend]),
            ("By depth", [_DEPTH_NOTE, pictures["by_depth"], by_depth]),
            ("Layer by layer", [pictures["heat_map"]]),
        ]
        if len(self.pairs):
            page_sections.append(
                ("Model against model", [PAIRS_NOTE, format_contribution_table(self.pairs)])
            )
        if len(self.agreement):
            agreement = self.agreement.assign(rho=self.agreement.rho.map(_format_rho)).drop(
                columns="p"
            )
            page_sections.append(
                ("Do the measures agree?", [_AGREEMENT_NOTE, SortableTable(agreement)])
            )
        return page_sections


def _picture(figure: Figure, narrow: Figure, caption: str = "") -> Picture:
    return Picture(page_svg(figure), caption, page_svg(narrow))


def compare(
    *runs: str | PathLike[str] | Run | StoredRun,
    measures: Sequence[str] | None = None,
    stacks: Sequence[str] | None = None,
    group: str | None = None,
) -> ModelComparison:
    """Compare the models of one or several runs.

    Parameters
    ----------
    *runs : path, Run or StoredRun
        Folders of finished runs.
    measures, stacks : sequence of str, optional
        Only these; all by default.
    group : str, optional
        Column that says which clips belong together; by default that of the runs, see `Study`.

    Returns
    -------
    Comparison

    Raises
    ------
    InputError
        If a folder holds no run, no run has a cue contribution, or one name stands for different
        clips.
    """
    if not runs:
        raise InputError("compare needs at least one run's folder")
    studies = [Study.open(run) for run in runs]
    groups, ties, grouping = combine_groups([study.run for study in studies], group)
    table, as_published = (
        combine_contributions(studies, tables, measures, stacks)
        for tables in (
            [study.table for study in studies],
            [study.table_as_published for study in studies],
        )
    )
    table, as_published = (
        contribution_table.assign(group=contribution_table["clip"].astype(object).map(groups))
        for contribution_table in (table, as_published)
    )
    studied_rows = drop_control_clips(table)
    percent = percent_table(table)
    whole_stacks = whole_stack(percent)
    quarters = whole_stack(percent.assign(quarter=mixing_quarters(percent)))
    quarters["layer"] = quarters["quarter"].map(QUARTER_NAMES.index, na_action="ignore")
    cells = pd.concat(
        [whole_stacks, quarters[quarters["layer"].notna()]], ignore_index=True
    ).astype({"layer": int})
    comparison = compare_with_twins(cells, by=[*KEYS, "layer"], group="group")
    headline = stack_rows(comparison)
    by_depth = layer_rows(comparison)
    by_depth = by_depth.assign(quarter=by_depth.pop("layer").map(dict(enumerate(QUARTER_NAMES))))
    quarter_order = by_depth["quarter"].map(QUARTER_NAMES.index)
    by_depth = (
        by_depth.assign(order=quarter_order)
        .sort_values([*KEYS, "order"], kind="stable")
        .drop(columns="order")
    )
    return ModelComparison(
        table=table,
        table_as_published=as_published,
        headline=headline,
        by_depth=by_depth.drop(
            columns=["share_of_length", "length_matched", "claim"], errors="ignore"
        ),
        pairs=model_pairs(whole_stacks, headline),
        agreement=measure_agreement(studied_rows),
        curves=curve_agreement(studied_rows),
        ties=ties,
        grouping=grouping,
        options=shared_options(studies),
    )


def _join_unique(names: pd.Series) -> str:
    return ", ".join(dict.fromkeys(names))


def _format_rho(rho: float) -> str:
    return "" if rho != rho else f"{rho:.2f}"
