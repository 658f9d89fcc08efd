"""Results of a faithfulness evaluation as text: layers by measures, and mean curves.

In: tables of `FaithfulnessResults`. Out: the same as text and as a grid.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from .leaderboard import BASELINES, MODEL, ORACLE, ROW
from .scores import CURVE_METRICS

_SHARES = (10, 20, 50, 100)  # percent of the words, of curves that go one by one


def layers_by_measures(table: pd.DataFrame) -> pd.DataFrame:
    """Mean values of one model and judge [aggregations, measures]: layers by number first."""
    rows = table[table["aggregation"] != ""]
    grid = rows.pivot_table(index="aggregation", columns="measure", values="value", sort=False)
    names = list(dict.fromkeys(rows["aggregation"]))
    layers = [name for name in names if name.startswith("layer ")]
    layers.sort(key=lambda name: int(name.split()[1]))
    others = [name for name in names if name not in layers]
    return grid.reindex(index=[*layers, *others], columns=rows["measure"].unique())


def baseline_values(table: pd.DataFrame) -> dict[str, float]:
    """Mean values of the orders that need no measure, by name."""
    orders = table[table["aggregation"] == ""].drop_duplicates("measure")
    return dict(zip(orders["measure"], orders["value"].astype(float), strict=True))


def describe_rows(table: pd.DataFrame) -> str:
    """How many texts of one model, and the judge: "2 sentences, blank (mask)"."""
    count = int(table["clips"].max())
    return f"{count:,} sentence{'' if count == 1 else 's'}, {table['judge'].iloc[0]}"


def layers_text(table: pd.DataFrame) -> str:
    """Layers by measures for each model, then the baselines, which have no layers."""
    texts = []
    for _, rows in table.groupby(MODEL, sort=False, dropna=False):
        first = rows.iloc[0]
        twin = "" if first["init"] == "trained" else f", random (seed {first['seed']})"
        grid = layers_by_measures(rows)
        grid.columns.name, grid.index.name = None, ""
        numbers = grid.reset_index().to_string(
            index=False, na_rep="-", float_format="{:.2f}".format
        )
        values = baseline_values(rows)
        names = [name for name in (*BASELINES, ORACLE) if name in values]
        baselines = ", ".join(f"{name} {values[name]:.2f}" for name in names)
        texts.append(f"{first['model']}{twin}: {describe_rows(rows)}\n{numbers}\n{baselines}")
    return "\n\n".join(texts)


def curves_text(
    means: pd.DataFrame,
    table: pd.DataFrame,
    texts: pd.DataFrame,
    accuracy: float,
    facts: Mapping[str, object],
) -> str:
    """What the model makes of the texts; then for each measure the probability left, and the
    metrics.

    `table` is of one judge; `facts` is the provenance.
    """
    has_bins = facts.get("bins") is not None
    shares = [share for share in means["share"].unique() if has_bins or share in _SHARES]
    left = means[means["share"].isin(shares) & (means["share"] > 0)]
    left = left.pivot_table(index=ROW, columns="share", values="removed", sort=False)
    left.columns = [f"left {share:g} %" for share in left.columns]
    metrics = table.pivot_table(index=ROW, columns="metric", values="value", sort=False)
    names = [name for name in CURVE_METRICS if name in metrics]
    both = left.join(metrics[names]).reset_index().drop(columns="stack")
    numbers = both.to_string(index=False, float_format="{:.2f}".format)
    count, judge = len(texts), table["judge"].iloc[0]
    right = "" if np.isnan(accuracy) else f" {100 * accuracy:.0f} % of the labels are right."
    return (
        f"{facts.get('model')}: {count} text{'' if count == 1 else 's'}, {judge}; "
        f"probability of the label with all {facts.get('units')}s "
        f"{texts['probability'].mean():.2f}.{right}\n{numbers}"
    )
