"""Compare Value Zeroing scores under different distance metrics.

The target's row under each distance, held against the cosine's.

In: a model and a sentence with its cue and target. Out: cue alignment layer by layer for each
distance, and the rank correlation of the row with that of the cosine. Three distances are of the
states as they are (cosine, euclidean, manhattan), three of *normalised* states: "correlation" is
the cosine of centred ones, as a layer norm without gain leaves them; "unit_euclidean" and
"unit_manhattan" are of states at length 1. Mohebbi et al. 2023 (Quantifying Context Mixing in
Transformers, EACL) report that neither changes much.

"unit_euclidean" ranks the sources as the cosine does whatever the model: it is sqrt(2 (1 - cos)).

Do measures draw the same map? Correlation of maps of one item, cell by cell, layer by layer.

    r[l] = correlation over cells (i, j) of  A[l, i, j] and B[l, i, j],     rows of both summing to one

In: maps of one item, one of them the reference: gradients (`hta`), as in Modarressi et al. 2022
(GlobEnc, NAACL, Figure 4), or one distance of Value Zeroing against the others (Mohebbi et al.
2023). Out: Pearson's and Spearman's r (scipy), then their means over items with intervals.

Where a token keeps most of itself, the diagonal is most of any map, and r is near 1 for that alone.
The row "identity", a map of nothing but the diagonal, says how near; `diagonal=False` leaves those
cells out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from ...adapters.model import Model
from ...errors import InputError
from ...evaluation.statistics.intervals import CORRELATION_BOUNDS, mean_interval
from ...inputs.sentences.sentence import Sentence
from ...mixing.maps.mixing_map import MixingMap
from ...mixing.maps.numerics import DISTANCES
from ...mixing.passes.mix import mix_one
from .cue_alignment import RANK_CORRELATION, cue_alignment

STATISTICS = ("pearson", "spearman")
IDENTITY_ROW = "identity"
_MIN_CELLS = 3  # cells that a correlation needs to say anything
_COLUMNS = ["stack", "measure", "reference", "layer", *STATISTICS, "cells"]


def map_correlations(
    maps: Mapping[str, MixingMap] | Mapping[tuple[str, str], MixingMap],
    *,
    reference: str = "hta",
    diagonal: bool = True,
) -> pd.DataFrame:
    """Correlate maps of one item with a reference, layer by layer.

    Parameters
    ----------
    maps : mapping of str, or of (measure, stack), to MixingMap
        Of one item and the same units: what `speechmix.mix` returns, or maps by any name.
    reference : str
        Which one the others are held against.
    diagonal : bool
        False leaves out what each unit gives to itself.

    Returns
    -------
    DataFrame
        Columns stack, measure (the map's name), reference, layer, pearson, spearman, cells. With
        the diagonal in there is a row "identity" for each layer, as a control. NaN where a map does
        not vary.

    Raises
    ------
    InputError
        If the reference is missing, or a map has other units.

    Examples
    --------
    >>> from speechmix import Span
    >>> units = (Span(0, 1, "le", "token", 0), Span(1, 2, "chat", "token", 1))
    >>> maps = {name: MixingMap(np.array([scores]), units, units, name, "encoder", (0,))
    ...         for name, scores in {"hta": [[3.0, 1.0], [2.0, 2.0]], "attention": [[0.7, 0.3], [0.6, 0.4]]}.items()}
    >>> map_correlations(maps)[["measure", "pearson", "spearman", "cells"]].round(2).values.tolist()
    [['attention', 0.89, 0.95, 4], ['identity', 0.71, 0.71, 4]]
    """
    stacks: dict[str, dict[str, MixingMap]] = {}
    for key, mixing_map in maps.items():
        name = key if isinstance(key, str) else key[0]
        stacks.setdefault(mixing_map.stack, {})[name] = mixing_map.normalized().mean_heads()
    rows: list[list[object]] = []
    for stack, maps_by_name in stacks.items():
        if reference not in maps_by_name:
            raise InputError(
                f"expected a map {reference!r} of the {stack}, found {', '.join(maps_by_name)}: score it "
                "as well"
            )
        rows += _correlate_stack(stack, maps_by_name, reference, diagonal)
    return pd.DataFrame(rows, columns=_COLUMNS)


def mean_correlations(
    table: pd.DataFrame, *, by: Sequence[str] = ("model", "init", "stack", "measure", "layer")
) -> pd.DataFrame:
    """Average correlations over items, with 95 % confidence intervals (none below `FEWEST_GROUPS`
    items).

    Parameters
    ----------
    table : DataFrame
        Rows of `map_correlations` of many items, with the columns item and those of `by`.
    by : sequence of str

    Returns
    -------
    DataFrame
        Columns of `by`, statistic ("pearson", "spearman"), mean, low, high, items.

    Raises
    ------
    InputError
        If a column is missing, or the table is empty.
    """
    missing_columns = [name for name in ("item", *STATISTICS, *by) if name not in table.columns]
    if missing_columns or table.empty:
        raise InputError(
            f"expected a table of items with the columns item, {', '.join((*STATISTICS, *by))}; "
            f"found {len(table)} rows"
            + (f", and {', '.join(missing_columns)} missing" if missing_columns else "")
        )
    by = list(by)
    items = table.groupby([*by, "item"], sort=False)[list(STATISTICS)].mean().reset_index()
    rows = []
    for key, item_correlations in items.groupby(by, sort=False):
        for statistic in STATISTICS:
            values = item_correlations.loc[np.isfinite(item_correlations[statistic]), statistic]
            low, high = mean_interval(values, bounds=CORRELATION_BOUNDS)
            keys = dict(zip(by, key, strict=True))
            rows.append(
                {
                    **keys,
                    "statistic": statistic,
                    "mean": values.mean(),
                    "low": low,
                    "high": high,
                    "items": len(values),
                }
            )
    return pd.DataFrame(rows)


def _correlate_stack(
    stack: str, maps_by_name: Mapping[str, MixingMap], reference: str, diagonal: bool
) -> list[list[object]]:
    reference_map = maps_by_name[reference]
    starts = [
        [span.start for span in spans] for spans in (reference_map.targets, reference_map.sources)
    ]
    for name, mixing_map in maps_by_name.items():
        if (mixing_map.targets, mixing_map.sources) != (
            reference_map.targets,
            reference_map.sources,
        ):
            raise InputError(
                f"{name} is {mixing_map!r} and {reference} {reference_map!r}: expected the same targets "
                "and sources; score them in "
                "one call of speechmix.mix"
            )
    is_diagonal = (
        np.equal.outer(*starts)
        if stack != "cross"
        else np.zeros(list(map(len, starts)), dtype=bool)
    )
    is_cell = np.ones(is_diagonal.shape, dtype=bool)
    if stack == "decoder":  # a row cannot see what comes later
        is_cell = np.less.outer(
            [span.stop for span in reference_map.targets],
            [span.stop for span in reference_map.sources],
        )
        is_cell = ~is_cell
    if not diagonal:
        is_cell &= ~is_diagonal
    rows = []
    for name, mixing_map in maps_by_name.items():
        if name == reference:
            continue
        for layer in sorted(set(mixing_map.layers) & set(reference_map.layers)):
            values, reference_values = (
                m.scores[m.layers.index(layer)][is_cell] for m in (mixing_map, reference_map)
            )
            rows.append(
                [
                    stack,
                    name,
                    reference,
                    layer,
                    *_correlate_cells(values, reference_values),
                    int(is_cell.sum()),
                ]
            )
    if diagonal and is_diagonal.any():
        for layer, scores in zip(reference_map.layers, reference_map.scores, strict=True):
            values = _correlate_cells(is_diagonal[is_cell].astype(float), scores[is_cell])
            rows.append([stack, IDENTITY_ROW, reference, layer, *values, int(is_cell.sum())])
    return rows


def _correlate_cells(values: np.ndarray, reference_values: np.ndarray) -> tuple[float, float]:
    """Return Pearson's and Spearman's r; NaN if the values do not vary."""
    from scipy.stats import pearsonr, spearmanr

    has_variance = len(values) >= _MIN_CELLS and all(
        np.isfinite(x).all() and np.ptp(x) > 0 for x in (values, reference_values)
    )
    if not has_variance:
        return float("nan"), float("nan")
    return float(pearsonr(values, reference_values).statistic), float(
        spearmanr(values, reference_values).statistic
    )


REFERENCE_DISTANCE = "cosine"


def distance_effect(
    model: Model,
    sentence: Sentence,
    *,
    cue: Sequence[int],
    target: int,
    distances: Sequence[str] = tuple(DISTANCES),
    stack: str = "encoder",
    units: str = "token",
    drop: Sequence[str] = (),
    subtokens: str = "all",
    attractors: Sequence[int] = (),
) -> pd.DataFrame:
    """Compute the cue alignment of Value Zeroing under several distances.

    Parameters
    ----------
    model : Model
    sentence : Sentence
    cue : sequence of int
    target : int
    distances : sequence of str
        Of `speechmix.mixing.maps.numerics.DISTANCES`.
    stack : {"encoder", "decoder"}
    units, drop, subtokens, attractors
        As in `mix` and `cue_alignment`.

    Returns
    -------
    DataFrame
        Columns distance, those of `cue_alignment`, and rank_correlation: Spearman's r of the row
        with the cosine's (1 for the cosine itself; NaN where a row does not vary).

    Raises
    ------
    InputError
        If a distance is unknown, or cue or target cannot be found.
    """
    if not distances:
        raise InputError(f"expected one distance or more of {', '.join(DISTANCES)}, found none")
    maps = {
        distance: mix_one(
            model,
            sentence,
            measures=[f"value_zeroing:distance={distance}"],
            stacks=[stack],
            units=units,
            targets="target",
        )[f"value_zeroing:distance={distance}", stack].without(*drop)
        for distance in dict.fromkeys((REFERENCE_DISTANCE, *distances))
    }
    rows = map_correlations(maps, reference=REFERENCE_DISTANCE).set_index(["measure", "layer"])[
        "spearman"
    ]
    tables = []
    for distance in distances:
        table = cue_alignment(
            maps[distance], cue=cue, target=target, attractors=attractors, subtokens=subtokens
        )
        correlations = [
            1.0 if distance == REFERENCE_DISTANCE else rows[distance, layer]
            for layer in table["layer"]
        ]
        tables.append(table.assign(distance=distance, **{RANK_CORRELATION: correlations}))
    return pd.concat(tables, ignore_index=True)
