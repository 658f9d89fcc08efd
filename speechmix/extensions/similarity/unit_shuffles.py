"""Units that are not related: shuffled in two ways, after a slow drift over the session is removed.

In: features [N, D] of units in groups, and the order in which the groups were recorded (that of the
clips as they were given). Out: features without drift, and the units that stand in for each unit.

- *Roll*: all units are shifted by one offset, in the order of the recording. It keeps what is alike
  between neighbouring units and clips, and breaks the pairs.
- *Shuffled groups*: whole groups change places at random. It keeps what is alike within a group, and,
  where groups have as many units, the position of a unit in its group. Where groups differ in size,
  their units are put one after the other, so the units of a group may come from two neighbours.
- *Drift*: where both sides drift over a session, they are similar although they share nothing else,
  and both shuffles break that, too. So variation that is slower than `SLOWEST_PERIOD` groups is
  removed from both sides before the test: a line and cosines, as the high-pass filter of imaging
  studies (Holmes, Josephs, Buechel & Friston 1997). Labels cannot be filtered; there, states are.
"""

from __future__ import annotations

import numpy as np

SLOWEST_PERIOD = 10  # groups; slower variation is drift


def remove_drift(features: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    """Remove variation over the order of groups that is slower than `SLOWEST_PERIOD` groups.

    Parameters
    ----------
    features : ndarray [N, D]
    ranks : ndarray of int [N]
        The place of each unit's group in the order of the recording: 0, 1, ...

    Examples
    --------
    >>> ranks = np.repeat(np.arange(20), 2)
    >>> remove_drift(3.0 * ranks[:, None] + 1, ranks).round(6).any()
    np.False_
    """
    count = int(ranks.max()) + 1
    frequencies = np.arange(0, 2 * count // SLOWEST_PERIOD + 1)
    cosines = np.cos(np.pi * frequencies * (ranks[:, None] + 0.5) / count)
    trend = np.column_stack([cosines, ranks / count])  # the first cosine is a constant
    without: np.ndarray = features - trend @ np.linalg.lstsq(trend, features, rcond=None)[0]
    return without


def roll_units(ranks: np.ndarray, count: int, *, seed: int = 0) -> list[np.ndarray]:
    """Draw rolls: for each, whose features every unit takes over [N].

    The offset is at least the largest group. There are fewer than `count` if there are no more offsets.

    Examples
    --------
    >>> [roll.tolist() for roll in roll_units(np.array([0, 0, 1, 1]), 2)]
    [[2, 3, 0, 1]]
    """
    order, largest = np.argsort(ranks, kind="stable"), int(np.bincount(ranks).max())
    offsets = np.arange(largest, len(ranks) - largest + 1)
    return [
        _assign_donors(order, np.roll(order, offset))
        for offset in np.random.default_rng(seed).permutation(offsets)[:count]
    ]


def shuffle_groups(ranks: np.ndarray, count: int, *, seed: int = 0) -> list[np.ndarray]:
    """Draw shuffles of whole groups: for each, whose features every unit takes over [N].

    Examples
    --------
    >>> shuffles = shuffle_groups(np.array([0, 0, 1, 1]), 9)
    >>> sorted({tuple(shuffle.tolist()) for shuffle in shuffles})
    [(0, 1, 2, 3), (2, 3, 0, 1)]
    """
    order, generator = np.argsort(ranks, kind="stable"), np.random.default_rng(seed)
    groups = np.split(order, np.cumsum(np.bincount(ranks))[:-1])
    return [
        _assign_donors(
            order, np.concatenate([groups[i] for i in generator.permutation(len(groups))])
        )
        for _ in range(count)
    ]


def _assign_donors(order: np.ndarray, donors: np.ndarray) -> np.ndarray:
    """Return for each unit its donor, from units in order [N] and their donors [N]."""
    assigned = np.empty(len(order), dtype=int)
    assigned[order] = donors
    return assigned
