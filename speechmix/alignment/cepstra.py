"""Compute mel power and cepstra of a recording in frames of 5 ms.

In: mono audio [S]. Out: a `RecordingCepstra`, and the features of any sound: mel power [T, 40],
cepstra [T, 12] and their slopes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np

from ..errors import AlignmentError
from ..inputs.audio.spectrograms import mel_spectrogram, resample

SAMPLE_RATE = 16_000
HOP = 80  # samples: 5 ms
N_MELS, N_CEPSTRA = 40, 12
_SPEECH_RANGE = 8  # dB between the clip's quiet and loud frames
_QUIET_SHARE = 8  # percent of the frames that are taken for quiet
_NOISE_VARIES = 2.0  # dB from the quietest frames to that share, in noise alone
_SOFT_SPEECH_SLOPE = 2.5  # dB below them for each dB more
_PAUSE = 20  # frames of silence, 100 ms, that end a run of speech: a closure is shorter
# Frames, 100 ms, on both sides of a run that may be a closure or a soft end.
_CLOSURE_CONTEXT_FRAMES = 20
# dB below the loud level: a short run that never gets louder is a bump, a click or a breath
_FAINT_RANGE_DB = 10.0
_NOISE_COUNTS = 25.0  # dB below the loud level: noise that halves a band's weight
_LITTLE_NOISE_DB = 30.0  # dB between the loud level and the noise
_SHORT_RUN = 100  # frames: 500 ms
_LOUD_FRAMES = 6  # frames, 30 ms, that reach the level of a run


@dataclass(frozen=True, eq=False)
class RecordingCepstra:
    """Features of a recording: mel power [T, 40], energy in dB [T], its quiet and loud levels, the
    noise's mel power [40].

    In the energy a mel band counts the less, the more noise there is in it.
    """

    power: np.ndarray
    energy: np.ndarray
    quiet: float
    loud: float
    noise: np.ndarray

    @cached_property
    def loudness(self) -> float:
        """Loud level in dB of all bands alike."""
        return float(np.percentile(decibels(self.power.sum(1)), 95))

    @property
    def speech_level(self) -> float:
        """Energy in dB below which a frame passes for silence."""
        return max(self.quiet + 0.35 * (self.loud - self.quiet), self.quiet + 4)

    @cached_property
    def speech(self) -> np.ndarray:
        """Frames that may hold speech, bool [T]: runs of sound with short pauses in them, and 100
        ms around each.

        In noise all frames may. A short and faint run that is apart from the others (a bump of the
        microphone, a click, a breath) is no speech.
        """
        may_be_speech = np.zeros(len(self.energy), bool)
        if (
            self.loud - self.quiet < _LITTLE_NOISE_DB
        ):  # soft speech rises as little out of the noise as anything else
            return ~may_be_speech
        sounding = np.flatnonzero(self.energy > self.speech_level)
        breaks = np.flatnonzero(np.diff(sounding) > _PAUSE)
        firsts = sounding[np.append(0, breaks + 1)]
        lasts = sounding[np.append(breaks, len(sounding) - 1)]
        for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
            run = np.sort(self.energy[first : last + 1])
            is_faint = run[-min(_LOUD_FRAMES, len(run))] < self.loud - _FAINT_RANGE_DB
            if not (is_faint and len(run) < _SHORT_RUN):
                may_be_speech[
                    max(0, first - _CLOSURE_CONTEXT_FRAMES) : last + 1 + _CLOSURE_CONTEXT_FRAMES
                ] = True
        return may_be_speech

    @cached_property
    def cepstra(self) -> np.ndarray:
        """Cepstra [T, 12], a little more noise on it so that silences are alike."""
        return compute_cepstra(self.power + 0.3 * self.noise)


def analyse_recording(audio: np.ndarray, sample_rate: int) -> RecordingCepstra:
    """Analyse the recording; its noise is what its quietest frames hold."""
    audio = np.asarray(audio, dtype=np.float32)
    if audio.ndim != 1 or not np.isfinite(audio).all():
        raise AlignmentError(
            f"expected finite mono audio [S], found shape {audio.shape}: mix it down first"
        )
    if sample_rate != SAMPLE_RATE and audio.size:
        audio = resample(audio, sample_rate, SAMPLE_RATE)
    if len(audio) < 10 * HOP or np.ptp(audio) < 1e-4:
        raise AlignmentError(
            f"expected speech, found {len(audio) / SAMPLE_RATE:.2f} s of silence: leave clips "
            "without speech out"
        )
    power = mel_power(audio)
    energy = decibels(power.sum(1))
    quiet, loud = _frame_levels(energy)
    if loud - quiet < _SPEECH_RANGE:
        raise AlignmentError(
            f"expected speech, whose level varies by {_SPEECH_RANGE} dB and more, found "
            f"{loud - quiet:.0f} dB: "
            "silence or steady noise; leave clips without speech out"
        )
    noise = _estimate_noise(power, energy, quiet)
    speech_power = 10 ** ((loud - _NOISE_COUNTS) / 10) / N_MELS
    energy = decibels(power @ (speech_power / (speech_power + noise)))
    return RecordingCepstra(power, energy, *_frame_levels(energy), noise)


def _frame_levels(energy: np.ndarray) -> tuple[float, float]:
    """Quiet and loud level in dB; the quiet one is that of the noise, whether or not the clip has a
    pause to hear it in.

    Steady noise varies little from frame to frame: where the quietest frames do, they are soft
    speech, and the noise lies somewhere below them. It is looked for no further down than 50 dB
    under the loud level, where a room's tone is.
    """
    quietest, quiet, loud = np.percentile(energy, [1, _QUIET_SHARE, 95])
    below = _SOFT_SPEECH_SLOPE * max(0.0, quiet - quietest - _NOISE_VARIES)
    return float(max(quiet - below, min(quiet, loud - 50), loud - 60)), float(loud)


def _estimate_noise(power: np.ndarray, energy: np.ndarray, quiet: float) -> np.ndarray:
    """Mel power of the noise: of the frames that hold nothing else; if none do, of each band's
    quietest frames."""
    alone = energy <= quiet + 2
    if alone.sum() >= 10:
        noise: np.ndarray = power[alone].mean(0)
        return noise
    lowest = np.quantile(power, 0.02, axis=0)
    noise = lowest * min(1.0, 10 ** (quiet / 10) / lowest.sum())
    return noise


def mel_power(audio: np.ndarray) -> np.ndarray:
    """Power in 40 mel bands, [S] -> [T, 40], of pre-emphasised audio at `SAMPLE_RATE`."""
    emphasised = np.append(audio[:1], audio[1:] - 0.95 * audio[:-1]).astype(np.float32)
    power = mel_spectrogram(
        emphasised, SAMPLE_RATE, n_fft=512, window=400, hop=HOP, n_mels=N_MELS, fmin=60, fmax=7600
    )
    return power + np.float32(1e-10)


def decibels(power: np.ndarray) -> np.ndarray:
    """Power in decibels."""
    level: np.ndarray = 10 * np.log10(power)
    return level


def compute_cepstra(power: np.ndarray) -> np.ndarray:
    """Cepstra of mel power, [T, 40] -> [T, 12]."""
    from scipy.fft import dct

    cepstra: np.ndarray = dct(decibels(power), type=2, norm="ortho", axis=1)[:, :N_CEPSTRA]
    return cepstra


def compute_slopes(cepstra: np.ndarray, reach: int = 4) -> np.ndarray:
    """Slope over nine frames (45 ms), scaled so that it weighs about as much as the cepstra
    themselves."""
    padded = np.pad(cepstra, ((reach, reach), (0, 0)), mode="edge")
    steps = np.arange(-reach, reach + 1)
    slopes = reduce(
        np.add, (step * padded[reach + step : reach + step + len(cepstra)] for step in steps)
    )
    return 4 * slopes / np.sum(steps**2)


def standardise_cepstra(cepstra: np.ndarray, in_words: np.ndarray) -> np.ndarray:
    """What is compared of cepstra [T, 12]: standardised over the frames where words are said, and
    their slopes, [T, 24]."""
    standard = (cepstra - cepstra[in_words].mean(0)) / (cepstra[in_words].std(0) + 1e-3)
    features: np.ndarray = np.c_[standard, compute_slopes(standard)].astype(np.float32)
    return features
