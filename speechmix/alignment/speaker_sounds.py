"""Learn the sounds of a speaker from aligned clips, and score frames against them.

In: frames of clips, by the phoneme that an alignment puts there. Out: a `SpeakerVoice`, which
returns distances between the frames of another clip and sounds, in the units of the synthetic
speakers' (synthesis_aligner.py). As in the monophone stage of the Montreal Forced Aligner
(McAuliffe et al. 2017) a sound is a third of a phoneme, and a mixture of Gaussians its model
(scikit-learn's, diagonal covariance).

Run small matrix products on one thread.

The aligner's arrays are a few hundred rows. On two cores that something else uses, too, threads
took three to four times the processor time of one thread, to the same word times; and an alignment
does not depend on the number of cores.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import numpy as np

from ..errors import InputError
from ..files.whole_files import whole_file
from ..inputs.words.timed_words import Word
from .cepstra import HOP, SAMPLE_RATE, RecordingCepstra, standardise_cepstra


def run_on_one_thread() -> AbstractContextManager[object]:
    """A context in which BLAS and OpenMP (numpy, scipy, scikit-learn) compute on one thread."""
    from threadpoolctl import threadpool_limits  # sets an environment variable at its import

    one_thread: AbstractContextManager[object] = threadpool_limits(limits=1)
    return one_thread


Sound = tuple[str, int]  # a phoneme (IPA) and its third: 0, 1, 2; WHOLE stands for all of it

THIRDS, WHOLE = 3, -1
REVISION = 1  # raised when the same frames give another voice
_ANY: Sound = ("", WHOLE)  # of whatever is said: what the likelihood of a sound is compared with
_LEAST, _MOST = 40, 3000  # frames of a sound
_FRAMES_A_GAUSSIAN, _GAUSSIANS, _GAUSSIANS_OF_ANY = 60, 4, 8
_SPREAD = 0.1  # added to every variance; the features have variance 1 or so
# Median distance to the right sound and to another one, as of the synthetic speakers.
_SAME, _OTHER = 0.6, 1.05
_NEAREST, _FARTHEST = 0.15, 1.8
_STRESS = str.maketrans("", "", "ˈˌ")


@dataclass(frozen=True, eq=False)
class SpeakerVoice:
    """Mixtures of Gaussians of S sounds, at most G Gaussians each (absent ones have no weight), D
    features.

    The first of `sounds` is any speech; `weights` are [S, G], `means` and `variances` [S, G, D]. A
    distance is ``shift + scale * (log p(frame | any speech) - log p(frame | sound))``.
    """

    sounds: tuple[Sound, ...]
    weights: np.ndarray
    means: np.ndarray
    variances: np.ndarray
    shift: float
    scale: float

    def distances(self, frames: np.ndarray, sounds: Sequence[Sound]) -> np.ndarray:
        """Distances between frames [T, D] and sounds, [T, N]; NaN where the speaker's own sound is
        not known."""
        rows = {sound: row for row, sound in enumerate(self.sounds)}
        sound_rows = [rows.get(sound, rows.get((sound[0], WHOLE), 0)) for sound in sounds]
        sound_distances = np.full((len(frames), len(self.sounds)), np.nan, np.float32)
        of_any = self._log_likelihood(frames, 0)
        for row in sorted(set(sound_rows) - {0}):
            ratio = of_any - self._log_likelihood(frames, row)
            sound_distances[:, row] = np.clip(self.shift + self.scale * ratio, _NEAREST, _FARTHEST)
        return sound_distances[:, sound_rows]

    def _log_likelihood(self, frames: np.ndarray, row: int) -> np.ndarray:
        return _log_likelihood(frames, self.weights[row], self.means[row], self.variances[row])

    def save(self, path: str | PathLike[str]) -> None:
        """Write a safetensors file, whole or not at all."""
        from safetensors.numpy import save_file

        arrays = {"weights": self.weights, "means": self.means, "variances": self.variances}
        facts = json.dumps(
            {"sounds": self.sounds, "shift": self.shift, "scale": self.scale}, ensure_ascii=False
        )
        with whole_file(Path(path), one_writer=True) as unfinished:
            save_file(
                arrays, unfinished, metadata={"voice": facts}
            )  # safetensors writes several in random order

    @classmethod
    def load(cls, path: str | PathLike[str]) -> SpeakerVoice:
        """Read what `save` wrote; an InputError if the file is damaged."""
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, "numpy") as file:
                facts = json.loads(file.metadata()["voice"])
                sounds = tuple((phoneme, third) for phoneme, third in facts["sounds"])
                weights, means, variances = (
                    file.get_tensor(name) for name in ("weights", "means", "variances")
                )
                return cls(
                    sounds, weights, means, variances, float(facts["shift"]), float(facts["scale"])
                )
        except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"{path} is no voice, or damaged ({error}): delete it, and it is learnt again"
            ) from error


def learn_voice(frames: Mapping[Sound, np.ndarray]) -> SpeakerVoice | None:
    """Learn a speaker's sounds from frames [n, D] of each; None if there are too few to tell sounds
    apart."""
    frames_by_phoneme: dict[Sound, list[np.ndarray]] = {}
    for (phoneme, _), some in frames.items():
        frames_by_phoneme.setdefault((phoneme, WHOLE), []).append(some)
    pooled = {sound: np.concatenate(some) for sound, some in frames_by_phoneme.items()}
    frequent = {
        sound: some for sound, some in sorted({**pooled, **frames}.items()) if len(some) >= _LEAST
    }
    if (
        sum(third != WHOLE for _, third in frequent) < 2
    ):  # distances are put in units by two thirds or more
        return None
    with run_on_one_thread():
        mixtures = [_fit_mixture(np.concatenate([*pooled.values()]), _GAUSSIANS_OF_ANY)]
        mixtures += [_fit_mixture(some, _GAUSSIANS) for some in frequent.values()]
    weights, means, variances = (
        np.stack(arrays).astype(np.float32) for arrays in zip(*mixtures, strict=True)
    )
    raw = SpeakerVoice((_ANY, *frequent), weights, means, variances, 0.0, 1.0)
    return _normalise_distances(
        raw, {sound: some for sound, some in frames.items() if sound in frequent}
    )


def _fit_mixture(frames: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights, means and variances of a mixture of as many Gaussians as the frames are enough for."""
    from sklearn.mixture import GaussianMixture

    step = max(1, len(frames) // (_MOST * (_GAUSSIANS_OF_ANY if most == _GAUSSIANS_OF_ANY else 1)))
    count = int(np.clip(len(frames) // _FRAMES_A_GAUSSIAN, 1, most))
    fitted = GaussianMixture(
        count, covariance_type="diag", reg_covar=_SPREAD, max_iter=30, tol=1e-2, random_state=0
    )
    fitted.fit(frames[::step])
    weights, means = np.zeros(_GAUSSIANS_OF_ANY), np.zeros((_GAUSSIANS_OF_ANY, frames.shape[1]))
    variances = np.ones_like(means)
    weights[:count], means[:count], variances[:count] = (
        fitted.weights_,
        fitted.means_,
        fitted.covariances_,
    )
    return weights, means, variances


def _normalise_distances(voice: SpeakerVoice, frames: Mapping[Sound, np.ndarray]) -> SpeakerVoice:
    """The same voice, whose distances are those of synthetic speakers in the median, to the right
    sound and to another."""
    same_sound_ratios: list[np.ndarray] = []
    others: list[np.ndarray] = []
    for sound, some in frames.items():
        few = some[:: max(1, len(some) // 50)]
        of_any = voice._log_likelihood(few, 0)
        for row, other in enumerate(voice.sounds[1:], 1):
            if other[1] != WHOLE:
                (same_sound_ratios if other == sound else others).append(
                    of_any - voice._log_likelihood(few, row)
                )
    nearer, farther = (
        float(np.median(np.concatenate(some))) for some in (same_sound_ratios, others)
    )
    scale = (_OTHER - _SAME) / max(farther - nearer, 1e-3)
    return SpeakerVoice(
        voice.sounds, voice.weights, voice.means, voice.variances, _SAME - scale * nearer, scale
    )


def _log_likelihood(
    frames: np.ndarray, weights: np.ndarray, means: np.ndarray, variances: np.ndarray
) -> np.ndarray:
    """Log-likelihood [T] of frames [T, D] by a mixture."""
    has_weight = weights > 0
    deviances = (
        (frames[:, None] - means[has_weight]) ** 2 / variances[has_weight]
        + np.log(2 * np.pi * variances[has_weight])
    ).sum(2)
    log_likelihood: np.ndarray = np.logaddexp.reduce(
        np.log(weights[has_weight]) - deviances / 2, axis=1
    )
    return log_likelihood


def frames_by_sound(
    clips: Iterable[tuple[RecordingCepstra, Sequence[Word]]],
) -> dict[Sound, np.ndarray]:
    """Return frames [n, D] of clips by the sound that lies there; at most some thousands of a
    sound, of the first clips.

    Each recording comes with the phonemes of its alignment, in seconds
    (`Alignment.phonemes`).
    """
    collected: dict[Sound, list[np.ndarray]] = {}
    counts: dict[Sound, int] = {}
    for recording, phonemes in clips:
        spans = [
            (word.text, round(word.start * SAMPLE_RATE / HOP), round(word.end * SAMPLE_RATE / HOP))
            for word in phonemes
        ]
        in_words = np.zeros(len(recording.energy), bool)
        for _, first, stop in spans:
            in_words[first:stop] = True
        frames = standardise_cepstra(recording.cepstra, in_words)
        for phoneme, first, stop in spans:
            for third, some in enumerate(np.array_split(frames[first:stop], THIRDS)):
                sound = (unstressed_phoneme(phoneme), third)
                if len(some) and counts.get(sound, 0) < _MOST:
                    collected.setdefault(sound, []).append(some)
                    counts[sound] = counts.get(sound, 0) + len(some)
    return {sound: np.concatenate(some) for sound, some in collected.items()}


def find_sounds(phonemes: Sequence[Word], times: np.ndarray) -> list[Sound]:
    """The sound that a synthetic speaker makes at each time, in seconds."""
    starts = np.array([phoneme.start for phoneme in phonemes])
    phoneme_indices = np.clip(
        np.searchsorted(starts, times, side="right") - 1, 0, len(phonemes) - 1
    )
    lengths = np.array([max(phoneme.end - phoneme.start, 1e-4) for phoneme in phonemes])
    thirds = np.clip(
        THIRDS * (times - starts[phoneme_indices]) / lengths[phoneme_indices], 0, THIRDS - 1
    ).astype(int)
    return [
        (unstressed_phoneme(phonemes[index].text), third)
        for index, third in zip(phoneme_indices.tolist(), thirds.tolist(), strict=True)
    ]


def unstressed_phoneme(phoneme: str) -> str:
    """A phoneme without its stress."""
    return phoneme.translate(_STRESS)
