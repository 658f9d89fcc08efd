"""Formants: resonances of the vocal tract, by linear prediction (Atal & Hanauer 1971).

A pole of the prediction at angle w and radius r is a resonance of w / 2 pi times the rate, of a bandwidth of -ln(r) / pi times
the rate. Where the pitch is high, the first formant is drawn to a harmonic: nothing between two harmonics is in the sound.
"""

from __future__ import annotations

import numpy as np

from ...errors import InputError
from .spectrograms import resample

CEILING_HZ = 5500.0
_WINDOW_SECONDS, _HOP_SECONDS = 0.05, 0.00625
_PRE_EMPHASIS_HZ = 50.0  # from there on the spectrum is raised by 6 dB an octave
_LOWEST_HZ, _MAX_BANDWIDTH_HZ = 90.0, 600.0  # wider poles shape the spectrum and are no formants
_MIN_POWER = 1e-4  # of the loudest window (-40 dB): softer ones have no formants


def track_formants(
    samples: np.ndarray, sample_rate: int, *, count: int = 5, ceiling: float = CEILING_HZ
) -> tuple[np.ndarray, np.ndarray]:
    """Find the formants of a sound.

    Parameters
    ----------
    samples : array [S]
    sample_rate : int
    count : int
        Number of formants below the ceiling.
    ceiling : float
        Hertz; 5500 suits most voices, 5000 low ones, 8000 those of children.

    Returns
    -------
    times : array [T]
        Middle of each window, in seconds.
    formants : array [T, count]
        Hertz, from low to high; NaN where there is none.

    Raises
    ------
    InputError
        If the ceiling is above half the rate, or the sound is shorter than a window (50 ms).

    Examples
    --------
    >>> times, formants = track_formants(np.random.default_rng(0).normal(size=16_000), 16_000)
    >>> times.shape, formants.shape
    ((152,), (152, 5))
    """
    from scipy.linalg import solve_toeplitz

    rate = round(2 * ceiling)
    length, hop = round(_WINDOW_SECONDS * rate), round(_HOP_SECONDS * rate)
    if not 0 < rate <= sample_rate or count < 1 or len(samples) < _WINDOW_SECONDS * sample_rate:
        raise InputError(
            f"formants: expected a ceiling up to {sample_rate / 2:g} Hz (half the rate), a count from 1 and at least "
            f"{_WINDOW_SECONDS:g} s of sound, found ceiling={ceiling:g}, count={count}, {len(samples) / sample_rate:.3f} s"
        )
    sound = resample(np.asarray(samples, dtype=np.float32), sample_rate, rate).astype(float)
    emphasis = np.exp(-2 * np.pi * _PRE_EMPHASIS_HZ / rate)
    sound = np.append(sound[:1], sound[1:] - emphasis * sound[:-1])
    # A Gauss curve has no side lobes that would look like poles.
    taper = np.exp(-12 * np.linspace(-1, 1, length) ** 2)
    windows = np.lib.stride_tricks.sliding_window_view(sound, length)[::hop] * taper
    power = (windows**2).sum(axis=1)
    formants = np.full((len(windows), count), np.nan)
    for index in np.flatnonzero(power > _MIN_POWER * power.max()):
        products = np.correlate(windows[index], windows[index], "full")[length - 1 :][
            : 2 * count + 1
        ]
        products[0] *= 1 + 1e-9  # solvable also where a band has no energy
        poles = np.roots(np.append(1, -solve_toeplitz(products[:-1], products[1:])))
        bandwidths = -np.log(np.maximum(np.abs(poles), 1e-9)) * rate / np.pi
        resonances = np.sort((np.angle(poles) * rate / (2 * np.pi))[bandwidths < _MAX_BANDWIDTH_HZ])
        is_inside = (resonances > _LOWEST_HZ) & (resonances < rate / 2 - _LOWEST_HZ)
        resonances = resonances[is_inside][:count]
        formants[index, : len(resonances)] = resonances
    return (np.arange(len(windows)) * hop + length / 2) / rate, formants
