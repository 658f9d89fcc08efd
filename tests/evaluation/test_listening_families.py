"""Listening with each audio language model that has a tiny model with a processor, and a Whisper with a prompt."""

from __future__ import annotations

import copy
import functools
from types import SimpleNamespace

import pytest
import torch

import speechmix
from speechmix.errors import InputError
from speechmix.extensions.listening.effects import listening_effects
from speechmix.extensions.listening.items import ListeningItem
from speechmix.extensions.listening.questions import OWN, Question, prompt_inputs
from speechmix.extensions.listening.sound_routes import item_routes
from speechmix.extensions.listening.sound_seconds import sound_seconds
from tests import mapping_coverage
from tests.evaluation.listening_by_hand import (
    compare_with_runs_by_hand,
    make_clip,
    make_items,
    report,
)
from tests.models import audio_language_models, speech_recognisers
from tests.models.synthetic_processors import SyntheticChat, build_processor

KIND = "audio language model"
MAPPING = mapping_coverage.SPEECH_MAPPINGS[KIND]
WITH_PROCESSOR = (
    "glmasr",
    "granite_speech",
    "granite_speech_plus",
    "moss_transcribe_diarize",
    "qwen2_5_omni_thinker",
    "qwen3_asr",
    "qwen3_omni_moe_thinker",
)


class PromptChat(SyntheticChat):
    """Writes the sound, then the prompt."""

    def apply_chat_template(self, conversation, processor_kwargs=None, **_):
        return self.audio_token + conversation[0]["content"][-1]["text"]


def load(model_type):
    """Tiny model in 64 bits, where it runs in them, with a processor that writes the prompt."""
    if model_type in audio_language_models.MODELS:
        module, processor = audio_language_models.MODELS[model_type]()
        return speechmix.load(module.double(), processor=processor)
    types = mapping_coverage.list_types({KIND: MAPPING})
    module = copy.deepcopy(mapping_coverage.build(model_type, types[KIND, model_type]))
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        for weight in (x for x in module.parameters() if x.ndim > 1):
            weight.normal_(0, 0.2)
    try:
        model = speechmix.load(module)
    except speechmix.SpeechmixError:  # some cannot run in 64 bits
        model = speechmix.load(module.float())
    shapes = model.family.tiny_inputs(model.config)
    processor = build_processor(model_type, module, shapes)
    processor.__class__ = PromptChat
    return speechmix.load(module, processor=processor)


@functools.cache
def whisper_with_prompts():
    """The bundled Whisper, untrained for prompts and translation, with a token for each."""
    bundled = speechmix.load("bundled:tiny-french-whisper")
    module, tokenizer = copy.deepcopy((bundled.module, bundled.tokenizer))
    tokens = ["<|startofprev|>", "<|translate|>"]
    tokenizer.add_special_tokens({"additional_special_tokens": tokens})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    processor = SimpleNamespace(feature_extractor=bundled.feature_extractor, tokenizer=tokenizer)
    return speechmix.load(module.double(), processor=processor)


@pytest.mark.parametrize("model_type", ["qwen2-audio", "granite-speech", "voxtral"])
def test_reports_of_audio_language_models_equal_runs_by_hand(model_type):
    model, asked = load(model_type), make_items()
    found = report(model, asked)

    def inputs_by_hand(item):
        processor, audio = model.processor, item.clip.audio(16_000)
        text = " ".join([item.hint, item.prompt]).strip()
        if model_type == "voxtral":  # its processor takes a file
            return prompt_inputs(model.with_prompt(text), item.clip)
        user = [{"type": "audio", "audio": "sound"}, {"type": "text", "text": text}]
        if model_type == "granite-speech":  # its template knows no parts
            user = processor.audio_token + text
        turns = [{"role": "user", "content": user}]
        written = processor.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
        assert text in written
        options = {} if model_type == "granite-speech" else {"sampling_rate": 16_000}
        return dict(processor(text=[written], audio=[audio], return_tensors="pt", **options))

    compare_with_runs_by_hand(model, found, asked, inputs_by_hand, "input_ids")


def test_a_whisper_follows_its_initial_prompt_or_the_sound():
    model, asked = whisper_with_prompts(), make_items()
    found = report(model, asked)
    vocabulary = model.tokenizer.get_vocab()
    prefix = [
        vocabulary[f"<|{name}|>"]
        for name in ("startoftranscript", "fr", "transcribe", "notimestamps")
    ]

    def inputs_by_hand(item):
        text = " " + " ".join([item.hint, item.prompt]).strip()
        prompt = model.tokenizer(text, add_special_tokens=False)["input_ids"]
        features = model.feature_extractor(
            item.clip.audio(16_000), sampling_rate=16_000, return_tensors="pt"
        )["input_features"]
        ids = torch.tensor([[vocabulary["<|startofprev|>"], *prompt, *prefix]])
        return {"input_features": features, "decoder_input_ids": ids}

    compare_with_runs_by_hand(model, found, asked, inputs_by_hand, "decoder_input_ids")
    assert found.table["follows"].isin(["sound", "text"]).sum() == 1
    long = ListeningItem(asked[0].clip, "le chat dort " * 9, "chat", ("chat", "chien"))
    with pytest.raises(InputError, match="takes 31: shorten it"):
        speechmix.listening(model, [long])


def test_a_whisper_that_translates_is_told_so_behind_its_initial_prompt():
    model = whisper_with_prompts().with_prefix(task="translate")
    question = Question(model, make_items()[1])
    ids = question.inputs(OWN)["decoder_input_ids"][0].tolist()
    tokens = model.tokenizer.convert_ids_to_tokens(ids)
    assert tokens[0] == "<|startofprev|>"
    assert tokens[-4:] == ["<|startoftranscript|>", "<|fr|>", "<|translate|>", "<|notimestamps|>"]
    found = listening_effects(model, make_items()[1])
    transcribed = listening_effects(whisper_with_prompts(), make_items()[1])
    assert found[0]["log_odds"] != transcribed[0]["log_odds"]


def test_features_of_stacked_frames_lie_in_time():
    """Granite-speech stacks two frames of 10 ms: with the sum over stretches nothing is lost or counted twice."""
    model, item = load("granite-speech"), make_items()[0]
    whole = sound_seconds(model, item, seconds=1.5)["gradient"].sum()
    halves = sound_seconds(model, item, seconds=0.75)["gradient"]
    assert halves.sum() == pytest.approx(whole, abs=1e-9)
    question = Question(model, item)
    inputs = question.inputs(OWN)
    assert inputs["input_features"].shape == (1, 75, 160)
    [context] = question.reading.contexts
    features = inputs["input_features"].double().requires_grad_(True)
    fed = question.with_answer({**inputs, "input_features": features}, context)
    rows = question.read_rows(model.module(**fed), inputs, context)
    question.reading.log_odds([rows]).sum().backward()
    by_frame = (features.grad * features).detach().sum(dim=2)[0]
    expected = [float(by_frame[:38].sum()), float(by_frame[38:].sum())]
    assert halves.tolist() == pytest.approx(expected, abs=1e-6)


def test_a_prompt_whose_letters_are_several_tokens_is_removed():
    """Qwen's tokens are bytes: é is two of them."""
    model = load("qwen2-audio")
    item = ListeningItem(make_clip(0, 1.5), "été : qui dort là ?", "chat", ("chat", "chien"))
    question = Question(model, item)
    inputs = question.inputs(OWN)["input_ids"][0]
    without = question.remove_prompt(OWN, question.inputs(OWN))["input_ids"][0]
    changed = [int(id_) for id_, other in zip(inputs, without, strict=True) if id_ != other]
    assert changed == model.tokenizer(item.prompt)["input_ids"]
    report(model, [item, *make_items()[1:]])


def test_a_processor_that_fails_or_is_missing_is_named():
    model = load("qwen2-audio")

    class Broken:
        audio_token, tokenizer = model.processor.audio_token, model.tokenizer
        feature_extractor = model.feature_extractor

        def __call__(self, **_):
            raise KeyError("no chat")

        def apply_chat_template(self, *_, **__):
            return self.audio_token

    with pytest.raises(InputError, match="load the model with the processor of its"):
        speechmix.listening(speechmix.load(model.module, processor=Broken()), make_items())
    with pytest.raises(InputError, match=r"without its processor.*processor="):
        speechmix.listening(speechmix.load(model.module), make_items())


@pytest.mark.long
@pytest.mark.parametrize("model_type", ["qwen2.5-omni", *WITH_PROCESSOR])
def test_reports_of_other_audio_language_models(model_type):
    model, asked = load(model_type), make_items()
    found = report(model, asked)
    if model.dtype != torch.float64:  # experts run in 32 bits
        return

    def inputs_by_hand(item):
        text = " ".join([item.hint, item.prompt]).strip()
        return prompt_inputs(model.with_prompt(text), item.clip)

    compare_with_runs_by_hand(model, found, asked, inputs_by_hand, "input_ids")


@pytest.mark.long
def test_a_model_that_writes_while_it_hears_takes_no_prompt():
    types = mapping_coverage.list_types({KIND: MAPPING})
    module = mapping_coverage.build("voxtral_realtime", types[KIND, "voxtral_realtime"])
    with pytest.raises(InputError, match="this is a voxtral_realtime"):
        speechmix.listening(speechmix.load(module, check=False), make_items())


@pytest.mark.parametrize("donor_seconds", [0.5, 2.0])
def test_sounds_of_other_lengths_are_knocked_out_whole(donor_seconds, tmp_path):
    """Without any values of cross-attention nothing is left of the sound, however long each one is."""
    model = speechmix.load(str(speech_recognisers.saved("moonshine", tmp_path)))
    item = ListeningItem(make_clip(0, 1.0), "", "le", ("le", "chat"))
    rows = item_routes(model, item, make_clip(1, donor_seconds))
    whole = len(model.stacks["cross"])
    [effect] = [row["effect"] for row in rows if row["layer_count"] == whole]
    assert effect == pytest.approx(rows[0]["effect"], rel=1e-4)


def test_another_recording_that_cannot_be_used_is_no_fault_of_the_item():
    model = whisper_with_prompts()
    item, too_long = make_items()[0], make_clip(1, 60.0)
    rows = listening_effects(model, item, too_long)
    conditions = [row["condition"] for row in rows]
    assert "other sound" not in conditions
    assert conditions[:3] == ["sound", "silence", "noise"]
