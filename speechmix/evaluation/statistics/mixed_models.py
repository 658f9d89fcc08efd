"""Mixed models of a long table, fitted by statsmodels and told in plain words.

In: a table, a formula, the columns of its groups (clips, speakers). Out: a `MixedModel`.

- Each column of groups has a random intercept and uncorrelated random slopes, as variance components,
  so that columns may be crossed. Slopes are of predictors that vary within its groups: without them, tests
  of such predictors find too much (Barr et al. 2013). Predictors of slopes are standardised.
- Variances by REML; standard errors of generalised least squares at these variances.
- Intervals and p by Student's t. Degrees of freedom of a term that is constant within groups, or has a
  random slope: groups less such constant terms; of others: what remains in the rows (Pinheiro & Bates 2000).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from ...errors import InputError
from .intervals import LEVEL
from .model_design import ModelDesign, build_design

_INTERCEPT = "Intercept"
_ZERO_SHARE = 1e-4  # of the residual variance, below which a variance is reported as zero


@dataclass(frozen=True, eq=False)
class MixedModel:
    """A fitted mixed model.

    Parameters
    ----------
    formula : str
    fixed : DataFrame
        A row for each term: term, estimate, error, df, low, high (95 %), p, sign_flip_p (assumes no
        distribution; see `ModelDesign.sign_flip_p`).
    random : DataFrame
        Columns groups, effect, count (of groups), sd (of the effect between groups); the last row
        is the residual.
    rows : int
    notes : tuple of str
        What was left out, and why results may not be trusted.
    """

    formula: str
    fixed: pd.DataFrame
    random: pd.DataFrame
    rows: int
    notes: tuple[str, ...]

    def to_dataframe(self) -> pd.DataFrame:
        """Return a copy of the fixed effects, a row for each term."""
        return self.fixed.copy()

    @property
    def summary(self) -> str:
        """Sentences: fixed effects, variation between groups, warnings."""
        levels = self.random[self.random["effect"] == _INTERCEPT]
        counts = [f"{row['count']:.0f} of {row['groups']!r}" for row in levels.to_dict("records")]
        lines = [f"{self.formula}: {self.rows} rows, groups: {', '.join(counts)}"]
        for row in self.fixed.to_dict("records"):
            limits = f"{row['estimate']:.4g}, 95 % interval [{row['low']:.4g}, {row['high']:.4g}]"
            tests = f", p {_format_p(row['p'])}, by sign flips p {_format_p(row['sign_flip_p'])}"
            lines.append(f"{row['term']}: {limits}{tests if row['term'] != _INTERCEPT else ''}")
        for row in self.random.to_dict("records"):
            what = (
                f"{row['effect']} differs between {row['groups']!r}"
                if row["effect"]
                else "residual"
            )
            lines.append(f"{what}: standard deviation {row['sd']:.4g}")
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
        Fixed effects, as statsmodels and R write them: ``"contribution ~ layer * number"``. It may
        call functions, so use no formula from a stranger.
    groups : str or sequence of str
        Columns whose values are drawn from many: "clip", or ["clip", "speaker"], crossed or nested.
    slopes : sequence of str, optional
        Terms whose effect may differ between groups; by default each numeric or two-valued one that
        varies within groups. ``()`` for random intercepts alone.

    Returns
    -------
    MixedModel

    Raises
    ------
    InputError
        For fewer than `FEWEST_GROUPS` groups, a column or term that does not exist, terms that depend
        on each other, rows of several models, stacks or measures, and untrained twins.
    MissingExtraError
        If statsmodels (extra `statistics`) is not installed.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> table = pd.DataFrame({"clip": np.repeat(np.arange(20), 6), "layer": np.tile(np.arange(6), 20)})
    >>> table["contribution"] = 0.1 * table["layer"] + np.repeat(rng.normal(size=20), 6) + rng.normal(size=120) / 9
    >>> mixed_model(table, "contribution ~ layer").fixed["estimate"].round(1).tolist()
    [0.1, 0.1]
    """
    design = build_design(table, formula, groups)
    fixed, random, notes = fit_design(design, slopes)
    fixed["sign_flip_p"] = [
        np.nan if term == _INTERCEPT else design.sign_flip_p(index)
        for index, term in enumerate(design.terms)
    ]
    doubtful = fixed[(fixed["p"] < 1 - LEVEL) & (fixed["sign_flip_p"] >= 1 - LEVEL)]["term"]
    notes += [f"{term}: sign flips do not confirm it, report no effect" for term in doubtful]
    return MixedModel(formula, fixed, random, len(design.y), (*design.notes, *notes))


def fit_design(
    design: ModelDesign, slopes: Sequence[str] | None = None
) -> tuple[pd.DataFrame, pd.DataFrame, list[str]]:
    """Return fixed effects, random effects and warnings; see `mixed_model`."""
    notes: list[str] = []
    effects = [_random_effects(design, group, slopes, notes) for group in design.groups]
    scale = float(design.y.std())
    covariances, variance, is_converged = _estimate_variances(design, effects, scale)
    if not is_converged:
        notes.append("the fit did not converge: use a simpler formula, or slopes=()")
    residual = scale * np.sqrt(variance)
    rows: list[tuple[object, ...]] = []
    for effect, covariance in zip(effects, covariances, strict=True):
        sds = residual * np.sqrt(np.diag(covariance)) / effect.units
        rows += [
            (effect.group, term, effect.count, sd)
            for term, sd in zip(effect.terms, sds, strict=True)
        ]
        if np.linalg.eigvalsh(covariance)[0] < _ZERO_SHARE:
            notes.append(
                f"singular fit: differences between values of {effect.group!r} in {', '.join(effect.terms)} "
                "cannot be told from none, or from each other; their standard deviations are rough"
            )
    random = pd.DataFrame(
        [*rows, ("", "", None, residual)], columns=["groups", "effect", "count", "sd"]
    )
    return _fixed_effects(design, effects, covariances, residual), random, notes


class _RandomEffects(NamedTuple):
    """What differs between the values of a column: the intercept, and effects of standardised terms."""

    group: str
    codes: np.ndarray  # [rows]
    terms: list[str]
    values: np.ndarray  # [rows, terms]
    units: np.ndarray  # standard deviations of the terms, [terms]

    @property
    def count(self) -> int:
        return int(self.codes.max()) + 1


def _random_effects(
    design: ModelDesign, group: str, slopes: Sequence[str] | None, notes: list[str]
) -> _RandomEffects:
    unknown = sorted(set(slopes or ()) - set(design.terms))
    if unknown:
        raise InputError(f"slopes: no term {unknown[0]!r}; there are {', '.join(design.terms)}")
    codes, varies = design.groups[group], ~design.is_constant(group)
    rows, count = len(codes), codes.max() + 1
    if count == rows:
        raise InputError(
            f"there is one row for each {group!r}: a mixed model needs several, such as those of all "
            "layers or words"
        )
    factors = [term.partition("[")[0] for term in design.terms]
    by_default = [
        ":" not in term and factors.count(factor) == 1
        for term, factor in zip(design.terms, factors, strict=True)
    ]
    is_slope = varies & (by_default if slopes is None else np.isin(design.terms, list(slopes)))
    if is_slope.any() and rows <= count * (1 + is_slope.sum()):
        is_slope[:] = False
        notes.append(f"too few rows for each {group!r}: effects are taken to be the same in all")
    x = design.x[:, is_slope]
    values = np.column_stack([np.ones(rows), (x - x.mean(axis=0)) / x.std(axis=0)])
    terms = [_INTERCEPT, *np.array(design.terms)[is_slope].tolist()]
    return _RandomEffects(group, codes, terms, values, np.array([1.0, *x.std(axis=0)]))


def _estimate_variances(
    design: ModelDesign, effects: Sequence[_RandomEffects], scale: float
) -> tuple[list[np.ndarray], float, bool]:
    """Return each column's covariance of effects, in units of the residual variance; that variance,
    for responses in units of `scale`; and whether the fit converged.

    Powell's method agrees with lme4. The gradient methods of statsmodels 0.15 stop early where a
    variance is small, with a log likelihood that is lower by up to 15.
    """
    from statsmodels.regression.mixed_linear_model import MixedLM, VCSpec

    y, first = design.y / scale, effects[0]
    if len(effects) == 1:
        model = MixedLM(y, design.x, first.codes, exog_re=first.values)
    else:  # crossed columns: all rows are one block, with a variance component for each effect
        parts = [(effect, index) for effect in effects for index in range(len(effect.terms))]
        names = [f"{effect.group} {effect.terms[index]}" for effect, index in parts]
        columns = [[[str(code) for code in range(effect.count)]] for effect, _ in parts]
        matrices = [
            [_indicators(effect.codes, effect.values[:, [index]])] for effect, index in parts
        ]
        components = VCSpec(names, columns, matrices)
        model = MixedLM(y, design.x, np.zeros(len(y)), exog_vc=components)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # told as notes
        result = model.fit(reml=True, method="powell")
    if len(effects) == 1:
        return [result.cov_re / result.scale], result.scale, result.converged
    ends = np.cumsum([len(effect.terms) for effect in effects])[:-1]
    components = [np.diag(part) for part in np.split(result.vcomp / result.scale, ends)]
    return components, result.scale, result.converged


def _indicators(codes: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return each column of values [rows, terms] in columns by group, [rows, groups * terms]."""
    in_group = np.eye(codes.max() + 1)[codes]
    columns: np.ndarray = np.hstack([in_group * column[:, None] for column in values.T])
    return columns


def _fixed_effects(
    design: ModelDesign,
    effects: Sequence[_RandomEffects],
    covariances: Sequence[np.ndarray],
    residual: float,
) -> pd.DataFrame:
    """Generalised least squares, by the identity of Woodbury."""
    from scipy.stats import t as student

    parts = []
    for effect, covariance in zip(effects, covariances, strict=True):
        variances, vectors = np.linalg.eigh(covariance)
        root = vectors * np.sqrt(variances.clip(0))
        parts.append(_indicators(effect.codes, effect.values @ root))
    z = np.hstack(parts)
    zx, zy = z.T @ design.x, z.T @ design.y
    inner = np.linalg.solve(np.eye(z.shape[1]) + z.T @ z, np.column_stack([zx, zy]))
    covariance = np.linalg.inv(design.x.T @ design.x - zx.T @ inner[:, :-1])
    estimate = covariance @ (design.x.T @ design.y - zx.T @ inner[:, -1])
    error = residual * np.sqrt(np.diag(covariance))
    df = _degrees_of_freedom(design, effects)
    half = student.ppf((1 + LEVEL) / 2, df) * error
    columns = {"term": design.terms, "estimate": estimate, "error": error, "df": df}
    columns |= {"low": estimate - half, "high": estimate + half}
    return pd.DataFrame({**columns, "p": 2 * student.sf(abs(estimate) / error, df)})


def _degrees_of_freedom(design: ModelDesign, effects: Sequence[_RandomEffects]) -> np.ndarray:
    """Return those of each term: the fewest over columns of groups, else those of the rows."""
    df, row_df = np.full(len(design.terms), np.inf), len(design.y) - 1
    for effect in effects:
        constant = design.is_constant(effect.group)
        of_group = constant | [bool({*term.split(":")} & {*effect.terms}) for term in design.terms]
        df = np.where(of_group, np.minimum(df, effect.count - constant.sum()), df)
        row_df -= effect.count - 1
    df = np.where(np.isinf(df), row_df - np.isinf(df).sum(), df)
    if df.min() < 1:
        raise InputError(f"{len(design.terms)} terms are too many for these groups: use fewer")
    return df


def _format_p(p: float) -> str:
    return "< .001" if p < 0.001 else f"= {p:.3f}"
