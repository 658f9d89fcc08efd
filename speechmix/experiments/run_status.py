"""How far a run is: what each of its shards has done, what is missing and what failed.

In: a run's folder, while processes work there or after they have died. Out: a table and text; nothing is written.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import pandas as pd
import pyarrow.compute as pc

from ..errors import InputError, StorageError
from ..files.json_files import read_json_object
from ..files.locks import locked
from ..files.shards import Shard
from .folder import COMPLETE, RunFolder
from .merging import FACTS, Marker, begun_shards
from .part_files import Part, opened_part

DONE, AT_WORK, STOPPED, MISSING = "done", "at work", "stopped", "not begun"
_COLUMNS = ["shard", "state", "model", "clips", "failed"]


@dataclass(frozen=True)
class RunStatus:
    """How far a run is.

    Attributes
    ----------
    folder : Path
    state : str
        "running", or "complete" when all tables stand.
    table : DataFrame
        A row for each shard and model: shard, state ("done", "at work", "stopped", "not begun"), model, clips with results,
        clips that failed. A shard without results has one row without a model.
    failures : DataFrame
        clip, model, reason, as the shards that are done recorded them.
    """

    folder: Path
    state: str
    table: pd.DataFrame
    failures: pd.DataFrame

    @property
    def missing(self) -> list[int]:
        """Shards that are neither done nor at work, to be started again."""
        open_shards = self.table[self.table["state"].isin([STOPPED, MISSING])]
        return sorted({int(name.partition("-of-")[0]) for name in open_shards["shard"]})

    def text(self) -> str:
        """What the command prints."""
        states = Counter(self.table.drop_duplicates("shard")["state"])
        counted = ", ".join(f"{states[state]} {state}" for state in (DONE, AT_WORK, STOPPED, MISSING) if states[state])
        lines = [f"{self.folder}: {self.state}; {sum(states.values())} shards: {counted}"]
        by_model = self.table.dropna(subset=["model"]).groupby("model", sort=False)[["clips", "failed"]].sum()
        lines += [f"  {model}: {row.clips} clips, {row.failed} failed" for model, row in by_model.iterrows()]
        if self.missing:
            lines.append(f"  to be started (again): --shard {', '.join(map(str, self.missing))}")
        elif self.state != COMPLETE and states[DONE] == sum(states.values()):
            lines.append("  all shards are done and the tables are not written: start any shard again")
        reasons = Counter(self.failures["reason"])
        lines += [f"  failed {count} times: {reason}" for reason, count in reasons.most_common(10)]
        return "\n".join(lines)


def run_status(path: str | PathLike) -> RunStatus:
    """Read how far a run is.

    Parameters
    ----------
    path : path
        The run's folder.

    Returns
    -------
    RunStatus

    Raises
    ------
    InputError
        If the folder holds no run.
    """
    folder = RunFolder(Path(path))
    if not folder.description.is_file():
        raise InputError(f"{folder.path} holds no run: expected run.json, as `speechmix score` leaves it")
    description = read_json_object(folder.description)
    count = description.get("shards", 1)
    parts = [opened_part(path) for path in folder.part_files()]
    failures: list[dict[str, str]] = []
    rows: list[dict[str, object]] = []
    for index in range(1, count + 1):
        shard = Shard(index, count)
        marker = Marker.read(folder, shard)
        own = [part for part in parts if part.shard == shard.label]
        state = DONE if marker else AT_WORK if _is_held(folder, shard) else STOPPED if own else MISSING
        failures += marker.skipped if marker else []
        failed = Counter(row["model"] for row in marker.skipped) if marker else Counter()
        told = {"shard": shard.label, "state": state}
        clips = {owner: names for owner, names in _clips_of(own).items() if owner is not None}
        rows += [{**told, "model": name, "clips": len(clips[name]), "failed": failed[name]} for name in clips]
        if not clips:
            rows.append({**told, "model": None, "clips": 0, "failed": sum(failed.values())})
    return RunStatus(
        folder.path,
        str(description.get("state", COMPLETE)),
        pd.DataFrame(rows, columns=_COLUMNS),
        pd.DataFrame(failures, columns=["clip", "model", "reason"]),
    )


def clips_of_shard(folder: RunFolder, shard: Shard, *, models: int) -> set[str]:
    """Names of the clips that a shard, done or not, has results of by so many models."""
    parts = (opened_part(path) for path in folder.part_files())
    by_model = _clips_of([part for part in parts if part.shard == shard.label])
    names = [clips for label, clips in by_model.items() if label is not None]
    return set.intersection(*names) if len(names) == models > 0 else set()


def _clips_of(parts: list[Part]) -> dict[str | None, set[str]]:
    """Names of the clips that have results by each model."""
    names: dict[str | None, set[str]] = {}
    for part in parts:
        rows = part.read(("clip", "kind"))
        label = part.owner.label if part.owner.name is not None else None
        names.setdefault(label, set()).update(rows.filter(pc.not_equal(rows["kind"], FACTS))["clip"].to_pylist())
    return names


def _is_held(folder: RunFolder, shard: Shard) -> bool:
    """Whether a process is at work on a shard now."""
    if shard.count > 1 and shard.label not in begun_shards(folder):
        return False
    try:
        with locked(folder.path) if shard.count == 1 else locked(folder.shards, shard.label):
            return False
    except StorageError:
        return True
