"""MixingMap: scores of one measure in one stack, with labels and provenance.

Axis order, here and everywhere: [layer, (head,) target, source]. The *target* is the state that
receives, the *source* the one that contributes. Scores are raw; normalising, dropping units,
averaging heads and rolling out are explicit later steps, each of which returns a new map and notes
itself in `provenance["steps"]`.

Attention flow: maximum flow from inputs to states (Abnar & Zuidema 2020).

    F_l[i, j] = max-flow from node (l, i) down to node (0, j);   capacity of (l, i) -> (l-1, k) is A_l[i, k]

A_l as in rollout. One max-flow problem per layer and pair (Dinic's method, scipy), so for short
inputs only. In: arrays [L, W, W] with rows summing to one. Out: [L, W, W], not normalised.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from ...errors import InputError
from ...inputs.words.spans import SpanRequest
from .measure_registry import omits_residual
from .numerics import normalize_rows
from .score_map import (
    ScoreMap,
    layer_maps,
    long_table,
    pool_map,
    rollout,
    strength_weights,
    token_table,
)

if TYPE_CHECKING:
    import pandas as pd
    from inseq import FeatureAttributionOutput
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ...reporting.plots.token_colours import ColouredTokens


MAX_FLOW_UNITS = 64

# scipy's max-flow counts in 32-bit whole numbers: capacities are rounded to 2^-30.
_CAPACITY_STEPS = 2**30


def flow(maps: np.ndarray) -> np.ndarray:
    """Maximum flow from every state of every layer to every input.

    Parameters
    ----------
    maps : ndarray [L, W, W]
        Capacities; rows sum to one at most.

    Raises
    ------
    InputError
        For more than `MAX_FLOW_UNITS` units: there are L W^2 flows, each through a graph of L W^2
        edges.

    Examples
    --------
    >>> flow(np.array([[[1.0, 0.0], [0.5, 0.5]], [[1.0, 0.0], [0.5, 0.5]]]))[1]
    array([[1. , 0. ],
           [1. , 0.5]])
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_flow

    n_layers, n_units = maps.shape[:2]
    if n_units > MAX_FLOW_UNITS:
        raise InputError(
            "attention flow solves a max-flow problem for each pair of units and layer: at most "
            f"{MAX_FLOW_UNITS} units, this "
            f"map has {n_units} ({n_layers * n_units**2:,} problems). Pool to words first, or use "
            "rollout"
        )
    capacity_matrix = np.zeros(((n_layers + 1) * n_units,) * 2, dtype=np.int32)
    flows = np.empty(maps.shape)
    for layer, capacities in enumerate(maps):
        lower_start, upper_start = layer * n_units, (layer + 1) * n_units
        capacity_matrix[upper_start : upper_start + n_units, lower_start:upper_start] = np.rint(
            capacities * _CAPACITY_STEPS
        )
        graph = csr_array(capacity_matrix[: upper_start + n_units, : upper_start + n_units])
        for upper_unit in range(n_units):
            for input_unit in range(n_units):
                flows[layer, upper_unit, input_unit] = (
                    maximum_flow(
                        graph, upper_start + upper_unit, input_unit, method="dinic"
                    ).flow_value
                    / _CAPACITY_STEPS
                )
    return flows


@dataclass(frozen=True, repr=False)
class MixingMap(ScoreMap):
    """Context-mixing scores of one measure in one stack.

    Parameters
    ----------
    scores : ndarray [L, W_t, W_s] or [L, H, W_t, W_s]
        Raw scores; rows are targets, columns sources.
    targets, sources : tuple of Span
        Labels of rows and columns, with times where they lie in the audio.
    measure, stack : str
    layers : tuple of int
        Which layers, counted from 0.
    provenance : dict
        Model, initialisation, seed, clip, options, versions, steps taken since.
    mixing_strength : ndarray [L, W_t], optional
        How far each layer's attention block moves each target, as a share of the target's length:
        0.3 is 30 %. All values but the target's own are zeroed (in cross-attention all). The same
        for every measure of a stack. Normalised rows sum to one however small it is; below
        `speechmix.mixing.maps.numerics.STRENGTH_FLOOR` they are shares of next to nothing. Missing
        for measures of one number of the output, and behind `rollout` and `flow`.

    Examples
    --------
    >>> from speechmix import Span
    >>> units = (Span(0, 5, "les", word=0), Span(5, 20, "livres", word=1))
    >>> m = MixingMap(np.array([[[3.0, 1.0], [1.0, 3.0]]]), units, units, "value_zeroing", "encoder", (0,))
    >>> m.normalized().scores[0, 1]
    array([0.25, 0.75])
    >>> m.normalized().provenance["steps"]
    ['normalized']
    """

    def rollout(
        self, *, residual: bool | Literal["strength"] | None = None, normalize: bool = True
    ) -> MixingMap:
        """Roll out over layers: R_l = A_l R_{l-1}, with rows of A_l summing to one (Abnar & Zuidema
        2020).

        Parameters
        ----------
        residual : bool or "strength", optional
            True adds the identity to each layer's normalised map before, and normalises again. By
            default for measures that leave out the residual stream (attention, attention norm), not
            for Value Zeroing, which holds it. "strength" weights each row by its mixing strength s:
            w A + (1 - w) I with w = s / (1 + s), so that a layer that moves nothing changes
            nothing.
        normalize : bool
            False multiplies the raw maps: GlobEnc's own convention, where the tutorials normalise.

        Raises
        ------
        InputError
            If targets and sources are not the same units (cross-attention, or a map of a few
            targets), or the map has no mixing strengths and needs them.
        """
        square_map = self.require_square("rollout")
        residual = omits_residual(self.measure) if residual is None else residual
        options = f"residual={residual}" if normalize else f"residual={residual}, normalize=False"
        weights = strength_weights(square_map) if residual == "strength" else None
        rolled_scores = rollout(
            square_map.scores, residual=residual is True, normalize=normalize, weights=weights
        )
        return square_map._with_step(
            f"rollout ({options})", scores=rolled_scores, mixing_strength=None
        )

    def flow(self, *, residual: bool | None = None) -> MixingMap:
        """Attention flow over layers: maximum flow from each state down to each input, rows
        normalised after.

        Parameters
        ----------
        residual : bool, optional
            As in `rollout`.

        Raises
        ------
        InputError
            As `rollout`, and for more than 64 units, for which it would take too long.
        """
        square_map = self.require_square("flow")
        residual = omits_residual(self.measure) if residual is None else residual
        flows = normalize_rows(flow(layer_maps(square_map.scores, residual=residual))).astype(
            square_map.scores.dtype
        )
        return square_map._with_step(
            f"flow (residual={residual})", scores=flows, mixing_strength=None
        )

    def pooled(
        self, spans: Sequence[SpanRequest] | None = None, *, sources: str, side: str = "both"
    ) -> MixingMap:
        """Pool the units of a finished map into larger ones: frames or sub-words into words.

        Scores and mixing strengths of a new target are averaged over its positions. Pooling before
        or after a rollout differs.

        Parameters
        ----------
        spans : sequence of Span, (start, stop) or list of (start, stop), optional
            The new units, in positions, each made of whole units of this map; units in none of them
            are left out. By default units of one word are put together and all others stay as they
            are.
        sources : {"mean", "sum"}
            Over the positions of a source: "mean" compares words as attention per frame, "sum"
            keeps the mass of rows.
        side : {"both", "targets", "sources"}

        Raises
        ------
        InputError
            If spans are not made of whole units.

        Examples
        --------
        >>> from speechmix import Span
        >>> tokens = (Span(0, 1, "un", "token", 0), Span(1, 2, "##real", "token", 0), Span(2, 3, "dogs", "token", 1))
        >>> m = MixingMap(np.full((1, 3, 3), 1 / 3), tokens, tokens, "attention", "encoder", (0,))
        >>> m.pooled(sources="sum").scores[0].round(2)
        array([[0.67, 0.33],
               [0.67, 0.33]])
        """
        pooling_texts = {
            "both": f"targets mean, sources {sources}",
            "targets": "targets mean",
            "sources": f"sources {sources}",
        }
        if side not in pooling_texts:
            raise InputError(f"side must be 'both', 'targets' or 'sources', found {side!r}")
        changes = pool_map(self, spans, sources=sources, side=side)
        unit_text = "words" if spans is None else f"{len(spans)} spans"
        return self._with_step(f"pooled to {unit_text} ({pooling_texts[side]})", **changes)

    def mixing_ratio(self) -> np.ndarray:
        """How much of each target comes from other units, [L, (H,) W_t], between 0 and 1 (Kobayashi
        et al. 2021).

        For a map of a measure ``mixing_ratio_<vectors>`` that is || sum_{j != i} t_ij || over itself plus || t_ii ||. For
        any other map, the share of each row that is not in the target's own column; for attention, give the residual
        stream its part by `with_identity` before.

        Raises
        ------
        InputError
            If a target is not among the sources.
        """
        if self.measure.startswith("mixing_ratio"):
            ratio: np.ndarray = self.scores.max(axis=-1)
            return ratio
        column_by_ranges = {span.ranges: column for column, span in enumerate(self.sources)}
        columns = [
            column_by_ranges[span.ranges]
            for span in self.targets
            if span.ranges in column_by_ranges
        ]
        if self.stack in ("cross", "composed") or len(columns) < len(self.targets):
            raise InputError(
                "mixing_ratio: every target should be among the sources, which is not so in "
                f"{self!r}"
            )
        shares = normalize_rows(self.scores)
        ratio = shares.sum(axis=-1) - shares[..., range(len(columns)), columns]
        return ratio

    def to_dataframe(self, *, wide: bool = False, layer: int | None = None) -> pd.DataFrame:
        """Return raw scores, one row per layer, (head,) target and source.

        With `wide`, return shares instead, sources as rows and targets as columns: of one layer, or
        averaged over layers (`maps.long_table.token_table`).
        """
        return token_table(self, layer=layer) if wide else long_table(self)

    def tokens(self, *, layer: int | None = None, row: int | str | None = None) -> ColouredTokens:
        """Coloured tokens of one layer (the last by default), row by row; see
        `speechmix.reporting.plots.coloured_tokens`."""
        from ...reporting.plots.token_colours import coloured_tokens

        return coloured_tokens(self, layer=layer, row=row)

    def plot(
        self,
        *,
        layer: int | None = None,
        head: int | None = None,
        ax: Axes | None = None,
        normalize: bool = True,
    ) -> Axes:
        """Heat map of one layer (the last by default) and head (their mean); see
        `speechmix.reporting.plots.map_figures.heat_map`."""
        from ...reporting.plots.map_figures import heat_map

        return heat_map(self, layer=layer, head=head, ax=ax, normalize=normalize)

    def show(self, layers: Sequence[int] | None = None) -> Figure:
        """Small multiples over layers; returns the matplotlib figure."""
        from ...reporting.plots.map_figures import layer_grid

        return layer_grid(self, layers=layers)

    def show_heads(
        self, layers: Sequence[int] | None = None, heads: Sequence[int] | None = None
    ) -> Figure:
        """Small multiples, layers downwards and heads to the right; see
        `speechmix.reporting.plots.head_grids.head_grid`."""
        from ...reporting.plots.head_grids import head_grid

        return head_grid(self, layers=layers, heads=heads)

    def to_inseq(self) -> FeatureAttributionOutput:
        """This map alone as an output object of Inseq (extra `inseq`); see
        `speechmix.extensions.inseq.inseq_conversion.to_inseq`."""
        from ...extension import find_export

        output: FeatureAttributionOutput = find_export("to_inseq")([self])
        return output

    def save(self, path: str | Path) -> Path:
        """Write scores and labels to a safetensors file, labels and provenance in its header."""
        from .map_files import write_map

        return write_map(self, path)

    @classmethod
    def load(cls, path: str | Path, *, lazy: bool = False) -> MixingMap:
        """Read a map written by `save`; with `lazy`, leave its scores in the file until they are
        used.

        Either way the file is read through once and compared with its checksums.

        Raises
        ------
        InputError
            If the file is not one, or not as it was written.
        """
        from .map_files import read_map

        return read_map(path, lazy=lazy)

    def __repr__(self) -> str:
        heads = f" x {self.scores.shape[1]} heads" if self.has_heads else ""
        units = f"{len(self.targets)} targets x {len(self.sources)} sources"
        return f"MixingMap({self.measure}, {self.stack}: {len(self.layers)} layers{heads}, {units})"

    def _repr_html_(self) -> str:
        from ...reporting.plots.map_figures import as_html

        return as_html(self.show(), caption=repr(self))
