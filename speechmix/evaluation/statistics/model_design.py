"""Responses, predictors and groups of a regression on a long table of results.

In: a table, a formula and the columns of its groups. Out: a `ModelDesign`, without repeated rows and
repeated clips, or an error that says what must not be put into one model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from ...errors import InputError, MissingExtraError
from .intervals import FEWEST_GROUPS
from .sign_flips import corrected_p

# Rows that differ in these are different measurements: one of each, or the column in the formula.
_KEY_COLUMNS = "model init seed stack measure rows head removal window intervention fill".split()


@dataclass(frozen=True, eq=False)
class ModelDesign:
    """What a regression is of.

    Parameters
    ----------
    y : ndarray [rows]
    x : ndarray [rows, terms]
    terms : sequence of str
        Columns of `x`, the intercept among them.
    groups : mapping of str to ndarray [rows]
        Number of the group of each row, by column.
    notes : tuple of str
        What was left out.
    """

    y: np.ndarray
    x: np.ndarray
    terms: Sequence[str]
    groups: Mapping[str, np.ndarray]
    notes: tuple[str, ...] = ()

    def is_constant(self, group: str) -> np.ndarray:
        """Whether each term is the same in all rows of a group, [terms]."""
        codes = self.groups[group]
        first = self.x[np.unique(codes, return_index=True)[1]][codes]
        constant: np.ndarray = np.isclose(self.x, first).all(axis=0)
        return constant

    def partial_out(self, term: int) -> tuple[np.ndarray, np.ndarray]:
        """Return a term and the responses less what the other terms explain of them, [rows]."""
        others = np.delete(self.x, term, axis=1)
        both = np.column_stack([self.x[:, term], self.y])
        rest = both - others @ np.linalg.lstsq(others, both, rcond=None)[0]
        return rest[:, 0], rest[:, 1]

    def sign_flip_p(self, term: int) -> float:
        """Return the two-sided p of a term from sign flips of the groups' scores; the largest over
        columns of groups.

        A group's score is the sum of its rows of `partial_out`, multiplied (Hemerik, Goeman & Finos
        2020, Robust testing in generalized linear models by sign flipping score contributions).
        """
        x, y = self.partial_out(term)
        scores = [np.bincount(codes, x * y) for codes in self.groups.values()]
        return max(float(corrected_p(np.stack([s, -s])).min()) for s in scores)


def build_design(table: pd.DataFrame, formula: str, groups: str | Sequence[str]) -> ModelDesign:
    """Build the design of a formula; see `mixed_model` for arguments and errors."""
    try:
        from statsmodels.regression.linear_model import OLS
    except ImportError as error:
        raise MissingExtraError("statsmodels", "statistics", "a regression") from error
    names = [groups] if isinstance(groups, str) else list(groups)
    missing = [name for name in names if name not in table]
    if missing:
        raise InputError(
            f"the table has no column {missing[0]!r}; it has {', '.join(map(str, table))}"
        )
    _refuse_mixtures(table, formula, names)
    rows = table.loc[~table.astype(str).duplicated()].reset_index(drop=True)
    response = formula.partition("~")[0].strip()
    if response in rows and not set(rows[response].dropna().unique()) - {0, 1}:
        raise InputError(
            f"{response!r} is only true or false: take a number, such as a margin or drop"
        )
    rows = rows.astype(dict.fromkeys(rows.select_dtypes("category"), object))
    try:
        model = OLS.from_formula(formula, rows, missing="drop")
    except Exception as error:  # whatever the parser of formulas raises
        raise InputError(
            f"formula {formula!r}: {error}; columns: {', '.join(map(str, rows))}"
        ) from error
    x, kept = model.exog, rows.loc[model.data.row_labels]
    if np.linalg.matrix_rank(x) < x.shape[1]:
        raise InputError(
            f"{formula!r}: the terms {model.exog_names} are not independent in the table"
        )
    codes = {name: pd.factorize(kept[name].astype(str))[0] for name in names}
    notes = [f"{len(table) - len(rows)} repeated rows are left out"] * (len(rows) < len(table))
    notes += [f"{len(rows) - len(kept)} rows with missing values are left out"] * (
        len(rows) > len(kept)
    )
    design = ModelDesign(model.endog, x, model.exog_names, codes, tuple(notes))
    design = _drop_repeated_groups(design, max(names, key=lambda name: codes[name].max()))
    for name, numbers in design.groups.items():
        if numbers.max() + 1 < FEWEST_GROUPS:
            raise InputError(
                f"{numbers.max() + 1} different values of {name!r}: expected at least {FEWEST_GROUPS}, "
                f"with fewer no interval can be trusted. Add more, or put C({name}) into the formula "
                "in place of a random effect; then conclusions are about these alone"
            )
    return design


def _refuse_mixtures(table: pd.DataFrame, formula: str, groups: Sequence[str]) -> None:
    words = {*re.findall(r"\w+", formula), *groups}
    if "init" in words:
        raise InputError(
            "a mixed model takes untrained twins as if there were no others: compare a trained model "
            "with them by evaluation.statistics.random_twin_comparison.compare_with_twins"
        )
    for name in _KEY_COLUMNS:
        if name in table and name not in words and table[name].nunique(dropna=False) > 1:
            values = ", ".join(map(str, table[name].unique()[:4]))
            raise InputError(
                f"the table mixes several values of {name!r} ({values}): select the rows of one, or "
                f"put {name} into the formula"
            )


def _drop_repeated_groups(design: ModelDesign, name: str) -> ModelDesign:
    """Leave out groups whose numbers are those of an earlier one: a clip under a second name.

    Whole numbers may agree by chance.
    """
    codes, values = design.groups[name], np.column_stack([design.y, design.x])
    first: dict[bytes, int] = {}
    keep = np.ones(len(codes), dtype=bool)
    for code in np.unique(codes):
        block = values[codes == code]
        content = block[np.lexsort(block.T)].tobytes()
        is_repeated = first.setdefault(content, code) != code
        keep[codes == code] = not (is_repeated and (block[:, 0] % 1).any())
    if keep.all():
        return design
    count = len(np.unique(codes)) - len(np.unique(codes[keep]))
    note = (
        f"{count} of {name!r} have the numbers of another and are left out, as the same sound twice"
    )
    return replace(
        design,
        y=design.y[keep],
        x=design.x[keep],
        groups={
            key: np.unique(c[keep], return_inverse=True)[1] for key, c in design.groups.items()
        },
        notes=(*design.notes, note),
    )
