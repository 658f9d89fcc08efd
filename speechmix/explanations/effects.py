"""Effects of removal: each written word without each source, with each fill, and without two
sources at once.

In: a `Writing`, its choices and what measures claim of them. Out: `Effects`. All choices are read
in each run.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .choices import Choice, Readings, possible_sources
from .fills import SOUND
from .removals import Removal, read_without
from .source_pairs import Pair, PairRuns, pairs_of, sets_of, sources_to_pair

if TYPE_CHECKING:
    from .attributions import Claim
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


def effects_of(
    writing: Writing,
    choices: Sequence[Choice],
    readings: Readings,
    fills: Fills,
    claims: Mapping[str, Claim],
    *,
    everything: bool,
    top: int,
    pairs: int,
) -> Effects:
    """Remove sources one at a time with each fill, and of each choice's first ones every two."""
    claimed = [claim.values for claim in claims.values()]
    ranked = _sources_to_remove(claimed, len(writing.sources), everything=everything, top=top)
    ranked = sorted(
        {*ranked, *(index for sources in sources_to_pair(claimed, pairs) for index in sources)}
    )
    removals = [
        Removal(),
        *(removal for index in ranked for removal in _removals_of(writing, (index,), fills)),
    ]
    runs = read_without(writing, removals, readings.read)
    values = runs[0] @ readings.of_choices
    possible = possible_sources(writing, choices)
    by_fill, log_probability = (
        np.full((len(fills.all), *possible.shape), np.nan) for _ in range(2)
    )
    for removal, run in zip(removals[1:], runs[1:], strict=True):
        fill = fills.all.index(removal.sound or removal.text)  # one source has one fill
        by_fill[fill, :, removal.sources[0]] = run @ readings.of_choices
        log_probability[fill, :, removal.sources[0]] = run @ readings.of_probabilities
    by_fill[:, ~possible] = log_probability[:, ~possible] = np.nan
    value_without = median_over_fills(by_fill)
    if everything and not claimed:
        # Occlusion is the only measure. Others choose better: of two that stand in for each other
        # it misses neither.
        claimed = [values[:, None] - value_without]
    paired = [
        [index for index in sources if np.isfinite(value_without[place, index])]
        for place, sources in enumerate(sources_to_pair(claimed, pairs))
    ]
    runs_of_pairs = _without_both(writing, sets_of(paired), readings, fills, by_fill)
    return Effects(
        values,
        by_fill,
        value_without,
        np.exp(median_over_fills(log_probability)),
        pairs_of(paired, values, runs_of_pairs),
    )


def median_over_fills(by_fill: np.ndarray) -> np.ndarray:
    """Median over the fills that a source was removed with; NaN where it was not removed."""
    return _over_fills(np.nanmedian, by_fill)


def range_over_fills(by_fill: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lowest and highest value over fills."""
    return _over_fills(np.nanmin, by_fill), _over_fills(np.nanmax, by_fill)


def _over_fills(statistic, by_fill: np.ndarray) -> np.ndarray:
    if not len(by_fill):
        return np.full(by_fill.shape[1:], np.nan)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", RuntimeWarning
        )  # a source that was not removed has no value
        return statistic(by_fill, axis=0)


def _removals_of(writing: Writing, sources: tuple[int, ...], fills: Fills) -> list[Removal]:
    """These sources removed together, once with each fill."""
    units = [writing.sources[index] for index in sources]
    if not all(fills.of_source(unit) for unit in units):
        return []
    return [Removal(sources, sound, text) for sound, text in fills.combinations(units)]


def _without_both(
    writing: Writing,
    sets: Sequence[tuple[int, int]],
    readings: Readings,
    fills: Fills,
    by_fill: np.ndarray,
) -> dict[tuple[int, int], PairRuns]:
    """Each pair of sources removed together, with each fill of its sides."""
    removals = {pair: _removals_of(writing, pair, fills) for pair in sets}
    if not removals:
        return {}
    runs = iter(
        read_without(
            writing,
            [removal for of_pair in removals.values() for removal in of_pair],
            readings.read,
        )
    )
    found = {}
    for pair, of_pair in removals.items():
        read = np.array([next(runs) for _ in of_pair])
        first, second = (
            by_fill[_used(removals[pair], source, writing, fills), :, source] for source in pair
        )
        names = [
            ", ".join(fill.label for fill in (removal.sound, removal.text) if fill)
            for removal in of_pair
        ]
        probability = np.exp(read @ readings.of_probabilities)
        found[pair] = PairRuns(first, second, read @ readings.of_choices, probability, names)
    return found


def _used(removals: Sequence[Removal], source: int, writing: Writing, fills: Fills) -> list[int]:
    """Which fill replaced a source in each run, as places among all fills."""
    is_sound = writing.sources[source].side == SOUND
    return [
        fills.all.index(fill)
        for r in removals
        if (fill := r.sound if is_sound else r.text) is not None
    ]


def _sources_to_remove(
    claims: Sequence[np.ndarray], count: int, *, everything: bool, top: int
) -> list[int]:
    """The sources that some measure ranks first for some word."""
    if everything:
        return list(range(count))
    first: set[int] = set()
    for values in claims:
        for row in values:
            known = np.flatnonzero(np.isfinite(row))
            first |= set(known[np.argsort(-row[known], kind="stable")][:top].tolist())
    return sorted(first)
