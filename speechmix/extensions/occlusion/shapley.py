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
interactions of pairs come with the values.

Shapley interactions of pairs of words: how much two words do together beyond what each does by
itself.

In: margins of sets of words. Out: for each pair, averaged as Shapley values are (Grabisch and
Roubens 1999, An axiomatic approach to the concept of interaction among players in cooperative
games),

    pair(i, j) = sum over sets S without i, j of  |S|! (n - |S| - 2)! / (n - 1)!  [v(S,i,j) - v(S,i) - v(S,j) + v(S)].

Above zero the two need each other; below zero one replaces the other. A Shapley value holds half of
each of its word's pairs, so opposite effects cancel in it: of an exclusive or of two words, all of
it is in the pair.

Logit margins of an item without given sets of words, each set run once.

In: a decision, a side of its input and what replaces words. Out: `RemovalMargins`, which Shapley values, perturbation curves
and reference perturbations read.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from math import comb
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ...errors import InputError
from ...inputs.words.cue_and_target import number_repeated
from ...interventions.decision import Decision
from ...interventions.removals import SOUND, Removal
from ...interventions.runner import InterventionCache
from ...interventions.value_knock_out import build_decision_map, label_row
from ...mixing.maps.decision_map import DecisionMap
from ...mixing.passes.item_view import segment_item
from .input_ablation import build_word_removals, list_fills, list_sides, side_stack

if TYPE_CHECKING:
    import pandas as pd

    from ...adapters.model import Model
    from ...inputs.clips.segments import SegmentOption
    from ...interventions.decision import Decision, Source
    from ...mixing.passes.item_view import Item
    from ...mixing.passes.request import ObjectiveOption


# Of sets [m, n] of sources that are there, Boolean: m margins, or m arrays of one shape.
MarginFunction = Callable[[np.ndarray], np.ndarray]


class RemovalMargins:
    """Margins of an item without any set of its words, each set run once.

    `side` is "sound", "text" or "both"; the fill of "both" is written as "zeros + remove".
    """

    def __init__(self, decision: Decision, side: str, fill: str):
        self.decision, self.side, self.fill = decision, side, fill
        self._cache = InterventionCache(decision)

    def __len__(self) -> int:
        """Return the number of sets that have been run."""
        return len(self._cache)

    def players(self, words: Sequence[int | Sequence[int]] | None = None) -> list[Source]:
        """Return the sources that can be removed, all or some of them; an InputError if there is
        none."""
        sources = self.decision.select_sources(side_stack(self.decision, self.side), words)
        players = [source for source in sources if not self._has_decision_position(source)]
        if not players:
            raise InputError(
                f"{self.decision.name}: there is no word to take away with {self.fill!r}: words={words}"
            )
        return players

    def margins(self, removed: Iterable[Iterable[int]]) -> np.ndarray:
        """Return the margin without each of these sets of words, in nats, [N].

        An InputError says that there is nothing to fill with, or that the position that is read
        would be removed.
        """
        sets = [tuple(sorted(set(words))) for words in removed]
        for source in self.decision.select_sources(side_stack(self.decision, self.side), None):
            if self._has_decision_position(source) and any(source.index in words for words in sets):
                raise InputError(
                    f"{self.decision.name}: the decision is read at {source.label!r}, which cannot be removed"
                )
        return self._cache.read(
            [
                build_word_removals(self.decision, words, side=self.side, fill=self.fill)
                for words in sets
            ]
        )

    def margin_function(self, players: Sequence[Source]) -> MarginFunction:
        """Return the margins as a function of which players are there, Boolean rows [m, n]."""

        def margins(sets: np.ndarray) -> np.ndarray:
            absent_words = (
                (
                    player.word_indices
                    for player, is_present in zip(players, row, strict=True)
                    if not is_present
                )
                for row in sets
            )
            return self.margins(
                [word for words in players_words for word in words]
                for players_words in absent_words
            )

        return margins

    def scaled_margins(self, gains: Sequence[dict[int, float]]) -> np.ndarray:
        """Return the margin with words scaled in the sound, for each of these gains by word, [N];
        an InputError for an item without sound."""
        if self.side != SOUND:
            raise InputError(
                f"{self.decision.name}: soft metrics scale the sound of words; tokens are there or not"
            )
        return self._cache.read(
            [tuple(Removal(SOUND, (word,), gain) for word, gain in g.items()) for g in gains]
        )

    def probabilities(self, margins: np.ndarray) -> np.ndarray:
        """Return the probability of the target against its foil, or of the target without one."""
        with np.errstate(over="ignore"):
            probabilities: np.ndarray
            if self.decision.has_foil:
                probabilities = 1 / (1 + np.exp(-margins))
            else:
                probabilities = np.exp(margins)
            return probabilities

    def _has_decision_position(self, source: Source) -> bool:
        """Whether the position that is read would be removed with a source."""
        return self.fill.endswith("remove") and bool(
            set(source.positions) & set(self.decision.read_positions)
        )


PAIR_COLUMNS = ("word", "label", "other_word", "other_label", "interaction", "error")
_MIN_WARNING_NATS = 0.1  # smaller interactions are not worth a warning


def exact_interactions(players: int, margins: MarginFunction) -> np.ndarray:
    """Compute interactions [n, n] from the margins of all 2^n sets; symmetric, NaN on the diagonal."""
    set_numbers = np.arange(2**players)
    sets = (set_numbers[:, None] >> np.arange(players)) % 2 == 1
    set_margins, sizes = margins(sets), sets.sum(axis=1)
    interactions = np.full((players, players), np.nan)
    for i, j in combinations(range(players), 2):
        sets_without = set_numbers[~sets[:, i] & ~sets[:, j]]
        weights = np.array(
            [
                1 / ((players - 1) * comb(players - 2, int(set_size)))
                for set_size in sizes[sets_without]
            ]
        )
        with_i, with_j = sets_without | 1 << i, sets_without | 1 << j
        interaction = (
            set_margins[with_i | with_j]
            - set_margins[with_i]
            - set_margins[with_j]
            + set_margins[sets_without]
        )
        interactions[i, j] = interactions[j, i] = weights @ interaction
    return interactions


def sampled_interactions(
    players: int, margins: MarginFunction, *, samples: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Estimate interactions [n, n] and standard errors over random orders; NaN for pairs that occur
    too rarely.

    Two players that follow each other in a random order have in front of them a set drawn with the
    weights of the definition. The orders are those of `sampled_shapley` with the same seed: one set
    more is run for each pair of neighbours.
    """
    rng = np.random.default_rng(seed)
    values_by_pair: dict[tuple[int, int], list[float]] = {
        pair: [] for pair in combinations(range(players), 2)
    }
    for _ in range(samples):
        order = rng.permutation(players)
        direction_values = [
            _neighbour_interactions(direction, margins) for direction in (order, order[::-1])
        ]
        for pair, value in direction_values[
            0
        ].items():  # the same pairs are neighbours in the reverse
            values_by_pair[pair].append((value + direction_values[1][pair]) / 2)
    interactions, errors = np.full((2, players, players), np.nan)
    for (i, j), values in values_by_pair.items():
        if len(values) > 1:
            interactions[i, j] = interactions[j, i] = np.mean(values)
            errors[i, j] = errors[j, i] = np.std(values, ddof=1) / np.sqrt(len(values))
    return interactions, errors


def _neighbour_interactions(
    order: np.ndarray, margins: MarginFunction
) -> dict[tuple[int, int], float]:
    """Compute the interaction of each two neighbours of an order, given the set in front of
    them."""
    count = len(order)
    prefixes, skipping_prefixes = (
        np.zeros((count + 1, count), dtype=bool),
        np.zeros((count - 1, count), dtype=bool),
    )
    for index, player in enumerate(order, start=1):
        prefixes[index:, player] = True
    for index in range(count - 1):
        skipping_prefixes[index] = prefixes[index]
        skipping_prefixes[index, order[index + 1]] = True
    set_margins = margins(np.concatenate([prefixes, skipping_prefixes]))
    prefix_margins, skipping_margins = set_margins[: count + 1], set_margins[count + 1 :]
    return {
        (int(min(order[index : index + 2])), int(max(order[index : index + 2]))): float(
            prefix_margins[index + 2]
            - prefix_margins[index + 1]
            - skipping_margins[index]
            + prefix_margins[index]
        )
        for index in range(count - 1)
    }


def build_pair_table(
    words: Sequence[int], labels: Sequence[str], interactions: np.ndarray, errors: np.ndarray
) -> pd.DataFrame:
    """Build a table with a row for each pair of words (`PAIR_COLUMNS`), the largest interaction
    first."""
    rows = [
        (words[i], labels[i], words[j], labels[j], interactions[i, j], errors[i, j])
        for i, j in combinations(range(len(words)), 2)
    ]
    table = pd.DataFrame(rows, columns=list(PAIR_COLUMNS))
    order = (
        table["interaction"]
        .abs()
        .sort_values(ascending=False, kind="stable", na_position="last")
        .index
    )
    return table.loc[order].reset_index(drop=True)


def describe_interaction(pairs: pd.DataFrame, values: np.ndarray) -> str:
    """Describe an interaction as large as the largest value; empty if there is none.

    A sampled interaction counts by what it exceeds twice its error.

    Examples
    --------
    >>> row = {"word": 1, "label": "not", "other_word": 2, "other_label": "bad", "interaction": 8.0, "error": 0.0}
    >>> describe_interaction(pd.DataFrame([row]), np.array([4.5, -1.0]))[:56]
    "'not' and 'bad' interact by +8.0 nats, and no Shapley va"
    """
    certain_sizes = pairs["interaction"].abs() - 2 * pairs["error"]
    if not (certain_sizes >= max(_MIN_WARNING_NATS, float(np.abs(values).max()))).any():
        return ""
    strongest_pair = pairs.iloc[int(certain_sizes.argmax())]
    meaning = (
        "they need each other" if strongest_pair["interaction"] > 0 else "one replaces the other"
    )
    named_words = pairs[["word", "label"]].to_numpy().tolist()
    named_words += pairs[["other_word", "other_label"]].to_numpy().tolist()
    label_by_word = dict(sorted(named_words))
    name_by_word = dict(
        zip(label_by_word, number_repeated(list(label_by_word.values())), strict=True)
    )
    first, second = (name_by_word[strongest_pair[column]] for column in ("word", "other_word"))
    return (
        f"{first!r} and {second!r} interact by "
        f"{strongest_pair['interaction']:+.1f} nats, and no "
        f"Shapley value is larger than {np.abs(values).max():.1f}: {meaning}, and values average "
        "over that. Read the pairs "
        "(.pairs) and what each word does alone (column 'alone')"
    )


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
