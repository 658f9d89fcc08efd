"""What is shown of each written word: its probability without each source that some measure names, and without two of them.

In: a `Writing`, its choices and what measures claim of them. Out: a `Shown`. All choices are read in each run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .choices import Choice, Readings, possible_sources
from .pairs import Pair, pairs_of, sets_of, sources_to_pair
from .taken_away import Fills, read_without

if TYPE_CHECKING:
    from .claims import Claim
    from .written import Writing


@dataclass(frozen=True)
class Shown:
    """What taking sources away does: arrays as in `Explanation`, and which sources that were to be taken were left."""

    values: np.ndarray
    value_without: np.ndarray
    probability_without: np.ndarray
    pairs: tuple[Pair, ...]
    left: tuple[int, ...]


def shown_of(
    writing: Writing,
    choices: Sequence[Choice],
    readings: Readings,
    fills: Fills,
    claims: Mapping[str, Claim],
    *,
    everything: bool,
    top: int,
    pairs: int,
) -> Shown:
    """Take sources away one at a time, and of each choice's first ones every two."""
    claimed = [claim.values for claim in claims.values()]
    ranked = _to_take_away(claimed, len(writing.sources), everything=everything, top=top)
    ranked = sorted({*ranked, *(index for sources in sources_to_pair(claimed, pairs) for index in sources)})
    taken = [index for index in ranked if fills.can_replace(writing.sources[index])]
    runs = read_without(writing, [(), *([source] for source in taken)], fills, readings.read)
    values, changed = runs[0] @ readings.of_choices, runs[1:]
    possible = possible_sources(writing, choices)
    value_without, log_probability_without = np.full(possible.shape, np.nan), np.full(possible.shape, np.nan)
    value_without[:, taken] = (changed @ readings.of_choices).T
    log_probability_without[:, taken] = (changed @ readings.of_probabilities).T
    value_without[~possible] = log_probability_without[~possible] = np.nan
    if everything and not claimed:
        # Occlusion alone was asked for. Other measures choose better: of two that stand in for each other neither is missed.
        claimed = [values[:, None] - value_without]
    paired = [
        [index for index in sources if np.isfinite(value_without[place, index])]
        for place, sources in enumerate(sources_to_pair(claimed, pairs))
    ]
    sets = sets_of(paired)
    together = read_without(writing, sets, fills, readings.read) if sets else np.empty((0, len(readings.of_choices)))
    both = dict(zip(sets, together @ readings.of_choices, strict=True))
    both_probable = dict(zip(sets, np.exp(together @ readings.of_probabilities), strict=True))
    return Shown(
        values,
        value_without,
        np.exp(log_probability_without),
        pairs_of(paired, values, value_without, both, both_probable),
        tuple(set(ranked) - set(taken)),
    )


def _to_take_away(claims: Sequence[np.ndarray], count: int, *, everything: bool, top: int) -> list[int]:
    """The sources that some measure ranks first for some word."""
    if everything:
        return list(range(count))
    first: set[int] = set()
    for values in claims:
        for row in values:
            known = np.flatnonzero(np.isfinite(row))
            first |= set(known[np.argsort(-row[known], kind="stable")][:top].tolist())
    return sorted(first)
