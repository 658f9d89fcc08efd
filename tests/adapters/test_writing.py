"""A translator whose trade is known: what it writes, that it writes once, and where each written
word comes from."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import speechmix
from speechmix.adapters.generation.text_tokens import generate_text
from speechmix.errors import InputError
from tests.conftest import build
from tests.models.shared_models import shared
from tests.models.text_models import bart
from tests.models.translators import ORDER, pairs, trained_translator

UNSEEN = [pair for number, pair in enumerate(pairs()) if not number % 7]


@pytest.fixture
def translator():
    return shared(("translator",), trained_translator)


def test_it_translates_sentences_it_never_saw(translator):
    """Else nothing below would mean anything."""
    assert [translator.translate(text).translation for text, _ in UNSEEN] == [
        translation for _, translation in UNSEEN
    ]


def test_greedy_is_that_of_transformers(translator):
    text, _ = UNSEEN[3]
    inputs = translator.tokenizer(text, return_tensors="pt")
    ids = [translator.config.decoder_start_token_id]
    with torch.no_grad():
        while ids[-1] != translator.tokenizer.eos_token_id or len(ids) == 1:
            logits = translator.module(
                input_ids=inputs["input_ids"],
                decoder_input_ids=torch.tensor([ids]),
                use_cache=False,
            ).logits
            ids.append(int(logits[0, -1].argmax()))
    assert list(generate_text(translator, speechmix.Sentence(text)).ids) == ids[:-1]


class TestMix:
    def test_a_sentence_alone_is_translated_and_it_is_said_by_whom(self, translator):
        text, translation = UNSEEN[0]
        maps = speechmix.mix(translator, text)
        assert [stack for _, stack in maps] == ["encoder", "decoder", "cross"]
        told = maps["value_zeroing", "cross"].provenance
        assert told["decoder_text"] == translation
        assert told["decoder_text_by"] == f"translation of the model ({translator.label}, greedy)"
        given = speechmix.mix(translator, speechmix.Sentence(text, translation=translation))
        for key, one in maps.items():
            np.testing.assert_array_equal(one.scores, given[key].scores)
            assert [unit.label for unit in one.targets] == [
                unit.label for unit in given[key].targets
            ]
        assert given["value_zeroing", "cross"].provenance["decoder_text_by"] == "translation given"

    def test_it_is_written_once(self, translator, monkeypatch):
        sentence = speechmix.Sentence(UNSEEN[1][0])
        speechmix.mix(translator, sentence, stacks="cross")
        monkeypatch.setattr(translator, "family", replace(translator.family, generate=None))
        assert speechmix.mix(translator, sentence, stacks="cross")
        assert translator.translate(sentence.text).translation == UNSEEN[1][1]

    def test_the_encoder_alone_needs_no_translation(self, translator, monkeypatch):
        monkeypatch.setattr(translator, "family", replace(translator.family, generate=None))
        assert list(speechmix.mix(translator, "the old birds turn", stacks="encoder")) == [
            ("value_zeroing", "encoder")
        ]

    @pytest.mark.parametrize("measure", ["value_zeroing", "attention_norm"])
    def test_each_word_comes_from_the_word_it_translates(self, translator, measure):
        """Known by construction: noun and adjective change places. A map that shows the diagonal
        would be wrong.

        The article is left out: it is the same whatever is read, so nothing says where it should
        come from.
        """
        for text, translation in UNSEEN[:5]:
            table = speechmix.mix(translator, text, measures=measure)[
                measure, "cross"
            ].to_dataframe(wide=True)
            strongest = table.to_numpy().argmax(axis=0)[1:4]
            assert strongest.tolist() == list(ORDER[1:]), (text, translation)
            np.testing.assert_allclose(table.sum(), 1, atol=1e-5)

    def test_an_untrained_translator_shows_no_such_thing(self, translator):
        twin = speechmix.load(
            translator.module, processor=translator.tokenizer, init="random", seed=0
        )
        right = []
        for text, translation in UNSEEN[:5]:
            maps = speechmix.mix(twin, speechmix.Sentence(text, translation=translation))
            right += list(
                maps["value_zeroing", "cross"]
                .to_dataframe(wide=True)
                .to_numpy()
                .argmax(axis=0)[1:4]
                == ORDER[1:]
            )
        assert np.mean(right) < 0.7


class TestWhoCannotWrite:
    def test_a_random_twin(self, translator):
        twin = speechmix.load(
            translator.module, processor=translator.tokenizer, init="random", seed=0
        )
        assert list(speechmix.mix(twin, "the old birds turn")) == [("value_zeroing", "encoder")]
        with pytest.raises(InputError, match=r"random 0 writes none itself.*give translation="):
            speechmix.mix(twin, "the old birds turn", stacks="cross")

    def test_a_model_without_a_head(self, translator):
        model = speechmix.load(translator.module.model, processor=translator.tokenizer)
        assert list(speechmix.mix(model, "the old birds turn")) == [("value_zeroing", "encoder")]
        with pytest.raises(InputError, match="give translation="):
            model.translate("the old birds turn")

    def test_a_model_that_hears(self):
        with pytest.raises(InputError, match="with_prefix"):
            speechmix.load(build("whisper-80")).translate("the old birds turn")


def test_tokens_are_fed_as_they_were_written():
    """An untrained model of bytes writes what no text has these tokens for."""
    model = bart()
    written = generate_text(model, speechmix.Sentence("the cats sleep"))
    assert not written.ended
    maps = speechmix.mix(model, "the cats sleep")
    inputs = model.tokenizer("the cats sleep", return_tensors="pt")
    plain = speechmix.mix(
        model, {**inputs, "decoder_input_ids": [list(written.ids)]}, stacks="decoder"
    )
    found = maps["value_zeroing", "decoder"]
    np.testing.assert_array_equal(found.scores, plain["value_zeroing", "decoder"].scores)
    assert "as long as it may be" in found.provenance["decoder_text_cut"]
