"""The cheapest way to lay synthetic speech over a recording: dynamic time warping with gaps between
the words.

In: distances between T frames of a recording and N of a synthesis, what a gap costs in each frame,
the word of each synthetic frame. Out: for each frame of the recording its synthetic frame, or the
gap it lies in; and what it would cost to have a word's boundary elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import numpy as np
from numba import njit

P = ParamSpec("P")
T = TypeVar("T")

# Path costs, in units of the distance between two frames, which is about 0.5 for the same sound and
# 1 for another. Staying in a frame costs more each time: a sound may be drawn out, but not by one
# of its frames alone.
_STAYS = np.array([0.0, 0.25, 0.35, 0.5], np.float32)
_SKIPS = np.array([0.0, 0.4, 0.9], np.float32)  # to the next frame, over one, over two
_ENTER_GAP = np.float32(3.0)
_FROM_GAP = (
    100  # in the record of moves: 10 * (skipped + 1) + the visit that was left, or one of these
)
_STAYED, _STAYED_LONGER = 101, 102


def cheapest_path(distances: np.ndarray, gap: np.ndarray, word: np.ndarray) -> np.ndarray:
    """Warp N synthetic frames onto T frames, with an optional gap before, between and after the
    words.

    Each frame of the recording takes a synthetic frame (the one before it in the path, or the next,
    or up to three on) or lies in a gap; a gap is entered from a word's last frame and left into the
    next word's first one. `distances` are [T, N], `gap` [T] is the cost of lying in a gap, and
    `word` [N] the word of each synthetic frame: 0 … W-1, ascending, none missing. Returns the
    synthetic frame of each frame of the recording [T], or ``-1 - k`` in the gap before word k.
    """
    path: np.ndarray = _warp_path(distances, gap, word, _entering_costs(word))[0]
    return path


def border_costs(distances: np.ndarray, gap: np.ndarray, word: np.ndarray) -> np.ndarray:
    """Return what the cheapest path costs that has a word's boundary in a given frame: the
    forward-backward algorithm with minima.

    Takes what `cheapest_path` takes. For each word and frame [2, W, T]: the cost of the paths on
    which that frame is the word's first one, and on which it is its last one.
    """
    enter = _entering_costs(word)
    _, at_last, in_gap = _warp_path(distances, gap, word, enter)
    # The same from the end: what lies behind a word's first frame, and behind a frame in the gap
    # before it.
    _, *reversed_costs = _warp_path(
        distances[::-1, ::-1], gap[::-1], word[-1] - word[::-1], enter[::-1]
    )
    behind_first, behind_gap = (costs[::-1, ::-1] for costs in reversed_costs)
    borders = np.full((2, *at_last.shape), np.inf, np.float32)
    costs_before, costs_after = in_gap[:-1].copy(), behind_gap[1:].copy()
    costs_before[1:] = np.minimum(costs_before[1:], at_last[:-1])
    costs_after[:-1] = np.minimum(costs_after[:-1], behind_first[1:])
    borders[0, :, 1:] = costs_before[:, :-1] + behind_first[:, 1:]
    borders[1, :, :-1] = at_last[:, :-1] + costs_after[:, 1:]
    borders[0, 0, 0], borders[1, -1, -1] = behind_first[0, 0], at_last[-1, -1]
    return borders


def _entering_costs(word: np.ndarray) -> np.ndarray:
    """What it costs to enter each gap: the first one is there from the start."""
    return np.append(np.float32(0), np.full(word[-1] + 1, _ENTER_GAP))


def _warp_path(
    distances: np.ndarray, gap: np.ndarray, word: np.ndarray, enter: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    first = np.flatnonzero(np.diff(word, prepend=-1))
    last = np.append(first[1:], len(word)) - 1
    begins = np.full(len(word), -1)
    begins[first] = np.arange(len(first))
    distances, gap = (
        np.ascontiguousarray(distances, np.float32),
        np.ascontiguousarray(gap, np.float32),
    )
    return _trace_path(distances, gap, begins, last, _STAYS, _SKIPS, np.ascontiguousarray(enter))


def compile_with_numba(function: Callable[P, T]) -> Callable[P, T]:
    """Compile by numba, for later processes too; where no folder can be written to
    (NUMBA_CACHE_DIR), for this one alone."""
    compile_function: Callable[[Callable[P, T]], Callable[P, T]] = njit(cache=True, nogil=True)
    try:
        return compile_function(function)
    except RuntimeError:  # "cannot cache function": a read-only installation without a home
        compile_function = njit(nogil=True)
        return compile_function(function)


@compile_with_numba
def _trace_path(  # pragma: no cover (compiled)
    distances: np.ndarray,
    gap: np.ndarray,
    begins: np.ndarray,
    last: np.ndarray,
    stays: np.ndarray,
    skips: np.ndarray,
    enter_gap: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The path, and what the cheapest way costs to a word's last frame [W, T] and into a gap [W +
    1, T] at each time."""
    n_frames, n_states = distances.shape
    n_visits = len(stays)
    infinite = np.float32(1e9)
    came_by = np.zeros((n_frames, n_states, n_visits), np.int8)
    entered = np.full((n_frames, len(last) + 1), -1, np.int8)  # the visit that was left for the gap
    cost = np.full((n_states, n_visits), infinite, np.float32)
    previous_cost = cost.copy()
    cost[0, 0] = distances[0, 0]
    best_visit = np.zeros(n_states, np.int8)
    exit_cost = np.full(n_states, infinite, np.float32)  # cheapest over the visits
    gaps = np.full(len(last) + 1, infinite, np.float32)
    gaps[0] = enter_gap[0] + gap[0]
    at_last = np.full((len(last), n_frames), infinite, np.float32)
    in_gap = np.full((len(last) + 1, n_frames), infinite, np.float32)
    in_gap[0, 0] = gaps[0]
    if last[0] == 0:
        at_last[0, 0] = cost[0, 0]
    for t in range(1, n_frames):
        for n in range(n_states):
            exit_cost[n] = infinite
            for k in range(n_visits):
                previous_cost[n, k] = cost[n, k]
                if cost[n, k] < exit_cost[n]:
                    exit_cost[n], best_visit[n] = cost[n, k], k
        for n in range(n_states):
            cheapest, move = infinite, 0
            for skip in range(min(len(skips), n)):
                arrived = exit_cost[n - 1 - skip] + skips[skip]
                if arrived < cheapest:
                    cheapest, move = arrived, 10 * (skip + 1) + best_visit[n - 1 - skip]
            if begins[n] >= 0 and gaps[begins[n]] < cheapest:
                cheapest, move = gaps[begins[n]], _FROM_GAP
            cost[n, 0], came_by[t, n, 0] = cheapest + distances[t, n], move
            for k in range(1, n_visits):
                cheapest, move = previous_cost[n, k - 1] + stays[k], _STAYED
                if k == n_visits - 1 and previous_cost[n, k] + stays[k] < cheapest:
                    cheapest, move = previous_cost[n, k] + stays[k], _STAYED_LONGER
                cost[n, k], came_by[t, n, k] = cheapest + distances[t, n], move
        gaps[0] += gap[t]
        for k in range(len(last)):
            into = exit_cost[last[k]] + enter_gap[k + 1]
            if into < gaps[k + 1]:
                gaps[k + 1], entered[t, k + 1] = into, best_visit[last[k]]
            gaps[k + 1] += gap[t]
            at_last[k, t] = cost[last[k]].min()
        in_gap[:, t] = gaps
    path = np.empty(n_frames, np.int64)
    visit = np.argmin(cost[n_states - 1])
    state = -1 - len(last) if gaps[-1] <= cost[n_states - 1, visit] else n_states - 1
    for t in range(n_frames - 1, -1, -1):
        path[t] = state
        if state < 0:
            visit = entered[t, -1 - state]
            if visit >= 0:
                state = last[-2 - state]
        elif t > 0:
            move = came_by[t, state, visit]
            if move == _FROM_GAP:
                state = -1 - begins[state]
            elif move == _STAYED:
                visit -= 1
            elif move != _STAYED_LONGER:
                state, visit = state - move // 10, move % 10
    return path, at_last, in_gap
