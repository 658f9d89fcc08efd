"""Collect scores layer by layer and copy them to the host.

In: each layer's scores, of all measures. Out: maps of the clips that shared a forward pass.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

import numpy as np
import torch
from torch import Tensor

from ...adapters.capture.device_copy import to_host
from ..maps.map_files import LayerWriter, map_path, reopen_map
from ..maps.mixing_map import MixingMap

Key = tuple[str, str]  # measure and stack


class ScoresByLayer:
    """Layers' scores of one clip: kept on the device until the pass is over, or written to files at
    once.

    As a context manager, it removes what is unfinished when the block ends. `scores` (by measure
    and stack) are those kept on the device, where `strengths` [W_t] (by stack) stay in any case.
    """

    def __init__(self, layers: Mapping[str, Sequence[int]], folder: Path | None):
        self._layers, self._folder = layers, folder
        self.scores: dict[Key, list[Tensor]] = defaultdict(list)
        self.strengths: dict[str, list[Tensor]] = defaultdict(list)
        self._writers: dict[Key, LayerWriter] = {}

    def append(
        self, stack: str, by_measure: Mapping[str, Tensor], strength: Tensor | None = None
    ) -> None:
        """Take in one layer's scores, and its mixing strength [W_t]."""
        if strength is not None:
            self.strengths[stack].append(strength)
        if self._folder is None:
            for measure, scores in by_measure.items():
                self.scores[measure, stack].append(scores)
            return
        for measure, array in zip(by_measure, to_host([*by_measure.values()]), strict=True):
            key = measure, stack
            if key not in self._writers:
                self._writers[key] = LayerWriter(
                    map_path(self._folder, key), len(self._layers[stack])
                )
            self._writers[key].append(array)

    def finish_file(self, key: Key, make_map: Callable[[np.ndarray], MixingMap]) -> MixingMap:
        """Finish the file of a map."""
        writer = self._writers[key]
        return reopen_map(writer.close(make_map(writer.scores())))

    def __enter__(self) -> ScoresByLayer:
        return self

    def __exit__(
        self, kind: type | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for writer in self._writers.values():
            writer.discard()


class HostScores:
    """What was collected of one clip, on the host: makes the map of a measure and stack.
    `strengths` are [L, W_t] by stack."""

    def __init__(
        self,
        collection: ScoresByLayer,
        scores: Mapping[Key, np.ndarray],
        strengths: Mapping[str, np.ndarray],
    ):
        self._collection, self._scores, self.strengths = collection, scores, strengths

    def __call__(self, key: Key, make_map: Callable[[np.ndarray], MixingMap]) -> MixingMap:
        return (
            make_map(self._scores[key])
            if key in self._scores
            else self._collection.finish_file(key, make_map)
        )


def copy_scores_to_host(collections: Sequence[ScoresByLayer]) -> list[HostScores]:
    """Bring the scores of all clips of a pass to the host, together."""
    stacked_scores = [
        {
            **{key: torch.stack(layers) for key, layers in collection.scores.items()},
            **_stack_strengths(collection),
        }
        for collection in collections
    ]
    arrays = iter(
        to_host([tensor for collection in stacked_scores for tensor in collection.values()])
    )
    host_scores = []
    for collection, tensors in zip(collections, stacked_scores, strict=True):
        host_arrays = dict(zip(tensors, arrays, strict=False))
        scores = {key: host_arrays[key] for key in collection.scores}
        host_scores.append(
            HostScores(
                collection,
                scores,
                {stack: host_arrays["", stack] for stack in collection.strengths},
            )
        )
    return host_scores


def _stack_strengths(collection: ScoresByLayer) -> dict[Key, Tensor]:
    """Mixing strengths [L, W_t] under keys that no measure has."""
    return {("", stack): torch.stack(layers) for stack, layers in collection.strengths.items()}
