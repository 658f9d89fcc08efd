"""Continua of sounds: from clip to clip, or one clip changed by degrees.

In: two clips, or a clip and a change. Out: a `Continuum` of clips with one text, target and foil, so that a model decides
between the same two words at each step. Two methods lead from clip to clip:

    world   pitch, envelope and noise share of `VoiceFrames` are interpolated after dynamic time warping between the boundaries
            of words; so are durations
    mix     the samples are added, weighted by 1 - t and t: both sounds are heard in between

Graded changes of sound: pitch, tempo, formants, intensity, noise, reverberation.

A change is one function and one entry of `CHANGES`. In: samples [n], samples per second, the amount, a random generator. Out:
changed samples. Pitch, tempo and formants are changed in `VoiceFrames`: by any amount, the neutral one too, the sound is
synthesized, so that all grades have the same quality.

Voice as frames of the WORLD vocoder (Morise, Yokomori & Ozawa 2016): pitch, envelope, noise.

In: samples. Out: `VoiceFrames`, which can be warped in time, changed and synthesized. pyworld comes as source: a C++ compiler
builds it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator

from ...errors import InputError, MissingExtraError
from ...inputs.audio.decoding import decode_audio
from ...inputs.clips.clip import SEGMENTS, Clip
from ...inputs.words.timed_words import Word
from ...interventions.removals import random_phase_noise

FRAME_SECONDS = 0.005


@dataclass(frozen=True, eq=False)
class VoiceFrames:
    """Frames of a voice, one every 5 ms."""

    f0: np.ndarray  # [T], Hz; 0 where the frame is unvoiced
    envelope: np.ndarray  # [T, F], natural logarithm of the power, 0 Hz to half the rate
    aperiodicity: np.ndarray  # [T, F], share of noise, from 0 to 1
    sample_rate: int

    @classmethod
    def analyze(cls, samples: np.ndarray, sample_rate: int) -> VoiceFrames:
        """Analyze samples [n]; raises MissingExtraError if pyworld is not installed."""
        return cls(*_analyze_wave(samples.astype(np.float64).tobytes(), sample_rate), sample_rate)

    def read_at(self, seconds: np.ndarray) -> VoiceFrames:
        """Return the frames at times [N], interpolated; pitch is that of the nearest frame."""
        from scipy.interpolate import interp1d

        frames = np.arange(len(self.f0))
        positions = np.clip(seconds / FRAME_SECONDS, 0, frames[-1])
        envelope, noise = (
            interp1d(frames, values, axis=0)(positions)
            for values in (self.envelope, self.aperiodicity)
        )
        f0 = self.f0[np.round(positions).astype(int)]
        return VoiceFrames(f0, envelope, noise, self.sample_rate)

    def synthesize(self, sample_count: int) -> np.ndarray:
        """Return the sound, float32 [sample_count]."""
        parts = (self.f0, np.exp(self.envelope), np.clip(self.aperiodicity, 0, 1))
        arrays = [np.ascontiguousarray(part, np.float64) for part in parts]
        sound = _import_world().synthesize(*arrays, self.sample_rate, 1000 * FRAME_SECONDS)
        padded: np.ndarray = np.pad(sound, (0, max(0, sample_count - len(sound))))
        return padded[:sample_count].astype(np.float32)


def voice_frame_times(sample_count: int, sample_rate: int) -> np.ndarray:
    """Return the times of the frames of a sound [T], in seconds."""
    return FRAME_SECONDS * np.arange(int(sample_count / sample_rate / FRAME_SECONDS) + 1)


@lru_cache(maxsize=2)  # a clip is changed by several amounts, and a continuum has two ends
def _analyze_wave(wave: bytes, sample_rate: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    world, samples = _import_world(), np.frombuffer(wave)
    f0, times = world.harvest(samples, sample_rate, frame_period=1000 * FRAME_SECONDS)
    envelope = np.log(world.cheaptrick(samples, f0, times, sample_rate))
    return f0, envelope, world.d4c(samples, f0, times, sample_rate)


def _import_world() -> Any:
    with warnings.catch_warnings():  # it reads its version by the deprecated pkg_resources
        warnings.simplefilter("ignore", UserWarning)
        try:
            import pyworld
        except ImportError as error:
            raise MissingExtraError("pyworld", "continua", "a change of a voice") from error
    return pyworld


Samples = np.ndarray


class SoundChange(NamedTuple):
    """A graded change of sound: its function, the unit of its amounts, and their range."""

    function: Callable[[Samples, int, float, Generator], Samples]
    unit: str
    lowest: float
    highest: float


def _scale_pitch(samples: Samples, rate: int, amount: float, generator: Generator) -> Samples:
    voice = VoiceFrames.analyze(samples, rate)
    if not voice.f0.any():
        raise InputError("no frame of the sound is voiced, so it has no pitch to change")
    return replace(voice, f0=voice.f0 * 2 ** (amount / 12)).synthesize(len(samples))


def _scale_tempo(samples: Samples, rate: int, amount: float, generator: Generator) -> Samples:
    sample_count = round(len(samples) / amount)
    times = amount * voice_frame_times(sample_count, rate)
    return VoiceFrames.analyze(samples, rate).read_at(times).synthesize(sample_count)


def _scale_formants(samples: Samples, rate: int, amount: float, generator: Generator) -> Samples:
    """Stretch the frequency axis of the envelope; pitch and times stay."""
    from scipy.interpolate import interp1d

    voice = VoiceFrames.analyze(samples, rate)
    bins = np.arange(voice.envelope.shape[1])
    stretched = interp1d(bins, voice.envelope)(np.minimum(bins / amount, bins[-1]))
    return replace(voice, envelope=stretched).synthesize(len(samples))


def _add_noise(samples: Samples, rate: int, amount: float, generator: Generator) -> Samples:
    """Add noise with the long-term spectrum of the sound; the ratio is that of mean powers."""
    noise = random_phase_noise(samples.astype(np.float64), generator)
    level = float(np.linalg.norm(samples.astype(np.float64)) / np.linalg.norm(noise))
    return samples + noise * level * 10 ** (-amount / 20)


def _add_reverberation(samples: Samples, rate: int, amount: float, generator: Generator) -> Samples:
    """Add decaying noise with the energy of the direct sound (Polack 1988); length and level stay."""
    from scipy.signal import fftconvolve

    decay = 10 ** (-3 * np.arange(round(amount * rate)) / max(amount * rate, 1))  # 60 dB
    room = decay * generator.normal(size=len(decay))
    response = np.append(1.0, room / np.sqrt(np.sum(room**2) + 1e-18))
    wet = fftconvolve(samples.astype(np.float64), response)[: len(samples)]
    return np.asarray(wet * np.sqrt(np.sum(samples.astype(np.float64) ** 2) / np.sum(wet**2)))


CHANGES = {
    "pitch": SoundChange(_scale_pitch, "semitones", -24, 24),
    "tempo": SoundChange(_scale_tempo, "times as fast", 0.25, 4),
    "formants": SoundChange(_scale_formants, "times as high", 0.5, 2),
    "intensity": SoundChange(lambda x, rate, dB, rng: x * 10 ** (dB / 20), "dB", -80, 80),
    "noise": SoundChange(_add_noise, "dB SNR", -40, np.inf),
    "reverberation": SoundChange(_add_reverberation, "s T60", 0, 10),
}


_WORD_COST = 1e6  # of a warp that matches frames of different words
_CEPSTRA = 13  # coefficients by which frames are matched
_Steps = tuple[Callable[[float], np.ndarray], np.ndarray]  # sound by weight; matched times [2, N]


@dataclass(frozen=True, eq=False)
class Continuum:
    """Clips in the order of one property of their sound.

    Parameters
    ----------
    clips : sequence of Clip
        Two or more, with one text, target and foil.
    values : sequence of float
        The property in each clip, ascending or descending (else an InputError).
    name : str
        In tables.
    label : str
        Of the property, with its unit.
    context : str
        What surrounds the changing sound, where a design compares contexts.
    """

    clips: Sequence[Clip]
    values: Sequence[float]
    name: str = "continuum"
    label: str = "value"
    context: str = ""

    def __post_init__(self) -> None:
        signs = set(np.sign(np.diff(np.asarray(self.values, dtype=float))).tolist())
        if len(self.clips) != len(self.values) or signs not in ({1.0}, {-1.0}):
            raise InputError(
                f"{self.name}: expected two clips or more and a value for each, ascending or descending; found "
                f"{len(self.clips)} clips, values {list(self.values)}"
            )


def continuum(
    a: Clip, b: Clip, steps: int, *, method: str = "world", context: str = ""
) -> Continuum:
    """Make clips that go from the sound of one clip to that of another in equal steps.

    Parameters
    ----------
    a, b : Clip
        All steps have text, words, cue, target and foil of a. If b has as many words, their boundaries are matched.
    steps : int
        Number of clips, with both ends. The values of the continuum are the share of b, from 0 to 1.
    method : {"world", "mix"}
        "world" needs the extra `continua`; its ends are synthesized, too. The ends of "mix" are the samples of a and b; silence
        follows the shorter one.
    context : str
        As in `Continuum`.

    Raises
    ------
    InputError
        For fewer than two steps, different sample rates, or a silent clip.

    Examples
    --------
    >>> from speechmix.inputs import bundled
    >>> singular, plural = bundled.clips()[:2]  # synthetic
    >>> steps = continuum(singular, plural, 5, method="mix")
    >>> steps.values, steps.clips[4].text
    ([0.0, 0.25, 0.5, 0.75, 1.0], 'notre maison')
    """
    if not isinstance(steps, int | np.integer) or steps < 2:
        raise InputError(f"a continuum has 2 steps or more, found steps={steps!r}")
    if method not in _METHODS:
        raise InputError(f"method should be {' or '.join(_METHODS)}, found {method!r}")
    (samples_a, rate), (samples_b, rate_b) = _read_sound(a), _read_sound(b)
    if rate != rate_b:
        raise InputError(
            f"{a.name} has {rate} samples per second and {b.name} {rate_b}: resample one of them"
        )
    render, path = _METHODS[method](samples_a, samples_b, rate, _match_boundaries(a, b))
    name, clips, weights = f"{a.name}-{b.name}", list[Clip](), np.linspace(0, 1, steps).tolist()
    for weight in weights:
        times = path[0], (1 - weight) * path[0] + weight * path[1]
        clips.append(_replace_sound(a, render(weight), rate, f"{name}_{weight:.3g}", *times))
    return Continuum(clips, weights, name, "share of the second clip", context)


def graded_changes(
    clip: Clip, change: str, amounts: Sequence[float], *, seed: int = 0, context: str = ""
) -> Continuum:
    """Change one property of a clip's sound by several amounts.

    Parameters
    ----------
    clip : Clip
    change : {"pitch", "tempo", "formants", "intensity", "noise", "reverberation"}
        Or another entry of `CHANGES`. The first three need the extra `continua`.
    amounts : sequence of float
        In order: semitones; times as fast; times as high; dB; dB of signal-to-noise ratio; seconds until a room has decayed by
        60 dB.
    seed : int
        Of the noise and the room, which are the same with all amounts.
    context : str
        As in `Continuum`.

    Raises
    ------
    InputError
        For another change, amounts out of range or order, or a silent clip.

    Examples
    --------
    >>> from speechmix.inputs import bundled
    >>> grades = graded_changes(bundled.clips()[0], "intensity", [-6, 0, 6])
    >>> [round(float(clip.audio(16_000).std()), 3) for clip in grades.clips]
    [0.012, 0.025, 0.05]
    """
    if change not in CHANGES:
        raise InputError(f"change should be one of {', '.join(CHANGES)}; found {change!r}")
    function, unit, lowest, highest = CHANGES[change]
    (samples, rate), clips = _read_sound(clip), list[Clip]()
    for amount in map(float, amounts):
        if not lowest <= amount <= highest:
            limits = f"{lowest:g} to {highest:g} {unit}"
            raise InputError(f"expected {change} from {limits}, found {amount:g}")
        sound = function(samples, rate, amount, np.random.default_rng(seed)).astype(np.float32)
        ends = (np.array([0.0, len(end) / rate]) for end in (samples, sound))
        clips.append(_replace_sound(clip, sound, rate, f"{clip.name}_{change}_{amount:g}", *ends))
    return Continuum(clips, list(map(float, amounts)), clip.name, f"{change} ({unit})", context)


def _read_sound(clip: Clip) -> tuple[np.ndarray, int]:
    """Return the samples of a clip at the sample rate of its recording, and that rate."""
    path = clip.path
    rate = clip._recording.sample_rate if path is None else decode_audio(path, 0.0, 0.01)[1]
    samples = clip.audio(rate)
    if not samples.any():
        raise InputError(f"{clip.name} is digital silence: there is no sound to change by degrees")
    return samples, rate


def _replace_sound(
    clip: Clip, samples: np.ndarray, rate: int, name: str, times: np.ndarray, new_times: np.ndarray
) -> Clip:
    """Return a clip with another sound, whose words and tiers move from some times to others."""

    def move(word: Word) -> Word:
        edges = np.interp([(word.start, word.end), *word.pieces], times, new_times).tolist()
        (start, end), *pieces = map(tuple, edges)
        return replace(word, start=start, end=end, pieces=tuple(pieces))

    fields = {key: getattr(clip, key) for key in ("text", "foil", "language", "meta")}
    return Clip.from_array(samples, rate, name=name, **fields).replace(
        words=None if clip.words is None else [*map(move, clip.words)],
        tiers={unit: [*map(move, tier)] for unit, tier in clip.tiers.items()},
        cue=clip.cue_request,
        target=clip.target_request,
        alignment=SEGMENTS if clip.has_segments else None,
    )


def _match_boundaries(a: Clip, b: Clip) -> np.ndarray:
    """Return times [2, N] of both clips that belong together: of boundaries of words, and the ends."""
    words = a.words or (), b.words or ()
    matched = zip(*words, strict=True) if len(words[0]) == len(words[1]) else ()
    pairs = [pair for v, w in matched for pair in ((v.start, w.start), (v.end, w.end))]
    return np.array([(0.0, 0.0), *pairs, (a.duration, b.duration)]).T


def _mix_samples(a: np.ndarray, b: np.ndarray, rate: int, boundaries: np.ndarray) -> _Steps:
    count = max(len(a), len(b))
    a, b = (np.pad(samples, (0, count - len(samples))) for samples in (a, b))
    return lambda weight: (1 - weight) * a + weight * b, boundaries


def _interpolate_voices(a: np.ndarray, b: np.ndarray, rate: int, boundaries: np.ndarray) -> _Steps:
    voices = [VoiceFrames.analyze(samples, rate) for samples in (a, b)]
    path = _warp_voices(voices, boundaries)

    def render(weight: float) -> np.ndarray:
        count = round((1 - weight) * len(a) + weight * len(b))
        grid, path_times = voice_frame_times(count, rate), (1 - weight) * path[0] + weight * path[1]
        first, second = (
            voice.read_at(np.interp(grid, path_times, times))
            for voice, times in zip(voices, path, strict=True)
        )
        # Where one end is unvoiced, the other's pitch: aperiodicity says how much of it is heard.
        single_f0 = first.f0 * (weight < 1) + second.f0 * (weight > 0)
        mean_f0 = first.f0 ** (1 - weight) * second.f0**weight
        f0 = np.where((first.f0 > 0) & (second.f0 > 0), mean_f0, single_f0)
        envelope = (1 - weight) * first.envelope + weight * second.envelope
        noise = (1 - weight) * first.aperiodicity + weight * second.aperiodicity
        return VoiceFrames(f0, envelope, noise, rate).synthesize(count)

    return render, path


def _warp_voices(voices: Sequence[VoiceFrames], boundaries: np.ndarray) -> np.ndarray:
    """Return times [2, N] at which two voices sound alike: a warp that keeps boundaries matched."""
    import librosa
    from scipy.fft import dct
    from scipy.spatial.distance import cdist

    cepstra, word_indices = [], []
    for voice, times in zip(voices, boundaries, strict=True):
        mel = librosa.filters.mel(sr=voice.sample_rate, n_fft=2 * voice.envelope.shape[1] - 2)
        energies = np.log(np.exp(voice.envelope) @ mel.T + np.finfo(float).tiny)
        cepstra.append(dct(energies - energies.mean(axis=0), norm="ortho")[:, :_CEPSTRA])
        frames = FRAME_SECONDS * np.arange(len(voice.f0))
        word_indices.append(np.searchsorted(times[1:-1], frames, side="right"))
    costs = cdist(*cepstra)
    costs += _WORD_COST * (word_indices[0][:, None] != word_indices[1][None])
    matched_frames = librosa.sequence.dtw(C=costs)[1]
    path = np.concatenate([matched_frames.T * FRAME_SECONDS, boundaries], axis=1)
    return np.maximum.accumulate(path[:, np.lexsort(path[::-1])], axis=1)


_METHODS = {"world": _interpolate_voices, "mix": _mix_samples}
