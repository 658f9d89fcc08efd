"""Ray Data as the executor of a run: the same stages and the same folder, clips handed out to workers
on one machine or many.

In: a pass of one model and clips. Out: the rows of actors that hold the model (block_worker.py),
small, as blocks are done. What is done with them is in block_driver.py.

What was learned of Ray Data by trying it is followed here, each rule where it applies. Two go for
the whole:

- The checkpoint is the part files. That of Ray (`CheckpointConfig`) is one of whole blocks that
  were read, mapped and written: a driver killed early found nothing there, and it would have to be
  kept in step with results, which know it themselves.
- Ray reads no table: a job dies if a node does while the footers of Parquet files are read. Clips
  come from the driver.

The machine that the driver is on must stay: with it go the driver, and the clips that it has not
given out.
"""

from __future__ import annotations

import math
import os
import pickle
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ...errors import InputError, MissingExtraError, SpeechmixError
from ...files.json_files import JsonObject
from ...inputs.clips.clip import Clip
from .block_driver import BlockExecutor, ExecutorError, split_into_blocks
from .block_worker import ROW, BlockWorker, Pass, result_row

if TYPE_CHECKING:
    from ray.data import Dataset

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
                    f"no Ray at {address} ({error}): start it, or say with --address where it is"
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
