"""Give each row of an attention matrix its stretch of frames, by dynamic time warping.

In: attention of some heads, and which frames are loud. Out: edges of the stretches, from one row to the next.
"""

from __future__ import annotations

import numpy as np

_MEDIAN_FILTER_FRAMES = 7


def place_rows(attention: np.ndarray, is_loud: np.ndarray) -> np.ndarray:
    """Give each row its stretch of frames by the attention [heads, rows, frames] of some heads.

    The frames are those of the sound alone (at least one for each row); `is_loud` [frames] is from
    `find_loud_frames`. Returns the edges [rows + 1] of the stretches, from the first frame of the
    first to the end of the last.
    """
    return place_by_evidence(head_evidence(attention).mean(0), is_loud)


def place_by_evidence(evidence: np.ndarray, is_loud: np.ndarray) -> np.ndarray:
    """Place rows as `place_rows` does, by the mean `head_evidence` [..., rows, frames] of some
    heads, or of many sets at once; edges [..., rows + 1]."""
    n_rows, n_frames = evidence.shape[-2:]
    first, last = map(int, trim_silence(0, n_frames, is_loud))
    if last - first < n_rows:
        first, last = 0, n_frames
    starts = first + find_row_starts(evidence[..., first:last])
    return np.concatenate([starts, np.full((*starts.shape[:-1], 1), last)], axis=-1)


def head_evidence(attention: np.ndarray) -> np.ndarray:
    """Standardise attention [heads, rows, frames] over rows, and smooth it over frames."""
    from scipy.ndimage import median_filter

    spread = attention.std(1, keepdims=True)
    standard = (attention - attention.mean(1, keepdims=True)) / np.maximum(spread, 1e-8)
    evidence: np.ndarray = median_filter(
        standard, size=(1, 1, _MEDIAN_FILTER_FRAMES), mode="nearest"
    )
    return evidence


def find_loud_frames(audio: np.ndarray, n_frames: int) -> np.ndarray:
    """Whether each frame [frames] is louder than the clip's silence."""
    power = np.array(
        [
            np.mean(frame_samples.astype(np.float64) ** 2)
            for frame_samples in np.array_split(audio, n_frames)
        ]
    )
    level = 10 * np.log10(power + 1e-10)
    quiet, loud = np.percentile(level, [8, 95])
    is_loud: np.ndarray = level > quiet + 0.35 * (loud - quiet)
    return is_loud


def trim_silence(
    start: int | np.ndarray, stop: int | np.ndarray, is_loud: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return ranges of frames without the quiet ones at their edges; a quiet range stays."""
    loud = np.flatnonzero(is_loud)
    before, until = np.searchsorted(loud, start), np.searchsorted(loud, stop)
    if not len(loud):
        return np.asarray(start), np.asarray(stop)
    first, last = loud[np.minimum(before, len(loud) - 1)], loud[until - 1]
    return np.where(before < until, first, start), np.where(before < until, last + 1, stop)


def find_row_starts(evidence: np.ndarray) -> np.ndarray:
    """Cut the frames into one stretch for each row, in order, so that the evidence [..., rows,
    frames] in them is greatest.

    Returns the first frame of each row's stretch, [..., rows]; each has at least one frame.
    """
    n_rows, n_frames = evidence.shape[-2:]
    cuts = evidence.reshape(-1, n_rows, n_frames)
    best = np.full((len(cuts), n_rows), -np.inf)
    best[:, 0] = cuts[:, 0, 0]
    moved = np.zeros((n_frames, len(cuts), n_rows), bool)
    from_before = np.full_like(best, -np.inf)
    for frame in range(1, n_frames):
        from_before[:, 1:] = best[:, :-1]
        moved[frame] = from_before > best
        best = np.maximum(best, from_before) + cuts[:, :, frame]
    starts = np.zeros((len(cuts), n_rows), int)
    cut_indices, row = np.arange(len(cuts)), np.full(len(cuts), n_rows - 1)
    for frame in range(n_frames - 1, 0, -1):
        has_moved = moved[frame, cut_indices, row]
        starts[cut_indices[has_moved], row[has_moved]] = frame
        row = row - has_moved
    return starts.reshape(evidence.shape[:-1])
