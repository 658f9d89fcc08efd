"""The cheapest path: what it costs by hand, and that nothing is cheaper, on small problems that can
be searched whole."""

from __future__ import annotations

import itertools

import numba
import numpy as np
import pytest

from speechmix.alignment import phones as warping
from speechmix.alignment.phones import border_costs, cheapest_path, compile_with_numba

STAYS, SKIPS, ENTER_GAP = (
    warping._STAYS.tolist(),
    warping._SKIPS.tolist(),
    float(warping._ENTER_GAP),
)


def test_path_rests_in_gaps_between_words():
    distances = np.full((9, 4), 2.0, np.float32)
    for heard, spoken in ((2, 0), (3, 1), (6, 2), (7, 3)):
        distances[heard, spoken] = 0
    gap = np.full(9, 2.0, np.float32)
    gap[[0, 1, 4, 5, 8]] = 0
    path = cheapest_path(distances * 10, gap * 10, np.array([0, 0, 1, 1]))
    assert path.tolist() == [-1, -1, 0, 1, -2, -2, 2, 3, -3]


def test_a_sound_that_is_drawn_out_is_shared_by_its_frames():
    distances = np.zeros((6, 2), np.float32)  # two frames of one sound, six to hear
    path = cheapest_path(distances, np.full(6, 9.0), np.zeros(2, int))
    assert path.tolist() == [0, 0, 0, 1, 1, 1]


def cost_of(path, distances, gap, word):
    """What a path costs, by the rules; infinite if it breaks them."""
    first = np.flatnonzero(np.diff(word, prepend=-1)).tolist()
    last = [*(start - 1 for start in first[1:]), len(word) - 1]
    total, visits = 0.0, 0
    for t, state in enumerate(path):
        before = path[t - 1] if t else None
        if before is None:
            total += 0 if state in (0, -1) else np.inf
        elif state < 0:
            entered = state < -1 and before == last[-2 - state]
            total += 0 if before == state else ENTER_GAP if entered else np.inf
        elif before < 0:
            total += 0 if -1 - before < len(first) and state == first[-1 - before] else np.inf
        elif state == before:
            visits += 1
            total += STAYS[min(visits, len(STAYS) - 1)]
        else:
            total += SKIPS[state - before - 1] if 0 < state - before <= len(SKIPS) else np.inf
        visits = visits if state == before else 0
        total += gap[t] if state < 0 else distances[t, state]
    return total if path[-1] in (len(word) - 1, -1 - len(first)) else np.inf


@pytest.mark.parametrize("seed", range(4))
def test_no_path_is_cheaper(seed):
    rng = np.random.default_rng(seed)
    word = np.array([0, 0, 1])
    distances, gap = (
        rng.uniform(0, 3, (6, 3)).astype(np.float32),
        rng.uniform(0, 2, 6).astype(np.float32),
    )
    path = cheapest_path(distances, gap, word)
    every = itertools.product(range(-3, 3), repeat=6)
    assert cost_of(path, distances, gap, word) == pytest.approx(
        min(
            cost_of(other, distances, gap, word)
            for other in every
            if other[-1] in (2, -3) and other[0] in (0, -1)
        ),
        abs=1e-4,
    )


def test_where_no_folder_can_be_written_to_it_is_compiled_all_the_same(monkeypatch):
    monkeypatch.setattr("numba.core.caching.CacheImpl._locator_classes", [])
    with pytest.raises(RuntimeError, match="cannot cache function"):
        numba.njit(cache=True)(_twice)
    assert compile_with_numba(_twice)(21) == 42


def _twice(number):
    return 2 * number


@pytest.mark.parametrize("seed", range(2))
def test_what_a_border_costs_elsewhere(seed):
    rng = np.random.default_rng(seed)
    word = np.array([0, 0, 1])
    distances, gap = (
        rng.uniform(0, 3, (6, 3)).astype(np.float32),
        rng.uniform(0, 2, 6).astype(np.float32),
    )
    expected = np.full((2, 2, 6), np.inf)
    for path in itertools.product(range(-3, 3), repeat=6):
        if path[0] not in (0, -1) or path[-1] not in (2, -3):
            continue
        cost = cost_of(path, distances, gap, word)
        for t, (before, state, after) in enumerate(
            zip((None, *path), path, (*path[1:], None), strict=False)
        ):
            # A word begins behind the gap or the last frame of the word before it, and ends
            # likewise.
            for side, index, is_border in (
                (0, 0, state == 0 and before in (None, -1)),
                (0, 1, state == 2 and before in (-2, 1)),
                (1, 0, state == 1 and after in (-2, 2)),
                (1, 1, state == 2 and after in (None, -3)),
            ):
                if is_border:
                    expected[side, index, t] = min(expected[side, index, t], cost)
    costs = border_costs(distances, gap, word)
    assert np.where(costs > 1e8, np.inf, costs) == pytest.approx(expected, abs=1e-4)
