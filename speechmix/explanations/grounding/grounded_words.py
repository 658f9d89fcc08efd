"""Words with their grounding: how much each source contributed, and whether the word was in the sound.

In: `WordReadings`. Out: `GroundedWord`s. Effects are in nats of the word's log-probability. The two parts of the sound
share its effect as two players share a game's value (Shapley 1953), so that they sum to the effect of all sound:

    own sound = 1/2 [ (l(all) - l(without own)) + (l(own alone) - l(no sound)) ]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, isnan, nan

import numpy as np

from .word_readings import (
    INTACT,
    NO_OWN,
    NO_PADDING,
    NO_PROMPT,
    NO_SOUND,
    NO_TEXT,
    ONLY_OWN,
    WordReadings,
)

SOURCES = ("own_sound", "other_sound", "padding", "earlier_text", "prompt")
_NEIGHBOURS = 5  # words on both sides that a feature averages over: made-up words come in sentences
_EFFECT_RANGE = (-3.0, 10.0)  # nats for each token; beyond, more says no more
_NO_EFFECT = 0.1  # nats for each token, below which a removal changes nothing


@dataclass(frozen=True)
class GroundedWord:
    """A word that a model wrote, and what it came from.

    Parameters
    ----------
    text : str
    start, end : float
        Seconds from the start of the recording; NaN where the model's times are not known.
    probability : float
        Of the word, given what the model wrote before: the product over its tokens.
    lowest_probability : float
        Of its least likely token.
    runner_up : str
        The token that was likeliest beside it there.
    runner_up_probability : float
    own_sound, other_sound, padding, earlier_text, prompt : float
        What the word's log-probability loses without the source, in nats. NaN where there is no such source, or it
        cannot be told from another.
    own_attention, padding_attention : float
        Shares of cross-attention, as a cheap attribution beside the effects.
    token_count : int
    window : int
        Index of the window that the word was written in.
    features : tuple of float
        What a calibration reads (`FEATURES`).
    loop : int or None
        Index of the loop that the word is part of.
    made_up : float
        Calibrated probability that the word was not in the sound; NaN without a calibration.
    right : float
        Calibrated probability that the word is what was said; NaN without a calibration.
    """

    text: str
    start: float
    end: float
    probability: float
    lowest_probability: float
    runner_up: str
    runner_up_probability: float
    own_sound: float
    other_sound: float
    padding: float
    earlier_text: float
    prompt: float
    own_attention: float
    padding_attention: float
    token_count: int
    window: int
    features: tuple[float, ...] = ()
    loop: int | None = None
    made_up: float = nan
    right: float = nan

    @property
    def sound(self) -> float:
        """Effect of all sound, in nats."""
        parts = [part for part in (self.own_sound, self.other_sound) if not isnan(part)]
        return sum(parts) if parts else nan

    @property
    def needs_sound(self) -> bool:
        """Whether muting all sound makes the word less likely by at least 0.1 nats for each token."""
        return need_sound([self])

    @property
    def reason(self) -> str:
        """What the word comes from, in words."""
        per_token = {
            "own": self.own_sound / self.token_count,
            "text": self.earlier_text / self.token_count,
            "padding": self.padding / self.token_count,
        }
        if not self.needs_sound:
            if per_token["text"] >= _NO_EFFECT:
                return "follows from the text before: muting all sound changes nothing"
            if per_token["padding"] >= _NO_EFFECT:
                return "comes from the padding: muting all sound changes nothing"
            return "the model writes it without any sound, too"
        if not isnan(per_token["own"]) and per_token["own"] < _NO_EFFECT:
            return "comes from other sound than its own stretch"
        return "comes from the sound"


def need_sound(words: Sequence[GroundedWord]) -> bool:
    """Say whether muting all sound makes words together less likely by at least 0.1 nats for each token;
    also where that is not known."""
    effect, token_count = sum(word.sound for word in words), sum(word.token_count for word in words)
    return not effect / token_count < _NO_EFFECT


_WORD_FEATURES = (
    "log_probability",
    "lowest_log_probability",
    "sound",
    "own_sound",
    "log_probability_without_sound",
    "earlier_text",
    "own_attention",
    "padding_attention",
    "attention_entropy",
)
FEATURES = (*_WORD_FEATURES, *(f"{name}_of_neighbours" for name in _WORD_FEATURES), "no_speech")


def ground_words(readings: WordReadings, window: int) -> list[GroundedWord]:
    """Make the words of one window.

    Parameters
    ----------
    readings : WordReadings
    window : int
        Index of the window in its recording.
    """
    own, other = share_sound(readings)
    padding, earlier_text, prompt = map(readings.effect, (NO_PADDING, NO_TEXT, NO_PROMPT))
    own_attention, padding_attention = map(readings.attention_number, ("own", "padding"))
    features = calibration_features(readings)
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
                own_sound=float(own[index]),
                other_sound=float(other[index]),
                padding=float(padding[index]),
                earlier_text=float(earlier_text[index]),
                prompt=float(prompt[index]),
                own_attention=float(own_attention[index]),
                padding_attention=float(padding_attention[index]),
                token_count=int(readings.token_counts[index]),
                window=window,
                features=tuple(float(value) for value in features[index]),
            )
        )
    return words


def share_sound(readings: WordReadings) -> tuple[np.ndarray, np.ndarray]:
    """Share the effect of all sound between each word's own stretch and the rest, [W] each in nats.

    Where a model does not tell a word's stretch, both are in the second, and the first is NaN.
    """
    sound = readings.effect(NO_SOUND)
    values = readings.log_probabilities
    if NO_OWN not in values:
        return np.full(len(sound), np.nan), sound
    own = (values[INTACT] - values[NO_OWN] + values[ONLY_OWN] - values[NO_SOUND]) / 2
    return own, sound - own


def calibration_features(readings: WordReadings) -> np.ndarray:
    """Compute what a calibration reads of each word, [W, features]; per token, in nats.

    NaN where a model does not have it.
    """
    counts = readings.token_counts
    log_probability = readings.log_probabilities[INTACT] / counts
    own, _ = share_sound(readings)
    sound = np.clip(readings.effect(NO_SOUND) / counts, *_EFFECT_RANGE)
    own = np.clip(own / counts, *_EFFECT_RANGE)
    word_features = np.stack(
        [
            log_probability,
            readings.lowest,
            sound,
            own,
            log_probability - sound,
            np.clip(readings.effect(NO_TEXT) / counts, *_EFFECT_RANGE),
            *map(readings.attention_number, ("own", "padding", "entropy")),
        ],
        axis=1,
    )
    no_speech = np.full((len(counts), 1), readings.no_speech)
    return np.hstack([word_features, _average_neighbours(word_features), no_speech])


def _average_neighbours(values: np.ndarray) -> np.ndarray:
    averages = [
        values[max(0, index - _NEIGHBOURS) : index + _NEIGHBOURS + 1].mean(axis=0)
        for index in range(len(values))
    ]
    return np.array(averages).reshape(values.shape)
