"""Words that are there several times are told apart in every sentence; no sentence ends in two periods."""

from __future__ import annotations

import numpy as np
import pytest

import speechmix
from speechmix.extensions.explain.page import explanation_view
from speechmix.inputs import bundled
from speechmix.inputs.words.cue_and_target import end_sentence
from speechmix.inputs.words.spans import Span
from speechmix.mixing.maps.mixing_map import MixingMap
from tests.conftest import trained


@pytest.fixture(scope="module")
def explanation():
    words = [("Nos", 0.38, 0.53), ("nos.", 0.53, 0.95)]
    clip = bundled.clips()[1].replace(
        text="Nos nos.", words=words, cue=None, target=None, foil=None
    )
    return speechmix.explain(trained("tiny-french-ctc"), clip, measures="occlusion")


def test_sources_have_numbers_in_text_and_page(explanation):
    assert explanation.source_names == ["Nos (1)", "nos. (2)"]
    assert [source["name"] for source in explanation_view(explanation)["sources"]] == (
        explanation.source_names
    )
    shown = f"{explanation}\n{explanation.details()}"
    assert "Nos (1)" in shown or "nos. (2)" in shown
    assert "nos. +" not in shown
    assert ".." not in shown


def test_a_sentence_that_ends_in_a_word_with_its_period_gets_no_other():
    assert end_sentence("it is failed.") == "it is failed."
    assert end_sentence("it is failed. (own sound)") == "it is failed. (own sound)."


def test_a_map_as_text_numbers_its_words():
    spans = tuple(
        Span(i, i + 1, label, "word", i) for i, label in enumerate(["ever", "so", "ever"])
    )
    shown = str(
        MixingMap(np.ones((1, 3, 3)), spans, spans, "attention", "encoder", (0,)).tokens(row=2)
    )
    assert "'ever (2)', gets" in shown
    assert "ever (1)" in shown
    assert "so " in shown
