"""Distances between the frames of a recording and of synthetic speech in several voices.

In: features of a recording, several synthetic speakers of one text, the tempo of each word. Out:
distances between every frame of the recording and of the synthesis, that of the nearest speaker.
Notation: T frames of the recording (5 ms), N frames of the synthesis, W words, C cepstral
coefficients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..inputs.words.timed_words import Word
from .cepstra import (
    HOP,
    N_CEPSTRA,
    SAMPLE_RATE,
    RecordingCepstra,
    compute_cepstra,
    compute_slopes,
    decibels,
    mel_power,
    standardise_cepstra,
)
from .espeak import Speech
from .speaker_sounds import SpeakerVoice, find_sounds

_RIDGE_FRAMES = 30.0  # frames' worth of belief in an unchanged voice
_TEMPO = (0.4, 3.0)  # times the synthesis's durations
_NO_SPEECH = 0.6  # what a word's frame costs more where the recording holds no speech
_SLOW = 7  # cepstra that follow the sounds more than the speaker: level, tilt, the first formants


@dataclass(frozen=True, eq=False)
class SpeechPlan:
    """Frames of the synthesis: time on the first speaker's clock [N], slot (0: the first word
    played) [N], place [N].

    ``place`` is the slot plus how far into its word a frame is: it ascends, in whatever order the
    words are played.
    """

    times: np.ndarray
    slot: np.ndarray
    slot_position: np.ndarray


class Chorus:
    """Several speakers of one text, beside a recording; the first one's clock is that of all plans.

    `speaker_voice` holds the recorded speaker's own sounds: where it knows a sound, the distance is
    the mean of its and the speakers'.
    """

    def __init__(
        self,
        recording: RecordingCepstra,
        speakers: list[Speech],
        speaker_voice: SpeakerVoice | None = None,
    ):
        self.recording, self.speakers, self.speaker_voice = recording, speakers, speaker_voice
        self.words = speakers[0].words
        self.natural = np.array([max(word.end - word.start, 0.02) for word in self.words])

    @cached_property
    def _spoken(self) -> list[np.ndarray]:
        """Cepstra of each speaker at its own tempo, as loud and as noisy as the recording."""
        cepstra = []
        for speaker in self.speakers:
            power = mel_power(speaker.audio)
            level = self.recording.loudness - np.percentile(decibels(power.sum(1)), 90)
            cepstra.append(compute_cepstra(power * 10 ** (level / 10) + 1.3 * self.recording.noise))
        return cepstra

    def distances(
        self,
        plan: SpeechPlan,
        fitted: tuple[SpeechPlan, np.ndarray] | None,
        *,
        speaker_indices: Sequence[int],
    ) -> np.ndarray:
        """Distance between every frame of the recording and of the synthesis, [T, N]: that of the
        nearest of the speakers at `speaker_indices`.

        `fitted` is an earlier plan and the path [T] found with it: the speakers' cepstra are mapped
        to the recording's along it.
        """
        voiced = (
            self.recording.energy > self.recording.speech_level
            if fitted is None
            else fitted[1] >= 0
        )
        heard_deltas = standardise_cepstra(self.recording.cepstra, voiced)
        recording_cepstra = heard_deltas[:, :N_CEPSTRA]
        distances = np.full((len(recording_cepstra), len(plan.times)), np.inf, np.float32)
        for index in speaker_indices:
            spoken = self._at(index, plan.times)
            if fitted is not None:
                spoken = _fit_voice_map(spoken, recording_cepstra, plan, *fitted)
            spoken_deltas = np.c_[spoken, compute_slopes(spoken)].astype(np.float32)
            squared = (
                (heard_deltas**2).sum(1)[:, None]
                + (spoken_deltas**2).sum(1)
                - 2 * heard_deltas @ spoken_deltas.T
            )
            np.minimum(distances, squared, out=distances)
        np.sqrt(
            np.maximum(distances, 0, out=distances) / np.float32(1.5 * N_CEPSTRA), out=distances
        )
        if self.speaker_voice is not None:
            voice_distances = self.speaker_voice.distances(
                heard_deltas, find_sounds(self.speakers[0].phonemes, plan.times)
            )
            own_sounds = np.isfinite(voice_distances[0])
            distances[:, own_sounds] = (
                distances[:, own_sounds] + voice_distances[:, own_sounds]
            ) / 2
        distances[~self.recording.speech] += np.float32(_NO_SPEECH)
        return distances

    def likeness(self, times: np.ndarray) -> float:
        """How alike the recording and the speakers' own voices go: mean correlation of the slow
        cepstra, -1 to 1.

        For each frame of the recording, `times` [T] says where the synthesis is: seconds on the
        first speaker's clock, NaN in a gap. Unlike `distances`, nothing is fitted to the recording:
        a text that is not what is said can be bent to its voice, but then the voices themselves say
        something else.
        """
        in_words = np.isfinite(times)
        spoken = np.mean(
            [self._at(index, times[in_words]) for index in range(len(self.speakers))], axis=0
        )[:, :_SLOW]
        recording_cepstra = self.recording.cepstra[in_words, :_SLOW]
        spoken, recording_cepstra = (
            spoken - spoken.mean(0),
            recording_cepstra - recording_cepstra.mean(0),
        )
        spread = np.sqrt((spoken**2).sum(0) * (recording_cepstra**2).sum(0))
        return float(np.mean((spoken * recording_cepstra).sum(0) / np.maximum(spread, 1e-6)))

    def _at(self, index: int, times: np.ndarray) -> np.ndarray:
        """Standardised cepstra [N, C] of a speaker at times [N] on the first speaker's clock."""
        clock, speaker, cepstra = self.speakers[0], self.speakers[index], self._spoken[index]
        if len(speaker.phonemes) == len(
            clock.phonemes
        ):  # speakers differ a little in tempo, phoneme by phoneme
            times = np.interp(times, _phoneme_edges(clock), _phoneme_edges(speaker))
        position = times * SAMPLE_RATE / HOP
        cepstra = np.stack(
            [np.interp(position, np.arange(len(cepstra)), column) for column in cepstra.T], axis=1
        )
        features: np.ndarray = ((cepstra - cepstra.mean(0)) / (cepstra.std(0) + 1e-3)).astype(
            np.float32
        )
        return features


def plan_speech(
    words: tuple[Word, ...], tempo: np.ndarray, order: np.ndarray, *, flipped: bool
) -> SpeechPlan:
    """Lay out each word's frames: its natural duration times its tempo, at least three; backwards
    if flipped."""
    times, word_positions = [], []
    for slot, index in enumerate(order):
        seconds = words[index].end - words[index].start
        count = max(3, round(seconds * tempo[index] * SAMPLE_RATE / HOP))
        share = (np.arange(count) + 0.5) / count
        times.append(words[index].start + seconds * (share[::-1] if flipped else share))
        word_positions.append(slot + share)
    slot_position = np.concatenate(word_positions)
    return SpeechPlan(np.concatenate(times), slot_position.astype(int), slot_position)


def estimate_tempo(seconds: np.ndarray, natural: np.ndarray) -> np.ndarray:
    """How much longer each word is than its synthesis: half-way between its own ratio and the
    clip's, which leans to 1."""
    ratios = np.maximum(seconds, 0.02) / natural
    clip = np.median(ratios) ** 0.8
    tempo: np.ndarray = np.clip(np.sqrt(np.clip(ratios, clip / 3, clip * 3) * clip), *_TEMPO)
    return tempo


def _fit_voice_map(
    spoken: np.ndarray,
    recording_cepstra: np.ndarray,
    plan: SpeechPlan,
    old_plan: SpeechPlan,
    path: np.ndarray,
) -> np.ndarray:
    """Map synthetic cepstra to the recording's voice: affine, least squares along the path, ridge
    towards identity."""
    frames = np.flatnonzero(path >= 0)
    partners = np.clip(
        np.searchsorted(plan.slot_position, old_plan.slot_position[path[frames]]),
        0,
        len(plan.slot_position) - 1,
    )
    inputs = np.c_[spoken, np.ones(len(spoken), np.float32)]
    unchanged = np.eye(inputs.shape[1], spoken.shape[1])
    paired = inputs[partners]
    weights = np.linalg.solve(
        paired.T @ paired + _RIDGE_FRAMES * np.eye(inputs.shape[1]),
        paired.T @ recording_cepstra[frames] + _RIDGE_FRAMES * unchanged,
    )
    mapped: np.ndarray = (inputs @ weights).astype(np.float32)
    return mapped


def _phoneme_edges(speech: Speech) -> np.ndarray:
    return np.array(
        [phoneme.start for phoneme in speech.phonemes] + [len(speech.audio) / speech.sample_rate]
    )
