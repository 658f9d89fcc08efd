"""Word times without any weights: synthesise the transcript, then warp the synthetic speech onto the recording.

In: audio and its text. Out: an `Alignment` with method "synthesis". espeak-ng speaks the text (word times known), and
dynamic time warping on cepstra carries its word boundaries over. What makes it work on spontaneous speech:
between any two words the path may rest in a gap, which takes silence cheaply and anything else (a hesitation, a word
that is not in the text) at a price; the synthesis is given the recording's noise and level; and after each pass the
synthetic cepstra are fitted to the recording's voice by a ridge-regularised affine map along the path found so far,
and the words to its tempo.
Notation: T frames of the recording (5 ms), N frames of the synthesis, W words, C cepstral coefficients.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..errors import AlignmentError
from ..inputs.spans import Word
from .base import Alignment, words_of
from .cepstra import HOP, N_CEPSTRA, SAMPLE_RATE, HeardRecording, cepstra_of, decibels, listen, mel_power, slopes_of
from .espeak import Speech, speak
from .warping import cheapest_path

SPEAKERS = ("", "+f2", "+f5", "+m7")  # several synthetic voices; for each pair of frames the nearest one counts
PASSES = 4

# What lying in a gap costs, in the units of `speechmix.alignment.warping`: silence, each decibel above it, anything at most.
_GAP_SILENT, _GAP_PER_DB, _GAP_OTHER = 0.5, 0.12, 1.1

# Score: a logistic curve of how much less the path costs than that of the cheapest decoy, which plays the same sounds
# backwards in one of three orders (see `_Warp`). On real French clips right texts mostly gain 1 to 13 % (median 7),
# wrong ones lose up to 7 % or gain up to 4. Of commands of a few words about one in five is judged wrongly.
_GAIN_OF_DOUBT, _GAIN_SLOPE = 0.03, 60.0
_WORD_WEIGHT = 0.25  # a word's own gain is noisy: the rest of its score is the clip's
_TRUSTED_SCORE = 0.5
_TRUSTED_STRETCH = 4.0  # times longer or shorter than the synthesis at the clip's tempo
_TRUSTED_UNEXPLAINED = 0.5  # share of the sound that no word takes

_RIDGE = 30.0  # frames' worth of belief in an unchanged voice
_MAX_CELLS = 60_000_000  # T N: a minute or so of speech, a quarter of a gigabyte


@dataclass(frozen=True, eq=False)
class _Plan:
    """Frames of the synthesis: time on the first speaker's clock [N], slot (0: the first word played) [N], place [N].

    ``place`` is the slot plus how far into its word a frame is: it ascends, in whatever order the words are played.
    """

    times: np.ndarray
    slot: np.ndarray
    place: np.ndarray


@dataclass(frozen=True, eq=False)
class _Warp:
    """A path through the recording: synthetic frame (negative in a gap) [T], its slot (-1 in a gap) [T], cost [T].

    With each word played backwards (a decoy), the same voices say the same sounds in an order that the recording does
    not have: what a path through that costs is what one for a text that does not belong to the recording would cost.
    """

    path: np.ndarray
    owner: np.ndarray
    cost: np.ndarray


def align_by_synthesis(audio: np.ndarray, text: str, *, language: str, sample_rate: int = SAMPLE_RATE) -> Alignment:
    """Place the words of a transcript in a recording, by synthesis and dynamic time warping.

    Parameters
    ----------
    audio : float array [S]
        Mono. Silence of any length before, between and after the words.
    text : str
        What is said. Hesitations may be missing from it; words that are not said should not be in it.
    language : str
        A language code of `speechmix.alignment.espeak.voices`.
    sample_rate : int
        Hz.

    Returns
    -------
    Alignment
        One word for each item of ``words_of(text)``. A score near 1 is what the right text gets, near 0 what a wrong
        one does.

    Raises
    ------
    AlignmentError
        If the text has no words, the audio no speech, or the audio is too short or too long for the text.
    InputError
        For a language that espeak-ng does not speak.
    MissingExtraError
        If espeakng-loader is not installed.

    Examples
    --------
    >>> speech = speak("le chat dort", voice="fr-be+m7", rate=140)
    >>> alignment = align_by_synthesis(speech.audio, "le chat dort", language="fr")
    >>> [abs(placed.start - word.start) < 0.03 for placed, word in zip(alignment.words, speech.words)]
    [True, True, True]
    """
    if not words_of(text):
        raise AlignmentError(f"expected a transcript with words, found {text!r}: leave clips without words out")
    recording = listen(audio, sample_rate)
    speakers = [speak(text, voice=language + speaker) for speaker in SPEAKERS]
    words = speakers[0].words
    natural = np.array([max(word.end - word.start, 0.02) for word in words])
    _check_length(recording, natural)
    forwards = np.arange(len(words))
    warp = _warp(recording, speakers, natural, forwards)
    decoys = [
        _warp(recording, speakers, natural, order, flipped=True)
        for order in (forwards[::-1], forwards, np.roll(forwards[::-1], len(words) // 2))[: len(words)]
    ]
    return _judge(recording, words, natural, warp, decoys)


def _warp(
    recording: HeardRecording, speakers: list[Speech], natural: np.ndarray, order: np.ndarray, *, flipped: bool = False
) -> _Warp:
    """Warp the synthesis onto the recording, again and again, each time nearer to its voice and tempo."""
    gap = np.minimum(_GAP_SILENT + _GAP_PER_DB * np.maximum(0, recording.energy - recording.speech_level), _GAP_OTHER)
    tempo, fitted = np.ones(len(natural)), None
    for _ in range(PASSES):
        plan = _plan(speakers[0].words, tempo, order, flipped=flipped)
        distances = _distances(recording, speakers, plan, fitted)
        path = cheapest_path(distances, gap, plan.slot)
        fitted = (plan, path)
        owner = np.where(path < 0, -1, plan.slot[np.maximum(path, 0)])
        seconds = np.bincount(owner[owner >= 0], minlength=len(natural)) * HOP / SAMPLE_RATE
        tempo[order] = _tempo(seconds, natural[order])
    cost = np.where(path < 0, gap, distances[np.arange(len(path)), np.maximum(path, 0)])
    return _Warp(path, owner, cost)


def _judge(
    recording: HeardRecording, words: tuple[Word, ...], natural: np.ndarray, warp: _Warp, decoys: list[_Warp]
) -> Alignment:
    """Times, scores and doubts."""
    sound = recording.energy > recording.speech_level
    decoy = min(decoys, key=lambda played: played.cost[sound].sum())
    clip_gain = _gain(warp, decoy, sound)
    placed, seconds = [], []
    for index, word in enumerate(words):
        first, last = np.flatnonzero(warp.owner == index)[[0, -1]]
        seconds.append((last + 1 - first) * HOP / SAMPLE_RATE)
        word_gain = _gain(warp, decoy, slice(first, last + 1))
        first, last = _trim(first, last, warp.owner, sound)
        start, end = (max(0.0, (frame - 0.5) * HOP / SAMPLE_RATE) for frame in (first, last + 1))
        score = _score((1 - _WORD_WEIGHT) * clip_gain + _WORD_WEIGHT * word_gain)
        placed.append(Word(word.text, float(start), float(end), score))
    stretch = np.array(seconds) / natural
    unexplained = float((sound & (warp.owner < 0)).sum() / max(1, sound.sum()))
    score = _score(clip_gain)
    doubts = _doubts(placed, stretch / np.median(stretch), unexplained, score, tempo=float(np.median(stretch)))
    return Alignment(tuple(placed), "synthesis", score, doubts)


def _gain(warp: _Warp, decoy: _Warp, frames: np.ndarray | slice) -> float:
    """Share of the cost that the text saves over the decoy."""
    reference = float(decoy.cost[frames].sum())
    return (reference - float(warp.cost[frames].sum())) / reference if reference > 0 else 0.0


def _score(gain: float) -> float:
    return float(1 / (1 + np.exp(-_GAIN_SLOPE * (gain - _GAIN_OF_DOUBT))))


def _trim(first: int, last: int, owner: np.ndarray, sound: np.ndarray) -> tuple[int, int]:
    """Cut silent frames off a word beside a gap, at most 100 ms: a closure after a pause is not heard."""
    if first == 0 or owner[first - 1] < 0:
        first += int(np.argmax(np.append(sound[first : min(first + 20, last)], True)))
    if last == len(owner) - 1 or owner[last + 1] < 0:
        last -= int(np.argmax(np.append(sound[max(last - 19, first) : last + 1][::-1], True)))
    return first, max(first, last)


def _doubts(
    words: list[Word], stretch: np.ndarray, unexplained: float, score: float, *, tempo: float
) -> tuple[str, ...]:
    doubts = []
    if score < _TRUSTED_SCORE:
        doubts.append(
            f"The text fits hardly better than its own sounds in a wrong order (score {score:.2f}, expected at least "
            f"{_TRUSTED_SCORE}): it may not be what is said."
        )
    if not 1 / _TRUSTED_STRETCH < tempo < _TRUSTED_STRETCH:
        doubts.append(f"The words last {tempo:.1f} times as long as when they are synthesised.")
    odd = [
        f"{w.text} ({s:.1f})" for w, s in zip(words, stretch, strict=True) if abs(np.log(s)) > np.log(_TRUSTED_STRETCH)
    ]
    if odd:
        doubts.append(
            f"Words more than {_TRUSTED_STRETCH:g} times longer or shorter than the clip's tempo: {', '.join(odd[:5])}."
        )
    if unexplained > _TRUSTED_UNEXPLAINED:
        doubts.append(f"{100 * unexplained:.0f} % of the sound belongs to no word of the text.")
    return tuple(doubts)


def _check_length(recording: HeardRecording, natural: np.ndarray) -> None:
    seconds = len(recording.energy) * HOP / SAMPLE_RATE
    if seconds < natural.sum() / 4:
        raise AlignmentError(
            f"expected at least {natural.sum() / 4:.1f} s of audio for this transcript of {len(natural)} words, "
            f"found {seconds:.1f} s: check that text and clip belong together"
        )
    cells = len(recording.energy) * natural.sum() * SAMPLE_RATE / HOP
    if cells > _MAX_CELLS:
        raise AlignmentError(
            f"expected a clip of about a minute at most, found {seconds:.0f} s: cut it at a pause, or use another aligner"
        )


def _plan(words: tuple[Word, ...], tempo: np.ndarray, order: np.ndarray, *, flipped: bool) -> _Plan:
    """Lay out each word's frames: its natural duration times its tempo, at least three; backwards if flipped."""
    times, places = [], []
    for slot, index in enumerate(order):
        seconds = words[index].end - words[index].start
        count = max(3, round(seconds * tempo[index] * SAMPLE_RATE / HOP))
        share = (np.arange(count) + 0.5) / count
        times.append(words[index].start + seconds * (share[::-1] if flipped else share))
        places.append(slot + share)
    place = np.concatenate(places)
    return _Plan(np.concatenate(times), place.astype(int), place)


def _tempo(seconds: np.ndarray, natural: np.ndarray) -> np.ndarray:
    """How much longer each word is than its synthesis, half-way between its own ratio and the clip's."""
    ratios = np.maximum(seconds, 0.02) / natural
    return np.clip(np.sqrt(ratios * np.median(ratios)), 0.35, 3)


def _distances(
    recording: HeardRecording, speakers: list[Speech], plan: _Plan, fitted: tuple[_Plan, np.ndarray] | None
) -> np.ndarray:
    """Distance between every frame of the recording and of the synthesis, [T, N]: that of the nearest speaker."""
    heard = cepstra_of(recording.power + 0.3 * recording.noise)
    voiced = recording.energy > recording.speech_level if fitted is None else fitted[1] >= 0
    heard = (heard - heard[voiced].mean(0)) / (heard[voiced].std(0) + 1e-3)
    heard_deltas = np.c_[heard, slopes_of(heard)]

    def squared(speaker: Speech) -> np.ndarray:
        spoken = _spoken_cepstra(speaker, speakers[0], plan, recording)
        if fitted is not None:
            spoken = _fit(spoken, heard, plan, *fitted)
        spoken_deltas = np.c_[spoken, slopes_of(spoken)]
        return (heard_deltas**2).sum(1)[:, None] + (spoken_deltas**2).sum(1) - 2 * heard_deltas @ spoken_deltas.T

    distances = squared(speakers[0])
    for speaker in speakers[1:]:
        np.minimum(distances, squared(speaker), out=distances)
    return np.sqrt(np.maximum(distances, 0, out=distances) / (1.5 * N_CEPSTRA), out=distances)


def _spoken_cepstra(speaker: Speech, clock: Speech, plan: _Plan, recording: HeardRecording) -> np.ndarray:
    """Standardised cepstra [N, C] of a speaker at the planned times, as loud and as noisy as the recording."""
    power = mel_power(speaker.audio)
    power = power * 10 ** ((recording.loud - np.percentile(decibels(power.sum(1)), 90)) / 10)
    cepstra = cepstra_of(power + 1.3 * recording.noise)
    times = plan.times
    if len(speaker.phonemes) == len(clock.phonemes):  # speakers differ a little in tempo, phoneme by phoneme
        times = np.interp(times, _phoneme_edges(clock), _phoneme_edges(speaker))
    position = times * SAMPLE_RATE / HOP
    cepstra = np.stack([np.interp(position, np.arange(len(cepstra)), column) for column in cepstra.T], axis=1)
    return ((cepstra - cepstra.mean(0)) / (cepstra.std(0) + 1e-3)).astype(np.float32)


def _fit(spoken: np.ndarray, heard: np.ndarray, plan: _Plan, old_plan: _Plan, path: np.ndarray) -> np.ndarray:
    """Map synthetic cepstra to the recording's voice: affine, least squares along the path, ridge towards identity."""
    frames = np.flatnonzero(path >= 0)
    partners = np.clip(np.searchsorted(plan.place, old_plan.place[path[frames]]), 0, len(plan.place) - 1)
    inputs = np.c_[spoken, np.ones(len(spoken), np.float32)]
    unchanged = np.eye(inputs.shape[1], spoken.shape[1])
    paired = inputs[partners]
    weights = np.linalg.solve(
        paired.T @ paired + _RIDGE * np.eye(inputs.shape[1]), paired.T @ heard[frames] + _RIDGE * unchanged
    )
    return (inputs @ weights).astype(np.float32)


def _phoneme_edges(speech: Speech) -> np.ndarray:
    return np.array([phoneme.start for phoneme in speech.phonemes] + [len(speech.audio) / speech.sample_rate])
