"""Cache of what a model computes of a clip's audio: features, and the states of an encoder in front
of a decoder.

In: a model within `Model.unchanged`, and clips. Out: results of one call that serve the next: maps,
ablation and transcript need the same features, and a Whisper's decoder the same encoder states.
Audio is identified by its hash (`Clip.audio_hash`). What was used longest ago is dropped first;
outside `unchanged` nothing is stored.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Mapping
from threading import Lock

from torch import Tensor

# Bytes of features, on the host, and of encoder states, on the device: those of some 120 clips for
# a Whisper, and the states of ten for a Whisper-medium.
MAX_FEATURE_BYTES = 2**27
MAX_STATE_BYTES = 2**26


class LRUCache:
    """Least-recently-used cache of tensors by key, up to a number of bytes; safe for threads."""

    def __init__(self, max_bytes: int):
        self._max_bytes, self._used_bytes = max_bytes, 0
        self._results: OrderedDict[Hashable, Mapping[str, Tensor]] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable) -> Mapping[str, Tensor] | None:
        """Return the result stored under the key, or None."""
        with self._lock:
            if key in self._results:
                self._results.move_to_end(key)
            return self._results.get(key)

    def store(self, key: Hashable, result: Mapping[str, Tensor]) -> None:
        """Store a result unless it is larger than the cache; drop what was used longest ago."""
        with self._lock:
            if key in self._results or _count_bytes(result) > self._max_bytes:
                return
            self._results[key] = result
            self._used_bytes += _count_bytes(result)
            while self._used_bytes > self._max_bytes:
                _, oldest = self._results.popitem(last=False)
                self._used_bytes -= _count_bytes(oldest)


def _count_bytes(result: Mapping[str, Tensor]) -> int:
    return sum(tensor.nbytes for tensor in result.values())


class ActivationCache:
    """Features and encoder states of the audio that a model ran on last."""

    def __init__(self) -> None:
        self.features = LRUCache(MAX_FEATURE_BYTES)
        self.encoder_states = LRUCache(MAX_STATE_BYTES)
