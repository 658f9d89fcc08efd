"""Run requests one at a time, in their order; report the position of those that wait.

In: functions that take a callback for their progress. Out: `QueuedRequest`s that can be watched,
awaited and cancelled; one that runs stops at its next tensor operation. The message of a
`SpeechmixError` is the request's result; any other exception is written to standard error, and the
queue goes on.
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

from torch.overrides import TorchFunctionMode

from ...errors import InputError, SpeechmixError

WAITING, WORKING, DONE, FAILED, CANCELLED = "waiting", "working", "done", "failed", "cancelled"
_MAX_WAITING = 32
_CLOSE_TIMEOUT_SECONDS = 10.0
_MAX_FINISHED = _MAX_WAITING  # their results may be large, and are fetched at once


# Takes what is being computed, and about how many seconds it will take, where that is known.
Progress = Callable[..., None]


class QueueFullError(InputError):
    """Signal that the queue takes no further request."""


class _RequestCancelled(BaseException):
    """Stop a running request; no handler of errors takes it for one."""


@dataclass
class QueuedRequest:
    """Hold a request, its state and its result.

    Attributes
    ----------
    id : str
    state : {"waiting", "working", "done", "failed", "cancelled"}
    note : str
        What is being computed.
    expected_seconds : float or None
        An estimate, for what is being computed now.
    result : object
        Of a failed request the reason (str).
    changed_version : int
        Version of the queue at the last change of this request.
    seconds : float
        Run time.
    """

    id: str
    run_task: Callable[[Progress], Any] = field(repr=False)
    state: str = WAITING
    note: str = ""
    expected_seconds: float | None = None
    result: Any = None
    changed_version: int = 0
    seconds: float = 0.0
    is_cancelled: bool = False

    def check(self) -> None:
        """Raise in a request that was cancelled."""
        if self.is_cancelled:
            raise _RequestCancelled

    @property
    def is_over(self) -> bool:
        return self.state in (DONE, FAILED, CANCELLED)


class QueuePosition(NamedTuple):
    """Hold a request and the number of requests ahead of it, the running one included."""

    job: QueuedRequest
    requests_ahead: int


class RequestQueue:
    """Run requests in one worker thread. Close the queue, or use it as a context manager.

    Examples
    --------
    >>> with RequestQueue() as queue:
    ...     job = queue.submit(lambda report_progress: 6 * 7)
    ...     queue.wait(job.id).result
    42
    """

    def __init__(self) -> None:
        self._jobs: OrderedDict[str, QueuedRequest] = OrderedDict()
        self._condition = threading.Condition()
        self._is_closed = False
        self._version = 0
        self._worker = threading.Thread(
            target=self._run_worker, name="speechmix-requests", daemon=True
        )
        self._worker.start()

    def __enter__(self) -> RequestQueue:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def submit(self, run_task: Callable[[Progress], Any]) -> QueuedRequest:
        """Add a request at the end of the queue.

        Raises
        ------
        QueueFullError
            If too many requests wait.
        """
        with self._condition:
            waiting_count = sum(job.state == WAITING for job in self._jobs.values())
            if waiting_count >= _MAX_WAITING or self._is_closed:
                raise QueueFullError(
                    f"{waiting_count} requests are waiting: try again when some are finished"
                )
            job = QueuedRequest(secrets.token_urlsafe(9), run_task)
            self._jobs[job.id] = job
            self._drop_finished()
            self._publish(job)
            return job

    def cancel(self, request_id: str) -> bool:
        """Cancel a request, which stops at its next tensor operation if it runs; return False if it
        is over."""
        with self._condition:
            job = self._find_request(request_id)
            if job.is_over:
                return False
            job.is_cancelled = True
            if job.state == WAITING:
                job.state = CANCELLED
            self._publish(job)
            return True

    def watch(self, since_version: int, seconds: float) -> tuple[int, list[QueuePosition]]:
        """Wait for a change; return the present version, and requests that changed or wait.

        A client needs one connection, whatever the number of requests.

        Parameters
        ----------
        since : int
            Version of the previous call; 0 at first.
        seconds : float
            Longest time to wait.
        """
        with self._condition:
            self._condition.wait_for(
                lambda: self._is_closed or self._version > since_version, seconds
            )
            jobs = [
                job
                for job in self._jobs.values()
                if job.changed_version > since_version or job.state == WAITING
            ]
            return self._version, [self._position(job) for job in jobs]

    def find_position(self, request_id: str) -> QueuePosition:
        """Return a request with its position.

        Raises
        ------
        InputError
            If there is no such request.
        """
        with self._condition:
            return self._position(self._find_request(request_id))

    def wait(self, request_id: str) -> QueuedRequest:
        """Return a request when it is over."""
        with self._condition:
            self._condition.wait_for(
                lambda: self._is_closed or self._find_request(request_id).is_over
            )
            return self._find_request(request_id)

    def close(self) -> None:
        """Refuse further requests, and give the running one some seconds to end."""
        with self._condition:
            self._is_closed = True
            self._condition.notify_all()
        self._worker.join(_CLOSE_TIMEOUT_SECONDS)

    def _find_request(self, request_id: str) -> QueuedRequest:
        if request_id not in self._jobs:
            raise InputError("this request is no longer stored: send it again")
        return self._jobs[request_id]

    def _position(self, job: QueuedRequest) -> QueuePosition:
        requests_ahead = 0
        for other in self._jobs.values():
            if other is job:
                break
            requests_ahead += other.state in (WAITING, WORKING)
        return QueuePosition(job, requests_ahead if job.state == WAITING else 0)

    def _publish(self, job: QueuedRequest) -> None:
        self._version += 1
        job.changed_version = self._version
        self._condition.notify_all()

    def _drop_finished(self) -> None:
        finished_ids = [job.id for job in self._jobs.values() if job.is_over]
        for request_id in finished_ids[: max(0, len(finished_ids) - _MAX_FINISHED)]:
            del self._jobs[request_id]

    def _run_worker(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(
                    lambda: self._is_closed or self._next_waiting() is not None
                )
                job = self._next_waiting()
                if self._is_closed or job is None:
                    return
                job.state = WORKING
                self._publish(job)
            start_time = time.monotonic()
            state, result = self._run_request(job)
            with self._condition:
                job.state, job.result, job.seconds = state, result, time.monotonic() - start_time
                self._publish(job)

    def _next_waiting(self) -> QueuedRequest | None:
        return next((job for job in self._jobs.values() if job.state == WAITING), None)

    def _run_request(self, job: QueuedRequest) -> tuple[str, Any]:
        def report_progress(note: str, expected_seconds: float | None = None) -> None:
            job.check()
            with self._condition:
                job.note, job.expected_seconds = note, expected_seconds
                self._publish(job)

        try:
            with _CheckedOperations(job):
                return DONE, job.run_task(report_progress)
        except _RequestCancelled:
            return CANCELLED, None
        except SpeechmixError as error:
            return FAILED, str(error)
        except Exception as error:  # one request fails, the page goes on
            traceback.print_exc(file=sys.stderr)
            return (
                FAILED,
                f"unexpected {type(error).__name__}: {error}; the terminal shows the details",
            )


class _CheckedOperations(TorchFunctionMode):
    """Look before each tensor operation of this thread whether the request was cancelled."""

    def __init__(self, job: QueuedRequest):
        super().__init__()
        self._job = job

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self._job.check()
        return func(*args, **(kwargs or {}))
