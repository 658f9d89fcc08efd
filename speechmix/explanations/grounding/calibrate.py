"""Fit a calibration of words on clips whose text is known.

In: a model, and clips with reference texts. Out: a `WordCalibration`. Each clip is grounded as it is, and again as
noise of its own spectrum and as silence: whatever the model writes about these was made up. Quality is measured by
cross-validation over clips, so that no word is judged by a fit that has seen its clip.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from rapidfuzz.distance import Levenshtein
from tqdm import tqdm

from ...errors import InputError, SpeechmixError
from ...files.json_files import JsonObject
from ...inputs.clips.clip import Clip
from ...inputs.words.transcript_accuracy import normalize_transcript
from ...interventions.audio_removal import mute
from ..transcript_errors import transcript_errors
from .calibration import TARGETS, LogisticModel, WordCalibration, standardize
from .ground import ground
from .grounded_words import FEATURES

if TYPE_CHECKING:
    from ...adapters.model import Model

_MIN_CLIPS = 10
_FOLDS = 5
_BINS = 10  # of equal width, for the calibration error and the diagram
_SIMILAR = 0.5  # share of equal letters from which a wrong word stands for the one that was said
NONSPEECH_FILLS = ("noise", "zeros")


def calibrate(
    model: Model,
    clips: Sequence[Clip],
    *,
    nonspeech: Sequence[Clip] | None = None,
    report: Callable[[str], None] = print,
    progress: bool = False,
) -> WordCalibration:
    """Fit how likely a word that a model writes is made up, and how likely it is right.

    Parameters
    ----------
    model : Model
        As for `speechmix.ground`.
    clips : sequence of Clip
        With the text of what is said, at least 10. Their words need no times.
    nonspeech : sequence of Clip, optional
        In which nobody speaks. By default each clip is also made noise of its own spectrum, and silence.
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
        If fewer than 10 clips with text can be used, or the model writes no word about them.

    Notes
    -----
    A written word is right if it stands in the alignment with the reference text as it is, case and punctuation
    aside. It is made up if nothing stands against it there, or a word that shares less than half of its letters.

    Examples
    --------
    >>> import speechmix
    >>> from speechmix.inputs import bundled
    >>> model = speechmix.load(bundled.models()["tiny-french-whisper"])
    >>> fitted = speechmix.calibrate(model, bundled.clips()[:12])          # synthetic clips
    >>> fitted.quality["words"] > 24
    True
    """
    words = collect_judged_words(
        model, clips, nonspeech=nonspeech, report=report, progress=progress
    )
    statement = (
        f"{len(words.truth)} words that {model.label} wrote about {words.clip_count} clips"
        f"{'' if nonspeech is not None else ', and about the same clips as noise and as silence'}"
    )
    return fit_calibration(words, statement)


@dataclass(frozen=True, eq=False)
class JudgedWords:
    """Words that a model wrote about clips whose text is known.

    Parameters
    ----------
    features : ndarray [W, F]
    truth : bool ndarray [W, 2]
        Whether the word was made up, and whether it is right.
    groups : ndarray [W]
        Number of the clip; the same for what is made of one clip.
    clip_count : int
    """

    features: np.ndarray
    truth: np.ndarray
    groups: np.ndarray
    clip_count: int


def collect_judged_words(
    model: Model,
    clips: Sequence[Clip],
    *,
    nonspeech: Sequence[Clip] | None = None,
    report: Callable[[str], None] = print,
    progress: bool = False,
) -> JudgedWords:
    """Ground clips and judge the words; parameters and errors as for `calibrate`."""
    features: list[tuple[float, ...]] = []
    labels: list[tuple[bool, bool]] = []
    groups: list[int] = []
    used: set[int] = set()
    for group, clip, reference in tqdm(_list_items(clips, nonspeech), disable=not progress):
        try:
            grounding = ground(model, clip, loop_heads=False)
        except SpeechmixError as error:
            report(f"skipped: {clip.name}: {error}")
            continue
        used.add(group)
        features += [word.features for word in grounding.words]
        labels += judge_words([word.text for word in grounding.words], reference)
        groups += [group] * len(grounding.words)
    if len(used) < _MIN_CLIPS:
        raise InputError(
            f"expected at least {_MIN_CLIPS} clips with text to fit probabilities on, found {len(used)} that can be "
            "used: give more clips with their text"
        )
    if not labels:
        raise InputError(f"{model.label} writes no word about these clips: nothing can be fitted")
    return JudgedWords(np.array(features), np.array(labels), np.array(groups), len(used))


def fit_calibration(words: JudgedWords, statement: str) -> WordCalibration:
    """Fit both probabilities, and measure them by cross-validation over clips.

    Parameters
    ----------
    words : JudgedWords
    statement : str
        What they are of.
    """
    fits: list[LogisticModel] = []
    quality: JsonObject = {"clips": words.clip_count, "words": len(words.truth)}
    for column, target in enumerate(TARGETS):
        truth = words.truth[:, column]
        fits.append(fit_logistic(words.features, truth))
        quality[target] = measure_quality(_predict_held_out(words, truth), truth)
    return WordCalibration(fits[0], fits[1], statement, quality)


def judge_words(written: Sequence[str], reference: str) -> list[tuple[bool, bool]]:
    """Return, for each written word, whether it was made up and whether it is right.

    Examples
    --------
    >>> judge_words("les livre merci".split(), "les livres")
    [(False, True), (False, False), (True, False)]
    """
    labels = [(False, True)] * len(written)
    for error in transcript_errors(reference.split(), written):
        if error.kind == "insertion":
            labels[error.written] = (True, False)
        elif error.kind == "substitution":
            said, wrote = (normalize_transcript(text or "") for text in (error.said, error.wrote))
            is_similar = Levenshtein.normalized_similarity(said, wrote) >= _SIMILAR
            labels[error.written] = (not is_similar, False)
    return labels


def fit_logistic(
    features: np.ndarray, truth: np.ndarray, used: Sequence[str] = FEATURES
) -> LogisticModel:
    """Fit a logistic regression on standardised features; what is missing counts as the mean.

    Where all words are alike, the probability is that of the rule of succession, whatever the features.

    Parameters
    ----------
    features : ndarray [W, F]
    truth : bool ndarray [W]
    used : sequence of str
        Of `FEATURES`; the others get no weight.
    """
    from sklearn.linear_model import LogisticRegression

    is_known = ~np.isnan(features)
    counts = np.maximum(is_known.sum(axis=0), 1)
    mean = np.where(is_known, features, 0).sum(axis=0) / counts
    deviation = np.where(is_known, features - mean, 0)
    scale = np.sqrt((deviation**2).sum(axis=0) / counts)
    scale[scale < 1e-9] = 1.0
    if truth.all() or not truth.any():
        share = (truth.sum() + 1) / (len(truth) + 2)
        weights, intercept = np.zeros(features.shape[1]), np.log(share / (1 - share))
    else:
        standard = standardize(features, mean, scale) * [name in used for name in FEATURES]
        fitted = LogisticRegression(max_iter=1000).fit(standard, truth)
        weights, intercept = fitted.coef_[0], fitted.intercept_[0]
    return LogisticModel(
        tuple(mean.tolist()), tuple(scale.tolist()), tuple(weights.tolist()), float(intercept)
    )


def measure_quality(probabilities: np.ndarray, truth: np.ndarray) -> JsonObject:
    """Measure probabilities against the truth.

    Parameters
    ----------
    probabilities : ndarray [W]
    truth : bool ndarray [W]

    Returns
    -------
    dict
        "auroc" (None where all words are alike), "calibration_error" (expected calibration error over ten bins of
        equal width, Naeini et al. 2015) and "bins": mean probability, share of true words and number of words of each.
    """
    from sklearn.metrics import roc_auc_score

    bins, error = [], 0.0
    indices = np.minimum((probabilities * _BINS).astype(int), _BINS - 1)
    for index in range(_BINS):
        inside = indices == index
        if inside.any():
            predicted, actual = probabilities[inside].mean(), truth[inside].mean()
            bins.append([float(predicted), float(actual), int(inside.sum())])
            error += inside.mean() * abs(predicted - actual)
    is_mixed = truth.any() and not truth.all()
    return {
        "auroc": float(roc_auc_score(truth, probabilities)) if is_mixed else None,
        "calibration_error": float(error),
        "share": float(truth.mean()),
        "bins": bins,
    }


def _list_items(
    clips: Sequence[Clip], nonspeech: Sequence[Clip] | None
) -> list[tuple[int, Clip, str]]:
    """Return (group, clip, reference text); what is made of one clip is in one group."""
    items = []
    for group, clip in enumerate(clip for clip in clips if clip.text):
        items.append((group, clip, clip.text or ""))
        if nonspeech is None:
            whole = clip.replace(
                words=[("<sound>", 0.0, clip.duration)], cue=None, target=None, foil=None
            )
            items += [(group, mute(whole, 0, fill=fill), "") for fill in NONSPEECH_FILLS]
    first = len(clips)
    items += [(first + index, clip, "") for index, clip in enumerate(nonspeech or ())]
    return items


def _predict_held_out(words: JudgedWords, truth: np.ndarray) -> np.ndarray:
    """Predict each word by a fit on the other folds of clips."""
    from sklearn.model_selection import GroupKFold

    features, groups = words.features, words.groups
    folds = min(_FOLDS, len(set(groups.tolist())))
    if folds < 2:
        return fit_logistic(features, truth).probabilities(features)
    held_out = np.empty(len(truth))
    for train, test in GroupKFold(folds).split(features, truth, groups):
        held_out[test] = fit_logistic(features[train], truth[train]).probabilities(features[test])
    return held_out
