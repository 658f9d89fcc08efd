"""How well do the probabilities of `speechmix.ground` find words that nobody said? On a model made to be wrong.

    python recipes/grounding_evaluation.py runs/hallucinating/tiny-hallucinating-whisper
    python recipes/grounding_evaluation.py runs/hallucinating/tiny-hallucinating-whisper --default MODEL MODEL

Probabilities are fitted on voices, noises and tones that the model has not seen, and measured on others that
neither the model nor the fit has seen. With --default, the package's default is fitted, on what is alike in several
models: the effect of the sound, and the entropy of attention.

Each baseline is one number of a word; differences are bootstrapped over clips.
All clips are synthetic.
"""

from __future__ import annotations

import argparse
import sys
import zlib
from pathlib import Path

import numpy as np
import pandas as pd
from hallucination_corpus import NONSPEECH, speak_mixture
from sklearn.metrics import roc_auc_score
from tqdm import tqdm
from train_hallucinating_whisper import clip_of

import speechmix
from speechmix.explanations.grounding.calibrate import (
    JudgedWords,
    collect_judged_words,
    fit_calibration,
    fit_logistic,
    judge_words,
    measure_quality,
)
from speechmix.explanations.grounding.calibration import TARGETS, WordCalibration
from speechmix.explanations.grounding.grounded_words import FEATURES
from speechmix.files.text_files import write_csv

FIT_SEED, TEST_SEED = 60_000, 72_000
RESAMPLES = 2000
FEATURE_SETS = {
    "log-probabilities": ("log_probability", "lowest_log_probability"),
    "interventions": ("sound", "own_sound", "log_probability_without_sound", "earlier_text"),
    "attention": ("own_attention", "padding_attention", "attention_entropy"),
}
FEATURE_SETS["log-probabilities and attention"] = (
    *FEATURE_SETS["log-probabilities"],
    *FEATURE_SETS["attention"],
)
DEFAULT_FEATURES = ("sound", "own_sound", "attention_entropy")
DEFAULT_FEATURES += tuple(f"{name}_of_neighbours" for name in DEFAULT_FEATURES)
BASELINES = {  # higher is more doubtful
    "mean log-probability": lambda features, text: -features[FEATURES.index("log_probability")],
    "log-probability with minus without sound": lambda features, text: (
        -features[FEATURES.index("sound")]
    ),
    "cross-attention entropy": lambda features, text: features[FEATURES.index("attention_entropy")],
    "padding attention": lambda features, text: features[FEATURES.index("padding_attention")],
    "no-speech probability": lambda features, text: features[FEATURES.index("no_speech")],
    "compression ratio": lambda features, text: (
        len(text.encode()) / len(zlib.compress(text.encode()))
    ),
}


def collect_words(model, count: int, *, seed: int, split: str) -> JudgedWords:
    """Ground clips of a split, and judge the words that the model writes about them."""
    spoken, nonspeech = [], []
    for index, example in enumerate(speak_mixture(count, seed=seed, split=split)):
        clip = clip_of(example, f"{split}_{index}")
        if example.kind in NONSPEECH:
            nonspeech.append(clip)
        else:
            spoken.append(clip.replace(text=example.spoken_text))
    return collect_judged_words(model, spoken, nonspeech=nonspeech, progress=True)


def fit_default(words: dict[str, JudgedWords]) -> WordCalibration:
    """Fit the package's default on several models; its quality is that on a model that was left out."""
    fits, quality = [], {"clips": sum(part.clip_count for part in words.values())}
    truth = np.concatenate([part.truth for part in words.values()])
    features = np.concatenate([part.features for part in words.values()])
    for column, target in enumerate(TARGETS):
        held_out = []
        for name, part in words.items():
            others = [other for key, other in words.items() if key != name]
            fitted = fit_logistic(
                np.concatenate([other.features for other in others]),
                np.concatenate([other.truth[:, column] for other in others]),
                used=DEFAULT_FEATURES,
            )
            held_out.append(fitted.probabilities(part.features))
            quality_here = measure_quality(held_out[-1], part.truth[:, column])
            print(
                f"{target}, {name} left out: AUROC {quality_here['auroc']:.3f}, calibration error "
                f"{quality_here['calibration_error']:.3f}"
            )
        fits.append(fit_logistic(features, truth[:, column], used=DEFAULT_FEATURES))
        quality[target] = measure_quality(np.concatenate(held_out), truth[:, column])
    statement = (
        f"{len(truth)} words that {', '.join(words)} wrote about synthetic French (espeak-ng); for a model that "
        f"was left out, the calibration error was {quality['made_up']['calibration_error']:.2f}"
    )
    return WordCalibration(fits[0], fits[1], statement, quality | {"words": len(truth)})


def ground_test_clips(model, calibration, count: int) -> pd.DataFrame:
    """One row for each word that the model writes about held-out clips."""
    rows = []
    examples = speak_mixture(count, seed=TEST_SEED, split="test")
    for index, example in enumerate(tqdm(examples, total=count)):
        grounding = speechmix.ground(
            model, clip_of(example, f"test_{index}"), calibration=calibration, loop_heads=False
        )
        texts = [word.text for word in grounding.words]
        labels = judge_words(texts, example.spoken_text)
        for word, (made_up, right) in zip(grounding.words, labels, strict=True):
            row = {"clip": index, "kind": example.kind, "word": word.text, "made up": made_up}
            row |= {"right": right, "P(made up)": word.made_up, "P(right)": word.right}
            row["features"] = word.features
            row |= {name: of(word.features, " ".join(texts)) for name, of in BASELINES.items()}
            rows.append(row)
    return pd.DataFrame(rows)


def compare(words: pd.DataFrame) -> pd.DataFrame:
    """AUROC of each score, and the paired 95 % interval of the detector's lead, bootstrapped over clips."""
    random = np.random.default_rng(0)
    clips = [group for _, group in words.groupby("clip")]
    # a model without a token for "no speech" does not have its probability
    baselines = [name for name in BASELINES if words[name].notna().all()]
    scores = {"P(made up)": "P(made up)", **{name: name for name in baselines}}
    leads: dict[str, list[float]] = {name: [] for name in scores}
    arrays = [group[["made up", *scores]].to_numpy(dtype=float) for group in clips]
    for _ in range(RESAMPLES):
        sample = np.concatenate([arrays[i] for i in random.integers(len(arrays), size=len(arrays))])
        values = [roc_auc_score(sample[:, 0], sample[:, 1 + i]) for i in range(len(scores))]
        for name, value in zip(scores, values, strict=True):
            leads[name].append(values[0] - value)
    rows = []
    for name in scores:
        low, high = np.percentile(leads[name], [2.5, 97.5])
        auroc = roc_auc_score(words["made up"], words[name])
        rows.append({"score": name, "AUROC": auroc, "lead, low": low, "lead, high": high})
    return pd.DataFrame(rows).round(3)


def compare_features(fit_words: JudgedWords, test_words: pd.DataFrame) -> pd.DataFrame:
    """AUROC of fits on some of the features alone, each also of the neighbouring words."""
    truth = test_words["made up"].to_numpy(dtype=bool)
    features = np.array(test_words["features"].tolist())
    rows = []
    for name, own in FEATURE_SETS.items():
        used = [*own, *(f"{feature}_of_neighbours" for feature in own)]
        fitted = fit_logistic(fit_words.features, fit_words.truth[:, 0], used=used)
        rows.append({"features": name, **measured(fitted.probabilities(features), truth)})
    return pd.DataFrame(rows).round(3)


def learning_curve(fit_words: JudgedWords, test_words: pd.DataFrame) -> pd.DataFrame:
    """Mean quality of fits on few clips, over 20 draws of these clips."""
    random = np.random.default_rng(0)
    truth = test_words["made up"].to_numpy(dtype=bool)
    features = np.array(test_words["features"].tolist())
    groups = np.unique(fit_words.groups)
    rows = []
    for count in (count for count in (20, 50, 100, 200, 400) if count <= len(groups)):
        for _ in range(20):
            is_drawn = np.isin(fit_words.groups, random.choice(groups, count, replace=False))
            fitted = fit_logistic(fit_words.features[is_drawn], fit_words.truth[is_drawn, 0])
            rows.append({"fit clips": count, **measured(fitted.probabilities(features), truth)})
    return pd.DataFrame(rows).groupby("fit clips", as_index=False).mean().round(3)


def measured(probabilities: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """Return the two numbers of the tables."""
    quality = measure_quality(probabilities, truth)
    return {"AUROC": quality["auroc"], "calibration error": quality["calibration_error"]}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--fit-clips", type=int, default=800)
    parser.add_argument(
        "--default",
        nargs="+",
        metavar="MODEL",
        help="fit the package's default instead, on these models, too",
    )
    parser.add_argument(
        "--other", nargs="+", default=[], metavar="MODEL", help="try the fit on these models"
    )
    parser.add_argument("--test-clips", type=int, default=800)
    parser.add_argument("--out", default="runs/hallucinating")
    options = parser.parse_args(arguments)
    model, out = speechmix.load(options.model), Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    if options.default:
        names = [options.model, *options.default]
        words = {
            Path(name).name: collect_words(
                speechmix.load(name), options.fit_clips, seed=FIT_SEED, split="fit"
            )
            for name in names
        }
        default = fit_default(words)
        print(default)
        default.save(out / "default.json")
        return 0
    fit_words = collect_words(model, options.fit_clips, seed=FIT_SEED, split="fit")
    calibration = fit_calibration(
        fit_words, f"{len(fit_words.truth)} words that {model.label} wrote about synthetic clips"
    )
    calibration.save(out / "calibration.json")
    words = ground_test_clips(model, calibration, options.test_clips)
    write_csv(words.drop(columns="features"), out / "words.csv")
    print(calibration)
    print(f"{len(words)} words, {words['made up'].mean():.0%} made up; by kind of clip:")
    print(words.groupby("kind")[["made up", "right", "P(made up)"]].mean().round(3).to_string())
    table = compare(words)
    write_csv(table, out / "comparison.csv")
    print(table.to_string(index=False))
    for target, column in (("made up", "P(made up)"), ("right", "P(right)")):
        quality = measure_quality(words[column].to_numpy(), words[target].to_numpy(dtype=bool))
        print(
            f"{column}: calibration error {quality['calibration_error']:.3f}, AUROC {quality['auroc']:.3f}"
        )
    print(compare_features(fit_words, words).to_string(index=False))
    print(learning_curve(fit_words, words).to_string(index=False))
    for name in options.other:
        other_words = ground_test_clips(speechmix.load(name), calibration, options.test_clips)
        truth = other_words["made up"].to_numpy(dtype=bool)
        print(f"{name}, same fit: {measured(other_words['P(made up)'].to_numpy(), truth)}")
        log_probability = other_words["mean log-probability"]
        print(f"its log-probability: AUROC {roc_auc_score(truth, log_probability):.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
