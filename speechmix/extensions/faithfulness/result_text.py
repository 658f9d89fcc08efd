"""Results of a faithfulness evaluation as text: layers by measures, and mean curves.

In: tables of `FaithfulnessResults`. Out: the same as text and as a grid.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from .leaderboard import BASELINES, MODEL_KEYS, ORACLE, ROW_KEYS
from .scores import CURVE_METRICS

_SHARES = (10, 20, 50, 100)  # percent of the words, of curves that go one by one


def layer_measure_grid(table: pd.DataFrame) -> pd.DataFrame:
    """Arrange the mean values of one model and perturbation in a table [aggregations, measures]."""
    rows = table[table["aggregation"] != ""]
    grid = rows.pivot_table(index="aggregation", columns="measure", values="value", sort=False)
    names = list(dict.fromkeys(rows["aggregation"]))
    layers = [name for name in names if name.startswith("layer ")]
    layers.sort(key=lambda name: int(name.split()[1]))
    other_names = [name for name in names if name not in layers]
    return grid.reindex(index=[*layers, *other_names], columns=rows["measure"].unique())


def baseline_values(table: pd.DataFrame) -> dict[str, float]:
    """Return the mean values of the baselines, by name."""
    orders = table[table["aggregation"] == ""].drop_duplicates("measure")
    return dict(zip(orders["measure"], orders["value"].astype(float), strict=True))


def describe_text_count(table: pd.DataFrame) -> str:
    """Describe the number of texts and the perturbation: "2 sentences, blank (mask)"."""
    count = int(table["clips"].max())
    return f"{count:,} sentence{'' if count == 1 else 's'}, {table['perturbation'].iloc[0]}"


def layers_text(table: pd.DataFrame) -> str:
    """Render a table of layers by measures for each model, with the baselines."""
    texts = []
    for _, rows in table.groupby(MODEL_KEYS, sort=False, dropna=False):
        first_row = rows.iloc[0]
        init_text = "" if first_row["init"] == "trained" else f", random (seed {first_row['seed']})"
        grid = layer_measure_grid(rows)
        grid.columns.name, grid.index.name = None, ""
        table_text = grid.reset_index().to_string(
            index=False, na_rep="-", float_format="{:.2f}".format
        )
        values = baseline_values(rows)
        names = [name for name in (*BASELINES, ORACLE) if name in values]
        baselines = ", ".join(f"{name} {values[name]:.2f}" for name in names)
        texts.append(
            f"{first_row['model']}{init_text}: {describe_text_count(rows)}\n{table_text}\n{baselines}"
        )
    return "\n\n".join(texts)


def curves_text(
    means: pd.DataFrame,
    table: pd.DataFrame,
    texts: pd.DataFrame,
    accuracy: float,
    provenance: Mapping[str, object],
) -> str:
    """Render what the model predicts, and for each measure the remaining probability and the
    metrics.

    `table` is of one perturbation; `provenance` is the provenance.
    """
    has_bins = provenance.get("bins") is not None
    shares = [share for share in means["share"].unique() if has_bins or share in _SHARES]
    probabilities_left = means[means["share"].isin(shares) & (means["share"] > 0)]
    probabilities_left = probabilities_left.pivot_table(
        index=ROW_KEYS, columns="share", values="removed", sort=False
    )
    probabilities_left.columns = [f"left {share:g} %" for share in probabilities_left.columns]
    metrics = table.pivot_table(index=ROW_KEYS, columns="metric", values="value", sort=False)
    names = [name for name in CURVE_METRICS if name in metrics]
    table_with_metrics = probabilities_left.join(metrics[names]).reset_index().drop(columns="stack")
    table_text = table_with_metrics.to_string(index=False, float_format="{:.2f}".format)
    count, perturbation = len(texts), table["perturbation"].iloc[0]
    accuracy_text = (
        "" if np.isnan(accuracy) else f" {100 * accuracy:.0f} % of the labels are right."
    )
    return (
        f"{provenance.get('model')}: {count} text{'' if count == 1 else 's'}, {perturbation}; "
        f"probability of the label with all {provenance.get('units')}s "
        f"{texts['probability'].mean():.2f}.{accuracy_text}\n{table_text}"
    )
