"""How short is the online code, compared with logistic regressions of one strength on the same
blocks?

    python benchmarks/online_code.py

SYNTHETIC states, five draws each: one dimension that says the label among noise; a small difference
in every dimension; classes that overlap; and random labels. Printed is the compression at the mean
length of the draws, for a regression with C = 1, for the best single strength (known only
afterwards), and for `online_code`. `docs/howto/probing.md` has an extract.
"""

from __future__ import annotations

import itertools
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from speechmix.extensions.probing.online_code import (
    PENALTY_STRENGTHS,
    logistic_predictors,
    online_code,
    split_blocks,
)

SIZES, WIDTHS, DRAWS = (40, 100, 400, 2000), (64, 1024), 5
KINDS = ("one dimension", "all dimensions", "overlap", "random")


def states_of(kind: str, count: int, width: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """States [N, D] and labels 0 and 1 [N], as many of each."""
    generator = np.random.default_rng(seed)
    classes = generator.permutation(np.arange(count) % 2)
    states, signs = generator.standard_normal((count, width)), 2 * classes[:, None] - 1
    if kind == "one dimension":
        states[:, :1] = 3 * signs
    elif kind != "random":
        size = 0.5 if kind == "all dimensions" else 1 / np.sqrt(width)
        states += size * signs * generator.standard_normal(width)
    return states, classes


def bits_by_predictor(states: np.ndarray, classes: np.ndarray, seed: int) -> np.ndarray:
    """Length of the code by each predictor alone [2 + strengths]."""
    order, ends = split_blocks(len(classes), seed=seed)
    total = np.full(2 + len(PENALTY_STRENGTHS), float(ends[0]))
    for start, stop in itertools.pairwise(ends):
        sent, scored = order[:start], order[start:stop]
        mean, deviation = states[sent].mean(axis=0), states[sent].std(axis=0)
        deviation[deviation == 0] = 1
        scaled = ((states[items] - mean) / deviation for items in (sent, scored))
        bits = logistic_predictors(next(scaled), classes[sent], 2, next(scaled))
        total -= bits[:, np.arange(len(scored)), classes[scored]].sum(axis=1)
    return total


def main() -> None:
    print(f"{'items':>6}{'width':>6}  {'labels':15}{'C = 1':>8}{'best C':>8}{'online_code':>13}")
    for count, width, kind in itertools.product(SIZES, WIDTHS, KINDS):
        lengths = []
        for seed in range(DRAWS):
            states, classes = states_of(kind, count, width, seed)
            alone = bits_by_predictor(states, classes, seed)[2:]
            code = online_code(states, classes.astype(str), seed=seed)
            lengths.append([alone[PENALTY_STRENGTHS.index(1.0)], alone.min(), code.length])
        fixed, best, mixed = count / np.mean(lengths, axis=0)
        print(f"{count:6}{width:6}  {kind:15}{fixed:8.2f}{best:8.2f}{mixed:13.2f}", flush=True)


if __name__ == "__main__":
    main()
