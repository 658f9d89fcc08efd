"""Objectives: the number meant is the number taken, its gradient is right, and what cannot be meant
is said."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers

import speechmix
from speechmix.errors import InputError, ModelError
from speechmix.inputs.bundled import clips
from speechmix.interventions.value_knock_out import ablate
from speechmix.mixing.measures.objectives import resolve_objective
from tests.conftest import build, inputs_of, tiny, trained
from tests.models.text_models import BYTES, WORDS, bart, bert, gpt2
from tests.scoring.test_mix import clip_of, whisper_that_hears


def resolved(model, clip, objective="auto"):
    """The objective of a clip, its value, and the logits [T, V]."""
    prepared = model.family.prepare(model, clip, tuple(model.stacks))
    found = resolve_objective(objective, model, clip, prepared)
    inputs = {
        k: v.to(model.dtype) if v.is_floating_point() else v for k, v in prepared.inputs.items()
    }
    with torch.no_grad():
        output = model.module(**inputs)
    return found, found.function(output).item(), output.logits[0]


class TestMaskedModels:
    def sentence(self, **given):
        return speechmix.Sentence("the cats <mask> here.", **given)

    @pytest.mark.parametrize("target", [None, "<mask>"])
    def test_mask_alone_is_what_the_model_finds_likeliest(self, target):
        found, value, logits = resolved(bert(), self.sentence(target=target))
        assert found.details["position"] == 3
        assert value == logits[3].max().item()
        assert found.span.label == WORDS[logits[3].argmax()]
        assert (found.span.start, found.span.stop, found.span.word) == (3, 4, 2)

    def test_spelling_and_foil_of_a_mask(self):
        model, sentence = bert(), self.sentence(target="<mask>")
        are, is_ = WORDS.index("are"), WORDS.index("is")
        found, value, logits = resolved(model, sentence, ("are",))
        assert value == logits[3, are].item()
        assert found.span.label == "are"
        found, value, logits = resolved(model, sentence, ("are", "is"))
        assert value == (logits[3, are] - logits[3, is_]).item()
        log_probs = logits[3].log_softmax(dim=-1)
        assert value == pytest.approx((log_probs[are] - log_probs[is_]).item())
        assert found.details["kind"] == "contrast"

    def test_word_that_is_seen_is_read_at_its_own_place(self):
        sentence = speechmix.Sentence("the cats are here.", target="are", foil="is")
        for objective, expected in (("logit", lambda z: z[0]), ("auto", lambda z: z[0] - z[1])):
            _, value, logits = resolved(bert(), sentence, objective)
            assert value == expected(logits[3, [WORDS.index("are"), WORDS.index("is")]]).item()
        _, value, logits = resolved(bert(), sentence, "probability")
        assert value == pytest.approx(logits[3].softmax(dim=-1)[WORDS.index("are")].item())

    @pytest.mark.parametrize(
        ("given", "objective", "pattern"),
        [
            (
                {"target": "<mask>", "foil": "is"},
                "auto",
                r"both spellings: objective=\(word, word\)",
            ),
            ({"target": "<mask>"}, "contrast", "contrast.*needs foil="),
            ({"target": "<mask>"}, ("plays",), "one token each"),
            ({"target": "<mask>"}, ("are", "are"), "decided by no token"),
            ({"target": "<mask>"}, "ctc", "for models with a CTC head.*has tokens"),
        ],
    )
    def test_what_a_mask_cannot_mean(self, given, objective, pattern):
        with pytest.raises(InputError, match=pattern):
            resolved(bert(), self.sentence(**given), objective)

    def test_sentence_without_target_says_what_is_needed(self):
        with pytest.raises(InputError, match="there is no target: give target="):
            speechmix.mix(bert(), "the cats are here.", measures="gradient_input")

    def test_mix_labels_the_row_and_says_what_was_explained(self):
        found = speechmix.mix(
            bert(),
            self.sentence(target="<mask>"),
            measures="gradient_input",
            objective=("are", "is"),
        )
        found = found["gradient_input", "encoder"]
        assert [span.label for span in found.targets] == ["are"]
        assert [span.label for span in found.sources][1:4] == ["the", "cats", "<mask>"]
        details = {"kind": "contrast", "position": 3, "token": WORDS.index("are"), "label": "are"}
        assert found.provenance["objective"] == {
            **details,
            "foil": WORDS.index("is"),
            "foil_label": "is",
        }
        np.testing.assert_allclose(found.normalized().scores.sum(axis=-1), 1)
        assert speechmix.cue_contribution(found, cue=1, target=2).shape == (3,)


class TestCausalModels:
    def test_position_before_the_target_or_the_deciding_token(self):
        sentence = speechmix.Sentence("the cat sits", target="sits")
        found, value, logits = resolved(gpt2(), sentence)
        assert value == logits[7, BYTES.index("s")].item()
        assert (found.span.start, found.span.label, found.span.word) == (7, "sits", 2)
        sentence = speechmix.Sentence("the cat sits", target="sits", foil="sat")
        found, value, logits = resolved(gpt2(), sentence)
        assert value == (logits[8, BYTES.index("i")] - logits[8, BYTES.index("a")]).item()
        assert found.span.start == 8

    def test_first_token_is_predicted_by_nothing(self):
        with pytest.raises(InputError, match="'the' is the first token, which nothing predicts"):
            resolved(gpt2(), speechmix.Sentence("the cat sits", target="the"))


class TestDecodersBehindEncoders:
    def test_translation(self):
        model = bart()
        given = {"text": "un chat", "translation": "a cat", "target": "cat"}
        prepared = model.family.prepare(model, speechmix.Sentence(**given), tuple(model.stacks))
        first = prepared.tokens.words.index(speechmix.Sentence(**given).target)
        _, value, logits = resolved(model, speechmix.Sentence(**given))
        assert value == logits[first - 1, prepared.tokens.ids[first]].item()
        found, value, logits = resolved(model, speechmix.Sentence(**given, foil="cut"))
        place = found.details["position"]
        assert value == (logits[place, BYTES.index("a")] - logits[place, BYTES.index("u")]).item()

    def test_target_must_be_written_by_the_decoder(self):
        with pytest.raises(InputError, match="should be a word of the transcript or translation"):
            resolved(bart(), speechmix.Sentence("un chat", translation="a cat", target="chat"))

    def test_whisper_reads_the_encoder_too_where_only_that_is_asked(self):
        model, clip = whisper_that_hears(), clip_of()
        found = speechmix.mix(
            model, clip, measures=["gradient_input", "attention"], stacks="encoder"
        )
        assert list(found) == [("gradient_input", "encoder"), ("attention", "encoder")]
        assert found["gradient_input", "encoder"].scores.shape == (3, 1, 4)
        assert found["gradient_input", "encoder"].targets[0].label == "livres"

    def test_clip_without_target_says_what_is_needed(self):
        with pytest.raises(InputError, match="there is no target: give target="):
            speechmix.mix(
                whisper_that_hears(), clip_of(target=None, cue=None), measures="gradient_input"
            )


class TestBundledModels:
    """With a foil, the objective is the margin that ablation reads."""

    @pytest.mark.parametrize("name", ["tiny-french-ctc", "tiny-french-whisper"])
    def test_contrast_is_the_margin_of_ablation(self, name):
        model = trained(name)
        clip = next(clip for clip in clips() if clip.meta["control"] == "no")
        found, value, _ = resolved(model, clip)
        assert found.details["kind"] == "contrast"
        assert value == pytest.approx(ablate(model, clip, stacks=[]).margin[0], abs=1e-3)

    def test_ctc_score_of_a_word_is_that_of_the_text_with_and_without_it(self):
        from speechmix.extensions.synthetic_french.synthetic_corpus import log_likelihoods

        model = trained("tiny-french-ctc")
        clip = next(clip for clip in clips() if clip.meta["control"] == "no")
        found, value, _ = resolved(model, clip, "ctc")
        words = clip.text.split()
        without = " ".join(words[: clip.target] + words[clip.target + 1 :])
        with torch.no_grad():
            whole, less = log_likelihoods(model, clip, [clip.text, without]).tolist()
        assert found.details["texts"] == [clip.text, without]
        assert value == pytest.approx(whole - less, abs=1e-3)
        assert value > 0

    def test_tokens_are_not_for_ctc(self):
        model = trained("tiny-french-ctc")
        clip = clips()[0]
        with pytest.raises(InputError, match="a CTC model has 'ctc', 'contrast' and"):
            speechmix.mix(model, clip, measures="gradient_input", objective="logit")


class TestGradients:
    """Finite differences of the objectives with respect to the logits."""

    def check(self, function, shape=(1, 12, 9)):
        logits = torch.randn(
            shape, dtype=torch.double, generator=torch.Generator().manual_seed(0)
        ).requires_grad_(True)

        def of_logits(logits):
            return function(transformers.modeling_outputs.CausalLMOutput(logits=logits))

        assert torch.autograd.gradcheck(of_logits, logits)

    @pytest.mark.parametrize("kind", ["logit", "probability", "log_probability", "contrast"])
    def test_of_tokens(self, kind):
        from speechmix.mixing.measures.token_objectives import token_objective

        self.check(token_objective(kind, tiny("gpt2", torch.float32), 3, 5, 2).function, (2, 12, 9))

    @pytest.mark.parametrize("kind", ["ctc", "contrast"])
    @pytest.mark.parametrize("text", ["ab ba cb", "ba"])
    def test_of_transcripts(self, kind, text, tmp_path):
        tokens = ["<pad>", "<s>", "</s>", "<unk>", "|", "a", "b", "c"]
        (tmp_path / "vocab.json").write_text(
            str({t: i for i, t in enumerate(tokens)}).replace("'", '"')
        )
        tokenizer = transformers.Wav2Vec2CTCTokenizer(str(tmp_path / "vocab.json"))
        module = build("wav2vec2-post", vocab_size=9, pad_token_id=0)
        processor = transformers.Wav2Vec2Processor(
            transformers.Wav2Vec2FeatureExtractor(), tokenizer
        )
        model = speechmix.load(module, processor=processor)
        words = [(word, 0.1 * i + 0.1, 0.1 * i + 0.2) for i, word in enumerate(text.split())]
        clip = speechmix.Clip.from_array(
            np.ones(16_000), 16_000, text=text, words=words, target="ba", foil="bac"
        )
        self.check(resolve_objective(kind, model, clip, None).function)


class TestGivenByHand:
    def test_position_and_tokens(self):
        model = tiny("bert")
        inputs = inputs_of(model)
        found = speechmix.mix(model, inputs, measures="gradient_input", objective=(3, 7, 9))[
            "gradient_input", "encoder"
        ]
        assert found.targets[0].label == "7"

        def contrast(output):
            assert output.logits.shape == (1, 11, 60)
            return output.logits[0, 3, 7] - output.logits[0, 3, 9]

        same = speechmix.mix(model, inputs, measures="gradient_input", objective=contrast)[
            "gradient_input", "encoder"
        ]
        np.testing.assert_allclose(same.scores, found.scores)
        assert same.provenance["objective"] == {"kind": "given"}

    @pytest.mark.parametrize(
        ("objective", "pattern"),
        [
            ("auto", r"prepared inputs: no target is known.*\(position, token id\)"),
            ("margin", "objective should be one of.*'margin'"),
            ((3,), "objective should be one of"),
            ((3, -1), "objective should be one of"),
            ((3, 4, 5, 6), "objective should be one of"),
            (7, "objective should be one of"),
            ((11, 4), "11 positions and 60 tokens"),
            ((3, 60), "11 positions and 60 tokens"),
            (lambda output: 3.0, "a tensor of one number"),
            (lambda output: output.logits, "a tensor of one number"),
            (lambda output: output.logits.sum().detach(), "a tensor of one number that depends"),
            (lambda output: output.logits.sum() * torch.inf, "is .inf|is .-inf"),
        ],
    )
    def test_what_cannot_be_used(self, objective, pattern):
        model = tiny("bert")
        with pytest.raises(InputError, match=pattern):
            speechmix.mix(model, inputs_of(model), measures="gradient_input", objective=objective)

    def test_model_without_a_head(self):
        model = tiny("roberta")
        with pytest.raises(ModelError, match=r"RobertaModel, without a head.*ForMaskedLM"):
            speechmix.mix(model, inputs_of(model), measures="gradient_input", objective=(3, 7))

    def test_head_without_tokens(self):
        config = transformers.BertConfig(
            hidden_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=48,
            vocab_size=60,
        )
        model = speechmix.load(transformers.BertForSequenceClassification(config).double())
        with pytest.raises(InputError, match="expected a label, or its number from 0"):
            speechmix.mix(model, inputs_of(model), measures="gradient_input", objective=(3, 7))
        maps = speechmix.mix(
            model, inputs_of(model), measures="gradient_input", objective=lambda o: o.logits[0, 1]
        )
        assert maps["gradient_input", "encoder"].scores.any()
