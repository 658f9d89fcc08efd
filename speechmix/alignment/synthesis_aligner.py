"""Align words without a model: synthesise the text and warp the speech onto the recording.

In: audio and its text. Out: an `Alignment` with method "synthesis". espeak-ng speaks the text, and
dynamic time warping on cepstra carries its word boundaries over. Between any two words the path may
rest in a gap: silence is cheap there, a hesitation or a word that is not in the text has a price.
The synthesis is given the recording's noise and level. After each pass a ridge-regularised affine
map fits the synthetic cepstra to the recording's voice, and the words to its tempo. All this is done
with several voices and prices: a word lies at their median, and where they differ it is not sure.

Distances between the frames of a recording and of synthetic speech in several voices.

In: features of a recording, several synthetic speakers of one text, the tempo of each word. Out:
distances between every frame of the recording and of the synthesis, that of the nearest speaker.
Notation: T frames of the recording (5 ms), N frames of the synthesis, W words, C cepstral
coefficients.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..errors import AlignmentError
from ..inputs.words.timed_words import Word
from .alignment_result import Alignment, aligned_words, remove_signs
from .cepstra import (
    HOP,
    N_CEPSTRA,
    SAMPLE_RATE,
    RecordingCepstra,
    analyse_recording,
    compute_cepstra,
    compute_slopes,
    decibels,
    mel_power,
    standardise_cepstra,
)
from .confidence import Evidence, Warp, list_doubts, seconds_in, text_confidence, word_confidence
from .espeak import Speech, speak
from .phones import align_phones, border_costs, cheapest_path, heard_phonemes, phone_boundary_costs
from .speaker_sounds import SpeakerVoice, find_sounds, run_on_one_thread

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
        is_loud = self.recording.energy > self.recording.speech_level
        voiced = is_loud if fitted is None else fitted[1] >= 0
        heard_deltas = standardise_cepstra(self.recording.cepstra, voiced)
        recording_cepstra = heard_deltas[:, :N_CEPSTRA]
        distances = np.full((len(recording_cepstra), len(plan.times)), np.inf, np.float32)
        for index in speaker_indices:
            spoken = self._at(index, plan.times)
            if fitted is not None:
                spoken = _fit_voice_map(spoken, recording_cepstra, plan, *fitted)
            spoken_deltas = np.c_[spoken, compute_slopes(spoken)].astype(np.float32)
            squared = (heard_deltas**2).sum(1)[:, None] + (spoken_deltas**2).sum(1)
            squared -= 2 * heard_deltas @ spoken_deltas.T
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
        spoken = spoken - spoken.mean(0)
        recording_cepstra = recording_cepstra - recording_cepstra.mean(0)
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


# Several synthetic voices; for each pair of frames the nearest one counts.
SPEAKERS = ("", "+f2", "+f5", "+m7")
PASSES = 4
ADAPTED = "adapted synthesis"  # the method's name with the speaker's own sounds

# What lying in a gap costs, in the units of `speechmix.alignment.phones`: silence, each decibel
# above it, anything at most, and speech of any kind: so much more than the synthetic frame that is
# nearest, of the whole text.
_GAP_SILENT, _GAP_PER_DB, _GAP_OTHER, _GAP_SPEECH = 0.5, 0.12, 1.1, 0.3
_MIN_OTHER_SOUND_FRAMES = 12  # frames: 60 ms, so that it is another sound
_THREADS = 2  # the compiled search and numpy's loops run side by side
_MAX_CELLS = 40_000_000  # T N: a minute or so of speech, a third of a gigabyte


@dataclass(frozen=True)
class _Way:
    """A way to align: which speakers, a factor of what speech in a gap costs, decibels added to the
    level of silence."""

    speakers: tuple[int, ...] = (0, 1, 2, 3)
    speech: float = 1.0
    louder: float = 0.0


_WAYS = (_Way((0, 3)), _Way((1, 2)), _Way(speech=0.5, louder=5.0), _Way(speech=2.0))


def align_by_synthesis(
    audio: np.ndarray,
    text: str,
    *,
    language: str,
    sample_rate: int = SAMPLE_RATE,
    speaker_voice: SpeakerVoice | None = None,
) -> Alignment:
    """Place the words of a transcript in a recording, by synthesis and dynamic time warping.

    The audio [S] is mono, with silence of any length before, between and after the words.
    Hesitations may be missing from the text; words that are not said should not be in it.
    `language` is one of `speechmix.alignment.espeak.espeak_voices`; `speaker_voice` holds the
    speaker's own sounds, learnt from other clips (`speechmix.alignment.speaker_sounds`). A word's
    score is the probability that neither of its boundaries is more than 100 ms off, if the text is
    what is said; the clip's, that it is (see `confidence`).

    An AlignmentError says that the text has no words, the audio no speech, or that the audio is too
    short or too long for the text; a language that espeak-ng does not speak is an InputError, and
    espeakng-loader that is not installed a MissingExtraError.
    """
    with run_on_one_thread():
        chorus, transcript_words = _speak_chorus(audio, text, language, sample_rate, speaker_voice)
        evidence = collect_evidence(chorus)
        word_times = _seconds(evidence.edges)
        phones = align_phones(evidence, chorus.speakers[0], word_times)
    scores = word_confidence(evidence)
    words = tuple(
        Word(word, start, end, float(score))
        for word, (start, end), score in zip(transcript_words, word_times, scores, strict=True)
    )
    phonemes = heard_phonemes(evidence.warp.times, chorus.speakers[0].phonemes)
    adapted = speaker_voice is not None
    doubts = list_doubts(words, evidence, adapted=adapted, language=language)
    return Alignment(
        words,
        ADAPTED if adapted else "synthesis",
        text_confidence(evidence),
        doubts,
        phonemes,
        phones,
    )


def words_by_synthesis(
    audio: np.ndarray,
    text: str,
    *,
    language: str,
    sample_rate: int = SAMPLE_RATE,
    speaker_voice: SpeakerVoice | None = None,
) -> tuple[Word, ...]:
    """Place the words as `align_by_synthesis` does, at five eighths of its cost: without scores and
    doubts.

    Parameters, errors and word times are those of `align_by_synthesis`.

    Examples
    --------
    >>> speech = speak("le chat dort", voice="fr-be+m7", rate=140)
    >>> words = words_by_synthesis(speech.audio, "le chat dort", language="fr")
    >>> [(word.text, abs(word.start - spoken.start) < 0.03, word.score) for word, spoken in zip(words, speech.words)]
    [('le', True, None), ('chat', True, None), ('dort', True, None)]
    """
    with run_on_one_thread():
        chorus, transcript_words = _speak_chorus(audio, text, language, sample_rate, speaker_voice)
        forwards = np.arange(len(chorus.words))
        with ThreadPoolExecutor(_THREADS) as pool:
            warp, *ways = pool.map(lambda way: _warp(chorus, forwards, way=way), (None, *_WAYS))
        no_borders = np.empty((2, 0, 0))
        evidence = Evidence(
            chorus.recording, chorus.natural, warp, tuple(ways), (), np.nan, no_borders
        )
    spans = zip(transcript_words, _seconds(evidence.edges), strict=True)
    return tuple(Word(word, start, end) for word, (start, end) in spans)


def _speak_chorus(
    audio: np.ndarray,
    text: str,
    language: str,
    sample_rate: int,
    speaker_voice: SpeakerVoice | None,
) -> tuple[Chorus, list[str]]:
    """The synthetic speakers of a text with the recording, and its words, if there are words and
    the lengths can be right."""
    transcript_words = aligned_words(text)
    if not transcript_words:
        raise AlignmentError(
            f"expected a transcript with words, found {text!r}: leave clips without words out"
        )
    spoken_text = " ".join(remove_signs(transcript_words))
    recording = analyse_recording(audio, sample_rate)
    chorus = Chorus(
        recording,
        [speak(spoken_text, voice=language + speaker) for speaker in SPEAKERS],
        speaker_voice,
    )
    _check_length(recording, chorus.natural)
    return chorus, transcript_words


def _seconds(edges: np.ndarray) -> list[list[float]]:
    """Start and end of each word, from its first and last frame [W, 2]."""
    times: list[list[float]] = np.maximum(
        0.0, (edges + np.array([-0.5, 0.5])) * HOP / SAMPLE_RATE
    ).tolist()
    return times


def collect_evidence(chorus: Chorus) -> Evidence:
    """Warp the text in several ways, and decoys of it, which play the same sounds backwards in one
    of three orders."""
    forwards = np.arange(len(chorus.words))
    orders = (forwards[::-1], forwards, np.roll(forwards[::-1], len(forwards) // 2))
    with ThreadPoolExecutor(_THREADS) as pool:
        refined = pool.submit(_refine_until_stable, chorus, forwards)
        ways = pool.map(lambda way: _warp(chorus, forwards, way=way), _WAYS)
        decoys = pool.map(lambda order: _warp(chorus, order, flipped=True), orders[: len(forwards)])
    plan, distances, gap, path = refined.result()
    warp, borders = _make_warp(plan, distances, gap, path), border_costs(distances, gap, plan.slot)
    phone_boundaries = phone_boundary_costs(plan.times, distances, gap, chorus.speakers[0])
    likeness = chorus.likeness(warp.times)
    return Evidence(
        chorus.recording,
        chorus.natural,
        warp,
        tuple(ways),
        tuple(decoys),
        likeness,
        borders,
        phone_boundaries,
    )


def _warp(
    chorus: Chorus, order: np.ndarray, *, flipped: bool = False, way: _Way | None = None
) -> Warp:
    return _make_warp(*_refine_until_stable(chorus, order, flipped=flipped, way=way))


def _refine_until_stable(
    chorus: Chorus, order: np.ndarray, *, flipped: bool = False, way: _Way | None = None
) -> tuple[SpeechPlan, np.ndarray, np.ndarray, np.ndarray]:
    """Warp the synthesis onto the recording, again and again, each time nearer to its voice and
    tempo.

    Returns the last plan, distances, costs of gaps, and path.
    """
    tempo, fitted, way = np.ones(len(chorus.natural)), None, way or _Way()
    for _ in range(PASSES):
        plan = plan_speech(chorus.words, tempo, order, flipped=flipped)
        distances = chorus.distances(plan, fitted, speaker_indices=way.speakers)
        gap = _gap_costs(chorus.recording, distances, way)
        path = cheapest_path(distances, gap, plan.slot)
        fitted = (plan, path)
        tempo[order] = estimate_tempo(
            seconds_in(plan.slot[path[path >= 0]], len(order)), chorus.natural[order]
        )
    return plan, distances, gap, path


def _make_warp(plan: SpeechPlan, distances: np.ndarray, gap: np.ndarray, path: np.ndarray) -> Warp:
    in_gap, taken = path < 0, np.maximum(path, 0)
    cost = np.where(in_gap, gap, distances[np.arange(len(path)), taken])
    owner = np.where(in_gap, -1, plan.slot[taken])
    times = np.where(in_gap, np.nan, plan.times[taken])
    return Warp(owner, cost, times, _nearer_frame_share(distances, path))


def _nearer_frame_share(distances: np.ndarray, path: np.ndarray) -> np.ndarray:
    """Share of the synthetic frames away from the path that are nearer than the one on it [T]; NaN
    in a gap."""
    word_frames, nearer = np.flatnonzero(path >= 0), np.full(len(path), np.nan)
    on_path = path[word_frames][:, None]
    away = np.abs(np.arange(distances.shape[1]) - on_path) > _MIN_OTHER_SOUND_FRAMES
    better = distances[word_frames] < np.take_along_axis(distances[word_frames], on_path, axis=1)
    nearer[word_frames] = ((better & away).sum(1) + 1) / (away.sum(1) + 1)
    return nearer


def _gap_costs(recording: RecordingCepstra, distances: np.ndarray, way: _Way) -> np.ndarray:
    above = np.maximum(0, recording.energy - recording.speech_level - way.louder)
    speech = np.maximum(distances.min(1), _GAP_SILENT) + way.speech * _GAP_SPEECH
    silence = _GAP_SILENT + _GAP_PER_DB * above
    costs: np.ndarray = np.minimum(silence, np.minimum(_GAP_OTHER, speech))
    return costs


def _check_length(recording: RecordingCepstra, natural: np.ndarray) -> None:
    seconds = len(recording.energy) * HOP / SAMPLE_RATE
    if seconds < natural.sum() / 4:
        raise AlignmentError(
            f"expected at least {natural.sum() / 4:.2f} s of audio for this transcript of "
            f"{len(natural)} words, found {seconds:.2f} s: check that text and clip belong together"
        )
    cells = len(recording.energy) * natural.sum() * SAMPLE_RATE / HOP
    if cells > _MAX_CELLS:
        raise AlignmentError(
            f"expected a clip of about a minute at most, found {seconds:.0f} s: cut it at a pause, "
            "or use another aligner"
        )
