"""What was made of the sounds heard last: features, and the states of an encoder behind which a
decoder stands.

In: a model within `Model.unchanged`, and clips. Out: what was made for one question about a sound,
to be used for the next: maps, ablation and transcript need the same features, and a Whisper's
decoder the same encoder states. A sound is known by its hash (`Clip.audio_hash`). What was used longest
ago is let go first; outside `unchanged` nothing is kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Mapping
from threading import Lock
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    pass

# Bytes of features, on the host, and of encoder states, on the device: those of some 120 clips for
# a Whisper, and the states of ten for a Whisper-medium.
FEATURES_BYTES = 2**27
STATES_BYTES = 2**26


class LRUCache:
    """A few results by key, the last used, within a number of bytes; for several threads.

    Examples
    --------
    >>> import torch
    >>> remembered = LRUCache(limit=8)
    >>> for name in "abc":
    ...     remembered.keep(name, {"x": torch.zeros(1)})
    >>> [name for name in "abc" if remembered.get(name)]
    ['b', 'c']
    """

    def __init__(self, limit: int):
        self._limit, self._size = limit, 0
        self._results: OrderedDict[Hashable, Mapping[str, Tensor]] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable) -> Mapping[str, Tensor] | None:
        """What was kept under the key, if it still is."""
        with self._lock:
            if key in self._results:
                self._results.move_to_end(key)
            return self._results.get(key)

    def keep(self, key: Hashable, result: Mapping[str, Tensor]) -> None:
        """Keep a result, if it is not larger than all there is room for."""
        with self._lock:
            if key in self._results or _size(result) > self._limit:
                return
            self._results[key] = result
            self._size += _size(result)
            while self._size > self._limit:
                _, oldest = self._results.popitem(last=False)
                self._size -= _size(oldest)


def _size(result: Mapping[str, Tensor]) -> int:
    return sum(tensor.nbytes for tensor in result.values())


class ActivationCache:
    """What a model made of the sounds it heard last."""

    def __init__(self) -> None:
        self.features = LRUCache(FEATURES_BYTES)
        self.encoder_states = LRUCache(STATES_BYTES)
