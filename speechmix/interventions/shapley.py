"""Shapley values of words: what each adds to a decision on average, whatever other words are there
(Shapley 1953).

In: a decision and what takes a word's place. Out: a share of the margin for each word, which add
up: to the margin of the item as it is less that with all words taken away. Where two cues say the
same, taking away one changes nothing (`ablate_input` finds neither); here both get half. Exact over
all 2^n sets of up to ten words,

    value(i) = sum over sets S without i of  |S|! (n - |S| - 1)! / n!  (margin of S and i - margin of S),

else over random orders and their reverses (Castro et al. 2009; Mitchell et al. 2022), with a
standard error. A value averages over what the other words are: where words act together, as in an
exclusive or, their effects cancel in it. So the effect of removing each word alone and the
interactions of pairs (`shapley_pairs`) come with the values.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from math import comb
from typing import TYPE_CHECKING

import numpy as np

from ..errors import InputError
from ..mixing.maps.decision_map import DecisionMap
from ..mixing.passes.requested_spans import segment_item
from .decision import Decision
from .decision_margins import MarginFunction, RemovalMargins
from .input_ablation import list_fills, list_sides
from .shapley_pairs import (
    build_pair_table,
    describe_interaction,
    exact_interactions,
    sampled_interactions,
)
from .value_knock_out import build_decision_map, label_row

if TYPE_CHECKING:
    import pandas as pd

    from ..adapters.model import Model
    from ..inputs.clips.sound_segments import SegmentOption
    from ..mixing.passes.item_view import Item
    from ..mixing.passes.request import ObjectiveOption

MAX_EXACT_PLAYERS = 10  # words, of which there are 1,024 sets
_DEFAULT_ORDERS = 64  # orders, beyond that


def shapley(
    model: Model,
    item: Item,
    *,
    side: str | None = None,
    fill: str | None = None,
    words: Sequence[int | Sequence[int]] | None = None,
    samples: int | None = None,
    seed: int = 0,
    pairs: bool | None = None,
    objective: ObjectiveOption | None = None,
    segments: SegmentOption | None = None,
) -> DecisionMap:
    """Compute the Shapley value of each word for the margin.

    Parameters
    ----------
    model : Model
        With its head.
    item : Clip, Sentence, str or dict
        As for `knock_out`.
    side : {"sound", "text", "both"}, optional
        What is taken away, as in `ablate_input`: by default the sound of a clip, the tokens of a
        text.
    fill : str, optional
        What takes its place: by default digital silence; of tokens the first that the model has of
        mask, unk, pad, remove.
    words : sequence of int or of tuples of int, optional
        Whose values are asked for; all others stay. All by default. The words of a tuple go
        together, as one. With the fill "remove" a word that holds the position where the margin is
        read stays, too.
    samples : int, optional
        Orders to draw, each of them also in reverse. By default all sets are tried of up to 10
        words, and 64 orders of more.
    seed : int
        Of the orders.
    pairs : bool, optional
        Whether to compute the interactions of pairs. By default where all sets are tried, for they
        cost no further run; drawn orders need about twice as many runs with them.
    objective : optional
        Another number to read than the margin, as in `mix`.
    segments : float or {"voice", "frames"}, optional
        Segments of the sound in place of a clip's words, as in `mix`; the margin is then the
        log-probability of the whole text: the clip's, or what the model writes.

    Returns
    -------
    DecisionMap
        Stack "input", a row a word; ``drop`` is its value in nats, ``error`` the standard error of
        it (0 where all sets were tried), ``alone`` the drop when this word alone is taken away.
        Margin and flipped are missing: there is no one run of a value. ``pairs`` is the table of
        interactions: word, label, other_word, other_label, interaction in nats (above zero the two
        need each other, below zero one replaces the other), error. The provenance holds
        ``nothing``, the margin without any of the words, and ``sets``, how many were run.

    Warns
    -----
    UserWarning
        If two words interact by as much as the largest value: then the values alone mislead.

    Raises
    ------
    InputError
        If the item has no target, there is no word to take away, or a side, fill or number of
        samples is not possible.

    Examples
    --------
    >>> values = speechmix.shapley(model, clip)                                           # doctest: +SKIP
    >>> values.table["drop"].sum(), values.margin - values.provenance["nothing"]          # doctest: +SKIP
    (17.1, 17.1)
    >>> values.pairs.head(1)                                                              # doctest: +SKIP
    """
    item = segment_item(model, item, segments)
    decision = Decision.prepare(model, item, objective=objective)
    possible_sides = list_sides(decision)
    side = side or possible_sides[0]
    if side not in possible_sides:
        raise InputError(
            f"{model.name} with {decision.name}: sides are {possible_sides}, found {side!r}"
        )
    if samples is not None and (not isinstance(samples, int) or samples < 2):
        raise InputError(f"samples should be a number of orders, at least 2, found {samples!r}")
    fill = _resolve_fill(decision, side, fill)
    removals = RemovalMargins(decision, side, fill)
    players = removals.players(words)
    count, margins = len(players), removals.margin_function(players)
    values, errors = shapley_values(count, margins, samples=samples, seed=seed)
    full_margin, empty_margin, *margins_without_one = margins(
        np.concatenate([[[True] * count, [False] * count], ~np.eye(count, dtype=bool)])
    )
    rows = [
        label_row(decision, f"shapley ({fill})", "input", float("nan"), player)
        for player in players
    ]
    decision_map = build_decision_map(decision, rows, float(full_margin), [float("nan")] * count)
    table = decision_map.table.assign(
        drop=values, error=errors, alone=full_margin - np.array(margins_without_one)
    )
    table["flipped"] = table["flipped"].mask(table["margin"].isna())
    build_pair_table = _pair_interactions(table, margins, samples, seed, requested=pairs)
    metadata: dict[str, object] = {
        "nothing": float(empty_margin),
        "sets": len(removals),
        "side": side,
        "fill": fill,
    }
    warning = "" if build_pair_table is None else describe_interaction(build_pair_table, values)
    metadata |= {} if build_pair_table is None else {"warning": warning}
    if warning:
        warnings.warn(f"{decision.name}: {warning}", stacklevel=2)
    return DecisionMap(
        table, float(full_margin), {**decision_map.provenance, **metadata}, build_pair_table
    )


def _pair_interactions(
    table: pd.DataFrame,
    margins: MarginFunction,
    samples: int | None,
    seed: int,
    *,
    requested: bool | None,
) -> pd.DataFrame | None:
    """Compute the interactions of the words of a table, if requested; None for one word."""
    count, is_exact = len(table), samples is None and len(table) <= MAX_EXACT_PLAYERS
    if count < 2 or not (is_exact if requested is None else requested):
        return None
    if is_exact:
        interactions = exact_interactions(count, margins)
        errors = np.zeros_like(interactions)
    else:
        interactions, errors = sampled_interactions(
            count, margins, samples=samples or _DEFAULT_ORDERS, seed=seed
        )
    return build_pair_table(table["word"].tolist(), table["label"].tolist(), interactions, errors)


def _resolve_fill(decision: Decision, side: str, requested_fill: str | None) -> str:
    possible_fills = list_fills(decision, side)
    if requested_fill is not None and requested_fill not in possible_fills:
        raise InputError(
            f"{decision.name}: of {side} fills are {possible_fills}, found {requested_fill!r}"
        )
    return requested_fill or possible_fills[0]


def shapley_values(
    players: int, margins: MarginFunction, *, samples: int | None = None, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Compute Shapley values [n, ...] and standard errors: exact (errors of 0) up to
    `MAX_EXACT_PLAYERS` players, else sampled.

    `margins` maps sets [m, n] of players that are there to a number each, or to an array of one
    shape. `samples` is the number of orders to draw, however few the players.
    """
    if samples is None and players <= MAX_EXACT_PLAYERS:
        values = exact_shapley(players, margins)
        return values, np.zeros_like(values)
    return sampled_shapley(players, margins, samples=samples or _DEFAULT_ORDERS, seed=seed)


def exact_shapley(players: int, margins: MarginFunction) -> np.ndarray:
    """Compute Shapley values [n, ...] from the margins of all 2^n sets."""
    set_numbers = np.arange(2**players)
    sets = (set_numbers[:, None] >> np.arange(players)) % 2 == 1
    set_margins = margins(sets)
    sizes = sets.sum(axis=1)
    values = np.empty((players, *set_margins.shape[1:]))
    for player in range(players):
        sets_without = set_numbers[~sets[:, player]]
        weights = np.array(
            [1 / (players * comb(players - 1, int(set_size))) for set_size in sizes[sets_without]]
        )
        values[player] = np.tensordot(
            weights, set_margins[sets_without | 1 << player] - set_margins[sets_without], axes=1
        )
    return values


def sampled_shapley(
    players: int, margins: MarginFunction, *, samples: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Estimate Shapley values [n, ...] and standard errors over random orders and their reverses;
    the values add up exactly."""
    rng = np.random.default_rng(seed)
    order_values = []
    for _ in range(samples):
        order, direction_values = rng.permutation(players), []
        for direction in (order, order[::-1]):
            is_present = np.zeros((players + 1, players), dtype=bool)
            for count, player in enumerate(direction, start=1):
                is_present[count:, player] = True
            direction_values.append(np.diff(margins(is_present), axis=0)[np.argsort(direction)])
        order_values.append((direction_values[0] + direction_values[1]) / 2)
    samples_of_values = np.stack(order_values)
    return samples_of_values.mean(axis=0), samples_of_values.std(axis=0, ddof=1) / np.sqrt(samples)
