"""Linear CKA, debiased: how similar are the similarities between units in two sets of features?

    CKA(X, Y) = HSIC(K, L) / sqrt(HSIC(K, K) HSIC(L, L)),   K = X X', L = Y Y'

(Kornblith et al. 2019), with the unbiased estimator of HSIC (Song et al. 2012, equation 5; Nguyen et
al. 2021). It is the mean over all i, j, k, l of

    K[i, j] ( L[i, j] + L[k, l] - 2 L[i, k] )

where i, j, k, l are units of *four different groups* of clips: words of one clip, and two copies of
one clip, are not independent. Where each unit is a group, this is Song's formula,

    HSIC = ( tr(K L) + 1'K1 1'L1 / ((n - 1)(n - 2)) - 2 1'K L1 / (n - 2) ) / (n (n - 3)),   diagonals 0.

Many units are divided into batches of whole groups, and numerators are summed over batches, as Nguyen
et al. do.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .unit_reader import MIN_GROUPS, SimilarityEstimate, group_starts


class _Kernel(NamedTuple):
    """The products of a batch of units: sums by group have one more group, empty, to leave out."""

    products: np.ndarray  # [n, n], 0 within a group
    by_group: np.ndarray  # [n, g + 1], sums over the units of each group
    owners: np.ndarray  # [n], group of each unit
    starts: np.ndarray  # [g]
    sizes: np.ndarray  # [g + 1]


class CkaFeatures(NamedTuple):
    """Features prepared for CKA: a kernel for each batch, and HSIC with themselves."""

    kernels: list[_Kernel]
    own_sums: list[np.ndarray]


def prepare_cka(features: np.ndarray, groups: np.ndarray, *, batch_size: int = 2000) -> CkaFeatures:
    """Compute the kernels of features [N, D] of units in ascending groups [N] (see `group_starts`):
    one for each batch of whole groups, five or more, with about `batch_size` units."""
    starts = group_starts(groups)
    centred = features - features.mean(axis=0)
    centred /= np.sqrt((centred**2).sum() / len(centred)) or 1.0
    count = min(len(starts) // MIN_GROUPS, -(-len(centred) // batch_size))
    kernels = []
    for batch_groups in np.array_split(np.arange(len(starts)), max(count, 1)):
        is_chosen = (groups >= batch_groups[0]) & (groups <= batch_groups[-1])
        kernels.append(_build_kernel(centred[is_chosen], groups[is_chosen] - batch_groups[0]))
    return CkaFeatures(kernels, [_hsic_sums(kernel, kernel) for kernel in kernels])


def _build_kernel(features: np.ndarray, owners: np.ndarray) -> _Kernel:
    starts = group_starts(owners)
    products = features @ features.T
    products[owners[:, None] == owners] = 0
    by_group = np.pad(np.add.reduceat(products, starts, axis=1), ((0, 0), (0, 1)))
    sizes = np.append(np.bincount(owners), 0).astype(float)
    return _Kernel(products, by_group, owners, starts, sizes)


def compare_cka(first: CkaFeatures, second: CkaFeatures) -> SimilarityEstimate:
    """Return the CKA of two prepared sets of features of the same units; NaN if HSIC of one with
    itself is not positive: its units do not differ more than noise."""
    both = [_hsic_sums(*pair) for pair in zip(first.kernels, second.kernels, strict=True)]
    joint_hsic, first_hsic, second_hsic = map(
        _leave_one_out, (both, first.own_sums, second.own_sums)
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        values = joint_hsic / np.sqrt(
            np.where((first_hsic > 0) & (second_hsic > 0), first_hsic * second_hsic, np.nan)
        )
    return SimilarityEstimate(float(values[-1]), values[:-1])


def _leave_one_out(sums: list[np.ndarray]) -> np.ndarray:
    """Join batches [g + 1] to the sums over all batches without each group, and of all [G + 1]."""
    total = sum(batch[-1] for batch in sums)
    return np.append(np.concatenate([total - batch[-1] + batch[:-1] for batch in sums]), total)


def _hsic_sums(first: _Kernel, second: _Kernel) -> np.ndarray:
    """Sum K[i, j] (L[i, j] + L[k, l] - 2 L[i, k]) over units of four groups, without each group.

    Returns [g + 1]: without group 0, 1, ..., and last of all groups.
    """
    sizes, starts = first.sizes, first.starts
    total, squares = sizes.sum(), (sizes**2).sum()
    # K[i, j] L[i, j]: (total - n_a - n_b)^2 - (squares - n_a^2 - n_b^2) pairs k, l for each
    product = np.add.reduceat(first.products * second.products, starts, axis=0)
    pairs = np.pad(np.add.reduceat(product, starts, axis=1), (0, 1))  # [g + 1, g + 1]
    rest = total - sizes[:, None] - sizes
    rest_pairs = rest**2 - (squares - sizes[:, None] ** 2 - sizes**2)
    first_term = (
        _without_each(pairs * rest_pairs)
        - 2 * sizes * _without_each(pairs * rest)
        + 2 * sizes**2 * _without_each(pairs)
    )
    # K[i, j] L[k, l], of groups
    one, two = (
        np.pad(np.add.reduceat(kernel.by_group, starts, axis=0), ((0, 1), (0, 0)))
        for kernel in (first, second)
    )
    rows, columns = one.sum(axis=1), two.sum(axis=1)
    shared = ((rows[:, None] - one) * (columns[:, None] - two)).sum(axis=0) - rows * columns
    second_term = _without_each(one) * _without_each(two) - 4 * shared
    second_term += 2 * _without_each(one * two)
    sums: np.ndarray = first_term + second_term - 2 * _sum_triples(first, second)
    return sums


def _without_each(matrix: np.ndarray) -> np.ndarray:
    """Sum a symmetric matrix with an empty diagonal without row and column g, for each g."""
    without: np.ndarray = matrix.sum() - 2 * matrix.sum(axis=1)
    return without


def _sum_triples(first: _Kernel, second: _Kernel) -> np.ndarray:
    """Sum K[i, j] L[i, k] over units of three groups, times the units l of other groups."""
    sizes, owners = first.sizes, first.owners
    terms = (first.by_group, second.by_group, first.by_group * second.by_group)  # [n, g + 1]
    weighted = [(term @ sizes)[:, None] - sizes * term for term in terms]
    rest = [term.sum(axis=1)[:, None] - term for term in terms]
    others = sizes.sum() - sizes - sizes[owners][:, None]
    triples = others * (rest[0] * rest[1] - rest[2])
    triples += 2 * weighted[2] - weighted[0] * rest[1] - rest[0] * weighted[1]
    owner_triples = triples[np.arange(len(owners)), owners]  # i in the group that is left out
    sums: np.ndarray = triples.sum(axis=0) - np.bincount(
        owners, owner_triples, minlength=len(sizes)
    )
    return sums
