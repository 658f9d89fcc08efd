"""Ray Data as the engine of a run: the same stages and the same folder, clips handed out to workers on one machine or many.

In: what a run of one process takes. Out: what it leaves, file by file. The driver makes blocks of clips and gives them to Ray
Data; an actor holds one model (block_worker.py) and returns a small row for each clip; the driver merges part files on the
way, and at the end of a model makes the one part of them that a single process makes.

What was learned of Ray Data by trying it is followed here, each rule where it applies. Two go for the whole:

- The checkpoint is the part files. That of Ray (`CheckpointConfig`) is one of whole blocks that were read, mapped and written:
  a driver killed early found nothing there, and it would have to be kept in step with results, which know it themselves.
- Ray reads no table: a job dies if a node does while the footers of Parquet files are read. Clips come from the driver.

The machine that the driver is on must stay: with it go the driver, and the clips that it has not given out.
"""

from __future__ import annotations

import json
import math
import os
import pickle
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from .. import errors
from ..adapters.model import Model
from ..errors import InputError, MissingExtraError, ModelError, SpeechmixError, StorageError
from ..files.identity import digest
from ..files.shards import Shard
from ..inputs.clips import Clip
from .aligned_clips import shown
from .block_worker import ROW, BlockWorker, Pass, row_of
from .folder import RunFolder
from .merging import Marker
from .model_run import Wanted
from .part_files import Owner, Part, part_paths
from .results import Key, Results
from .run import Run, refuse_doubled_label

if TYPE_CHECKING:
    from ray.data import Dataset

Report = Callable[[str], None]
Load = Callable[[], Model]

FEWEST, MOST = 16, 64  # clips in a block: a death costs a block at most, and a block costs Ray some milliseconds
_BLOCKS_OF_A_WORKER = 8  # at least, where there are clips enough: workers then end together
_MERGED_TOGETHER = 32  # blocks whose part files become one
_ROUNDS = 3  # of a model: what came to nothing is given out again
_IN_FLIGHT = 2  # blocks given to an actor at a time: one is at hand when another is done, and few wait for a slow one
_LOOKS, _SECONDS_BETWEEN_LOOKS = 10, 6.0  # for what workers have written
_OBJECT_STORE = 2**28  # bytes, of a Ray started here: rows are small, and its own choice is a third of the memory


@dataclass(frozen=True)
class RayEngine:
    """Work through a run on a Ray cluster, or on this machine with Ray (extra ``cluster``).

    Give it to `score_clips` as ``engine``, with models as functions that load them, e.g.
    ``functools.partial(speechmix.load, "openai/whisper-small")``: every worker loads its own.

    Parameters
    ----------
    address : str, optional
        Of a cluster ("auto", "ray-head:6379"); without it what RAY_ADDRESS says, or a Ray of this machine alone.
    workers : int, optional
        At most so many at a time; as many as there is room for by default. The pool grows as machines come and shrinks as they
        go.
    gpus : float, optional
        Of each worker; by default one, if the cluster has any, and else none.

    Examples
    --------
    >>> RayEngine().block_size(10_000, 4), RayEngine().block_size(1_000, 4), RayEngine().block_size(100, 4)
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
        return min(max(math.ceil(clips / (_BLOCKS_OF_A_WORKER * workers)), FEWEST), MOST)

    def score(
        self,
        run: Run,
        folder: RunFolder,
        models: Iterable[Model | Load],
        ready: Sequence[Clip],
        wanted: Wanted,
        marker: Marker,
        report: Report,
        progress: bool,
    ) -> None:
        """Score the clips with one model after the other, and note in the marker where its results are.

        One after the other, so that no worker holds two models, and a random twin finds what its trained model wrote.

        Raises
        ------
        InputError
            If a model is no function that loads one.
        SpeechmixError
            If a model cannot be loaded, or the folder cannot be written to, by a worker.
        """
        labels: dict[Any, str] = {}
        owners: list[Owner] = []
        notes = RunFolder(folder.path.resolve()).path / "results" / f".attempts-{secrets.token_hex(4)}"
        for former in folder.path.glob("results/.attempts-*"):  # deaths that went with a driver are no clip's fault
            shutil.rmtree(former, ignore_errors=True)
        with self._connected(progress):
            for load in models:
                if isinstance(load, Model):
                    raise InputError(
                        f"expected functions that load a model, for each worker loads its own, found {load.label}: give "
                        "functools.partial(speechmix.load, ...)"
                    )
                asked = Pass(folder.path.resolve(), load, wanted, tuple(owners), tuple(folder_parts(folder)), notes)
                of_model = _OfModel(folder, ready, run, report)
                self._score_model(of_model, asked, progress)
                if of_model.owner is not None:
                    refuse_doubled_label(labels, of_model.owner.label)
                    owners.append(of_model.owner)
                    marker.add(folder, of_model.owner, of_model.settled(), probed=of_model.probed)
        shutil.rmtree(notes, ignore_errors=True)

    def _score_model(self, of_model: _OfModel, asked: Pass, progress: bool) -> None:
        """Give the clips out, and again those of which nothing was heard."""
        import ray

        failure: Exception | None = None
        for _ in range(_ROUNDS):
            missing = of_model.missing()
            if not missing:
                return
            rows = self._rows(asked, missing)
            try:
                for row in shown(rows, progress, "score", total=len(missing)):
                    of_model.take(row)
            except ray.exceptions.RayError as error:
                failure = error
        if of_model.owner is None:
            raise ModelError(f"no worker could begin with a model, {_ROUNDS} times: {failure}")
        for clip in of_model.missing():
            of_model.leave_out(clip, f"no worker was done with it, {_ROUNDS} times{f' ({failure})' if failure else ''}")

    def _rows(self, asked: Pass, clips: Sequence[Clip]) -> Iterator[dict[str, Any]]:
        """Rows of the clips, in the order in which blocks are done."""
        import ray

        resources = ray.cluster_resources()
        gpus = self.gpus if self.gpus is not None else float(resources.get("GPU", 0) > 0)
        room = max(int(resources.get("GPU", 0) / gpus if gpus else resources.get("CPU", 1)), 1)
        most = self.workers or room
        blocks = blocks_of(clips, self.block_size(len(clips), min(most, room)))
        # Blocks are made here, of few clips each: Ray itself makes one of a short list, which one death would throw back to its
        # beginning. A pool of fixed size hangs when one of its actors is lost for good (ray issue 62746).
        pool = ray.data.ActorPoolStrategy(
            min_size=1, max_size=self.workers or max(len(blocks), 1), initial_size=min(most, room, max(len(blocks), 1)),
            max_tasks_in_flight_per_actor=_IN_FLIGHT,
        )  # fmt: skip
        dataset: Dataset = ray.data.from_arrow(blocks).map_batches(
            RayWorker,
            fn_constructor_kwargs={"asked": ray.cloudpickle.dumps(asked)},
            batch_size=None,
            batch_format="pyarrow",
            compute=pool,
            num_cpus=None if gpus else 1,
            num_gpus=gpus or None,
        )
        tables: Iterable[Any] = dataset.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0)
        for table in tables:
            yield from table.to_pylist()

    @contextmanager
    def _connected(self, progress: bool) -> Iterator[None]:
        """Be connected to a cluster, or to a Ray of this machine; what was connected before stays so."""
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is told to anyone
        try:
            import ray
            import ray.data
        except ImportError as error:
            raise MissingExtraError("ray", "cluster", "Ray as the engine of a run") from error
        is_ours = not ray.is_initialized()
        if is_ours:
            address = self.address or os.environ.get("RAY_ADDRESS") or "local"
            options: dict[str, Any] = {"logging_level": "warning", "log_to_driver": False}
            if address == "local":
                options |= {"object_store_memory": _OBJECT_STORE, "include_dashboard": False}
            try:
                ray.init(address=address, **options)
            except (ConnectionError, ValueError, RuntimeError) as error:
                raise InputError(
                    f"no Ray at {address} ({error}): start it, or say with --address where it is"
                ) from error
        context = ray.data.DataContext.get_current()
        former = context.enable_progress_bars, context.print_on_execution_start
        context.enable_progress_bars = context.print_on_execution_start = False  # there is a bar of our own, in clips
        try:
            yield
        finally:
            context.enable_progress_bars, context.print_on_execution_start = former
            if is_ours:
                ray.shutdown()


class RayWorker:
    """A `BlockWorker` as an actor of Ray Data; what goes wrong for good is a row, for an actor that raises is started for ever.

    Parameters
    ----------
    asked : bytes
        A `Pass`.
    """

    def __init__(self, asked: bytes):
        import ray

        self._failure: SpeechmixError | None = None
        try:
            self._worker = BlockWorker(pickle.loads(asked), ray.get_runtime_context().get_node_id(), alive_nodes)
        except SpeechmixError as error:
            self._failure = error

    def __call__(self, clips: pa.Table) -> pa.Table:
        """Work on a block."""
        block = clips["block"][0].as_py()
        try:
            if self._failure is not None:
                raise self._failure
            rows = list(self._worker.rows(block, [pickle.loads(clip.as_py()) for clip in clips["clip"]]))
        except SpeechmixError as error:
            rows = [{**row_of(None, "", block), "stops": type(error).__name__, "reason": str(error)}]
        return pa.Table.from_pylist(rows, schema=ROW)


def alive_nodes() -> frozenset[str]:
    """Machines of the cluster that are alive."""
    import ray

    return frozenset(node["NodeID"] for node in ray.nodes() if node["Alive"])


def folder_parts(folder: RunFolder) -> list[Path]:
    """Part files that are there, with whole paths."""
    return RunFolder(folder.path.resolve()).part_files()


def blocks_of(clips: Sequence[Clip], size: int) -> list[pa.Table]:
    """Tables of `size` clips; the name of one is that of its clips, so it is the same in every start."""
    tables = []
    for start in range(0, len(clips), size):
        some = clips[start : start + size]
        name = f"block-{digest([clip.name for clip in some])[:16]}"
        tables.append(pa.table({"block": [name] * len(some), "clip": [pickle.dumps(clip) for clip in some]}))
    return tables


@dataclass
class _OfModel:
    """What the driver has heard of one model's pass."""

    folder: RunFolder
    ready: Sequence[Clip]
    run: Run
    report: Report
    owner: Owner | None = None
    probed: bool = False
    _rows: dict[str, dict[str, Any]] = field(default_factory=dict)  # by clip
    _unmerged: dict[str, list[str]] = field(default_factory=dict)  # clips by block

    def missing(self) -> list[Clip]:
        """Clips of which nothing was heard."""
        return [clip for clip in self.ready if clip.name not in self._rows]

    def take(self, row: dict[str, Any]) -> None:
        """Take a clip's row.

        Raises
        ------
        SpeechmixError
            If a worker says that it cannot go on, and no other could.
        """
        if row["stops"]:
            raise getattr(errors, row["stops"], SpeechmixError)(row["reason"])
        for line in row["lines"]:
            self.report(line)
        if self.owner is None:
            self.owner, self.probed = Owner(**json.loads(row["owner"])), row["probed"]
        self._rows[row["clip"]] = {name: row[name] for name in ("clip", "keys", "reason", "is_heard")}
        self._unmerged.setdefault(row["block"], []).append(row["clip"])
        if len(self._unmerged) > _MERGED_TOGETHER:
            self._merge()

    def leave_out(self, clip: Clip, reason: str) -> None:
        """Record a clip of which nothing was heard."""
        self.report(f"{clip.name}  SKIPPED: {reason}")
        self._rows[clip.name] = {**row_of(self.owner, clip.name, ""), "reason": reason, "is_heard": True}

    def _merge(self) -> None:
        """One part file of those of many blocks that are done, so that they stay few however many clips there are."""
        *done, _last = self._unmerged  # rows of the last may be under way
        keys = [key for block in done for name in self._unmerged.pop(block) for key in self._keys(name)]
        parts = part_paths(self.folder.results(self.owner.label if self.owner else None))
        paths = [path for path in parts if path.name.partition(".")[0] in done]
        if self.owner is not None and len(paths) > 1:
            with Results(self.folder, self.owner, Shard(), self.report, paths=paths) as results:
                results.settled([key for key in keys if key in results])

    def _keys(self, name: str) -> list[Key]:
        return [Key(name, kind, question) for kind, question in self._rows[name]["keys"]]

    def settled(self) -> Part | None:
        """Count what was done, and return the one part file of the model, as a single process makes it."""
        assert self.owner is not None
        rows = [self._rows[clip.name] for clip in self.ready if self._rows[clip.name]["is_heard"]]
        for row in rows:
            if row["reason"] is None:
                self.run.done += 1
            else:
                self.run.skip(row["clip"], row["reason"], self.owner.label)
        return self._settled([key for row in rows for key in self._keys(row["clip"])])

    def _settled(self, keys: Sequence[Key]) -> Part | None:
        """One part of what workers have written, as soon as it is seen here: a network file system shows it a little later."""
        for last in (False,) * _LOOKS + (True,):
            with Results(self.folder, self.owner or Owner(), Shard(), self.report) as results:
                unseen = [key for key in keys if key not in results]
                if not unseen:
                    return results.settled(keys)
            if not last:
                time.sleep(_SECONDS_BETWEEN_LOOKS)
        others = len({key.clip for key in unseen}) - 1
        raise StorageError(
            f"{self.folder.path} lacks what workers wrote of {unseen[0].clip!r} and {others} other clips: has it the same path "
            "on all machines? The same command makes what is missing"
        )
