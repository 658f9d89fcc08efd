"""Definitions of similarity, written again from the papers, slow and without the package's code."""

from __future__ import annotations

import itertools

import numpy as np
from scipy.stats import spearmanr


def song_cka(x, y):
    """Debiased CKA: equation 5 of Song et al. 2012, sums written out."""
    n = len(x)

    def hsic(k, m):
        trace = sum(k[i, j] * m[j, i] for i in range(n) for j in range(n) if i != j)
        sums = [sum(g[i, j] for i in range(n) for j in range(n) if i != j) for g in (k, m)]
        chain = sum(
            k[i, j] * m[j, q]
            for i in range(n)
            for j in range(n)
            for q in range(n)
            if i != j and j != q
        )
        inner = trace + sums[0] * sums[1] / ((n - 1) * (n - 2)) - 2 * chain / (n - 2)
        return inner / (n * (n - 3))

    k, m = x @ x.T, y @ y.T
    return hsic(k, m) / np.sqrt(hsic(k, k) * hsic(m, m))


def grouped_cka(x, y, groups, without=None):
    """The mean over all units i, j, q, r of four different groups."""

    def hsic(k, m):
        terms = [
            k[i, j] * (m[i, j] + m[q, r] - 2 * m[i, q])
            for i, j, q, r in itertools.permutations(range(len(x)), 4)
            if len({groups[i], groups[j], groups[q], groups[r], without}) == 5
        ]
        return np.mean(terms)

    k, m = x @ x.T, y @ y.T
    return hsic(k, m) / np.sqrt(hsic(k, k) * hsic(m, m))


def canonical(x, y):
    """Canonical correlations and the variates of x, as an eigenvalue problem of the covariances."""
    x, y = x - x.mean(axis=0), y - y.mean(axis=0)
    product = np.linalg.inv(x.T @ x) @ (x.T @ y) @ np.linalg.inv(y.T @ y) @ (y.T @ x)
    values, vectors = np.linalg.eig(product)
    order = np.argsort(-values.real)[: min(x.shape[1], y.shape[1])]
    variates = x @ vectors.real[:, order]
    return np.sqrt(values.real[order].clip(0)), variates / np.linalg.norm(variates, axis=0)


def pwcca(x, y):
    correlations, variates = canonical(x, y)
    centred = x - x.mean(axis=0)
    weights = [sum(abs(h @ neuron) for neuron in centred.T) for h in variates.T]
    return sum(w * r for w, r in zip(weights, correlations, strict=True)) / sum(weights)


def cosine_rsa(x, y, groups):
    def distances(z):
        z = z - z.mean(axis=0)
        unit = z / np.linalg.norm(z, axis=1, keepdims=True)
        return [
            1 - unit[i] @ unit[j]
            for i, j in itertools.combinations(range(len(z)), 2)
            if groups[i] != groups[j]
        ]

    return spearmanr(distances(x), distances(y)).statistic


def abx(x, labels, groups, without=None):
    """1 - 2 x the error of Schatz et al. 2013, triple by triple, Euclidean."""
    errors = []
    for a, b in itertools.permutations(sorted(set(labels)), 2):
        found = []
        for i, j, q in itertools.product(range(len(x)), repeat=3):
            if (labels[i], labels[j], labels[q]) != (a, a, b) or groups[i] in (
                groups[j],
                groups[q],
            ):
                continue
            if without in (groups[i], groups[j], groups[q]):
                continue
            near, far = np.linalg.norm(x[i] - x[j]), np.linalg.norm(x[i] - x[q])
            found.append(1.0 if near > far else 0.5 if near == far else 0.0)
        if found:
            errors.append(np.mean(found))
    return 1 - 2 * np.mean(errors)


def information(clusters, labels):
    """Plug-in mutual information in nats."""
    pairs = list(zip(clusters, labels, strict=True))
    n = len(pairs)
    return sum(
        pairs.count((c, v))
        / n
        * np.log(pairs.count((c, v)) * n / (list(clusters).count(c) * list(labels).count(v)))
        for c, v in set(pairs)
    )


def corrected_information(clusters, labels):
    """The correction by all permutations, one by one."""
    expected = np.mean([information(clusters, order) for order in itertools.permutations(labels)])
    possible = information(labels, labels)
    return (information(clusters, labels) - expected) / (possible - expected)
