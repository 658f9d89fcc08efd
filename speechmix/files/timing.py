"""Measure the seconds that a run spends in each phase.

In: blocks of code with a name (`phase`), and a block that wants to know (`timed_phases`). Out:
`Seconds`. The time of a phase within another is its own alone. The work of another thread has its
own name, "reading (ahead)", because nobody waited for it. A phase costs some microseconds, counted
or not.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import perf_counter
from types import TracebackType

PREFETCH = " (ahead)"  # behind the name of a phase in another thread
OTHER_PHASE = "other"
_SAVE_SECONDS = 30.0


class Seconds:
    """Seconds by phase, of the thread that made this and of those that work ahead of it.

    `keep` is called every half minute, at the end of a phase. `settle` waits for a device at the
    beginning and the end of every phase: without it a phase on a GPU is charged what it waits for,
    which an earlier one may have started. `clips` counts those that are done (`count_clip`).
    """

    def __init__(self, keep: Callable[[], object] | None = None):
        self.by_phase: dict[str, float] = defaultdict(float)
        self.clips = 0
        self.settle: Callable[[], object] | None = None
        self._keep, self._kept = keep, perf_counter()
        self._owner = threading.get_ident()
        self._inner = (
            threading.local()
        )  # seconds of the phases within the one at hand, in each thread

    def begin(self) -> tuple[float, float]:
        """Start timing a phase, and return what `end` needs."""
        if self.settle is not None and threading.get_ident() == self._owner:
            self.settle()
        outer = getattr(self._inner, "seconds", 0.0)
        self._inner.seconds = 0.0
        return outer, perf_counter()

    def end(self, name: str, begun: tuple[float, float]) -> None:
        """End a phase: its time, less that of the phases within it, is charged to its name."""
        is_ahead = threading.get_ident() != self._owner
        if self.settle is not None and not is_ahead:
            self.settle()
        outer, began = begun
        seconds = perf_counter() - began
        self.by_phase[name + PREFETCH if is_ahead else name] += seconds - self._inner.seconds
        self._inner.seconds = outer + seconds
        if self._keep is not None and began + seconds - self._kept > _SAVE_SECONDS and not is_ahead:
            self._kept = began + seconds
            self._keep()


_counting: ContextVar[Seconds | None] = ContextVar("counting", default=None)


@contextmanager
def timed_phases(seconds: Seconds) -> Iterator[None]:
    """Count the phases of a block; what belongs to none of them is "other"."""
    context_token = _counting.set(seconds)
    begun = seconds.begin()
    try:
        yield
    finally:
        seconds.end(OTHER_PHASE, begun)
        _counting.reset(context_token)


class _Phase:
    """Count the seconds of a block under a name."""

    __slots__ = ("_begun", "_counting", "_name")

    def __init__(self, name: str, counting: Seconds | None):
        self._name, self._counting = name, counting

    def __enter__(self) -> None:
        if self._counting is not None:
            self._begun = self._counting.begin()

    def __exit__(
        self, kind: type | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._counting is not None:
            self._counting.end(self._name, self._begun)


def phase(name: str) -> _Phase:
    """Count a block under a name, if anybody counts; a context manager."""
    return _Phase(name, _counting.get())


def count_clip() -> None:
    """Add a finished clip to the count, inside a block of `timed_phases`."""
    counting = _counting.get()
    if counting is not None:
        counting.clips += 1
