"""How far a run is: what each of its shards has done, what is missing and what failed.

In: a run's folder, while processes work there or after they have died. Out: a table and text;
nothing is written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import InputError
from ..files.json_files import read_json_object
from ..files.shard_assignment import Shard
from ..files.whole_files import is_held
from .journal.stage_files import format_indices
from .kinds.generated_texts import GENERATED
from .results.clip_result_files import Part, open_part
from .results.run_folder import COMPLETE, RunFolder, RunState
from .shard_merge import FACTS, CompletionRecord, list_shard_labels

DONE, AT_WORK, STOPPED, MISSING = "done", "at work", "stopped", "not begun"
OUTDATED, DAMAGED = "outdated", "damaged"
_COLUMNS = ["shard", "state", "model", "clips", "failed"]


@dataclass(frozen=True)
class RunStatus:
    """Progress of a run.

    `state` is "running", or "complete" when all tables are up to date. `table` has a row for each
    shard and model: shard, state, model, clips with results, clips that failed; a shard without
    results has one row without a model. States are "done", "at work", "stopped", "not begun";
    "outdated" for a shard of another request (other clips, options) than the one that began last,
    or of other models than the one that ended last; "damaged" for one whose results are no longer
    whole. `failures` has clip, model, reason, as the shards that are done recorded them.
    `aligned_count` counts clips whose word times are stored, because they came without.
    """

    folder: Path
    state: str
    table: pd.DataFrame
    failures: pd.DataFrame
    aligned_count: int = 0

    @property
    def missing(self) -> list[int]:
        """Shards that are neither done nor at work, to be started again."""
        open_shards = self.table[~self.table["state"].isin([DONE, AT_WORK])]
        return sorted({int(name.partition("-of-")[0]) for name in open_shards["shard"]})

    def text(self) -> str:
        """What the command prints."""
        states = Counter(self.table.drop_duplicates("shard")["state"])
        count = states.total()
        of_states = (DONE, AT_WORK, STOPPED, MISSING, OUTDATED, DAMAGED)
        counted = ", ".join(f"{states[state]} {state}" for state in of_states if states[state])
        summary = f"{count} shards: {counted}" if count > 1 else next(iter(states))
        state = COMPLETE if self.state == COMPLETE else "not complete"
        lines = [f"{self.folder}: {state}; {summary}"]
        if self.aligned_count:
            lines.append(f"  word times of {self.aligned_count} clips")
        by_model = (
            self.table.dropna(subset=["model"])
            .groupby("model", sort=False)[["clips", "failed"]]
            .sum()
        )
        lines += [
            f"  {model}: {row.clips} clips, {row.failed} failed"
            for model, row in by_model.iterrows()
        ]
        if self.missing:
            what = (
                f"--shard {format_indices(self.missing)}"
                if count > 1
                else "the same command goes on"
            )
            lines.append(f"  to be started (again): {what}")
        elif self.state != COMPLETE and states[DONE] == count:
            lines.append(
                "  all shards are done and the tables are not written: start any shard again"
            )
        reasons = Counter(self.failures["reason"])
        lines += [f"  failed {count} times: {reason}" for reason, count in reasons.most_common(10)]
        return "\n".join(lines)


@dataclass(frozen=True)
class JobStatus:
    """Progress of a job that computes kinds of results alone.

    `count` is the number of shards, `missing` those that are not done. `failed` counts (clip,
    model) pairs of the shards that are done. `has_tables` says whether the tables are of what the
    shards computed last.
    """

    name: str
    count: int
    failed: int
    missing: list[int]
    has_tables: bool

    def text(self) -> str:
        """What the command prints."""
        done_count = self.count - len(self.missing)
        text = f"{self.name}: {done_count} of {self.count} shards done, {self.failed} failed"
        if self.missing:
            return f"{text}; missing: {format_indices(self.missing)}"
        return text if self.has_tables else f"{text}; tables: not written: start any shard again"


def run_status(path: str | PathLike[str]) -> RunStatus:
    """Read the progress of a run; InputError if the folder holds no run."""
    folder = RunFolder(Path(path))
    if not folder.description_path.is_file():
        raise InputError(
            f"{folder.path} holds no run: expected run.json, as `speechmix score` leaves it"
        )
    description = read_json_object(folder.description_path)
    if not isinstance(description.get("options"), dict):
        raise InputError(
            f"{folder.description_path} is not of a run of `speechmix score` or `study`, or is damaged"
        )
    state, count = str(description.get("state", COMPLETE)), description.get("shards", 1)
    if type(count) is not int or count < 1:
        raise InputError(
            f"{folder.description_path} is damaged, its number of shards is {count!r:.40}: start the "
            "run again"
        )
    shards = [Shard(index, count) for index in range(1, count + 1)]
    markers, last_asked = _read_records(folder, shards, str(description.get("asked", "")))
    parts = _read_parts(folder)
    paths = {*folder.relative([part for part, _ in parts])}
    job_paths = {*RunState(folder).job_parts()}
    own_parts = [pair for pair in parts if pair[0].path not in job_paths]
    failures: list[dict[str, str]] = []
    rows: list[dict[str, object]] = []
    for shard in shards:
        marker = markers.get(shard)
        clips = _clips_by_model(own_parts, shard)
        if marker is None:
            has_results = any(part.shard == shard.label for part, _ in own_parts)
            of_shard = _state_without_marker(folder, shard, has_results=has_results)
        else:
            of_shard = (
                OUTDATED
                if marker.asked != last_asked
                else DONE
                if paths.issuperset([*marker.clips, *marker.model_parts])
                else DAMAGED
            )
        skipped = marker.skipped if marker and of_shard != OUTDATED else []
        failures += skipped
        failed = Counter(row["model"] for row in skipped)
        shard_cells = {"shard": shard.label, "state": of_shard}
        labels = [
            *clips,
            *(label for label in failed if label and label not in clips),
        ]  # one may have failed on every clip
        rows += [
            {
                **shard_cells,
                "model": label,
                "clips": len(clips.get(label, ())),
                "failed": failed[label],
            }
            for label in labels
        ]
        if not labels:
            rows.append({**shard_cells, "model": None, "clips": 0, "failed": sum(failed.values())})
    return RunStatus(
        folder.path,
        state,
        pd.DataFrame(rows, columns=_COLUMNS),
        pd.DataFrame(failures, columns=["clip", "model", "reason"]),
        len({clip for part, names in parts if part.owner.label is None for clip in names}),
    )


def job_status(path: str | PathLike[str]) -> list[JobStatus]:
    """Read how far the jobs are that computed kinds of results alone in a folder."""
    folder = RunFolder(Path(path))
    jobs = []
    for job in sorted(job for job in folder.shards_dir.glob("*") if job.is_dir()):
        records = sorted(job.glob("*-of-*.json"), key=lambda record: record.stat().st_mtime_ns)
        labels = [record.stem for record in records] or list_shard_labels(folder)
        count = int(labels[-1].rpartition("-")[2]) if labels else 1
        shards = [Shard(index, count) for index in range(1, count + 1)]
        markers = {shard: CompletionRecord.read(folder, shard, job.name) for shard in shards}
        finished_markers = [marker for marker in markers.values() if marker is not None]
        skipped = folder.table_path(f"{job.name}_skipped", "csv")  # is written last
        table_mtime_ns = skipped.stat().st_mtime_ns if skipped.is_file() else 0
        jobs.append(
            JobStatus(
                job.name,
                count,
                sum(len(marker.skipped) for marker in finished_markers),
                [shard.index for shard, marker in markers.items() if marker is None],
                has_tables=bool(records) and table_mtime_ns >= records[-1].stat().st_mtime_ns,
            )
        )
    return jobs


def find_shard_clips(folder: RunFolder, shard: Shard, *, models: int) -> set[str]:
    """Names of the clips that a shard, done or not, has results of by so many models."""
    clips = list(_clips_by_model(_read_parts(folder), shard).values())
    return set.intersection(*clips) if len(clips) == models > 0 else set()


def _read_records(
    folder: RunFolder, shards: Sequence[Shard], run_key: str
) -> tuple[dict[Shard, CompletionRecord], str]:
    """Completion records of the shards that are done; and the request of the last to end, among
    those with the run's present request."""
    markers: dict[Shard, CompletionRecord] = {}
    last: tuple[int, str] = (0, "")
    for shard in shards:
        marker = CompletionRecord.read(folder, shard)
        if marker is not None:
            with suppress(OSError):  # started again since
                ended = (folder.shards_dir / f"{shard.label}.json").stat().st_mtime_ns
                markers[shard] = marker
                if marker.is_of(run_key):
                    last = max(last, (ended, marker.asked))
    return markers, last[1]


def _state_without_marker(folder: RunFolder, shard: Shard, *, has_results: bool) -> str:
    """State of a shard that does not say that it is done."""
    lock_name = "" if shard.count == 1 else shard.label
    if is_held(folder.path if shard.count == 1 else folder.shards_dir, lock_name):
        return AT_WORK
    return STOPPED if has_results else MISSING


def _read_parts(folder: RunFolder) -> list[tuple[Part, set[str]]]:
    """Part files, each with the names of the clips that it has results of; without what is damaged,
    or was removed since."""
    parts = []
    for path in folder.part_files():
        with suppress(InputError, FileNotFoundError):
            part = open_part(path)
            rows = part.read(("clip", "kind"))
            of_results = pc.invert(pc.is_in(rows["kind"], pa.array([FACTS, GENERATED])))
            parts.append((part, {*rows.filter(of_results)["clip"].to_pylist()}))
    return parts


def _clips_by_model(parts: Sequence[tuple[Part, set[str]]], shard: Shard) -> dict[str, set[str]]:
    """Names of the clips that a shard has results of, by the labels of models."""
    clips: dict[str, set[str]] = {}
    for part, names in parts:
        if part.shard == shard.label and part.owner.label is not None:
            clips.setdefault(part.owner.label, set()).update(names)
    return clips
