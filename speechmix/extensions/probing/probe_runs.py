"""Probes of clips whose states a run's folder stores: read in shards, fitted when the last is done."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...adapters.model import Model
from ...errors import InputError
from ...files.json_files import JsonObject
from ...inputs.clips.clip import Clip
from ...runs.executors.executor import Executor
from ...runs.results.run_folder import RunFolder, RunState
from ...runs.score_clips import Loads, compute_kinds
from ...runs.shard_merge import list_job_parts, read_job_clips
from .fits import ProbeSettings
from .kind import STATES_KIND, stored_states
from .probe import PROBE_PROTOCOLS, Probes, fit_models
from .task import Position, ProbeTask

_UNREAD = "its states were not read in this run"


def probe_in_run(
    models: Model | Loads,
    clips: Sequence[Clip],
    out: str | Path,
    *,
    label: str = "number",
    positions: Sequence[Position] = ("target",),
    stacks: Sequence[str] | None = None,
    group: str | None = None,
    by: str | None = None,
    protocol: str | None = None,
    executor: Executor | None = None,
    settings: JsonObject | None = None,
    **run_options: Any,
) -> Probes | None:
    """Probe the states of models as `speechmix.probe` does, and store the states in a run's folder.

    Parameters
    ----------
    models, clips, executor
        As for `score_clips`.
    out : path
        Gets the tables, too.
    label, positions, stacks, group, by, protocol
        As for `speechmix.probe`.
    settings : dict, optional
        method, mode, folds, controls, seed of `speechmix.probe`.
    **run_options
        Of `compute_kinds`: aligner, align_method, skipped, progress, report.

    Returns
    -------
    Probes or None
        None while other shards are not done.

    Raises
    ------
    InputError
        For an unknown protocol, or if no clip has the label.
    """
    if protocol is not None and protocol not in PROBE_PROTOCOLS:
        raise InputError(f"protocol should be one of {list(PROBE_PROTOCOLS)}, found {protocol!r}")
    further = {} if protocol is None else PROBE_PROTOCOLS[protocol]
    reading: JsonObject = {"positions": tuple(positions)}
    reading |= {"stacks": tuple(stacks)} if stacks else {}
    reading |= {"rounding": "paper"} if protocol is not None else {}
    fitted = ProbeSettings(**{**(settings or {}), **further})
    options = {STATES_KIND.name: reading}
    run = compute_kinds(models, clips, out, options, executor=executor, **run_options)
    if not run.is_complete:
        return None
    folder = RunFolder(Path(out))
    task = ProbeTask.from_items(
        read_job_clips(folder, clips, STATES_KIND.name),
        label,
        group=group or RunState(folder).group,
        by=by,
    )
    states = {
        owner: stored_states(parts)
        for owner, parts in list_job_parts(folder, STATES_KIND.name).items()
    }
    of_items = [
        (owner, [by_clip.get(str(item.name), _UNREAD) for item in task.items])
        for owner, by_clip in states.items()
    ]
    probes = fit_models(of_items, task, fitted)
    if len(probes.to_dataframe()):
        probes.write(out)
    return probes
