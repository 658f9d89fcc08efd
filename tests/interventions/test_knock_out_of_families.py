"""Knock-out where attention is read another way: own softmax, padded heads, shared values, relative
positions, all stacks."""

from __future__ import annotations

import pytest

import speechmix
from tests import oracle_by_path as oracle
from tests.models import shared_models
from tests.models.more_families import MORE_FAMILIES, built

PLACES = (2, 5)


@pytest.mark.parametrize(
    "name",
    [
        "parakeet",
        "gemma2",
        "deberta-v2",
        "phi",
        "falcon",
        "t5",
        "moonshine",
        "speech-to-text",
        "speecht5",
        "qwen2-audio",
        "qwen2.5-omni",
        "voxtral",
    ],
)
def test_a_source_is_a_pass_with_its_values_zeroed(name):
    entry = MORE_FAMILIES[name]
    model = shared_models.shared(("more", name), lambda: speechmix.load(built(name)))
    inputs = entry.inputs(12)
    drops = speechmix.knock_out(
        model,
        inputs,
        words=[[place] for place in PLACES],
        objective=lambda output: output.logits[:, 6, 0],
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


def test_a_step_of_the_projector_is_a_source_and_encoders_may_attend_in_blocks():
    entry = MORE_FAMILIES["granite-speech"]
    model = shared_models.shared(
        ("more", "granite-speech"), lambda: speechmix.load(built("granite-speech"))
    )
    inputs = entry.inputs(
        100
    )  # two blocks of 80 frames; 7 steps of 15 frames, from the decoder's position 4 on
    positions = {"encoder": [[5], [91]], "decoder": [[4, 5, 6], [3]]}
    for stack, words in {"encoder": [[5], [91]], "decoder": [[4], [3]]}.items():
        read = lambda output: output.logits[:, 28, 0]  # noqa: E731
        drops = speechmix.knock_out(
            model, inputs, stacks=[stack], words=words, objective=read
        ).table
        where = entry.stacks[stack]
        for number, layer in enumerate(oracle.at(model.module, where.layers)):
            for (word,), rows in zip(words, positions[stack], strict=True):
                clean = _margin(model, inputs, 28)
                with oracle.zeroed(oracle.at(layer, where.value), where, rows, None):
                    drop = clean - _margin(model, inputs, 28)
                found = drops[(drops["layer"] == number) & (drops["word"] == word)]["drop"].item()
                assert found == pytest.approx(drop, abs=1e-5)
                assert drop != 0


def _margin(model, inputs, place=6):
    return model.module(**inputs, **oracle.no_cache(model.module)).logits[0, place, 0].item()
