"""Audio is read while the model is at work: a thread decodes the files of the clips that follow.

In: clips, or whatever else `speechmix.mix` takes. Out: the same, in the same order. Nothing is
handed over: `read_audio` caches the few files read last, where the samples of a clip are found.
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


def prefetch_audio(
    items: Iterable[Item], *, sample_rate: int, count: int = 1
) -> Generator[Item, None, None]:
    """Yield clips, while a thread reads the audio of the `count` that follow; what is no clip
    passes through.

    An audio file that cannot be read is no error here: reading its samples later raises the error
    again.
    """
    return prefetch_items(items, lambda clip: clip.audio(sample_rate), count=count)


def prefetch_items(
    items: Iterable[Item], prepare: Callable[[Clip], object], *, count: int = 1
) -> Generator[Item, None, None]:
    """Yield items, each clip after it was prepared, while a thread prepares the next `count`.

    Items that are no clips pass through. What `prepare` returns is dropped, and so is an error of
    ours that it raises: it comes back where the clip is used. Closing the generator early lets the
    thread finish the clip at hand, and no other.
    """

    def prepare_clip(item: Item) -> None:
        with suppress(SpeechmixError):
            if isinstance(item, Clip):
                prepare(item)

    executor = ThreadPoolExecutor(max_workers=1)
    try:
        queue: deque[tuple[Item, Future[object]]] = deque()
        for item in items:
            queue.append((item, executor.submit(copy_context().run, prepare_clip, item)))
            if len(queue) > count:
                yield _wait_for_item(*queue.popleft())
        while queue:
            yield _wait_for_item(*queue.popleft())
    finally:
        executor.shutdown(cancel_futures=True)


def _wait_for_item(item: Item, preparation: Future[object]) -> Item:
    with phase("waiting for clips"):
        wait([preparation])
    return item
