"""Base class of maps: scores of one measure in one stack, with labels.

Attention rollout (Abnar & Zuidema 2020): the maps of all layers, multiplied.

    R_1 = A_1        R_l = A_l R_{l-1}

A_l is the layer's map with rows summing to one; for a measure that leaves out the residual stream,
(A_l + I) / 2; weighted by mixing strengths, w A_l + (1 - w) I. The matrix product of raw maps is
GlobEnc's own convention. In: arrays [L, W, W]. Out: [L, W, W].

Pool a finished map's units into larger ones: frames or sub-words into words, or into requested
spans.

In: a `MixingMap`. Out: scores averaged over the positions of a target, averaged or summed over
those of a source, and the new units. A word in pieces is one unit.

A mixing map as tables: a long one with a row for each score, and the one of source and generated
tokens.

In: a `MixingMap`. Out: a data frame with the units' labels and times beside each raw score; or one
whose columns are the targets and whose rows are the sources, as translations are printed with what
each written token comes from.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ...errors import InputError
from ...files.json_files import Json, JsonObject
from ...inputs.words.spans import Span, SpanRequest, parse_span_request
from .numerics import normalize_rows

if TYPE_CHECKING:
    import pandas as pd


def layer_maps(
    maps: np.ndarray, *, residual: bool, weights: np.ndarray | None = None
) -> np.ndarray:
    """Return maps [L, W, W] with rows summing to one, with the residual stream if `residual`
    (identity added, rows normalised again).

    `weights` [L, W] are another share w of each row: w A + (1 - w) I. A row of zeros becomes that
    of the identity.
    """
    maps, identity = normalize_rows(maps), np.eye(maps.shape[-1], dtype=maps.dtype)
    if weights is None:
        return normalize_rows(maps + identity) if residual else maps
    weights = np.where(maps.any(axis=-1), weights, 0)[..., None]
    weighted_maps: np.ndarray = (weights * maps + (1 - weights) * identity).astype(maps.dtype)
    return weighted_maps


def strength_weights(mixing_map: ScoreMap) -> np.ndarray:
    """Weight of each row of a map against the residual stream, [L, W_t]: s / (1 + s) of its mixing
    strength s.

    A map without mixing strengths is an InputError.

    Examples
    --------
    >>> from speechmix import MixingMap, Span
    >>> unit, strengths = (Span(0, 5, "les"),), np.array([[0.0], [1.0], [3.0], [np.inf]])
    >>> strength_weights(MixingMap(np.ones((4, 1, 1)), unit, unit, "attention", "encoder", (0, 1, 2, 3), {}, strengths))[:, 0]
    array([0.  , 0.5 , 0.75, 1.  ])
    """
    strengths = mixing_map.mixing_strength
    if strengths is None:
        raise InputError(
            f"{mixing_map!r} has no mixing strengths: it is rolled out, or of a measure of one "
            "number. "
            "Compute it again with speechmix.mix, or do without: rollout(residual=True or False), "
            "composed(weighted=False)"
        )
    weights: np.ndarray = np.divide(
        strengths, 1 + strengths, out=np.ones_like(strengths), where=~np.isinf(strengths)
    )
    return weights


def rollout(
    maps: np.ndarray,
    *,
    residual: bool = False,
    normalize: bool = True,
    weights: np.ndarray | None = None,
) -> np.ndarray:
    """Roll maps [L, W, W] out over layers.

    Parameters
    ----------
    residual : bool
        Add the identity to each layer's normalised map, and normalise again.
    normalize : bool
        False multiplies the raw maps.
    weights : ndarray [L, W], optional
        Weigh each row of a layer against the residual stream instead; see `layer_maps`.

    Raises
    ------
    InputError
        If the identity is to be added to raw maps, whose scale is not that of the identity.

    Examples
    --------
    >>> rollout(np.array([[[1.0, 0.0], [1.0, 1.0]], [[1.0, 0.0], [1.0, 1.0]]]))[1]
    array([[1.  , 0.  ],
           [0.75, 0.25]])
    """
    if (residual or weights is not None) and not normalize:
        raise InputError(
            "normalize=False multiplies raw maps, to which the identity cannot be added in "
            "proportion: give residual=False "
            "too, or leave normalize=True"
        )
    maps = layer_maps(maps, residual=residual, weights=weights) if normalize else maps
    rolled_maps = [maps[0]]
    for layer in maps[1:]:
        rolled_maps.append(layer @ rolled_maps[-1])
    return np.stack(rolled_maps)


@dataclass(frozen=True)
class ScoreMap:
    """What a `MixingMap` holds; its parameters and their shapes are described there."""

    scores: np.ndarray
    targets: tuple[Span, ...]
    sources: tuple[Span, ...]
    measure: str
    stack: str
    layers: tuple[int, ...]
    provenance: JsonObject = field(default_factory=dict)
    mixing_strength: np.ndarray | None = None

    def __post_init__(self) -> None:
        expected = (len(self.layers), len(self.targets), len(self.sources))
        shape = self.scores.shape
        if self.scores.ndim not in (3, 4) or (shape[0], *shape[-2:]) != expected:
            raise InputError(
                f"scores should be [L, (H,) targets, sources] = {expected}, found shape {shape}"
            )
        if self.mixing_strength is not None and self.mixing_strength.shape != expected[:2]:
            strength_shape = self.mixing_strength.shape
            raise InputError(
                f"mixing_strength should be [L, targets] = {expected[:2]}, found shape {strength_shape}"
            )

    @property
    def has_heads(self) -> bool:
        """True if there is a map per head."""
        return self.scores.ndim == 4

    def normalized(self) -> Self:
        """Rows that sum to one; all-zero rows stay zero."""
        return self._with_step("normalized", scores=normalize_rows(self.scores))

    def mean_heads(self) -> Self:
        """Average over heads. Normalise before (the published order) or after: the two differ."""
        if not self.has_heads:
            return self
        return self._with_step("mean over heads", scores=self.scores.mean(axis=1))

    def head(self, index: int) -> Self:
        """One head alone, counted from 0, of a map that keeps its heads.

        An InputError says that the map has no heads (`mix` averages them unless ``heads="each"``),
        or not this one.

        Examples
        --------
        >>> from speechmix import MixingMap
        >>> units = (Span(0, 5, "les", word=0), Span(5, 20, "livres", word=1))
        >>> m = MixingMap(np.arange(8.0).reshape(1, 2, 2, 2), units, units, "attention", "encoder", (0,))
        >>> m.head(1).scores[0]
        array([[4., 5.],
               [6., 7.]])
        """
        if not self.has_heads:
            raise InputError(
                f"{self!r} does not keep its heads: ask for them with mix(..., heads='each')"
            )
        if not 0 <= index < self.scores.shape[1]:
            raise InputError(
                f"no head {index} in {self!r}: heads are 0 to {self.scores.shape[1] - 1}"
            )
        return self._with_step(f"head {index} alone", scores=self.scores[:, index])

    def without(self, *kinds: str) -> Self:
        """Drop the units of some kinds ("silence", "padding", "special"), on both sides."""
        rows = [i for i, span in enumerate(self.targets) if span.kind not in kinds]
        columns = [j for j, span in enumerate(self.sources) if span.kind not in kinds]
        if len(rows) == len(self.targets) and len(columns) == len(self.sources):
            return self
        targets, sources = (
            tuple(self.targets[i] for i in rows),
            tuple(self.sources[j] for j in columns),
        )
        scores = self.scores[..., rows, :][..., columns]
        strength = None if self.mixing_strength is None else self.mixing_strength[:, rows]
        units = {"targets": targets, "sources": sources}
        return self._with_step(
            f"without {', '.join(kinds)}", scores=scores, mixing_strength=strength, **units
        )

    def with_identity(self) -> Self:
        """Add the residual stream to a measure that leaves it out: rows normalised, plus the
        identity, normalised again."""
        square_map = self.require_square("with_identity")
        return square_map._with_step(
            "with identity", scores=layer_maps(square_map.scores, residual=True)
        )

    def mean_layers(self) -> Self:
        """Average over layers: a map of one layer, numbered as the last. Raw scores weigh layers by
        their size."""
        scores, layer_list = (
            self.scores.mean(axis=0, keepdims=True),
            ", ".join(map(str, self.layers)),
        )
        strength = (
            None
            if self.mixing_strength is None
            else self.mixing_strength.mean(axis=0, keepdims=True)
        )
        name = f"mean over layers {layer_list}"
        return self._with_step(
            name, scores=scores, layers=self.layers[-1:], mixing_strength=strength
        )

    def last_layer(self) -> Self:
        """The last layer alone."""
        strength = None if self.mixing_strength is None else self.mixing_strength[-1:]
        name = f"layer {self.layers[-1]} alone"
        return self._with_step(
            name, scores=self.scores[-1:], layers=self.layers[-1:], mixing_strength=strength
        )

    def require_square(self, step: str) -> Self:
        """The map averaged over heads, if targets and sources are the same units.

        Raises
        ------
        InputError
            If they are not. `step` is what needs them, with which the error begins.
        """
        if self.stack in ("cross", "composed") or not same_units(self.targets, self.sources):
            advice = padding_advice(self.targets, self.sources)
            raise InputError(
                f"{step} goes from layer to layer, so targets and sources must be the same units; "
                f"this {self.stack} map has {len(self.targets)} targets and {len(self.sources)} "
                f"sources{advice and '; ' + advice}"
            )
        return self.mean_heads()

    def layer(self, index: int) -> np.ndarray:
        """Scores of one layer (counted from 0, in the model), [(H,) W_t, W_s]."""
        if index not in self.layers:
            raise InputError(f"no layer {index} in this map; it has {list(self.layers)}")
        layer_scores: np.ndarray = self.scores[self.layers.index(index)]
        return layer_scores

    def _with_step(self, name: str, **changes: Any) -> Self:
        provenance = {**self.provenance, "steps": [*self.provenance.get("steps", []), name]}
        return replace(self, provenance=provenance, **changes)


def same_units(a: Sequence[Span], b: Sequence[Span]) -> bool:
    """Whether two sides are the same positions, whatever their labels."""
    return [span.ranges for span in a] == [span.ranges for span in b]


def padding_advice(targets: Sequence[Span], sources: Sequence[Span]) -> str:
    """What to do where the padding behind a clip's frames is a source, but no target; else empty."""
    target_kinds, source_kinds = ({span.kind for span in spans} for spans in (targets, sources))
    if "padding" in source_kinds - target_kinds and "frame" in target_kinds:
        return (
            "mix(..., include=['padding']) makes the padding behind the frames a target, too, and "
            "without('padding') leaves it out of a map"
        )
    return ""


POOLING_METHODS = ("mean", "sum")


def group_units(
    units: Sequence[Span], spans: Sequence[SpanRequest] | None, provenance: Mapping[str, Json]
) -> list[tuple[Span, list[int]]]:
    """Group units: those inside each requested span, or runs of units of one word (others stay as
    they are).

    Returns each new unit with the indices of the old ones in it. Of a word in pieces, as the
    provenance says, all its units of one kind are one, wherever they are. An InputError says that a
    span holds no unit, or that a unit lies across its edge.
    """
    if spans is None:
        index_groups = _group_by_word(units, provenance.get("in_pieces", ()))
        return [
            (_join_units([units[i] for i in unit_indices], provenance), unit_indices)
            for unit_indices in index_groups
        ]
    groups = []
    for index, requested_span in enumerate(spans):
        span = (
            requested_span
            if isinstance(requested_span, Span)
            else Span.from_ranges(parse_span_request(requested_span))
        )
        positions = set(span.positions)
        unit_indices = [
            i for i, unit in enumerate(units) if not positions.isdisjoint(unit.positions)
        ]
        crossing_units = [
            units[i] for i in unit_indices if not positions.issuperset(units[i].positions)
        ]
        if not unit_indices or crossing_units:
            reason = (
                f"{crossing_units[0]} lies across its edge"
                if crossing_units
                else "no unit of the map lies in it"
            )
            ranges = " and ".join(f"[{start}, {stop})" for start, stop in span.ranges)
            raise InputError(
                f"span {index}, {ranges}: {reason}; spans should be made of whole units"
            )
        groups.append(
            (
                requested_span
                if isinstance(requested_span, Span)
                else _label_span(span, [units[i] for i in unit_indices]),
                unit_indices,
            )
        )
    return groups


def _group_by_word(units: Sequence[Span], multipart_words: Collection[int]) -> list[list[int]]:
    """Indices of the units of each word, in the order of their first."""
    runs = groupby(
        range(len(units)), key=lambda i: (units[i].word, i if units[i].word is None else -1)
    )
    groups: list[list[int]] = []
    multipart_groups: dict[
        tuple[int, str], list[int]
    ] = {}  # units of words in pieces, by their kind: a word may be heard and written
    for (word, _), word_run in runs:
        unit_indices = list(word_run)
        if word is not None and word in multipart_words:
            previous_indices = multipart_groups.setdefault(
                (word, units[unit_indices[0]].kind), unit_indices
            )
            if previous_indices is not unit_indices:
                previous_indices += unit_indices
                continue
        groups.append(unit_indices)
    return groups


def _label_span(span: Span, units: list[Span]) -> Span:
    """Label a span that is requested by its positions alone with the labels of its units."""
    joined_span = replace(_join_units(units, {}), kind="word")
    return (
        replace(joined_span, pieces=span.pieces, times=_unit_intervals(units))
        if span.pieces
        else joined_span
    )


def _unit_intervals(units: list[Span]) -> tuple[tuple[float, float], ...]:
    return tuple(interval for unit in units for interval in unit.intervals)


def _join_units(units: list[Span], provenance: Mapping[str, Json]) -> Span:
    """One span over several of the same word, labelled with the word where the clip's words are
    known."""
    first, last = units[0], units[-1]
    if first.word is None and len(units) == 1:
        return first
    words = provenance.get("words") or []
    if first.word is not None and first.word < len(words):
        label = words[first.word][0]
    else:
        label = "".join(unit.label.removeprefix("##") for unit in units).strip("Ġ▁ ")
    joined_span = Span(first.start, last.stop, label, "word", first.word, first.onset, last.offset)
    if first.word not in provenance.get("in_pieces", ()):
        return joined_span
    return replace(
        joined_span,
        pieces=tuple(unit_range for unit in units for unit_range in unit.ranges),
        times=_unit_intervals(units),
    )


def pool_map(
    mixing_map: ScoreMap, spans: Sequence[SpanRequest] | None, *, sources: str, side: str
) -> JsonObject:
    """Pool one side of a map ("targets", "sources") or "both"; return the fields of the map that
    change."""
    scores, rows, columns = mixing_map.scores, mixing_map.targets, mixing_map.sources
    strength = mixing_map.mixing_strength
    if side != "sources":
        groups = group_units(rows, spans, mixing_map.provenance)
        scores = pool_scores(scores.swapaxes(-1, -2), rows, groups, "mean").swapaxes(-1, -2)
        strength = None if strength is None else pool_scores(strength, rows, groups, "mean")
        rows = tuple(span for span, _ in groups)
    if side != "targets":
        groups = group_units(columns, spans, mixing_map.provenance)
        scores = pool_scores(scores, columns, groups, sources)
        columns = tuple(span for span, _ in groups)
    return {"scores": scores, "targets": rows, "sources": columns, "mixing_strength": strength}


def pool_scores(
    scores: np.ndarray, units: Sequence[Span], groups: list[tuple[Span, list[int]]], method: str
) -> np.ndarray:
    """Pool the last axis [..., U] into groups [..., G]: mean over positions, or sum over units."""
    if method not in POOLING_METHODS:
        raise InputError(f"pooling of a finished map is one of {POOLING_METHODS}, found {method!r}")
    weights = np.zeros((len(units), len(groups)), dtype=scores.dtype)
    for column, (_, unit_indices) in enumerate(groups):
        lengths = np.array([len(units[i]) for i in unit_indices])
        weights[unit_indices, column] = lengths / lengths.sum() if method == "mean" else 1
    return scores @ weights


def long_table(mixing_map: ScoreMap) -> pd.DataFrame:
    """Columns stack, measure, layer, (head,) target and source, each with label, kind, onset and
    offset; score."""
    import pandas as pd

    axes = {"layer": np.array(mixing_map.layers)}
    if mixing_map.has_heads:
        axes["head"] = np.arange(mixing_map.scores.shape[1])
    axes |= {
        "target": np.arange(len(mixing_map.targets)),
        "source": np.arange(len(mixing_map.sources)),
    }
    grid = np.meshgrid(*axes.values(), indexing="ij")
    table = {name: axis.ravel() for name, axis in zip(axes, grid, strict=True)}
    for side, spans in (("target", mixing_map.targets), ("source", mixing_map.sources)):
        table |= {
            f"{side}_{name}": column[table[side]] for name, column in _span_columns(spans).items()
        }
    columns = {"stack": mixing_map.stack, "measure": mixing_map.measure, **table}
    return pd.DataFrame({**columns, "score": mixing_map.scores.ravel()})


def token_table(mixing_map: ScoreMap, *, layer: int | None = None) -> pd.DataFrame:
    """Share of each source (rows) in each target (columns); a column sums to one, or is all zero.

    Parameters
    ----------
    layer : int, optional
        Counted from 0; by default the mean of all layers' shares.

    Raises
    ------
    InputError
        If the map has no such layer.

    Examples
    --------
    >>> from speechmix import MixingMap, Span
    >>> words, tokens = (Span(0, 1, "the"), Span(1, 2, "cats")), (Span(0, 1, "les"), Span(1, 2, "chats"))
    >>> cross = MixingMap(np.array([[[3.0, 1.0], [1.0, 4.0]]]), tokens, words, "value_zeroing", "cross", (0,))
    >>> token_table(cross)
           les  chats
    the   0.75    0.2
    cats  0.25    0.8
    """
    import pandas as pd

    shares = mixing_map.normalized().mean_heads()
    scores = shares.scores.mean(axis=0) if layer is None else shares.layer(layer)
    sources, targets = (
        [span.label for span in side] for side in (mixing_map.sources, mixing_map.targets)
    )
    return pd.DataFrame(scores.T, index=sources, columns=targets)


def _span_columns(spans: Sequence[Span]) -> dict[str, np.ndarray]:
    """What is said of each unit of one side; times are NaN where they are not known."""
    return {
        "label": np.array([span.label for span in spans], dtype=object),
        "kind": np.array([span.kind for span in spans], dtype=object),
        "onset": np.array(
            [np.nan if span.onset is None else span.onset for span in spans], dtype=float
        ),
        "offset": np.array(
            [np.nan if span.offset is None else span.offset for span in spans], dtype=float
        ),
    }
