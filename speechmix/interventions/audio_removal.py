"""Mute words in the audio of a clip: replace them by zeros, room noise, noise or another word.

No fill is neutral: zeros never occur in a room, noise is not speech, another word says something
else. So a conclusion should not rest on one fill. The clip keeps its length.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..errors import InputError
from ..inputs.clips.clip import Clip
from ..inputs.clips.clip_metadata import SEGMENTS
from ..inputs.words.cue_and_target import cue_words

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..inputs.words.timed_words import Word

_Interval = tuple[float, float]  # of a word, or of one piece of it, in seconds
SOUND_FILLS = ("zeros", "room", "noise", "word")
FILL_SAMPLE_RATE = 16_000
_MIN_ROOM_SECONDS = 0.03  # seconds of a clip without words, below which its room cannot be heard
_FADE_SECONDS = 0.005  # seconds in which filler and clip cross over


def mute(
    clip: Clip, word: int | Sequence[int] | None = None, *, fill: str = "zeros", seed: int = 0
) -> Clip:
    """Return the clip with the audio of a word, or of several, replaced.

    The words keep their times. Each piece of a word in pieces is replaced; what lies between the
    pieces stays.

    Parameters
    ----------
    clip : Clip
        With words.
    word : int or sequence of int, optional
        Index of the word, or of several; the cue (all its words) by default. With
        ``fill="word"``, no muted word fills another.
    fill : {"zeros", "room", "noise", "word"}
        Zeros; the clip's own audio outside all words, repeated; noise with the word's spectrum and
        loudness (random phases); or the clip's word that is nearest in length (neither cue nor
        target if possible), cut or repeated to the length of this one.
    seed : int
        Seed of the noise.

    Returns
    -------
    Clip

    Raises
    ------
    InputError
        If the clip has no words, less than 30 ms outside words (for "room"), or no other word (for
        "word").

    Examples
    --------
    >>> clip = Clip.from_array(np.ones(16_000), 16_000, words=[("les", 0.2, 0.4), ("livres", 0.4, 0.9)], cue="les")
    >>> float(mute(clip).audio(16_000)[4_800])
    0.0
    """
    word_indices = _check_word_indices(
        clip, (clip.cue_words or [None]) if word is None else cue_words(word)
    )
    if fill not in SOUND_FILLS:
        raise InputError(f"fill should be one of {SOUND_FILLS}, found {fill!r}")
    audio = clip.audio(FILL_SAMPLE_RATE)
    muted = audio.copy()
    for interval in (
        interval for index in word_indices for interval in (clip.words or ())[index].intervals
    ):
        filler = _FILLERS[fill](clip, audio, word_indices, interval, seed)
        sample_range = _sample_range(interval)
        muted[sample_range] = (
            filler if fill == "zeros" else _blend_edges(filler, audio[sample_range])
        )
    return replace_sound(clip, muted)


def scale_words(clip: Clip, gains: Mapping[int, float]) -> Clip:
    """Return the clip with the samples of some words scaled: 1 keeps a word, 0 mutes it.

    `gains` are factors by word index; a word that the clip does not have is an InputError.
    """
    _check_word_indices(clip, gains)
    audio = clip.audio(FILL_SAMPLE_RATE).copy()
    for index, gain in gains.items():
        for interval in (clip.words or ())[index].intervals:
            audio[_sample_range(interval)] *= gain
    return replace_sound(clip, audio)


def splice_words(clip: Clip, other: Clip, words: Sequence[int]) -> Clip:
    """Return the clip with another clip's audio of some words, without word times.

    The audio keeps the other clip's length, so later words move. A word with more pieces in one
    clip than in the other is an InputError.
    """
    audio, donor = clip.audio(FILL_SAMPLE_RATE), other.audio(FILL_SAMPLE_RATE)
    interval_pairs: list[tuple[_Interval, _Interval]] = []
    for index in words:
        word, replacement = (clip.words or ())[index], (other.words or ())[index]
        if len(word.intervals) != len(replacement.intervals):
            raise InputError(
                f"{clip.name}: {word.text!r} has {len(word.intervals)} pieces, but "
                f"{replacement.text!r} in {other.name} has {len(replacement.intervals)}"
            )
        interval_pairs += zip(word.intervals, replacement.intervals, strict=True)
    # The last first: those before it have not moved yet.
    for interval, donor_interval in sorted(interval_pairs, reverse=True):
        sample_range, donor_samples = _sample_range(interval), donor[_sample_range(donor_interval)]
        audio = np.concatenate(
            [audio[: sample_range.start], donor_samples, audio[sample_range.stop :]]
        )
    return replace_sound(clip.replace(words=None, cue=None, target=None, foil=None), audio)


def _check_word_indices(clip: Clip, words: Iterable[int | None]) -> list[int]:
    requested = list(words)
    indices = [word for word in requested if word is not None and 0 <= word < len(clip.words or ())]
    if not clip.words or len(indices) < len(requested):
        raise InputError(
            f"{clip.name}: expected words with times and the index of one of them (or a cue), found "
            f"{len(clip.words or ())} words, word={requested}"
        )
    return indices


def replace_sound(clip: Clip, audio: np.ndarray) -> Clip:
    """Return the clip with other samples, at 16 kHz."""
    metadata = {
        name: getattr(clip, name)
        for name in ("name", "text", "cue", "target", "foil", "language", "meta")
    }
    changed = Clip.from_array(audio, FILL_SAMPLE_RATE, **metadata)
    return (
        changed
        if clip.words is None
        else changed.with_words(clip.words, alignment=SEGMENTS if clip.has_segments else None)
    )


def random_phase_noise(samples: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Make noise with the spectrum of a sound: the same magnitudes, random phases."""
    spectrum = np.abs(np.fft.rfft(samples))
    phases = np.exp(1j * generator.uniform(0, 2 * np.pi, len(spectrum)))
    return np.asarray(np.fft.irfft(spectrum * phases, len(samples)))


def _sample_range(interval: _Interval) -> slice:
    start, end = interval
    return slice(round(start * FILL_SAMPLE_RATE), round(end * FILL_SAMPLE_RATE))


def _word_samples(word: Word, audio: np.ndarray) -> np.ndarray:
    """Return the samples of all pieces of a word."""
    return np.concatenate([audio[_sample_range(interval)] for interval in word.intervals])


def _fill_with_zeros(
    clip: Clip, audio: np.ndarray, muted_indices: Sequence[int], interval: _Interval, seed: int
) -> np.ndarray:
    return np.zeros(len(audio[_sample_range(interval)]), audio.dtype)


def _fill_with_room(
    clip: Clip, audio: np.ndarray, muted_indices: Sequence[int], interval: _Interval, seed: int
) -> np.ndarray:
    is_spoken = np.zeros(len(audio), bool)
    for spoken_interval in (edges for word in clip.words or () for edges in word.intervals):
        is_spoken[_sample_range(spoken_interval)] = True
    if (~is_spoken).sum() < _MIN_ROOM_SECONDS * FILL_SAMPLE_RATE:
        raise InputError(
            f"{clip.name}: fill 'room' needs {_MIN_ROOM_SECONDS * 1000:.0f} ms outside words, found "
            f"{(~is_spoken).sum() / FILL_SAMPLE_RATE * 1000:.0f} ms; use 'zeros', 'noise' or 'word'"
        )
    return _fit_length(audio[~is_spoken], len(audio[_sample_range(interval)]))


def _fill_with_noise(
    clip: Clip, audio: np.ndarray, muted_indices: Sequence[int], interval: _Interval, seed: int
) -> np.ndarray:
    sound = audio[_sample_range(interval)]
    noise = random_phase_noise(sound, np.random.default_rng(seed))
    loudness, noise_loudness = np.sqrt(np.mean(sound**2)), np.sqrt(np.mean(noise**2))
    return (noise * (loudness / noise_loudness if noise_loudness > 0 else 0)).astype(audio.dtype)


def _fill_with_word(
    clip: Clip, audio: np.ndarray, muted_indices: Sequence[int], interval: _Interval, seed: int
) -> np.ndarray:
    words = clip.words or ()
    other_indices = [
        i
        for i in range(len(words))
        if i not in muted_indices and len(_word_samples(words[i], audio))
    ]
    neutral_indices = [i for i in other_indices if i not in (*clip.cue_words, clip.target)]
    if not other_indices:
        raise InputError(
            f"{clip.name}: fill 'word' needs another word; use 'zeros', 'room' or 'noise'"
        )
    seconds = interval[1] - interval[0]
    filler_index = min(
        neutral_indices or other_indices, key=lambda i: abs(words[i].seconds - seconds)
    )
    return _fit_length(
        _word_samples(words[filler_index], audio), len(audio[_sample_range(interval)])
    )


_FILLERS: dict[str, Callable[[Clip, np.ndarray, Sequence[int], _Interval, int], np.ndarray]] = {
    "zeros": _fill_with_zeros,
    "room": _fill_with_room,
    "noise": _fill_with_noise,
    "word": _fill_with_word,
}


def _fit_length(samples: np.ndarray, length: int) -> np.ndarray:
    """Cut samples to a length, or repeat them forwards and backwards (so without jumps)."""
    mirrored_samples = np.concatenate([samples, samples[::-1]])
    return np.resize(mirrored_samples, length) if length > len(samples) else samples[:length]


def _blend_edges(filler: np.ndarray, sound: np.ndarray) -> np.ndarray:
    """Cross-fade a filler with the audio at both edges."""
    ramp_length = min(round(_FADE_SECONDS * FILL_SAMPLE_RATE), len(sound) // 2)
    filler_weight = np.ones(len(sound), sound.dtype)
    ramp = np.linspace(0, 1, ramp_length, endpoint=False, dtype=sound.dtype)
    filler_weight[:ramp_length], filler_weight[len(filler_weight) - ramp_length :] = (
        ramp,
        ramp[::-1],
    )
    blended: np.ndarray = filler_weight * filler + (1 - filler_weight) * sound
    return blended
