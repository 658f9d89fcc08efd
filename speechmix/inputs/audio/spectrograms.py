"""Compute mel spectrograms, and resample.

In: samples. Out: samples at another rate; power in mel bands. Both are what librosa gives
(`librosa.resample`, which is soxr, and `librosa.feature.melspectrogram`), by way of the parts of it
that need no compiling: where librosa's signal functions are imported for the first time, numba
compiles them for half a minute.
"""

from __future__ import annotations

import numpy as np


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
    from librosa.filters import mel

    signal = torch.as_tensor(np.asarray(samples, dtype=np.float32))
    hann = torch.hann_window(window, dtype=torch.float64).float()
    spectrum = torch.stft(
        signal, n_fft, hop, window, hann, center=True, pad_mode="constant", return_complex=True
    )
    power = spectrum.abs().square().T.numpy()  # [T, n_fft / 2 + 1]
    mel_power: np.ndarray = (
        power @ mel(sr=sample_rate, n_fft=n_fft, n_mels=n_mels, fmin=fmin, fmax=fmax).T
    )
    return mel_power
