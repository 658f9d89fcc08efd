"""MixingMap: raw scores of one measure in one stack, with labels and provenance.

Axis order, here and everywhere: [layer, (head,) target, source]. The *target* is the state that receives, the *source*
the one that gives. Scores are raw; normalising, dropping units, averaging heads and rolling out are explicit later
steps, each of which returns a new map and notes itself in `provenance["steps"]`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import InputError
from .measures.numerics import normalize_rows
from .spans import Span

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

_HEADER_VERSION = "1"

# Measures that leave out the residual stream; rolling them out adds the identity (Abnar & Zuidema 2020).
_WITHOUT_RESIDUAL = ("attention", "attention_norm")


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
    provenance: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self):
        expected = (len(self.layers), len(self.targets), len(self.sources))
        found = self.scores.shape
        if self.scores.ndim not in (3, 4) or (found[0], *found[-2:]) != expected:
            raise InputError(f"scores should be [L, (H,) targets, sources] = {expected}, found shape {found}")

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

    def without(self, *kinds: str) -> MixingMap:
        """Drop the units of some kinds ("silence", "padding", "special"), on both sides."""
        rows = [i for i, span in enumerate(self.targets) if span.kind not in kinds]
        columns = [j for j, span in enumerate(self.sources) if span.kind not in kinds]
        if len(rows) == len(self.targets) and len(columns) == len(self.sources):
            return self
        return self._step(
            f"without {', '.join(kinds)}",
            scores=self.scores[..., rows, :][..., columns],
            targets=tuple(self.targets[i] for i in rows),
            sources=tuple(self.sources[j] for j in columns),
        )

    def rollout(self, *, residual: bool | None = None) -> MixingMap:
        """Roll out over layers: R_l = A_l R_{l-1}, with rows of A_l summing to one (Abnar & Zuidema 2020).

        Parameters
        ----------
        residual : bool, optional
            Add the identity to each layer's normalised map before, and normalise again. By default for measures that
            leave out the residual stream (attention, attention norm), not for Value Zeroing, which holds it.

        Raises
        ------
        InputError
            If targets and sources are not the same units (cross-attention, or a map of a few targets).
        """
        if [(s.start, s.stop) for s in self.targets] != [(s.start, s.stop) for s in self.sources]:
            raise InputError(
                f"rollout multiplies a map over layers, so targets and sources must be the same units; this {self.stack} "
                f"map has {len(self.targets)} targets and {len(self.sources)} sources"
            )
        residual = self.measure in _WITHOUT_RESIDUAL if residual is None else residual
        maps = normalize_rows(self.mean_heads().scores)
        if residual:
            maps = normalize_rows(maps + np.eye(len(self.sources)))
        rolled = [maps[0]]
        for layer in maps[1:]:
            rolled.append(layer @ rolled[-1])
        return self._step(f"rollout (residual={residual})", scores=np.stack(rolled))

    def layer(self, index: int) -> np.ndarray:
        """Scores of one layer (counted from 0, in the model), [(H,) W_t, W_s]."""
        if index not in self.layers:
            raise InputError(f"no layer {index} in this map; it has {list(self.layers)}")
        return self.scores[self.layers.index(index)]

    def to_dataframe(self) -> pd.DataFrame:
        """Long table: one row per layer, (head,) target and source."""
        import pandas as pd

        axes = [np.array(self.layers)]
        names = ["layer"]
        if self.has_heads:
            axes.append(np.arange(self.scores.shape[1]))
            names.append("head")
        axes += [np.arange(len(self.targets)), np.arange(len(self.sources))]
        grid = np.meshgrid(*axes, indexing="ij")
        table = {name: axis.ravel() for name, axis in zip([*names, "target", "source"], grid, strict=True)}
        for side, spans in (("target", self.targets), ("source", self.sources)):
            index = table[side]
            for column, values in (
                ("label", [span.label for span in spans]),
                ("kind", [span.kind for span in spans]),
                ("onset", [np.nan if span.onset is None else span.onset for span in spans]),
                ("offset", [np.nan if span.offset is None else span.offset for span in spans]),
            ):
                table[f"{side}_{column}"] = np.array(values, dtype=object if column in ("label", "kind") else float)[
                    index
                ]
        return pd.DataFrame({"stack": self.stack, "measure": self.measure, **table, "score": self.scores.ravel()})

    def plot(self, *, layer: int | None = None, ax: Axes | None = None, normalize: bool = True) -> Axes:
        """Heat map of one layer (the last by default); see `speechmix.reports.figures.heat_map`."""
        from .reports.figures import heat_map

        return heat_map(self, layer=layer, ax=ax, normalize=normalize)

    def show(self, layers: Sequence[int] | None = None):
        """Small multiples over layers; returns the matplotlib figure."""
        from .reports.figures import layer_grid

        return layer_grid(self, layers=layers)

    def save(self, path: str | Path) -> Path:
        """Write scores and labels to a safetensors file, labels and provenance in its header."""
        from safetensors.numpy import save_file

        header = {
            "format": "speechmix.MixingMap",
            "version": _HEADER_VERSION,
            "measure": self.measure,
            "stack": self.stack,
            "layers": json.dumps(self.layers),
            "targets": json.dumps([asdict(span) for span in self.targets]),
            "sources": json.dumps([asdict(span) for span in self.sources]),
            "provenance": json.dumps(self.provenance),
        }
        path = Path(path)
        save_file({"scores": np.ascontiguousarray(self.scores)}, path, metadata=header)
        return path

    @classmethod
    def load(cls, path: str | Path) -> MixingMap:
        """Read a map written by `save`.

        Raises
        ------
        InputError
            If the file is not one.
        """
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(str(path), framework="numpy") as file:
                header, scores = file.metadata() or {}, file.get_tensor("scores")
        except (OSError, SafetensorError) as error:
            raise InputError(f"{path}: expected a map written by MixingMap.save, found {error}") from error
        if header.get("format") != "speechmix.MixingMap":
            raise InputError(f"{path}: a safetensors file, but not a MixingMap; found header {sorted(header)}")
        return cls(
            scores=scores,
            targets=tuple(Span(**span) for span in json.loads(header["targets"])),
            sources=tuple(Span(**span) for span in json.loads(header["sources"])),
            measure=header["measure"],
            stack=header["stack"],
            layers=tuple(json.loads(header["layers"])),
            provenance=json.loads(header["provenance"]),
        )

    def _step(self, name: str, **changes) -> MixingMap:
        steps = [*self.provenance.get("steps", []), name]
        return replace(self, provenance={**self.provenance, "steps": steps}, **changes)

    def __repr__(self) -> str:
        heads = f" x {self.scores.shape[1]} heads" if self.has_heads else ""
        return (
            f"MixingMap({self.measure}, {self.stack}: {len(self.layers)} layers{heads}, "
            f"{len(self.targets)} targets x {len(self.sources)} sources)"
        )

    def _repr_html_(self) -> str:
        from .reports.figures import as_html

        return as_html(self.show(), caption=repr(self))


class Maps(Mapping):
    """The maps of one clip, by (measure, stack)."""

    def __init__(self, maps: Mapping[tuple[str, str], MixingMap]):
        self._maps = dict(maps)

    def __getitem__(self, key: tuple[str, str]) -> MixingMap:
        if key not in self._maps:
            raise InputError(f"no map {key!r}; there are {', '.join(map(repr, self._maps))}")
        return self._maps[key]

    def __iter__(self):
        return iter(self._maps)

    def __len__(self) -> int:
        return len(self._maps)

    def __contains__(self, key: object) -> bool:
        return key in self._maps

    def __repr__(self) -> str:
        return "Maps(" + ", ".join(f"{measure}/{stack}" for measure, stack in self._maps) + ")"
