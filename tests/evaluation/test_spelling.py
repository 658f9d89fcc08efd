"""Transcripts and error rates, with recognisers that say what they are told."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
import transformers

import speechmix
from speechmix.adapters.generation.greedy_generation import transcribe
from speechmix.errors import InputError
from speechmix.inputs.words.transcript_accuracy import character_error_rate, describe_accuracy
from tests.conftest import build


@pytest.mark.parametrize(
    ("transcript", "expected"),
    [
        ("Les livres.", "(as given)"),
        ("les livres et les cahiers rouges", "(as given, and 4 words more)"),
        ("les livre et", "(1 of 2 words differs, and 1 word more)"),
        ("merci", "(2 of 2 words differ: it does NOT transcribe this clip)"),
    ],
)
def test_words_that_were_not_said_are_no_words_of_the_text_that_differ(transcript, expected):
    assert describe_accuracy(transcript, "les livres") == f"writes: {transcript} {expected}"


@pytest.mark.parametrize(
    ("text", "transcript", "expected"),
    [
        ("les livres", "les livres", 0),
        ("Les Livres !", "les livres", 0),
        ("l’été", "l'été", 0),
        ("été", "ete", 2 / 3),
        ("les livres", "les livre", 1 / 10),
        ("les livres", "", 1),
        ("le", "le livre rouge", 6),
    ],
)
def test_character_error_rate(text, transcript, expected):
    assert character_error_rate(text, transcript) == pytest.approx(expected)


class Says(torch.nn.Module):
    """A CTC head that spells given letters, one frame each with a blank between."""

    def __init__(self, ids, size):
        super().__init__()
        self.ids, self.size = ids, size

    def forward(self, states):
        logits = torch.zeros(1, states.shape[1], self.size)
        logits[..., 0] = 5
        for place, index in enumerate(self.ids):
            logits[0, 2 * place + 1, index] = 10
        return logits


def test_a_ctc_model_is_read_greedily(tmp_path):
    vocabulary = {
        token: i for i, token in enumerate(["<pad>", "<s>", "</s>", "<unk>", "|", *"aeilrsv"])
    }
    (tmp_path / "vocab.json").write_text(json.dumps(vocabulary))
    tokenizer = transformers.Wav2Vec2CTCTokenizer(str(tmp_path / "vocab.json"))
    processor = transformers.Wav2Vec2Processor(transformers.Wav2Vec2FeatureExtractor(), tokenizer)
    model = speechmix.load(
        build("wav2vec2-post", vocab_size=len(vocabulary), pad_token_id=0), processor=processor
    )
    model.module.lm_head = Says([vocabulary[c] for c in "les|livres"], len(vocabulary))
    clip = speechmix.Clip.from_array(
        np.random.default_rng(0).normal(size=16_000), 16_000, text="les livres"
    )
    assert model.can_transcribe
    assert transcribe(model, clip) == "les livres"


def test_a_model_without_a_head_cannot_spell():
    model = speechmix.load(
        build("wav2vec2-stable"), processor=transformers.Wav2Vec2FeatureExtractor()
    )
    assert not model.can_transcribe
    clip = speechmix.Clip.from_array(np.ones(16_000), 16_000)
    with pytest.raises(InputError, match="cannot transcribe"):
        transcribe(model, clip)
