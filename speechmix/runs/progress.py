"""Progress of a job over its clips: a bar on standard error, lines, or calls of a function.

Turn out-of-memory errors into one error of a single clip.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from ..errors import SpeechmixError

Item = TypeVar("Item")
# Whether a bar is shown; or a function that gets a stage, how many clips are done, and of how many.
Progress = bool | Callable[[str, int, int], None]
ALIGN = "align"  # the stage of word times
_SECONDS_BETWEEN_LINES = 10.0


class ProgressLines:
    """Print how far a stage is, on standard error: at its end, and every ten seconds before.

    Examples
    --------
    >>> progress: Progress = sys.stderr.isatty() or ProgressLines()  # a bar in a terminal, else lines
    """

    def __init__(self) -> None:
        self._printed_at = time.monotonic()

    def __call__(self, stage: str, done_count: int, total: int) -> None:
        """Print a line, if it is time for one."""
        now = time.monotonic()
        is_due = now - self._printed_at >= _SECONDS_BETWEEN_LINES
        if total and (done_count == total or is_due):
            print(f"{stage}: {done_count} of {total} clips", file=sys.stderr, flush=True)
            self._printed_at = now


def show_progress(
    items: Iterable[Item], progress: Progress, stage: str, *, total: int
) -> Iterable[Item]:
    """Return the same items; while they are taken, a bar is shown or a function is called."""
    if callable(progress):
        return _call_progress(items, progress, stage, total)
    if not progress or not total:
        return items
    from tqdm.auto import tqdm

    return tqdm(items, desc=stage, unit="clip", leave=False, total=total)


def _call_progress(
    items: Iterable[Item], callback: Callable[[str, int, int], None], stage: str, total: int
) -> Iterator[Item]:
    callback(stage, 0, total)
    for done_count, item in enumerate(items, 1):
        yield item
        callback(stage, done_count, total)


class OutOfMemory(SpeechmixError):
    """One clip for which there was not enough memory."""


@contextmanager
def memory_errors_named() -> Iterator[None]:
    """Turn what Python, numpy and torch raise where memory runs out into `OutOfMemory`; what was
    taken is given back."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not _is_out_of_memory(error):
            raise
        reason = f"not enough memory: {str(error).strip().splitlines()[0][:200] if str(error).strip() else 'none left'}"
    else:
        return
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    raise OutOfMemory(
        f"{reason}. Cut the clip (Clip.cut, --cut), ask for the target's rows alone, or use a "
        "larger machine"
    )


def _is_out_of_memory(error: BaseException) -> bool:
    import torch

    words = (
        "can't allocate memory",
        "not enough memory",
        "out of memory",
        "Cannot allocate memory",
    )
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or any(
        phrase in str(error) for phrase in words
    )
