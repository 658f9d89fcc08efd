"""Power of a planned study, by simulation from a pilot run.

A simulated study draws the pilot's clips with replacement, each with its predictors and all its residuals, so that what differs
between and within clips stays as it is. Residuals are widened by sqrt(G / (G - k)) for G clips and k terms that are constant
within them. The effect is added, and the test applied.

A pilot leaves open what the effect is in units of its spread. `power_low` and `power_high` are the power at the limits of a
95 % interval: of the pilot's effect b with error e, |b| -+ t sqrt(e^2 + b^2 / (2 (G - k))); where the effect is assumed, by the
interval of the spread (chi squared).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from ...errors import InputError
from ...evaluation.statistics.intervals import LEVEL, proportion_interval
from .mixed_models import fit_design
from .model_design import ModelDesign, build_design

_TESTS = ("sign_flip", "mixed_model")
_COLUMNS = "clips power low high power_low power_high effect pilot_clips".split()


def power(
    pilot: pd.DataFrame,
    formula: str,
    term: str = "Intercept",
    *,
    clips: Sequence[int] = (20, 40, 80),
    groups: str = "clip",
    test: str = "sign_flip",
    effect: float | None = None,
    simulations: int = 400,
    seed: int = 0,
) -> pd.DataFrame:
    """Estimate the power of a planned number of clips from a pilot run.

    Parameters
    ----------
    pilot, formula
        As for `mixed_model`.
    term : str
        The term that the study is about; "Intercept" for a mean against zero (``"drop ~ 1"``).
    clips : sequence of int
        Planned numbers of clips (of groups), 2 or more.
    groups : str
        The column whose values are drawn anew. Repeated clips count once.
    test : {"sign_flip", "mixed_model"}
        As in the columns sign_flip_p and p of `mixed_model`, two-sided, at 5 %. A mixed model takes half a second per study.
    effect : float, optional
        The smallest effect that matters, in units of the term's estimate; by default the pilot's own, often too large.
    simulations, seed : int

    Returns
    -------
    DataFrame
        A row for each number: clips, power, low, high (error of the simulation, 95 %), power_low, power_high (what the pilot
        leaves open), effect, pilot_clips. A warning says where the pilot leaves more than half of all power open.

    Raises
    ------
    InputError
        As `mixed_model`, and for an unknown term or test.

    Examples
    --------
    >>> pilot = pd.DataFrame({"clip": range(12), "drop": np.random.default_rng(0).normal(0.5, 1, 12)})
    >>> power(pilot, "drop ~ 1", clips=[60], effect=0.8, simulations=50)["power"].round(1).tolist()
    [1.0]
    """
    design = build_design(pilot, formula, groups)
    if (
        term not in design.terms
        or test not in _TESTS
        or min(clips, default=0) < 2
        or simulations < 1
    ):
        raise InputError(
            f"expected a term of {list(design.terms)}, a test of {_TESTS}, 2 clips and 1 simulation or more; found {term!r}, "
            f"{test!r}, clips {list(clips)}, {simulations}"
        )
    index, pilot_clips = list(design.terms).index(term), int(design.groups[groups].max()) + 1
    residuals, size, limits = _effect_sizes(design, index, groups, effect)
    rows = []
    for clip_count in clips:
        counts = np.zeros(
            3
        )  # of studies that find the effect: the expected one, and those at the limits
        for draw in range(simulations):
            rng = np.random.default_rng((seed, clip_count, draw))
            study = _draw_study(design, residuals, clip_count, rng)
            counts += [_is_significant(study, index, value, test) for value in (size, *limits)]
        shares, error = counts / simulations, proportion_interval(counts[0], simulations)
        rows.append((clip_count, shares[0], *error, *shares[1:], size, pilot_clips))
    table = pd.DataFrame(rows, columns=_COLUMNS)
    if (table["power_high"] - table["power_low"]).min() > 0.5:
        text = "enlarge it, or plan with the smallest effect that matters (effect=...)"
        warnings.warn(
            f"a pilot of {pilot_clips} clips leaves the power of {term} open: {text}", stacklevel=2
        )
    return table


def _effect_sizes(
    design: ModelDesign, index: int, groups: str, effect: float | None
) -> tuple[np.ndarray, float, tuple[float, float]]:
    """Return residuals [rows], the effect, and the effects that stand for the limits of its ratio to the spread."""
    from scipy.stats import chi2
    from scipy.stats import t as student

    codes, (x, y) = design.groups[groups], design.partial_out(index)
    count = codes.max() + 1
    df = count - design.is_constant(groups).sum()
    estimate = x @ y / (x @ x)
    residuals = (y - estimate * x) * np.sqrt(count / df)
    error = np.sqrt((np.bincount(codes, x * residuals) ** 2).sum()) / (x @ x)
    if effect is not None:
        low, high = effect * np.sqrt(chi2.ppf([(1 - LEVEL) / 2, (1 + LEVEL) / 2], df) / df)
    else:
        half = student.ppf((1 + LEVEL) / 2, df) * np.sqrt(error**2 + estimate**2 / (2 * df))
        low, high = max(abs(estimate) - half, 0.0), abs(estimate) + half
    return residuals, float(estimate if effect is None else effect), (float(low), float(high))


def _draw_study(
    design: ModelDesign, residuals: np.ndarray, clip_count: int, rng: np.random.Generator
) -> ModelDesign:
    """Return a study of so many clips in which no term has an effect."""
    ((name, codes),) = design.groups.items()
    clip_rows = [np.flatnonzero(codes == i) for i in rng.integers(codes.max() + 1, size=clip_count)]
    rows, new_codes = (
        np.concatenate(clip_rows),
        np.repeat(np.arange(clip_count), [*map(len, clip_rows)]),
    )
    return replace(design, y=residuals[rows], x=design.x[rows], groups={name: new_codes})


def _is_significant(study: ModelDesign, index: int, effect: float, test: str) -> bool:
    """Whether the test finds an effect of a term; it does not if the clips do not vary in it."""
    study = replace(study, y=study.y + effect * study.x[:, index])
    if np.linalg.matrix_rank(study.x) < study.x.shape[1]:
        return False
    if test == "sign_flip":
        return study.sign_flip_p(index) <= 1 - LEVEL
    return bool(fit_design(study)[0]["p"][index] <= 1 - LEVEL)
