"""Score sources by the loss of margin when they are removed.

In: a registered measure, and a game: n sources, and a function that gives the margins [m, ...] of m
sets of them, Boolean rows [m, n]. Out: values [n, ...]. Occlusion and Shapley values are the
package's own; any function of the margins is one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...errors import InputError
from ...mixing.measures.measure_functions import find_measure, implement
from ..occlusion.shapley import MarginFunction, RemovalMargins, shapley_values

if TYPE_CHECKING:
    from ...interventions.decision import Decision

OCCLUSION = "occlusion"


class RemovalScores(NamedTuple):
    """Values [n, ...] of sources, and their standard errors [n, ...] where a measure has some."""

    values: np.ndarray
    errors: np.ndarray | None


def score_by_removal(
    measure: str, count: int, margins: MarginFunction, **options: Any
) -> RemovalScores:
    """Return the scores of n sources by a measure of scope "removal".

    Parameters
    ----------
    measure : str
    count : int
        n.
    margins : callable
        Of sets [m, n] of sources that are there; one number each, or an array of one shape.
    **options
        samples, seed; of these the measure's function gets those that it reads.

    Examples
    --------
    >>> either = lambda sets: (sets[:, 0] | sets[:, 1]).astype(float)  # either of two is enough
    >>> score_by_removal("occlusion", 3, either).values, score_by_removal("shapley", 3, either, seed=0).values
    (array([0., 0., 0.]), array([0.5, 0.5, 0. ]))
    """
    function = find_measure(measure)
    result = function(
        count, margins, **{name: options[name] for name in function.takes if name in options}
    )
    values, errors = result if isinstance(result, tuple) else (result, None)
    values = np.asarray(values)
    if values.shape[:1] != (count,):
        raise InputError(
            f"{measure}: expected a value for each of {count} sources, found shape {values.shape}"
        )
    return RemovalScores(values, errors)


def score_words_by_removal(
    decision: Decision, measure: str, *, side: str, fill: str
) -> Mapping[int, float]:
    """Return the scores of the words of one side by index, with one fill; a word that cannot be
    removed has none.

    Raises
    ------
    InputError
        If there is no word to remove.
    """
    removals = RemovalMargins(decision, side, fill)
    players = removals.players()
    margins = removals.margin_function(players)
    values = score_by_removal(measure, len(players), margins).values
    return dict(zip((player.index for player in players), values.tolist(), strict=True))


def occlusion(count: int, margins: MarginFunction) -> np.ndarray:
    """Return what is lost when each source alone is removed, [n, ...]."""
    full_margin, *margins_without_one = margins(
        np.concatenate([np.ones((1, count), dtype=bool), ~np.eye(count, dtype=bool)])
    )
    losses: np.ndarray = full_margin - np.array(margins_without_one)
    return losses


implement("occlusion", occlusion)
implement("shapley", shapley_values)
