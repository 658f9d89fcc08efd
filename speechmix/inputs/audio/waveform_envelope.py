"""Envelope of a waveform: lowest and highest samples in stretches, for pictures of it."""

from __future__ import annotations

import numpy as np


def waveform_envelope(
    samples: np.ndarray, sample_rate: int, stretch_count: int = 2000
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the onset in seconds, lowest and highest sample of up to `stretch_count` stretches.

    The picture is that of all samples, in a small file.

    Examples
    --------
    >>> waveform_envelope(np.array([0.0, 1.0, -1.0, 0.5]), 2, 2)
    (array([0., 1.]), array([ 0., -1.]), array([1. , 0.5]))
    """
    starts = np.unique(np.linspace(0, len(samples), stretch_count, endpoint=False).astype(int))
    low, high = np.minimum.reduceat(samples, starts), np.maximum.reduceat(samples, starts)
    return starts / sample_rate, low, high
