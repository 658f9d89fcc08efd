"""Results of a finished run: trained models against their untrained twins.

In: a run's folder (`runs.results.open_run.open_run`), and what makes its clips groups. Out: a `Study`, a
value whose attributes are what tables, figures and page are made of. Nothing here writes or draws,
and nothing above reads the folder again.

Group the clips of a run that belong together, and find copies of one recording.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING

import pandas as pd

from ...evaluation.statistics.grouped_means import TableRow, select_cells
from ...evaluation.statistics.groups import assign_groups, describe_groups
from ...runs.results.open_run import StoredRun, open_run
from ...runs.results.tidy_tables import AFTER_TARGET
from ..plots.cue_tables import AS_PUBLISHED_ROWS
from .cue_need_sentences import need_table, trained_ablations
from .study_tables import (
    ablation_table,
    clip_values,
    contribution_cells,
    layer_rows,
    main_rows,
    stack_cells,
    stack_rows,
    study_table,
)

if TYPE_CHECKING:
    from ...runs.scored_run import Run
    from .study_figures import DrawnSide


def add_clip_groups(clips: pd.DataFrame, *, group: str | None = None) -> pd.DataFrame:
    """Add to a clip table the group of each clip, and `content`, the first clip with the same
    sound.

    `attrs["ties"]` says what the clips of a group share. `group` is the column that says which
    clips are drawn as one; by default `assign_groups` finds them. InputError if there is no such
    column, or two that may be meant.
    """
    groups, ties = assign_groups(clips, group)
    clips = clips.assign(group=groups, content=_first_copies(clips))
    clips.attrs["ties"] = ties
    return clips


def _first_copies(clips: pd.DataFrame) -> pd.Series:
    """Return for each clip the first clip with the same sound and words: a copy adds no
    evidence."""
    columns = [name for name in ("sound", "text", "cue", "target", "foil", "side") if name in clips]
    if "sound" not in columns:
        return clips["clip"]
    first = clips.groupby(columns, sort=False, dropna=False)["clip"].transform("first")
    return first.where(clips["sound"].fillna("").ne(""), clips["clip"])


@dataclass(frozen=True, eq=False)
class Study:
    """A finished run with the statistics of its cues; each number is computed when it is first
    used.

    Parameters
    ----------
    run : StoredRun
        From `open_run`.
    group : str, optional
        Column of the clip table that says which clips belong together; by default that of the run,
        else speakers, or pair, sentence and target word.
    """

    run: StoredRun
    group: str | None = None

    @classmethod
    def open(cls, run: str | PathLike[str] | Run | StoredRun, *, group: str | None = None) -> Study:
        """Open a run's folder as a study.

        Raises
        ------
        InputError
            If the folder holds no run, or a damaged one.
        """
        return cls(open_run(run), group)

    @cached_property
    def clips(self) -> pd.DataFrame:
        """Table of the clips, with their group."""
        return add_clip_groups(self.run.clips, group=self.group or self.run.group)

    @property
    def ties(self) -> str:
        """What makes clips a group, in words; "" if nothing does."""
        return str(self.clips.attrs["ties"])

    @property
    def grouping(self) -> str:
        """How many groups and speakers there are, in a sentence."""
        return describe_groups(self.clips, self.ties)

    @cached_property
    def table(self) -> pd.DataFrame:
        """Cue contributions (0 to 1) of the rows a study looks at, with side and group; empty
        without cue and target."""
        contributions = self.run.contributions
        return study_table(contributions, self.clips) if len(contributions) else contributions

    @cached_property
    def table_as_published(self) -> pd.DataFrame:
        """The same of all rows of the target, as the published figures are; empty without cue and
        target."""
        contributions = self.run.contributions
        return (
            study_table(contributions, self.clips, target_rows=AS_PUBLISHED_ROWS)
            if len(contributions)
            else contributions
        )

    @cached_property
    def drawn_sides(self) -> dict[str, DrawnSide]:
        """What the figures of each side of the cue draw."""
        from .study_figures import compute_drawn_sides

        return compute_drawn_sides(self.table)

    @cached_property
    def cells(self) -> pd.DataFrame | None:
        """Trained against untrained in every layer and every whole stack, in %; None without a
        number to report."""
        has_numbers = (
            len(self.table)
            and (self.table["contribution"].notna() & (self.table["control"] != "yes")).any()
        )
        return contribution_cells(self.table) if has_numbers else None

    @cached_property
    def layers(self) -> pd.DataFrame | None:
        """Rows of single layers; None without a number to report."""
        return None if self.cells is None else layer_rows(self.cells)

    @cached_property
    def headline(self) -> pd.DataFrame:
        """Rows of whole stacks, each layer weighted by its mixing strength: trained, untrained,
        difference, claim."""
        return pd.DataFrame() if self.cells is None else stack_rows(self.cells)

    @cached_property
    def control(self) -> pd.DataFrame | None:
        """The headline of the control's clips alone, about whose nouns the cue decides nothing;
        None without such clips."""
        control = self.table[self.table.control == "yes"] if len(self.table) else self.table
        return stack_cells(control.assign(control="no")) if len(control) else None

    @cached_property
    def ablation(self) -> pd.DataFrame:
        """Share of clips (%) in which the target's own spelling wins, by what was ablated."""
        return ablation_table(self.run)

    @cached_property
    def ablation_by_number(self) -> pd.DataFrame:
        """The same of trained models, for each number of the noun."""
        return ablation_table(self.run, by="number")

    @cached_property
    def ablations(self) -> pd.DataFrame:
        """Ablation of trained models, with the group of each clip; without the control's clips."""
        return trained_ablations(self.run, self.clips)

    @cached_property
    def need(self) -> pd.DataFrame:
        """What spelling loses without the cue, for each side, model and stack, with interval, test
        and verdict."""
        return need_table(self.ablations)

    @cached_property
    def after_target(self) -> pd.DataFrame | None:
        """The headline of the word after the target, which tells nothing of it: a control; None
        where there is none."""
        if AFTER_TARGET not in self.table or self.table[AFTER_TARGET].isna().all():
            return None
        control_table = select_cells(self.table, list(self.table), self.table[AFTER_TARGET].notna())
        control_table["contribution"] = control_table[AFTER_TARGET]
        return stack_cells(control_table)

    @cached_property
    def main_rows(self) -> dict[str, TableRow]:
        """Row of the headline whose clips are looked at, for each side of the cue."""
        return {row["side"]: row for row in main_rows(self.headline).to_dict("records")}

    @cached_property
    def clip_values(self) -> dict[str, pd.DataFrame]:
        """Contribution of each clip in the main row of each side, in %: trained, random,
        difference."""
        return {side: clip_values(self.table, row) for side, row in self.main_rows.items()}

    @cached_property
    def ranked_clips(self) -> dict[str, list[str]]:
        """Clips but the control's, from least to most difference in the main row of each side."""
        ranked_clips: dict[str, list[str]] = {}
        if not self.clip_values:
            return ranked_clips
        control_clips = self.table["clip"][self.table["control"] == "yes"].unique()
        for side, clip_table in self.clip_values.items():
            values = clip_table[~clip_table.index.isin(control_clips)]
            differences = (
                values["difference"]
                .fillna(values["trained"])
                .fillna(values["random"])
                .dropna()
                .sort_values()
            )
            ranked_clips[side] = [str(name) for name in differences.index]
        return ranked_clips
