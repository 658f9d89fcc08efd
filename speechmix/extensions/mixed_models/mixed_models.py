"""Linear mixed models of a long table, fitted by REML and reported in sentences.

- Random effects: for each column of groups an intercept, and slopes of the predictors that vary within its groups; without
  slopes, tests of these find too much (Barr et al. 2013). Those of one column are correlated, as ``(1 + layer | clip)`` of
  lme4. Several columns may be crossed; their effects are variance components without correlations, as
  ``(1 + layer || clip) + (1 | speaker)``.
- Three p values: by Student's t, by sign flips (`ModelDesign.sign_flip_p`), and with robust errors (`model_design`). Notes say
  where they may be wrong: few groups, few groups that decide, unequal spread, skewed effects, p values that disagree.
- Intervals and p by Student's t. Degrees of freedom of a term that is constant within groups, or has a
  random slope: groups less constant terms; of others: those of the rows (Pinheiro & Bates 2000).

Say where the p values of a mixed model may be wrong.

In: a design, and the robust tests of its terms. Out: sentences.

- *Few groups*: with fewer than `FEWEST_CLAIM_GROUPS`, skewed effects and unequal spread are neither seen
  nor averaged out.
- *Few groups decide*: robust errors leave less than half of the degrees of freedom of a balanced design
  (2 of 16 clips in one condition: 1.3 of 14). Then unequal spread cannot be seen.
- *Unequal spread* between the two values of a term that is constant within groups: Brown & Forsythe
  1974, of the groups' mean residuals, at 5 %.
- *Skewed effects*: D'Agostino 1970, of the influences of groups on the estimate, at 5 %.

Fit a linear mixed model by REML.

In: responses, fixed effects, and what differs between groups. Out: estimates, standard errors, variances. Fixed effects and
the residual variance follow from the factor L of the covariance of the random effects Z L u, with independent u (Bates et
al. 2015, Fitting linear mixed-effects models using lme4). So nothing is divided by a covariance that may be singular, where
statsmodels 0.15 gives wrong estimates, others on another machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from ...errors import InputError
from ...evaluation.statistics.claim_rule import FEWEST_CLAIM_GROUPS
from ...evaluation.statistics.groups import list_missing_speakers
from ...evaluation.statistics.intervals import FEWEST_GROUPS, LEVEL
from .model_design import ModelDesign, RobustTest, build_design

_FEWEST_SHARE = 0.5  # of the degrees of freedom of a balanced design


def check_assumptions(design: ModelDesign, tests: Sequence[Mapping[str, RobustTest]]) -> list[str]:
    """Return a sentence for each assumption that does not hold, or cannot be seen to hold.

    Parameters
    ----------
    design : ModelDesign
    tests : sequence of mapping of str to RobustTest
        Of each term, by column of groups.
    """
    notes = []
    for group, codes in design.groups.items():
        count = int(codes.max()) + 1
        if count < FEWEST_CLAIM_GROUPS:
            notes.append(
                f"{count} values of {group!r} are few: nothing is concluded, {FEWEST_CLAIM_GROUPS - count} "
                f"more are needed. With few, p is too small where effects are skewed or differ in spread"
            )
        is_constant = design.is_constant(group)
        for index, term in enumerate(design.terms):
            if np.ptp(design.x[:, index]) == 0 and len(design.terms) > 1:
                continue  # the intercept
            test = tests[index][group]
            freedom = count - max(int(is_constant.sum()), 1)
            if test.df < _FEWEST_SHARE * freedom:
                notes.append(
                    f"{term}: the design is unbalanced, few values of {group!r} decide "
                    f"({_describe_values(design, index, group)}{test.df:.1f} of {freedom} degrees of "
                    "freedom). p and sign flips need equal spread, which cannot be seen here"
                )
            if is_constant[index]:
                notes += _check_spread(design, index, group)
            notes += _check_skewness(term, group, test)
    return notes


def _group_means(values: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Return the mean of each group [G]."""
    means: np.ndarray = np.bincount(codes, values) / np.bincount(codes)
    return means


def _split_groups(design: ModelDesign, index: int, group: str) -> np.ndarray | None:
    """Return which groups have the larger value of a term [G]; None unless it has two values."""
    by_group = _group_means(design.x[:, index], design.groups[group])
    has_two = design.is_constant(group)[index] and len(np.unique(by_group.round(9))) == 2
    return by_group > by_group.mean() if has_two else None


def _describe_values(design: ModelDesign, index: int, group: str) -> str:
    """Say how many groups have the rarer value of a term, if it has two; else ""."""
    is_larger = _split_groups(design, index, group)
    if is_larger is None:
        return ""
    return f"one condition has {min(is_larger.sum(), (~is_larger).sum())} of {len(is_larger)}; "


def _check_spread(design: ModelDesign, index: int, group: str) -> list[str]:
    """Compare the spread of the groups' mean residuals between the two values of a term."""
    from scipy.stats import levene

    is_larger = _split_groups(design, index, group)
    if is_larger is None:
        return []
    residuals = design.y - design.x @ np.linalg.lstsq(design.x, design.y, rcond=None)[0]
    means = _group_means(residuals, design.groups[group])
    sides = [means[is_larger], means[~is_larger]]
    if min(map(len, sides)) < 2:
        return []
    p = float(levene(*sides, center="median").pvalue)
    if not p < 1 - LEVEL:
        return []
    larger, smaller = (side.std(ddof=1) for side in sides)
    return [
        f"{design.terms[index]}: {group!r} differ in spread (standard deviation {larger:.3g} with it, "
        f"{smaller:.3g} without; Brown-Forsythe p {p:.3f}). p and sign flips need equal spread, the "
        "robust p does not"
    ]


def _check_skewness(term: str, group: str, test: RobustTest) -> list[str]:
    """Test whether the influences of groups on a term are skewed."""
    from scipy.stats import skewtest

    if len(test.influences) < FEWEST_GROUPS or not np.ptp(test.influences) > 0:
        return []
    p = float(skewtest(test.influences).pvalue)
    if not p < 1 - LEVEL:
        return []
    return [
        f"{term}: effects of {group!r} are skewed (D'Agostino p {p:.3f}). All three p need symmetric "
        "effects, or many groups"
    ]


_SMALLEST = 1e-12  # of the variance of responses that is left unexplained


@dataclass(frozen=True, eq=False)
class RemlFit:
    """A fitted mixed model.

    Parameters
    ----------
    estimate, error : ndarray [terms]
        Fixed effects, and their standard errors by generalised least squares.
    covariances : list of ndarray [effects, effects]
        Of the random effects of each column of groups.
    residual : float
        Variance.
    converged : bool
    """

    estimate: np.ndarray
    error: np.ndarray
    covariances: list[np.ndarray]
    residual: float
    converged: bool


def fit_reml(
    x: np.ndarray, y: np.ndarray, effects: Sequence[tuple[np.ndarray, np.ndarray]]
) -> RemlFit:
    """Fit a linear mixed model.

    Parameters
    ----------
    x : ndarray [rows, terms]
    y : ndarray [rows]
        Of a scale near 1.
    effects : sequence of (codes [rows], values [rows, effects])
        For each column of groups the number of each row's group, and what has another weight in each group. Weights of one
        column are correlated; those of several are independent of each other.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> codes, ones = np.repeat(np.arange(30), 4), np.ones((120, 1))
    >>> fit = fit_reml(ones, 2 + rng.normal(size=30)[codes] + rng.normal(size=120), [(codes, ones)])
    >>> fit.estimate.round().tolist(), fit.converged
    ([2.0], True)
    """
    from scipy.optimize import minimize

    is_correlated = len(effects) == 1
    products = _products(x, y, effects)
    sizes = [values.shape[1] for _, values in effects]
    places = np.tril_indices(sizes[0])
    start = np.eye(sizes[0])[places] if is_correlated else np.ones(sum(sizes))
    repeats = np.repeat([codes.max() + 1 for codes, _ in effects], sizes)

    def factor(parameters: np.ndarray) -> np.ndarray:
        if not is_correlated:
            return np.diag(np.repeat(parameters, repeats))
        lower = np.zeros((sizes[0], sizes[0]))
        lower[places] = parameters
        return lower

    def deviance(parameters: np.ndarray) -> float:
        try:
            return _profile(products, factor(parameters), len(y))[0]
        except np.linalg.LinAlgError:  # variances so large that nothing else is left
            return np.inf

    # A triangle may have any sign on its diagonal: bounds would hold the search at zero.
    bounds = None if is_correlated else [(0.0, None)] * len(start)
    optimum = minimize(deviance, start, method="L-BFGS-B", bounds=bounds)
    optimum = minimize(
        deviance, optimum.x, method="Powell", bounds=bounds, options={"xtol": 1e-6, "ftol": 1e-12}
    )
    _, estimate, information, residual = _profile(products, factor(optimum.x), len(y))
    error = np.sqrt(residual * np.diag(np.linalg.inv(information)))
    if is_correlated:
        covariances = [residual * factor(optimum.x) @ factor(optimum.x).T]
    else:
        parts = np.split(optimum.x, np.cumsum(sizes)[:-1])
        covariances = [residual * np.diag(part**2) for part in parts]
    return RemlFit(estimate, error, covariances, residual, bool(optimum.success))


def _products(
    x: np.ndarray, y: np.ndarray, effects: Sequence[tuple[np.ndarray, np.ndarray]]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return Z'Z [blocks, q, q], Z'[x y] [blocks, q, terms + 1], [x y]'[x y]; a block is a group, or all of several columns."""
    fixed = np.column_stack([x, y])
    if len(effects) > 1:
        z = np.hstack(
            [
                np.eye(codes.max() + 1)[codes] * column[:, None]
                for codes, values in effects
                for column in values.T
            ]
        )
        return (z.T @ z)[None], (z.T @ fixed)[None], fixed.T @ fixed
    [(codes, values)] = effects
    both = np.column_stack([values, fixed])
    sums = np.zeros((codes.max() + 1, values.shape[1], both.shape[1]))
    np.add.at(sums, codes, values[:, :, None] * both[:, None, :])
    return sums[..., : values.shape[1]], sums[..., values.shape[1] :], fixed.T @ fixed


def _profile(
    products: tuple[np.ndarray, np.ndarray, np.ndarray], factor: np.ndarray, rows: int
) -> tuple[float, np.ndarray, np.ndarray, float]:
    """Return the REML deviance but for a constant, fixed effects, their information and the residual variance."""
    zz, zf, ff = products
    scaled = factor.T @ zz @ factor + np.eye(zz.shape[-1])
    lower = np.linalg.cholesky(scaled)
    rest = np.linalg.solve(lower, factor.T @ zf)
    whole = ff - np.einsum("bqi,bqj->ij", rest, rest)
    information, cross = whole[:-1, :-1], whole[:-1, -1]
    estimate = np.linalg.solve(information, cross)
    freedom = rows - len(estimate)
    unexplained = max(float(whole[-1, -1] - cross @ estimate), _SMALLEST * float(ff[-1, -1]))
    log_determinant = 2 * np.log(np.diagonal(lower, axis1=1, axis2=2)).sum()
    deviance = log_determinant + np.linalg.slogdet(information)[1] + freedom * np.log(unexplained)
    return float(deviance), estimate, information, unexplained / freedom


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
        robust_p, robust_df (see `model_design`; the largest p over columns of groups).
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
