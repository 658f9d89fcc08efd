"""Kill a job at any moment and start it again: does the folder end as if nothing had happened?

In: a job (a function that writes into a folder), in a process that has loaded what it needs. Each
try is a fork of it that is killed (SIGKILL, nothing is cleaned up) at its N-th file-system call
below the folder, or after a random time. Out: what the folder holds in the end, to be compared with
that of a job nobody killed.
"""

from __future__ import annotations

import hashlib
import os
import random
import re
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

# Python tells its audit hooks of these before it does them; writes into an open file are between
# two of them.
_CALLS = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "shutil.rmtree")
# What begins so: locks; and how long things took, which is never the same twice (one table of the
# page is made of it).
NOT_COMPARED = (".lock", "times")
_TIMES_OF_A_PAGE = re.compile(rb"<p>Computing time of each phase.*?</table>", re.DOTALL)

Job = Callable[[Path], None]


@dataclass
class Tally:
    """How many tries were killed, by file-system call and by time, and how many ended by
    themselves."""

    by_call: int = 0
    by_time: int = 0
    ended: int = 0

    @property
    def kills(self) -> int:
        return self.by_call + self.by_time


def count_calls(job: Job, folder: Path) -> int:
    """File-system calls of a job that is not killed."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        calls = _watch(folder, lambda number: None)
        _done(job, folder, lambda: os.write(writer, str(calls()).encode()))
    os.close(writer)
    text = os.read(reader, 100)
    os.close(reader)
    _wait(child)
    return int(text)


def try_once(
    job: Job, folder: Path, *, call: int | None = None, seconds: float | None = None
) -> bool:
    """Start a job and kill it at a file-system call, or after some seconds; returns whether it was
    killed.

    Raises
    ------
    RuntimeError
        If the job ended with an error of its own: its output is on standard error.
    """
    child = os.fork()
    if child == 0:
        if call is not None:
            _watch(
                folder,
                lambda number: os.kill(os.getpid(), signal.SIGKILL) if number == call else None,
            )
        _done(job, folder)
    if seconds is not None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return _was_killed(status)
            time.sleep(0.002)
        os.kill(child, signal.SIGKILL)
    return _wait(child)


def to_the_end(
    job: Job,
    folder: Path,
    rng: random.Random,
    *,
    calls: int,
    seconds: float,
    most: int,
    tally: Tally,
) -> None:
    """Kill a job up to `most` times, at calls and moments drawn by `rng`, and then let it end."""
    for _ in range(most):
        by_call = rng.random() < 0.7  # a job that goes on does less than one that begins
        place = (
            {"call": rng.randint(1, calls // 3)}
            if by_call
            else {"seconds": rng.uniform(0, seconds / 4)}
        )
        if not try_once(job, folder, **place):
            tally.ended += 1
        elif by_call:
            tally.by_call += 1
        else:
            tally.by_time += 1
    try_once(job, folder)
    tally.ended += 1


def snapshot(folder: Path) -> dict[str, str]:
    """Hash of every file below a folder but what is not compared, by relative path."""
    paths = (
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(NOT_COMPARED)
    )
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(_compared(path)).hexdigest()
        for path in paths
    }


def _compared(path: Path) -> bytes:
    content = path.read_bytes()
    return _TIMES_OF_A_PAGE.sub(b"", content) if path.suffix == ".html" else content


def _watch(folder: Path, at: Callable[[int], None]) -> Callable[[], int]:
    """Call `at` with the number of each file-system call below a folder; returns how many there
    have been."""
    below, count = str(folder), 0

    def hook(event: str, arguments: tuple) -> None:
        nonlocal count
        if event in _CALLS and arguments and below in str(arguments[0]):
            count += 1
            at(count)

    sys.addaudithook(hook)
    return lambda: count


def _done(job: Job, folder: Path, also: Callable[[], object] = lambda: None) -> None:
    """Do the job and leave the forked process; its error goes to standard error."""
    status = 1
    try:
        job(folder)
        also()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def _wait(child: int) -> bool:
    return _was_killed(os.waitpid(child, 0)[1])


def _was_killed(status: int) -> bool:
    if os.WIFSIGNALED(status):
        return True
    if os.WEXITSTATUS(status):
        raise RuntimeError("the job ended with an error: see standard error")
    return False
