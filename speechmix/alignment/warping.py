"""The cheapest way to lay synthetic speech over a recording: dynamic time warping with gaps between the words.

In: distances between T frames of a recording and N of a synthesis, what a gap costs in each frame, the word of each synthetic
frame. Out: for each frame of the recording its synthetic frame, or the gap it lies in.
"""

from __future__ import annotations

import numpy as np

# Path costs, in units of the distance between two frames, which is about 0.5 for the same sound and 1 for another.
_STAY, _SKIP, _SKIP_TWO = 0.25, 0.25, 0.6
_ENTER_GAP = 3.0


def cheapest_path(distances: np.ndarray, gap: np.ndarray, word: np.ndarray) -> np.ndarray:
    """Warp N synthetic frames onto T frames, with an optional gap before, between and after the words.

    Each frame of the recording takes a synthetic frame (the one before it in the path, or the next, or up to three
    on) or lies in a gap; a gap is entered from a word's last frame and left into the next word's first one.

    Parameters
    ----------
    distances : array [T, N]
    gap : array [T]
        Cost of lying in a gap.
    word : int array [N]
        Word of each synthetic frame: 0 … W-1, ascending, none missing.

    Returns
    -------
    int array [T]
        Synthetic frame of each frame of the recording, or ``-1 - k`` in the gap before word k.
    """
    n_frames, n_states = distances.shape
    first = np.flatnonzero(np.diff(word, prepend=-1))
    last = np.append(first[1:], n_states) - 1
    states = np.arange(n_states)
    infinite = np.float32(1e9)
    moves = np.full((4, n_states), infinite, np.float32)
    came_by = np.zeros((n_frames, n_states), np.int8)  # 0 … 3 states back, 4: from the gap
    entered = np.zeros((n_frames, len(first) + 1), bool)
    cost = np.full(n_states, infinite, np.float32)
    cost[0] = distances[0, 0]
    gap_cost = np.full(len(first) + 1, infinite, np.float32)
    gap_cost[0] = gap[0]
    for t in range(1, n_frames):
        moves[0] = cost + _STAY
        moves[1, 1:] = cost[:-1]
        moves[2, 2:] = cost[:-2] + _SKIP
        moves[3, 3:] = cost[:-3] + _SKIP_TWO
        move = moves.argmin(0)
        best = moves[move, states]
        from_gap = gap_cost[:-1] < best[first]
        best[first[from_gap]] = gap_cost[:-1][from_gap]
        move[first[from_gap]] = 4
        into_gap = cost[last] + _ENTER_GAP
        entered[t, 1:] = into_gap < gap_cost[1:]
        gap_cost[1:] = np.minimum(into_gap, gap_cost[1:])
        gap_cost += gap[t]
        cost = best + distances[t]
        came_by[t] = move
    return _trace_back(came_by, entered, word, last, ends_in_gap=gap_cost[-1] <= cost[-1])


def _trace_back(
    came_by: np.ndarray, entered: np.ndarray, word: np.ndarray, last: np.ndarray, *, ends_in_gap: bool
) -> np.ndarray:
    path = np.empty(len(came_by), int)
    state = -1 - len(last) if ends_in_gap else len(word) - 1
    for t in range(len(came_by) - 1, -1, -1):
        path[t] = state
        if state < 0:
            if entered[t, -1 - state]:
                state = int(last[-2 - state])
        elif t > 0:
            move = int(came_by[t, state])
            state = -1 - int(word[state]) if move == 4 else state - move
    return path
