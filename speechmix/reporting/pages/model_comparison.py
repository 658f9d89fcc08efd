"""Compare the models of several runs: by stack, by depth and by measure.

In: folders of runs (`speechmix score`, a recipe) on the same clips or on others. Out: a
`ModelComparison` of tidy tables in percent; `write` makes a page of it. Models of different depth are
compared over whole stacks, and in quarters of their mixing. Differences between models are paired
on the clips that both have scored. Claims are made as on the page of a run: each model against
its own twins first, then the gap of two models against gaps of twins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from ...errors import InputError
from ...evaluation.statistics.measure_agreement import curve_agreement, measure_agreement
from ...evaluation.statistics.random_twin_comparison import compare_with_twins, whole_stack
from ...files.text_files import write_csv
from ...files.whole_files import write_text
from ...runs.results.open_run import StoredRun
from ..plots.cue_curves import cue_figure
from ..plots.cue_heat_maps import cue_heat_map
from ..plots.figure_style import write_figure
from ..plots.paper_figure_data import AS_PUBLISHED_ROWS
from .column_legend import explain_columns
from .cue_need_sentences import short_answers
from .cue_need_tables import main_measure
from .html_page import FirstScreen, Part, Picture, SortableTable, render_page
from .model_pairs import PAIRS_NOTE, model_pairs, pair_sentences
from .published_section import (
    PUBLISHED_TITLE,
    published_caption,
    published_figures,
    published_notes,
    published_target_rows,
)
from .run_union_table import (
    QUARTER_NAMES,
    combine_contributions,
    combine_groups,
    mixing_quarters,
    shared_options,
)
from .study_results import Study
from .study_tables import KEYS, drop_control_clips, layer_rows, percent_table, stack_rows
from .svg_figures import page_svg
from .table_export import markdown_table
from .table_format import format_contribution_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ...runs.scored_run import Run

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
