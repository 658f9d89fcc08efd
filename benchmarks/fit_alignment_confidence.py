"""Fit the weights of `speechmix.alignment.confidence` again, and compare them with those in use.

    python benchmarks/fit_alignment_confidence.py [--count 12] [--seed 0] [--workers 2] [--shared ../shared]

In: speech with known word times (`alignment_material`, the development part) and real recordings
with borders read off spectrograms (as `alignment.py`), each with its own text and with another.
Out: three Markdown tables, one for words (is a border more than 100 ms off?) and one for texts (is it
another text?), and one for phones (is a border more than 20 ms off? of speech in a room and of speech
close to the microphone): each feature with its weight in use and its weight fitted here; below, the area under
the ROC curve of both, which is what decides whether new weights are worth having. For phones the same
areas, the median error and how many are off follow for voices and sentences that are kept apart. The features of
one clip rise and fall together, so that single weights differ from draw to draw more than the areas.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
from difflib import SequenceMatcher
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pandas as pd
from alignment import FAR, real_samples
from alignment_material import CONDITIONS, Sample, samples, wrong_texts
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from speechmix.alignment import confidence, phones, synthesis_aligner
from speechmix.errors import AlignmentError
from speechmix.inputs.words.unit_tiers import unit_owners

WORD_FEATURES = ("margin", "word rank", "text rank", "sound behind", "contrast", "spread")
PHONE_FEATURES = (
    *("smaller margin", "larger margin", "change", "spread"),
    "change in the synthesis",
)
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


def collect_phones(sample: Sample) -> tuple[np.ndarray, np.ndarray]:
    """Features of the phones of a sample that are said as the aligner expects [P, 5], and how far
    their starts and ends are off, in seconds [P, 2]."""
    found: list[np.ndarray] = []
    phone_confidence = phones.phone_confidence

    def keep(features: np.ndarray) -> np.ndarray:
        found.append(features)
        return phone_confidence(features)

    with patch.object(phones, "phone_confidence", keep):
        try:
            aligned = synthesis_aligner.align_by_synthesis(sample.audio, sample.text, language="fr")
        except AlignmentError:
            return np.empty((0, len(PHONE_FEATURES))), np.empty((0, 2))
    owners = unit_owners(aligned.phones, aligned.words)
    placed = [(phone.text, owner) for phone, owner in zip(aligned.phones, owners, strict=True)]
    matcher = SequenceMatcher(None, list(sample.phones), placed, autojunk=False)
    pairs = [
        (block.a + step, block.b + step)
        for block in matcher.get_matching_blocks()
        for step in range(block.size)
    ]
    times = np.array([(phone.start, phone.end) for phone in aligned.phones])
    true, own = np.array(pairs, int).reshape(-1, 2).T
    return found[-1][own], times[own] - sample.phone_times[true]


def compare_phones(options: argparse.Namespace, pool: ProcessPoolExecutor) -> str:
    """Fit the weights of phones on the development part, and say what they are worth elsewhere."""
    collected = {}
    for part in ("development", "kept"):
        for room in (True, False):
            drawn = samples(
                options.shared,
                part,
                count=options.count,
                seed=options.seed,
                conditions=("clean", "white 10 dB", "telephone"),
                room=room,
            )
            rows = list(pool.map(collect_phones, drawn, chunksize=4))
            collected[part, room] = [np.concatenate(column) for column in zip(*rows, strict=True)]
    features, errors = (
        np.concatenate([collected["development", room][column] for room in (True, False)])
        for column in range(2)
    )
    used = phones._OFF_WEIGHTS
    off = np.abs(errors).max(axis=1) > phones.NEAR
    lines = [compare(features, off, PHONE_FEATURES, used, balanced=False)]
    for room in (True, False):
        features, errors = collected["kept", room]
        off = np.abs(errors).max(axis=1) > phones.NEAR
        expected = 1 - phones.phone_confidence(features)
        lines.append(
            f"kept, {'in a room' if room else 'close to the microphone'}: {len(off):,} phones, median "
            f"error {1000 * np.median(np.abs(errors)):.1f} ms, {100 * off.mean():.0f} % off, "
            f"{100 * expected.mean():.0f} % expected, area {roc_auc_score(off, expected):.3f}"
        )
    return "\n\n".join(lines)


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
        phone_text = compare_phones(options, pool)
    words, off, texts, is_wrong = (
        np.concatenate([row[column] for row in rows]) for column in range(4)
    )
    print("words\n")
    print(compare(words, off, WORD_FEATURES, confidence._FAR_WEIGHTS, balanced=False))
    print("\ntexts\n")
    print(compare(texts, is_wrong, TEXT_FEATURES, confidence._WRONG_TEXT_WEIGHTS, balanced=True))
    print("\nphones\n")
    print(phone_text)


if __name__ == "__main__":
    main()
