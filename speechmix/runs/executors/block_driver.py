"""Driver that hands out blocks of clips to workers.

In: what a run of one process takes, and an executor that carries blocks to workers (block_worker.py)
and their rows back, in any order. Out: the folder of one process, file by file. Part files of many
blocks are merged on the way, so that they stay few; clips of which nothing was heard are given out
again, a few times.
"""

from __future__ import annotations

import json
import pickle
import secrets
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from ...adapters.model import Model
from ...errors import AlignmentError, InputError, ModelError, SpeechmixError, StorageError
from ...files.cache_keys import digest
from ...files.json_files import JsonObject
from ...files.names import refuse_duplicate_label
from ...files.shard_assignment import Shard
from ...inputs.clips.clip import Clip
from ..clip_aligner import ClipAligner
from ..job_execution import StartedJob
from ..kinds.word_times import WORD_TIMES_KIND
from ..model_run import RunRequest
from ..progress import ALIGN, Progress, show_progress
from ..results.clip_result_files import Owner, Part, part_paths
from ..results.result_store import Key, Results
from ..results.run_folder import RunFolder
from ..run_job import RunJob
from ..scored_run import Run
from .block_worker import Pass, result_row

Report = Callable[[str], None]

_BLOCKS_PER_MERGE = 32  # blocks whose part files become one
_MAX_ROUNDS = 3  # of a model: what came to nothing is given out again
_LOOKS, _SECONDS_BETWEEN_LOOKS = 10, 6.0  # for what workers have written


_STOPPING_ERRORS = {
    kind.__name__: kind for kind in (InputError, ModelError, AlignmentError, StorageError)
}  # made of a text alone


class ExecutorError(Exception):
    """What an executor could not carry to an end; it is tried again."""


class BlockExecutor(ABC):
    """An executor that carries blocks of clips to workers."""

    @abstractmethod
    def connected(self) -> AbstractContextManager[None]:
        """Be connected to the workers."""

    @abstractmethod
    def rows(self, clip_pass: Pass, clips: Sequence[Clip]) -> Iterator[JsonObject]:
        """Yield rows (`block_worker.ROW`) of the clips, those of one block together.

        ExecutorError if they do not all come.
        """

    def execute(self, job: RunJob) -> Run:
        """Do a job: tables and figures here, word times and all results of models by workers."""
        return job.run(score=self._compute, align=self._align)

    def _align(self, started: StartedJob, aligner: ClipAligner) -> Mapping[str, str | None]:
        """Compute the word times that are missing; an aligner that is loaded works here, later."""
        job, folder = started.job, started.folder
        if isinstance(job.aligner, Model) or not (clips := aligner.unaligned_clips(job.report)):
            return {}
        request = RunRequest(((WORD_TIMES_KIND, aligner.options),), job=WORD_TIMES_KIND.name)
        alignment = _ModelBlocks(folder, clips, started.run, job.report, request.own_kinds)
        with self.connected(), _make_report(folder) as (resolved_folder, notes):
            parts = tuple(resolved_folder.part_files())
            clip_pass = Pass(resolved_folder.path, job.aligner, request, (), parts, notes)
            self._score_model(alignment, clip_pass, job.progress, ALIGN)
        return alignment.reasons()

    def _compute(self, started: StartedJob) -> None:
        """Compute all kinds with one model after the other; record the part files in the completion
        record.

        One after the other, so that no worker holds two models, and a random twin finds what its
        trained model generated. InputError if a model is no function that loads one; SpeechmixError
        if a worker cannot load a model or write to the folder.
        """
        job, folder, request = started.job, started.folder, started.request
        labels: dict[str, str] = {}
        owners: list[Owner] = []
        with self.connected(), _make_report(folder) as (resolved_folder, notes):
            for load in job.models:
                if isinstance(load, Model):
                    raise InputError(
                        "expected functions that load a model, for each worker loads its own, "
                        f"found {load.label}: give "
                        "functools.partial(speechmix.load, ...)"
                    )
                clip_pass = Pass(
                    resolved_folder.path,
                    load,
                    request,
                    tuple(owners),
                    tuple(resolved_folder.part_files()),
                    notes / str(len(owners)),
                )
                of_model = _ModelBlocks(
                    folder, started.ready, started.run, job.report, request.own_kinds
                )
                self._score_model(of_model, clip_pass, job.progress)
                if of_model.owner is not None:
                    refuse_duplicate_label(labels, str(of_model.owner.label))
                    owners.append(of_model.owner)
                    started.marker.add(folder, of_model.owner, of_model.settled())

    def _score_model(
        self, of_model: _ModelBlocks, clip_pass: Pass, progress: Progress, stage: str = "score"
    ) -> None:
        """Give the clips out, and again those of which nothing was heard."""
        failure: Exception | None = None
        for _ in range(_MAX_ROUNDS):
            missing = of_model.missing()
            if not missing:
                return
            try:
                rows = self.rows(clip_pass, missing)
                for row in show_progress(rows, progress, stage, total=len(missing)):
                    of_model.take(row)
            except ExecutorError as error:
                failure = error
        if of_model.owner is None:
            raise ModelError(f"no worker could begin with a model, {_MAX_ROUNDS} times: {failure}")
        for clip in of_model.missing():
            of_model.leave_out(
                clip,
                f"no worker was done with it, {_MAX_ROUNDS} times{f' ({failure})' if failure else ''}",
            )


@contextmanager
def _make_report(folder: RunFolder) -> Iterator[tuple[RunFolder, Path]]:
    """A folder for notes of workers, and the run's folder, which workers that have another working
    directory find, too."""
    resolved_folder = RunFolder(folder.path.resolve())
    notes = resolved_folder.path / "results" / f".attempts-{secrets.token_hex(4)}"
    for former in resolved_folder.path.glob("results/.attempts-*"):
        shutil.rmtree(former, ignore_errors=True)  # deaths with a driver are no clip's fault
    yield resolved_folder, notes
    shutil.rmtree(notes, ignore_errors=True)


def split_into_blocks(clips: Sequence[Clip], size: int) -> list[pa.Table]:
    """Tables of `size` clips; the name of one is that of its clips, so it is the same in every
    start."""
    tables = []
    for start in range(0, len(clips), size):
        some = clips[start : start + size]
        name = f"block-{digest([clip.name for clip in some])[:16]}"
        tables.append(
            pa.table({"block": [name] * len(some), "clip": [pickle.dumps(clip) for clip in some]})
        )
    return tables


@dataclass
class _ModelBlocks:
    """What the driver has heard of one model's pass."""

    folder: RunFolder
    ready: Sequence[Clip]
    run: Run
    report: Report
    own_kinds: frozenset[str] | None = None
    owner: Owner | None = None
    _rows: dict[str, JsonObject] = field(default_factory=dict)  # by clip
    _unmerged: dict[str, list[str]] = field(default_factory=dict)  # clips by block

    def missing(self) -> list[Clip]:
        """Clips of which nothing was heard."""
        return [clip for clip in self.ready if clip.name not in self._rows]

    def take(self, row: JsonObject) -> None:
        """Take a clip's row; SpeechmixError if a worker cannot go on, and no other could."""
        if row["stops"]:
            raise _STOPPING_ERRORS.get(row["stops"], SpeechmixError)(row["reason"])
        for line in row["lines"]:
            self.report(line)
        if self.owner is None:
            self.owner = Owner(**json.loads(row["owner"]))
        self._rows[row["clip"]] = {
            name: row[name] for name in ("clip", "keys", "reason", "is_heard")
        }
        self._unmerged.setdefault(row["block"], []).append(row["clip"])
        if len(self._unmerged) > _BLOCKS_PER_MERGE:
            self._merge()

    def leave_out(self, clip: Clip, reason: str) -> None:
        """Record a clip of which nothing was heard."""
        self.report(f"{clip.name}  SKIPPED: {reason}")
        self._rows[clip.name] = {
            **result_row(self.owner, clip.name, ""),
            "reason": reason,
            "is_heard": True,
        }

    def _merge(self) -> None:
        """One part file of those of many blocks that are done, so that they stay few however many
        clips there are."""
        *finished_blocks, _last = self._unmerged  # rows of the last may be under way
        keys = [
            key
            for block in finished_blocks
            for name in self._unmerged.pop(block)
            for key in self._keys(name)
        ]
        model_paths = part_paths(self.folder.results_dir(self.owner.label if self.owner else None))
        paths = [path for path in model_paths if path.name.partition(".")[0] in finished_blocks]
        if self.owner is not None and len(paths) > 1:
            with self._results(self.owner, paths) as results:
                results.compact([key for key in keys if key in results])

    def _results(self, owner: Owner, paths: Sequence[Path] | None = None) -> Results:
        return Results(
            self.folder, owner, Shard(), self.report, paths=paths, own_kinds=self.own_kinds
        )

    def _keys(self, name: str) -> list[Key]:
        return [Key(name, kind, question) for kind, question in self._rows[name]["keys"]]

    def reasons(self) -> dict[str, str | None]:
        """Return None, or why it failed, of each clip, once what workers wrote is seen here."""
        self._wait([key for name in self._rows for key in self._keys(name)])
        return {name: row["reason"] for name, row in self._rows.items()}

    def settled(self) -> list[Part]:
        """Count what was done, and return the part files of the model, as a single process makes
        them."""
        owner = self.owner or Owner()
        rows = [self._rows[clip.name] for clip in self.ready if self._rows[clip.name]["is_heard"]]
        for row in rows:
            if row["reason"] is None:
                self.run.done += 1
            else:
                self.run.skip(row["clip"], row["reason"], str(owner.label))
        keys = [key for row in rows for key in self._keys(row["clip"])]
        with self._wait(keys) as results:
            return results.compact(keys)

    def _wait(self, keys: Sequence[Key]) -> Results:
        """Return what workers wrote once it is seen here: network file systems show it a little
        later."""
        for last in (False,) * _LOOKS + (True,):
            results = self._results(self.owner or Owner())
            unseen = [key for key in keys if key not in results]
            if not unseen:
                return results
            if not last:
                time.sleep(_SECONDS_BETWEEN_LOOKS)
        others = len({key.clip for key in unseen}) - 1
        raise StorageError(
            f"{self.folder.path} lacks what workers wrote of {unseen[0].clip!r} and {others} other "
            "clips: has it the same path "
            "on all machines? The same command makes what is missing"
        )
