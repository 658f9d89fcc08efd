"""Fit a word confidence on clips whose text is known.

In: a model, and clips with reference texts. Out: a `WordCalibration`. Each clip counts alike, however many words the model
wrote about it, so a clip on which it loops does not decide the fit. Quality is measured by cross-validation over speakers
(over clips, where no speaker is known), so that no word is judged by a fit that has seen its speaker.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from tqdm import tqdm

from ...errors import InputError, SpeechmixError
from ...files.json_files import JsonObject
from ...inputs.clips.clip import Clip
from ..explain.transcript_errors import transcript_errors
from .calibration import WordCalibration
from .ground import ground

if TYPE_CHECKING:
    from ...adapters.model import Model

_MIN_CLIPS = 10
_MIN_WORDS = 10  # right ones, and wrong ones
_FOLDS = 5
_SPEAKER_COLUMNS = ("speaker", "speaker_id", "client_id")  # of a manifest
_BINS = 10  # of equal width, for the calibration error and the diagram
_RESAMPLES = 1000  # of groups, for the interval of the area under the ROC curve


def calibrate(
    model: Model,
    clips: Sequence[Clip],
    *,
    nonspeech: Sequence[Clip] = (),
    report: Callable[[str], None] = print,
    progress: bool = False,
) -> WordCalibration:
    """Fit how probable it is that a word that a model writes is right.

    Parameters
    ----------
    model : Model
        As for `speechmix.ground`.
    clips : sequence of Clip
        With the text of what is said, at least 10. Their words need no times.
    nonspeech : sequence of Clip, optional
        In which nobody speaks; all that is written about them is wrong.
    report : callable
        Gets a line for each clip that cannot be used.
    progress : bool
        Show a bar.

    Returns
    -------
    WordCalibration
        `WordCalibration.save` writes it for ``ground(..., calibration=)``.

    Raises
    ------
    InputError
        If fewer than 10 clips with text can be used, or fewer than 10 of the written words are right, or wrong.

    Notes
    -----
    A written word is right if it equals the word at its position in the alignment with the reference text
    (`transcript_errors`), after the language's normalisation of numbers and spellings. The regression has one variable,
    the mean log-probability of the word's tokens (Platt 1999, Probabilistic outputs for support vector machines).

    Examples
    --------
    >>> import numpy as np
    >>> import speechmix
    >>> from speechmix.inputs import bundled
    >>> model = speechmix.load(bundled.models()["tiny-french-whisper"])
    >>> noise = np.random.default_rng(0).normal(0, 0.05, (5, 24_000))
    >>> nonspeech = [speechmix.Clip.from_array(sound, 16_000, name="noise", language="fr") for sound in noise]
    >>> fitted = speechmix.calibrate(model, bundled.clips()[:12], nonspeech=nonspeech)          # synthetic clips
    >>> fitted.quality["words"] > 24
    True
    """
    words = collect_judged_words(
        model, clips, nonspeech=nonspeech, report=report, progress=progress
    )
    statement = (
        f"{len(words.is_right)} words that {model.label} wrote about {words.clip_count} clips"
    )
    return fit_calibration(words, statement, model.fingerprint)


@dataclass(frozen=True, eq=False)
class JudgedWords:
    """Words that a model wrote about clips whose text is known.

    Parameters
    ----------
    log_probabilities : ndarray [W]
        Means over tokens.
    is_right : bool ndarray [W]
    weights : ndarray [W]
        One over the number of words of the clip.
    groups : ndarray [W]
        Number of the speaker or clip.
    clip_count : int
    group_name : str
        "speakers" or "clips".
    """

    log_probabilities: np.ndarray
    is_right: np.ndarray
    weights: np.ndarray
    groups: np.ndarray
    clip_count: int
    group_name: str = "clips"


def collect_judged_words(
    model: Model,
    clips: Sequence[Clip],
    *,
    nonspeech: Sequence[Clip] = (),
    report: Callable[[str], None] = print,
    progress: bool = False,
) -> JudgedWords:
    """Ground clips and judge the words; parameters and errors as for `calibrate`."""
    items = [(clip, clip.text or "") for clip in clips if (clip.text or "").strip()]
    speakers = [
        str(next(filter(None, map(clip.meta.get, _SPEAKER_COLUMNS)), "")) for clip, _ in items
    ]
    has_speakers = all(speakers) and len(set(speakers)) >= _FOLDS
    names = speakers if has_speakers else [str(index) for index in range(len(items))]
    items += [(clip, "") for clip in nonspeech]
    names += [f"nonspeech {index}" for index in range(len(nonspeech))]
    values: list[tuple[float, bool, float, str]] = []
    used = 0
    for name, (clip, reference) in zip(names, tqdm(items, disable=not progress), strict=True):
        try:
            grounding = ground(model, clip, loop_heads=False, align=False)
        except SpeechmixError as error:
            report(f"skipped: {clip.name}: {error}")
            continue
        used += 1
        texts = [word.text for word in grounding.words]
        values += [
            (word.log_probability, is_right, 1 / len(texts), name)
            for word, is_right in zip(
                grounding.words, judge_words(texts, reference, clip.language), strict=True
            )
        ]
    if used < _MIN_CLIPS:
        raise InputError(
            f"expected at least {_MIN_CLIPS} clips with text to fit probabilities on, found {used} that can be used: "
            "give more clips with their text"
        )
    is_right = np.array([value[1] for value in values], dtype=bool)
    if min(is_right.sum(), (~is_right).sum()) < _MIN_WORDS:
        raise InputError(
            f"{model.label} writes {is_right.sum()} right and {(~is_right).sum()} wrong words about these clips: expected at "
            f"least {_MIN_WORDS} of each to fit probabilities on. Give more clips, or more difficult ones"
        )
    log_probabilities, weights = (np.array([value[i] for value in values]) for i in (0, 2))
    groups = np.unique([value[3] for value in values], return_inverse=True)[1]
    group_name = "speakers" if has_speakers else "clips"
    return JudgedWords(log_probabilities, is_right, weights, groups, used, group_name)


def judge_words(words: Sequence[str], reference: str, language: str | None = None) -> list[bool]:
    """Return, for each written word, whether it is right.

    Examples
    --------
    >>> judge_words("les livre merci".split(), "les livres")
    [True, False, False]
    """
    is_right = [True] * len(words)
    for error in transcript_errors(reference.split(), words, language):
        for index in range(error.written, error.written_stop):
            is_right[index] = False
    return is_right


def fit_calibration(words: JudgedWords, statement: str, fingerprint: str) -> WordCalibration:
    """Fit the probability of being right, and measure it by cross-validation over groups.

    Parameters
    ----------
    words : JudgedWords
    statement : str
        What they are of.
    fingerprint : str
        Of the model.
    """
    intercept, slope = fit_logistic(words, np.ones(len(words.is_right), dtype=bool))
    counts = {
        "clips": words.clip_count,
        "groups": len(np.unique(words.groups)),
        "held_out": words.group_name,
        "words": len(words.is_right),
        "wrong": int((~words.is_right).sum()),
    }
    quality = measure_quality(_predict_held_out(words), words)
    return WordCalibration(intercept, slope, fingerprint, statement, {**counts, **quality})


def fit_logistic(words: JudgedWords, is_used: np.ndarray) -> tuple[float, float]:
    """Return intercept and slope of the weighted logistic regression on some of the words."""
    from sklearn.linear_model import LogisticRegression

    truth = words.is_right[is_used]
    if truth.all() or not truth.any():
        share = (truth.sum() + 1) / (len(truth) + 2)  # the rule of succession
        return float(np.log(share / (1 - share))), 0.0
    fitted = LogisticRegression(C=1e6, max_iter=1000).fit(
        words.log_probabilities[is_used, None], truth, sample_weight=words.weights[is_used]
    )
    return float(fitted.intercept_[0]), float(fitted.coef_[0, 0])


def measure_quality(probabilities: np.ndarray, words: JudgedWords) -> JsonObject:
    """Measure probabilities [W] of being right against the truth.

    Returns
    -------
    dict
        "auroc" with "auroc_low" and "auroc_high" (95 % over resampled groups), "calibration_error" (expected calibration
        error over ten bins of equal width, Naeini et al. 2015) and "bins": mean probability, share of right words and
        number of words of each. Words are weighted as in the fit.
    """
    from sklearn.metrics import roc_auc_score

    truth, weights = words.is_right, words.weights
    bins, error = [], 0.0
    indices = np.minimum((probabilities * _BINS).astype(int), _BINS - 1)
    for index in range(_BINS):
        inside = indices == index
        if inside.any():
            predicted, actual = (
                float(np.average(values[inside], weights=weights[inside]))
                for values in (probabilities, truth)
            )
            bins.append([predicted, actual, int(inside.sum())])
            error += float(weights[inside].sum() / weights.sum()) * abs(predicted - actual)
    random = np.random.default_rng(0)
    group_count = words.groups.max() + 1
    areas = []
    for _ in range(_RESAMPLES):
        draws = random.integers(group_count, size=group_count)
        resampled = weights * np.bincount(draws, minlength=group_count)[words.groups]
        if (resampled[truth] > 0).any() and (resampled[~truth] > 0).any():
            areas.append(roc_auc_score(truth, probabilities, sample_weight=resampled))
    low, high = np.percentile(areas, (2.5, 97.5))
    area = roc_auc_score(truth, probabilities, sample_weight=weights)
    return {
        "auroc": float(area),
        "auroc_low": float(low),
        "auroc_high": float(high),
        "calibration_error": error,
        "bins": bins,
    }


def _predict_held_out(words: JudgedWords) -> np.ndarray:
    """Probabilities [W] by fits that have not seen the word's group."""
    groups = np.unique(words.groups)
    folds = np.array_split(np.random.default_rng(0).permutation(groups), _FOLDS)
    predicted = np.empty(len(words.is_right))
    for fold in folds:
        is_held_out = np.isin(words.groups, fold)
        if is_held_out.any():
            intercept, slope = fit_logistic(words, ~is_held_out)
            logits = intercept + slope * words.log_probabilities[is_held_out]
            predicted[is_held_out] = 1 / (1 + np.exp(-np.clip(logits, -50, 50)))
    return predicted
