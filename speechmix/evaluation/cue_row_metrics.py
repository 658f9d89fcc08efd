"""How well the scores of one row point to its cue: share, average precision, and what chance gives."""

from __future__ import annotations

import numpy as np

from ..errors import InputError


def dot_product(shares: np.ndarray, cue: np.ndarray) -> np.ndarray:
    """Return the share [...] of the cue columns (bool [K]) in rows [..., K] that sum to one.

    Examples
    --------
    >>> float(dot_product(np.array([0.5, 0.2, 0.3]), np.array([True, False, True])))
    0.8
    """
    shares, cue = _check_shapes(shares, cue)
    cue_shares: np.ndarray = shares[..., cue].sum(axis=-1)
    return cue_shares


def average_precision(scores: np.ndarray, cue: np.ndarray) -> np.ndarray:
    """Average the precision at each cue column; only the order of the scores matters.

    Scores are [..., K], the cue is bool [K]. The result [...] lies between the share of cue columns
    (or less) and 1; it is NaN for a row with a score that is not finite.

    Examples
    --------
    >>> cue = np.array([True, False, True, False])
    >>> float(average_precision(np.array([0.4, 0.3, 0.2, 0.1]), cue)).__round__(3)  # (1/1 + 2/3) / 2
    0.833
    >>> float(average_precision(np.array([0.25, 0.25, 0.25, 0.25]), cue))
    0.5
    """
    scores, cue = _check_shapes(scores, cue)
    is_above = scores[..., None, :] >= scores[..., cue][..., :, None]  # [..., cue columns, K]
    precision = is_above[..., cue].sum(axis=-1) / np.maximum(is_above.sum(axis=-1), 1)
    return np.where(np.isfinite(scores).all(axis=-1), precision.mean(axis=-1), np.nan)


def chance_level(cue: np.ndarray) -> dict[str, float]:
    """Return the expected metrics of an uninformed row: equal shares, or columns in random order.

    Examples
    --------
    >>> chance_level(np.array([True, False]))
    {'dot_product': 0.5, 'average_precision': 0.75}
    """
    column_count, cue_count = len(cue), int(np.count_nonzero(cue))
    rank = np.arange(1, column_count + 1)
    # At each place: the cue column that is there, and the others that are expected above it.
    expected_precision = (1 + (rank - 1) * (cue_count - 1) / max(column_count - 1, 1)) / rank
    return {
        "dot_product": cue_count / column_count,
        "average_precision": float(expected_precision.mean()),
    }


def _check_shapes(scores: np.ndarray, cue: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    scores, cue = np.asarray(scores, dtype=float), np.asarray(cue, dtype=bool)
    if cue.ndim != 1 or scores.shape[-1:] != cue.shape or not cue.any():
        raise InputError(
            "expected scores [..., K] and a cue of K booleans, at least one of them true; found "
            f"{scores.shape} and "
            f"{cue.shape} with {np.count_nonzero(cue)} true"
        )
    return scores, cue
