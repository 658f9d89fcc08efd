"""Continua of sounds: from clip to clip, or one clip changed by degrees.

In: two clips, or a clip and a change. Out: a `Continuum` of clips with one text, target and foil, so that a model decides
between the same two words at each step. Two methods lead from clip to clip:

    world   pitch, envelope and noise share of `VoiceFrames` are interpolated after dynamic time warping between the boundaries
            of words; so are durations
    mix     the samples are added, weighted by 1 - t and t: both sounds are heard in between
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...errors import InputError
from ...inputs.audio.decoding import decode_audio
from ...inputs.clips.clip import SEGMENTS, Clip
from ...inputs.words.timed_words import Word
from .sound_changes import CHANGES
from .world_vocoder import FRAME_SECONDS, VoiceFrames, voice_frame_times

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
        Or another entry of `sound_changes.CHANGES`. The first three need the extra `continua`.
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
