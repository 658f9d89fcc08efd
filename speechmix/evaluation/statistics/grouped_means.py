"""Compute group means of a long table with millions of rows, and rank correlations of measures.

Means equal those of ``table.groupby(keys, sort=False)[value].mean().reset_index()``, in the same
order. Keys become one whole number for each row; a key that follows from others, as a clip's group
follows from the clip, adds nothing to it. Columns may be categories, and stay categories.

The values of two measures cannot be compared (cue_contribution.py). Their ranks can: Spearman's
correlation says whether two measures agree on clips, or on layers.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

# Group numbers may have gaps, up to `_MAX_SPARSITY` numbers for each row and `_MAX_SMALL_COUNT`
# more. Beyond that, `_renumber` closes the gaps; up to `_MAX_LOOKUP_SIZE` numbers for each row by a
# lookup table, else by hashing, which is slower and takes less memory.
_MAX_SPARSITY = 2
_MAX_SMALL_COUNT = 2**16
_MAX_LOOKUP_SIZE = 16

# A row as `DataFrame.to_dict("records")` gives it; each column has a type of its own.
TableRow = Mapping[Hashable, Any]


def grouped_means(
    table: pd.DataFrame, keys: Sequence[str], value: str, *, sort: bool = False
) -> pd.DataFrame:
    """Average each group of rows, without rows that lack a key.

    Groups come in the order of their first rows, or with `sort` in that of their keys.
    """
    groups = KeyGroups.by_keys(table, keys)
    values = groups.average(table[value].to_numpy(dtype=float, na_value=np.nan))
    means = pd.DataFrame({**groups.first_values(table, keys), value: values}, copy=False)
    return means.sort_values(list(keys), ignore_index=True) if sort else means


@dataclass(frozen=True)
class KeyGroups:
    """Rows of a table grouped by their keys; groups come in the order of their first rows."""

    group_numbers: np.ndarray  # [rows], -1 for a row that lacks a key
    number_count: int  # of possible group numbers
    first_rows: np.ndarray  # [groups], index of the first row of each group

    @classmethod
    def by_keys(cls, table: pd.DataFrame, keys: Sequence[str]) -> KeyGroups:
        """Group the rows of a table."""
        group_numbers, count = _number_groups([table[name] for name in keys])
        return cls(group_numbers, count, _first_row_indices(group_numbers, count))

    def average(self, values: np.ndarray) -> np.ndarray:
        """Average the values [rows] within each group [groups]. NaN is ignored; a group of NaN
        alone gets NaN."""
        if len(self.first_rows) == len(values):
            return values.copy()
        by_number = _group_means(values, self.group_numbers, self.number_count)
        means: np.ndarray = by_number[self.group_numbers[self.first_rows]]
        return means

    def first_values(
        self, table: pd.DataFrame, names: Sequence[Hashable]
    ) -> dict[Hashable, object]:
        """Return the value of some columns in the first row of each group."""
        return _select_columns(table, names, self.first_rows)


def distinct_keys(table: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Return the distinct keys in the order of their first rows, without rows that lack one.

    Examples
    --------
    >>> distinct_keys(pd.DataFrame({"clip": ["b", "a", "b"], "layer": [0, 0, 0]}), ["clip", "layer"]).to_dict("list")
    {'clip': ['b', 'a'], 'layer': [0, 0]}
    """
    return pd.DataFrame(KeyGroups.by_keys(table, keys).first_values(table, keys), copy=False)


def select_cells(
    table: pd.DataFrame, columns: Sequence[Hashable], is_taken: pd.Series | np.ndarray
) -> pd.DataFrame:
    """Return some columns of some rows with their index; without a copy if all rows are selected.

    Examples
    --------
    >>> table = pd.DataFrame({"clip": ["a", "b"], "layer": [0, 1], "share": [0.1, 0.2]})
    >>> select_cells(table, ["clip", "share"], table["layer"] == 1).to_dict("list")
    {'clip': ['b'], 'share': [0.2]}
    """
    rows = np.flatnonzero(is_taken)
    index = table.index if len(rows) == len(table) else table.index.take(rows)
    return pd.DataFrame(_select_columns(table, columns, rows), index=index, copy=False)


def _select_columns(
    table: pd.DataFrame, names: Sequence[Hashable], rows: np.ndarray
) -> dict[Hashable, object]:
    """Return columns of some rows; those of the table itself if all rows are selected."""
    if len(rows) == len(table):
        return {name: table[name].array for name in names}
    return {name: table[name].array.take(rows) for name in names}


def _number_groups(columns: Sequence[pd.Series]) -> tuple[np.ndarray, int]:
    """Return the group number of each row, -1 if a key is missing, and the number of possible
    groups."""
    rows = len(columns[0])
    max_count = _MAX_SPARSITY * rows + _MAX_SMALL_COUNT
    group_numbers, count, is_missing = np.zeros(rows, dtype=np.int64), 1, np.zeros(rows, dtype=bool)
    # The key of most values first: others may follow from it.
    for column, codes, code_count in sorted(
        map(_encode_column, columns), key=lambda coded: -coded[2]
    ):
        if code_count < 2 and (codes == 0).all():
            continue
        is_small = code_count and count * code_count <= max_count
        if not is_small and _is_determined(codes, group_numbers, count):
            continue
        if code_count == 0:
            codes, labels = pd.factorize(column)
            code_count = len(labels)
        is_missing_code = codes < 0
        if is_missing_code.any():
            codes, is_missing = np.where(is_missing_code, 0, codes), is_missing | is_missing_code
        group_numbers *= max(code_count, 1)
        group_numbers += codes
        count *= max(code_count, 1)
        if count > max_count:
            group_numbers, count = _renumber(group_numbers, count)
    if is_missing.any():
        group_numbers[is_missing] = -1
    return group_numbers, count


def _renumber(group_numbers: np.ndarray, count: int) -> tuple[np.ndarray, int]:
    """Close the gaps: number the present groups one after the other."""
    if count > _MAX_LOOKUP_SIZE * len(group_numbers):
        renumbered, distinct_numbers = pd.factorize(group_numbers)
        return renumbered, len(distinct_numbers)
    is_present = np.zeros(count, dtype=bool)
    is_present[group_numbers] = True
    distinct_numbers = np.flatnonzero(is_present)
    new_numbers = np.empty(count, dtype=np.int32)
    new_numbers[distinct_numbers] = np.arange(len(distinct_numbers), dtype=np.int32)
    return new_numbers[group_numbers].astype(np.int64), len(distinct_numbers)


def _encode_column(column: pd.Series) -> tuple[pd.Series, np.ndarray, int]:
    """Return a column, a code for each row (-1 if missing), and the number of possible codes.

    Of fractions they themselves, and 0: they may follow from other keys, and looking for equal ones
    is slow.
    """
    if isinstance(column.dtype, pd.CategoricalDtype):
        return column, column.cat.codes.to_numpy(), len(column.cat.categories)
    if isinstance(column.dtype, np.dtype) and column.dtype.kind == "f":
        return column, column.to_numpy(), 0
    if pd.api.types.is_integer_dtype(column.dtype) and column.notna().any():
        lowest, highest = int(column.min()), int(column.max())
        if highest - lowest < _MAX_SMALL_COUNT:
            codes = (column - lowest).to_numpy(dtype=np.int64, na_value=-1)
            return column, codes, highest - lowest + 1
    codes, labels = pd.factorize(column)
    return column, codes, len(labels)


def _is_determined(codes: np.ndarray, group_numbers: np.ndarray, count: int) -> bool:
    """Whether rows of the same number have the same code, and none lacks one."""
    code_by_number = np.empty(count, dtype=codes.dtype)
    code_by_number[group_numbers] = codes
    return bool((code_by_number[group_numbers] == codes).all() and not (codes < 0).any())


def _first_row_indices(group_numbers: np.ndarray, count: int) -> np.ndarray:
    """Return the first row of each group number, in order."""
    rows = len(group_numbers)
    if rows and group_numbers[0] >= 0 and (group_numbers[1:] > group_numbers[:-1]).all():
        return np.arange(rows)
    first_rows = np.full(count + 1, -1)  # the last for rows that lack a key
    first_rows[group_numbers[::-1]] = np.arange(rows)[::-1]  # the last that is written stays
    is_first = np.zeros(rows, dtype=bool)
    is_first[first_rows[:-1][first_rows[:-1] >= 0]] = True
    return np.flatnonzero(is_first)


def _group_means(values: np.ndarray, group_numbers: np.ndarray, count: int) -> np.ndarray:
    """Average the values of each group number [count]; NaN for one without values.

    A first mean is corrected by the mean of what is left. pandas 3.1 sums sorted groups otherwise
    than unsorted ones, so that the last bit would depend on how groups are numbered.
    """
    is_counted = (group_numbers >= 0) & ~np.isnan(values)
    numbers, counted = group_numbers, values
    if not is_counted.all():
        numbers, counted = group_numbers[is_counted], values[is_counted]
    sizes = np.bincount(numbers, minlength=count)
    with np.errstate(invalid="ignore"):
        means = np.bincount(numbers, weights=counted, minlength=count) / sizes
        correction = np.bincount(numbers, weights=counted - means[numbers], minlength=count) / sizes
    return np.where(np.isfinite(correction), means + correction, means)


def label_indices(column: pd.Series, *, sort: bool = False) -> tuple[pd.Index, np.ndarray]:
    """Return the values of a column in order of first rows (or sorted), and their index in each
    row; -1 if missing.

    Examples
    --------
    >>> labels, indices = label_indices(pd.Series(["b", None, "a", "b"]))
    >>> labels.tolist(), indices.tolist()
    (['b', 'a'], [0, -1, 1, 0])
    """
    if not isinstance(column.dtype, pd.CategoricalDtype):
        indices, labels = pd.factorize(column, sort=sort)
        return pd.Index(labels), indices
    codes, categories = column.cat.codes.to_numpy(), column.cat.categories
    run_starts = codes[_is_changed(codes)]  # a value that comes again and again is looked at once
    distinct_codes = (
        np.unique(run_starts[run_starts >= 0]) if sort else pd.unique(run_starts[run_starts >= 0])
    )
    index_by_code = np.full(len(categories) + 1, -1)  # the last for a code of -1
    index_by_code[distinct_codes] = np.arange(len(distinct_codes))
    return pd.CategoricalIndex(
        pd.Categorical.from_codes(distinct_codes.tolist(), dtype=column.dtype)
    ), index_by_code[codes]


def iterate_matrices(
    means: pd.DataFrame, by: Sequence[str], *, rows: str, columns: str, value: str
) -> Iterator[tuple[tuple[Hashable, ...], pd.DataFrame]]:
    """Yield for each key the numbers of a long table as a matrix, NaN for missing cells.

    The table comes from `grouped_means` by `by`, `rows` and `columns`. A matrix has the rows of its
    key, and the columns of all keys.
    """
    group_numbers, keys = np.zeros(len(means), dtype=np.int64), 1
    labels = []
    for name in by:
        column_of_labels, indices = label_indices(means[name])
        labels.append(column_of_labels)
        keys *= len(column_of_labels)
        group_numbers = group_numbers * len(column_of_labels) + indices
    (row_labels, row), (column_labels, column) = (
        label_indices(means[rows]),
        label_indices(means[columns]),
    )
    values = means[value].to_numpy(dtype=float)
    order = np.argsort(
        group_numbers.astype(np.uint16) if keys <= _MAX_SMALL_COUNT else group_numbers,
        kind="stable",
    )  # of so few by counting
    starts = np.flatnonzero(_is_changed(group_numbers[order]))
    for row_indices in np.split(order, starts[1:]) if len(starts) else ():
        is_present = np.zeros(len(row_labels), dtype=bool)
        is_present[row[row_indices]] = True
        matrix = np.full((is_present.sum(), len(column_labels)), np.nan)
        matrix[(is_present.cumsum() - 1)[row[row_indices]], column[row_indices]] = values[
            row_indices
        ]
        key = tuple(means[name].iat[row_indices[0]] for name in by)
        yield (
            key,
            pd.DataFrame(
                matrix,
                index=decode_labels(row_labels[is_present]),
                columns=decode_labels(column_labels),
            ),
        )


def _is_changed(numbers: np.ndarray) -> np.ndarray:
    """Whether a number is another than the one before; so is the first."""
    return np.concatenate([[True], numbers[1:] != numbers[:-1]])[: len(numbers)]


def decode_labels(labels: pd.Index) -> pd.Index:
    """Convert categorical labels to plain values."""
    return (
        pd.Index(labels.categories.take(labels.codes))
        if isinstance(labels, pd.CategoricalIndex)
        else labels
    )


_MIN_VALUES = 3  # values that a rank correlation needs to say anything

_COLUMNS = ["measure", "other", "rho", "p", "n"]


def measure_agreement(
    table: pd.DataFrame, *, by: Sequence[str] = ("model", "init", "stack")
) -> pd.DataFrame:
    """Rank correlation over clips between measures, in each layer.

    Parameters
    ----------
    table : DataFrame
        Columns of `by`, layer, clip, measure, contribution; other columns (seeds) are averaged
        over.
    by : sequence of str

    Returns
    -------
    DataFrame
        Columns of `by`, layer, measure, other, rho (-1 to 1; NaN where a measure does not vary), p,
        n (clips).

    Examples
    --------
    >>> table = pd.DataFrame({"layer": 0, "clip": list("abcd") * 2, "measure": ["one"] * 4 + ["two"] * 4,
    ...                       "contribution": [1, 2, 3, 4, 10, 30, 20, 40], "model": "m"})
    >>> float(measure_agreement(table, by=["model"]).rho[0].round(6))
    0.8
    """
    return _correlate_measures(table, [*by, "layer"], "clip")


def curve_agreement(
    table: pd.DataFrame, *, by: Sequence[str] = ("model", "init", "stack")
) -> pd.DataFrame:
    """Correlate the ranks of layers in the mean curves of measures: do they peak in the same
    layers?

    The table has the columns of `by`, measure, other, rho, p, n (layers).
    """
    means = grouped_means(table, [*by, "measure", "layer"], "contribution")
    return _correlate_measures(means, list(by), "layer")


def _correlate_measures(table: pd.DataFrame, by: list[str], over: str) -> pd.DataFrame:
    from scipy.stats import spearmanr

    rows = []
    for key, table_part in table.groupby(by, sort=False, observed=True):
        values = table_part.pivot_table(
            index=over,
            columns="measure",
            values="contribution",
            aggfunc="mean",
            sort=False,
            observed=True,
        )
        for measure, other_measure in itertools.combinations(values, 2):
            pair = values[[measure, other_measure]].dropna()
            has_variance = len(pair) >= _MIN_VALUES and all(np.ptp(pair[name]) > 0 for name in pair)
            rho, p = (
                spearmanr(pair[measure], pair[other_measure]) if has_variance else (np.nan, np.nan)
            )
            correlation = dict(
                zip(
                    _COLUMNS, (measure, other_measure, float(rho), float(p), len(pair)), strict=True
                )
            )
            rows.append(
                {
                    **dict(zip(by, key if isinstance(key, tuple) else (key,), strict=True)),
                    **correlation,
                }
            )
    return pd.DataFrame(rows, columns=[*by, *_COLUMNS])
