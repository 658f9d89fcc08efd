"""How often is a claim false, how often is a difference found, and how often does an interval hold?

Simulated studies (synthetic numbers, no model) go through the functions that make a page: the rank
among twins, the interval over groups, and the rule for a claim. Varied are the layers, groups of
clips, twins, the shape of the twins' distribution, and what is true: nothing; a sixth of the layers
below; one layer above; the whole stack above. Printed are, in % of studies:

    more, less   a claim of "more" (or "less") about a cell in which trained models do not differ (at most 2.5 each)
    power        a claim in the right direction about a cell in which they do
    coverage     of the printed 95 % interval of a difference (at least 90)

A second table is of studies in which nothing is true, and the trained model is no exchangeable
draw: its clips vary as those of no twin do, and twins come from distributions that broke earlier
rules.

    python benchmarks/conclusions.py [--studies 1000] [--out conclusions.csv]

`--pages OUT` scores the package's Whisper-style model on its clips (synthetic), with 40 twins, and
prints what the page says of: the trained model; each twin posing as trained; a model whose decoder
is deaf; one padded with idle layers, with fresh twins of its own depth; and the trained model with
cue and target at words drawn at random. It takes some minutes.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from speechmix.evaluation.statistics.intervals import FEWEST_GROUPS, mean_intervals
from speechmix.evaluation.statistics.random_twin_comparison import (
    WHOLE_STACK,
    compare_with_twins,
    whole_stack,
)
from speechmix.evaluation.statistics.twin_rank_test import FALSE_CLAIM_RATE, TWINS_NEEDED, rank_p

if TYPE_CHECKING:
    from speechmix import Clip

LAYERS, GROUPS, TWINS = (4, 12, 24, 32), (5, 8, 10, 30, 100, 1000), (3, 10, 19, 39, 59)
SHAPES = ("normal", "lognormal", "near zero", "bounded")
HARD_SHAPES = ("t, 3 degrees", "two kinds", "opposed layers", "unequal layers", "seeds in pairs")
HARD_CLIPS = (
    "uniform",
    "pareto",
    "rare high",
    "rare high in all layers",
    "rare low",
    "lognormal, sigma 1",
)
HARD_SIZES = ((6, 8, 39), (18, 14, 39), (40, 25, 45), (36, 60, 39))  # layers, groups, twins
TRUTHS = ("nothing", "a sixth below", "one above", "all above")
_SPREAD = {"normal": 3.0, "lognormal": 3.0, "near zero": 0.6, "bounded": 3.0}  # points, of twins
_MEANS = {
    "normal": 30.0,
    "lognormal": 5 * np.exp(0.125),
    "near zero": np.sqrt(2 / np.pi) + 0.1,
    "bounded": 100 / 41,
}


def twin_levels(
    shape: str, size: tuple[int, int], correlation: float, rng: np.random.Generator
) -> np.ndarray:
    """Draw the level (% of the row) of each model in each layer."""
    from scipy.stats import beta, norm

    shared, single = rng.normal(size=(size[0], 1)), rng.normal(size=size)
    z = np.sqrt(correlation) * shared + np.sqrt(1 - correlation) * single
    return {
        "normal": lambda: 30 + 3 * z,
        "lognormal": lambda: 5 * np.exp(0.5 * z),
        "near zero": lambda: np.abs(z) + 0.1,
        "bounded": lambda: 100 * beta.ppf(norm.cdf(z), 0.5, 20),
    }[shape]()


def study(
    layers: int,
    groups: int,
    twins: int,
    shape: str,
    truth: str,
    correlation: float,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw one study: values [1 + T, cells, groups] in %, the last cell being the whole stack.

    Also the shift of each cell by training, and the difference of the trained model to the mean of
    all untrained ones.
    """
    levels = twin_levels(shape, (1 + twins, layers), correlation, rng)
    shift, unit = np.zeros(layers), _SPREAD[shape]
    if truth == "a sixth below":
        below = slice(0, max(layers // 6, 1))
        shift[below] = -np.minimum(10 * unit, 0.9 * levels[0, below])
    elif truth == "one above":
        shift[layers // 2] = 6 * unit
    elif truth == "all above":
        shift += 6 * unit
    levels[0] += shift
    # Clips: each group scales all models alike, and each model's layers by its own; of the trained
    # model's more so.
    scales = np.exp(0.4 * rng.normal(size=(1, layers, groups)) - 0.08)
    spread = np.where(np.arange(1 + twins) == 0, 0.5, 0.1)[:, None, None]
    own = spread * rng.normal(size=(1 + twins, layers, groups))
    values = levels[:, :, None] * scales * np.exp(own - spread**2 / 2)
    difference = levels[0] - _MEANS[shape]
    with_stack = np.concatenate([values, values.mean(axis=1, keepdims=True)], axis=1)
    return with_stack, np.append(shift, shift.mean()), np.append(difference, difference.mean())


def hard_levels(shape: str, size: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    """Draw the level (%) of each model in each layer, from distributions that broke earlier
    rules."""
    return {
        "t, 3 degrees": lambda: 40 + 3 * rng.standard_t(3, size),
        "two kinds": lambda: (
            np.where(rng.random((size[0], 1)) < 0.2, 45.0, 20.0) + rng.normal(0, 1, size)
        ),
        "opposed layers": lambda: (
            30 + 2 * (z := rng.normal(size=size)) - 1.8 * z.mean(axis=1, keepdims=True)
        ),
        "unequal layers": lambda: 30 + rng.normal(size=size) * np.geomspace(0.05, 8, size[1]),
        "seeds in pairs": lambda: np.repeat(
            12 + 3 * rng.normal(size=(size[0], size[1])), 2, axis=0
        )[: size[0]],
    }[shape]()


def clip_factors(kind: str, size: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Draw what a group of clips multiplies a level with; the mean is 1."""
    return {
        "uniform": lambda: rng.uniform(0.2, 1.8, size),
        "pareto": lambda: (1 + rng.pareto(2.2, size)) * 1.2 / 2.2,
        "rare high": lambda: np.where(rng.random(size) < 0.25, 3.0, 1 / 3),
        "rare high in all layers": lambda: np.broadcast_to(
            np.where(rng.random(size[-1:]) < 0.25, 3.0, 1 / 3), size
        ),
        "rare low": lambda: np.where(rng.random(size) < 0.25, 0.1, 1.3),
        "lognormal, sigma 1": lambda: rng.lognormal(-0.5, 1, size),
    }[kind]()


def hard_study(
    layers: int,
    groups: int,
    twins: int,
    shape: str,
    clips: str,
    common: str,
    rng: np.random.Generator,
) -> np.ndarray:
    """Draw a study in which nothing is true; only the trained model has variation between clips of
    its own."""
    levels = hard_levels(shape, (1 + twins, layers), rng)[:, :, None]
    values = levels * clip_factors(common, (1, layers, groups), rng)
    values[0] *= clip_factors(clips, (layers, groups), rng)
    return np.concatenate([values, values.mean(axis=1, keepdims=True)], axis=1)


def hard_rates(studies: int, cell: tuple, seed: int = 2) -> dict:
    """Rates of false claims where the trained model is no exchangeable draw: other clips, and
    strange twins."""
    shape, clips, common, (layers, groups, twins) = cell
    kinds = [HARD_SHAPES.index(shape), HARD_CLIPS.index(clips), HARD_CLIPS.index(common)]
    rng = np.random.default_rng([seed, *kinds, layers])
    found = [
        claims(hard_study(layers, groups, twins, shape, clips, common, rng))[0]
        for _ in range(studies)
    ]
    return {
        "twins": shape,
        "clips, trained": clips,
        "clips, all": common,
        "layers": layers,
        "groups": groups,
        "more": 100 * np.mean([(claim > 0).any() for claim in found]),
        "less": 100 * np.mean([(claim < 0).any() for claim in found]),
    }


def claims(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The page's rule for values [1 + T, cells, groups]: claim of each cell (1, -1, 0) and the
    limits of its difference."""
    from scipy.stats import t as student

    means = values.mean(axis=2)
    differences = values[0] - values[1:].mean(axis=0)
    low, high = mean_intervals(differences)
    twins = len(values) - 1
    reach = student.ppf(0.975, twins - 1) * means[1:].std(axis=0, ddof=1) / np.sqrt(twins)
    middle = differences.mean(axis=1)
    low, high = middle - np.hypot(middle - low, reach), middle + np.hypot(high - middle, reach)
    p = rank_p(means, np.stack([values[0], values[1:].mean(axis=0)]), scale=100)
    is_more, is_less = (
        (p[0] <= FALSE_CLAIM_RATE / 2 + 1e-9) & (low > 0),
        (p[1] <= FALSE_CLAIM_RATE / 2 + 1e-9) & (high < 0),
    )
    return is_more.astype(int) - is_less, low, high


def agrees_with_the_page(rng: np.random.Generator) -> None:
    """Stop if the rule above is not that of `compare_with_twins`."""
    values, _, _ = study(4, 10, 39, "normal", "all above", 0.5, rng)
    values = values[:, :-1]
    draws, layers, groups = (place.ravel() for place in np.indices(values.shape))
    table = pd.DataFrame(
        {
            "model": "m",
            "init": np.where(draws == 0, "trained", "random"),
            "seed": draws,
            "layer": layers,
            "clip": groups.astype(str),
            "contribution": values.ravel(),
        }
    )
    both = pd.concat([table, whole_stack(table)], ignore_index=True)
    page = compare_with_twins(both, by=["model", "layer"], group="clip")
    order = [*range(values.shape[1]), WHOLE_STACK]
    page = page.set_index("layer").loc[order]
    found, low, high = claims(np.concatenate([values, values.mean(axis=1, keepdims=True)], axis=1))
    assert page["claim"].map({"more": 1, "less": -1, "": 0}).tolist() == found.tolist()
    np.testing.assert_allclose(page[["low", "high"]].to_numpy().T, [low, high])


def rates(studies: int, cell: tuple, seed: int = 0) -> dict:
    """Rates of one cell of the simulation."""
    layers, groups, twins, shape, truth, correlation = cell
    rng = np.random.default_rng(
        [seed, layers, groups, twins, SHAPES.index(shape), TRUTHS.index(truth)]
    )
    counts, covered = np.zeros(4), []
    for _ in range(studies):
        values, shift, difference = study(layers, groups, twins, shape, truth, correlation, rng)
        found, low, high = claims(values)
        is_null = shift == 0
        counts += (
            (found[is_null] > 0).any(),
            (found[is_null] < 0).any(),
            (found * np.sign(shift) > 0).any(),
            (found * np.sign(shift) < 0).any(),
        )
        covered.append(((low <= difference) & (difference <= high))[np.isfinite(low)])
    more, less, power, wrong = 100 * counts / studies
    intervals = np.concatenate(covered)
    return {
        "layers": layers,
        "groups": groups,
        "twins": twins,
        "shape": shape,
        "truth": truth,
        "correlation": correlation,
        "more": more,
        "less": less,
        "wrong direction": wrong,
        "power": np.nan if truth == "nothing" else power,
        "coverage": 100 * intervals.mean() if len(intervals) else np.nan,
    }


def coverage(studies: int, seed: int = 1) -> Iterator[dict]:
    """Coverage of the interval of a mean over groups, by the shape of the groups' distribution."""
    shapes: dict[str, tuple[Callable[[np.random.Generator, tuple], np.ndarray], float]] = {
        "normal": (lambda rng, size: rng.normal(size=size), 0.0),
        "lognormal, sigma 0.5": (
            lambda rng, size: rng.lognormal(0, 0.5, size),
            float(np.exp(0.125)),
        ),
        "lognormal, sigma 1": (lambda rng, size: rng.lognormal(0, 1, size), float(np.exp(0.5))),
        "beta(0.5, 5)": (lambda rng, size: rng.beta(0.5, 5, size), 0.5 / 5.5),
        "t, 3 degrees": (lambda rng, size: rng.standard_t(3, size), 0.0),
        "two kinds of clips": (
            lambda rng, size: np.where(rng.random(size) < 0.5, 63, 5) + rng.normal(0, 5, size),
            34.0,
        ),
    }
    rng = np.random.default_rng(seed)
    for name, (draw, mean) in shapes.items():
        row: dict = {"groups are": name}
        for groups in (2, 3, 5, FEWEST_GROUPS, 10, 20, 30, 100):
            low, high = mean_intervals(draw(rng, (studies, groups)))
            known = np.isfinite(low)
            row[f"{groups}"] = (
                100 * ((low <= mean) & (mean <= high))[known].mean() if known.any() else np.nan
            )
        yield row


def pages(out: Path) -> None:
    """Print what the page says of real runs of changed models."""
    import speechmix
    from speechmix.inputs import bundled
    from speechmix.reporting.pages.cue_need_sentences import short_answers
    from speechmix.reporting.pages.study_results import Study
    from speechmix.reporting.pages.study_tables import contribution_cells, stack_rows
    from speechmix.runs.score_clips import score_clips

    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests.models.changed_models import deaf, padded

    source, twins = bundled.models()["tiny-french-whisper"], range(TWINS_NEEDED + 1)
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
    options = {
        "measures": ["value_zeroing", "attention"],
        "figures": 0,
        "progress": False,
        "report": lambda line: None,
    }

    def table(name: str, folder: object, clips: list, seeds: Iterable[int]) -> pd.DataFrame:
        models = [partial(speechmix.load, folder, check=False)]
        models += [
            partial(speechmix.load, folder, check=False, init="random", seed=seed) for seed in seeds
        ]
        return Study.open(
            score_clips(models, clips, out / f"run_{name}", twin_clips=len(clips), **options)
        ).table

    def show(name: str, rows: pd.DataFrame) -> pd.DataFrame:
        cells = contribution_cells(rows)
        if name:
            print(f"\n{name}", *short_answers(stack_rows(cells), pd.DataFrame()), sep="\n  ")
        return cells

    original = table("trained", source, clips, twins)
    is_twin = original["init"] == "random"
    show("trained", original[~(is_twin & (original["seed"] == TWINS_NEEDED))])
    of_deaf = table("deaf", folders["deaf"], clips, [])
    as_deaf = (
        original[is_twin & (original["seed"] < TWINS_NEEDED)]
        .astype({"model": object})
        .assign(model=of_deaf["model"].iloc[0])
    )
    show("deaf decoder, twins as of the original", pd.concat([of_deaf, as_deaf], ignore_index=True))
    show(
        "padded with idle layers, fresh twins",
        table("padded", folders["padded"], clips, twins[:-1]),
    )
    shuffled = [
        _shuffled(clip, number) for number, clip in enumerate(clips) if len(clip.words or ()) > 1
    ]
    show("cue and target at random words", table("shuffled", source, shuffled, twins[:-1]))
    rows, claimed = 0, 0
    for seed in twins:
        others = original[is_twin & (original["seed"] != seed)]
        posing = original[is_twin & (original["seed"] == seed)].assign(init="trained", seed=pd.NA)
        cells = show(
            "",
            pd.concat(
                [posing.astype({"init": object}), others.astype({"init": object})],
                ignore_index=True,
            ),
        )
        rows, claimed = rows + 1, claimed + (cells["claim"] != "").any()
    print(f"\ntwins as trained: a claim on {claimed} of {rows} pages")


def _shuffled(clip: Clip, seed: int) -> Clip:
    """The clip with cue and target at words drawn at random, other than they are."""
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
    parser.add_argument("--studies", type=int, default=1000)
    parser.add_argument("--out", type=Path, help="write the rates as CSV")
    parser.add_argument(
        "--pages", type=Path, metavar="OUT", help="score changed models into this folder instead"
    )
    options = parser.parse_args()
    if options.pages:
        return pages(options.pages)
    agrees_with_the_page(np.random.default_rng(0))
    cells = [
        *itertools.product(LAYERS, (10, 30), (39,), SHAPES, TRUTHS, (0.5,)),
        *itertools.product((12,), GROUPS, TWINS, SHAPES[:2], TRUTHS[:3], (0.0,)),
    ]
    hard_cells = [
        (shape, clips, common, size)
        for shape, clips, size in itertools.product(HARD_SHAPES, HARD_CLIPS, HARD_SIZES)
        for common in dict.fromkeys(("uniform", clips))
    ]
    with ProcessPoolExecutor() as workers:
        table, hard = (
            pd.DataFrame(workers.map(partial(function, options.studies), chosen, chunksize=4))
            for function, chosen in ((rates, cells), (hard_rates, hard_cells))
        )
    print(table.round(1).to_string(index=False))
    print(hard.round(1).to_string(index=False))
    print(pd.DataFrame(coverage(20 * options.studies)).round(1).to_string(index=False))
    if options.out:
        table.to_csv(options.out, index=False)
        hard.to_csv(options.out.with_name(f"{options.out.stem}_hard.csv"), index=False)
    worst = max(part[["more", "less"]].max().max() for part in (table, hard))
    print(f"worst rate of false claims in one direction: {worst:.1f} %", file=sys.stderr)


if __name__ == "__main__":
    main()
