"""Ablation: values zeroed in all layers of one stack, and the choice between two spellings."""

from __future__ import annotations

import numpy as np
import pytest

import speechmix
from speechmix.errors import InputError
from speechmix.inputs.bundled import clips
from speechmix.interventions.decision import Decision
from tests import oracle
from tests.conftest import trained
from tests.models.text_models import bert


@pytest.mark.parametrize("name", ["tiny-french-ctc", "tiny-french-whisper"])
def test_the_margin_is_that_of_a_pass_with_all_values_of_the_stack_zeroed(name):
    model, clip = trained(name), clips()[0]
    decision = Decision.prepare(model, clip)
    table = speechmix.ablate(model, clip).set_index("ablated")
    assert list(table.index) == ["none", *model.stacks]
    assert table.margin["none"] == pytest.approx(decision.margin, abs=1e-5)
    for stack in model.stacks:
        (cue,) = decision.select_sources(stack, [clip.cue])
        modules = [
            oracle.attention_module(layer, stack) for layer in oracle.layers_of(model.module, stack)
        ]
        with oracle.zeroed_values_of_all(modules, list(cue.positions)):
            assert table.margin[stack] == pytest.approx(
                decision.input_margin(decision.prepared.inputs), abs=1e-4
            )
    assert (table.right == (table.margin > 0)).all()


def test_a_text_is_ablated_like_a_clip():
    sentence = speechmix.Sentence("the cats are here", cue="cats", target="are", foil="is")
    table = speechmix.ablate(bert(), sentence)
    assert table.ablated.tolist() == ["none", "encoder"]
    assert table.margin[0] != table.margin[1]


def test_a_clip_without_a_target_is_refused():
    clip = speechmix.Clip.from_array(
        np.ones(16_000), 16_000, text="les livres", words=[("les", 0.1, 0.2)], cue="les"
    )
    with pytest.raises(InputError, match="needs text, words with times, a cue"):
        speechmix.ablate(None, clip)
