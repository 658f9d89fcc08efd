"""Knock-out where attention is read another way: own softmax, padded heads, shared values, relative positions, all stacks."""

from __future__ import annotations

import pytest

import speechmix
from tests import oracle_by_path as oracle
from tests import shared_models
from tests.more_families import MORE_FAMILIES, built

PLACES = (2, 5)


@pytest.mark.parametrize("name", ["parakeet", "gemma2", "deberta-v2", "phi", "falcon", "t5", "moonshine", "qwen2-audio", "voxtral", "granite-speech"])
def test_a_source_is_a_pass_with_its_values_zeroed(name):
    entry = MORE_FAMILIES[name]
    model = shared_models.shared(("more", name), lambda: speechmix.load(built(name)))
    inputs = entry.inputs(12)
    drops = speechmix.knock_out(
        model, inputs, words=[[place] for place in PLACES], objective=lambda output: output.logits[:, 6, 0]
    )
    clean = _margin(model, inputs)
    for stack, where in entry.stacks.items():
        for row, layer in enumerate(oracle.at(model.module, where.layers)):
            for column, place in enumerate(PLACES):
                with oracle.zeroed(oracle.at(layer, where.value), where, [place], None):
                    drop = clean - _margin(model, inputs)
                assert drops.scores(stack)[row, column] == pytest.approx(
                    drop, abs=1e-5 if entry.tolerance > 1e-10 else 1e-9
                )


def _margin(model, inputs):
    return model.module(**inputs, **oracle.no_cache(model.module)).logits[0, 6, 0].item()
