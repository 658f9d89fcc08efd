"""logit_contributions: parts add up to the logit in every pre-norm family, and are those of
explicit vectors and maps."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
import transformers

import speechmix
from speechmix.mixing.maps.measure_registry import measure_names
from tests import oracle_decompositions as oracle
from tests.conftest import ALL_FAMILIES, inputs_of, trained
from tests.models import text_models
from tests.models.more_families import MORE_FAMILIES

HEADS = {
    "wav2vec2-stable": "Wav2Vec2ForCTC",
    "wav2vec2-adapters": "Wav2Vec2ForCTC",
    "hubert-stable": "HubertForCTC",
    "wavlm-stable": "WavLMForCTC",
    "whisper-80": "WhisperForConditionalGeneration",
    "gpt2": "GPT2LMHeadModel",
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "gemma": "GemmaForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
    "mbart": "MBartForConditionalGeneration",
}
POST = {
    "wav2vec2-post": "Wav2Vec2ForCTC",
    "bert": "BertForMaskedLM",
    "bart": "BartForConditionalGeneration",
}
ASKED = [(5, 3), (4, 3, 7), (0, 9)]


def headed(name, model_class=None, **changes):
    """A tiny model with its head, all biases and gains of norms drawn: where they are zeros and
    ones, much is not seen."""
    config_class, _, options = ALL_FAMILIES[name]
    config = getattr(transformers, config_class)(**{**options, **changes})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        module = (
            getattr(transformers, model_class or {**HEADS, **POST}[name])(config)
            .eval()
            .requires_grad_(False)
            .double()
        )
        for tensor in (
            *module.parameters(),
            *(b for n, b in module.named_buffers() if n == "final_logits_bias"),
        ):
            if tensor.ndim == 1 or tensor.shape[0] == 1:
                tensor += 0.3 * torch.randn_like(tensor)
    return speechmix.load(module)


@functools.cache
def answered(name):
    """Model, inputs, spans and contributions of a family."""
    model = headed(name)
    inputs = inputs_of(model)
    spans = ((0, 20), (20, 41)) if model.hears else None
    return (
        model,
        inputs,
        spans,
        speechmix.logit_contributions(model, inputs, objective=ASKED, spans=spans),
    )


@pytest.mark.parametrize("name", HEADS)
def test_parts_and_rest_are_the_logit(name):
    model, inputs, _, found = answered(name)
    with torch.no_grad():
        logits = model.module(**inputs).logits[0]
    for (position, token, *foil), parts in zip(ASKED, found, strict=True):
        true = logits[position, token] - (logits[position, foil[0]] if foil else 0)
        assert abs(parts.logit - true.item()) <= 1e-10
        assert abs(parts.error) <= 1e-10
        assert abs(parts.to_dataframe()["contribution"].sum() - true.item()) <= 1e-10
        direct = sum(array.sum() for array in parts.direct.values())
        traced = sum(array.sum() for array in parts.scores.values())
        assert abs(direct - traced) <= 1e-10  # tracing back loses nothing
        assert parts.layer_parts["mlp"].all()
        assert parts.layer_parts["outside"].any() == model.hears  # some frames are in no span
    if name in ("gpt2", "whisper-80", "mbart", "wav2vec2-stable"):  # biases are there to be missed
        assert found[0].layer_parts["attention_bias"].all()
        assert found[0].single_parts["final_norm_bias"]


def reader_of(model, position, token, foil=None):
    """What reads the logit off the last state, as a function of vectors [..., D]; written out for
    layer norms."""
    name = "decoder" if "decoder" in model.stacks else "encoder"
    norm, seen = model.stacks[name].final_norm, []
    hook = norm.register_forward_hook(
        lambda module, args, output: seen.append(args[0][0, position])
    )
    with torch.no_grad():
        model.module(**inputs_of(model))
    hook.remove()
    head = getattr(model.module, "lm_head", None) or model.module.proj_out
    row = head.weight[token] - (0 if foil is None else head.weight[foil])
    deviation = (seen[-1].var(unbiased=False) + norm.eps).sqrt()
    return lambda vectors: (
        ((vectors - vectors.mean(-1, keepdim=True)) / deviation * norm.weight) @ row
    )


@pytest.mark.parametrize("name", ["gpt2", "whisper-80", "mbart", "wav2vec2-stable"])
def test_direct_parts_are_those_of_explicit_vectors(name):
    model, inputs, spans, found = answered(name)
    for asked, parts in zip(ASKED, found, strict=True):
        read, position = reader_of(model, *asked), asked[0]
        for stack, direct in parts.direct.items():
            for layer, (vectors, _, bias, _) in enumerate(
                oracle.parts(model.module, inputs, stack)
            ):
                by_position = read(vectors[position])
                units = [slice(*span) for span in spans] if spans and stack != "decoder" else None
                by_unit = (
                    by_position
                    if units is None
                    else torch.stack([by_position[unit].sum() for unit in units])
                )
                np.testing.assert_allclose(direct[layer], by_unit.numpy(), atol=1e-12)
                if list(parts.direct) == [stack]:
                    assert (
                        abs(
                            parts.layer_parts["attention_bias"][layer] - read(bias[position]).item()
                        )
                        <= 1e-12
                    )


@pytest.mark.parametrize("name", ["llama", "gemma3_text", "whisper-80", "mbart", "wav2vec2-stable"])
def test_sources_are_traced_back_by_the_maps_of_alti(name):
    model, inputs, spans, found = answered(name)
    mixed = speechmix.mix(model, inputs, measures="alti", spans=spans)
    maps = {
        stack: m.scores if stack == "cross" else m.normalized().scores
        for (_, stack), m in mixed.items()
    }
    parts = found[0]
    if "decoder" not in maps:
        expected, shares = [], np.eye(len(spans))
        for direct, layer in zip(parts.direct["encoder"], maps["encoder"], strict=True):
            expected.append(direct @ shares)
            shares = layer @ shares
        np.testing.assert_allclose(parts.scores["encoder"], expected, atol=1e-12)
        return
    cross = maps.get("cross", np.zeros((len(maps["decoder"]), len(maps["decoder"][0]), 0)))
    encoder = np.eye(cross.shape[-1])
    for layer in maps.get("encoder", ()):
        encoder = layer @ encoder
    tokens, units = np.eye(maps["decoder"].shape[-1]), np.zeros(cross.shape[1:])
    for layer, own in enumerate(maps["decoder"]):
        np.testing.assert_allclose(
            parts.scores["decoder"][layer], parts.direct["decoder"][layer] @ tokens, atol=1e-12
        )
        if "encoder" in maps:
            through = (
                parts.direct["decoder"][layer] @ units + parts.direct["cross"][layer] @ encoder
            )
            np.testing.assert_allclose(parts.scores["encoder"][layer], through, atol=1e-12)
        left = 1 - cross[layer].sum(-1, keepdims=True)
        tokens, units = left * (own @ tokens), left * (own @ units) + cross[layer] @ encoder


def test_a_foil_is_taken_away_and_the_future_gives_nothing():
    model, inputs, _, _ = answered("gpt2")
    with_foil, token, foil = speechmix.logit_contributions(
        model, inputs, objective=[(4, 3, 7), (4, 3), (4, 7)]
    )
    np.testing.assert_allclose(
        with_foil.scores["decoder"], token.scores["decoder"] - foil.scores["decoder"], atol=1e-12
    )
    assert not token.scores["decoder"][:, 5:].any()
    later = speechmix.logit_contributions(
        model, {"input_ids": inputs["input_ids"][:, :5]}, objective=(4, 3)
    )
    np.testing.assert_allclose(later.scores["decoder"], token.scores["decoder"][:, :5], atol=1e-12)
    start = speechmix.logit_contributions(model, inputs, objective=(0, 9))
    assert not start.scores["decoder"][:, 1:].any()


def test_words_are_the_sums_of_their_tokens_and_the_target_is_what_is_read():
    model = text_models.gpt2()
    sentence = speechmix.Sentence("the cat is here", target="is", foil="are")
    words = speechmix.logit_contributions(model, sentence)
    tokens = speechmix.logit_contributions(model, sentence, units="token")
    assert words.objective["kind"] == "contrast"
    assert words.logit == pytest.approx(tokens.logit, abs=1e-12)
    for index, span in enumerate(words.sources["decoder"]):
        summed = tokens.scores["decoder"][:, span.start : span.stop].sum(-1)
        np.testing.assert_allclose(words.scores["decoder"][:, index], summed, atol=1e-12)
    with_embedding = words.total("decoder", embedding=True) - words.total("decoder")
    assert with_embedding.sum() == pytest.approx(words.single_parts["embedding"])
    assert len(np.flatnonzero(with_embedding)) == 1


def test_a_clip_with_silence_and_padding_as_sources_leaves_nothing_outside():
    from speechmix.inputs import bundled

    model = trained("tiny-french-whisper")
    clip = next(clip for clip in bundled.clips() if clip.name == "left_00_sg")
    words = speechmix.logit_contributions(model, clip, dtype="float64")
    everything = speechmix.logit_contributions(
        model, clip, dtype="float64", include=["silence", "padding"]
    )
    assert words.labels("encoder") == ["notre", "maison"]
    assert words.layer_parts["outside"].any()
    assert np.abs(everything.layer_parts["outside"]).max() <= 1e-12
    assert max(abs(words.error), abs(everything.error)) <= 1e-10
    np.testing.assert_allclose(
        everything.direct["cross"][:, 1:3], words.direct["cross"], atol=1e-12
    )  # where they come from directly is not a question of what else is a source
    single = speechmix.logit_contributions(model, clip)
    np.testing.assert_allclose(single.scores["encoder"], words.scores["encoder"], atol=1e-3)


@pytest.mark.parametrize("name", POST)
def test_post_norm_stacks_are_refused(name):
    with pytest.raises(
        speechmix.SpeechmixError, match=r"pre-norm stacks.*post-norm. Use speechmix.knock_out"
    ):
        speechmix.logit_contributions(headed(name), {}, objective=(0, 1))


def test_what_is_no_logit_is_refused():
    model, inputs, _, _ = answered("gpt2")
    ask = functools.partial(speechmix.logit_contributions, model, inputs)
    for options, message in (
        ({"objective": lambda output: output.logits.sum()}, "parts add up to a logit"),
        ({"objective": (11, 3)}, "the model gives logits for 11 positions"),
        ({"objective": (4, 3), "measure": "alti"}, "measure should be one of"),
        ({"objective": (4, 3), "spans": [(0, 3), (2, 5)]}, "position 2 lies in two sources"),
    ):
        with pytest.raises(speechmix.SpeechmixError, match=message):
            ask(**options)
    with pytest.raises(
        speechmix.SpeechmixError, match=r"parts that add up to a logit.*logit_contributions"
    ):
        speechmix.mix(model, inputs, measures="alti_logit")
    assert list(measure_names("logit")) == ["alti_logit", "decompx", "lrp"]


def test_a_head_that_is_not_linear_is_refused():
    model = headed("gemma3_text", final_logit_softcapping=30.0)
    with pytest.raises(speechmix.SpeechmixError, match="caps its logits"):
        speechmix.logit_contributions(model, inputs_of(model), objective=(4, 3))
    without = speechmix.load(headed("gpt2").base)
    with pytest.raises(speechmix.SpeechmixError, match="without a head"):
        speechmix.logit_contributions(without, inputs_of(without), objective=(4, 3))


def test_a_model_that_adds_something_else_is_found_out():
    model = headed("gpt2")
    model.module.lm_head.register_forward_hook(lambda module, args, output: output * 2)
    with pytest.raises(speechmix.SpeechmixError, match="miss it by"):
        speechmix.logit_contributions(model, inputs_of(model), objective=(4, 3))


def test_a_half_precision_model_is_taken_apart_in_single():
    model = speechmix.load(headed("llama").module.bfloat16())
    parts = speechmix.logit_contributions(model, inputs_of(model), objective=(4, 3))
    assert parts.provenance["dtype"] == "float32"
    assert abs(parts.error) <= 1e-4


CARRIED = {
    "wav2vec2-post": "Wav2Vec2ForCTC",
    "wav2vec2-adapters": "Wav2Vec2ForCTC",
    "hubert-stable": "HubertForCTC",
    "wavlm-post": "WavLMForCTC",
    "data2vec-audio": "Data2VecAudioForCTC",
    "bert": "BertForMaskedLM",
    "roberta": "RobertaForMaskedLM",
    "electra": "ElectraForMaskedLM",
    "distilbert": "DistilBertForMaskedLM",
}


@pytest.mark.parametrize("name", CARRIED)
def test_carried_vectors_are_the_logit(name):
    model = headed(name, CARRIED[name])
    inputs = inputs_of(model)
    spans = [(0, 20), (20, 41)] if model.hears else None
    found = speechmix.logit_contributions(
        model, inputs, measure="decompx", objective=ASKED, spans=spans
    )
    with torch.no_grad():
        logits = model.module(**inputs).logits[0]
    for (position, token, *foil), parts in zip(ASKED, found, strict=True):
        true = logits[position, token] - (logits[position, foil[0]] if foil else 0)
        assert abs(parts.logit - true.item()) <= 1e-10
        assert abs(parts.error) <= 1e-10
        assert parts.scores["encoder"].shape == (1, 2 if spans else 11)
        assert parts.layer_parts["outside"].any() == model.hears


@pytest.mark.parametrize("name", ["bert", "roberta", "electra", "distilbert"])
def test_carried_vectors_are_the_logits_of_labels(name):
    model = headed(name, CARRIED[name].replace("MaskedLM", "SequenceClassification"))
    inputs, ask = (
        inputs_of(model),
        functools.partial(speechmix.logit_contributions, measure="decompx"),
    )
    with torch.no_grad():
        logits = model.module(**inputs).logits[0]
    label, contrast = ask(model, inputs, objective=[("LABEL_1",), ("LABEL_1", "LABEL_0")])
    assert abs(label.to_dataframe()["contribution"].sum() - logits[1].item()) <= 1e-10
    assert (
        abs(contrast.to_dataframe()["contribution"].sum() - (logits[1] - logits[0]).item()) <= 1e-10
    )
    words = ask(model, inputs, objective=("LABEL_1",), spans=[(0, 2), (2, 5)])
    np.testing.assert_allclose(
        words.scores["encoder"][0, 1], label.scores["encoder"][0, 2:5].sum(), atol=1e-12
    )
    np.testing.assert_allclose(
        words.layer_parts["outside"], label.scores["encoder"][0, 5:].sum(), atol=1e-12
    )


def test_conformers_are_refused_with_the_reason():
    entry = MORE_FAMILIES["wav2vec2-conformer"]
    config = entry.build().config
    model = speechmix.load(transformers.Wav2Vec2ConformerForCTC(config).eval())
    for measure, why in (("alti_logit", "leave it as it is.*Conformers"), ("decompx", "no rule")):
        with pytest.raises(speechmix.SpeechmixError, match=f"{why}.*speechmix.knock_out"):
            speechmix.logit_contributions(
                model, entry.inputs(40), measure=measure, objective=(3, 5)
            )


def test_vectors_are_carried_through_encoders_alone():
    for name in ("gpt2", "whisper-80"):
        model, inputs, *_ = answered(name)
        with pytest.raises(speechmix.SpeechmixError, match=r"has a decoder.*alti_logit"):
            speechmix.logit_contributions(model, inputs, measure="decompx", objective=(4, 3))
    model = trained("tiny-french-ctc")
    with pytest.raises(speechmix.SpeechmixError, match="decompx has no option reference"):
        speechmix.logit_contributions(
            model, {}, measure="decompx", objective=(4, 3), reference=True
        )


class TestMaskedModels:
    """The target of a masked model is not fed to it: what it predicts there must come from the
    other words."""

    @pytest.mark.parametrize("measure", ["decompx", "lrp"])
    @pytest.mark.parametrize("objective", ["auto", "contrast", "logit", ("are", "is")])
    def test_the_target_is_masked(self, measure, objective):
        model = text_models.bert()
        sentence = speechmix.Sentence("the cats are here", target="are", foil="is")
        parts = speechmix.logit_contributions(model, sentence, measure=measure, objective=objective)
        with torch.no_grad():
            logits = model.module(
                **model.tokenizer("the cats [MASK] here", return_tensors="pt")
            ).logits[0, 3]
        target, foil = (logits[text_models.WORDS.index(word)].item() for word in ("are", "is"))
        assert parts.logit == pytest.approx(
            target - (0 if objective == "logit" else foil), abs=1e-12
        )
        assert parts.provenance["text"] == "the cats <mask> here"
        assert parts.sources["encoder"][3].label == "<mask>"

    def test_a_list_is_answered_on_one_text(self):
        model = text_models.bert()
        sentence = speechmix.Sentence("the cats are here", target="are", foil="is")
        are = text_models.WORDS.index("are")
        named, at_position = speechmix.logit_contributions(
            model, sentence, measure="lrp", objective=["logit", (3, are)]
        )
        assert named.logit == pytest.approx(at_position.logit, abs=1e-12)

    def test_a_position_reads_the_text_as_it_is(self):
        model = text_models.bert()
        sentence = speechmix.Sentence("the cats are here", target="are", foil="is")
        parts = speechmix.logit_contributions(model, sentence, measure="lrp", objective=(3, 8))
        assert parts.provenance["text"] == "the cats are here"


class TestHeads:
    """What lies between the final norm and the linear head."""

    @pytest.mark.parametrize("tied", [True, False])
    def test_the_factor_of_a_tied_t5(self, tied):
        sizes = {
            "vocab_size": 60,
            "d_model": 32,
            "d_kv": 8,
            "d_ff": 48,
            "num_layers": 2,
            "num_heads": 4,
        }
        config = transformers.T5Config(**sizes, decoder_start_token_id=0, tie_word_embeddings=tied)
        model = speechmix.load(drawn(transformers.T5ForConditionalGeneration, config))
        inputs = {
            "input_ids": torch.tensor([[5, 6, 7, 1]]),
            "decoder_input_ids": torch.tensor([[0, 8, 9]]),
        }
        parts = speechmix.logit_contributions(model, inputs, objective=(2, 7, 9))
        with torch.no_grad():
            logits = model.module(**inputs).logits[0, 2]
        assert parts.logit == pytest.approx((logits[7] - logits[9]).item(), abs=1e-10)
        assert abs(parts.error) <= 1e-10

    def test_a_prediction_head_is_named_as_the_reason(self):
        with pytest.raises(
            speechmix.SpeechmixError,
            match="transforms the states between its final norm and its linear head",
        ):
            speechmix.logit_contributions(
                modernbert(), {"input_ids": torch.tensor([[1, 5, 6, 2]])}, objective=(1, 7)
            )

    def test_code_that_rounds_to_single_precision_is_no_missing_rule(self):
        inputs = {"input_ids": torch.tensor([[1, 5, 6, 7, 8, 2]])}
        parts = speechmix.logit_contributions(modernbert(), inputs, measure="lrp", objective=(3, 7))
        assert 1e-12 < abs(parts.error) < 1e-6  # its rotary positions are computed in float32


def drawn(model_class, config):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = model_class(config).eval().double()
        for tensor in module.parameters():
            tensor.data = (
                0.3 * torch.randn_like(tensor)
                if tensor.ndim >= 2
                else tensor + 0.1 * torch.randn_like(tensor)
            )
    return module


def modernbert():
    sizes = {
        "vocab_size": 40,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 48,
    }
    ids = {
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "cls_token_id": 1,
        "sep_token_id": 2,
    }
    return speechmix.load(
        drawn(transformers.ModernBertForMaskedLM, transformers.ModernBertConfig(**sizes, **ids))
    )
