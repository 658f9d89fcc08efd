"""Measure listening for many items and models, stored in a run's folder; resumable, in shards, by workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import pandas as pd

from ...adapters.model import Model
from ...files.shard_assignment import Shard
from ...inputs.clips.clip import Clip
from ...runs.executors.executor import Executor
from ...runs.kinds.result_kind import stored_contents
from ...runs.progress import Progress
from ...runs.results.run_folder import RunFolder
from ...runs.score_clips import compute_kinds
from ...runs.shard_merge import list_job_parts, read_job_skipped
from .items import ListeningItem, check_items, choose_donors, group_items, no_item_error
from .kind import LISTENING_KIND, LISTENING_ROUTES_KIND, LISTENING_SECONDS_KIND
from .listening import Listening, find_routes
from .sound_routes import choose_route_items
from .sound_seconds import check_seconds


def listen_to_items(
    models: Model | Sequence[Model | Callable[[], Model]],
    items: Sequence[ListeningItem | Clip],
    out: str | PathLike[str],
    *,
    seconds: float | None = None,
    where: bool = False,
    group: str | None = None,
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
    seconds, where, group
        As for `speechmix.listening`. The last step of `where`, without the named heads, runs in this process, and again
        when a stopped run goes on: 3 runs for each of at most 48 items, or 36 if heads are named.
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
    check_seconds(seconds)
    unreadable = list[tuple[str, str]]()
    listening_items = check_items(items, unreadable)
    if not listening_items:
        raise no_item_error(unreadable)
    loads = [models] if isinstance(models, Model) else list(models)
    donors = choose_donors(listening_items)
    group_items(listening_items, group)  # an error before models run
    kinds: dict[str, dict[str, object]] = {LISTENING_KIND.name: {"donors": donors}}
    if where:
        names = frozenset(item.name for item in choose_route_items(listening_items))
        kinds[LISTENING_ROUTES_KIND.name] = {"donors": donors, "names": names}
    if seconds is not None:
        kinds[LISTENING_SECONDS_KIND.name] = {"seconds": seconds}
    run = compute_kinds(
        loads,
        [item.to_clip() for item in listening_items],
        Path(out),
        kinds,
        shard=shard,
        executor=executor,
        progress=progress,
        report=lambda line: None,
    )
    if not run.is_complete:
        return None
    folder, job = RunFolder(Path(out)), "-".join(kinds)
    skipped = [*unreadable, *read_job_skipped(folder, job)]
    in_order = loads * len(loads)  # models are kept in this order, as a rule: each is loaded once
    candidates = (load if isinstance(load, Model) else load() for load in in_order)
    results = list[Listening]()
    for owner, parts in list_job_parts(folder, job).items():
        stored = {
            kind: {name: rows for _, name, rows in stored_contents(parts, kind)} for kind in kinds
        }
        if not stored[LISTENING_KIND.name]:
            continue
        routes, reasons = None, list(skipped)
        stretches = stored.get(LISTENING_SECONDS_KIND.name)
        if where:
            model = next(model for model in candidates if model.fingerprint == owner.weights)
            rows_by_item = stored[LISTENING_ROUTES_KIND.name]
            options: dict[str, Any] = {"group": group, "rows_by_item": rows_by_item}
            routes = find_routes(model, listening_items, reasons, **options)
        results.append(
            Listening(
                tuple(listening_items),
                _join_rows(listening_items, stored[LISTENING_KIND.name]),
                tuple(reasons),
                {"model": owner.name, "init": owner.init, "seed": owner.seed}
                | {"weights": owner.weights},
                routes,
                _join_rows(listening_items, stretches) if stretches else None,
                group,
            )
        )
    if not results:
        raise no_item_error(skipped)
    return results


def _join_rows(
    items: Sequence[ListeningItem], rows: Mapping[str, list[dict[str, Any]]]
) -> pd.DataFrame:
    """One table in the order of the items."""
    return pd.DataFrame(
        [{"item": item.name} | row for item in items for row in rows.get(item.name, ())]
    )
