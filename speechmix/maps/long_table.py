"""A mixing map as a long table: one row per layer, (head,) target and source.

In: a `MixingMap`. Out: a data frame with the units' labels and times beside each raw score.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..inputs.spans import Span

if TYPE_CHECKING:
    import pandas as pd

    from .mixing import MixingMap


def long_table(mixing_map: MixingMap) -> pd.DataFrame:
    """Columns stack, measure, layer, (head,) target and source, each with label, kind, onset and offset; score."""
    import pandas as pd

    axes = {"layer": np.array(mixing_map.layers)}
    if mixing_map.has_heads:
        axes["head"] = np.arange(mixing_map.scores.shape[1])
    axes |= {"target": np.arange(len(mixing_map.targets)), "source": np.arange(len(mixing_map.sources))}
    grid = np.meshgrid(*axes.values(), indexing="ij")
    table = {name: axis.ravel() for name, axis in zip(axes, grid, strict=True)}
    for side, spans in (("target", mixing_map.targets), ("source", mixing_map.sources)):
        table |= {f"{side}_{name}": column[table[side]] for name, column in _columns(spans).items()}
    columns = {"stack": mixing_map.stack, "measure": mixing_map.measure, **table}
    return pd.DataFrame({**columns, "score": mixing_map.scores.ravel()})


def _columns(spans: Sequence[Span]) -> dict[str, np.ndarray]:
    """What is said of each unit of one side; times are NaN where they are not known."""
    return {
        "label": np.array([span.label for span in spans], dtype=object),
        "kind": np.array([span.kind for span in spans], dtype=object),
        "onset": np.array([np.nan if span.onset is None else span.onset for span in spans], dtype=float),
        "offset": np.array([np.nan if span.offset is None else span.offset for span in spans], dtype=float),
    }
