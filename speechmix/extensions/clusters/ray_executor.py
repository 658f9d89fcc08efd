"""Ray Data as the executor of a run: the same stages and the same folder, clips handed out to workers
on one machine or many.

In: a pass of one model and clips. Out: the rows of actors that hold the model (block_worker.py),
small, as blocks are done. What is done with them is below.

What was learned of Ray Data by trying it is followed here, each rule where it applies. Two go for
the whole:

- The checkpoint is the part files. That of Ray (`CheckpointConfig`) is one of whole blocks that
  were read, mapped and written: a driver killed early found nothing there, and it would have to be
  kept in step with results, which know it themselves.
- Ray reads no table: a job dies if a node does while the footers of Parquet files are read. Clips
  come from the driver.

The machine that the driver is on must stay: with it go the driver, and the clips that it has not
given out.

Driver that hands out blocks of clips to workers.

In: what a run of one process takes, and an executor that carries blocks to workers (block_worker.py)
and their rows back, in any order. Out: the folder of one process, file by file. Part files of many
blocks are merged on the way, so that they stay few; clips of which nothing was heard are given out
again, a few times.
"""

from __future__ import annotations

import json
import math
import os
import pickle
import secrets
import shutil
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ...adapters.model import Model
from ...errors import (
    AlignmentError,
    InputError,
    MissingExtraError,
    ModelError,
    SpeechmixError,
    StorageError,
)
from ...files.cache_keys import digest
from ...files.json_files import JsonObject
from ...files.names import refuse_duplicate_label
from ...files.shard_assignment import Shard
from ...inputs.clips.clip import Clip
from ...runs.clip_aligner import AlignmentRun, ClipAligner
from ...runs.job_execution import StartedJob
from ...runs.progress import ALIGN, Progress, show_progress
from ...runs.results.clip_result_files import Owner, Part, part_paths
from ...runs.results.result_store import Key, Results
from ...runs.results.run_folder import RunFolder
from ...runs.score_clips import RunJob
from ...runs.scored_run import Run
from .block_worker import ROW, BlockWorker, Pass, result_row

if TYPE_CHECKING:
    from ray.data import Dataset


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
        run = AlignmentRun(aligner.options)
        alignment = _ModelBlocks(folder, clips, started.run, job.report, run.own_kinds)
        with self.connected(), _make_report(folder) as (resolved_folder, notes):
            parts = tuple(resolved_folder.part_files())
            clip_pass = Pass(resolved_folder.path, job.aligner, run, (), parts, notes)
            self._score_model(alignment, clip_pass, job.progress, ALIGN)
        return alignment.reasons()

    def _compute(self, started: StartedJob) -> None:
        """Compute all kinds with one model after the other; record the part files in the completion
        record.

        One after the other, so that no worker holds two models, and a random twin finds what its
        trained model generated. InputError if a model is no function that loads one; SpeechmixError
        if a worker cannot load a model or write to the folder.
        """
        job, folder, run = started.job, started.folder, started.model_run
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
                    run,
                    tuple(owners),
                    tuple(resolved_folder.part_files()),
                    notes / str(len(owners)),
                )
                of_model = _ModelBlocks(
                    folder, started.ready, started.run, job.report, run.own_kinds
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


FEWEST, MOST = (
    16,
    64,
)  # clips in a block: a death costs a block at most, and a block costs Ray some milliseconds
_BLOCKS_PER_WORKER = 8  # at least, where there are clips enough: workers then end together
# blocks given to an actor at a time: one is at hand when another is done, and few wait for a slow
# one
_MAX_BLOCKS_IN_FLIGHT = 2
_OBJECT_STORE_SHARE = (
    2**28
)  # bytes, of a Ray started here: rows are small, and its own choice is a third of the memory


@dataclass(frozen=True)
class RayExecutor(BlockExecutor):
    """Work through a run on a Ray cluster, or on this machine with Ray (extra ``cluster``).

    Give it to `score_clips` as ``executor``, with models as functions that load them, e.g.
    ``functools.partial(speechmix.load, "openai/whisper-small")``: every worker loads its own.

    Parameters
    ----------
    address : str, optional
        Of a cluster ("auto", "ray-head:6379"); without it what RAY_ADDRESS says, or a Ray of this
        machine alone.
    workers : int, optional
        At most so many at a time; as many as there is room for by default. The pool grows as
        machines come and shrinks as they go.
    gpus : float, optional
        Of each worker; by default one, if the cluster has any, and else none.

    Examples
    --------
    >>> RayExecutor().block_size(10_000, 4), RayExecutor().block_size(1_000, 4), RayExecutor().block_size(100, 4)
    (64, 32, 16)
    """

    address: str | None = None
    workers: int | None = None
    gpus: float | None = None

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise InputError(f"expected at least one worker, found {self.workers}")

    @staticmethod
    def block_size(clips: int, workers: int) -> int:
        """Clips in a block."""
        return min(max(math.ceil(clips / (_BLOCKS_PER_WORKER * workers)), FEWEST), MOST)

    def rows(self, clip_pass: Pass, clips: Sequence[Clip]) -> Iterator[JsonObject]:
        """Rows of the clips, in the order in which blocks are done."""
        import ray

        resources = ray.cluster_resources()
        gpus = self.gpus if self.gpus is not None else float(resources.get("GPU", 0) > 0)
        room = max(int(resources.get("GPU", 0) / gpus if gpus else resources.get("CPU", 1)), 1)
        max_workers = self.workers or room
        blocks = split_into_blocks(clips, self.block_size(len(clips), min(max_workers, room)))
        # Blocks are made here, of few clips each: Ray itself makes one of a short list, which one
        # death would throw back to its beginning. A pool of fixed size hangs when one of its actors
        # is lost for good (ray issue
        # 62746).
        pool = ray.data.ActorPoolStrategy(
            min_size=1,
            max_size=self.workers or max(len(blocks), 1),
            initial_size=min(max_workers, room, max(len(blocks), 1)),
            max_tasks_in_flight_per_actor=_MAX_BLOCKS_IN_FLIGHT,
        )
        dataset: Dataset = ray.data.from_arrow(blocks).map_batches(
            RayWorker,
            fn_constructor_kwargs={"pickled_pass": ray.cloudpickle.dumps(clip_pass)},
            batch_size=None,
            batch_format="pyarrow",
            compute=pool,
            num_cpus=None if gpus else 1,
            num_gpus=gpus or None,
        )
        tables: Iterable[Any] = dataset.iter_batches(
            batch_size=None, batch_format="pyarrow", prefetch_batches=0
        )
        try:
            for table in tables:
                yield from table.to_pylist()
        except ray.exceptions.RayError as error:
            raise ExecutorError(str(error)) from error

    @contextmanager
    def connected(self) -> Iterator[None]:
        """Be connected to a cluster, or to a Ray of this machine; what was connected before stays
        so."""
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is told to anyone
        try:
            import ray
            import ray.data
        except ImportError as error:
            raise MissingExtraError("ray", "cluster", "Ray as the executor of a run") from error
        is_ours = not ray.is_initialized()
        if is_ours:
            address = self.address or os.environ.get("RAY_ADDRESS") or "local"
            options: JsonObject = {"logging_level": "warning", "log_to_driver": False}
            if address == "local":
                options |= {"object_store_memory": _OBJECT_STORE_SHARE, "include_dashboard": False}
            try:
                ray.init(address=address, **options)
            except (ConnectionError, ValueError, RuntimeError) as error:
                raise InputError(
                    f"no Ray at {address} ({error}): start it, or say where it is, --engine ray:HOST:PORT"
                ) from error
        context = ray.data.DataContext.get_current()
        former = context.enable_progress_bars, context.print_on_execution_start
        context.enable_progress_bars = context.print_on_execution_start = (
            False  # there is a bar of our own, in clips
        )
        try:
            yield
        finally:
            context.enable_progress_bars, context.print_on_execution_start = former
            if is_ours:
                ray.shutdown()


class RayWorker:
    """A `BlockWorker` as an actor of Ray Data; its argument is a pickled `Pass`.

    A lasting failure is a row: an actor that raises is started again for ever.
    """

    def __init__(self, pickled_pass: bytes):
        import ray

        self._failure: Exception | None = None
        try:
            self._worker = BlockWorker(
                pickle.loads(pickled_pass),
                ray.get_runtime_context().get_node_id(),
                count_alive_nodes,
            )
        except Exception as error:  # also one that nobody foresaw, in a function that loads a model
            self._failure = error

    def __call__(self, clips: pa.Table) -> pa.Table:
        """Work on a block."""
        block = clips["block"][0].as_py()
        try:
            if self._failure is not None:
                raise self._failure
            rows = list(
                self._worker.rows(block, [pickle.loads(clip.as_py()) for clip in clips["clip"]])
            )
        except Exception as error:
            rows = [
                {
                    **result_row(None, "", block),
                    "stops": type(error).__name__,
                    "reason": _format_failure(error, len(clips)),
                }
            ]
        return pa.Table.from_pylist(rows, schema=ROW)


def _format_failure(error: Exception, clips: int) -> str:
    """What the driver says; of an error that nobody foresaw also where it was raised."""
    if isinstance(error, SpeechmixError):
        return str(error)
    *_, last_frame = traceback.extract_tb(error.__traceback__)
    return (
        f"a worker stopped at a block of {clips} clips: {type(error).__name__}: {error} "
        f"({last_frame.filename}, line {last_frame.lineno})"
    )


def count_alive_nodes() -> frozenset[str]:
    """Machines of the cluster that are alive."""
    import ray

    return frozenset(node["NodeID"] for node in ray.nodes() if node["Alive"])
