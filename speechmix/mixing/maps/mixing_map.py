"""MixingMap: raw scores of one measure in one stack, with labels and provenance (long, for each
step is a method of it).

Axis order, here and everywhere: [layer, (head,) target, source]. The *target* is the state that
receives, the *source* the one that gives. Scores are raw; normalising, dropping units, averaging
heads and rolling out are explicit later steps, each of which returns a new map and notes itself in
`provenance["steps"]`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ...errors import InputError
from ...files.json_files import JsonObject
from ...inputs.words.spans import RequestedSpan, Span
from .aggregation import compose, maps_to_compose, same_units
from .flow import flow
from .long_table import long_table, token_table
from .measure_registry import residual_left_out
from .numerics import normalize_rows
from .pooling import pooled
from .rollout import layer_maps, rollout, strength_weights

if TYPE_CHECKING:
    import pandas as pd
    from inseq import FeatureAttributionOutput
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ...inputs.clips.clip import Clip
    from ...reporting.plots.coloured_tokens import ColouredTokens


@dataclass(frozen=True)
class MixingMap:
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
    >>> units = (Span(0, 5, "les", word=0), Span(5, 20, "livres", word=1))
    >>> m = MixingMap(np.array([[[3.0, 1.0], [1.0, 3.0]]]), units, units, "value_zeroing", "encoder", (0,))
    >>> m.normalized().scores[0, 1]
    array([0.25, 0.75])
    >>> m.normalized().provenance["steps"]
    ['normalized']
    """

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
            found = self.mixing_strength.shape
            raise InputError(
                f"mixing_strength should be [L, targets] = {expected[:2]}, found shape {found}"
            )

    @property
    def has_heads(self) -> bool:
        """True if there is a map per head."""
        return self.scores.ndim == 4

    def normalized(self) -> MixingMap:
        """Rows that sum to one; all-zero rows stay zero."""
        return self._step("normalized", scores=normalize_rows(self.scores))

    def mean_heads(self) -> MixingMap:
        """Average over heads. Normalise before (the published order) or after: the two differ."""
        if not self.has_heads:
            return self
        return self._step("mean over heads", scores=self.scores.mean(axis=1))

    def head(self, index: int) -> MixingMap:
        """One head alone, counted from 0, of a map that keeps its heads.

        Raises
        ------
        InputError
            If the map has no heads (`mix` averages them unless it is asked for ``heads="each"``),
            or not this one.

        Examples
        --------
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
        return self._step(f"head {index} alone", scores=self.scores[:, index])

    def without(self, *kinds: str) -> MixingMap:
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
        return self._step(
            f"without {', '.join(kinds)}", scores=scores, mixing_strength=strength, **units
        )

    def with_identity(self) -> MixingMap:
        """Add the residual stream to a measure that leaves it out: rows normalised, plus the
        identity, normalised again."""
        flat = self._square("with_identity")
        return flat._step("with identity", scores=layer_maps(flat.scores, residual=True))

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
        flat = self._square("rollout")
        residual = residual_left_out(self.measure) if residual is None else residual
        options = f"residual={residual}" if normalize else f"residual={residual}, normalize=False"
        weights = strength_weights(flat) if residual == "strength" else None
        rolled = rollout(
            flat.scores, residual=residual is True, normalize=normalize, weights=weights
        )
        return flat._step(f"rollout ({options})", scores=rolled, mixing_strength=None)

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
        flat = self._square("flow")
        residual = residual_left_out(self.measure) if residual is None else residual
        flows = normalize_rows(flow(layer_maps(flat.scores, residual=residual))).astype(
            flat.scores.dtype
        )
        return flat._step(f"flow (residual={residual})", scores=flows, mixing_strength=None)

    def mean_layers(self) -> MixingMap:
        """Average over layers: a map of one layer, numbered as the last. Raw scores weigh layers by
        their size."""
        scores, listed = self.scores.mean(axis=0, keepdims=True), ", ".join(map(str, self.layers))
        strength = (
            None
            if self.mixing_strength is None
            else self.mixing_strength.mean(axis=0, keepdims=True)
        )
        name = f"mean over layers {listed}"
        return self._step(name, scores=scores, layers=self.layers[-1:], mixing_strength=strength)

    def last_layer(self) -> MixingMap:
        """The last layer alone."""
        strength = None if self.mixing_strength is None else self.mixing_strength[-1:]
        name = f"layer {self.layers[-1]} alone"
        return self._step(
            name, scores=self.scores[-1:], layers=self.layers[-1:], mixing_strength=strength
        )

    def pooled(
        self, spans: Sequence[RequestedSpan] | None = None, *, sources: str, side: str = "both"
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
        >>> tokens = (Span(0, 1, "un", "token", 0), Span(1, 2, "##real", "token", 0), Span(2, 3, "dogs", "token", 1))
        >>> m = MixingMap(np.full((1, 3, 3), 1 / 3), tokens, tokens, "attention", "encoder", (0,))
        >>> m.pooled(sources="sum").scores[0].round(2)
        array([[0.67, 0.33],
               [0.67, 0.33]])
        """
        how = {
            "both": f"targets mean, sources {sources}",
            "targets": "targets mean",
            "sources": f"sources {sources}",
        }
        if side not in how:
            raise InputError(f"side must be 'both', 'targets' or 'sources', found {side!r}")
        changes = pooled(self, spans, sources=sources, side=side)
        what = "words" if spans is None else f"{len(spans)} spans"
        return self._step(f"pooled to {what} ({how[side]})", **changes)

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
        places = {span.ranges: column for column, span in enumerate(self.sources)}
        columns = [places[span.ranges] for span in self.targets if span.ranges in places]
        if self.stack in ("cross", "composed") or len(columns) < len(self.targets):
            raise InputError(
                "mixing_ratio: every target should be among the sources, which is not so in "
                f"{self!r}"
            )
        shares = normalize_rows(self.scores)
        ratio = shares.sum(axis=-1) - shares[..., range(len(columns)), columns]
        return ratio

    def _square(self, step: str) -> MixingMap:
        """The map averaged over heads, if targets and sources are the same units."""
        if self.stack in ("cross", "composed") or not same_units(self.targets, self.sources):
            raise InputError(
                f"{step} goes from layer to layer, so targets and sources must be the same units; "
                f"this {self.stack} "
                f"map has {len(self.targets)} targets and {len(self.sources)} sources"
            )
        return self.mean_heads()

    def layer(self, index: int) -> np.ndarray:
        """Scores of one layer (counted from 0, in the model), [(H,) W_t, W_s]."""
        if index not in self.layers:
            raise InputError(f"no layer {index} in this map; it has {list(self.layers)}")
        scores: np.ndarray = self.scores[self.layers.index(index)]
        return scores

    def to_dataframe(self) -> pd.DataFrame:
        """Long table: one row per layer, (head,) target and source."""
        return long_table(self)

    def to_table(self, *, layer: int | None = None) -> pd.DataFrame:
        """Shares of sources (rows) in targets (columns), averaged over layers; see
        `maps.long_table.token_table`."""
        return token_table(self, layer=layer)

    def tokens(self, *, layer: int | None = None, row: int | str | None = None) -> ColouredTokens:
        """Coloured tokens of one layer (the last by default), row by row; see
        `speechmix.reporting.plots.coloured_tokens`."""
        from ...reporting.plots.coloured_tokens import coloured_tokens

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
        `speechmix.mixing.maps.inseq_objects.to_inseq`."""
        from .inseq_objects import to_inseq

        return to_inseq([self])

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

    def _step(self, name: str, **changes: Any) -> MixingMap:
        provenance = {**self.provenance, "steps": [*self.provenance.get("steps", []), name]}
        return replace(self, provenance=provenance, **changes)

    def __repr__(self) -> str:
        heads = f" x {self.scores.shape[1]} heads" if self.has_heads else ""
        units = f"{len(self.targets)} targets x {len(self.sources)} sources"
        return f"MixingMap({self.measure}, {self.stack}: {len(self.layers)} layers{heads}, {units})"

    def _repr_html_(self) -> str:
        from ...reporting.plots.map_figures import as_html

        return as_html(self.show(), caption=repr(self))


class Maps(Mapping[tuple[str, str], MixingMap]):
    """The maps of one clip, by (measure, stack)."""

    def __init__(self, maps: Mapping[tuple[str, str], MixingMap]):
        self._maps = dict(maps)

    def __getitem__(self, key: tuple[str, str]) -> MixingMap:
        if key not in self._maps:
            raise InputError(f"no map {key!r}; there are {', '.join(map(repr, self._maps))}")
        return self._maps[key]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._maps)

    def __len__(self) -> int:
        return len(self._maps)

    def __contains__(self, key: object) -> bool:
        return key in self._maps

    def composed(
        self,
        measure: str,
        *,
        share: float | None = None,
        weighted: bool | None = None,
        prefix: bool = True,
    ) -> MixingMap:
        """Encoder, cross and decoder maps of one measure in one; see
        `speechmix.mixing.maps.aggregation.compose`.

        Raises
        ------
        InputError
            If one of the three is not there, or they do not fit together: the error says what to
            ask `mix` for.
        """
        return compose(
            **maps_to_compose(self, measure), share=share, weighted=weighted, prefix=prefix
        )

    def to_textgrid(self, path: str | Path, clip: Clip, **options: Any) -> Path:
        """Words and shares as tiers, .TextGrid for Praat or .eaf for ELAN; see
        `speechmix.mixing.maps.tiers.write_score_tiers`."""
        from .tiers import write_score_tiers

        return write_score_tiers(path, self, clip, **options)

    def to_inseq(self, measure: str | None = None) -> FeatureAttributionOutput:
        """One measure's maps (the only one by default) as an output object of Inseq; see
        `maps.inseq_objects.to_inseq`."""
        from .inseq_objects import to_inseq

        measure = (
            next(iter(self))[0]
            if measure is None and len({name for name, _ in self}) == 1
            else measure
        )
        return to_inseq([mixing_map for (name, _), mixing_map in self.items() if name == measure])

    def __repr__(self) -> str:
        return "Maps(" + ", ".join(f"{measure}/{stack}" for measure, stack in self._maps) + ")"
