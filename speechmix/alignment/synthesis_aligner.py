"""Align words without a model: synthesise the text and warp the speech onto the recording.

In: audio and its text. Out: an `Alignment` with method "synthesis". espeak-ng speaks the text, and
dynamic time warping on cepstra carries its word boundaries over. Between any two words the path may
rest in a gap: silence is cheap there, a hesitation or a word that is not in the text has a price.
The synthesis is given the recording's noise and level. After each pass a ridge-regularised affine
map fits the synthetic cepstra to the recording's voice, and the words to its tempo. All this is done
with several voices and prices: a word lies at their median, and where they differ it is not sure.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from ..errors import AlignmentError
from ..inputs.words.timed_words import Word
from .alignment_result import Alignment, aligned_words, remove_signs
from .cepstra import HOP, SAMPLE_RATE, RecordingCepstra, analyse_recording
from .confidence import Evidence, Warp, list_doubts, seconds_in, text_confidence, word_confidence
from .espeak import speak
from .phones import align_phones, heard_phonemes, phone_boundary_costs
from .speaker_sounds import SpeakerVoice
from .synthesis_distances import Chorus, SpeechPlan, estimate_tempo, plan_speech
from .threads import run_on_one_thread
from .warping import border_costs, cheapest_path

SPEAKERS = (
    "",
    "+f2",
    "+f5",
    "+m7",
)  # several synthetic voices; for each pair of frames the nearest one counts
PASSES = 4
ADAPTED = "adapted synthesis"  # the method's name with the speaker's own sounds

# What lying in a gap costs, in the units of `speechmix.alignment.warping`: silence, each decibel
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
    warp, borders = _add_borders(plan, distances, gap, path)
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


def _add_borders(
    plan: SpeechPlan, distances: np.ndarray, gap: np.ndarray, path: np.ndarray
) -> tuple[Warp, np.ndarray]:
    return _make_warp(plan, distances, gap, path), border_costs(distances, gap, plan.slot)


def _make_warp(plan: SpeechPlan, distances: np.ndarray, gap: np.ndarray, path: np.ndarray) -> Warp:
    in_gap, taken = path < 0, np.maximum(path, 0)
    cost = np.where(in_gap, gap, distances[np.arange(len(path)), taken])
    owner, times = (
        np.where(in_gap, -1, plan.slot[taken]),
        np.where(in_gap, np.nan, plan.times[taken]),
    )
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
    costs: np.ndarray = np.minimum(
        _GAP_SILENT + _GAP_PER_DB * above, np.minimum(_GAP_OTHER, speech)
    )
    return costs


def _check_length(recording: RecordingCepstra, natural: np.ndarray) -> None:
    seconds = len(recording.energy) * HOP / SAMPLE_RATE
    if seconds < natural.sum() / 4:
        raise AlignmentError(
            f"expected at least {natural.sum() / 4:.1f} s of audio for this transcript of "
            f"{len(natural)} words, "
            f"found {seconds:.1f} s: check that text and clip belong together"
        )
    cells = len(recording.energy) * natural.sum() * SAMPLE_RATE / HOP
    if cells > _MAX_CELLS:
        raise AlignmentError(
            f"expected a clip of about a minute at most, found {seconds:.0f} s: cut it at a pause, "
            "or use another aligner"
        )
