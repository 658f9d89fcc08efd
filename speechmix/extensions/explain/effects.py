"""Effects of removing sources, one or two at a time, on each written word.

In: a `Writing`, its choices and the attributions of measures. Out: `Effects`. All choices are read
in each run.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .choices import Choice, Readings, possible_sources
from .fills import ALTERNATIVES
from .removals import make_removals, read_without
from .source_pairs import Pair, PairRuns, list_source_sets, make_pairs, sources_to_pair

if TYPE_CHECKING:
    from .attribution import Attribution
    from .fills import Fills
    from .generated_tokens import Writing


@dataclass(frozen=True)
class Effects:
    """What each choice is worth without its sources; arrays and pairs as in `Explanation`."""

    values: np.ndarray
    value_by_fill: np.ndarray
    value_without: np.ndarray
    probability_without: np.ndarray
    pairs: tuple[Pair, ...]


def measure_effects(
    writing: Writing,
    choices: Sequence[Choice],
    readings: Readings,
    fills: Fills,
    attributions: Mapping[str, Attribution],
    *,
    everything: bool,
    top: int,
    pairs: int,
) -> Effects:
    """Remove sources one at a time with each fill, and of each choice's first ones every two."""
    attribution_values = [attribution.values for attribution in attributions.values()]
    ranked = _sources_to_remove(
        attribution_values, len(writing.sources), everything=everything, top=top
    )
    ranked = sorted(
        {
            *ranked,
            *(index for sources in sources_to_pair(attribution_values, pairs) for index in sources),
        }
    )
    alone = [(index, f) for index in ranked for f in fills.of_source(writing.sources[index])]
    removals = [(), *(make_removals(writing, (index,), (fill,)) for index, fill in alone)]
    runs = read_without(writing, removals, readings.read)
    values = runs[0] @ readings.of_choices
    possible = possible_sources(writing, choices)
    by_fill, log_probability = (
        np.full((len(fills.all), *possible.shape), np.nan) for _ in range(2)
    )
    for (index, fill), run in zip(alone, runs[1:], strict=True):
        by_fill[fills.all.index(fill), :, index] = run @ readings.of_choices
        log_probability[fills.all.index(fill), :, index] = run @ readings.of_probabilities
    by_fill[:, ~possible] = log_probability[:, ~possible] = np.nan
    value_without, log_without = map(median_over_fills, (by_fill, log_probability))
    if any(fill.name in ALTERNATIVES for fill in fills.all):
        is_written = np.array([source.side == "written" for source in writing.sources])
        value_without[:, is_written] = closest_over_fills(values, by_fill[..., is_written])
        log_without[:, is_written] = closest_over_fills(
            runs[0] @ readings.of_probabilities, log_probability[..., is_written]
        )
    if everything and not attribution_values:
        # Occlusion is the only measure. Others choose better: of two that stand in for each other
        # it misses neither.
        attribution_values = [values[:, None] - value_without]
    paired = [
        [index for index in sources if np.isfinite(value_without[choice_index, index])]
        for choice_index, sources in enumerate(sources_to_pair(attribution_values, pairs))
    ]
    runs_of_pairs = _run_pairs(writing, list_source_sets(paired), readings, fills, by_fill)
    return Effects(
        values,
        by_fill,
        value_without,
        np.exp(log_without),
        make_pairs(paired, values, runs_of_pairs),
    )


def median_over_fills(by_fill: np.ndarray) -> np.ndarray:
    """Median over the fills that a source was removed with; NaN where it was not removed."""
    return _apply_over_fills(np.nanmedian, by_fill)


def closest_over_fills(values: np.ndarray, by_fill: np.ndarray) -> np.ndarray:
    """Value [C, S] of the fill that changes it least; the intact value where fills disagree about the direction.

    An effect that one plausible alternative does not have is that of the other alternative, not of the word.
    """
    drops = values[:, None] - by_fill
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # all-NaN: a source that was not removed
        low, high = np.nanmin(drops, axis=0), np.nanmax(drops, axis=0)
    closest = np.where(low > 0, low, np.where(high < 0, high, 0.0))
    result: np.ndarray = values[:, None] - np.where(np.isnan(low), np.nan, closest)
    return result


def range_over_fills(by_fill: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lowest and highest value over fills."""
    return _apply_over_fills(np.nanmin, by_fill), _apply_over_fills(np.nanmax, by_fill)


def _apply_over_fills(statistic: Callable[..., np.ndarray], by_fill: np.ndarray) -> np.ndarray:
    if not len(by_fill):
        return np.full(by_fill.shape[1:], np.nan)
    with warnings.catch_warnings():
        # A source that was not removed has no value.
        warnings.simplefilter("ignore", RuntimeWarning)
        return statistic(by_fill, axis=0)


def _run_pairs(
    writing: Writing,
    sets: Sequence[tuple[int, int]],
    readings: Readings,
    fills: Fills,
    by_fill: np.ndarray,
) -> dict[tuple[int, int], PairRuns]:
    """Each pair of sources removed together, with each fill of its sides."""
    units = {pair: [writing.sources[index] for index in pair] for pair in sets}
    used = {
        pair: fills.combinations(of_pair) if all(map(fills.of_source, of_pair)) else []
        for pair, of_pair in units.items()
    }
    if not used:
        return {}
    removals = [make_removals(writing, pair, together) for pair in sets for together in used[pair]]
    runs = iter(read_without(writing, removals, readings.read))
    runs_by_pair = {}
    for pair, fill_combinations in used.items():
        read = np.array([next(runs) for _ in fill_combinations])
        first, second = (
            by_fill[
                [fills.all.index(f) for c in fill_combinations for f in c if f in of_side], :, index
            ]
            for index, of_side in zip(pair, map(fills.of_source, units[pair]), strict=True)
        )
        names = [", ".join(fill.label for fill in together) for together in fill_combinations]
        probability = np.exp(read @ readings.of_probabilities)
        runs_by_pair[pair] = PairRuns(first, second, read @ readings.of_choices, probability, names)
    return runs_by_pair


def _sources_to_remove(
    attributions: Sequence[np.ndarray], count: int, *, everything: bool, top: int
) -> list[int]:
    """The sources that some measure ranks first for some word."""
    if everything:
        return list(range(count))
    first: set[int] = set()
    for values in attributions:
        for row in values:
            source_indices = np.flatnonzero(np.isfinite(row))
            first |= set(
                source_indices[np.argsort(-row[source_indices], kind="stable")][:top].tolist()
            )
    return sorted(first)
