"""Compute mel spectrograms, resample, find formants and split a sound into frequency bands.

Power in mel bands and samples at another rate are what librosa gives (`librosa.feature.melspectrogram`,
`librosa.resample`, which is soxr), without its signal functions: numba compiles those for half a minute when they are
first imported.

Formants are resonances of the vocal tract, by linear prediction (Atal & Hanauer 1971). A pole of the prediction at angle w
and radius r is a resonance of w / 2 pi times the rate, of a bandwidth of -ln(r) / pi times the rate. Where the pitch is high,
the first formant is drawn to a harmonic: nothing between two harmonics is in the sound.

The frequency bands of a sound, and what lies outside them, add up to the sound. Scales: mel (Slaney's, as in librosa) and
ERB-number (Glasberg & Moore 1990), 21.4 log10(1 + 0.00437 f).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from ...errors import InputError


def resample(samples: np.ndarray, source_rate: int, sample_rate: int) -> np.ndarray:
    """Samples [S] at another rate, by soxr in its high quality, of the type they have; ceil(S *
    sample_rate / found_rate)."""
    if source_rate == sample_rate:
        return samples
    import soxr

    length = int(np.ceil(len(samples) * (float(sample_rate) / source_rate)))
    audio = soxr.resample(samples, source_rate, sample_rate, quality="soxr_hq")[:length]
    return np.pad(audio, (0, length - len(audio))).astype(samples.dtype, copy=False)


def mel_spectrogram(
    samples: np.ndarray,
    sample_rate: int,
    *,
    n_fft: int,
    window: int,
    hop: int,
    n_mels: int,
    fmin: float,
    fmax: float,
) -> np.ndarray:
    """Compute the power in Slaney's mel bands, float32 [T, n_mels], of samples [S].

    The middles of the frames lie at every `hop`-th sample: T = 1 + S // hop. `n_fft`, `window`
    (Hann, in the middle of the transform) and `hop` count samples; `fmin` and `fmax` are hertz.
    """
    import torch

    signal = torch.as_tensor(np.asarray(samples, dtype=np.float32))
    hann = torch.hann_window(window, dtype=torch.float64).float()
    spectrum = torch.stft(
        signal, n_fft, hop, window, hann, center=True, pad_mode="constant", return_complex=True
    )
    power = spectrum.abs().square().T.numpy()  # [T, n_fft / 2 + 1]
    mel_power: np.ndarray = power @ _mel_bands(sample_rate, n_fft, n_mels, fmin, fmax)
    return mel_power


def _mel_bands(sample_rate: int, n_fft: int, n_mels: int, fmin: float, fmax: float) -> np.ndarray:
    """Weights of Slaney's mel bands, float32 [n_fft / 2 + 1, n_mels]: to the last bit those of
    `librosa.filters.mel`, the import of which takes a second."""
    from transformers.audio_utils import hertz_to_mel, mel_filter_bank, mel_to_hertz

    low, high = (hertz_to_mel(hertz, mel_scale="slaney") for hertz in (float(fmin), float(fmax)))
    edges = np.asarray(mel_to_hertz(np.linspace(low, high, n_mels + 2), mel_scale="slaney"))
    bands = mel_filter_bank(
        1 + n_fft // 2, n_mels, fmin, fmax, sample_rate, mel_scale="slaney"
    ).astype(np.float32)
    bands *= 2 / (edges[2:] - edges[:-2])
    return bands


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
