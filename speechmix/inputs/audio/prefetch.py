"""Audio is read while the model is at work: a thread decodes the files of the clips that follow.

In: clips, or whatever else `speechmix.mix` takes. Out: the same, in the same order. Nothing is
handed over: `read_audio` keeps the few files read last, and whoever asks for a clip's samples finds
them there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from contextvars import copy_context
from typing import TypeVar

from ...errors import SpeechmixError
from ...files.timing import phase
from ..clips.clip import Clip

Item = TypeVar("Item")


def read_ahead(
    items: Iterable[Item], *, sample_rate: int, count: int = 1
) -> Generator[Item, None, None]:
    """Yield clips, while a thread reads the audio of the `count` that follow; what is no clip
    passes through.

    An audio file that cannot be read is no error here: whoever asks for its samples is told.
    """
    return ahead(items, lambda clip: clip.audio(sample_rate), count=count)


def ahead(
    items: Iterable[Item], prepare: Callable[[Clip], object], *, count: int = 1
) -> Generator[Item, None, None]:
    """Yield items, each clip after it was prepared, while a thread prepares the `count` that
    follow.

    Who stops early closes the generator: the thread then finishes the clip at hand, and no other.

    Parameters
    ----------
    items : iterable
        What is no clip passes through.
    prepare : callable
        Given each clip, in a thread. What it returns, and an error of ours that it raises, is for
        nobody: who needs the clip asks for it.
    count : int
    """

    def attempt(item: Item) -> None:
        with suppress(SpeechmixError):
            if isinstance(item, Clip):
                prepare(item)

    reader = ThreadPoolExecutor(max_workers=1)
    try:
        waiting: deque[tuple[Item, Future[object]]] = deque()
        for item in items:
            waiting.append((item, reader.submit(copy_context().run, attempt, item)))
            if len(waiting) > count:
                yield _prepared(*waiting.popleft())
        while waiting:
            yield _prepared(*waiting.popleft())
    finally:
        reader.shutdown(cancel_futures=True)


def _prepared(item: Item, preparing: Future[object]) -> Item:
    with phase("waiting for clips"):
        wait([preparing])
    return item
