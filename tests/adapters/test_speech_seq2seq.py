"""Clips for Moonshine, Speech2Text and SpeechT5: what their decoders are fed, what they write, what
needs a transcript."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
import transformers

import speechmix
from speechmix.adapters.generation.decoder_context import GeneratedText
from speechmix.adapters.generation.decoder_text import decoder_prefix
from speechmix.adapters.generation.greedy_generation import generate_greedily, transcribe
from speechmix.alignment.whisper_attention import align_by_whisper
from speechmix.errors import AlignmentError, InputError, ModelError
from speechmix.extensions.synthetic_french.synthetic_corpus import log_likelihoods
from speechmix.studies.french.transcript_comparison import token_ranges
from tests.models import shared_models
from tests.models import speech_recognisers as tiny

pytest.importorskip("sentencepiece")
WORDS = tiny.TEXT.split()


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return {
        name: tiny.saved(name, tmp_path_factory.mktemp("models") / name) for name in tiny.MODELS
    }


@pytest.fixture(params=tiny.MODELS)
def model(request, folders):
    return shared_models.shared(
        ("recogniser", request.param), lambda: speechmix.load(folders[request.param], device="cpu")
    )


@pytest.fixture
def speecht5(folders):
    return shared_models.shared(
        ("recogniser", "speecht5"), lambda: speechmix.load(folders["speecht5"], device="cpu")
    )


def sound(model, clip):
    return model.family.prepare(model, clip, ("encoder",)).inputs


def test_a_clip_with_its_text_is_scored_in_all_stacks(model):
    maps = speechmix.mix(model, tiny.clip(), measures=["value_zeroing", "attention"])
    assert [stack for name, stack in maps if name == "attention"] == ["encoder", "decoder", "cross"]
    cross = maps["value_zeroing", "cross"]
    assert [span.label for span in cross.sources] == WORDS
    assert [span.word for span in cross.sources] == [0, 1, 2, 3]
    written = [span for span in cross.targets if span.word is not None]
    spelled = ["".join(span.label for span in written if span.word == word) for word in range(4)]
    assert spelled == WORDS
    assert cross.targets[-1].label == "</s>"
    assert [span.start for span in cross.targets] == list(range(len(cross.targets)))
    assert all((found.scores.max(axis=(1, 2)) > 0).all() for found in maps.values())
    assert (
        cross.provenance["decoder_prefix"]
        == model.tokenizer.convert_ids_to_tokens(decoder_prefix(model, tiny.clip()))[0]
    )


def test_the_decoder_is_fed_what_it_is_trained_on(model):
    labels = model.tokenizer(text_target=tiny.TEXT, return_tensors="pt").input_ids
    if (
        labels[0, -1] != model.tokenizer.eos_token_id
    ):  # the stand-in of Moonshine's adds no special tokens
        labels = torch.cat([labels, torch.tensor([[model.tokenizer.eos_token_id]])], dim=1)
    prepared = model.family.prepare(model, tiny.clip(), ("encoder", "decoder", "cross"))
    with torch.no_grad():
        loss = model.module(**sound(model, tiny.clip()), labels=labels).loss.item()
        again = model.module(**prepared.inputs).logits.log_softmax(-1)
    own = -again[0].gather(-1, labels[0, :, None]).mean().item()
    assert own == pytest.approx(loss, rel=1e-5)
    likely = log_likelihoods(model, tiny.clip(), [tiny.TEXT, "le chat"])
    assert likely[0].item() == pytest.approx(-loss * labels.shape[1], rel=1e-4)


def test_what_it_writes_is_what_transformers_generates(model):
    clip = tiny.clip(text=None)
    with torch.no_grad():
        expected = model.module.generate(
            **sound(model, clip), num_beams=1, do_sample=False, max_length=13
        )[0].tolist()
    ids, n_prefix, ended = generate_greedily(model, clip, max_tokens=12)
    assert n_prefix == 1
    assert [*ids, *[model.tokenizer.eos_token_id] * ended] == expected
    text = model.tokenizer.decode(expected, skip_special_tokens=True).strip()
    assert transcribe(model, clip, max_tokens=12) == text


def test_without_a_text_it_is_fed_what_it_writes_itself(speecht5, monkeypatch):
    monkeypatch.setattr("speechmix.adapters.generation.greedy_generation.MAX_TRANSCRIPT_TOKENS", 8)
    clip = tiny.clip(text=None).replace(words=None)
    found = speechmix.mix(speecht5, clip, units="frame", measures="attention")["attention", "cross"]
    assert found.provenance["decoder_text_by"].startswith("transcript of the model")


def test_a_twin_writes_nothing(folders):
    twin = speechmix.load(folders["speecht5"], init="random", seed=1, check=False, device="cpu")
    with pytest.raises(InputError, match="give text="):
        speechmix.mix(
            twin, tiny.clip(text=None).replace(words=None), stacks=["cross"], units="frame"
        )


def test_what_the_choice_of_a_spelling_needs(model):
    clip = tiny.clip(cue=0, target=2, foil="dors")
    drops = speechmix.knock_out(model, clip)
    assert set(drops.table["stack"]) == {"encoder", "decoder", "cross"}
    removed = speechmix.ablate_input(model, clip, sides=["sound"], fills=["zeros"])
    silent = clip.audio(16_000).copy()
    silent[: round(0.4 * 16_000)] = 0
    quiet = speechmix.Clip.from_array(
        silent, 16_000, text=tiny.TEXT, words=clip.words, cue=0, target=2, foil="dors"
    )
    assert removed.table["margin"][0] == pytest.approx(margin(model, quiet), abs=1e-4)
    other = tiny.clip(seconds=1.6, cue=0, target=2, foil="dors")
    assert speechmix.patch(model, clip, other).scores("encoder") == pytest.approx(0, abs=1e-4)


@pytest.mark.long
def test_integrated_gradients_are_complete(model):
    clip = tiny.clip(cue=0, target=2, foil="dors")
    maps = speechmix.mix(
        model, clip, measures="integrated_gradients:steps=60", objective="contrast"
    )
    for found in maps.values():
        notes = found.provenance["completeness"]
        assert max(notes["missed"]) < 0.05
        assert max(map(abs, notes["change"])) > 0.01


def margin(model, clip):
    """log p(target) - log p(foil) at the token that decides, by the model itself."""
    prepared = model.family.prepare(model, clip, ("encoder", "decoder", "cross"))
    tokens = prepared.tokens
    with torch.no_grad():
        logits = model.module(**prepared.inputs).logits[0, tokens.deciding_index - 1]
    ids = [*tokens.ids, model.tokenizer.eos_token_id]
    return (logits[ids[tokens.deciding_index]] - logits[tokens.foil_id]).item()


def test_why_this_word(model):
    explained = speechmix.explain(model, tiny.clip(), text=tiny.TEXT, measures="occlusion")
    assert [choice.label for choice in explained.units] == [*WORDS, "(end)"]


def test_special_tokens_alone_are_no_word_to_explain(speecht5, monkeypatch):
    wrote = GeneratedText((2, 0, 0), 1, "", "a transcript of the model", ended=False)
    monkeypatch.setattr(
        "speechmix.extensions.explain.model_text.generate_text", lambda model, item: wrote
    )
    with pytest.raises(InputError, match="writes nothing"):
        speechmix.explain(speecht5, tiny.clip(), measures="occlusion")


def test_letters_that_it_has_no_token_for_are_refused(model):
    with pytest.raises(InputError, match="no token for 'Ω'"):
        speechmix.mix(model, tiny.clip(text="le chat dort Ω"))
    assert len(speechmix.mix(model, tiny.clip(text="le chat dort Ω"), stacks=["encoder"])) == 1


def test_the_end_of_a_text_is_refused_in_the_text(model):
    with pytest.raises(InputError, match=r"'</s>' is in the text 'le chat dort</s>'.*leave it out"):
        speechmix.mix(model, tiny.clip(text="le chat dort</s>"))


@pytest.mark.every_family
def test_a_text_longer_than_the_decoder_is_refused(model):
    clip = tiny.clip(text=" ".join([tiny.TEXT] * 200)).replace(words=None)
    with pytest.raises(InputError, match=r"was made for (194|512|1024|450): cut the clip"):
        speechmix.mix(model, clip, stacks=["decoder"], units="frame", measures="attention")


def test_a_clip_shorter_than_a_frame_is_refused(model):
    clip = speechmix.Clip.from_array(np.ones(300, np.float32), 16_000)
    with pytest.raises(InputError, match="300 samples is shorter than one frame"):
        speechmix.mix(model, clip, stacks=["encoder"], units="frame")


def test_digital_silence_is_no_number_for_speech2text(folders):
    model, spoken = speechmix.load(folders["speech-to-text"], device="cpu"), tiny.clip()
    silent = speechmix.Clip.from_array(
        np.zeros(25_600, np.float32), 16_000, text=tiny.TEXT, words=spoken.words
    )
    for ask in (speechmix.mix, speechmix.explain):
        with (
            pytest.warns(RuntimeWarning, match="divide"),
            pytest.raises(InputError, match="not all finite"),
        ):
            ask(model, silent)


def test_digital_silence_leaves_the_states_of_a_random_moonshine_zero(folders):
    model, spoken = speechmix.load(folders["moonshine"], device="cpu"), tiny.clip()
    silent = speechmix.Clip.from_array(
        np.zeros(25_600, np.float32), 16_000, text=tiny.TEXT, words=spoken.words
    )
    with pytest.raises(
        InputError,
        match=r"value_zeroing is not a number in layer 0, 1 of the encoder.*silent throughout",
    ):
        speechmix.mix(model, silent)
    of_weights = speechmix.mix(model, silent, measures="attention_norm", stacks="encoder")
    assert not of_weights["attention_norm", "encoder"].scores.any()


def test_words_are_not_placed_by_the_attention_of_others_than_whisper(model):
    with pytest.raises(AlignmentError, match="Whisper"):
        align_by_whisper(model, tiny.clip().audio(16_000), tiny.TEXT)


def test_a_multilingual_model_is_told_its_language_by_the_tokenizer(tmp_path):
    module, extractor, tokenizer = tiny.speech_to_text(tmp_path, languages=True)
    processor = transformers.Speech2TextProcessor(feature_extractor=extractor, tokenizer=tokenizer)
    model = speechmix.load(module, processor=processor, init="random")
    prefix = decoder_prefix(model, tiny.clip())
    assert tokenizer.convert_ids_to_tokens(prefix) == ["</s>", "<lang:fr>"]
    found = speechmix.mix(model, tiny.clip(), measures="attention")["attention", "cross"]
    assert found.provenance["decoder_prefix"] == "</s><lang:fr>"
    assert found.targets[0].label == "<lang:fr>"
    before = model.fingerprint
    tokenizer.tgt_lang = "de"
    model.forget_fingerprint()
    assert tokenizer.convert_ids_to_tokens(decoder_prefix(model, tiny.clip())) == [
        "</s>",
        "<lang:de>",
    ]
    assert model.fingerprint != before


def test_a_language_that_the_decoder_is_not_told_is_said(model, tmp_path):
    clip = tiny.clip().replace(language="pl")
    with pytest.warns(
        UserWarning,
        match="takes no language.*language='pl' of a clip helps to place its words alone",
    ):
        maps = speechmix.mix(model, clip, measures="attention", stacks="cross")
    assert maps["attention", "cross"].provenance["language"] == "pl"  # what the clip says
    plain = speechmix.mix(
        model, tiny.clip().replace(language=None), measures="attention", stacks="cross"
    )
    asked = {m["attention", "cross"].provenance["decoder_prefix"] for m in (maps, plain)}
    assert len(asked) == 1  # and what the decoder was told
    module, extractor, tokenizer = tiny.speech_to_text(tmp_path, languages=True)
    processor = transformers.Speech2TextProcessor(feature_extractor=extractor, tokenizer=tokenizer)
    french = speechmix.load(module, processor=processor, init="random")
    with pytest.warns(UserWarning, match="writes 'fr' whatever is spoken"):
        decoder_prefix(french, clip)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        decoder_prefix(french, clip.replace(language="fr"))
        decoder_prefix(model, clip.replace(language=None))


def test_relative_positions_are_in_the_attention_of_speecht5(speecht5):
    clip, holder = tiny.clip(), speecht5.stacks["encoder"].holder
    names = ["attention", "attention_norm", "alti", "value_zeroing"]
    before = speechmix.mix(speecht5, clip, stacks="encoder", layers=[0], measures=names)
    weight = holder.embed_positions.pe_k.weight
    kept = weight.detach().clone()
    weight.data.zero_()
    try:
        after = speechmix.mix(speecht5, clip, stacks="encoder", layers=[0], measures=names)
    finally:
        weight.data.copy_(kept)
    for key, found in before.items():
        assert np.abs(found.scores - after[key].scores).max() > 1e-2 * found.scores.max()


def test_of_speecht5_the_model_that_hears_and_writes_alone_is_measured(folders, tmp_path):
    config = transformers.AutoConfig.from_pretrained(folders["speecht5"])
    speaking = transformers.SpeechT5ForTextToSpeech(config)
    with pytest.raises(ModelError, match="SpeechT5ForSpeechToText"):
        speechmix.load(speaking, init="random")
    speaking.save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="SpeechT5ForTextToSpeech does not"):
        speechmix.load(tmp_path)


def test_each_position_of_a_transcript_has_its_characters(model):
    places = token_ranges(model, tiny.clip(), tiny.TEXT)
    fed = model.family.prepare(model, tiny.clip(), ("decoder",)).tokens
    assert len(places) == len(fed.ids)
    assert places[0] is None
    held = [place for place in places[1:] if place is not None]
    assert [a for a, _ in held] == [0, *(b for _, b in held[:-1])]
    assert held[-1][1] == len(tiny.TEXT)
