"""Word boundaries by chosen heads of cross-attention, and how far they are from known word times.

In: a speech model with cross-attention, and clips with word times. Out: errors in ms, clip by clip, of
any sets of heads; the set with the smallest error. Boundaries are found as `align_by_whisper` finds
them. Attention is computed once for each clip, and again for clips that do not fit in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...adapters.model import Model
from ...alignment.whisper_attention import (
    choose_heads,
    head_evidence,
    place_by_evidence,
    read_text_attention,
    trim_silence,
    word_rows,
)
from ...errors import AlignmentError, InputError
from ...inputs.audio.frame_grid import FrameGrid
from ...inputs.clips.clip import Clip

Heads = Sequence[int]  # indices among all [L H]

_MEMORY_BYTES = 2**30  # of evidence that is stored
_MAX_SETS = 64  # that are placed together


@dataclass(frozen=True, eq=False)
class ClipEvidence:
    """What word boundaries of a clip are found with.

    Parameters
    ----------
    evidence : array [L H, rows, frames]
        See `head_evidence`.
    rows : list of (int, int)
        First and last row of each word.
    times : array [W, 2]
        Known start and end of each word, in seconds.
    duration : float
        Seconds.
    grid : FrameGrid
    is_loud : bool array [frames]
    default_heads : list of int
        Those that `align_by_whisper` averages.
    """

    evidence: np.ndarray
    rows: list[tuple[int, int]]
    times: np.ndarray
    duration: float
    grid: FrameGrid
    is_loud: np.ndarray
    default_heads: list[int]

    @cached_property
    def edge_seconds(self) -> np.ndarray:
        """Seconds at the edges of frames [frames + 1]."""
        edges = [self.grid.frame_times(edge, edge)[0] for edge in range(len(self.is_loud) + 1)]
        return np.minimum(edges, self.duration)

    def boundary_errors(self, head_sets: Sequence[Heads]) -> np.ndarray:
        """Return the absolute errors of starts and ends [sets, W, 2] in ms, for each set of heads."""
        first, last = np.array(self.rows).T
        errors = []
        for start in range(0, len(head_sets), _MAX_SETS):
            chunk = head_sets[start : start + _MAX_SETS]
            means = np.stack([self.evidence[list(heads)].mean(0) for heads in chunk])
            edges = place_by_evidence(means, self.is_loud)
            frames = trim_silence(edges[:, first], edges[:, last + 1], self.is_loud)
            seconds = np.stack([self.edge_seconds[frame] for frame in frames], axis=-1)
            errors.append(1000 * np.abs(seconds - self.times))
        return np.concatenate(errors)


class EvidenceStore:
    """Evidence of clips: in memory as far as it fits, else computed when it is needed."""

    def __init__(self, model: Model, memory_bytes: int = _MEMORY_BYTES):
        self._model, self._free_bytes = model, memory_bytes
        self._stored: dict[int, ClipEvidence] = {}
        self.clips: list[Clip] = []

    def add(self, clip: Clip) -> ClipEvidence:
        """Add a clip and return its evidence.

        Raises
        ------
        InputError, AlignmentError
            If its words have no known times, or their boundaries cannot be found.
        """
        evidence = self._compute(clip)
        self.clips.append(clip)
        if evidence.evidence.nbytes <= self._free_bytes:
            self._free_bytes -= evidence.evidence.nbytes
            self._stored[len(self.clips) - 1] = evidence
        return evidence

    def load_evidence(self, index: int) -> ClipEvidence:
        """Return the evidence of a clip."""
        return self._stored.get(index) or self._compute(self.clips[index])

    def sum_errors(self, clip_indices: Sequence[int], head_sets: Sequence[Heads]) -> np.ndarray:
        """Return the sum of boundary errors [sets, clips] in ms."""
        return np.stack(
            [self.load_evidence(i).boundary_errors(head_sets).sum((1, 2)) for i in clip_indices], 1
        )

    def _compute(self, clip: Clip) -> ClipEvidence:
        if not clip.words:
            raise InputError("it has no word times: give words=")
        if clip.alignment == "whisper":
            raise InputError("its word times come from a Whisper's attention, which is measured")
        attention = read_text_attention(self._model, clip)
        evidence = head_evidence(attention.weights).astype(np.float32)
        if not np.isfinite(evidence).all():
            raise AlignmentError("its attention has values that are not finite")
        return ClipEvidence(
            evidence,
            word_rows(attention.owners, [word.text for word in clip.words]),
            np.array([(word.start, word.end) for word in clip.words]),
            clip.duration,
            attention.grid,
            attention.is_loud,
            choose_heads(self._model, attention.weights),
        )


def select_heads(
    store: EvidenceStore, clip_indices: Sequence[int], candidates: Heads, max_count: int
) -> list[int]:
    """Add one head after the other, each time the one that makes the error of the set smallest.

    Returns
    -------
    list of int
        The first heads that were added, as many as have the smallest error.
    """
    head_indices: list[int] = []
    errors: list[float] = []
    while len(head_indices) < min(max_count, len(candidates)):
        others = [head for head in candidates if head not in head_indices]
        sums = store.sum_errors(clip_indices, [[*head_indices, head] for head in others]).sum(1)
        head_indices.append(others[int(sums.argmin())])
        errors.append(float(sums.min()))
    return sorted(head_indices[: int(np.argmin(errors)) + 1])
