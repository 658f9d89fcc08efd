"""Means of groups of rows of a long table, quickly: what pandas' groupby gives, for millions of rows with keys of text.

In: a table whose columns of text may be categories (as a run's contributions are read), keys, a column of numbers. Out: means,
to the last digit and in the order of ``table.groupby(keys, sort=False)[value].mean().reset_index()``: keys become one whole
number a row before pandas groups by it. Categories stay categories, and only those that are there make a group.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

import numpy as np
import pandas as pd

_LARGEST = 2**62  # number of a row


def grouped_means(table: pd.DataFrame, keys: Sequence[str], value: str, *, sort: bool = False) -> pd.DataFrame:
    """Mean of each group of rows; rows that lack a key are left out.

    Parameters
    ----------
    table : DataFrame
    keys : sequence of str
    value : str
    sort : bool
        Groups in the order of their keys; by default in that of their first rows.

    Returns
    -------
    DataFrame
        Columns of `keys`, and `value`.

    Examples
    --------
    >>> table = pd.DataFrame({"clip": ["b", "a", "b"], "layer": [0, 0, 0], "share": [0.1, 0.2, 0.3]})
    >>> grouped_means(table, ["clip", "layer"], "share").to_dict("list")
    {'clip': ['b', 'a'], 'layer': [0, 0], 'share': [0.2, 0.2]}
    """
    labels, places = zip(*(numbered(table[name], sort=sort) for name in keys), strict=True)
    number, former = _one_number(places, [len(column) for column in labels])
    if not sort and _are_groups_of_one(number):
        rows = table[[*keys, value]].reset_index(drop=True)
        return rows.astype({value: float})
    means = table[value].reset_index(drop=True)[number >= 0].groupby(number[number >= 0], sort=sort).mean()
    rest, columns = means.index.to_numpy(), {}
    for name, column, numbers in zip(reversed(keys), reversed(labels), reversed(former), strict=True):
        columns[name] = column.take(rest % max(len(column), 1))
        rest = rest // max(len(column), 1)
        rest = rest if numbers is None else numbers[rest]
    return pd.DataFrame({**{name: columns[name] for name in keys}, value: means.to_numpy()})


def _are_groups_of_one(number: np.ndarray) -> bool:
    """Whether no two rows share a number, and none lacks a key: nothing is to be averaged."""
    if len(number) == 0 or number.min() < 0:
        return False
    return bool((np.diff(number) > 0).all()) or pd.Index(number).is_unique


def numbered(column: pd.Series, *, sort: bool = False) -> tuple[pd.Index, np.ndarray]:
    """Values of a column in the order of their first rows (or sorted), and for each row which it is; -1 where one is missing.

    Examples
    --------
    >>> labels, place = numbered(pd.Series(["b", None, "a", "b"]))
    >>> labels.tolist(), place.tolist()
    (['b', 'a'], [0, -1, 1, 0])
    """
    if not isinstance(column.dtype, pd.CategoricalDtype):
        place, labels = pd.factorize(column, sort=sort)
        return pd.Index(labels), place
    codes, categories = column.cat.codes.to_numpy(), column.cat.categories
    present = np.unique(codes[codes >= 0]) if sort else pd.unique(codes[codes >= 0])
    places = np.full(len(categories) + 1, -1)  # the last for a code of -1
    places[present] = np.arange(len(present))
    return pd.CategoricalIndex(pd.Categorical.from_codes(present.tolist(), dtype=column.dtype)), places[codes]


def _one_number(places: Sequence[np.ndarray], sizes: Sequence[int]) -> tuple[np.ndarray, list[np.ndarray | None]]:
    """Keys as the digits of one number, the first the most; -1 where one is missing.

    Before a key that would make it too large, the numbers that there are get numbers in their order; these numbers are
    returned, too, None for other keys.
    """
    number, lacks = np.zeros(len(places[0]), dtype=np.int64), np.zeros(len(places[0]), dtype=bool)
    former: list[np.ndarray | None] = []
    count = 1  # of numbers that there may be
    for place, size in zip(places, sizes, strict=True):
        former.append(None)
        if count * size > _LARGEST:
            present, number = np.unique(number, return_inverse=True)
            former[-1], count = present, len(present)
        number *= max(size, 1)
        number += place
        count *= max(size, 1)
        lacks |= place < 0
    number[lacks] = -1
    return number, former


def matrices(
    means: pd.DataFrame, by: Sequence[str], *, rows: str, columns: str, value: str
) -> Iterator[tuple[tuple[Hashable, ...], pd.DataFrame]]:
    """For each key the numbers of a long table as a matrix, NaN where there is none; keys, rows, columns as they first come.

    Parameters
    ----------
    means : DataFrame
        From `grouped_means` by `by`, `rows` and `columns`.
    by : sequence of str
    rows, columns : str
        Columns of the table that become the matrix's rows (those of the key) and columns (those of all keys).
    value : str

    Examples
    --------
    >>> means = pd.DataFrame({"layer": [0, 0, 1], "clip": ["a", "b", "a"], "init": ["x", "x", "y"], "share": [1, 2, 3]})
    >>> parts = matrices(means, ["layer"], rows="clip", columns="init", value="share")
    >>> [(int(layer), matrix.to_dict("list")) for (layer,), matrix in parts]
    [(0, {'x': [1.0, 2.0], 'y': [nan, nan]}), (1, {'x': [nan], 'y': [3.0]})]
    """
    labels, places = zip(*(numbered(means[name]) for name in by), strict=True)
    number, _ = _one_number(places, [len(column) for column in labels])
    (row_labels, row), (column_labels, column) = numbered(means[rows]), numbered(means[columns])
    values = means[value].to_numpy(dtype=float)
    order = np.argsort(number, kind="stable")
    starts = np.flatnonzero(np.diff(number[order], prepend=-1)) if len(order) else np.array([], dtype=int)
    for here in np.split(order, starts[1:]) if len(starts) else ():
        present = np.unique(row[here])
        matrix = np.full((len(present), len(column_labels)), np.nan)
        matrix[np.searchsorted(present, row[here]), column[here]] = values[here]
        key = tuple(column_of_labels[place[here[0]]] for column_of_labels, place in zip(labels, places, strict=True))
        yield key, pd.DataFrame(matrix, index=plain(row_labels.take(present)), columns=plain(column_labels))


def plain(labels: pd.Index) -> pd.Index:
    """Labels that were categories as what they are."""
    return pd.Index(labels.categories.take(labels.codes)) if isinstance(labels, pd.CategoricalIndex) else labels
