"""Cue alignment: how well a measure's scores single out the cue word.

    dot product[l]        = sum over cue columns c of S[l, target, c],   row of S summing to one
    average precision[l]  = mean over cue columns c of  #{cue columns ranked at or above c} / #{columns ranked at or above c}

Mohebbi et al. 2023 (Quantifying Context Mixing in Transformers, EACL), who publish no code for
either. Chosen here:

- Columns are all that the target's row can see: special tokens ([CLS], [SEP]), punctuation and the
  target itself compete with the cue, unless `drop` leaves a kind out before the row is normalised.
  In a causal stack later columns do not count.
- Ties: columns of one score are ranked together, at the place of the last of them (as scikit-learn
  does). So a constant row has the share of cue columns as its precision, whatever the order of the
  columns.
- Every sub-token of a cue is a cue column. (The published code marks the first one alone:
  `subtokens="first"`.)
- Heads: each head's row is normalised, heads are averaged, then columns are ranked.

Where the rest of the row goes is said beside it: the share of *attractors* (words of the other
number) and of special tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from ...errors import InputError
from ...evaluation.cue_need import average_precision, chance_level, dot_product
from ...evaluation.statistics.intervals import mean_interval
from ...inputs.words.cue_and_target import cue_words
from ...inputs.words.spans import Span
from ...mixing.maps.mixing_map import MixingMap

ALIGNMENT_METRICS = ("dot_product", "average_precision")
SHARE_METRICS = ("share_attractor", "share_special")
RANK_CORRELATION = "rank_correlation"  # with another map's row; see `distance_effect`
SUBTOKEN_OPTIONS = ("all", "first")


def cue_alignment(
    mixing_map: MixingMap,
    *,
    cue: int | Sequence[int],
    target: int,
    attractors: Sequence[int] = (),
    drop: Sequence[str] = (),
    subtokens: str = "all",
) -> pd.DataFrame:
    """Compute dot product and average precision of a target's row, layer by layer, and the shares
    of attractors and special tokens.

    The row is the one that holds the target (the mask, in a masked language model). In a decoder it
    is the one that predicts it, one position earlier, and in cross-attention the one labelled with
    it. Over several rows, the mean.

    Parameters
    ----------
    mixing_map : MixingMap
        Raw or normalised.
    cue : int or sequence of int
        Index or indices of the cue's words.
    target : int
        Index of the target word.
    attractors : sequence of int
        Indices of words that could be mistaken for the cue (`BlimpItem.attractors`).
    drop : sequence of str
        Kinds of units left out first, e.g. ("special",).
    subtokens : {"all", "first"}
        Of each cue word, which columns are the cue's.

    Returns
    -------
    DataFrame
        One row per layer: layer, dot_product, average_precision, and what chance gives
        (`chance_level`); share_attractor and share_special of the row, with their shares of the
        columns as chance. NaN where the row sees no such column.

    Raises
    ------
    InputError
        If cue or target has no unit in the map, or the cue comes after a decoder's target.

    Examples
    --------
    >>> units = [Span(0, 1, "[CLS]", "special"), Span(1, 2, "Most", "token", 0), Span(2, 3, "ladies", "token", 1)]
    >>> units = (*units, Span(3, 4, "[MASK]", "token", 2))
    >>> scores = np.tile([1.0, 0.5, 2.0, 0.5], (1, 4, 1))
    >>> one_layer = MixingMap(scores, units, units, "value_zeroing", "encoder", (0,))
    >>> cue_alignment(one_layer, cue=[1], target=2)[["dot_product", "average_precision"]].values.tolist()
    [[0.5, 1.0]]
    """
    if subtokens not in SUBTOKEN_OPTIONS:
        raise InputError(f"subtokens must be one of {SUBTOKEN_OPTIONS}, found {subtokens!r}")
    units_map = mixing_map.without(*drop)
    columns = _mark_cue_columns(units_map, cue_words(cue), subtokens)
    is_attractor = np.array(
        [span.word is not None and span.word in attractors for span in units_map.sources],
        dtype=bool,
    )
    is_special = np.array([span.kind == "special" for span in units_map.sources], dtype=bool)
    row_metrics = []
    for row in _find_target_rows(units_map, target):
        stop = units_map.targets[row].stop
        is_seen = np.array(
            [units_map.stack != "decoder" or span.start < stop for span in units_map.sources]
        )
        is_cue = columns & is_seen
        if not is_cue.any():
            raise InputError(
                f"the cue (words {list(cue_words(cue))}) comes after word {target}: no causal "
                "decoder can use it; leave "
                "such items out"
            )
        scores = units_map.normalized().mean_heads().scores[:, row, is_seen]  # [L, K]
        is_cue = is_cue[is_seen]
        kind_shares = [_column_share(scores, kind[is_seen]) for kind in (is_attractor, is_special)]
        row_metrics.append(
            [
                dot_product(scores, is_cue),
                average_precision(scores, is_cue),
                *chance_level(is_cue).values(),
            ]
            + [share for share, _ in kind_shares]
            + [chance for _, chance in kind_shares]
        )
    names = [
        name
        for metrics in (ALIGNMENT_METRICS, SHARE_METRICS)
        for name in (*metrics, *(f"chance_{metric}" for metric in metrics))
    ]
    means = (np.mean(values, axis=0) for values in zip(*row_metrics, strict=True))
    return pd.DataFrame({"layer": list(units_map.layers), **dict(zip(names, means, strict=True))})


def mean_alignment(
    table: pd.DataFrame, *, by: Sequence[str] = ("model", "init", "stack", "measure", "layer")
) -> pd.DataFrame:
    """Average alignments over items, with 95 % confidence intervals (none below `FEWEST_GROUPS`
    items).

    Parameters
    ----------
    table : DataFrame
        Rows of `cue_alignment` of many items: columns item, dot_product, average_precision and
        those of `by`; others of `SHARE_METRICS` and "rank_correlation" are taken along. Seeds of a random
        twin are averaged for each item first.
    by : sequence of str
        What makes a row of the result; ("paradigm", ...) to split it further.

    Returns
    -------
    DataFrame
        Columns of `by`, metric, mean, low, high, chance, items. A metric that no item has is left
        out.
    """
    missing_columns = [
        name for name in ("item", *ALIGNMENT_METRICS, *by) if name not in table.columns
    ]
    if missing_columns or table.empty:
        raise InputError(
            f"expected a table of items with the columns item, {', '.join((*ALIGNMENT_METRICS, *by))}; found "
            f"{len(table)} rows"
            + (f", and {', '.join(missing_columns)} missing" if missing_columns else "")
        )
    metrics = [
        metric
        for metric in (*ALIGNMENT_METRICS, *SHARE_METRICS, RANK_CORRELATION)
        if metric in table
    ]
    by, values = (
        list(by),
        [name for metric in metrics for name in (metric, f"chance_{metric}") if name in table],
    )
    items = table.groupby([*by, "item"], sort=False)[values].mean().reset_index()
    rows = []
    for key, items_of_key in items.groupby(by, sort=False):
        keys = dict(zip(by, key, strict=True))
        for metric in metrics:
            finite_items = items_of_key[np.isfinite(items_of_key[metric])]
            if finite_items.empty and metric not in ALIGNMENT_METRICS:
                continue
            low, high = mean_interval(finite_items[metric])
            chance = (
                finite_items[f"chance_{metric}"].mean()
                if f"chance_{metric}" in items_of_key
                else np.nan
            )
            rows.append(
                {
                    **keys,
                    "metric": metric,
                    "mean": finite_items[metric].mean(),
                    "low": low,
                    "high": high,
                    "chance": chance,
                    "items": len(finite_items),
                }
            )
    return pd.DataFrame(rows)


def _column_share(shares: np.ndarray, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the share [L] of some columns in rows [L, K], and that of an even row; NaN without
    columns."""
    if not columns.any():
        return np.full(len(shares), np.nan), np.full(len(shares), np.nan)
    return shares[:, columns].sum(axis=-1), np.full(len(shares), columns.mean())


def _mark_cue_columns(mixing_map: MixingMap, cue: Sequence[int], subtokens: str) -> np.ndarray:
    """Return which sources are the cue, Booleans [K]."""
    words = [span.word for span in mixing_map.sources]
    is_cue = np.zeros(len(words), dtype=bool)
    for word in cue:
        columns = [column for column, source_word in enumerate(words) if source_word == word]
        if not columns:
            raise InputError(
                f"cue word {word} is not among the sources of {mixing_map!r}: "
                f"{_list_words(mixing_map.sources)}"
            )
        is_cue[columns if subtokens == "all" else columns[:1]] = True
    if not is_cue.any():
        raise InputError("no cue is given: say which words it is, as indices")
    return is_cue


def _find_target_rows(mixing_map: MixingMap, target: int) -> list[int]:
    """List the rows that hold the target; in a decoder those that predict its tokens."""
    if mixing_map.stack != "decoder":
        rows = [row for row, span in enumerate(mixing_map.targets) if span.word == target]
    else:
        preceding_positions = {
            start - 1
            for span in mixing_map.sources
            if span.word == target
            for start, _ in span.ranges
        }
        rows = [
            row
            for row, span in enumerate(mixing_map.targets)
            if preceding_positions & set(span.positions)
        ]
    if not rows:
        raise InputError(
            f"target word {target} has no row in {mixing_map!r}: {_list_words(mixing_map.targets)}. A "
            "decoder predicts no word "
            "that nothing comes before"
        )
    return rows


def _list_words(spans: Sequence[Span]) -> str:
    return (
        " ".join(f"{span.label}[{span.word}]" for span in spans if span.word is not None)
        or "no words"
    )
