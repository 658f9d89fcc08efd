"""Run a job in several processes of one machine, one GPU or core share each.

In: a job, with models as functions that load them. Out: the run
of one process: of four, worker 3 does shard 3/4 of it in the same folder (files/shard_assignment.py), and the
one that ends last writes the tables. What workers say comes here, with their number; one that dies
is started again once; when this process is stopped, or dies, they write what they have and end.
"""

from __future__ import annotations

import pickle
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any

import torch

from ...adapters.model import Model
from ...errors import InputError, SpeechmixError
from ...files.shard_assignment import Shard
from ...inputs.clips.clip import Clip
from ..progress import Progress
from ..results.run_folder import RunFolder
from ..run_job import RunJob
from ..run_status import find_shard_clips
from ..scored_run import Run
from ..shard_merge import drop_repeated_reasons
from .machine_resources import assign_gpu, environment
from .worker_process import CLIP, DONE, FAILED, LINE, start_worker_process

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess

MAX_STARTS = 2  # of a worker that dies


@dataclass(frozen=True)
class LocalWorkers:
    """Several processes of this machine do a job, each one shard of it.

    Give it to `score_clips` as ``executor``, with models as functions that load them.

    Parameters
    ----------
    workers : int
        How many (see `speechmix.runs.executors.machine_resources.plan_workers`); no more than there
        are clips. Each loads the models.
    device : str, optional
        Where the functions load them, as in `speechmix.load`. With "cuda" or None and several GPUs,
        each worker sees one of them alone.

    Raises
    ------
    InputError
        If there is not one worker.

    Examples
    --------
    >>> from functools import partial
    >>> import speechmix
    >>> from speechmix.runs.score_clips import score_clips
    >>> models = [partial(speechmix.load, "openai/whisper-small")]
    >>> clips = speechmix.read_clips("clips.tsv")                             # doctest: +SKIP
    >>> score_clips(models, clips, "run", executor=LocalWorkers(4))           # doctest: +SKIP
    """

    workers: int
    device: str | None = None

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise InputError(f"expected at least one worker, found {self.workers}")

    def execute(self, job: RunJob) -> Run:
        """Do a job by workers that each load its models.

        InputError if a model or the aligner cannot be sent to a process; SpeechmixError if a worker
        died twice. What it and the others did is kept, and the same job goes on there.
        """
        job = replace(job, models=list(job.models))
        if any(isinstance(model, Model) for model in (*job.models, job.aligner)):
            raise InputError(
                "each worker loads its models: expected functions that do, such as "
                "functools.partial(speechmix.load, 'openai/whisper-small'), found a model"
            )
        clips, models = job.clips, len([*job.models])
        count = min(self.workers, max(1, len(clips)))
        sent = _pickle_job(job.with_reports(print, False))
        threads = {"OMP_NUM_THREADS": str(max(1, torch.get_num_threads() // count))}
        workers = [
            _Worker(Shard(index, count), sent, threads | assign_gpu(index, self.device))
            for index in range(1, count + 1)
        ]
        with _progress_bar(len(clips) * models, count, job.progress) as show:
            try:
                _run_workers(workers, clips, job.report, show)
            finally:
                _stop_workers(workers)
        _raise_for_dead_workers(workers, clips, models, RunFolder(job.out))
        run = Run(job.out, done=sum(worker.scored for worker in workers))
        run.skipped += drop_repeated_reasons(row for worker in workers for row in worker.skipped)
        return run


@dataclass
class _Worker:
    """One worker, in the process that started it."""

    shard: Shard
    job: bytes
    environment: Mapping[str, str]
    starts: int = 0
    scored: int = 0
    skipped: list[dict[str, str]] = field(default_factory=list)
    is_done: bool = False
    clips_by_model: dict[str, int] = field(default_factory=dict)  # clips that are behind it
    process: SpawnProcess | None = None
    channel: Connection | None = None

    def start(self) -> Connection:
        """Start the process, or start it again; returns what it is heard by."""
        context = get_context("spawn")
        self.channel, theirs = context.Pipe(duplex=False)
        self.process = context.Process(
            target=start_worker_process,
            args=(self.job, str(self.shard), theirs),
            name=f"worker {self.shard}",
        )
        self.starts += 1
        self.clips_by_model.clear()
        with environment(self.environment):
            self.process.start()
        theirs.close()  # so that the end of the process is the end of what comes
        return self.channel

    def end(self) -> str:
        """Say how it ended."""
        if self.process is None:
            raise RuntimeError("end of a worker that was not started")
        self.process.join()
        code = self.process.exitcode or 0
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"


def _run_workers(
    workers: Sequence[_Worker],
    clips: Sequence[Clip],
    report: Callable[[str], None],
    show: Callable[[int], None],
) -> None:
    """Start workers and read their messages until the last has ended; an error of one is raised
    here."""
    clip_counts = {
        worker.shard: sum(worker.shard.holds(clip.name) for clip in clips) for worker in workers
    }
    at_work = {worker.start(): worker for worker in workers}
    while at_work:
        ready = wait([*at_work])
        for channel in [channel for channel in at_work if channel in ready]:
            worker = at_work[channel]
            try:
                message = channel.recv()
            except (EOFError, OSError):
                del at_work[channel]
                again = None if worker.is_done else _restart_worker(worker, report)
                if again is not None:
                    at_work[again] = worker
                continue
            _handle_message(worker, message, clip_counts[worker.shard], report)
            if message[0] == CLIP:
                show(sum(sum(other.clips_by_model.values()) for other in workers))


def _handle_message(
    worker: _Worker, message: tuple[Any, ...], clip_count: int, report: Callable[[str], None]
) -> None:
    """Handle the message of a worker that has this many clips."""
    kind, *content = message
    if kind == LINE:
        report(f"[{worker.shard}] {content[0]}")
    elif kind == CLIP:
        stage, scored_count, total = content
        worker.clips_by_model[stage] = clip_count - total + scored_count
    elif kind == DONE:
        worker.is_done, worker.scored, worker.skipped = True, *content
    elif kind == FAILED:
        worker.is_done = True
        error, text = content
        raise error(text)


def _restart_worker(worker: _Worker, report: Callable[[str], None]) -> Connection | None:
    """Start a worker that died again, unless it was before; returns what it is heard by."""
    how = worker.end()
    again = worker.starts < MAX_STARTS
    report(
        f"[{worker.shard}] the worker died ({how}): "
        f"{'started again' if again else 'its clips are missing'}"
    )
    return worker.start() if again else None


def _stop_workers(workers: Sequence[_Worker]) -> None:
    """Have workers that are still at work write what they have, and wait until they have ended."""
    processes = [worker.process for worker in workers if worker.process is not None]
    try:
        for worker in workers:
            if worker.process is not None and worker.process.is_alive() and not worker.is_done:
                worker.process.terminate()
            if worker.channel is not None:
                worker.channel.close()  # who still has something to say does not wait to be heard
        for process in processes:
            process.join()
    except KeyboardInterrupt:
        for process in processes:
            process.kill()
        raise


def _raise_for_dead_workers(
    workers: Sequence[_Worker], clips: Sequence[Clip], models: int, folder: RunFolder
) -> None:
    """Raise an error that names the clips that are missing, where a worker died twice."""
    dead = [worker for worker in workers if not worker.is_done]
    if not dead:
        return
    missing = []
    for worker in dead:
        finished = find_shard_clips(folder, worker.shard, models=models)
        missing += [
            clip.name
            for clip in clips
            if worker.shard.holds(clip.name) and clip.name not in finished
        ]
    named = ", ".join(missing[:10]) + (
        f" and {len(missing) - 10} more" if len(missing) > 10 else ""
    )
    numbers = ", ".join(f"{worker.shard} ({worker.end()})" for worker in dead)
    raise SpeechmixError(
        f"workers died twice: {numbers}; clips that are missing: "
        f"{named or 'none, but tables are not written'}. What is done "
        f"is kept, `speechmix status {folder.path}` shows it; the same command goes on, with fewer "
        "workers if memory ran out"
    )


def _pickle_job(job: RunJob) -> bytes:
    try:
        return pickle.dumps(job)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise InputError(
            f"the models cannot be sent to a process ({error}): expected functions of a module, or "
            "functools.partial of one, "
            "as functools.partial(speechmix.load, 'openai/whisper-small')"
        ) from error


@contextmanager
def _progress_bar(total: int, workers: int, progress: Progress) -> Iterator[Callable[[int], None]]:
    """One bar of all workers, or calls of a function; it gets the number of finished (clip, model) pairs."""
    stage = f"score, {workers} workers"
    if callable(progress):
        yield lambda finished_count: progress(stage, finished_count, total)
        return
    if not progress:
        yield lambda done: None
        return
    from tqdm.auto import tqdm

    with tqdm(total=total, desc=stage, unit="clip", leave=False) as bar:

        def show(finished_count: int) -> None:
            bar.n = finished_count
            bar.refresh()

        yield show
