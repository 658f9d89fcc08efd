"""Knock-out: every cell is the drop that one pass with those values zeroed gives."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from matplotlib import pyplot

import speechmix
from speechmix.errors import InputError
from speechmix.inputs.bundled import clips, models
from speechmix.interventions.decision import Decision
from speechmix.interventions.value_knock_out import knock_out_words, layer_windows
from speechmix.mixing.maps.decision_map import COLUMNS
from tests import oracle
from tests.models.text_models import bart, bert, gpt2


def in_double(name):
    return speechmix.load(models()[name], device="cpu", dtype="float64")


ITEMS = {
    "ctc": lambda: (in_double("tiny-french-ctc"), clips()[0]),
    "whisper": lambda: (in_double("tiny-french-whisper"), clips()[1]),
    "bert": lambda: (bert(), speechmix.Sentence("the very cats are here", target="are", foil="is")),
    "gpt2": lambda: (gpt2(), speechmix.Sentence("the cats are", target="are", foil="ape")),
    "bart": lambda: (
        bart(),
        speechmix.Sentence("the cats", translation="les chats", target="chats", foil="chiens"),
    ),
}


@pytest.mark.parametrize(  # Whisper has bart's stacks, too
    "name", [pytest.param(name, marks=[pytest.mark.long] * (name == "bart")) for name in ITEMS]
)
def test_each_cell_is_the_drop_of_a_pass_with_those_values_zeroed(name):
    decision = Decision.prepare(*ITEMS[name]())
    for window in (1, 2, "all"):
        drops = knock_out_words(decision, window=window)
        assert drops.margin == pytest.approx(decision.margin, abs=1e-10)
        for stack, sources in decision.sources.items():
            layers = oracle.layers_of(decision.model.module, stack)
            for (row, span), source in itertools.product(
                enumerate(layer_windows(len(layers), window)), sources
            ):
                modules = [oracle.attention_module(layers[layer], stack) for layer in span]
                with oracle.zeroed_values_of_all(modules, list(source.positions)):
                    margin = decision.input_margin(decision.prepared.inputs)
                column = [other.index for other in sources].index(source.index)
                assert drops.scores(stack)[row, column] == pytest.approx(
                    decision.margin - margin, abs=1e-10
                )


def test_how_many_runs_go_together_changes_nothing():
    decision = Decision.prepare(*ITEMS["whisper"]())
    together, alone = knock_out_words(decision), knock_out_words(decision, batch_size=1)
    np.testing.assert_allclose(together.table["margin"], alone.table["margin"], atol=1e-10)


def test_what_comes_after_the_deciding_position_costs_nothing_in_a_causal_model():
    drops = speechmix.knock_out(
        gpt2(), speechmix.Sentence("the cats are here", target="are", foil="ape")
    )
    assert drops.words("decoder") == ["the", "cats", "are", "here"]
    np.testing.assert_allclose(drops.scores("decoder")[:, 3], 0, atol=1e-12)
    assert np.abs(drops.scores("decoder")[:, :2]).max() > 1e-3


def test_the_table_is_tidy():
    model, clip = ITEMS["whisper"]()
    drops = speechmix.knock_out(model, clip, stacks=["decoder"], words=[clip.cue])
    table = drops.table
    assert tuple(table) == COLUMNS
    assert table["stack"].unique().tolist() == ["decoder"]
    assert table["layer"].tolist() == [0, 1, 2]
    assert (table["drop"] == drops.margin - table["margin"]).all()
    assert table["flipped"].tolist() == ((table["margin"] > 0) != (drops.margin > 0)).tolist()
    assert drops.provenance["weights"] == model.fingerprint
    assert "knock-out: decoder 3 x 1" in repr(drops)


def test_without_a_foil_nothing_can_flip():
    drops = speechmix.knock_out(bert(), speechmix.Sentence("the cats are here", target="are"))
    assert drops.table["flipped"].isna().all()


def test_prepared_inputs_are_knocked_out_by_token():
    model = gpt2()
    inputs = {"input_ids": model.tokenizer("the cats", return_tensors="pt").input_ids}
    drops = speechmix.knock_out(model, inputs, objective=(7, 40, 41))
    assert drops.scores("decoder").shape == (3, 8)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"window": 0}, "window should be a number of layers"),
        ({"stacks": ["heart"]}, "no stack 'heart'"),
        ({"words": [99]}, "none of the words"),
    ],
)
def test_what_cannot_be_done_is_said(options, said):
    with pytest.raises(InputError, match=said):
        speechmix.knock_out(
            bert(), speechmix.Sentence("the cats are here", target="are"), **options
        )


@pytest.mark.parametrize("value", ["drop", "margin"])
def test_a_decision_map_is_drawn(value):
    drops = speechmix.knock_out(
        bert(), speechmix.Sentence("the cats are here", target="are", foil="is")
    )
    figure = drops.show(value=value)
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == [
        "the",
        "cats",
        "<mask>",
        "here",
    ]
    assert len(figure.axes) == 2  # the map, and its colour bar
    _, ax = pyplot.subplots()
    assert drops.plot("encoder", value=value, ax=ax) is ax
    assert len(ax.get_yticklabels()) == len(drops.rows("encoder"))
    pyplot.close("all")
