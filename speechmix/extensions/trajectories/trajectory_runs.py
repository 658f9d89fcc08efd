"""Trajectories of a training: a run whose models are its checkpoints.

In: checkpoints (checkpoints.py), clips, options of a run. Out: the folder of a run (score_clips.py), with

    trajectory.json            which model is which step of which training
    trajectory.csv             curves: a row for each checkpoint, quantity, stack and layer
    trajectory_onsets.csv      where contribution and need rise for good, and when
    trajectory_leads.csv       which of them is first

Clips, their word times and their sound are those of the run, so they are shared by all checkpoints.
What a checkpoint has is stored as in any run: a trajectory that was stopped goes on, and one with more
checkpoints computes these alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from os import PathLike
from pathlib import Path
from typing import Any

import pandas as pd

from ...errors import InputError
from ...evaluation.statistics.grouped_means import TableRow
from ...evaluation.statistics.groups import assign_groups, describe_groups
from ...evaluation.statistics.random_twin_comparison import WHOLE_STACK
from ...files.json_files import JsonObject, read_json_object
from ...files.text_files import read_csv, write_csv
from ...files.whole_files import write_json
from ...inputs.clips.clip import Clip
from ...reporting.pages.table_format import stack_phrase
from ...runs.results.open_run import StoredRun, open_run
from ..probing.scores import FILE as PROBES_FILE
from .checkpoints import Checkpoint, Sources, list_checkpoints
from .trajectories import CELL, CURVE_COLUMNS, limit_twins, measure_trajectory, trajectory_curves
from .trajectory_claims import date_onsets, trajectory_claims, trajectory_leads

CHECKPOINTS_FILE = "trajectory.json"
_TABLES = ("contributions", "ablation", "transcripts", "boundaries")


@dataclass(frozen=True, eq=False)
class Trajectory:
    """What changed over the steps of one or several trainings.

    Attributes
    ----------
    run : StoredRun
        All tables by clip and checkpoint; the model of a checkpoint is called ``TRAINING@step500``.
    checkpoints : list of Checkpoint
    cells : DataFrame
        Values by checkpoint, quantity, stack, layer and group of clips (`measure_trajectory`).
    grouping : str
        How many groups and speakers there are, in a sentence.
    """

    run: StoredRun
    checkpoints: list[Checkpoint]
    cells: pd.DataFrame
    grouping: str = ""

    @classmethod
    def open(cls, folder: str | PathLike[str], *, group: str | None = None) -> Trajectory:
        """Open the trajectory in a run's folder.

        Parameters
        ----------
        folder : path
        group : str, optional
            Column of the clip table that says which clips belong together; by default the run's own.

        Raises
        ------
        InputError
            If the folder holds none.
        """
        run = open_run(folder)
        checkpoints = _read_checkpoints(run)
        steps = {c.label: (c.training, c.step) for c in checkpoints}
        groups, ties = assign_groups(run.clips, group or run.group)
        clips = run.clips.assign(group=groups)
        tables = (run.contributions, run.ablation, clips, steps, run.transcripts)
        cells = measure_trajectory(*tables)
        if cells.empty:
            raise InputError(f"{run.out} has no trajectory: no clip was scored with cue and target")
        return cls(run, checkpoints, cells, describe_groups(clips, ties))

    @cached_property
    def curves(self) -> pd.DataFrame:
        """Means with intervals by training, step, quantity, stack and layer (`trajectory_curves`);
        accuracies of probes, where the run has them, are the quantity "probe", of layers alone."""
        probes = _probe_values(self.run.out / PROBES_FILE, self.checkpoints)
        return pd.concat([trajectory_curves(self.cells), *probes], ignore_index=True)

    @cached_property
    def onsets(self) -> pd.DataFrame:
        """Which contributions and needs rise for good, and when (`date_onsets`)."""
        return date_onsets(self.cells, trajectory_claims(self.cells))

    @cached_property
    def leads(self) -> pd.DataFrame:
        """Which onset is first (`trajectory_claims`)."""
        return trajectory_leads(self.cells, self.onsets)

    @property
    def summary(self) -> str:
        """Sentences about onsets and their order, one a line, and how many groups there are."""
        return "\n".join([*describe_trajectory(self.onsets, self.leads), self.grouping])

    def write(self) -> None:
        """Write the three tables into the run's folder."""
        write_csv(self.curves, self.run.out / "trajectory.csv")
        write_csv(self.onsets, self.run.out / "trajectory_onsets.csv")
        write_csv(self.leads, self.run.out / "trajectory_leads.csv")


def _probe_values(path: Path, checkpoints: Sequence[Checkpoint]) -> list[pd.DataFrame]:
    """Return accuracies of probes as curves, with the band of the twins; none without a table.

    The stack is named with the position and, where a task was parted, the part. The input of the first
    layer is left out: in curves layer -1 is a whole stack.
    """
    table = read_csv(path) if path.is_file() else pd.DataFrame()
    if "accuracy" not in table:
        return []
    part = (" (" + table["part"] + ")").where(table["part"] != "all", "")
    table = table.assign(quantity="probe", stack=table["stack"] + " " + table["position"] + part)
    table = table.rename(columns={"label": "measure", "accuracy": "value"})
    numbers = ["value", "low", "high", "layer", "groups"]
    table[numbers] = table[numbers].apply(pd.to_numeric)
    table = table[table["layer"] > WHOLE_STACK]
    of_checkpoints = pd.DataFrame(
        [(c.label, c.training, c.step) for c in checkpoints], columns=["model", "training", "step"]
    )
    probes = table[table["init"] == "trained"].merge(of_checkpoints, on="model")
    probes = probes.join(limit_twins(table[table["init"] == "random"]), on=CELL)
    return [probes.sort_values(["training", *CELL, "step"])[CURVE_COLUMNS]]


def select_last_checkpoints(run: StoredRun) -> StoredRun:
    """Return a trajectory's run with the tables of the last checkpoint of each training alone, whose
    twins then have the name of the first of these; another run as it is.

    The page of a run compares a few trained models with their twins.
    """
    if not (run.out / CHECKPOINTS_FILE).is_file():
        return run
    last = {checkpoint.training: checkpoint.label for checkpoint in _read_checkpoints(run)}
    twins = dict([next(iter(last.items()))])

    def select(table: pd.DataFrame) -> pd.DataFrame:
        if table.empty:
            return table
        names = table["model"].astype(object)
        is_twin = table["init"] == "random"
        taken = names.isin(last.values()) | is_twin
        return table.assign(model=names.where(~is_twin, names.map(twins)))[taken]

    tables: dict[str, Any] = {name: select(getattr(run, name)) for name in _TABLES}
    return replace(run, **tables)


def _read_checkpoints(run: StoredRun) -> list[Checkpoint]:
    path = run.out / CHECKPOINTS_FILE
    if not path.is_file():
        raise InputError(f"{run.out} has no trajectory: {CHECKPOINTS_FILE} is missing")
    return [Checkpoint(**cells) for cells in read_json_object(path)["checkpoints"]]


def describe_trajectory(onsets: pd.DataFrame, leads: pd.DataFrame) -> list[str]:
    """Say for each training which whole stacks have an onset, and which quantity is first."""
    lines = []
    for key, rows in onsets[onsets["layer"] < 0].groupby(["training", "quantity"], sort=False):
        training, quantity = map(str, key)
        claims = [
            f"{stack_phrase(row['stack'])} at step {row['onset']:.0f} ({_interval(row)})"
            for row in rows[rows["claim"]].to_dict("records")
        ]
        reasons = "; ".join(dict.fromkeys(rows["reason"]))
        lines.append(
            f"{training}: onset of {quantity}: {', '.join(claims) or f'none is shown ({reasons})'}."
        )
    for row in leads.to_dict("records"):
        order = f"{row['first']} is first" if row["first"] else "which is first is not shown"
        lag = f"{row['lag']:.0f} steps ({_interval(row)})"
        about = f"{row['training']}: from contribution to need in {stack_phrase(row['stack'])}"
        lines.append(f"{about}: {lag}; {order}.")
    return lines


def _interval(row: TableRow) -> str:
    return f"95 % interval {row['low']:.0f} to {row['high']:.0f}"


def trajectory(
    sources: Sources,
    clips: Sequence[Clip],
    out: str | Path,
    *,
    revisions: str | Sequence[str] | None = None,
    twins: int = 0,
    seed: int = 0,
    transcripts: bool = False,
    load_options: JsonObject | None = None,
    report: Callable[[str], None] = print,
    **options: Any,
) -> Trajectory | None:
    """Measure contribution, need, spelling and probes over the steps of a training.

    Parameters
    ----------
    sources, revisions
        Of `list_checkpoints`: a folder with checkpoints, a pattern, a model on the hub; several
        trainings of one architecture are compared.
    clips : sequence of Clip
        With cue, target and foil.
    out : path
        Folder of the run. Give a trajectory the same folder again with more checkpoints, and only
        these are computed.
    twins : int
        Untrained models of the architecture. Where there is no checkpoint of step 0, onsets need five.
    seed : int
        Of the first twin.
    transcripts : bool
        Also let each checkpoint transcribe the clips.
    load_options : dict, optional
        Of `speechmix.load`: device, dtype, processor.
    report, **options
        Of `score_clips`: measures, stacks, probes, kinds, shard, executor, ...

    Returns
    -------
    Trajectory or None
        None while other shards are not done.

    Raises
    ------
    InputError
        As `list_checkpoints` and `score_clips`.
    StorageError
        If `out` cannot be written to. What was finished is kept.

    Examples
    --------
    >>> result = speechmix.trajectory("runs/a", clips, "runs/a/trajectory", twins=9)      # doctest: +SKIP
    >>> print(result.summary)                                                             # doctest: +SKIP
    """
    from ...runs.kinds.ablation import ABLATION_KIND
    from ...runs.kinds.generated_texts import TRANSCRIPTS_KIND
    from ...runs.score_clips import score_clips  # these load PyTorch, which a page does not need

    checkpoints = list_checkpoints(sources, revisions)
    load_checkpoints = [partial(c.load, **(load_options or {})) for c in checkpoints]
    last = [c for c in checkpoints if c.training == checkpoints[0].training][-1]
    load_twins = [
        partial(last.load, init="random", seed=number, **(load_options or {}))
        for number in range(seed, seed + twins)
    ]
    kinds = options.pop("kinds", ())
    kinds = dict(kinds) if isinstance(kinds, Mapping) else {name: {} for name in kinds}
    kinds[ABLATION_KIND.name] = {"by_layer": frozenset(clip.name for clip in clips)}
    if transcripts:
        kinds[TRANSCRIPTS_KIND.name] = {}
    options = {"figures": 0, **options, "kinds": kinds, "report": report}
    run = score_clips([*load_checkpoints, *load_twins], clips, out, **options)
    write_json(run.out / CHECKPOINTS_FILE, {"checkpoints": [c.to_dict() for c in checkpoints]})
    if not run.is_complete:
        return None
    result = Trajectory.open(run.out)
    result.write()
    return result
