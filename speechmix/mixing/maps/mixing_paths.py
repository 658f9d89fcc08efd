"""Strongest routes from a source to a row through the layers.

In: the maps of all layers of a measure, of one stack or of encoder, cross-attention and decoder.
Out: `Routes`. Rolled-out and composed maps are sums over all ways through the layers, each the
product of the steps it takes (`roll_out`, `compose`). Here the ways stand one by one: one that
passes over a third unit is a relay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ...errors import InputError
from .composition import decoder_steps, maps_to_compose, resolve_weighted, weighted_layers
from .composition_checks import check_composable
from .measure_registry import measure_facts

if TYPE_CHECKING:
    from ...inputs.words.spans import Span
    from .mixing_map import MixingMap

COLUMNS = ("share", "source", "label", "side", "moves", "route")
Node = tuple[str, int]  # side ("encoder", "decoder") and unit


@dataclass(frozen=True)
class LayerStep:
    """What one layer does, from above: every node's sources with their weights.

    `name` is its name in a route ("encoder 3", "cross 1"); `crossing`, the same for a step from the
    decoder to the encoder's output.
    """

    name: str
    crossing: str
    sources: Mapping[Node, Sequence[tuple[Node, float]]]


@dataclass(frozen=True)
class Routes:
    """Ways from sources to one row of the last layer, the strongest first.

    Parameters
    ----------
    measure : str
    target : str
        Label of the row.
    shares : tuple of float
        Of the row; those of all ways there are add up to one.
    paths : tuple of tuple of Node
        From the row down to the source, a node more than there are steps.
    steps : tuple of Step
        From the last layer down.
    units : dict of side to tuple of Span
    """

    measure: str
    target: str
    shares: tuple[float, ...]
    paths: tuple[tuple[Node, ...], ...]
    steps: tuple[LayerStep, ...]
    units: Mapping[str, tuple[Span, ...]]

    def label(self, node: Node) -> str:
        """Label of a unit; a decoder's token with its place, for another may be spelled alike."""
        side, unit = node
        text = self.units[side][unit].label
        return f"{text} ({unit})" if side == "decoder" and len(self.units) > 1 else text

    def moves(self, path: tuple[Node, ...]) -> list[tuple[Node, str, Node]]:
        """The steps of a way that lead to another unit, from the source on: lower node, name of the
        layer, upper node."""
        pairs = zip(path, path[1:], self.steps, strict=False)
        return [
            (lower, step.name if lower[0] == upper[0] else step.crossing, upper)
            for upper, lower, step in reversed(list(pairs))
            if upper != lower
        ]

    def to_dataframe(self) -> pd.DataFrame:
        """A row a route, `COLUMNS`: moves counts the steps to another unit, route is the way in
        words, from the source on."""
        rows = []
        for share, path in zip(self.shares, self.paths, strict=True):
            (side, source), moves = path[-1], self.moves(path)
            path_labels = [
                self.label(path[-1]),
                *(part for _, name, upper in moves for part in (name, self.label(upper))),
            ]
            rows.append(
                (
                    share,
                    source,
                    self.units[side][source].label,
                    side,
                    len(moves),
                    " > ".join(path_labels),
                )
            )
        return pd.DataFrame(rows, columns=list(COLUMNS))


def strongest_routes(
    maps: Mapping[tuple[str, str], MixingMap],
    measure: str,
    row: int,
    *,
    stack: str | None = None,
    share: float | None = None,
    weighted: bool | None = None,
    max_routes: int = 12,
) -> Routes:
    """The strongest ways from sources to one row of the last layer.

    Parameters
    ----------
    maps : Maps
        Of one item, with all layers and rows of the measure.
    measure : str
        Of one layer (Value Zeroing, attention, ...).
    row : int
        Which target, by its place; of a decoder behind an encoder the position that predicts the
        token.
    stack : str, optional
        One stack alone; by default encoder, cross-attention and decoder where there are all three,
        else the only one.
    share, weighted : optional
        How much of a decoder's row comes through cross-attention, and whether layers are weighted
        by their mixing strengths: as in `compose`. With ``weighted=False`` the ways through one
        stack add up to `MixingMap.rollout`.
    max_routes : int
        How many routes.

    Returns
    -------
    Routes

    Raises
    ------
    InputError
        If the measure explains one number, maps are missing or do not fit together, or there is no
        such row.

    Examples
    --------
    >>> from speechmix import MixingMap, Span
    >>> units = tuple(Span(i, i + 1, label) for i, label in enumerate("abc"))
    >>> layers = np.stack([np.eye(3), np.eye(3)])
    >>> layers[0, 1], layers[1, 2] = [1, 0, 0], [0, 1, 0]  # a to b in layer 0, b to c in layer 1
    >>> relay = {("value_zeroing", "encoder"): MixingMap(layers, units, units, "value_zeroing", "encoder", (0, 1))}
    >>> strongest_routes(relay, "value_zeroing", 2).to_dataframe()[["share", "route"]].values.tolist()
    [[1.0, 'a > encoder 0 > b > encoder 1 > c']]
    """
    if measure_facts(measure).scope != "layer":
        raise InputError(
            f"{measure} explains one number and has no layers to go through; ask for a measure of "
            "one layer"
        )
    measure_stacks = [name for kind, name in maps if kind == measure]
    if stack is None and {"encoder", "cross", "decoder"} <= set(measure_stacks):
        steps, targets, units = _encoder_decoder_steps(maps, measure, share, weighted)
        side = "decoder"
    else:
        side = stack or next(iter(measure_stacks), "encoder")
        if (measure, side) not in maps or side == "cross":
            raise InputError(
                f"expected all layers of one stack of {measure!r}, found {list(maps)} and "
                f"stack={stack!r}"
            )
        steps = _stack_steps(maps[measure, side], weighted)
        targets, units = maps[measure, side].targets, {side: maps[measure, side].sources}
    if not 0 <= row < len(targets):
        raise InputError(f"row={row} should be one of 0 to {len(targets) - 1}")
    paths = _find_strongest_paths((side, row), steps, max_routes)
    shares, nodes = (tuple(part) for part in zip(*paths, strict=True))
    return Routes(measure, targets[row].label, shares, nodes, tuple(steps), units)


def _stack_steps(mixing_map: MixingMap, weighted: bool | None) -> list[LayerStep]:
    """The layers of one stack, the last first."""
    matrices = weighted_layers(mixing_map.require_square("a route"), weighted)
    return [
        LayerStep(
            name := f"{mixing_map.stack} {layer}",
            name,
            _edges(mixing_map.stack, mixing_map.stack, matrix),
        )
        for layer, matrix in reversed(list(zip(mixing_map.layers, matrices, strict=True)))
    ]


def _encoder_decoder_steps(
    maps: Mapping[tuple[str, str], MixingMap],
    measure: str,
    share: float | None,
    weighted: bool | None,
) -> tuple[list[LayerStep], tuple[Span, ...], dict[str, tuple[Span, ...]]]:
    """The decoder's layers, each with its cross-attention, then the encoder's."""
    stack_maps = maps_to_compose(maps, measure)
    check_composable(**stack_maps)
    weighted = resolve_weighted(weighted, stack_maps.values())
    gates, cross_attention, self_attention, _ = decoder_steps(
        stack_maps["cross"], stack_maps["decoder"], share, weighted=weighted
    )
    steps = []
    for index in reversed(range(len(gates))):
        layer = stack_maps["decoder"].layers[index]
        sources = _edges("decoder", "decoder", (1 - gates[index]) * self_attention[index])
        for node, crossing in _edges(
            "decoder", "encoder", gates[index] * cross_attention[index]
        ).items():
            sources[node] = [*sources[node], *crossing]
        steps.append(LayerStep(f"decoder {layer}", f"cross {layer}", sources))
    steps += _stack_steps(stack_maps["encoder"], weighted)
    units = {"encoder": stack_maps["encoder"].sources, "decoder": stack_maps["decoder"].sources}
    return steps, stack_maps["decoder"].targets, units


def _edges(above: str, below: str, matrix: np.ndarray) -> dict[Node, list[tuple[Node, float]]]:
    return {
        (above, target): [
            ((below, source), float(weight)) for source, weight in enumerate(row) if weight > 0
        ]
        for target, row in enumerate(matrix)
    }


def _find_strongest_paths(
    start: Node, steps: Sequence[LayerStep], max_routes: int
) -> list[tuple[float, tuple[Node, ...]]]:
    """The strongest ways down: to every node those that may still be among them are kept, so none
    is missed."""
    partial_paths: dict[Node, list[tuple[float, tuple[Node, ...]]]] = {start: [(1.0, (start,))]}
    for step in steps:
        extended_paths: dict[Node, list[tuple[float, tuple[Node, ...]]]] = {}
        for node, paths in partial_paths.items():
            for source, weight in step.sources.get(
                node, [(node, 1.0)]
            ):  # a decoder's own input waits for the encoder
                extended_paths.setdefault(source, []).extend(
                    (weight * path_share, (*path, source)) for path_share, path in paths
                )
        partial_paths = {
            node: sorted(paths, key=lambda path: -path[0])[:max_routes]
            for node, paths in extended_paths.items()
        }
    return sorted(
        (path for paths in partial_paths.values() for path in paths), key=lambda path: -path[0]
    )[:max_routes]
