"""Is anything claimed of an untrained model? Twins pose as trained, one after the other, and claims at 5 % are counted.

    python tests/benchmarks/twins_as_trained.py runs/twins --score 24         # score the bundled models and 24 twins of each
    python tests/benchmarks/twins_as_trained.py runs/twins --twins 3 5 10     # and count, for several numbers of twins

Each twin is called trained and held against the next ones in turn: by clips alone (permutation test over groups), by twins
alone (`new_twin_p`), and by both, which is the larger p; in every layer, and in some layer of a stack (`combined_p`).
Comparisons of one twin are not independent, so the error is that of the share over twins.
"""

from __future__ import annotations

import argparse
import os
from functools import partial
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd

from speechmix import bundled, load
from speechmix.evaluation.statistics import permutation_p
from speechmix.evaluation.twins import combined_p, new_twin_p
from speechmix.experiments.reading import open_run
from speechmix.experiments.run import score_clips
from speechmix.reports.study_tables import KEYS, grouped_clips, study_table, without_control

MEASURES = ("value_zeroing", "attention", "attention_norm")
TESTS = ("by clips", "by twins", "by both")


def score(folder: Path, twins: int) -> None:
    sources = [str(path) for path in bundled.models().values()]
    models = [partial(load, source) for source in sources]
    models += [partial(load, source, init="random", seed=seed) for source in sources for seed in range(twins)]
    print(score_clips(models, bundled.clips(), folder, measures=MEASURES, figures=0).summary())


def p_values(trained: np.ndarray, twins: np.ndarray) -> tuple[float, float, float]:
    """The three p of one model [groups] against twins [twins, groups]."""
    by_clips = permutation_p(trained - twins.mean(axis=0), permutations=999)
    by_twins = new_twin_p(trained.mean(), twins.mean(axis=1))
    return by_clips, by_twins, float(np.maximum(by_clips, by_twins))


def compared(folder: Path, count: int) -> pd.DataFrame:
    """P of every layer, for every twin that poses as trained, and for the trained models (pose "trained")."""
    run = open_run(folder)
    table = without_control(study_table(run.contributions, grouped_clips(run.clips)))
    means = table.assign(seed=table.seed.fillna(-1)).groupby([*KEYS, "layer", "seed", "group"], sort=False)
    rows = []
    for key, part in means.contribution.mean().groupby(level=[*KEYS, "layer"], sort=False):
        models = part.unstack("group").droplevel(list(range(len(KEYS) + 1))).dropna(axis=1)
        trained, twins = models.loc[-1].to_numpy(), models.drop(index=-1).to_numpy()
        cases = {pose: (twins[pose], np.roll(twins, -pose - 1, axis=0)[:count]) for pose in range(len(twins))}
        for pose, case in {**cases, "trained": (trained, twins[:count])}.items():
            p = dict(zip(TESTS, p_values(*case), strict=True))
            rows.append({**dict(zip((*KEYS, "layer"), key, strict=True)), "pose": pose, **p})
    return pd.DataFrame(rows)


def told(layers: pd.DataFrame) -> None:
    """Print shares of p < 0.05 in every layer and in some layer, by stack and measure, with the error over twins."""
    some_layer = layers.groupby([*KEYS, "pose"], sort=False)[list(TESTS)].agg(combined_p).reset_index()
    for kind, results in (("every layer", layers), ("some layer", some_layer)):
        null, shipped = results[results.pose != "trained"], results[results.pose == "trained"]
        claimed = null.assign(**{name: 100 * (null[name] < 0.05) for name in TESTS})
        by_twin = claimed.groupby(["model", "pose"])[list(TESTS)].mean()
        print(
            f"{kind}: {len(null)} comparisons of {len(by_twin)} twins; claimed at 5 % (error), and of the shipped models"
        )
        for name in TESTS:
            kept = 100 * (shipped[name] < 0.05).mean()
            print(
                f"  {name:9s} {by_twin[name].mean():5.1f} % ({by_twin[name].sem():.1f}); shipped {kept:.0f} % of {len(shipped)}"
            )
        print(claimed.groupby(["model", "stack", "measure"], sort=False)["by both"].mean().round(1).to_string(), "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--score", type=int, metavar="TWINS", help="score the models and so many twins of each first")
    parser.add_argument("--twins", type=int, nargs="*", default=[3, 5, 10], help="twins beside each (default: 3 5 10)")
    options = parser.parse_args()
    if options.score:
        score(options.folder, options.score)
    for count in options.twins:
        print(f"--- {count} twins beside each")
        told(compared(options.folder, count))


if __name__ == "__main__":
    main()
