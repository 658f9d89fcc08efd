"""Figures of text faithfulness show the numbers of their tables."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from matplotlib.colors import to_rgba

import speechmix
from speechmix.errors import InputError
from speechmix.reporting.plots import blank_out_figure, deletion_figure
from tests.models import text_models

SENTENCES = [
    speechmix.Sentence("the cat is very here", target="is"),
    speechmix.Sentence("the cats play here are .", target="are"),
]
MEASURES = ("value_zeroing", "gradient_input")


@functools.cache
def blanked():
    models = [text_models.bert(), text_models.gpt2()]
    return speechmix.blank_out(models, SENTENCES, measures=MEASURES, fills=["mask", "remove"])


def test_each_cell_has_its_number_and_what_is_not_rolled_out_none():
    figure = blank_out_figure(blanked(), perturbation="blank (mask)")
    ax, bar = figure.axes
    table = blanked().perturbation_table("blank (mask)")
    expected = table[table["aggregation"] != ""]["value"]
    assert sorted(text.get_text() for text in ax.texts) == sorted(
        f"{round(v, 2) + 0.0:.2f}" for v in expected
    )
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["0", "1", "2", "mean", "rollout"]
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["value zeroing", "gradient input"]
    assert ax.images[0].get_array().mask[4].tolist() == [False, True]
    assert bar.get_ylabel() == "Spearman; grey: no value"
    assert ax.get_title(loc="left").splitlines()[1] == "2 sentences, blank (mask)"


def test_a_panel_for_each_model_of_its_own_fills():
    figure = blank_out_figure(blanked())
    titles = [ax.get_title(loc="left").splitlines() for ax in figure.axes[:-1]]
    assert [title[0] for title in titles] == ["BertForMaskedLM", "GPT2LMHeadModel"]
    assert titles[0][1] == "2 sentences, blank (mask, remove)"
    with pytest.raises(InputError, match="perturbation should be one of"):
        blank_out_figure(blanked(), perturbation="blank (pad)")


@pytest.mark.parametrize("bins", [(10, 50), None])
def test_curves_are_the_means(bins):
    curves = speechmix.deletion_curves(text_models.bert(), SENTENCES, measures=MEASURES, bins=bins)
    figure = deletion_figure(curves)
    means = curves.mean_curves()
    for ax, column in zip(figure.axes, ("removed", "kept"), strict=True):
        drawn = {(line.get_color(), line.get_linestyle()): line.get_ydata() for line in ax.lines}
        assert len(drawn) == 4
        for name, style in (("random", ":"), ("oracle", "--")):
            np.testing.assert_array_equal(
                drawn["0.55", style], means.loc[means["measure"] == name, column]
            )
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["value zeroing", "gradient input", "random", "oracle"]
    assert to_rgba(figure.axes[0].lines[0].get_color()) == (0, 0, 0, 1)
