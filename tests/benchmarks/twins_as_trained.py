"""Is anything claimed of an untrained model? Twins pose as trained, one after the other, and what a page claims is counted.

    python tests/benchmarks/twins_as_trained.py runs/twins --score 24        # score the bundled models and 24 twins of each
    python tests/benchmarks/twins_as_trained.py runs/twins --twins 3 5 10    # and count, for several numbers of twins

Each twin is called trained and held against the next ones in turn, of which all but one heard few clips (as in `speechmix
study`; `--twin-clips 0`: all of them), by the functions that a study's page is made with: at the best layer, as the mean over
layers, and in every layer. Counted are p < 0.05 of both tests and of each alone, and claims (q). Comparisons of one twin are
not independent, so twins are counted and not rows: a share of 5 % of so many twins has the binomial error that is given beside
it. At last the trained models themselves: how many of the effects that clips alone show remain. `docs/calibration.md` holds
what it prints.
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
from speechmix.evaluation.statistics import with_claims
from speechmix.experiments.few_clips import few_of
from speechmix.experiments.run import score_clips
from speechmix.reports.study_tables import (
    ALL_LAYERS,
    BEST_LAYER,
    grouped_clips,
    headline,
    layer_statistics,
    study_table,
)
from speechmix.storage.reading import open_run

MEASURES = ("value_zeroing", "attention", "attention_norm")
TESTS = {"p": "both", "p_clips": "clips alone", "p_twins": "twins alone"}
EVERY_LAYER = "every layer"


def score(folder: Path, twins: int) -> None:
    sources = [str(path) for path in bundled.models().values()]
    models = [partial(load, source) for source in sources]
    models += [partial(load, source, init="random", seed=seed) for source in sources for seed in range(twins)]
    print(score_clips(models, bundled.clips(), folder, measures=MEASURES, figures=0).summary())


def read(folder: Path) -> pd.DataFrame:
    run = open_run(folder)
    return study_table(run.contributions, grouped_clips(run.clips))


def posing(table: pd.DataFrame, pose: int, count: int, few: set[str]) -> pd.DataFrame:
    """Contributions of one model in which the twin of seed `pose` is called trained and the next ones are its twins."""
    random = table[table["init"] == "random"]
    seeds = sorted(random.seed.unique())
    place = seeds.index(pose)
    others = [seeds[(place + step) % len(seeds)] for step in range(1, count + 1)]
    poser = random[random.seed == pose].assign(init="trained", seed=pd.NA).astype({"seed": "Int64"})
    return pd.concat([poser, as_twins(random, others, few)], ignore_index=True)


def as_twins(random: pd.DataFrame, seeds: list[int], few: set[str]) -> pd.DataFrame:
    """Contributions of these twins: of the first from all clips, of further ones from few."""
    return random[(random.seed == seeds[0]) | (random.seed.isin(seeds[1:]) & random["clip"].isin(few))]


def page(table: pd.DataFrame) -> pd.DataFrame:
    """All rows that a study's page is made of, with the column `kind`."""
    layers = layer_statistics(table)
    best = headline(table, layers=BEST_LAYER, statistics=layers)
    best, mean = with_claims(best, headline(table, layers=ALL_LAYERS))
    tables = {BEST_LAYER: best, ALL_LAYERS: mean, EVERY_LAYER: layers}
    return pd.concat([rows.assign(kind=kind) for kind, rows in tables.items()], ignore_index=True)


def pages(table: pd.DataFrame, count: int, few: set[str]) -> pd.DataFrame:
    """Pages of all twins that pose as trained (column `pose`: the seed), and of the trained models (pose -1)."""
    parts = []
    for _, model in table.groupby("model", sort=False):
        seeds = sorted(model[model["init"] == "random"].seed.unique())
        parts += [page(posing(model, pose, count, few)).assign(pose=pose) for pose in seeds]
        is_trained = model["init"] == "trained"
        shipped = pd.concat([model[is_trained], as_twins(model[~is_trained], seeds[:count], few)], ignore_index=True)
        parts.append(page(shipped).assign(pose=-1))
    return pd.concat(parts, ignore_index=True)


def shares(rows: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Share (%) of comparisons with p < 0.05, mean over twins, and what 5 % of so many twins may be by chance."""
    rejected = rows.assign(**{name: 100.0 * (rows[test] < 0.05) for test, name in TESTS.items()})
    by_twin = rejected.groupby([*by, "model", "pose"], sort=False)[list(TESTS.values())].mean()
    table = by_twin.groupby(level=by, sort=False).mean().round(1)
    twins = by_twin.groupby(level=by, sort=False).size()
    table["rows"], table["twins"] = rejected.groupby(by, sort=False).size(), twins
    table["chance"] = [
        f"{max(5 - 100 * reach, 0):.1f} to {5 + 100 * reach:.1f}" for reach in 1.96 * np.sqrt(0.0475 / twins)
    ]
    return table.reset_index()


def told(rows: pd.DataFrame) -> None:
    """Print how often an untrained model is claimed to be special, and what remains of the trained ones."""
    null, shipped = rows[rows.pose >= 0], rows[rows.pose < 0]
    everything = shares(null.assign(all="all rows"), ["all"]).rename(columns={"all": "kind"})
    print(pd.concat([everything, shares(null, ["kind"])]).to_string(index=False), "\n")
    for by in (["measure"], ["stack"], ["model", "stack", "measure"]):
        print(shares(null, by).to_string(index=False), "\n")
    claims = null.assign(claims=null.claim != "").groupby(["model", "pose"]).claims.agg(["sum", "any"])
    print(
        f"claimed (q < 0.05): {claims['sum'].sum()} of {len(null)} rows, on {claims['any'].sum()} of {len(claims)} pages"
    )
    for kind, part in shipped.groupby("kind", sort=False):
        clear = part[(part.clips_low > 0) | (part.clips_high < 0)]
        kept, claimed = (clear.claim != "").sum(), (part.claim != "").sum()
        print(
            f"trained models, {kind}: {claimed} of {len(part)} claimed; {kept} of the {len(clear)} clear by clips alone"
        )
    best = shipped[shipped.kind == BEST_LAYER].drop(columns=["kind", "layers"], errors="ignore")
    columns = "model side stack measure layer difference clips_low clips_high low high p_clips p_twins q claim".split()
    print(best[columns].round(3).to_string(index=False))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--score", type=int, metavar="TWINS", help="score the models and so many twins of each first")
    parser.add_argument("--twins", type=int, nargs="*", default=[3, 5, 10], help="twins beside each (default: 3 5 10)")
    parser.add_argument(
        "--twin-clips", type=int, default=100, help="clips that further twins hear (default: 100; 0: all)"
    )
    options = parser.parse_args()
    if options.score:
        score(options.folder, options.score)
    table = read(options.folder)
    few = {clip.name for clip in few_of(bundled.clips(), options.twin_clips or len(table))}
    for count in options.twins:
        print(f"--- {count} twins beside each")
        told(pages(table, count, few))


if __name__ == "__main__":
    main()
