"""What a text model does not know is labelled with what it reads instead."""

from __future__ import annotations

import pytest

import speechmix
from tests.models import text_models


@pytest.mark.parametrize("units", ["word", "token"])
def test_labels_show_what_the_model_reads(units):
    model = text_models.bert()
    sentence = speechmix.Sentence("the game is here", cue="game", target="is")
    found = speechmix.mix(model, sentence, measures="attention", units=units)[
        "attention", "encoder"
    ]
    assert [span.label for span in found.sources] == [
        "[CLS]",
        "the",
        "game ([UNK])",
        "is",
        "here",
        "[SEP]",
    ]
    by_name = speechmix.cue_contribution(found, cue="game", target="is")
    assert by_name.tolist() == speechmix.cue_contribution(found, cue=1, target=2).tolist()
