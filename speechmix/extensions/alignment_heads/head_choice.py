"""The chosen alignment heads of a model, with errors of all heads; written into a generation config.

In: tables of `alignment_heads`. Out: sentences, tables, a figure, `generation_config.json`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ...files.json_files import Json, JsonObject, read_json_object
from ...files.whole_files import write_json

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_FEW_CLIPS = 10  # on which a comparison is made
_NAMES = {
    "named": "the heads that the model names",
    "by clip": "the heads that `align_by_whisper` chooses for each clip",
}


@dataclass(frozen=True, eq=False)
class AlignmentHeads:
    """Errors of word boundaries by cross-attention head, and the chosen heads.

    Parameters
    ----------
    table : DataFrame
        One row a head: layer and head (from 0), error (ms, over all clips) with limits error_low and
        error_high, chosen; with effects also correlation, correlation_low, correlation_high.
    comparison : DataFrame
        One row a set of heads ("chosen", "default", "random"), on the clips that the heads were not
        chosen on: heads (their number), error with limits, and difference, its error less that of the
        chosen heads, with limits of a paired interval.
    mean_correlation : (float, float, float)
        Rank correlation of the mean over heads with effects of removal, and limits; NaN if not
        measured.
    skipped : tuple of (str, str)
        Clips that could not be used, and why.
    provenance : dict
        Model, seed, numbers of clips.
    generation_config : dict
        Of the model, without the chosen heads.
    """

    table: pd.DataFrame
    comparison: pd.DataFrame
    mean_correlation: tuple[float, float, float]
    skipped: tuple[tuple[str, str], ...] = ()
    provenance: Mapping[str, Json] = field(default_factory=dict)
    generation_config: Mapping[str, Json] = field(default_factory=dict)

    @property
    def chosen(self) -> list[tuple[int, int]]:
        """(layer, head) of the chosen heads."""
        chosen_rows = self.table[self.table["chosen"]]
        return [
            (int(layer), int(head))
            for layer, head in zip(chosen_rows["layer"], chosen_rows["head"], strict=True)
        ]

    def to_dataframe(self) -> pd.DataFrame:
        """Return a copy of the table, one row a head."""
        return self.table.copy()

    @property
    def summary(self) -> str:
        """What was found, in sentences."""
        return "\n".join(self._sentences())

    def _sentences(self) -> Iterator[str]:
        facts, best = self.provenance, self.table.iloc[int(self.table["error"].argmin())]
        chosen_row = self.comparison.iloc[0]
        yield (
            f"Best of {len(self.table)} heads over {facts['clips']} clips: layer {best['layer']}, "
            f"head {best['head']}. Its word boundaries are {_milliseconds(best, 'error')} from the "
            "given ones."
        )
        heads = ", ".join(f"[{layer}, {head}]" for layer, head in self.chosen)
        yield (
            f"Chosen on {facts['selection_clips']} clips: {heads} ([layer, head], counted from 0). "
            f"On the other {facts['test_clips']} clips their error is "
            f"{_milliseconds(chosen_row, 'error')}."
        )
        names = [_NAMES[facts["default"]], "random sets of the same size"]
        for name, (_, row) in zip(names, self.comparison.iloc[1:].iterrows(), strict=True):
            yield self._compare(name, row)
        if np.isfinite(self.mean_correlation[0]):
            mean, low, high = self.mean_correlation
            single = self.table["correlation"]
            interval = f" [{low:.2f}, {high:.2f}]" if np.isfinite(low) else ""
            yield (
                f"Attention and effects of removal in {facts['effect_clips']} clips: the mean over "
                f"heads ranks the words of the sound with a correlation of {mean:.2f}{interval}, "
                f"single heads with {single.min():.2f} to "
                f"{single.max():.2f} (1: the same order, 0: none)."
            )
        if grouping := facts.get("grouping"):
            yield str(grouping)

    def _compare(self, name: str, row: pd.Series) -> str:
        gain, low, high = (row[f"difference{limit}"] for limit in ("", "_low", "_high"))
        interval = f"{abs(gain):.1f} ms (interval {low:.1f} to {high:.1f} ms)"
        start = f"With {name} the error is {_milliseconds(row, 'error')}: "
        if low > 0:
            return f"{start}the chosen heads are better by {interval}."
        if high < 0:
            return f"{start}the chosen heads are worse by {interval}."
        count = self.provenance["test_clips"]
        advice = f" Only {count} clips were compared: give more." if count < _FEW_CLIPS else ""
        difference = f"{gain:+.1f} ms" + (
            f" ({low:.1f} to {high:.1f} ms)" if np.isfinite(low) else ""
        )
        return f"{start}the comparison is inconclusive, {difference}.{advice}"

    def write(self, folder: str | PathLike[str]) -> Path:
        """Write the chosen heads as `alignment_heads` into `generation_config.json` of a folder.

        Other values of the file stay. A new file has those of the model. `speechmix.align` and
        transformers then use the heads, once the model is loaded from that folder.

        Returns
        -------
        Path
            Of the file.

        Raises
        ------
        InputError
            If there is a file that holds no JSON object.
        """
        path = Path(folder) / "generation_config.json"
        content: JsonObject = (
            read_json_object(path) if path.exists() else dict(self.generation_config)
        )
        write_json(path, content | {"alignment_heads": [list(head) for head in self.chosen]})
        return path

    def plot(self, value: str = "error", *, ax: Axes | None = None) -> Axes:
        """Draw layers by heads: "error" in ms, or "correlation" with effects of removal."""
        from .alignment_heads import alignment_head_map

        return alignment_head_map(self, value, ax=ax)

    def show(self) -> Figure:
        """Draw errors, and beside them correlations if they were measured."""
        from .alignment_heads import alignment_head_figure

        return alignment_head_figure(self)

    def __repr__(self) -> str:
        return f"AlignmentHeads({self.provenance.get('model')}: {self.chosen})"


def _milliseconds(row: pd.Series, name: str) -> str:
    """A number with its interval, if there is one."""
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return f"{row[name]:.1f} ms" + (f" [{low:.1f}, {high:.1f}]" if np.isfinite(low) else "")
