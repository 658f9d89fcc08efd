"""Measure listening for many items and models, stored in a run's folder; resumable, in shards, by workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path

import pandas as pd

from ..adapters.model import Model
from ..errors import InputError
from ..evaluation.listening.items import ListeningItem, check_items, choose_donors
from ..evaluation.listening.listening_result import Listening
from ..files.shard_assignment import Shard
from ..inputs.clips.clip import Clip
from .executors.executor import Executor
from .kinds.listening import LISTENING_KIND
from .kinds.result_kind import stored_contents
from .progress import Progress
from .results.run_folder import RunFolder
from .score_clips import compute_kinds
from .shard_merge import list_job_parts, read_job_skipped


def listen_to_items(
    models: Model | Sequence[Model | Callable[[], Model]],
    items: Sequence[ListeningItem | Clip],
    out: str | PathLike[str],
    *,
    shard: Shard | str | None = None,
    executor: Executor | None = None,
    progress: Progress = False,
) -> list[Listening] | None:
    """Measure listening as `speechmix.listening` does, and store the results in a folder.

    Parameters
    ----------
    models : Model, or sequence of Model or of functions that load one
    items : sequence of ListeningItem or Clip
        All of them, whatever the shard.
    out : path
        Folder of a run, or a fresh one.
    shard, executor, progress
        As for `score_clips`.

    Returns
    -------
    list of Listening, or None
        One for each model; None while other shards are not finished.

    Raises
    ------
    InputError
        If no item can be used.

    Examples
    --------
    >>> listen_to_items(model, items, "runs/listening", shard="3/48")                     # doctest: +SKIP
    """
    found = check_items(items)
    run = compute_kinds(
        models,
        [item.to_clip() for item in found],
        Path(out),
        {LISTENING_KIND.name: {"donors": choose_donors(found)}},
        shard=shard,
        executor=executor,
        progress=progress,
        report=lambda line: None,
    )
    if not run.is_complete:
        return None
    folder = RunFolder(Path(out))
    skipped = tuple(read_job_skipped(folder, LISTENING_KIND.name))
    results = []
    for owner, parts in list_job_parts(folder, LISTENING_KIND.name).items():
        contents = {name: rows for _, name, rows in stored_contents(parts, LISTENING_KIND.name)}
        rows = [
            {"item": item.name} | row for item in found for row in contents.get(item.name, ())
        ]
        if rows:
            facts = {"model": owner.name, "init": owner.init, "seed": owner.seed}
            facts |= {"weights": owner.weights}
            results.append(Listening(tuple(found), pd.DataFrame(rows), skipped, facts))
    if not results:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in skipped[:3])
        raise InputError(f"no item can be used: {reasons}")
    return results
