"""Confidence of the synthesis aligner in each word and in the text, and its doubts in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from ..inputs.words.timed_words import Word
from .alignment_result import NOT_CALIBRATED, list_unsure_words
from .cepstra import HOP, SAMPLE_RATE, RecordingCepstra

# Logistic regressions, fitted by benchmarks/fit_alignment_confidence.py on the development part of
# benchmarks/alignment_material.py and real commands. Words, in the order of `word_features`: a
# border is more than 100 ms off.
_FAR_WEIGHTS = np.array([-0.217, 0.727, 0.857, 0.511, -0.051, 0.512]), 7.45
# Texts, in the order of `text_features`: the text is another one, were half of all texts wrong.
_WRONG_TEXT_WEIGHTS = np.array([-12.94, -7.04, 1.31, -7.78, 1.30]), 13.15
# in development 95 % of wrong texts are scored lower, and 15 % of right ones, short ones most
TRUSTED_TEXT = 0.6
# For languages without a calibration; of 14 recorded English commands 13 have a higher text score with the right text,
# and 12 a lower one with another command's.
_TRUSTED_TEXT_ELSEWHERE = 0.2
_TRUSTED_ADAPTED = 0.75  # a voice that is learnt makes every text fit better, also a wrong one
_CLEAN_RANGE_DB = 40.0  # dB between the loud level and the noise, above which noise says nothing
_FAR_FRAMES = 20  # 100 ms
# in the units of `speechmix.alignment.phones`: what costs as much more is as good as impossible
SURE = 20.0
_SOUNDING = 0.5  # share of a word's frames
_TRUSTED_STRETCH = 4.0  # times longer or shorter than the synthesis at the clip's tempo
_TRUSTED_UNEXPLAINED = 0.5  # share of the sound that no word takes


@dataclass(frozen=True, eq=False)
class Warp:
    """A path through the recording: the slot that each frame belongs to (-1 in a gap) [T], and what
    that costs [T].

    `times` [T], where the synthesis is then, in seconds on the first speaker's clock, and `nearer`
    [T], the share of other sounds of the text that would be nearer, are NaN in a gap.
    """

    owner: np.ndarray
    cost: np.ndarray
    times: np.ndarray
    nearer: np.ndarray

    def edges(self, n_words: int, sound: np.ndarray) -> np.ndarray:
        """First and last frame of each word [W, 2]; silence beside a gap belongs to none."""
        first = np.searchsorted(self._at, np.arange(n_words))
        last = np.searchsorted(self._at, np.arange(n_words), side="right") - 1
        frames = np.flatnonzero(self.owner >= 0)
        return np.array(
            [
                _trim_edges(frames[a], frames[b], self.owner, sound)
                for a, b in zip(first, last, strict=True)
            ]
        )

    @cached_property
    def _at(self) -> np.ndarray:
        return self.owner[self.owner >= 0]


@dataclass(frozen=True, eq=False)
class Evidence:
    """What is known of an alignment.

    `natural` [W] are the seconds each word lasts in the synthesis. `warp` is the path of the text,
    and `ways` are the same with other settings that are as good. `decoys` are of each word played
    backwards, in other orders: the same voices say the same sounds, but not what the recording has,
    so a path through them costs what one for a wrong text would. `likeness` says how alike the
    recording and the unchanged speakers are along the path (`Chorus.likeness`). `borders` [2, W, T]
    and `phone_boundaries` [2, P, T] are what the cheapest path of the text costs with each word's
    or phone's first and last frame in each frame of the recording (`border_costs`).
    """

    recording: RecordingCepstra
    natural: np.ndarray
    warp: Warp
    ways: tuple[Warp, ...]
    decoys: tuple[Warp, ...]
    likeness: float
    borders: np.ndarray
    phone_boundaries: np.ndarray = field(default_factory=lambda: np.empty((2, 0, 0)))

    @cached_property
    def sound(self) -> np.ndarray:
        return self.recording.energy > self.recording.speech_level

    @cached_property
    def _all_edges(self) -> np.ndarray:
        return np.stack(
            [way.edges(len(self.natural), self.sound) for way in (self.warp, *self.ways)]
        )

    @cached_property
    def edges(self) -> np.ndarray:
        """First and last frame of each word [W, 2]: the median of the ways, in order."""
        edges = np.median(self._all_edges, axis=0)
        starts = np.maximum.accumulate(edges[:, 0])
        ends = np.minimum(np.maximum(edges[:, 1], starts), np.append(starts[1:] - 1, np.inf))
        return np.stack([starts, np.maximum(ends, starts)], axis=1)

    @cached_property
    def stretch(self) -> np.ndarray:
        ratio: np.ndarray = seconds_in(self.warp.owner, len(self.natural)) / self.natural
        return ratio

    @cached_property
    def spread(self) -> np.ndarray:
        """Mean distance in frames between where a word's boundaries lie and where the ways have
        them [W]."""
        distance: np.ndarray = np.abs(self._all_edges - self.edges).mean(0).mean(1)
        return distance

    @cached_property
    def word_ranks(self) -> np.ndarray:
        """As `rank`, of each word's frames [W]; 0 for a word without frames."""
        taken = self.warp.owner >= 0
        owner, ranks = self.warp.owner[taken], np.log(self.warp.nearer[taken])
        n_words = len(self.natural)
        return np.bincount(owner, ranks, n_words) / np.maximum(
            1, np.bincount(owner, minlength=n_words)
        )

    @cached_property
    def sound_behind(self) -> np.ndarray:
        """Seconds of sound between a word's end and the next one's start, or the clip's end [W]."""
        sounding = np.append(0, np.cumsum(self.sound))
        stops = np.append(self.edges[1:, 0], len(self.sound)).astype(int)
        ends = self.edges[:, 1].astype(int) + 1
        seconds: np.ndarray = (
            np.maximum(0, sounding[np.maximum(stops, ends)] - sounding[ends]) * HOP / SAMPLE_RATE
        )
        return seconds

    @cached_property
    def margin(self) -> np.ndarray:
        """Additional cost of the cheapest path that has a boundary of the word over 100 ms from
        where it lies [W], -20 to 20."""
        away = np.abs(np.arange(self.borders.shape[2]) - self.edges.T[:, :, None]) > _FAR_FRAMES
        near_costs = np.where(away, np.inf, self.borders).min(2)
        elsewhere = np.where(away, self.borders, np.inf).min(2)
        margin: np.ndarray = np.clip((elsewhere - near_costs).min(0), -SURE, SURE)
        return margin

    @cached_property
    def apart(self) -> float:
        """How far apart the ways have the words: mean over words of the logarithm of their mean
        distance."""
        return float(np.log1p(np.abs(self._all_edges - self.edges).mean(0).max(1) / 2).mean())

    @cached_property
    def unexplained(self) -> float:
        """Share of the sound that no word takes."""
        sound = self.sound & self.recording.speech
        return float((sound & (self.warp.owner < 0)).sum() / max(1, sound.sum()))

    @cached_property
    def gain(self) -> float:
        """Share of the cost of the sound that the text saves over the cheapest decoy."""
        return 1 - float(self.warp.cost[self.sound].sum()) / self._cost_of_decoy

    @cached_property
    def strangeness(self) -> float:
        """How unlike the speakers the recording is, whatever is said: what its sound costs with the
        cheapest decoy, a frame."""
        return self._cost_of_decoy / max(1, int(self.sound.sum()))

    @cached_property
    def rank(self) -> float:
        """How far up the sounds on the path are among those of the text: mean logarithm of the
        share that is nearer."""
        return float(np.nanmean(np.log(self.warp.nearer)))

    @cached_property
    def _cost_of_decoy(self) -> float:
        return max(1e-9, min(float(decoy.cost[self.sound].sum()) for decoy in self.decoys))


def seconds_in(owner: np.ndarray, n_slots: int) -> np.ndarray:
    """How long each slot lasts, by the slot of each frame (-1: none)."""
    return np.bincount(owner[owner >= 0], minlength=n_slots) * HOP / SAMPLE_RATE


def word_features(evidence: Evidence) -> np.ndarray:
    """What the confidence of each word is computed from [W, 6], in the order of its weights."""
    recording, n_words = evidence.recording, len(evidence.natural)
    contrast = min(recording.loud - recording.quiet, _CLEAN_RANGE_DB)
    return np.stack(
        [
            evidence.margin,
            evidence.word_ranks,
            np.full(n_words, evidence.rank),
            np.log1p(20 * evidence.sound_behind),
            np.full(n_words, contrast),
            np.log1p(evidence.spread),
        ],
        axis=1,
    )


def text_features(evidence: Evidence) -> np.ndarray:
    """What the confidence of a text is computed from [5], in the order of its weights."""
    return np.array(
        [evidence.gain, evidence.likeness, evidence.apart, evidence.strangeness, evidence.rank]
    )


def word_confidence(evidence: Evidence) -> np.ndarray:
    """Probability [W] that neither boundary of a word is more than 100 ms off, if the text is what
    is said."""
    weights, intercept = _FAR_WEIGHTS
    confidence: np.ndarray = 1 - _logistic(word_features(evidence) @ weights + intercept)
    return confidence


def text_confidence(evidence: Evidence) -> float:
    """Probability that the text is what is said, were half of all texts wrong."""
    weights, intercept = _WRONG_TEXT_WEIGHTS
    return float(1 - _logistic(text_features(evidence) @ weights + intercept))


def list_doubts(
    words: Sequence[Word], evidence: Evidence, *, adapted: bool = False, language: str = "fr"
) -> tuple[str, ...]:
    """Sentences that say why the times cannot be trusted; none if they can. `adapted`: to the
    speaker's own sounds."""
    doubts, score = [], text_confidence(evidence)
    trusted = _TRUSTED_ADAPTED if adapted else TRUSTED_TEXT
    if not language.startswith("fr"):
        trusted = _TRUSTED_ADAPTED if adapted else _TRUSTED_TEXT_ELSEWHERE
        doubts.append(NOT_CALIBRATED.format(language=language))
    if score < trusted:
        doubts.append(
            f"The text fits hardly better than its own sounds in a wrong order (score {score:.2f}, expected at least "
            f"{trusted}): it may not be what is said."
        )
    if unsure := list_unsure_words(words):
        doubts.append(f"Words that may be more than 100 ms off (score): {unsure}.")
    shares = [evidence.sound[int(first) : int(last) + 1].mean() for first, last in evidence.edges]
    silent = [words[index].text for index, share in enumerate(shares) if share < _SOUNDING]
    if silent:
        doubts.append(f"Words that lie in silence for the most part: {_format_list(silent)}.")
    tempo = float(np.median(evidence.stretch))
    if not 1 / _TRUSTED_STRETCH < tempo < _TRUSTED_STRETCH:
        doubts.append(f"The words last {tempo:.1f} times as long as when they are synthesised.")
    ratios = evidence.stretch / tempo
    far = np.abs(np.log(ratios)) > np.log(_TRUSTED_STRETCH)
    odd = [f"{words[index].text} ({ratios[index]:.1f})" for index in np.flatnonzero(far).tolist()]
    if odd:
        doubts.append(
            f"Words more than {_TRUSTED_STRETCH:g} times longer or shorter than the clip's tempo: "
            f"{_format_list(odd)}."
        )
    if evidence.unexplained > _TRUSTED_UNEXPLAINED:
        doubts.append(
            f"{100 * evidence.unexplained:.0f} % of the sound belongs to no word of the text."
        )
    return tuple(doubts)


def _format_list(named: list[str]) -> str:
    return ", ".join(named[:5]) + (f" and {len(named) - 5} more" if len(named) > 5 else "")


def _logistic(x: np.ndarray) -> np.ndarray:
    probability: np.ndarray = 1 / (1 + np.exp(-x))
    return probability


def _trim_edges(first: int, last: int, owner: np.ndarray, sound: np.ndarray) -> tuple[int, int]:
    """Cut silent frames off a word beside a gap, at most 100 ms: a closure after a pause is silent."""
    if first == 0 or owner[first - 1] < 0:
        first += int(np.argmax(np.append(sound[first : min(first + 20, last)], True)))
    if last == len(owner) - 1 or owner[last + 1] < 0:
        last -= int(np.argmax(np.append(sound[max(last - 19, first) : last + 1][::-1], True)))
    return first, max(first, last)
