"""Responses, predictors and groups of a regression on a long table of results.

In: a table, a formula and the columns of its groups. Out: a `ModelDesign`, without repeated rows and repeated clips, or an
error that says what must not be put into one model, and which rows have no group or no finite number.

Test a term of a regression where groups differ in spread, and few of them decide.

In: responses, predictors and groups. Out: p of a term by least squares with errors that are robust for
groups, small samples and unequal spread: CR2 with Satterthwaite's degrees of freedom (Bell & McCaffrey
2002; Pustejovsky & Tipton 2018). For a mean it is Student's t test of the groups' means. For two sets
of groups t is that of Welch, with degrees of freedom that depend on the design alone: where one set
has two or three groups, Welch's own say too little about their spread.

With X the predictors, e the residuals, H the projection on X, and b the estimate of the term c:

    v_g = (I - H_gg)^(-1/2) X_g (X'X)^-1 c,    t = b / sqrt( sum over g of (v_g' e_g)^2 )

and degrees of freedom tr(P)^2 / tr(P^2), where P[g, h] = v_g' (I - H)_gh v_h.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from ...errors import InputError, MissingExtraError
from ...evaluation.statistics.intervals import FEWEST_GROUPS, corrected_p

_DETERMINED = 1 - 1e-9  # a group that alone determines a term: its residuals say nothing


class RobustTest(NamedTuple):
    """A robust test of one term."""

    p: float  # two-sided; 1 if one group alone determines the term
    df: float
    influences: np.ndarray  # of each group's residuals on the estimate, [G]


def robust_test(x: np.ndarray, y: np.ndarray, codes: np.ndarray, term: int) -> RobustTest:
    """Test a term of a regression of y [rows] on x [rows, terms], with groups numbered by `codes`.

    Examples
    --------
    >>> y, is_other = np.array([1.0, 2, 4, 3, 2, 9, 5, 1]), np.array([0, 0, 0, 0, 0, 1, 1, 1])
    >>> found = robust_test(np.column_stack([np.ones(8), is_other]), y, np.arange(8), 1)
    >>> round(found.p, 3), round(found.df, 1)
    (0.329, 4.3)
    """
    from scipy.stats import t as student

    factor = np.linalg.cholesky(np.linalg.inv(x.T @ x))
    basis, weights = x @ factor, factor[term]  # H = basis basis'
    estimate = weights @ (basis.T @ y)
    residuals = y - basis @ (basis.T @ y)
    influences, norms, projections = [], [], []
    for code in np.unique(codes):
        is_group = codes == code
        left, sizes, right = np.linalg.svd(basis[is_group], full_matrices=False)
        shares = right @ weights
        is_determined = sizes >= _DETERMINED
        if (is_determined & (np.abs(shares) > 1e-9 * np.linalg.norm(weights))).any():
            return RobustTest(1.0, 0.0, np.array([]))
        scaled = np.where(
            is_determined, 0, sizes / np.sqrt(1 - np.minimum(sizes, _DETERMINED) ** 2)
        )
        vector = left @ (scaled * shares)
        influences.append(vector @ residuals[is_group])
        norms.append(vector @ vector)
        projections.append(basis[is_group].T @ vector)
    products = np.diag(norms) - np.array(projections) @ np.array(projections).T
    df = np.trace(products) ** 2 / (products**2).sum()
    t = abs(estimate) / np.sqrt(np.sum(np.square(influences)))
    return RobustTest(float(2 * student.sf(t, df)), float(df), np.array(influences))


# Rows that differ in these are different measurements: one of each, or the column in the formula.
_KEY_COLUMNS = "model init seed stack measure rows head removal window intervention fill".split()


@dataclass(frozen=True, eq=False)
class ModelDesign:
    """What a regression is of."""

    y: np.ndarray  # responses, [rows]
    x: np.ndarray  # [rows, terms]
    terms: Sequence[str]  # columns of `x`, the intercept among them
    groups: Mapping[str, np.ndarray]  # by column the number of the group of each row, [rows]
    notes: tuple[str, ...] = ()  # what was left out

    def is_constant(self, group: str) -> np.ndarray:
        """Whether each term is the same in all rows of a group, [terms]."""
        codes = self.groups[group]
        first = self.x[np.unique(codes, return_index=True)[1]][codes]
        return np.asarray(np.isclose(self.x, first).all(axis=0))

    def partial_out(self, term: int) -> tuple[np.ndarray, np.ndarray]:
        """Return a term and the responses less what the other terms explain of them, [rows]."""
        others = np.delete(self.x, term, axis=1)
        both = np.column_stack([self.x[:, term], self.y])
        rest = both - others @ np.linalg.lstsq(others, both, rcond=None)[0]
        return rest[:, 0], rest[:, 1]

    def sign_flip_p(self, term: int) -> float:
        """Return the two-sided p of a term from sign flips of the groups' scores; the largest over columns of groups.

        A group's score is the sum of its rows of `partial_out`, multiplied (Hemerik, Goeman & Finos 2020, Robust testing in
        generalized linear models by sign flipping score contributions). The test needs no normal distribution. It needs that
        without an effect a score is as likely positive as negative: effects of groups that are symmetric, and, of a term that
        is constant within groups, the same spread for all its values.
        """
        x, y = self.partial_out(term)
        scores = [np.bincount(codes, x * y) for codes in self.groups.values()]
        return max(float(corrected_p(np.stack([s, -s])).min()) for s in scores)

    def robust_tests(self, term: int) -> dict[str, RobustTest]:
        """Test a term with errors that are robust for each column of groups; see `model_design`."""
        return {
            name: robust_test(self.x, self.y, codes, term) for name, codes in self.groups.items()
        }


def build_design(table: pd.DataFrame, formula: str, groups: str | Sequence[str]) -> ModelDesign:
    """Build the design of a formula; see `mixed_model` for arguments and errors."""
    try:
        from statsmodels.regression.linear_model import OLS
    except ImportError as error:
        raise MissingExtraError("statsmodels", "statistics", "a regression") from error
    names = [groups] if isinstance(groups, str) else list(groups)
    for name in names or [""]:
        if name not in table:
            raise InputError(f"the table has no column {name!r}; it has {[*table]}")
    _refuse_mixtures(table, formula, names)
    unique = table.loc[~table.astype(str).duplicated()]
    labels, rows = unique.index, unique.reset_index(drop=True)
    response = formula.partition("~")[0].strip()
    if response in rows and rows[response].dropna().isin([0, 1]).all():
        raise InputError(f"{response!r} is only true or false: take a number, such as a margin")
    rows = rows.astype(dict.fromkeys(rows.select_dtypes("category"), object))
    predictors = [
        name for name in rows if re.search(rf"(?<!\w){re.escape(str(name))}(?!\w)", formula)
    ]
    complete = rows[rows[predictors].notna().all(axis=1)]
    for name in names:
        is_missing = complete[name].isna() | (complete[name].astype(str).str.strip() == "")
        _refuse_rows(is_missing, complete, labels, f"no value of {name!r}", names[0])
    for column, values in complete[predictors].select_dtypes("number").items():
        is_infinite = values.astype(float).isin([np.inf, -np.inf])
        _refuse_rows(is_infinite, complete, labels, f"an infinite value of {column!r}", names[0])
    try:
        with np.errstate(all="ignore"):
            # hasconst: otherwise the model refuses infinite values, and does not say which rows
            model = OLS.from_formula(formula, complete, missing="drop", hasconst=False)
    except Exception as error:  # whatever the parser of formulas raises
        columns = ", ".join(map(str, rows))
        raise InputError(f"formula {formula!r}: {error}; columns: {columns}") from error
    x, used = model.exog, complete.loc[model.data.row_labels]
    is_finite = np.isfinite(x).all(axis=1) & np.isfinite(model.endog)
    is_lost = ~complete.index.isin(used.index[is_finite])
    what = f"no finite value of {formula!r} (such as the logarithm of 0)"
    _refuse_rows(pd.Series(is_lost, complete.index), complete, labels, what, names[0])
    if np.linalg.matrix_rank(x) < x.shape[1]:
        raise InputError(f"{formula!r}: the terms {model.exog_names} are not independent")
    codes = {name: pd.factorize(used[name].astype(str))[0] for name in names}
    counts = {"repeated rows": len(table) - len(rows)}
    counts["rows with missing values"] = len(rows) - len(used)
    notes = tuple(f"{count} {what} are left out" for what, count in counts.items() if count)
    design = ModelDesign(model.endog, x, model.exog_names, codes, notes)
    design = _drop_repeated_groups(design, max(names, key=lambda name: codes[name].max()))
    for name, numbers in design.groups.items():
        if numbers.max() + 1 < FEWEST_GROUPS:
            raise InputError(
                f"{numbers.max() + 1} different values of {name!r}: expected at least {FEWEST_GROUPS}, with fewer no interval "
                f"can be trusted. Add more, or put C({name}) into the formula in place of a random effect"
            )
    return design


def _refuse_rows(
    is_wrong: pd.Series, rows: pd.DataFrame, labels: pd.Index, what: str, group: str
) -> None:
    """Name the rows of the table that cannot be used, with their group."""
    wrong = rows.index[is_wrong]
    if not len(wrong):
        return
    listing = ", ".join(f"{labels[index]} ({group} {rows[group][index]})" for index in wrong[:5])
    more = f" and {len(wrong) - 5} more" if len(wrong) > 5 else ""
    raise InputError(f"{what} in the rows {listing}{more}: correct them, or leave them out")


def _refuse_mixtures(table: pd.DataFrame, formula: str, groups: Sequence[str]) -> None:
    words = {*re.findall(r"\w+", formula), *groups}
    if "init" in words:
        raise InputError(
            "compare untrained twins by evaluation.statistics.random_twin_comparison.compare_with_twins, not by a mixed model"
        )
    for name in _KEY_COLUMNS:
        if name in table and name not in words and table[name].nunique(dropna=False) > 1:
            values = ", ".join(map(str, table[name].unique()[:4]))
            raise InputError(
                f"the table mixes several values of {name!r} ({values}): select the rows of one, or put {name} into the formula"
            )


def _drop_repeated_groups(design: ModelDesign, name: str) -> ModelDesign:
    """Leave out groups whose numbers are those of an earlier one: a clip under a second name.

    Whole numbers may agree by chance.
    """
    codes, values = design.groups[name], np.column_stack([design.y, design.x])
    contents, keep = set[bytes](), np.ones(len(codes), dtype=bool)
    for code in np.unique(codes):
        block = values[codes == code]
        content = block[np.lexsort(block.T)].tobytes()
        keep[codes == code] = content not in contents or not (block[:, 0] % 1).any()
        contents.add(content)
    if keep.all():
        return design
    count = len(np.unique(codes)) - len(np.unique(codes[keep]))
    note = f"{count} of {name!r} have the numbers of another and are left out as duplicates"
    groups = {key: np.unique(c[keep], return_inverse=True)[1] for key, c in design.groups.items()}
    notes = (*design.notes, note)
    return replace(design, y=design.y[keep], x=design.x[keep], groups=groups, notes=notes)
