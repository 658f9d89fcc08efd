"""Silence words in the sound of a clip: with nothing, the room's own tone, noise of like spectrum,
or another word.

Each filler is off what a model was trained on in a way of its own (digital silence never happens in
a room, noise is no speech, another word says something else), so a conclusion should not rest on
one alone. The clip keeps its length.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..errors import InputError
from ..inputs.clips.clip import Clip
from ..inputs.words.cue_and_target import cue_words

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..inputs.words.timed_words import Word

_Interval = tuple[float, float]  # of a word, or of one piece of it, in seconds
SOUND_FILLS = ("zeros", "room", "noise", "word")
FILL_RATE = 16_000
_LEAST_ROOM = 0.03  # seconds of a clip without words, below which its room cannot be heard
_FADE = 0.005  # seconds in which filler and clip cross over


def silence(
    clip: Clip, word: int | Sequence[int] | None = None, *, fill: str = "zeros", seed: int = 0
) -> Clip:
    """Return the clip with the sound of a word, or of several, replaced; its words keep their
    times.

    Of a word in pieces each piece is replaced, and what lies between them stays.

    Parameters
    ----------
    clip : Clip
        With words.
    word : int or sequence of int, optional
        Index of the word, or of several; the cue (all its words) by default. None of several fills
        another.
    fill : {"zeros", "room", "noise", "word"}
        Digital silence; the clip's own sound where nobody speaks, repeated; noise with the word's
        spectrum and loudness (its phases drawn anew); or the clip's word that is nearest in length
        (neither cue nor target where there is another), cut or repeated to this one's length.
    seed : int
        Of the noise.

    Returns
    -------
    Clip

    Raises
    ------
    InputError
        If the clip has no words, or nothing to fill with: no 30 ms without words, or no other word.

    Examples
    --------
    >>> clip = Clip.from_array(np.ones(16_000), 16_000, words=[("les", 0.2, 0.4), ("livres", 0.4, 0.9)], cue="les")
    >>> float(silence(clip).audio(16_000)[4_800])
    0.0
    """
    words = _words_asked(clip, (clip.cue_words or [None]) if word is None else cue_words(word))
    if fill not in SOUND_FILLS:
        raise InputError(f"fill should be one of {SOUND_FILLS}, found {fill!r}")
    audio = clip.audio(FILL_RATE)
    silenced = audio.copy()
    for interval in (
        interval for index in words for interval in (clip.words or ())[index].intervals
    ):
        filler = _FILLERS[fill](clip, audio, words, interval, seed)
        place = _samples_of(interval)
        silenced[place] = filler if fill == "zeros" else _faded(filler, audio[place])
    return replace_sound(clip, silenced)


def scale_words(clip: Clip, gains: Mapping[int, float]) -> Clip:
    """Return the clip with the samples of some words scaled: 1 leaves a word as it is, 0 is digital
    silence.

    Parameters
    ----------
    clip : Clip
        With words.
    gains : dict of int to float
        By the index of a word.

    Raises
    ------
    InputError
        If the clip has no such word.

    Examples
    --------
    >>> clip = Clip.from_array(np.ones(16_000), 16_000, words=[("les", 0.2, 0.4), ("livres", 0.4, 0.9)])
    >>> float(scale_words(clip, {0: 0.25}).audio(16_000)[4_800])
    0.25
    """
    _words_asked(clip, gains)
    audio = clip.audio(FILL_RATE).copy()
    for index, gain in gains.items():
        for interval in (clip.words or ())[index].intervals:
            audio[_samples_of(interval)] *= gain
    return replace_sound(clip, audio)


def splice_words(clip: Clip, other: Clip, words: Sequence[int]) -> Clip:
    """Return the clip with another clip's sound of some words, as long as it is there, so that
    later words move; without words.

    Raises
    ------
    InputError
        If a word has more pieces in one clip than in the other.
    """
    audio, donor = clip.audio(FILL_RATE), other.audio(FILL_RATE)
    pieces: list[tuple[_Interval, _Interval]] = []
    for index in words:
        word, replacement = (clip.words or ())[index], (other.words or ())[index]
        if len(word.intervals) != len(replacement.intervals):
            raise InputError(
                f"{clip.name}: {word.text!r} is in {len(word.intervals)} pieces, the other's "
                f"{replacement.text!r} in {len(replacement.intervals)}"
            )
        pieces += zip(word.intervals, replacement.intervals, strict=True)
    # The last first: those before it have not moved yet.
    for here, there in sorted(pieces, reverse=True):
        old, new = _samples_of(here), donor[_samples_of(there)]
        audio = np.concatenate([audio[: old.start], new, audio[old.stop :]])
    return replace_sound(clip.replace(words=None, cue=None, target=None, foil=None), audio)


def _words_asked(clip: Clip, words: Iterable[int | None]) -> list[int]:
    asked = list(words)
    indices = [word for word in asked if word is not None and 0 <= word < len(clip.words or ())]
    if not clip.words or len(indices) < len(asked):
        raise InputError(
            f"{clip.name}: silencing needs words with times and the index of one (or a cue); "
            f"found {len(clip.words or ())} words, word={asked[0] if len(asked) == 1 else asked!r}"
        )
    return indices


def replace_sound(clip: Clip, audio: np.ndarray) -> Clip:
    """Return the clip with other samples, at 16 kHz."""
    facts = {
        name: getattr(clip, name)
        for name in ("name", "text", "words", "cue", "target", "foil", "language", "meta")
    }
    return Clip.from_array(audio, FILL_RATE, **facts)


def _samples_of(interval: _Interval) -> slice:
    start, end = interval
    return slice(round(start * FILL_RATE), round(end * FILL_RATE))


def _sound_of(word: Word, audio: np.ndarray) -> np.ndarray:
    """Samples of a word, of all its pieces."""
    return np.concatenate([audio[_samples_of(interval)] for interval in word.intervals])


def _zeros(
    clip: Clip, audio: np.ndarray, silenced: Sequence[int], interval: _Interval, seed: int
) -> np.ndarray:
    return np.zeros(len(audio[_samples_of(interval)]), audio.dtype)


def _room(
    clip: Clip, audio: np.ndarray, silenced: Sequence[int], interval: _Interval, seed: int
) -> np.ndarray:
    spoken = np.zeros(len(audio), bool)
    for spoken_interval in (edges for word in clip.words or () for edges in word.intervals):
        spoken[_samples_of(spoken_interval)] = True
    if (~spoken).sum() < _LEAST_ROOM * FILL_RATE:
        raise InputError(
            f"{clip.name}: no sound of the room: expected at least {_LEAST_ROOM * 1000:.0f} ms "
            "that no word has, found "
            f"{(~spoken).sum() / FILL_RATE * 1000:.0f} ms; fill with 'zeros', 'noise' or 'word'"
        )
    return _of_length(audio[~spoken], len(audio[_samples_of(interval)]))


def _noise(
    clip: Clip, audio: np.ndarray, silenced: Sequence[int], interval: _Interval, seed: int
) -> np.ndarray:
    sound = audio[_samples_of(interval)]
    spectrum = np.abs(np.fft.rfft(sound))
    phases = np.random.default_rng(seed).uniform(0, 2 * np.pi, len(spectrum))
    noise = np.fft.irfft(spectrum * np.exp(1j * phases), len(sound))
    loudness, own = np.sqrt(np.mean(sound**2)), np.sqrt(np.mean(noise**2))
    return (noise * (loudness / own if own > 0 else 0)).astype(audio.dtype)


def _other_word(
    clip: Clip, audio: np.ndarray, silenced: Sequence[int], interval: _Interval, seed: int
) -> np.ndarray:
    words = clip.words or ()
    others = [i for i in range(len(words)) if i not in silenced and len(_sound_of(words[i], audio))]
    neutral = [i for i in others if i not in (*clip.cue_words, clip.target)]
    if not others:
        raise InputError(
            f"{clip.name}: no other word to fill with; fill with 'zeros', 'room' or 'noise'"
        )
    length = interval[1] - interval[0]
    nearest = min(neutral or others, key=lambda i: abs(words[i].seconds - length))
    return _of_length(_sound_of(words[nearest], audio), len(audio[_samples_of(interval)]))


_FILLERS: dict[str, Callable[[Clip, np.ndarray, Sequence[int], _Interval, int], np.ndarray]] = {
    "zeros": _zeros,
    "room": _room,
    "noise": _noise,
    "word": _other_word,
}


def _of_length(samples: np.ndarray, length: int) -> np.ndarray:
    """Samples cut, or repeated there and back (so that nothing jumps), to a length."""
    there_and_back = np.concatenate([samples, samples[::-1]])
    return np.resize(there_and_back, length) if length > len(samples) else samples[:length]


def _faded(filler: np.ndarray, sound: np.ndarray) -> np.ndarray:
    """A filler that comes in and goes out over a few milliseconds."""
    length = min(round(_FADE * FILL_RATE), len(sound) // 2)
    share = np.ones(len(sound), sound.dtype)
    ramp = np.linspace(0, 1, length, endpoint=False, dtype=sound.dtype)
    share[:length], share[len(share) - length :] = ramp, ramp[::-1]
    faded: np.ndarray = share * filler + (1 - share) * sound
    return faded
