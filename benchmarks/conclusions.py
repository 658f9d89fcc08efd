"""How often is a conclusion false, how often is a true difference found, and how often does an interval hold?

The rule (`random_twin_comparison`): the interval of the difference to one more untrained model, 95 %
together over the rows of a page; a claim if and only if it excludes zero, there are 15 groups of clips
and 5 twins. Here it meets synthetic pages of three rows. A page is drawn in three steps:

1. T twins and one more untrained model: their levels in a row are normal, lognormal, or Student's t with
   3 degrees of freedom (heavy tails), with a standard deviation of .6 or 3 points.
2. The tested model has the level of that further model, plus `difference`.
3. Its groups of clips scatter about the level: normal, lognormal, bounded (beta), or "rare" (a quarter of
   the clips carries three quarters of the sum), with a standard deviation of 5 or 15 points.

    python benchmarks/conclusions.py [--pages-per-cell 1500] [--out conclusions.csv]

`--runs OUT` scores the package's Whisper-style model on its clips (synthetic) with ten twins, and prints
what the page says of the trained model; of each twin posing as trained; of a model whose decoder is deaf;
of one padded with idle layers; and of cue and target at words drawn at random. It takes minutes.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from speechmix.evaluation.statistics.claim_rule import (
    DEFAULT_TWINS,
    FEWEST_CLAIM_GROUPS,
    FEWEST_TWINS,
)
from speechmix.evaluation.statistics.intervals import (
    FEWEST_GROUPS,
    mean_intervals,
    one_more_twin_intervals,
)
from speechmix.evaluation.statistics.random_twin_comparison import compare_with_twins

if TYPE_CHECKING:
    from speechmix import Clip

ROWS = 3  # of a page: encoder, decoder, cross-attention
GROUPS, TWINS = (10, 15, 30, 100), (5, 9, 39)
CLIP_SHAPES, CLIP_SDS = ("normal", "lognormal", "bounded", "rare"), (5.0, 15.0)
TWIN_SHAPES, TWIN_SDS = ("normal", "lognormal", "t3"), (0.6, 3.0)
LEVEL = 30.0  # mean share of the cue in untrained models, %


def standard_draws(shape: str, size: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Draw numbers with mean 0 and standard deviation 1."""
    if shape == "normal":
        return rng.normal(size=size)
    if shape == "lognormal":  # sigma .5: skewness 1.75
        draws, mean, variance = rng.lognormal(0, 0.5, size), np.exp(0.125), np.exp(0.25)
        return (draws - mean) / np.sqrt((variance - 1) * variance)
    if shape == "bounded":  # many near zero: skewness 2.1
        return (rng.beta(0.5, 5, size) - 0.5 / 5.5) / np.sqrt(2.5 / (5.5**2 * 6.5))
    if shape == "rare":  # 1/4 of clips at 3, the others at 1/3: skewness 1.2
        return (np.where(rng.random(size) < 0.25, 3.0, 1 / 3) - 1) / np.sqrt(4 / 3)
    return rng.standard_t(3, size) / np.sqrt(3)


def claims(
    differences: np.ndarray, twins: np.ndarray, rows: int = ROWS
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Apply the rule to differences [R, G] and means of twins [R, T]: claims (1, -1, 0) and limits [R]."""
    low, high = one_more_twin_intervals(differences, twins, rows=rows)
    may_claim = differences.shape[1] >= FEWEST_CLAIM_GROUPS and twins.shape[1] >= FEWEST_TWINS
    found = (low > 0).astype(int) - (high < 0).astype(int)
    return found * may_claim, low, high


def draw_pages(pages: int, cell: dict, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw pages: differences [pages * R, G] and twins' means [pages * R, T]."""
    rows, models = pages * ROWS, 1 + cell["twins"]
    levels = LEVEL + cell["twin_sd"] * standard_draws(cell["twin_shape"], (rows, models), rng)
    clips = cell["clip_sd"] * standard_draws(cell["clip_shape"], (rows, cell["groups"]), rng)
    tested = levels[:, :1] + cell["difference"] + clips
    return tested - levels[:, 1:].mean(axis=1, keepdims=True), levels[:, 1:]


def cell_rates(pages: int, cell: dict) -> dict:
    """Return a cell with % of pages with a claim, false ("any") or right ("found" in a row)."""
    rng = np.random.default_rng(
        [
            CLIP_SHAPES.index(cell["clip_shape"]),
            TWIN_SHAPES.index(cell["twin_shape"]),
            int(cell["clip_sd"]),
            int(10 * cell["twin_sd"]),
            cell["groups"],
            cell["twins"],
            int(cell["difference"]) + 100,
        ]
    )
    found, low, high = claims(*draw_pages(pages, cell, rng))
    by_page = found.reshape(pages, ROWS)
    holds = (low <= cell["difference"]) & (cell["difference"] <= high)
    return {
        **cell,
        "any": 100 * (by_page != 0).any(axis=1).mean(),
        "found": 100 * (found == np.sign(cell["difference"])).mean(),
        "all hold": 100 * holds.reshape(pages, ROWS).all(axis=1).mean(),
    }


def null_cells() -> list[dict]:
    """List the cells in which nothing is true."""
    names = ("twins", "groups", "clip_shape", "clip_sd", "twin_shape", "twin_sd")
    values = itertools.product(TWINS, GROUPS, CLIP_SHAPES, CLIP_SDS, TWIN_SHAPES, TWIN_SDS)
    return [{**dict(zip(names, cell, strict=True)), "difference": 0.0} for cell in values]


def power_cells() -> list[dict]:
    """List the cells with a true difference: lognormal clips, normal twins that differ by .6 points."""
    cells = itertools.product((5.0, 15.0), (5.0, 10.0, 15.0, -10.0, -15.0), (10, *GROUPS[1:], 60))
    shapes = {"clip_shape": "lognormal", "twin_shape": "normal", "twin_sd": 0.6}
    return [
        {
            "twins": DEFAULT_TWINS,
            "groups": groups,
            "clip_sd": sd,
            **shapes,
            "difference": difference,
        }
        for sd, difference, groups in cells
    ]


def agrees_with_the_page() -> None:
    """Stop if the rule above is not that of `compare_with_twins`."""
    cell = {"twins": 9, "groups": 20, "clip_shape": "lognormal", "clip_sd": 5.0}
    cell |= {"twin_shape": "normal", "twin_sd": 0.6, "difference": 4.0}
    differences, twins = draw_pages(1, cell, np.random.default_rng(0))
    trained = differences + twins.mean(axis=1, keepdims=True)
    rows = [
        (stack, "trained" if draw == 0 else "random", draw, str(clip), value)
        for stack in range(ROWS)
        for draw, clips in enumerate([trained[stack], *np.outer(twins[stack], np.ones(20))])
        for clip, value in enumerate(clips)
    ]
    table = pd.DataFrame(rows, columns=["stack", "init", "seed", "clip", "contribution"])
    page = compare_with_twins(table, by=["stack"])
    found, low, high = claims(differences, twins)
    assert page["claim"].map({"more": 1, "less": -1, "": 0}).tolist() == found.tolist()
    np.testing.assert_allclose(page[["low", "high"]].to_numpy().T, [low, high])


def coverage(samples: int, seed: int = 1) -> Iterator[dict]:
    """Yield the coverage (%) of the interval of a mean over groups, by shape and number of groups."""
    rng = np.random.default_rng(seed)
    for shape in (*CLIP_SHAPES, "t3"):
        row: dict = {"groups are": shape}
        for groups in (FEWEST_GROUPS, 10, 15, 30, 100):
            low, high = mean_intervals(standard_draws(shape, (samples, groups), rng))
            known = np.isfinite(low)
            row[str(groups)] = 100 * ((low <= 0) & (high >= 0))[known].mean()
        yield row


def runs(out: Path) -> None:
    """Print what the page says of real runs of changed models."""
    import speechmix
    from speechmix.inputs import bundled
    from speechmix.reporting.pages.cue_need_sentences import short_answers
    from speechmix.reporting.pages.study_results import Study
    from speechmix.reporting.pages.study_tables import contribution_cells, stack_rows
    from speechmix.runs.score_clips import score_clips

    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests.models.changed_models import deaf, padded

    source, twins = bundled.models()["tiny-french-whisper"], range(DEFAULT_TWINS + 1)
    clips = [
        clip
        for clip in bundled.clips()
        if clip.meta["side"] == "left" and clip.meta.get("control") != "yes"
    ]
    folders = {"deaf": out / "deaf", "padded": out / "padded"}
    for name, change in (("deaf", deaf), ("padded", padded)):
        if not folders[name].is_dir():
            shutil.copytree(source, folders[name])
            change(speechmix.load(source).module).save_pretrained(folders[name])
    options = {"measures": ["value_zeroing", "attention"], "figures": 0, "progress": False}

    def table(name: str, folder: object, clips: list, seeds: Iterable[int]) -> pd.DataFrame:
        models = [partial(speechmix.load, folder, check=False)]
        models += [
            partial(speechmix.load, folder, check=False, init="random", seed=seed) for seed in seeds
        ]
        silent = {"report": lambda line: None, "twin_clips": len(clips)}
        return Study.open(
            score_clips(models, clips, out / f"run_{name}", **options, **silent)
        ).table

    def show(name: str, rows: pd.DataFrame) -> pd.DataFrame:
        cells = contribution_cells(rows)
        if name:
            print(f"\n{name}", *short_answers(stack_rows(cells), pd.DataFrame()), sep="\n  ")
        return cells

    def pose(rows: pd.DataFrame, is_tested: pd.Series) -> pd.DataFrame:
        models = rows[rows["init"] == "random"].astype({"init": object})
        return models.assign(init=models["init"].mask(is_tested[models.index], "trained"))

    original = table("trained", source, clips, twins)
    is_twin = original["init"] == "random"
    show("trained", original[~(is_twin & (original["seed"] == DEFAULT_TWINS))])
    of_deaf = table("deaf", folders["deaf"], clips, [])
    as_deaf = (
        original[is_twin & (original["seed"] < DEFAULT_TWINS)]
        .astype({"model": object})
        .assign(model=of_deaf["model"].iloc[0])
    )
    show("deaf decoder, twins as of the original", pd.concat([of_deaf, as_deaf], ignore_index=True))
    show(
        "padded with idle layers, fresh twins",
        table("padded", folders["padded"], clips, twins[:-1]),
    )
    shuffled = [
        _shuffle_words(clip, number)
        for number, clip in enumerate(clips)
        if len(clip.words or ()) > 1
    ]
    show("cue and target at random words", table("shuffled", source, shuffled, twins[:-1]))
    claimed = [
        (show("", pose(original, is_twin & (original["seed"] == seed)))["claim"] != "").any()
        for seed in twins
    ]
    print(f"\ntwins as trained: a claim on {sum(claimed)} of {len(claimed)} pages")


def _shuffle_words(clip: Clip, seed: int) -> Clip:
    """Return the clip with cue and target at words drawn at random, other than they are."""
    count = len(clip.words or ())
    pairs = [
        (cue, target)
        for cue, target in itertools.permutations(range(count), 2)
        if (cue, target) != (clip.cue, clip.target)
    ]
    cue, target = pairs[np.random.default_rng(seed).integers(len(pairs))]
    return clip.replace(cue=cue, target=target, foil="")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pages-per-cell", type=int, default=1500)
    parser.add_argument("--out", type=Path, help="write the rates of all cells as CSV")
    parser.add_argument("--runs", type=Path, metavar="OUT", help="score changed models instead")
    options = parser.parse_args()
    if options.runs:
        return runs(options.runs)
    agrees_with_the_page()
    with ProcessPoolExecutor() as workers:
        rate = partial(cell_rates, options.pages_per_cell)
        null = pd.DataFrame(workers.map(rate, null_cells(), chunksize=8))
        power = pd.DataFrame(workers.map(rate, power_cells(), chunksize=8))
    enough = null["groups"] >= FEWEST_CLAIM_GROUPS
    print("False claims, % of pages (nothing is true)")
    print(null[enough].groupby("twins")["any"].agg(["mean", "max"]).round(1), end="\n\n")
    print(null[enough].nlargest(5, "any").round(1).to_string(index=False), end="\n\n")
    print("All three intervals hold, % of pages")
    print(
        null.groupby(["twins", "groups"])["all hold"].agg(["mean", "min"]).round(1).unstack(0),
        end="\n\n",
    )
    print(f"A true difference is found, % of rows ({DEFAULT_TWINS} twins)")
    print(
        power.pivot(index=["clip_sd", "difference"], columns="groups", values="found").round(0),
        end="\n\n",
    )
    print("The interval of a mean over groups holds, %")
    print(pd.DataFrame(coverage(20 * options.pages_per_cell)).round(1).to_string(index=False))
    if options.out:
        pd.concat([null, power]).to_csv(options.out, index=False)


if __name__ == "__main__":
    main()
