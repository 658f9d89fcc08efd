"""Combine the maps of encoder, cross-attention and decoder into one.

In: `MixingMap`s. Out: one. Composition rolls relevance through the encoder, then through
cross-attention and self-attention of each decoder layer (Ferrando et al. 2022b, Towards Opening the
Black Box of Neural Machine Translation, EMNLP).

Check that maps of encoder, cross-attention and decoder belong together before they are composed.

In: three maps. Out: nothing, or an error that says how to get maps that belong together.

Strongest routes from a source to a row through the layers.

In: the maps of all layers of a measure, of one stack or of encoder, cross-attention and decoder.
Out: `Routes`. Rolled-out and composed maps are sums over all ways through the layers, each the
product of the steps it takes (`roll_out`, `compose`). Here the ways stand one by one: one that
passes over a third unit is a relay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ...errors import InputError
from .measure_registry import find_facts, is_weighted_by_strength, measure_facts, omits_residual
from .numerics import normalize_rows
from .score_map import layer_maps, padding_advice, same_units, strength_weights

if TYPE_CHECKING:
    from ...inputs.words.spans import Span
    from .mixing_map import MixingMap


def check_composable(encoder: MixingMap, cross: MixingMap, decoder: MixingMap) -> None:
    """Raise an error unless the maps are of one model, clip, layers and units."""
    for stack, mixing_map in (("encoder", encoder), ("cross", cross), ("decoder", decoder)):
        if mixing_map.stack != stack:
            raise InputError(
                f"compose: {stack}= should be a map of the {stack}, found {mixing_map!r}"
            )
        for key in ("model", "clip"):
            if mixing_map.provenance.get(key) != cross.provenance.get(key):
                raise InputError(
                    f"compose: maps of one {key} expected, found "
                    f"{mixing_map.provenance.get(key)!r} and "
                    f"{cross.provenance.get(key)!r}"
                )
    if cross.layers != decoder.layers:
        raise InputError(
            f"compose: cross has layers {cross.layers}, decoder {decoder.layers}; they should be "
            "the same: " + missing_maps_advice(cross.measure)
        )
    for a, b, unit_text in (
        (encoder.targets, encoder.sources, "targets and sources of the encoder"),
        (encoder.sources, cross.sources, "sources of encoder and cross"),
        (decoder.targets, decoder.sources, "targets and sources of the decoder"),
        (decoder.targets, cross.targets, "targets of decoder and cross"),
    ):
        if not same_units(a, b):
            raise InputError(
                f"compose: {unit_text} should be the same units, found {len(a)} and {len(b)}, or "
                f"others: {padding_advice(a, b) or missing_maps_advice(cross.measure)}"
            )


def missing_maps_advice(measure: str) -> str:
    """The call whose maps can be composed, for errors.

    Examples
    --------
    >>> missing_maps_advice("alti")
    "ask for all stacks and rows in one call, mix(model, item, measures='alti'), without stacks=,
    layers=, targets= or window="
    """
    call = f"mix(model, item, measures={measure!r})"
    return (
        f"ask for all stacks and rows in one call, {call}, without stacks=, layers=, targets= "
        "or window="
    )


def compose(
    *,
    encoder: MixingMap,
    cross: MixingMap,
    decoder: MixingMap,
    share: float | None = None,
    weighted: bool | None = None,
    prefix: bool = True,
) -> MixingMap:
    """Compose three maps into one: from audio words (or source tokens) to the decoder's tokens.

    With E the encoder's map rolled out, S_l and G_l the decoder's self- and cross-attention maps of
    layer l (rows summing to one) and g_l the share of row i that comes through cross-attention,

        X_l = diag(g_l) G_l E + diag(1 - g_l) S_l X_{l-1}        X_0 = 0        (the encoder's units)
        P_l =                   diag(1 - g_l) S_l P_{l-1}        P_0 = I        (the decoder's own input tokens)

    so that each row of [X_l, P_l] sums to one. A unit to which nothing contributes keeps what it
    holds. Weighted by mixing strengths s, with w = s / (1 + s), each layer's map A of encoder and
    decoder is w A + (1 - w) I and g is w of cross-attention: a layer that moves nothing passes on
    what is there, and a decoder that does not hear has no share of E.

    Parameters
    ----------
    encoder, cross, decoder : MixingMap
        Of one clip and model. The encoder's is rolled out here, unless it was before (`rollout`,
        `flow`).
    share : float, optional
        g, the same everywhere. By default that of the measure (ALTI's own, which its raw cross map
        holds); for other measures by mixing strength, or one half without: the residual stream then
        weighs as much as cross-attention, as in rollout with the identity.
    weighted : bool, optional
        Weight layers by their mixing strengths. By default where the maps have them, but for
        measures that hold the size of the residual stream themselves (ALTI, HTA, attention norms
        with the residual).
    prefix : bool
        Keep the decoder's own tokens as sources. False leaves the encoder's units alone, rows
        summing to one over them.

    Returns
    -------
    MixingMap
        Stack "composed", one map per decoder layer.

    Raises
    ------
    InputError
        If the maps do not fit together, or should be weighted and have no mixing strengths.

    Examples
    --------
    >>> from speechmix import MixingMap, Span
    >>> words, tokens = (Span(0, 5, "les"), Span(5, 20, "livres")), (Span(0, 1, "les"), Span(1, 2, "livres"))
    >>> encoder = MixingMap(np.eye(2)[None], words, words, "value_zeroing", "encoder", (0,))
    >>> cross = MixingMap(np.eye(2)[None], tokens, words, "value_zeroing", "cross", (0,))
    >>> decoder = MixingMap(np.array([[[1.0, 0.0], [0.5, 0.5]]]), tokens, tokens, "value_zeroing", "decoder", (0,))
    >>> compose(encoder=encoder, cross=cross, decoder=decoder).scores[0]
    array([[0.5 , 0.  , 0.5 , 0.  ],
           [0.  , 0.5 , 0.25, 0.25]])
    """
    check_composable(encoder, cross, decoder)
    is_rolled_out = any(
        step.startswith(("rollout", "flow")) for step in encoder.provenance.get("steps", [])
    )
    weighted = resolve_weighted(
        weighted, (cross, decoder) if is_rolled_out else (encoder, cross, decoder)
    )
    encoder = encoder if is_rolled_out else roll_out(encoder, weighted=weighted)
    encoder_rollout = fill_empty_rows(normalize_rows(encoder.mean_heads().scores[-1]))
    gates, cross_attention, self_attention, share_name = decoder_steps(
        cross, decoder, share, weighted=weighted
    )
    n_tokens = self_attention.shape[-1]
    encoder_shares, prefix_shares, layers = (
        np.zeros((n_tokens, encoder_rollout.shape[-1])),
        np.eye(n_tokens),
        [],
    )
    for layer, gate in enumerate(gates):
        encoder_shares = gate * (cross_attention[layer] @ encoder_rollout) + (1 - gate) * (
            self_attention[layer] @ encoder_shares
        )
        prefix_shares = (1 - gate) * (self_attention[layer] @ prefix_shares)
        layers.append(
            np.concatenate([encoder_shares, prefix_shares], axis=1)
            if prefix
            else normalize_rows(encoder_shares)
        )
    measures = f"encoder {encoder.measure}, cross {cross.measure}, decoder {decoder.measure}"
    strength_note = (
        ", layers weighted by mixing strength"
        if _strength_weights(decoder, weighted) is not None
        else ""
    )
    name = f"composed ({measures}; share {share_name}{strength_note}, prefix={prefix})"
    steps = [*cross.provenance.get("steps", []), name]
    return replace(
        cross,
        scores=np.stack(layers).astype(cross.scores.dtype),
        targets=decoder.targets,
        sources=(*encoder.sources, *(decoder.sources if prefix else ())),
        stack="composed",
        mixing_strength=None,
        provenance={**cross.provenance, "steps": steps},
    )


def roll_out(mixing_map: MixingMap, *, weighted: bool | None = None) -> MixingMap:
    """Roll one stack out over layers as `compose` does.

    Parameters
    ----------
    weighted : bool, optional
        As for `compose`; False gives `MixingMap.rollout` as it is published.
    """
    return mixing_map.rollout(
        residual=None if _strength_weights(mixing_map, weighted) is None else "strength"
    )


def weighted_layers(mixing_map: MixingMap, weighted: bool | None) -> np.ndarray:
    """Matrices [L, W, W] that `roll_out` multiplies; rows sum to one, and rows of zeros are those
    of the identity."""
    scores, weights = mixing_map.mean_heads().scores, _strength_weights(mixing_map, weighted)
    return fill_empty_rows(
        layer_maps(scores, residual=omits_residual(mixing_map.measure), weights=weights)
    )


def resolve_weighted(weighted: bool | None, maps: Iterable[MixingMap]) -> bool | None:
    """Whether maps that go together are weighted by mixing strengths: by default not, if one of
    them has none."""
    return (
        weighted or False
        if any(mixing_map.mixing_strength is None for mixing_map in maps)
        else weighted
    )


def _strength_weights(mixing_map: MixingMap, weighted: bool | None) -> np.ndarray | None:
    """Weight of each row against the residual stream, [L, W_t]; None where there is to be none."""
    if weighted is None:
        weighted = mixing_map.mixing_strength is not None and is_weighted_by_strength(
            mixing_map.measure
        )
    return strength_weights(mixing_map) if weighted else None


def decoder_steps(
    cross: MixingMap,
    decoder: MixingMap,
    share: float | None = None,
    *,
    weighted: bool | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, str]:
    """Return what a decoder's rows take from where, layer by layer: g [L, U, 1], G [L, U, W] and S
    [L, U, U] of `compose`, and the name of the share in a map's steps."""
    cross_attention = normalize_rows(cross.mean_heads().scores)
    self_attention = weighted_layers(decoder, weighted)
    gates, share_name = _gates(cross, share, weighted)
    return (
        np.where(cross_attention.sum(axis=-1) > 0, gates, 0)[..., None],
        cross_attention,
        self_attention,
        share_name,
    )


def maps_to_compose(
    maps: Mapping[tuple[str, str], MixingMap], measure: str
) -> dict[str, MixingMap]:
    """Return the three maps of a measure that `compose` joins, by stack.

    The InputError of a missing map says which `mix` call makes it.
    """
    stacks = ("encoder", "cross", "decoder")
    missing_stacks = [stack for stack in stacks if (measure, stack) not in maps]
    if missing_stacks:
        raise InputError(
            f"no map of {', '.join(missing_stacks)} for composed({measure!r}), which joins "
            f"{', '.join(stacks)}; there are "
            f"{', '.join(map(repr, maps)) or 'none'}: {missing_maps_advice(measure)}. Only a model with a "
            "decoder behind an "
            f"encoder has all three; of any other take maps[{measure!r}, stack].rollout()"
        )
    return {stack: maps[measure, stack] for stack in stacks}


def encoder_source_count(mixing_map: MixingMap) -> int | None:
    """How many sources of a composed map are the encoder's units; the decoder's own tokens, if it
    has them, come behind."""
    if mixing_map.stack != "composed":
        return None
    steps = mixing_map.provenance.get("steps", [])
    has_prefix = any(
        step.startswith("composed") and step.endswith("prefix=True)") for step in steps
    )
    starts = [span.start for span in mixing_map.sources]
    restarts = [
        i for i in range(1, len(starts)) if starts[i] <= starts[i - 1]
    ]  # where positions begin anew
    return (
        len(starts)
        if not has_prefix
        else restarts[0]
        if restarts
        else len(starts) - len(mixing_map.targets)
    )


def _gates(cross: MixingMap, share: float | None, weighted: bool | None) -> tuple[np.ndarray, str]:
    """Share of each row [L, U] that comes through cross-attention, and how to call it in the map's
    steps."""
    if share is not None:
        if not 0 <= share <= 1:
            raise InputError(f"share should be between 0 and 1, found {share!r}")
        return np.full(cross.scores.shape[:1] + cross.scores.shape[-2:-1], share), f"{share:g}"
    facts = find_facts(cross.measure)
    if facts is None or facts.residual != "share":
        weights = _strength_weights(cross, weighted)
        return _gates(cross, 0.5, False) if weights is None else (weights, "mixing strength")
    if cross.provenance.get("steps"):
        raise InputError(
            f"compose: the share of cross-attention is read off the raw {cross.measure} map, but "
            "this one went through "
            f"{cross.provenance['steps']}: give the raw map, or share="
        )
    return np.minimum(cross.scores.sum(axis=-1), 1), cross.measure


def fill_empty_rows(maps: np.ndarray) -> np.ndarray:
    """Rows of zeros become those of the identity."""
    is_empty = maps.sum(axis=-1, keepdims=True) == 0
    return np.where(is_empty, np.eye(maps.shape[-1], dtype=maps.dtype), maps)


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
