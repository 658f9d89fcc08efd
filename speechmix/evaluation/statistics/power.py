"""Power of a planned study, by simulation from a pilot run.

In: the pilot's table, a formula, the term that the study is about, numbers of clips. Out: a
`PowerEstimate`.

A simulated study draws the pilot's clips with replacement, each with its predictors and all its residuals,
so that what differs between and within clips stays as it is; residuals are widened by
sqrt(G / (G - k)) for G clips and k terms that are constant within them. It adds the effect and applies
the test. A pilot does not determine the effect in units of its spread: `power_low` and `power_high`
are the power at the limits of a 95 % interval of that ratio t,

    t -+ t_0.975(G - k) sqrt(1 + t^2 / (2 (G - k)))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from ...errors import InputError
from .intervals import LEVEL, proportion_interval
from .mixed_models import fit_design
from .model_design import ModelDesign, build_design

TESTS = ("sign_flip", "mixed_model")


@dataclass(frozen=True, eq=False)
class PowerEstimate:
    """Power of a test for some numbers of clips.

    Parameters
    ----------
    table : DataFrame
        A row for each number: clips, power, low, high (Monte-Carlo error, 95 %), power_low,
        power_high (range that the pilot leaves open).
    effect : float
        Of the term, for which the power is.
    pilot_clips : int
    text : str
        What was tested how.
    notes : tuple of str
        What was left out of the pilot.
    """

    table: pd.DataFrame
    effect: float
    pilot_clips: int
    text: str
    notes: tuple[str, ...] = ()

    def to_dataframe(self) -> pd.DataFrame:
        """Return a copy of the table, a row for each number of clips."""
        return self.table.copy()

    @property
    def summary(self) -> str:
        """Sentences: the power, and how uncertain it is."""
        lines = [self.text, *self.notes]
        for row in (100 * self.table).to_dict("records"):
            lines.append(
                f"{row['clips'] / 100:.0f} clips: power {row['power']:.0f} % (simulation error "
                f"[{row['low']:.0f}, {row['high']:.0f}]); a pilot of {self.pilot_clips} clips leaves "
                f"{row['power_low']:.0f} to {row['power_high']:.0f} % open"
            )
        return "\n".join(lines)

    def __repr__(self) -> str:
        return self.summary


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
) -> PowerEstimate:
    """Estimate the power of a planned number of clips from a pilot run.

    Parameters
    ----------
    pilot, formula
        As for `mixed_model`.
    term : str
        The term that the study is about; "Intercept" for a mean against zero (``"drop ~ 1"``).
    clips : sequence of int
        Planned numbers of clips (of groups).
    groups : str
        The column whose values are drawn anew. Repeated clips count once.
    test : {"sign_flip", "mixed_model"}
        As in the columns sign_flip_p and p of `mixed_model`, two-sided, at 5 %. A mixed model takes
        about half a second for each simulated study.
    effect : float, optional
        The smallest effect that matters, in units of the term's estimate; by default the pilot's
        own, which is often too large.
    simulations, seed : int

    Returns
    -------
    PowerEstimate

    Raises
    ------
    InputError
        As `mixed_model`; for an unknown term or test, and fewer than two clips.

    Examples
    --------
    >>> pilot = pd.DataFrame({"clip": range(12), "drop": np.random.default_rng(0).normal(0.5, 1, 12)})
    >>> power(pilot, "drop ~ 1", clips=[10, 60], effect=0.5).table["power"].round(1).tolist()
    [0.5, 1.0]
    """
    design = build_design(pilot, formula, groups)
    if term not in design.terms or test not in TESTS or min(clips) < 2 or simulations < 1:
        raise InputError(
            f"expected a term of {list(design.terms)}, a test of {TESTS}, two clips or more and one "
            f"simulation or more; found {term!r}, {test!r}, clips {list(clips)}, {simulations}"
        )
    index, pilot_clips = list(design.terms).index(term), int(design.groups[groups].max()) + 1
    residuals, size, limits = _effect_sizes(design, index, groups, effect)
    rows = []
    for number in clips:
        studies = [
            _draw_study(design, residuals, number, np.random.default_rng((seed, number, draw)))
            for draw in range(simulations)
        ]
        found, *at_limits = (
            sum(_finds(study, index, value, test) for study in studies) for value in (size, *limits)
        )
        error = proportion_interval(found, simulations)
        rows.append((number, found / simulations, *error, *(n / simulations for n in at_limits)))
    columns = ["clips", "power", "low", "high", "power_low", "power_high"]
    source = "the pilot's" if effect is None else "assumed"
    text = f"{test} test of {term} in {formula}, effect {size:.4g} ({source}), two-sided at 5 %"
    return PowerEstimate(pd.DataFrame(rows, columns=columns), size, pilot_clips, text, design.notes)


def _effect_sizes(
    design: ModelDesign, index: int, groups: str, effect: float | None
) -> tuple[np.ndarray, float, tuple[float, float]]:
    """Return residuals [rows], the effect, and the effects with which the pilot's spread would give
    the power at the limits of what is known of their ratio."""
    from scipy.stats import chi2
    from scipy.stats import t as student

    codes, constant = design.groups[groups], design.is_constant(groups).sum()
    x, y = design.partial_out(index)
    estimate = x @ y / (x @ x)
    residuals = y - estimate * x
    df = codes.max() + 1 - constant
    residuals = residuals * np.sqrt((codes.max() + 1) / df)
    error = np.sqrt((np.bincount(codes, x * residuals) ** 2).sum()) / (x @ x)
    if effect is not None:
        low, high = effect * np.sqrt(chi2.ppf([(1 - LEVEL) / 2, (1 + LEVEL) / 2], df) / df)
    else:
        half = student.ppf((1 + LEVEL) / 2, df) * np.sqrt(error**2 + estimate**2 / (2 * df))
        low, high = max(abs(estimate) - half, 0.0), abs(estimate) + half
    return residuals, float(estimate if effect is None else effect), (float(low), float(high))


def _draw_study(
    design: ModelDesign, residuals: np.ndarray, number: int, rng: np.random.Generator
) -> ModelDesign:
    """Return a study of so many clips in which no term has an effect."""
    ((name, codes),) = design.groups.items()
    drawn = [np.flatnonzero(codes == code) for code in rng.integers(codes.max() + 1, size=number)]
    rows = np.concatenate(drawn)
    new_codes = np.repeat(np.arange(number), [len(part) for part in drawn])
    return replace(design, y=residuals[rows], x=design.x[rows], groups={name: new_codes})


def _finds(study: ModelDesign, index: int, effect: float, test: str) -> bool:
    """Whether the test finds an effect of a term; not if the clips that were drawn do not vary in it."""
    study = replace(study, y=study.y + effect * study.x[:, index])
    if np.linalg.matrix_rank(study.x) < study.x.shape[1]:
        return False
    if test == "sign_flip":
        return study.sign_flip_p(index) <= 1 - LEVEL
    return bool(fit_design(study)[0]["p"][index] <= 1 - LEVEL)
