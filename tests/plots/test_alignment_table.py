"""The published table is what was printed, and tables are drawn and written with the right number
in each cell."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from speechmix.errors import InputError
from speechmix.extensions.agreement.cue_alignment import (
    alignment_figure,
    alignment_text,
    published_alignment,
)
from speechmix.mixing.measures import MEASURES

# Means over layers, as they were computed from the slide independently (pre-trained, fine-tuned).
MEANS = {
    "value_zeroing": (0.199, 0.211),
    "attention_norm": (0.170, 0.174),
    "gradient_input": (0.123, 0.123),
    "attention_norm_residual": (0.078, 0.081),
    "integrated_gradients": (0.071, 0.076),
    "globenc": (0.069, 0.073),
}


def means(**changes):
    rows = [
        (
            "tiny",
            "trained",
            "encoder",
            measure,
            layer,
            "dot_product",
            value,
            value - 0.02,
            value + 0.02,
            0.12,
            50,
        )
        for measure, values in {"value_zeroing": (0.31, 0.07), "attention": (0.1, np.nan)}.items()
        for layer, value in enumerate(values)
    ]
    columns = [
        "model",
        "init",
        "stack",
        "measure",
        "layer",
        "metric",
        "mean",
        "low",
        "high",
        "chance",
        "items",
    ]
    return pd.DataFrame(rows, columns=columns).assign(**changes)


def texts(figure):
    return [[text.get_text() for text in ax.texts] for ax in figure.axes]


def test_the_published_table_is_what_was_printed():
    table = published_alignment()
    assert len(table) == 2 * 11 * 12
    assert set(table["layer"]) == set(range(12))
    found = table.groupby(["measure", "init"])["mean"].mean()
    for measure, expected in MEANS.items():
        for init, value in zip(("pre-trained", "fine-tuned"), expected, strict=True):
            assert found[measure, init] == pytest.approx(value, abs=6e-4)
    best = table[(table["init"] == "pre-trained") & (table["layer"] == 8)].set_index("measure")[
        "mean"
    ]
    assert best.idxmax() == "value_zeroing"
    assert best["value_zeroing"] == 0.28
    assert "slide" in table.attrs["source"]
    assert table.attrs["model"] == "bert-base-uncased"
    assert {"value_zeroing", "attention", "attention_norm"} <= set(MEASURES) & set(table["measure"])
    with pytest.raises(InputError, match="there are blimp_bert"):
        published_alignment("blimp_roberta")


def test_own_table_is_drawn_beside_the_published_one_on_one_scale():
    figure = alignment_figure(means(), published=published_alignment(), note="Where from.")
    own, published, fine_tuned = figure.axes[:3]
    assert texts(figure)[0] == [".10", ".31", ".07"]  # the cell without a value is left empty
    assert len(texts(figure)[1]) == 11 * 12
    assert own.get_title(loc="left") == "tiny, trained\n50 sentences, chance .12"
    assert (
        published.get_title(loc="left")
        == "bert-base-uncased, pre-trained\npublished\ndoes the task in 96 %"
    )
    assert (
        fine_tuned.get_title(loc="left")
        == "bert-base-uncased, fine-tuned\npublished\ndoes the task in 99 %"
    )
    assert (
        own.images[0].get_clim() == published.images[0].get_clim() == (0.0, 0.35)
    )  # the highest of all
    assert [label.get_text() for label in own.get_xticklabels()] == ["attention", "value zeroing"]
    note = " ".join(figure.get_supxlabel().split())
    assert note.startswith(
        "Where from. 95 % intervals of the means are at most ±.02. Published: Mohebbi"
    )
    assert "slide 26" in note


def test_another_metric_has_no_published_table_and_is_drawn_alone():
    figure = alignment_figure(
        means(metric="average_precision"),
        metric="average_precision",
        published=published_alignment(),
    )
    assert len(figure.axes) == 2  # the table and the colour bar
    assert "Published" not in figure.get_supxlabel()


def test_tables_that_cannot_be_drawn_say_why():
    with pytest.raises(InputError, match="missing: items"):
        alignment_figure(means().drop(columns="items"))
    with pytest.raises(InputError, match=r"missing: that metric among \['dot_product'\]"):
        alignment_figure(means(), metric="average_precision")
    with pytest.raises(InputError, match="means of one stack"):
        alignment_figure(pd.concat([means(), means(stack="decoder")]))


def test_the_table_as_text():
    lines = alignment_text(means()).splitlines()
    assert [line.split() for line in lines] == [
        ["layer", "attention", "value_zeroing"],
        ["0", ".100", ".310"],
        ["1", "NaN", ".070"],
        ["mean", ".100", ".190"],
    ]
