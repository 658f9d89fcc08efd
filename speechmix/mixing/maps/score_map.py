"""Base class of maps: scores of one measure in one stack, with labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from ...errors import InputError
from ...files.json_files import JsonObject
from ...inputs.words.spans import Span
from .numerics import normalize_rows
from .rollout import layer_maps


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
