"""A mixing map as tables: a long one with a row for each score, and the one of source and generated
tokens.

In: a `MixingMap`. Out: a data frame with the units' labels and times beside each raw score; or one
whose columns are the targets and whose rows are the sources, as translations are printed with what
each written token comes from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...inputs.words.spans import Span

if TYPE_CHECKING:
    import pandas as pd

    from .score_map import ScoreMap


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
