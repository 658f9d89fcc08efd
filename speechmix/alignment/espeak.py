"""Speech from text with known word times, by espeak-ng (through the `espeakng-loader` package and
ctypes).

In: a text and a voice. Out: a `Speech`: audio, the written words with their times, the phonemes
with theirs. The same call gives the same bits, in any order, in any process.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ..errors import InputError
from ..inputs.audio.spectrograms import resample
from ..inputs.words.timed_words import Word
from .alignment_result import aligned_words
from .espeak_letters import find_unread_words, is_language_mark
from .espeak_library import PHONEME, WORD, Heard, data_path, run_synthesis, voice_table

RATES = (80, 450)  # words per minute that espeak-ng accepts without its own speed-up
PITCHES = (0, 99)


@dataclass(frozen=True, eq=False)
class Speech:
    """A synthetic utterance: float32 audio [S], mono, in [-1, 1].

    There is one of `words` for each item of ``aligned_words(text)``, in seconds. A word ends where
    the next begins, or where the pause before the next begins. Words that espeak-ng speaks as one
    ("parce que") share its time by number of letters. `phonemes` are in IPA, with stress marks; a
    pause has an empty text.
    """

    audio: np.ndarray
    sample_rate: int
    words: tuple[Word, ...]
    phonemes: tuple[Word, ...]


def speak(
    text: str, *, voice: str = "fr-fr", rate: int = 175, pitch: int = 50, sample_rate: int = 16_000
) -> Speech:
    """Synthesise a text.

    `voice` is a language code of `espeak_voices` ("fr", "fr-be", "en-us"), optionally with a speaker
    variant ("fr+f2"); `rate` is in words per minute, 80 to 450; `pitch` is 0 to 99. The audio is
    resampled to `sample_rate` from the 22,050 Hz of espeak-ng. An InputError says that the text has
    no words, that voice, variant, rate or pitch cannot be, or that the voice cannot read some
    letters; a MissingExtraError, that espeakng-loader is not installed.

    Examples
    --------
    >>> speech = speak("L'enfant mange 80% des petits-pois : bravo !")
    >>> [word.text for word in speech.words]
    ["L'enfant", 'mange', '80%', 'des', 'petits-pois', 'bravo']
    """
    for name, value, (low, high) in (("rate", rate, RATES), ("pitch", pitch, PITCHES)):
        if not low <= value <= high:
            raise InputError(f"{name} must be between {low} and {high}, found {value}")
    if not aligned_words(text):
        raise InputError(f"expected a text with words to speak, found {text!r}")
    # One blank between tokens and one code point per accented letter, so that espeak-ng's positions
    # are ours.
    tokens = [unicodedata.normalize("NFC", token.replace("\0", "")) for token in text.split()]
    samples, events, native_rate = run_synthesis(" ".join(tokens), voice_name(voice), rate, pitch)
    switches = any(kind == PHONEME and is_language_mark(name) for kind, _, _, name in events)
    base_voice = voice_name(voice.partition("+")[0])
    if unread := find_unread_words(tokens, base_voice, switches=switches):
        raise InputError(
            f"the espeak-ng voice {voice!r} cannot read {', '.join(map(repr, unread[:5]))}: it would say "
            "the names of the letters: write these words in letters that the voice reads (Japanese in "
            "kana), or align with a CTC model of the language (model=)"
        )
    phonemes = _phonemes(events, len(samples))
    original_tokens = text.split()
    spoken = [index for index, token in enumerate(original_tokens) if aligned_words(token)]
    edges = _token_starts(events, tokens, spoken, last=_speech_end(phonemes, len(samples)))
    ranges = [_remove_pauses(phonemes, start, end) for start, end in pairwise(edges)]
    words = tuple(
        Word(original_tokens[i], a / native_rate, b / native_rate)
        for i, (a, b) in zip(spoken, ranges, strict=True)
    )
    return Speech(
        audio=_resample(samples, native_rate, sample_rate),
        sample_rate=sample_rate,
        words=words,
        phonemes=tuple(
            Word(name, start / native_rate, end / native_rate) for name, start, end in phonemes
        ),
    )


def espeak_voices() -> dict[str, str]:
    """Return the language codes that `speak` takes, with the name of each voice.

    Any of them can be followed by a speaker variant, as in ``"fr+f2"``; see `list_variants`.
    """
    return {code: name for code, (name, _) in voice_table().items()}


def list_variants() -> list[str]:
    """Return the speaker variants that can follow a language code: ``f1``, ``m3``, ...

    Examples
    --------
    >>> "f2" in list_variants()
    True
    """
    return sorted(path.name for path in (data_path() / "voices" / "!v").iterdir())


def voice_name(voice: str) -> str:
    code, plus, variant = voice.partition("+")
    table = voice_table()
    code = code.lower().replace("_", "-")
    if code not in table:
        near = [language for language in table if language[:2] == code[:2]] or list(table)[:8]
        raise InputError(
            f"no espeak-ng voice for {voice!r}: expected a language code such as "
            f"{', '.join(near)}; "
            "speechmix.alignment.espeak.espeak_voices() lists them all"
        )
    if plus and variant not in list_variants():
        raise InputError(
            f"no espeak-ng speaker variant {variant!r}: expected one of "
            "speechmix.alignment.espeak.list_variants()"
        )
    return table[code][1] + plus + variant


def _phonemes(events: list[Heard], n_samples: int) -> list[tuple[str, int, int]]:
    """Phonemes and pauses (without a name) as (name, start, end) in samples.

    Marks of another language, such as "(en)", are none. The time of one belongs to the phoneme before
    it if that has no other, which is how espeak-ng ends a foreign word, else to the one behind it.
    """
    marks: list[tuple[str, int]] = []
    switch_start: int | None = None
    for kind, _, sample, name in events:
        if kind != PHONEME:
            continue
        if is_language_mark(name):
            ends_word = bool(marks) and marks[-1][0] != "" and marks[-1][1] == sample
            switch_start = None if ends_word else sample
            continue
        marks.append((name, sample if switch_start is None else switch_start))
        switch_start = None
    ends = [sample for _, sample in marks[1:]] + [n_samples]
    return [
        (name, start, end) for (name, start), end in zip(marks, ends, strict=True) if end > start
    ]


def _remove_pauses(phonemes: list[tuple[str, int, int]], start: int, end: int) -> tuple[int, int]:
    """Cut the pauses off both ends of a word. A closure before a word's first phoneme stays part of
    the word."""
    pauses = [
        (begin, stop) for name, begin, stop in phonemes if not name and begin < end and stop > start
    ]
    for begin, stop in pauses:
        if begin <= start < stop < end:
            start = stop
    for begin, stop in reversed(pauses):
        if start < begin < end <= stop:
            end = begin
    return start, end


def _speech_end(phonemes: list[tuple[str, int, int]], n_samples: int) -> int:
    return max((end for name, _, end in phonemes if name), default=n_samples)


def _token_starts(
    events: list[Heard], tokens: list[str], spoken: list[int], *, last: int
) -> list[int]:
    """Sample at which each spoken token starts, and behind them the end of the last one."""
    first_characters = np.concatenate(
        [[0], np.cumsum([len(token) + 1 for token in tokens])]
    ).tolist()
    token_samples: dict[int, int] = {}
    for kind, position, sample, _ in events:
        if kind == WORD:
            token = bisect_right(first_characters, position) - 1
            # A mark that is spoken after all ("- 5") is part of the word behind it.
            token = next((index for index in spoken if index >= token), spoken[-1])
            token_samples.setdefault(token, sample)
    token_samples.setdefault(spoken[0], 0)
    # Words without an event of their own are spoken together with the last one that has: share its
    # time by letters.
    timed = [index for index in spoken if index in token_samples]
    letters = np.concatenate([[0], np.cumsum([len(tokens[index]) for index in spoken])])
    timed_positions = [spoken.index(index) for index in timed] + [len(spoken)]
    times = np.maximum.accumulate([token_samples[index] for index in timed] + [last])
    edges: list[int] = (
        np.interp(letters, letters[timed_positions], times).round().astype(int).tolist()
    )
    return edges


def _resample(samples: np.ndarray, native_rate: int, sample_rate: int) -> np.ndarray:
    audio = resample(samples.astype(np.float32) / 32768, native_rate, sample_rate)
    limited: np.ndarray = np.clip(audio, -1, 1).astype(np.float32)
    return limited
