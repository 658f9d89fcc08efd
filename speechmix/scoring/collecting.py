"""Scores as they come, layer by layer, until they are maps: they leave the device once a batch, or at once for files.

In: each layer's scores, of all measures. Out: maps of the clips that shared a forward pass.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType

import numpy as np
import torch
from torch import Tensor

from ..adapters.transfers import to_host
from ..maps.files import LayerWriter, map_path, opened_lazily
from ..maps.mixing import MixingMap

Key = tuple[str, str]  # measure and stack
FinishedMaps = Callable[[Key, Callable[[np.ndarray], MixingMap]], MixingMap]


class ScoresByLayer:
    """Layers' scores of one clip: kept on the device until the pass is over, or written to files at once.

    As a context manager, it removes what is unfinished when the block ends.

    Attributes
    ----------
    scores : dict of (measure, stack) to list of Tensor
        What is kept on the device.
    """

    def __init__(self, layers: Mapping[str, Sequence[int]], folder: Path | None):
        self._layers, self._folder = layers, folder
        self.scores: dict[Key, list[Tensor]] = defaultdict(list)
        self._writers: dict[Key, LayerWriter] = {}

    def append(self, stack: str, by_measure: Mapping[str, Tensor]) -> None:
        """Take in one layer's scores."""
        if self._folder is None:
            for measure, scores in by_measure.items():
                self.scores[measure, stack].append(scores)
            return
        for measure, array in zip(by_measure, to_host([*by_measure.values()]), strict=True):
            key = measure, stack
            if key not in self._writers:
                self._writers[key] = LayerWriter(map_path(self._folder, key), len(self._layers[stack]))
            self._writers[key].append(array)

    def written(self, key: Key, labelled: Callable[[np.ndarray], MixingMap]) -> MixingMap:
        """Finish the file of a map."""
        writer = self._writers[key]
        return opened_lazily(writer.close(labelled(writer.scores())))

    def __enter__(self) -> ScoresByLayer:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for writer in self._writers.values():
            writer.discard()


def maps_from(collected: Sequence[ScoresByLayer]) -> Iterator[FinishedMaps]:
    """Bring the scores of all clips of a pass to the host; for each clip, what makes the map of a measure and stack of them."""
    stacked = [
        (clip, key, torch.stack(layers))
        for clip, layers_of_clip in enumerate(collected)
        for key, layers in layers_of_clip.scores.items()
    ]
    arrays = dict(
        zip(((clip, key) for clip, key, _ in stacked), to_host([scores for *_, scores in stacked]), strict=True)
    )
    for clip, of_clip in enumerate(collected):
        yield partial(_finished, of_clip, {key: arrays[clip, key] for key in of_clip.scores})


def _finished(
    of_clip: ScoresByLayer, arrays: Mapping[Key, np.ndarray], key: Key, labelled: Callable[[np.ndarray], MixingMap]
) -> MixingMap:
    return labelled(arrays[key]) if key in arrays else of_clip.written(key, labelled)
