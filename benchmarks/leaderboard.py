"""How often does a leaderboard name a measure that knows nothing, and how often one that knows
everything?

    python benchmarks/leaderboard.py              # 400 studies a cell, minutes
    python benchmarks/leaderboard.py --studies 2000

SIMULATED studies: one number for each group and row. Measures that know nothing get what an order
drawn at random gets; the baselines too, so each false name is a false alarm. Cases:

    spearman     rank correlations over four words
    alike        the same, correlated .5 between rows of one group
    top 1        1 where the first of four words is hit, else 0
    skewed       area under a curve: lognormal size of a group times a number drawn evenly around its mean
    as length    all measures and the order by length are good, and equally so; random and position are not

Then the share of studies that name a perfect measure (1 in every group) among rows that know
nothing. `docs/howto/faithfulness.md` has an extract.
"""

from __future__ import annotations

import argparse
import itertools
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from speechmix.evaluation.statistics.intervals import FEWEST_GROUPS, corrected_p

GROUPS, ROWS = (5, 8, 10, 12, 15, 20, 60), (4, 12)
CASES = ("spearman", "alike", "top 1", "skewed", "as length")
_ORDERS = np.array(
    [
        1 - 6 * sum((a - b) ** 2 for a, b in enumerate(order)) / 60
        for order in itertools.permutations(range(4))
    ]
)


def study(case: str, rows: int, groups: int, generator: np.random.Generator) -> np.ndarray:
    """Numbers of one simulated study [3 + rows, groups]: random, length, position, and the
    measures."""
    if case == "top 1":
        numbers, chance = (generator.random((rows + 3, groups)) < 0.25).astype(float), 0.25
    elif case == "skewed":
        size = generator.lognormal(0, 1, groups)
        numbers, chance = size * generator.random((rows + 3, groups)), 0.5 * size
    else:
        numbers, chance = generator.choice(_ORDERS, (rows + 3, groups)), 0.0
    if case == "alike":
        numbers = np.where(
            generator.random((rows + 3, groups)) < 0.5**0.5,
            generator.choice(_ORDERS, groups),
            numbers,
        )
    if case == "as length":
        numbers[[1, *range(3, 3 + rows)]] = 0.8 + 0.2 * numbers[[1, *range(3, 3 + rows)]]
    numbers[0] = chance + (numbers[0] - chance) / 20**0.5  # a mean of twenty orders
    return numbers


def named(numbers: np.ndarray) -> np.ndarray:
    """Which measures are better than all three baselines [rows], as `leaderboard` decides it."""
    if numbers.shape[1] < FEWEST_GROUPS:
        return np.zeros(len(numbers) - 3, dtype=bool)
    return np.max([corrected_p(numbers[3:] - baseline) for baseline in numbers[:3]], axis=0) < 0.05


def share_named(case: str, rows: int, groups: int, studies: int, *, perfect: bool = False) -> float:
    """Share of studies that name a measure; with a perfect one, that name it."""
    count = 0
    for seed in range(studies):
        numbers = study(case, rows, groups, np.random.default_rng(seed))
        if perfect:
            numbers[-1] = 1.0
        count += bool(named(numbers)[-1] if perfect else named(numbers).any())
    return count / studies


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--studies", type=int, default=400)
    studies = parser.parse_args(arguments).studies
    print(f"{'case':18}{'rows':>5}" + "".join(f"{f'{count} groups':>10}" for count in GROUPS))
    for name, perfect in [*((case, False) for case in CASES), ("spearman", True), ("top 1", True)]:
        for rows in ROWS:
            shares = [
                share_named(name, rows, groups, studies, perfect=perfect) for groups in GROUPS
            ]
            case = f"{name}, perfect" if perfect else name
            print(
                f"{case:18}{rows:>5}" + "".join(f"{100 * share:>8.1f} %" for share in shares),
                flush=True,
            )


if __name__ == "__main__":
    main()
