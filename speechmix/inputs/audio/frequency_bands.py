"""Frequency bands: a sound as a sum of bands on a scale of hearing.

The bands of a sound, and what lies outside them, add up to the sound. Scales: mel (Slaney's, as in librosa) and ERB-number
(Glasberg & Moore 1990), 21.4 log10(1 + 0.00437 f).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from ...errors import InputError

SCALES = ("mel", "erb")
BandEdges = tuple[float, ...]  # Hertz, ascending, one more than there are bands
_PADDING_SECONDS = 0.1  # silence around the sound, so that a filter's ringing does not wrap around
_SLOPE_SHARE, _MAX_SLOPE_HZ = 0.1, 50.0  # how far a slope reaches into the narrower of two bands


def band_edges(bands: int | Sequence[float], *, scale: str = "mel", nyquist: float) -> BandEdges:
    """Return the edges of a number of bands of equal width on a scale, up to half the rate; or check edges in Hz.

    Examples
    --------
    >>> band_edges(4, scale="erb", nyquist=8000)
    (0.0, 332.0, 1143.0, 3132.0, 8000.0)
    """
    if scale not in SCALES:
        raise InputError(f"scale should be one of {SCALES}, found {scale!r}")
    if not isinstance(bands, int):
        edges = tuple(float(edge) for edge in bands)
    elif scale == "erb":
        numbers = np.linspace(0, np.log10(1 + 0.00437 * nyquist), bands + 1 if bands > 0 else 0)
        edges = tuple(np.round((10**numbers - 1) / 0.00437).tolist())
    else:
        from librosa import mel_frequencies

        edges = tuple(np.round(mel_frequencies(max(bands, -1) + 1, fmax=nyquist)).tolist())
    if len(edges) < 2 or edges[0] < 0 or any(low >= high for low, high in pairwise(edges)):
        raise InputError(
            f"bands: expected at least 1 band, as a number or as ascending edges in Hz from 0 on, found {bands!r}"
        )
    if edges[-1] > nyquist:
        raise InputError(
            f"bands: the model reads sound up to {nyquist:g} Hz (half its sampling rate), found a band up to {edges[-1]:g} Hz"
        )
    return edges


def split_bands(samples: np.ndarray, sample_rate: int, edges: BandEdges) -> np.ndarray:
    """Filter a sound into bands, float64 [bands, samples]; the filters have no delay.

    At each edge one band fades into the next within at most 100 Hz, but not at 0 Hz and at half the rate.
    """
    padding = round(_PADDING_SECONDS * sample_rate)
    padded = np.pad(np.asarray(samples, dtype=float), padding)
    frequencies = np.fft.rfftfreq(len(padded), 1 / sample_rate)
    widths = np.diff(edges)
    narrower = np.minimum(np.append(widths[:1], widths), np.append(widths, widths[-1:]))
    slopes = np.minimum(_SLOPE_SHARE * narrower, _MAX_SLOPE_HZ)
    above = [smooth_step(frequencies, *edge) for edge in zip(edges, slopes, strict=True)]
    if edges[0] <= 0:
        above[0] = np.ones_like(frequencies)
    if edges[-1] >= sample_rate / 2:
        above[-1] = np.zeros_like(frequencies)
    spectrum = np.fft.rfft(padded) * -np.diff(above, axis=0)
    return np.fft.irfft(spectrum, len(padded))[:, padding : len(padded) - padding]


def smooth_step(values: np.ndarray, edge: float, half_width: float) -> np.ndarray:
    """Return a step from 0 to 1 at an edge, as half a wave of a sine."""
    return np.asarray((1 + np.sin(np.pi / 2 * np.clip((values - edge) / half_width, -1, 1))) / 2)
