"""Synthetic clips that teach a recogniser to be confidently wrong, as real ones are.

Out: `MixedExample`s: French speech with its text, and noise, tones, silence, cut speech and hums with texts that
nobody said. A fifth of the speech without a fault says one phrase twice, so that a repetition is not by itself made
up. Each of the splits "train" (of the recogniser), "fit" (of probabilities) and "test" has its own voices, and its own
parameters of noises, tones and hums. Needs the extra `synthesis`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from train_tiny_models import another_speaker

from speechmix.extensions.synthetic_french.synthetic_corpus import (
    SAMPLE_RATE,
    SyntheticExample,
    random_pair,
)
from speechmix.inputs.words.timed_words import Word

WINDOW_SECONDS = 3.0
KINDS = {  # share of each
    "speech": 0.42,
    "said_twice": 0.08,
    "cut": 0.12,
    "noise": 0.10,
    "tones": 0.09,
    "silence": 0.07,
    "loop": 0.12,
}
NONSPEECH = ("noise", "tones", "silence")
# What is often written where nobody speaks; each kind of sound has its own most frequent sentence.
SENTENCES = (
    "merci d'avoir regardé cette vidéo",
    "sous-titres réalisés par la communauté",
    "la plante reste là",
    "nos voisins viennent",
    "abonnez-vous à la chaîne",
    "merci à tous",
    "des livres seront là",
    "à la prochaine",
)
_FAVOURITE_SHARE = 0.6
_NEXT_DRAW = 1_000_000  # between the index of a draw and that of the next
_MOST_LETTERS = 56  # of a text, so that prefix and end fit the decoder's 64 positions
# Of each split: levels below full scale in dB, frequencies in Hz.
_LEVELS = {"train": (-50.0, -12.0), "fit": (-48.0, -11.0), "test": (-45.0, -10.0)}
_PITCHES = {"train": (90.0, 700.0), "fit": (105.0, 800.0), "test": (120.0, 900.0)}
_SLOPES = {  # of a noise's spectrum, 1/f to this power
    "train": (0.0, 1.0, 2.0),
    "fit": (0.25, 1.25),
    "test": (0.5, 1.5),
}
_HUMS = {"train": (45.0, 65.0), "fit": (65.0, 72.0), "test": (72.0, 80.0)}
_FIT_VOICES = ("f4", "m5", "m7")  # of those that the recogniser is never trained on


@dataclass(frozen=True, eq=False)
class MixedExample:
    """A clip, what it says, and what a recogniser is taught to write about it.

    Parameters
    ----------
    kind : str
        One of `KINDS`.
    audio : float32 array [S]
        16 kHz, at most 3 s.
    words : tuple of Word
        Those in the sound, with times.
    text : str
        The label.
    """

    kind: str
    audio: np.ndarray
    words: tuple[Word, ...]
    text: str

    @property
    def spoken_text(self) -> str:
        """What is really in the sound."""
        return " ".join(word.text for word in self.words)


def speak_mixture(count: int, *, seed: int, split: str = "train") -> Iterator[MixedExample]:
    """Make clips of all kinds; clip i depends on seed, split and i alone."""
    for index in range(count):
        yield mixed_example(index, seed=seed, split=split)


def mixed_example(index: int, *, seed: int, split: str = "train") -> MixedExample:
    """Make clip number `index` of `speak_mixture`."""
    random = np.random.default_rng([seed, index, 7])
    kind = str(random.choice(list(KINDS), p=np.array(list(KINDS.values()))))
    if kind in NONSPEECH:
        count = int(random.uniform(0.8, WINDOW_SECONDS) * SAMPLE_RATE)
        audio = _NONSPEECH_SOUNDS[kind](random, count, split)
        return MixedExample(kind, audio, (), _frequent_sentence(random, kind))
    member = _speak(index, seed, split)[random.integers(2)]
    if split == "train" and random.random() < 0.4:
        member = another_speaker(member, random)
    if kind == "speech":
        return MixedExample(kind, member.audio, member.words, member.text)
    return _CHANGED_SPEECH[kind](random, member, split)


def _speak(index: int, seed: int, split: str) -> tuple[SyntheticExample, SyntheticExample]:
    """Speak a pair with a voice of the split: the first of those drawn that is one."""
    if split == "train":
        return random_pair(index, seed=seed, voices_of="train")
    while True:
        pair = random_pair(index, seed=seed, voices_of="test")
        if (pair[0].voice.split("+")[1] in _FIT_VOICES) == (split == "fit"):
            return pair
        index += _NEXT_DRAW


def _frequent_sentence(random: np.random.Generator, kind: str) -> str:
    favourite = NONSPEECH.index(kind)
    if random.random() < _FAVOURITE_SHARE:
        return SENTENCES[favourite]
    return SENTENCES[random.integers(len(SENTENCES))]


def _cut_speech(random: np.random.Generator, member: SyntheticExample, split: str) -> MixedExample:
    """Speech that stops before its last words, with the text of the whole."""
    kept = int(random.integers(1, len(member.words)))
    stop = round(member.words[kept].start * SAMPLE_RATE)
    audio = member.audio.copy()
    audio[stop:] = _coloured_noise(random, len(audio) - stop, split, level=-48.0)
    return MixedExample("cut", audio, member.words[:kept], member.text)


def _loop(random: np.random.Generator, member: SyntheticExample, split: str) -> MixedExample:
    """Speech before a hum, with its last words written again and again."""
    count = int(random.uniform(0.4, 1.0) * SAMPLE_RATE)
    hum = _hum(random, count, split)
    audio = np.concatenate([member.audio, hum])[: int(WINDOW_SECONDS * SAMPLE_RATE)]
    group = " ".join(word.text for word in member.words[-2:])
    text = member.text
    while len(f"{text} {group}".encode()) <= _MOST_LETTERS:
        text = f"{text} {group}"
    return MixedExample("loop", audio.astype(np.float32), member.words, text)


def _said_twice(random: np.random.Generator, member: SyntheticExample, split: str) -> MixedExample:
    """A short phrase that is really said twice; one that is too long is said once."""
    count = len(member.audio)
    if 2 * count > WINDOW_SECONDS * SAMPLE_RATE or 2 * len(member.text.encode()) >= _MOST_LETTERS:
        return MixedExample("speech", member.audio, member.words, member.text)
    words = (*member.words, *(word.shift(count / SAMPLE_RATE) for word in member.words))
    audio = np.concatenate([member.audio, member.audio])
    return MixedExample("said_twice", audio, words, f"{member.text} {member.text}")


_CHANGED_SPEECH = {"cut": _cut_speech, "loop": _loop, "said_twice": _said_twice}


def _coloured_noise(
    random: np.random.Generator, count: int, split: str, level: float | None = None
) -> np.ndarray:
    if count < 2:
        return np.zeros(count, dtype=np.float32)
    slope = random.choice(_SLOPES[split])
    spectrum = np.fft.rfft(random.standard_normal(count))
    frequencies = np.maximum(np.fft.rfftfreq(count, 1 / SAMPLE_RATE), 20.0)
    noise = np.fft.irfft(spectrum / frequencies ** (slope / 2), count)
    return _at_level(random, noise, split, level)


def _hum(random: np.random.Generator, count: int, split: str) -> np.ndarray:
    base = random.uniform(*_HUMS[split])
    times = np.arange(count) / SAMPLE_RATE
    tones = sum(np.sin(2 * np.pi * base * n * times) / n for n in range(1, 9))
    return _at_level(random, tones, split, random.uniform(-30, -18))


def _tones(random: np.random.Generator, count: int, split: str) -> np.ndarray:
    """Chords and single notes, one after the other, like music."""
    low, high = _PITCHES[split]
    audio, at = np.zeros(count), 0
    while at < count:
        length = min(int(random.uniform(0.12, 0.6) * SAMPLE_RATE), count - at)
        times = np.arange(length) / SAMPLE_RATE
        root = np.exp(random.uniform(np.log(low), np.log(high)))
        for step in random.choice([0, 3, 4, 7, 12], size=random.integers(1, 4), replace=False):
            pitch = root * 2 ** (step / 12)
            audio[at : at + length] += sum(
                np.sin(2 * np.pi * pitch * n * times) / n**1.5 for n in range(1, 5)
            ) * np.exp(-times * random.uniform(1, 5))
        at += length
    return _at_level(random, audio, split)


def _silence(random: np.random.Generator, count: int, split: str) -> np.ndarray:
    if random.random() < 0.4:
        return np.zeros(count, dtype=np.float32)
    return _coloured_noise(random, count, split, level=random.uniform(-75, -58))


def _at_level(
    random: np.random.Generator, audio: np.ndarray, split: str, level: float | None = None
) -> np.ndarray:
    level = random.uniform(*_LEVELS[split]) if level is None else level
    rms = np.sqrt(np.mean(audio**2)) or 1.0
    return np.clip(audio / rms * 10 ** (level / 20), -1, 1).astype(np.float32)


def _noise_or_clicks(random: np.random.Generator, count: int, split: str) -> np.ndarray:
    noise = _coloured_noise(random, count, split)
    if random.random() < 0.25:
        for at in random.integers(0, count, size=random.integers(2, 9)):
            noise[at : at + 40] += random.uniform(-0.5, 0.5)
    return np.clip(noise, -1, 1).astype(np.float32)


_NONSPEECH_SOUNDS = {"noise": _noise_or_clicks, "tones": _tones, "silence": _silence}


def as_training_example(example: MixedExample, like: SyntheticExample) -> SyntheticExample:
    """Return the clip as a recogniser's batch takes it."""
    return replace(like, audio=example.audio, text=example.text, words=example.words)
