"""Run a job in several processes of one machine, one GPU or core share each.

In: a job, with models as functions that load them. Out: the run
of one process: of four, worker 3 does shard 3/4 of it in the same folder (files/shard_assignment.py), and the
one that ends last writes the tables. What workers say comes here, with their number; one that dies
is started again once; when this process is stopped, or dies, they write what they have and end.

Process of one local worker, which runs one shard.

In: a `RunJob`, a shard and a channel. Out: messages: lines, clips that are behind it, and at the end
what was done, or why it cannot be. SIGTERM, and the death of the process that started it, have it
write what it has and end.

Why no pool of loky (3.7): where one of its workers is killed, it kills the others, which write nothing
of what they have, and takes no further work; its workers do not end when the process that started them
is killed; and all of them see the same GPU.

Plan the number of workers and their share of GPUs and cores.

In: sources of models, a device, a worker's number. Out: how many workers; variables that the
process of one is started with.
"""

from __future__ import annotations

import _thread
import os
import pickle
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import torch

from ...adapters.capture.module_access import free_bytes, weight_bytes
from ...adapters.model import Model
from ...errors import AlignmentError, InputError, ModelError, SpeechmixError, StorageError
from ...files.shard_assignment import Shard
from ...inputs.clips.clip import Clip
from ..progress import ALIGN, Progress
from ..results.run_folder import RunFolder
from ..run_status import find_shard_clips
from ..score_clips import RunJob
from ..scored_run import Run
from ..shard_merge import drop_repeated_reasons

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess


LINE, CLIP, DONE, FAILED = "line", "clip", "done", "failed"


def start_worker_process(job: bytes, shard: str, channel: Connection) -> None:
    """Do a shard of a pickled job in this process, which is there for nothing else."""
    # Ctrl-C is for the process that started this one, which says what follows.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _stop)
    Thread(target=_stop_when_parent_ends, daemon=True).start()

    def say(*message: object) -> None:
        with suppress(OSError):  # nobody listens any more
            channel.send(message)

    try:
        say(*run_pickled_job(job, shard, say))
    except KeyboardInterrupt:
        sys.exit(130)
    except SpeechmixError as error:
        say(*failure_message(error))


def failure_message(error: SpeechmixError) -> tuple[str, type[SpeechmixError], str]:
    """The message of an error, as a kind of error that is made of a text alone."""
    kinds = (InputError, ModelError, AlignmentError, StorageError)
    kind = next((kind for kind in kinds if isinstance(error, kind)), SpeechmixError)
    return FAILED, kind, str(error)


def run_pickled_job(
    pickled: bytes, shard: str, say: Callable[..., None]
) -> tuple[str, int, list[dict[str, str]]]:
    """Do a shard of a pickled job, and return the message that it is done."""
    try:
        job: RunJob = pickle.loads(pickled)
    except (AttributeError, ImportError) as error:
        raise InputError(
            f"a worker does not find the functions that load models ({error}): put them into a "
            "module that can be imported"
        ) from error

    def tell(stage: str, finished_count: int, total: int) -> None:
        if stage != ALIGN:
            say(CLIP, stage, finished_count, total)

    run = job.with_reports(lambda line: say(LINE, line), tell).run(Shard.parse(shard))
    return DONE, run.done, run.skipped


def _stop(*_: object) -> None:
    signal.signal(
        signal.SIGTERM, signal.SIG_IGN
    )  # once is enough: what is written now is not to be cut short
    raise KeyboardInterrupt


def _stop_when_parent_ends() -> None:
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        _thread.interrupt_main(signal.SIGTERM)


_PROCESS_BYTES = 2**30  # of Python, torch and transformers, and a clip on its way through a model
_GPU_VARIABLES = "CUDA_VISIBLE_DEVICES"


def plan_workers(
    sources: Sequence[str | Path], *, device: str | None = None, revision: str | None = None
) -> int:
    """How many workers are best on this machine, for models of these sources.

    One for each GPU; without one, one for each thread that torch would use in one process
    (`OMP_NUM_THREADS`, else the cores), as long as memory holds twice the weights of the largest
    model, and 1 GiB, for each.

    Parameters
    ----------
    sources : sequence of str or Path
        Folders or hub ids; of one that is not on this machine yet, the size is unknown and taken
        for nothing.
    device : str, optional
        As in `speechmix.load`: "cpu" leaves GPUs alone, "cuda:1" is one GPU.
    revision : str, optional

    Examples
    --------
    >>> plan_workers([], device="cuda:1")
    1
    """
    if device not in (None, "cpu", "cuda"):
        return 1
    if device != "cpu" and torch.cuda.is_available():
        return torch.cuda.device_count()
    workers = torch.get_num_threads()
    free = free_bytes(torch.device("cpu"))
    if free is None:
        return workers
    largest = max((weight_bytes(source, revision) for source in sources), default=0)
    return max(1, min(workers, free // (2 * largest + _PROCESS_BYTES)))


def assign_gpu(index: int, device: str | None) -> dict[str, str]:
    """Variable that shows a worker one of the GPUs that this process sees, in turn; none to leave
    it as it is."""
    if device not in (None, "cuda") or not torch.cuda.is_available():
        return {}
    names = [name for name in os.environ.get(_GPU_VARIABLES, "").split(",") if name]
    names = names or [*map(str, range(torch.cuda.device_count()))]
    return {_GPU_VARIABLES: names[(index - 1) % len(names)]}


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Have processes that are started now see these variables."""
    original_values = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in original_values.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


MAX_STARTS = 2  # of a worker that dies


@dataclass(frozen=True)
class LocalWorkers:
    """Several processes of this machine do a job, each one shard of it.

    Give it to `score_clips` as ``executor``, with models as functions that load them.

    Parameters
    ----------
    workers : int
        How many (see `speechmix.runs.executors.local_workers.plan_workers`); no more than there
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
        clips, models = job.clips, len([*job.models])
        count = min(self.workers, max(1, len(clips)))
        sent = pickle_job(job)
        threads = {"OMP_NUM_THREADS": str(max(1, torch.get_num_threads() // count))}
        workers = [
            _Worker(Shard(index, count), sent, threads | assign_gpu(index, self.device))
            for index in range(1, count + 1)
        ]
        with progress_bar(len(clips) * models, count, job.progress) as show:
            try:
                _run_workers(workers, clips, job.report, show)
            finally:
                _stop_workers(workers)
        dead = {worker.shard: worker.end() for worker in workers if not worker.is_done}
        raise_for_dead_workers(dead, job, RunFolder(job.out))
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


def raise_for_dead_workers(dead: Mapping[Shard, str], job: RunJob, folder: RunFolder) -> None:
    """Raise an error that names the clips that are missing, where workers died twice; says how, by
    shard."""
    if not dead:
        return
    missing = []
    for shard in dead:
        finished = find_shard_clips(folder, shard, models=len([*job.models]))
        missing += [
            clip.name for clip in job.clips if shard.holds(clip.name) and clip.name not in finished
        ]
    named = ", ".join(missing[:10]) + (
        f" and {len(missing) - 10} more" if len(missing) > 10 else ""
    )
    numbers = ", ".join(f"{shard} ({how})" for shard, how in dead.items())
    raise SpeechmixError(
        f"workers died twice: {numbers}; clips that are missing: "
        f"{named or 'none, but tables are not written'}. What is done "
        f"is kept, `speechmix status {folder.path}` shows it; the same command goes on, with fewer "
        "workers if memory ran out"
    )


def pickle_job(job: RunJob) -> bytes:
    """A job as it is sent to other processes; InputError if it cannot be."""
    if any(isinstance(model, Model) for model in (*job.models, job.aligner)):
        raise InputError(
            "each worker loads its models: expected functions that do, such as "
            "functools.partial(speechmix.load, 'openai/whisper-small'), found a model"
        )
    try:
        return pickle.dumps(job.with_reports(print, False))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise InputError(
            f"the models cannot be sent to a process ({error}): expected functions of a module, or "
            "functools.partial of one, "
            "as functools.partial(speechmix.load, 'openai/whisper-small')"
        ) from error


@contextmanager
def progress_bar(total: int, workers: int, progress: Progress) -> Iterator[Callable[[int], None]]:
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
