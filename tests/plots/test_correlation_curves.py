"""Correlations over layers are drawn with the published numbers where those are of the same kind,
and nowhere else."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from speechmix.errors import InputError
from speechmix.extensions.agreement.correlation_curves import (
    correlation_figure,
    published_correlations,
    published_outlier_weights,
)


def means(measures=("globenc", "attention", "identity"), statistic="pearson", **changes):
    rows = [
        ("tiny", "trained", "encoder", measure, layer, statistic, 0.8 - 0.1 * layer, 0.7, 0.9, 30)
        for measure in measures
        for layer in range(3)
    ]
    columns = "model init stack measure layer statistic mean low high items".split()
    return pd.DataFrame(rows, columns=columns).assign(**changes)


def outliers(correlation):
    return pd.DataFrame(
        {
            "layer": [0, 1, 2],
            "correlation": correlation,
            "null": -0.2,
            "null_low": -0.8,
            "null_high": 0.4,
        }
    )


def lines(ax):
    return {
        (line.get_color(), line.get_linestyle()): line.get_ydata()
        for line in ax.lines
        if len(line.get_ydata()) > 2
    }


def test_the_published_numbers_are_those_that_were_read():
    table = published_correlations()
    assert len(table) == 3 * 12
    last = table[table["layer"] == 11].set_index("measure")["mean"]
    assert last.to_dict() == {
        "attention_norm_residual": 0.705,
        "attention_norm_residual_layernorm": 0.93,
        "globenc": 0.93,
    }
    weights = published_outlier_weights()["correlation"]
    assert (weights.min(), weights.idxmin(), len(weights)) == (-0.96, 5, 12)


def test_own_and_published_curves_and_the_outliers():
    figure = correlation_figure(
        means(), outliers=outliers([-0.5, -0.6, np.nan]), note="Where from."
    )
    left, right = figure.axes
    drawn = [line.get_ydata() for line in left.lines]
    assert any(
        np.array_equal(values, published_correlations().query("measure == 'globenc'")["mean"])
        for values in drawn
    )
    assert sum(len(values) == 12 for values in drawn) == 1  # attention was not published
    assert left.get_title(loc="left") == "tiny, trained, encoder (30 items)"
    assert any(len(line.get_ydata()) == 12 for line in right.lines)
    note = figure.get_supxlabel()
    assert note.startswith("Where from.")
    assert "digitised" in note.replace("\n", " ")


@pytest.mark.parametrize("table", [means(("globenc", "attention")), means(statistic="spearman")])
def test_what_was_not_published_has_nothing_beside_it(table):
    statistic = table["statistic"].iloc[0]
    figure = correlation_figure(table, statistic=statistic)
    assert all(len(line.get_ydata()) < 12 for line in figure.axes[0].lines)
    assert "Published" not in figure.get_supxlabel()


def test_without_outliers_the_panel_says_so():
    figure = correlation_figure(means(), outliers=outliers([np.nan] * 3))
    assert [text.get_text() for text in figure.axes[1].texts] == [
        "no layer has three outlier dimensions"
    ]


def test_tables_that_cannot_be_drawn_say_why():
    with pytest.raises(InputError, match="missing: items"):
        correlation_figure(means().drop(columns="items"))
    with pytest.raises(InputError, match="one model and stack with spearman, found no 'spearman'"):
        correlation_figure(means(), statistic="spearman")
    with pytest.raises(InputError, match=r"init \['random', 'trained'\]"):
        correlation_figure(pd.concat([means(), means(init="random")]))
