"""The measures of similarity, in one table: how features are prepared, and how two are compared.

A measure is one file with two functions, and one entry in `SIMILARITY_MEASURES`, also from outside.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import InputError
from .canonical_correlations import compare_cca, prepare_cca
from .debiased_cka import compare_cka, prepare_cka
from .grouped_units import SimilarityEstimate
from .label_discrimination import (
    LabelCodes,
    compare_abx,
    compare_clusters,
    prepare_abx,
    prepare_clusters,
)
from .pair_ranks import compare_rsa, prepare_rsa


@dataclass(frozen=True)
class SimilarityMeasure:
    """A measure of similarity.

    Parameters
    ----------
    name : str
    label : str
        Of an axis.
    prepare : callable
        ``prepare(features, groups, **options)``: of one set of features [N, D], with the ascending
        numbers of groups [N], what `compare` needs. Its keyword arguments are the options.
    compare : callable
        ``compare(first, second)`` of two prepared sets of the same units returns an `SimilarityEstimate`.
    needs_labels : bool
        The second is `LabelCodes`, not features.
    """

    name: str
    label: str
    prepare: Callable[..., Any]
    compare: Callable[[Any, Any], SimilarityEstimate]
    needs_labels: bool = False

    def prepare_second(self, values: np.ndarray, groups: np.ndarray, **options: Any) -> Any:
        """Prepare what features are compared with: labels [N], or other features [N, D]."""
        if self.needs_labels:
            return LabelCodes(values, groups)
        return self.prepare(values, groups, **options)


SIMILARITY_MEASURES: dict[str, SimilarityMeasure] = {
    measure.name: measure
    for measure in (
        SimilarityMeasure("cka", "linear CKA, debiased", prepare_cka, compare_cka),
        SimilarityMeasure("cca", "held-out canonical correlation", prepare_cca, compare_cca),
        SimilarityMeasure("rsa", "RSA (Spearman correlation)", prepare_rsa, compare_rsa),
        SimilarityMeasure("abx", "ABX: 1 - 2 x error", prepare_abx, compare_abx, True),
        SimilarityMeasure(
            "mutual_information", "mutual information", prepare_clusters, compare_clusters, True
        ),
    )
}


_SMALLEST = {"batch_size": 1, "components": 1, "folds": 2, "clusters": 2}  # values of options


def find_similarity(name: str, options: Mapping[str, Any]) -> SimilarityMeasure:
    """Return the measure of this name, if it takes these options.

    Raises
    ------
    InputError
        If there is none, or it does not, or a number is too small.
    """
    if name not in SIMILARITY_MEASURES:
        names = ", ".join(SIMILARITY_MEASURES)
        raise InputError(f"measure should be one of {names}, found {name!r}")
    measure = SIMILARITY_MEASURES[name]
    option_names = [*inspect.signature(measure.prepare).parameters][2:]
    if unknown := sorted(set(options) - set(option_names)):
        raise InputError(
            f"measure {name!r} has no option {unknown[0]!r}; it takes {', '.join(option_names) or 'none'}"
        )
    for option, least in _SMALLEST.items():
        if option in options and not options[option] >= least:
            raise InputError(f"{option} should be {least} or more, found {options[option]}")
    return measure


def estimate_similarity(
    first: np.ndarray,
    second: np.ndarray,
    groups: np.ndarray | None = None,
    *,
    measure: str = "cka",
    **options: Any,
) -> SimilarityEstimate:
    """Compare two arrays of features of the same units.

    Parameters
    ----------
    first : ndarray [N, D]
    second : ndarray [N, E]
        Of "abx" and "mutual_information" labels [N].
    groups : ndarray [N], optional
        What belongs together, such as the clip of each unit: groups are what the interval is over.
        By default each unit is a group.
    measure : str
        "cka", "cca", "rsa", "abx", "mutual_information", or another of `SIMILARITY_MEASURES`.
    **options
        Of the measure.

    Returns
    -------
    SimilarityEstimate
        ``value``, ``interval`` (95 % over groups).

    Raises
    ------
    InputError
        For arrays of different lengths, values that are not finite, fewer than five groups, or an
        unknown measure or option.

    Examples
    --------
    >>> x = np.random.default_rng(0).standard_normal((100, 5))
    >>> round(estimate_similarity(x, x[:, ::-1] * 2 + 1).value, 6)
    1.0
    """
    similarity_measure = find_similarity(measure, options)
    x, y = np.asarray(first, dtype=float), np.asarray(second)
    y = y if similarity_measure.needs_labels else y.astype(float)
    keys = np.arange(len(x)) if groups is None else np.asarray(groups)
    if (
        x.ndim != 2
        or len({len(x), len(y), len(keys)}) > 1
        or y.ndim != 2 - similarity_measure.needs_labels
    ):
        wanted = "labels [N]" if similarity_measure.needs_labels else "features [N, E]"
        raise InputError(
            f"expected features [N, D], {wanted} and groups [N], found {x.shape}, {y.shape}, {keys.shape}"
        )
    if not (np.isfinite(x).all() and (similarity_measure.needs_labels or np.isfinite(y).all())):
        raise InputError("features have values that are not finite: leave those units out")
    codes = np.unique(keys, return_inverse=True)[1]
    order = np.argsort(codes, kind="stable")
    codes = codes[order]
    prepared = similarity_measure.prepare(x[order], codes, **options)
    return similarity_measure.compare(
        prepared, similarity_measure.prepare_second(y[order], codes, **options)
    )
