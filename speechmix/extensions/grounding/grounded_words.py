"""Words with their grounding: what each loses without the sound, and whether it was in the sound.

In: `WordReadings`. Out: `GroundedWord`s. Effects are in nats of the word's log-probability.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, isnan, nan

import numpy as np

from .word_readings import (
    INTACT,
    NO_PADDING,
    NO_PREVIOUS,
    NO_PROMPT,
    NOISE,
    SILENCE,
    WordReadings,
)

SOURCES = ("silence", "noise", "padding", "prompt", "previous")
DEFAULT_THRESHOLD = 1.0  # nats that a word or a near one must lose without the sound
_NEIGHBOURS = 3  # words on both sides, of the same phrase: a predictable word loses little itself
_PHRASE_ENDS = (".", "?", "!", "\u2026", "。", "？", "！", "؟", "।")
_NO_EFFECT = 0.1  # nats for each token, below which a repeat of a loop does not need the sound


@dataclass(frozen=True)
class GroundedWord:
    """A word that a model wrote, and what it came from.

    Parameters
    ----------
    text : str
    start, end : float
        Seconds from the start of the recording; NaN where they are not known.
    probability : float
        Of the word, given what the model wrote before: the product over its tokens.
    lowest_probability : float
        Of its least likely token.
    runner_up : str
        The token that was likeliest beside it there.
    runner_up_probability : float
    silence, noise : float
        What the word's log-probability loses where silence, or white noise, replaces all sound, in nats.
    padding, prompt : float
        What it loses without the silence behind a short recording, or without the prompt of a Whisper (hotwords
        included) or an audio language model; NaN where there is none.
    phrase_sound : float
        The largest `sound` of the word and the three words on each side in its phrase.
    token_count : int
    window : int
        Index of the window that the word was written in.
    loop : int or None
        Index of the loop that the word is part of.
    right : float
        Calibrated probability that the word is what was said; NaN without a calibration of this model.
    previous : float
        What it loses without the text of the window before, where the model was given that.
    without_prompt : str
        The token that the model prefers in its place without prompt and text before; empty if it is the word's own.
    """

    text: str
    start: float
    end: float
    probability: float
    lowest_probability: float
    runner_up: str
    runner_up_probability: float
    silence: float
    noise: float
    padding: float
    prompt: float
    phrase_sound: float
    token_count: int
    window: int
    loop: int | None = None
    right: float = nan
    previous: float = nan
    without_prompt: str = ""

    @property
    def sound(self) -> float:
        """Effect of all sound, in nats: the smaller of both effects, so that a word needs the sound only if neither
        silence nor noise would do."""
        return min(self.silence, self.noise)

    @property
    def log_probability(self) -> float:
        """Mean over the word's tokens, in nats."""
        return float(np.log(max(self.probability, 1e-300))) / self.token_count

    def is_in_sound(self, threshold: float = DEFAULT_THRESHOLD) -> bool:
        """Whether the word, or a near word of its phrase, loses so many nats without the sound."""
        return not self.phrase_sound < threshold

    def is_from_prompt(self, threshold: float = DEFAULT_THRESHOLD) -> bool:
        """Whether the prompt or the text of the window before decides the word: it loses so many nats without, and the
        model prefers another token there."""
        effects = [effect for effect in (self.prompt, self.previous) if not isnan(effect)]
        return max(effects, default=-np.inf) >= threshold and bool(self.without_prompt)

    @property
    def _prompt_name(self) -> str:
        is_previous = isnan(self.prompt) or self.previous > self.prompt
        return "the text of the window before" if is_previous else "the prompt"

    @property
    def reason(self) -> str:
        """What the word comes from, in words, by the default threshold."""
        if self.is_from_prompt():
            instead = (
                f"comes from {self._prompt_name}: without it, {self.without_prompt!r} is likelier"
            )
            return instead if self.is_in_sound() else f"not in the sound: {instead}"
        if not self.is_in_sound():
            if not isnan(self.padding) and self.padding >= DEFAULT_THRESHOLD:
                return "not in the sound: comes from the padding"
            return "not in the sound: the model writes it about silence or noise, too"
        if self.sound < DEFAULT_THRESHOLD:
            return "in a phrase that comes from the sound, and predictable there"
        return "comes from the sound"


def need_sound(words: Sequence[GroundedWord]) -> bool:
    """Say whether words together lose at least 0.1 nats for each token without the sound."""
    effect, token_count = sum(word.sound for word in words), sum(word.token_count for word in words)
    return not effect / token_count < _NO_EFFECT


def ground_words(readings: WordReadings, window: int) -> list[GroundedWord]:
    """Make the words of one window.

    Parameters
    ----------
    readings : WordReadings
    window : int
        Index of the window in its recording.
    """
    silence, noise, padding, prompt, previous = map(
        readings.effect, (SILENCE, NOISE, NO_PADDING, NO_PROMPT, NO_PREVIOUS)
    )
    phrase_sound = phrase_effects(readings.words, np.minimum(silence, noise))
    words = []
    for index, text in enumerate(readings.words):
        start, end = readings.intervals[index] or (nan, nan)
        label, probability = readings.runners_up[index]
        words.append(
            GroundedWord(
                text,
                round(start, 3),
                round(end, 3),
                exp(readings.log_probabilities[INTACT][index]),
                exp(readings.lowest[index]),
                label,
                probability,
                silence=float(silence[index]),
                noise=float(noise[index]),
                padding=float(padding[index]),
                prompt=float(prompt[index]),
                phrase_sound=float(phrase_sound[index]),
                token_count=int(readings.token_counts[index]),
                window=window,
                previous=float(previous[index]),
                without_prompt=readings.without_prompt[index] if readings.without_prompt else "",
            )
        )
    return words


def phrase_effects(words: Sequence[str], effects: np.ndarray) -> np.ndarray:
    """Return the largest effect among each word and its neighbours in the same phrase, [W].

    A phrase ends with a full stop, a question mark or an exclamation mark.

    Examples
    --------
    >>> phrase_effects(["set", "a", "timer.", "Thank", "you."], np.array([4.0, 0.2, 5.0, 0.1, 0.0])).tolist()
    [5.0, 5.0, 5.0, 0.1, 0.1]
    """
    ends = [word.rstrip("\"'”’»)").endswith(_PHRASE_ENDS) for word in words]
    phrase = np.cumsum([False, *ends])[: len(words)]
    largest = np.empty(len(words))
    for index in range(len(words)):
        near = slice(max(0, index - _NEIGHBOURS), index + _NEIGHBOURS + 1)
        largest[index] = effects[near][phrase[near] == phrase[index]].max()
    return largest
