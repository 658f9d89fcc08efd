"""Listening with audio language models of which only the decoder is measured: its tokens say where the sound is."""

from __future__ import annotations

import functools

import pytest
import torch

import speechmix
from speechmix.errors import InputError
from speechmix.extensions.listening.questions import OTHER, OWN, Question
from speechmix.extensions.listening.sound_routes import item_routes
from speechmix.extensions.listening.sound_seconds import sound_seconds
from tests.evaluation.listening_by_hand import (
    compare_with_runs_by_hand,
    make_clip,
    make_items,
    report,
)
from tests.models.chat_processors import TYPES, build_chat_model

QUICK = ("fun_asr_nano", "phi4_multimodal")


@functools.cache
def load(model_type):
    module, processor = build_chat_model(model_type)
    return speechmix.load(module, processor=processor)


@pytest.mark.parametrize(
    "model_type",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.long) for name in TYPES],
)
def test_reports_equal_runs_by_hand(model_type, monkeypatch):
    model, asked = load(model_type), make_items()
    if model_type == "vibevoice_asr":  # by hand it would add other noise to the sound
        monkeypatch.setattr(model.config.acoustic_tokenizer_encoder_config, "vae_std", 0.0)
    found = report(model, asked)

    def inputs_by_hand(item):
        text = "<audio>" + " ".join([item.hint, item.prompt]).strip()
        audio = item.clip.audio(model.sample_rate)
        return dict(model.processor(text=[text], audio=[audio], return_tensors="pt"))

    compare_with_runs_by_hand(model, found, asked, inputs_by_hand, "input_ids")


@pytest.mark.parametrize(
    "model_type",
    [
        name if name in QUICK else pytest.param(name, marks=pytest.mark.long)
        for name in TYPES
        if name != "gemma4"  # projections of the sound also enter its later layers
    ],
)
def test_all_states_of_the_sound_patched_in_the_first_layer_are_the_other_sound(model_type):
    rows = item_routes(load(model_type), make_items()[0], make_clip(1, 1.5))
    [total] = [row["effect"] for row in rows if row["removal"] == "input"]
    [patched] = [row["effect"] for row in rows if row["removal"] == "patch" and row["layer"] == 0]
    assert abs(total) > 1e-3
    assert patched == pytest.approx(total, abs=1e-5)


def test_a_knock_out_equals_zeroed_values_by_hand():
    model, item, donor = load("fun_asr_nano"), make_items()[0], make_clip(1, 1.5)
    question, layer = Question(model, item, donor), 1
    [context] = question.reading.contexts

    def odds(sound, *, without_values):
        inputs = question.inputs(sound)
        positions = inputs["input_ids"][0] == model.config.audio_token_id
        positions = torch.nn.functional.pad(positions, (0, len(context)))
        values = model.module.get_submodule(f"model.language_model.layers.{layer}.self_attn.v_proj")
        hook = values.register_forward_hook(
            lambda _, __, output: output * ~(positions[:, None] & without_values)
        )
        fed = question.with_answer(inputs, context)
        fed = {name: x.double() if x.is_floating_point() else x for name, x in fed.items()}
        with torch.no_grad():
            output = model.module(**fed, use_cache=False)
        hook.remove()
        return float(question.reading.log_odds([question.read_rows(output, inputs, context)]))

    effect = odds(OWN, without_values=False) - odds(OTHER, without_values=False)
    effect -= odds(OWN, without_values=True) - odds(OTHER, without_values=True)
    rows = item_routes(model, item, donor)
    [found] = [
        row["effect"]
        for row in rows
        if row["removal"] == "knock-out" and row["layer"] == layer and row["head"] != row["head"]
    ]
    assert found == pytest.approx(effect, abs=1e-9)


def test_gradients_are_summed_over_the_features_of_any_name():
    table = sound_seconds(load("phi4_multimodal"), make_items()[0], seconds=0.5)
    assert table["gradient"].abs().gt(0).all()


def test_a_clip_is_refused_only_if_the_processor_cuts_it(monkeypatch):
    model, limit = load("fun_asr_nano"), 8_000
    extractor_class = type(model.feature_extractor)
    monkeypatch.setattr(extractor_class, "n_samples", limit, raising=False)
    question = Question(model, make_items()[0])
    assert question.inputs(OWN)["input_ids"].shape[1] > 20  # it keeps what is behind
    extract = extractor_class.__call__

    def cut(self, audio, **options):
        return extract(self, [samples[:limit] for samples in audio], **options)

    monkeypatch.setattr(extractor_class, "__call__", cut)
    with pytest.raises(InputError, match=r"1\.50 s of audio, but .* hears 0\.5 s at a time"):
        question.inputs(OWN)


def test_a_decoder_without_its_processor_says_so():
    with pytest.raises(InputError, match=r"without its processor.*processor="):
        speechmix.listening(speechmix.load(load("phi4_multimodal").module), make_items())


def test_a_checkpoint_is_loaded_with_its_processor(tmp_path):
    loaded = load("fun_asr_nano")
    module, processor = loaded.module, loaded.processor
    module.save_pretrained(tmp_path)
    type(processor).__name__ = "FunAsrNanoProcessor"  # of which the tests have a subclass
    processor.save_pretrained(tmp_path)
    model = speechmix.load(str(tmp_path))
    assert model.takes_chat
    assert not model.can_transcribe
    found = speechmix.listening(model, make_items()[:1])
    assert found.card_line.count("(1 group, no interval)") == 1
