"""Linear mixed models of a long table, fitted by REML and reported in sentences.

- Random effects: for each column of groups an intercept, and slopes of the predictors that vary within its groups; without
  slopes, tests of these find too much (Barr et al. 2013). Those of one column are correlated, as ``(1 + layer | clip)`` of
  lme4. Several columns may be crossed; their effects are variance components without correlations, as
  ``(1 + layer || clip) + (1 | speaker)``.
- Three p values: by Student's t, by sign flips (`ModelDesign.sign_flip_p`), and with robust errors (`robust_errors`). Notes say
  where they may be wrong: few groups, few groups that decide, unequal spread, skewed effects, p values that disagree.
- Intervals and p by Student's t. Degrees of freedom of a term that is constant within groups, or has a
  random slope: groups less constant terms; of others: those of the rows (Pinheiro & Bates 2000).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from ...errors import InputError
from ...evaluation.statistics.groups import list_missing_speakers
from ...evaluation.statistics.intervals import LEVEL
from .model_assumptions import check_assumptions
from .model_design import ModelDesign, build_design
from .reml import fit_reml

_INTERCEPT = "Intercept"
_ZERO_SHARE = 1e-4  # of the residual variance, below which a variance is reported as zero


@dataclass(frozen=True, eq=False)
class MixedModel:
    """A fitted mixed model.

    Parameters
    ----------
    formula : str
    fixed : DataFrame
        A row for each term: term, estimate, error, df, low, high (95 %), p, sign_flip_p (see `ModelDesign.sign_flip_p`),
        robust_p, robust_df (see `robust_errors`; the largest p over columns of groups).
    random : DataFrame
        Standard deviations between groups: groups, term, sd (of the level at the mean of other terms, or of a term's effect);
        the last row is the residual.
    counts : dict
        Rows, and different values of each column of groups.
    notes : tuple of str
        What was left out, and why results may not be trusted.
    """

    formula: str
    fixed: pd.DataFrame
    random: pd.DataFrame
    counts: dict[str, int]
    notes: tuple[str, ...]

    def to_dataframe(self) -> pd.DataFrame:
        """Return a copy of the fixed effects, a row for each term."""
        return self.fixed.copy()

    @property
    def summary(self) -> str:
        """Sentences: fixed effects, variation between groups, warnings."""
        counts = ", ".join(f"{count} {name}" for name, count in self.counts.items())
        lines = [f"{self.formula}: {counts}"]
        for row in self.fixed.to_dict("records"):
            probabilities = (f"{row[name]:.3f}" for name in ("p", "sign_flip_p", "robust_p"))
            p, flip_p, robust_p = (text.replace("0.000", "< .001") for text in probabilities)
            limits = f"{row['estimate']:.4g}, 95 % interval [{row['low']:.4g}, {row['high']:.4g}]"
            lines.append(
                f"{row['term']}: {limits}, p {p}, by sign flips {flip_p}, robust {robust_p}"
            )
        lines += [
            f"standard deviation, {row['groups']} {row['term']}: {row['sd']:.4g}"
            for row in self.random.to_dict("records")
        ]
        return "\n".join([*lines, *(f"Note: {note}" for note in self.notes)])

    def __repr__(self) -> str:
        return self.summary


def mixed_model(
    table: pd.DataFrame,
    formula: str,
    groups: str | Sequence[str] = "clip",
    *,
    slopes: Sequence[str] | None = None,
) -> MixedModel:
    """Fit a linear mixed model to a long table of results.

    Parameters
    ----------
    table : DataFrame
        A row for each measurement, of one model, stack and measure.
    formula : str
        Fixed effects, as statsmodels and R write them: ``"contribution ~ layer * number"``. It may call functions, so use no
        formula from a stranger.
    groups : str or sequence of str
        Columns whose values are drawn from many: "clip", or ["clip", "speaker"], crossed or nested.
    slopes : sequence of str, optional
        Terms whose effect may differ between groups; by default each numeric or two-valued one that varies within groups.
        ``()`` for random intercepts alone.

    Raises
    ------
    InputError
        For fewer than `FEWEST_GROUPS` groups, a column or term that does not exist, terms that depend on each other, rows of
        several models, stacks or measures, untrained twins, and rows without a group or a finite number.
    MissingExtraError
        If statsmodels (extra `statistics`) is not installed.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> table = pd.DataFrame({"clip": np.repeat(np.arange(20), 6), "layer": np.tile(np.arange(6), 20)})
    >>> table["contribution"] = 0.1 * table["layer"] + np.repeat(rng.normal(size=20), 6) + rng.normal(size=120) / 9
    >>> mixed_model(table, "contribution ~ layer").fixed["estimate"].round(1).tolist()
    [-0.2, 0.1]
    """
    design = build_design(table, formula, groups)
    fixed, random, notes = fit_design(design, slopes)
    fixed["sign_flip_p"] = [design.sign_flip_p(index) for index in range(len(design.terms))]
    tests = [design.robust_tests(index) for index in range(len(design.terms))]
    largest = [max(by_group.values(), key=lambda test: test.p) for by_group in tests]
    fixed["robust_p"], fixed["robust_df"] = (
        [each.p for each in largest],
        [each.df for each in largest],
    )
    for name, what in (("sign_flip_p", "sign flips do"), ("robust_p", "robust errors do")):
        doubtful = fixed[(fixed["p"] < 1 - LEVEL) & (fixed[name] >= 1 - LEVEL)]["term"]
        notes += [f"{term}: {what} not confirm the effect" for term in doubtful]
    notes += check_assumptions(design, tests)
    notes += list_missing_speakers(table, list(design.groups), formula)
    counts = {"rows": len(design.y)} | {g: int(c.max()) + 1 for g, c in design.groups.items()}
    return MixedModel(formula, fixed, random, counts, (*design.notes, *notes))


def fit_design(
    design: ModelDesign, slopes: Sequence[str] | None = None
) -> tuple[pd.DataFrame, pd.DataFrame, list[str]]:
    """Return fixed effects, random effects and warnings; see `mixed_model`."""
    from scipy.stats import t as student

    notes: list[str] = []
    effects = [_random_effects(design, group, slopes, notes) for group in design.groups]
    scale = float(design.y.std())
    fit = fit_reml(
        design.x, design.y / scale, [(effect.codes, effect.values) for effect in effects]
    )
    if not fit.converged:
        notes.append("the fit did not converge: use a simpler formula, or slopes=()")
    rows: list[tuple[object, ...]] = []
    for effect, covariance in zip(effects, fit.covariances, strict=True):
        sds = scale * np.sqrt(np.diag(covariance)) / effect.units
        rows += [(effect.group, *row) for row in zip(effect.terms, sds, strict=True)]
        if np.linalg.eigvalsh(covariance)[0] < _ZERO_SHARE * fit.residual:
            notes.append(
                f"singular fit: of what differs between values of {effect.group!r} ({', '.join(effect.terms)}), a variance is "
                "estimated as zero, or two effects go together entirely"
            )
    rows.append(("residual", "", scale * np.sqrt(fit.residual)))
    random = pd.DataFrame(rows, columns=["groups", "term", "sd"])
    estimate, error = scale * fit.estimate, scale * fit.error
    df = _degrees_of_freedom(design, effects)
    half = student.ppf((1 + LEVEL) / 2, df) * error
    columns = {"term": design.terms, "estimate": estimate, "error": error, "df": df}
    columns |= {"low": estimate - half, "high": estimate + half}
    fixed = pd.DataFrame({**columns, "p": 2 * student.sf(abs(estimate) / error, df)})
    return fixed, random, notes


class _RandomEffects(NamedTuple):
    """What differs between the values of a column: the intercept, and effects of standardised terms."""

    group: str
    codes: np.ndarray  # [rows]
    terms: list[str]
    values: np.ndarray  # [rows, terms]
    units: np.ndarray  # standard deviations of the terms, [terms]


def _random_effects(
    design: ModelDesign, group: str, slopes: Sequence[str] | None, notes: list[str]
) -> _RandomEffects:
    unknown = sorted(set(slopes or ()) - set(design.terms))
    if unknown:
        raise InputError(f"slopes: no term {unknown[0]!r}; there are {', '.join(design.terms)}")
    codes = design.groups[group]
    rows, count = len(codes), codes.max() + 1
    if count == rows:
        raise InputError(f"there is one row for each {group!r}: a mixed model needs several")
    if slopes is None:
        factors = [term.partition("[")[0] for term in design.terms]
        slopes = [
            t for t in design.terms if factors.count(t.partition("[")[0]) == 1 and ":" not in t
        ]
    is_slope = ~design.is_constant(group) & np.isin(design.terms, list(slopes))
    if is_slope.any() and rows <= count * (1 + is_slope.sum()):
        is_slope[:] = False
        notes.append(f"too few rows for each {group!r}: effects are taken to be the same in all")
    x = design.x[:, is_slope]
    values = np.column_stack([np.ones(rows), (x - x.mean(axis=0)) / x.std(axis=0)])
    terms = [_INTERCEPT, *np.array(design.terms)[is_slope].tolist()]
    return _RandomEffects(group, codes, terms, values, np.array([1.0, *x.std(axis=0)]))


def _degrees_of_freedom(design: ModelDesign, effects: Sequence[_RandomEffects]) -> np.ndarray:
    """Return those of each term: the fewest over columns of groups, else those of the rows."""
    df, row_df = np.full(len(design.terms), np.inf), len(design.y) - 1
    for effect in effects:
        constant = design.is_constant(effect.group)
        of_group = constant | [bool({*term.split(":")} & {*effect.terms}) for term in design.terms]
        df = np.where(of_group, np.minimum(df, effect.codes.max() + 1 - constant.sum()), df)
        row_df -= int(effect.codes.max())
    df = np.where(np.isinf(df), row_df - np.isinf(df).sum(), df)
    if df.min() < 1:
        raise InputError(f"{len(design.terms)} terms are too many for these groups: use fewer")
    return df
