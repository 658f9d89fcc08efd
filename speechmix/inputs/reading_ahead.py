"""Audio is read while the model is at work: a thread decodes the files of the clips that follow.

In: clips, or whatever else `speechmix.mix` takes. Out: the same, in the same order. Nothing is handed over: `read_audio` keeps
the few files read last, and whoever asks for a clip's samples finds them there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from ..errors import SpeechmixError
from .clips import Clip

Item = TypeVar("Item")


def read_ahead(items: Iterable[Item], *, sample_rate: int, count: int = 1) -> Iterator[Item]:
    """Yield clips, while a thread reads the audio of the `count` that follow; what is no clip passes through.

    An audio file that cannot be read is no error here: whoever asks for its samples is told.
    """

    def read(item: Item) -> None:
        with suppress(SpeechmixError):
            if isinstance(item, Clip):
                item.audio(sample_rate)

    with ThreadPoolExecutor(max_workers=1) as reader:
        waiting: deque[Item] = deque()
        for item in items:
            reader.submit(read, item)
            waiting.append(item)
            if len(waiting) > count:
                yield waiting.popleft()
        yield from waiting
