"""Process of one local worker, which runs one shard.

In: a `RunJob`, a shard and a channel. Out: messages: lines, clips that are behind it, and at the end
what was done, or why it cannot be. SIGTERM, and the death of the process that started it, have it
write what it has and end.
"""

from __future__ import annotations

import _thread
import pickle
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from threading import Thread

from ...errors import AlignmentError, InputError, ModelError, SpeechmixError, StorageError
from ...files.shard_assignment import Shard
from ..progress import ALIGN
from ..run_job import RunJob

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
        say(*_run_job(job, shard, say))
    except KeyboardInterrupt:
        sys.exit(130)
    except SpeechmixError as error:
        kinds = (InputError, ModelError, AlignmentError, StorageError)
        say(
            FAILED,
            next((kind for kind in kinds if isinstance(error, kind)), SpeechmixError),
            str(error),
        )


def _run_job(
    pickled: bytes, shard: str, say: Callable[..., None]
) -> tuple[str, int, list[dict[str, str]]]:
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
