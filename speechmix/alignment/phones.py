"""Phones of an alignment by synthesis: where they are, and how sure their boundaries are.

In: what is known of an alignment (`confidence.Evidence`), and the first synthetic speaker, who knows
its phones. Out: phones in IPA inside their words. Each way of aligning says where in the recording the
synthesis passes a boundary; the boundary lies at their median.

The cheapest way to lay synthetic speech over a recording: dynamic time warping with gaps between
the words.

In: distances between T frames of a recording and N of a synthesis, what a gap costs in each frame,
the word of each synthetic frame. Out: for each frame of the recording its synthetic frame, or the
gap it lies in; and what it would cost to have a word's boundary elsewhere.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from typing import ParamSpec, TypeVar

import numpy as np
from numba import njit

from ..inputs.words.timed_words import Word
from .cepstra import HOP, SAMPLE_RATE, compute_cepstra, mel_power
from .confidence import SURE, Evidence, Warp
from .espeak import Speech

P = ParamSpec("P")
T = TypeVar("T")

# Path costs, in units of the distance between two frames, which is about 0.5 for the same sound and
# 1 for another. Staying in a frame costs more each time: a sound may be drawn out, but not by one
# of its frames alone.
_STAYS = np.array([0.0, 0.25, 0.35, 0.5], np.float32)
_SKIPS = np.array([0.0, 0.4, 0.9], np.float32)  # to the next frame, over one, over two
_ENTER_GAP = np.float32(3.0)
# The record of moves has 10 * (skipped + 1) + the visit that was left, or one of these codes.
_FROM_GAP = 100
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
    costs = np.ascontiguousarray(distances, np.float32), np.ascontiguousarray(gap, np.float32)
    return _trace_path(*costs, first, last, np.ascontiguousarray(enter))


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
    first: np.ndarray,
    last: np.ndarray,
    enter_gap: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The path, and what the cheapest way costs to a word's last frame [W, T] and into a gap [W +
    1, T] at each time.

    The innermost loops run over the states of one row each and choose without a branch: a processor
    then takes many states at once.
    """
    n_frames, n_states = distances.shape
    n_visits = len(_STAYS)
    infinite = np.float32(1e9)
    came_by = np.zeros((n_frames, n_visits, n_states), np.int8)
    entered = np.full((n_frames, len(last) + 1), -1, np.int8)  # the visit that was left for the gap
    cost = np.full((n_visits, n_states), infinite, np.float32)
    cost[0, 0] = distances[0, 0]
    best_visit = np.zeros(n_states, np.int8)
    exit_cost = np.full(n_states, infinite, np.float32)  # cheapest over the visits
    arrived = exit_cost.copy()
    gaps = np.full(len(last) + 1, infinite, np.float32)
    gaps[0] = enter_gap[0] + gap[0]
    at_last = np.full((len(last), n_frames), infinite, np.float32)
    in_gap = np.full((len(last) + 1, n_frames), infinite, np.float32)
    in_gap[0, 0] = gaps[0]
    if last[0] == 0:
        at_last[0, 0] = cost[0, 0]
    for t in range(1, n_frames):
        exit_cost[:], arrived[:] = infinite, infinite
        for k in range(n_visits):
            visit_cost, this_visit = cost[k], np.int8(k)
            for n in range(n_states):
                is_cheaper = visit_cost[n] < exit_cost[n]
                best_visit[n] = this_visit if is_cheaper else best_visit[n]
                exit_cost[n] = visit_cost[n] if is_cheaper else exit_cost[n]
        for skip in range(len(_SKIPS)):
            step, price = np.int8(10 * (skip + 1)), _SKIPS[skip]
            left, visit_left = exit_cost[: -1 - skip], best_visit[: -1 - skip]
            reached, moves = arrived[skip + 1 :], came_by[t, 0, skip + 1 :]
            for n in range(len(reached)):
                arriving = left[n] + price
                is_cheaper = arriving < reached[n]
                moves[n] = step + visit_left[n] if is_cheaper else moves[n]
                reached[n] = arriving if is_cheaper else reached[n]
        for k in range(len(first)):
            if gaps[k] < arrived[first[k]]:
                arrived[first[k]], came_by[t, 0, first[k]] = gaps[k], _FROM_GAP
        for k in range(n_visits - 1, 0, -1):  # from the last: each follows on the visit before it
            visit_before, visit_cost, moves = cost[k - 1], cost[k], came_by[t, k]
            is_last, price = k == n_visits - 1, _STAYS[k]
            for n in range(n_states):
                stayed, stayed_longer = visit_before[n] + price, visit_cost[n] + price
                is_cheaper = is_last and stayed_longer < stayed
                moves[n] = np.int8(_STAYED_LONGER) if is_cheaper else np.int8(_STAYED)
                visit_cost[n] = (stayed_longer if is_cheaper else stayed) + distances[t, n]
        cost[0] = arrived + distances[t]
        gaps[0] += gap[t]
        for k in range(len(last)):
            into = exit_cost[last[k]] + enter_gap[k + 1]
            if into < gaps[k + 1]:
                gaps[k + 1], entered[t, k + 1] = into, best_visit[last[k]]
            gaps[k + 1] += gap[t]
            at_last[k, t] = cost[:, last[k]].min()
        in_gap[:, t] = gaps
    path = np.empty(n_frames, np.int64)
    visit = np.argmin(cost[:, n_states - 1])
    state = -1 - len(last) if gaps[-1] <= cost[visit, n_states - 1] else n_states - 1
    for t in range(n_frames - 1, -1, -1):
        path[t] = state
        if state < 0:
            visit = entered[t, -1 - state]
            if visit >= 0:
                state = last[-2 - state]
        elif t > 0:
            move = came_by[t, visit, state]
            if move == _FROM_GAP:
                state = -1 - np.searchsorted(first, state)
            elif move == _STAYED:
                visit -= 1
            elif move != _STAYED_LONGER:
                state, visit = state - move // 10, move % 10
    return path, at_last, in_gap


NEAR = 0.02  # seconds: a boundary that is further off is wrong
_MARKS = str.maketrans("", "", "ˈˌ-")  # stress, and espeak-ng's mark of a reduced vowel
# espeak-ng's closures are silent but for echo: level of the loudest sample, and seconds at most, and
# what may sound before the release (the ringing of a resampling filter).
_SILENCE, _MAX_CLOSURE, _RINGING = 0.01, 0.1, 0.005
_CHANGE_FRAMES = 3  # frames on either side of a boundary whose spectra are compared
_FRAME = HOP / SAMPLE_RATE
_ROUNDING = 1e-6  # seconds

# Logistic regression, fitted by benchmarks/fit_alignment_confidence.py on the development part of
# benchmarks/alignment_material.py, in a room and close to the microphone; the order is that of
# `phone_features`. With held-out voices and sentences the area under the ROC curve is 0.82, and
# 0.73 in the room, whose reverberation moves every boundary by some 10 ms.
_OFF_WEIGHTS = np.array([-0.43, -0.64, -1.46, 0.37, 0.59]), 2.64


def spoken_phones(speech: Speech) -> tuple[tuple[Word, ...], list[int]]:
    """Phones of a synthetic utterance, and the index of the word that each is in.

    espeak-ng marks a stop at its release. Here its closure belongs to it, as phoneticians have it.

    Examples
    --------
    >>> from speechmix.alignment.espeak import speak
    >>> phones, owners = spoken_phones(speak("petit chat", voice="fr"))
    >>> " ".join(phone.text for phone in phones), owners
    ('p ə t i ʃ a', [0, 0, 0, 0, 1, 1])
    """
    loudness = np.abs(speech.audio)
    is_silent = loudness < _SILENCE * loudness.max()
    word_starts = [word.start for word in speech.words]
    phones: list[Word] = []
    owners: list[int] = []
    for previous, phoneme in pairwise((None, *speech.phonemes)):
        if phoneme is None or not phoneme.text:
            continue
        owner = max(0, bisect_right(word_starts, phoneme.start + _ROUNDING) - 1)
        start = phoneme.start
        if owner not in owners[-1:]:  # espeak-ng has words begin at the closure
            start = word_starts[owner]
        elif previous is not None and previous.text:
            start = _closure_start(is_silent, previous.start, start, speech.sample_rate)
            phones[-1] = replace(phones[-1], end=min(phones[-1].end, start))
        end = min(phoneme.end, speech.words[owner].end)
        phones.append(Word(phoneme.text.translate(_MARKS) or phoneme.text, start, end))
        owners.append(owner)
    return tuple(phones), owners


def _closure_start(
    is_silent: np.ndarray, previous_start: float, release: float, sample_rate: int
) -> float:
    """Seconds at which the silence before a release begins; the release if it follows sound."""
    first = round(max(previous_start, release - _MAX_CLOSURE) * sample_rate)
    last = round((release - _RINGING) * sample_rate)
    sounding = np.flatnonzero(~is_silent[first:last])
    closure = first + (int(sounding[-1]) + 1 if len(sounding) else 0)
    return closure / sample_rate if closure < last - _RINGING * sample_rate else release


def phone_boundary_costs(
    times: np.ndarray, distances: np.ndarray, gap: np.ndarray, speech: Speech
) -> np.ndarray:
    """Return what the cheapest path costs with each phone's first and last frame in each frame of
    the recording, [2, P, T], as `border_costs` does for words.

    `times` [N] are seconds of the synthetic frames on the first speaker's clock; `distances` are
    [T, N], `gap` is [T]; `speech` is the first speaker's. A phone without a synthetic frame costs
    infinitely much.
    """
    phones, _ = spoken_phones(speech)
    slot = np.searchsorted([phone.start for phone in phones], times, side="right") - 1
    slot = np.maximum.accumulate(np.maximum(slot, 0))
    present, dense = np.unique(slot, return_inverse=True)
    costs = np.full((2, len(phones), len(distances)), np.inf, np.float32)
    costs[:, present] = border_costs(distances, gap, dense)
    return costs


def align_phones(
    evidence: Evidence, speech: Speech, word_times: Sequence[Sequence[float]]
) -> tuple[Word, ...]:
    """Phones of an alignment with scores; the parameters are those of `place_phones`."""
    phones, spread = place_phones(evidence, speech, word_times)
    scores = phone_confidence(phone_features(evidence, phones, spread, speech)).tolist()
    return tuple(replace(phone, score=score) for phone, score in zip(phones, scores, strict=True))


def heard_phonemes(times: np.ndarray, spoken: Sequence[Word]) -> tuple[Word, ...]:
    """Where each phoneme of the first speaker is in the recording, by where the synthesis is in
    each frame."""
    word_frames = np.flatnonzero(np.isfinite(times))
    starts = [phoneme.start for phoneme in spoken]
    phoneme_indices = np.searchsorted(starts, times[word_frames], side="right") - 1
    first = np.flatnonzero(
        np.diff(phoneme_indices, prepend=-2) | (np.diff(word_frames, prepend=-2) > 1)
    )
    stops = np.append(word_frames[first[1:] - 1], word_frames[-1]) + 1
    edges = np.stack([word_frames[first], stops], axis=1) * HOP / SAMPLE_RATE
    runs = zip(phoneme_indices[first].tolist(), edges.tolist(), strict=True)
    return tuple(Word(spoken[index].text, *edge) for index, edge in runs if spoken[index].text)


def place_phones(
    evidence: Evidence, speech: Speech, word_times: Sequence[Sequence[float]]
) -> tuple[tuple[Word, ...], np.ndarray]:
    """Place the phones of the first synthetic speaker, on whose clock the evidence is, in the
    recording.

    `word_times` are (start, end) in seconds: a word's first phone begins, and its last one ends,
    with it. Returns phones without scores, and the spread [P, 2]: the mean distance in seconds
    between a phone's start or end and where the other ways have it.
    """
    spoken, owners = spoken_phones(speech)
    ways = (evidence.warp, *evidence.ways)
    phones: list[Word] = []
    spreads: list[list[float]] = []
    for word, members in groupby(range(len(spoken)), key=lambda index: owners[index]):
        indices = list(members)
        starts = [spoken[index].start for index in indices[1:]]
        inner = np.array([_pass_times(way, word, starts) for way in ways])  # [ways, boundaries]
        start, end = word_times[word]
        boundaries = _spread_out(
            np.concatenate([[start], np.clip(np.median(inner, axis=0), start, end), [end]])
        )
        deviation = np.abs(inner - np.median(inner, axis=0)).mean(axis=0)
        edge = evidence.spread[word] * _FRAME
        deviation = np.concatenate([[edge], deviation, [edge]])
        spreads += np.stack([deviation[:-1], deviation[1:]], axis=1).tolist()
        edges = zip(indices, boundaries[:-1].tolist(), boundaries[1:].tolist(), strict=True)
        phones += [Word(spoken[index].text, first, last) for index, first, last in edges]
    return tuple(phones), np.array(spreads)


def phone_features(
    evidence: Evidence, phones: Sequence[Word], spread: np.ndarray, speech: Speech
) -> np.ndarray:
    """What the quality of each phone's boundaries is computed from [P, 5], in the order of its
    weights: the smaller and the larger of the margins of its two boundaries, the smaller change of the
    spectrum at them in the recording, the larger spread of the ways, the smaller change in the
    synthesis."""
    spoken, _ = spoken_phones(speech)
    margins = _boundary_margins(evidence.phone_boundaries, phones)
    changes = _boundary_changes(evidence.recording.cepstra, phones)
    natural = _boundary_changes(compute_cepstra(mel_power(speech.audio)), spoken)
    return np.stack(
        [
            margins.min(axis=0),
            margins.max(axis=0),
            np.log1p(changes).min(axis=1),
            np.log1p(1000 * spread).max(axis=1),
            np.log1p(natural).min(axis=1),
        ],
        axis=1,
    )


def _boundary_margins(costs: np.ndarray, phones: Sequence[Word]) -> np.ndarray:
    """Additional cost of the cheapest path that has a boundary over 20 ms from where it lies [2,
    P]."""
    edges = np.array([(phone.start, phone.end) for phone in phones]).T / _FRAME
    frames = edges + np.array([[0.5], [-0.5]])  # the first and the last one of the phone
    is_far = np.abs(np.arange(costs.shape[2]) - frames[:, :, None]) > NEAR / _FRAME
    near_costs, far_costs = (
        np.where(mask, np.inf, costs).min(axis=2) for mask in (is_far, ~is_far)
    )
    with np.errstate(invalid="ignore"):
        margins = np.nan_to_num(far_costs - near_costs, nan=0.0)
    clipped: np.ndarray = np.clip(margins, -SURE, SURE)
    return clipped


def phone_confidence(features: np.ndarray) -> np.ndarray:
    """Probability [P] that neither boundary of a phone is more than 20 ms off."""
    weights, intercept = _OFF_WEIGHTS
    confidence: np.ndarray = 1 / (1 + np.exp(features @ weights + intercept))
    return confidence


def _pass_times(way: Warp, word: int, starts: Sequence[float]) -> np.ndarray:
    """Seconds in the recording at which a way passes these times of the synthesis, in a word."""
    frames = np.flatnonzero(way.owner == word)
    times = np.maximum.accumulate(way.times[frames])
    after = np.clip(np.searchsorted(times, starts), 1, max(1, len(times) - 1))
    if len(frames) < 2:
        return np.full(len(starts), frames.mean() * _FRAME)
    step = np.maximum(times[after] - times[after - 1], 1e-6)
    share = np.clip((np.asarray(starts) - times[after - 1]) / step, 0, 1)
    passed: np.ndarray = (frames[after - 1] + share * (frames[after] - frames[after - 1])) * _FRAME
    return passed


def _spread_out(boundaries: np.ndarray) -> np.ndarray:
    """Boundaries in order and a frame apart, as far as there is room."""
    room = min(_FRAME, (boundaries[-1] - boundaries[0]) / (len(boundaries) - 1))
    steps = room * np.arange(len(boundaries))
    ordered = np.maximum.accumulate(boundaries - steps) + steps
    limits = boundaries[-1] - steps[::-1]
    spaced: np.ndarray = np.minimum(ordered, limits)
    return spaced


def _boundary_changes(cepstra: np.ndarray, phones: Sequence[Word]) -> np.ndarray:
    """How much the spectrum changes at the start and at the end of each phone [P, 2]."""
    padded = np.pad(cepstra, ((_CHANGE_FRAMES, _CHANGE_FRAMES), (0, 0)), mode="edge")
    edges = np.array([(phone.start, phone.end) for phone in phones]) / _FRAME
    frames = np.clip(np.round(edges).astype(int), 0, len(cepstra) - 1) + _CHANGE_FRAMES
    before = np.mean([padded[frames - step] for step in range(1, _CHANGE_FRAMES + 1)], axis=0)
    behind = np.mean([padded[frames + step] for step in range(_CHANGE_FRAMES)], axis=0)
    changes: np.ndarray = np.linalg.norm(behind - before, axis=-1)
    return changes
