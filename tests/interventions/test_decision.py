"""A decision: the margin is the number that its definition says, and words have the positions they
are fed at."""

from __future__ import annotations

import pytest
import torch

import speechmix
from speechmix.errors import InputError, ModelError
from speechmix.inputs.bundled import clips
from speechmix.interventions.decision import Decision
from speechmix.interventions.removals import replace_sound
from tests.conftest import inputs_of, tiny, trained
from tests.models.text_models import WORDS, bart, bert, gpt2


def log_probabilities(model, **inputs):
    with torch.no_grad():
        return model.module(**inputs).logits[0].log_softmax(dim=-1)


class TestMargins:
    def test_a_masked_model_is_fed_its_mask_for_the_target(self):
        model = bert()
        decision = Decision.prepare(
            model, speechmix.Sentence("the cats are here", target="are", foil="is")
        )
        scores = log_probabilities(
            model, **model.tokenizer("the cats [MASK] here", return_tensors="pt")
        )
        expected = scores[3, WORDS.index("are")] - scores[3, WORDS.index("is")]
        assert decision.margin == pytest.approx(expected.item(), abs=1e-12)
        assert decision.has_foil
        assert decision.read_positions == [3]

    def test_without_a_foil_it_is_how_likely_the_target_is(self):
        model = bert()
        decision = Decision.prepare(model, speechmix.Sentence("the cats are here", target="are"))
        scores = log_probabilities(
            model, **model.tokenizer("the cats [MASK] here", return_tensors="pt")
        )
        assert decision.margin == pytest.approx(scores[3, WORDS.index("are")].item(), abs=1e-12)
        assert not decision.has_foil

    def test_a_causal_model_predicts_every_token_of_the_target(self):
        model = gpt2()
        decision = Decision.prepare(model, speechmix.Sentence("the cats are", target="are"))
        ids = model.tokenizer("the cats are").input_ids
        scores = log_probabilities(model, input_ids=torch.tensor([ids]))
        (target,) = decision.select_sources("decoder", [2])
        expected = sum(scores[place - 1, ids[place]] for place in target.positions)
        assert decision.margin == pytest.approx(expected.item(), abs=1e-12)
        assert len(target.positions) >= 3

    def test_a_causal_model_decides_at_the_first_token_that_differs(self):
        model = gpt2()
        decision = Decision.prepare(
            model, speechmix.Sentence("the cats are", target="are", foil="ape")
        )
        ids, foil_ids = (
            model.tokenizer(text).input_ids for text in ("the cats are", "the cats ape")
        )
        place = next(i for i, (a, b) in enumerate(zip(ids, foil_ids, strict=True)) if a != b)
        scores = log_probabilities(model, input_ids=torch.tensor([ids]))
        expected = scores[place - 1, ids[place]] - scores[place - 1, foil_ids[place]]
        assert decision.margin == pytest.approx(expected.item(), abs=1e-12)

    @pytest.mark.parametrize("name", ["tiny-french-ctc", "tiny-french-whisper"])
    def test_of_a_clip_it_changes_sign_with_the_question(self, name):
        """Target and foil exchanged, text and all: the other choice of the same sound (of one
        length here)."""
        clip = next(
            clip for clip in clips() if clip.meta["control"] == "no" and clip.meta["number"] == "pl"
        )
        decision = Decision.prepare(trained(name), clip)
        assert decision.margin > 0
        without = Decision.prepare(trained(name), clip.replace(foil=None))
        assert without.margin < 0  # a log-probability
        assert not without.has_foil

    def test_prepared_inputs_say_what_is_read(self):
        model = tiny("whisper-80")
        inputs = inputs_of(model)
        decision = Decision.prepare(model, inputs, objective=(3, 7, 9))
        with torch.no_grad():
            logits = model.module(**inputs).logits[0, 3]
        assert decision.margin == pytest.approx((logits[7] - logits[9]).item(), abs=1e-12)
        assert len(decision.sources["encoder"]) == len(decision.sources["cross"]) == 60
        assert len(decision.sources["decoder"]) == 7


class TestRefused:
    def test_a_model_without_a_head(self):
        with pytest.raises(ModelError, match="without a head"):
            Decision.prepare(
                tiny("roberta"), {"input_ids": torch.tensor([[4, 5, 6]])}, objective=(0, 3)
            )

    def test_an_item_without_a_target(self):
        with pytest.raises(InputError, match="there is no target"):
            Decision.prepare(gpt2(), "the cats are here")

    def test_a_clip_without_words(self):
        clip = clips()[0]
        wordless = replace_sound(
            clip.replace(words=None, cue=None, target=None, foil=None), clip.audio(16_000)
        )
        with pytest.raises(InputError, match="no words with times"):
            Decision.prepare(trained("tiny-french-ctc"), wordless)

    def test_a_stack_that_is_not_there(self):
        decision = Decision.prepare(
            bert(), speechmix.Sentence("the cats are here", target="are", foil="is")
        )
        with pytest.raises(InputError, match="no stack 'decoder'"):
            decision.select_sources("decoder", None)


def test_words_have_the_positions_of_their_tokens():
    model = bart()
    sentence = speechmix.Sentence(
        "the cats", translation="les chats", target="chats", foil="chiens"
    )
    decision = Decision.prepare(model, sentence)
    labels = {
        stack: [source.label for source in sources] for stack, sources in decision.sources.items()
    }
    assert labels == {
        "encoder": ["the", "cats"],
        "decoder": ["les", "chats"],
        "cross": ["the", "cats"],
    }
    ids = decision.prepared.decoder_tokens.ids
    for source in decision.sources["decoder"]:
        spelled = model.tokenizer.decode([ids[place] for place in source.positions]).strip()
        assert spelled == source.label
