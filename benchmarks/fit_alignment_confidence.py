"""Fit the weights of `speechmix.alignment.confidence` again, and compare them with those in use.

    python benchmarks/fit_alignment_confidence.py [--count 12] [--seed 0] [--workers 2] [--shared ../shared]

In: speech with known word times (`alignment_material`, the development part) and real recordings
with borders read off spectrograms (as `alignment.py`), each with its own text and with another.
Out: two Markdown tables, one for words (is a border more than 100 ms off?) and one for texts (is it
another text?): each feature with its weight in use and its weight fitted here; below, the area under
the ROC curve of both, which is what decides whether new weights are worth having. The features of
one clip rise and fall together, so that single weights differ from draw to draw more than the areas.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pandas as pd
from alignment import FAR, real_samples
from alignment_material import CONDITIONS, Sample, samples, wrong_texts
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from speechmix.alignment import confidence, synthesis_aligner
from speechmix.errors import AlignmentError

WORD_FEATURES = ("margin", "word rank", "text rank", "sound behind", "contrast", "spread")
TEXT_FEATURES = ("gain", "likeness", "distance between ways", "strangeness", "rank")


def collect(sample: Sample, wrong: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Features of the words of a sample [W, 6], whether each is off [W]; features of its two texts
    [0 to 2, 5], whether each is the wrong one."""
    found: list[confidence.Evidence] = []
    collect_evidence = synthesis_aligner.word_confidence

    def keep(evidence: confidence.Evidence) -> np.ndarray:
        found.append(evidence)
        return collect_evidence(evidence)

    words, off, texts, is_wrong = np.empty((0, 6)), np.empty(0, bool), [], []
    with patch.object(synthesis_aligner, "word_confidence", keep):
        for text in (sample.text, wrong):
            found.clear()
            try:
                aligned = synthesis_aligner.align_by_synthesis(sample.audio, text, language="fr")
            except AlignmentError:  # a text that is refused gets no confidence
                continue
            texts.append(confidence.text_features(found[-1]))
            is_wrong.append(text != sample.text)
            if text == sample.text:
                placed = np.array([(word.start, word.end) for word in aligned.words])
                error = np.abs(placed - sample.times).max(axis=1)
                known = np.isfinite(error)
                words = confidence.word_features(found[-1])[known]
                off = error[known] > FAR
    return words, off, np.array(texts).reshape(-1, 5), np.array(is_wrong, bool)


def compare(
    features: np.ndarray,
    labels: np.ndarray,
    names: tuple[str, ...],
    used: tuple[np.ndarray, float],
    *,
    balanced: bool,
) -> str:
    """Fit a logistic regression; tabulate its weights and areas beside those in use."""
    model = LogisticRegression(
        C=np.inf, class_weight="balanced" if balanced else None, max_iter=10_000
    )
    model.fit(features, labels)
    table = pd.DataFrame(
        {"in use": [*used[0], used[1]], "fitted": [*model.coef_[0], *model.intercept_]},
        index=[*names, "intercept"],
    )
    table.loc["area under the ROC curve"] = [
        roc_auc_score(labels, features @ weights) for weights in (used[0], model.coef_[0])
    ]
    counted = f"{len(labels):,} rows, {int(labels.sum()):,} of them off or wrong"
    return f"{table.round(3).to_markdown()}\n\n{counted}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    shared = Path(__file__).resolve().parents[2] / "shared"
    parser.add_argument("--shared", type=Path, default=shared)
    parser.add_argument("--count", type=int, default=12, help="sentences of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    drawn = list(
        samples(
            options.shared,
            "development",
            count=options.count,
            seed=options.seed,
            conditions=CONDITIONS,
        )
    )
    drawn += list(real_samples(options.shared))
    with ProcessPoolExecutor(options.workers) as pool:
        rows = list(pool.map(collect, drawn, wrong_texts(drawn), chunksize=4))
    words, off, texts, is_wrong = (
        np.concatenate([row[column] for row in rows]) for column in range(4)
    )
    print("words\n")
    print(compare(words, off, WORD_FEATURES, confidence._FAR_WEIGHTS, balanced=False))
    print("\ntexts\n")
    print(compare(texts, is_wrong, TEXT_FEATURES, confidence._WRONG_TEXT_WEIGHTS, balanced=True))


if __name__ == "__main__":
    main()
