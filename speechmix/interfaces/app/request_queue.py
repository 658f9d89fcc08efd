"""One request works at a time, the others wait their turn: in the order in which they came, and
each is told its place.

In: functions that are told how to say how far they are. Out: `QueuedRequest`s that can be watched, waited for
and taken back while they wait. An error of this package is an answer; any other is written to
standard error, and the next job is done all the same.
"""

from __future__ import annotations

import secrets
import sys
import threading
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...errors import InputError, SpeechmixError

WAITING, WORKING, DONE, FAILED, CANCELLED = "waiting", "working", "done", "failed", "cancelled"
_MOST_WAITING = 32
_SECONDS_TO_END = 10.0
_MOST_REMEMBERED = (
    _MOST_WAITING  # jobs that are over; their answers may be large, and are fetched at once
)


class QueueFull(InputError):
    """Too many requests wait already."""


@dataclass
class QueuedRequest:
    """A request that waits, works or is over.

    Attributes
    ----------
    id : str
    state : {"waiting", "working", "done", "failed", "cancelled"}
    note : str
        What is being done.
    done, total : int
        Steps.
    answer : object
        What came out; of a failed one the reason (str).
    changed : int
        Version of the queue at its last change, so that one who watches knows what is new.
    seconds : float
        That it took.
    """

    id: str
    work: Callable[[Callable[[str, int, int], None]], Any] = field(repr=False)
    state: str = WAITING
    note: str = ""
    done: int = 0
    total: int = 0
    answer: Any = None
    changed: int = 0
    seconds: float = 0.0

    @property
    def over(self) -> bool:
        return self.state in (DONE, FAILED, CANCELLED)


class QueuePosition(NamedTuple):
    """A job, and how many come before it, that at work included."""

    job: QueuedRequest
    before: int


class RequestQueue:
    """A queue with one worker. Close it, or use it as a context manager.

    Examples
    --------
    >>> with RequestQueue() as turns:
    ...     job = turns.take(lambda told: 6 * 7)
    ...     turns.wait(job.id).answer
    42
    """

    def __init__(self) -> None:
        self._jobs: OrderedDict[str, QueuedRequest] = OrderedDict()
        self._changed = threading.Condition()
        self._closed = False
        self._version = 0
        self._worker = threading.Thread(target=self._work, name="speechmix-turns", daemon=True)
        self._worker.start()

    def __enter__(self) -> RequestQueue:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def take(self, work: Callable[[Callable[[str, int, int], None]], Any]) -> QueuedRequest:
        """Put work at the end of the queue.

        Raises
        ------
        Busy
            If too many wait.
        """
        with self._changed:
            waiting = sum(job.state == WAITING for job in self._jobs.values())
            if waiting >= _MOST_WAITING or self._closed:
                raise QueueFull(f"{waiting} requests wait already: try again when some are done")
            job = QueuedRequest(secrets.token_urlsafe(9), work)
            self._jobs[job.id] = job
            self._forget()
            self._tell(job)
            return job

    def cancel(self, name: str) -> bool:
        """Take back a job that still waits; False if it is at work or over."""
        with self._changed:
            job = self._job(name)
            if job.state != WAITING:
                return False
            job.state = CANCELLED
            self._tell(job)
            return True

    def watch(self, since: int, seconds: float) -> tuple[int, list[QueuePosition]]:
        """Wait until anything has changed since a version; return the version now, and jobs that
        have changed or wait.

        One who watches needs one connection, whatever the number of requests.

        Parameters
        ----------
        since : int
            A version that was returned before; 0 at first.
        seconds : float
            How long to wait at most.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._version > since, seconds)
            jobs = [
                job for job in self._jobs.values() if job.changed > since or job.state == WAITING
            ]
            return self._version, [self._standing(job) for job in jobs]

    def standing(self, name: str) -> QueuePosition:
        """How one job stands.

        Raises
        ------
        InputError
            If there is no such job.
        """
        with self._changed:
            return self._standing(self._job(name))

    def wait(self, name: str) -> QueuedRequest:
        """Return a job when it is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._job(name).over)
            return self._job(name)

    def close(self) -> None:
        """Take no more work; what is at work may end within some seconds."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._worker.join(_SECONDS_TO_END)

    def _job(self, name: str) -> QueuedRequest:
        if name not in self._jobs:
            raise InputError("this request is not known (any more): ask again")
        return self._jobs[name]

    def _standing(self, job: QueuedRequest) -> QueuePosition:
        before = 0
        for other in self._jobs.values():
            if other is job:
                break
            before += other.state in (WAITING, WORKING)
        return QueuePosition(job, before if job.state == WAITING else 0)

    def _tell(self, job: QueuedRequest) -> None:
        self._version += 1
        job.changed = self._version
        self._changed.notify_all()

    def _forget(self) -> None:
        over = [job.id for job in self._jobs.values() if job.over]
        for name in over[: max(0, len(over) - _MOST_REMEMBERED)]:
            del self._jobs[name]

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._next() is not None)
                job = self._next()
                if self._closed or job is None:
                    return
                job.state = WORKING
                self._tell(job)
            started = time.monotonic()
            state, answer = self._answered(job)
            with self._changed:
                job.state, job.answer, job.seconds = state, answer, time.monotonic() - started
                self._tell(job)

    def _next(self) -> QueuedRequest | None:
        return next((job for job in self._jobs.values() if job.state == WAITING), None)

    def _answered(self, job: QueuedRequest) -> tuple[str, Any]:
        def told(note: str, done: int, total: int) -> None:
            with self._changed:
                job.note, job.done, job.total = note, done, total
                self._tell(job)

        try:
            return DONE, job.work(told)
        except SpeechmixError as error:
            return FAILED, str(error)
        except Exception as error:  # one request ends, the page goes on
            traceback.print_exc(file=sys.stderr)
            return (
                FAILED,
                f"unexpected {type(error).__name__}: {error}; the terminal has the details",
            )
