"""Listening with each audio language model that has a tiny model with a processor, and a Whisper with a prompt."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import speechmix
from speechmix.errors import InputError
from speechmix.evaluation.listening.effects import CONDITIONS, PLAYERS
from speechmix.evaluation.listening.items import ListeningItem
from speechmix.evaluation.listening.listening import estimate_listening
from speechmix.evaluation.listening.question_prompts import prompt_inputs
from speechmix.evaluation.listening.questions import OWN, Question
from speechmix.evaluation.listening.sound_seconds import sound_seconds
from tests import mapping_coverage
from tests.models import audio_language_models
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
WITHOUT_POSITIONS = (
    "dots3_note",
    "fun_asr_nano",
    "gemma4",
    "gemma4_unified",
    "muse_spark",
    "phi4_multimodal",
    "vibevoice_asr",
    "voxtral_realtime",
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
    if model_type in WITHOUT_POSITIONS:
        return model
    shapes = model.family.tiny_inputs(model.config)
    processor = build_processor(model_type, module, shapes)
    processor.__class__ = PromptChat
    return speechmix.load(module, processor=processor)


def whisper_with_prompts():
    """The bundled Whisper, untrained for prompts, with one more token."""
    bundled = speechmix.load("bundled:tiny-french-whisper")
    module, tokenizer = copy.deepcopy((bundled.module, bundled.tokenizer))
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|startofprev|>"]})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    processor = SimpleNamespace(feature_extractor=bundled.feature_extractor, tokenizer=tokenizer)
    return speechmix.load(module.double(), processor=processor)


def clip(number, seconds):
    samples = 0.1 * np.random.default_rng(number).standard_normal(round(16_000 * seconds))
    return speechmix.Clip.from_array(samples, 16_000, name=f"clip{number}", language="fr")


def items():
    return [
        ListeningItem(clip(0, 1.5), "qui dort", "chat", ("chat", "chien")),
        ListeningItem(clip(1, 1.0), "qui dort", "chien", ("chat", "chien"), "le chat dort", "chat"),
        ListeningItem(clip(2, 1.2), "que dit la voix", "le chat dort"),
    ]


def report(model, asked):
    """The report, with what must hold for any model."""
    found = speechmix.listening(model, asked)
    assert not found.skipped
    for item in asked:
        rows = found.conditions[found.conditions["item"] == item.name].set_index("condition")
        assert tuple(rows.index) == CONDITIONS
        assert rows["passes"].eq(1).all()
        assert rows["log_probability"].map(np.isfinite).all()
        assert rows["log_probability"].nunique() == len(CONDITIONS)  # each changes the answer
        total = sum(rows.loc["sound", f"shapley_{player}"] for player in PLAYERS)
        nothing = answer_behind_prompt(model, item)
        assert total == pytest.approx(rows.loc["sound", "log_probability"] - nothing, abs=1e-9)
    assert estimate_listening(model, asked).passes == 6 * len(asked)
    return found


def answer_behind_prompt(model, item):
    """Log-probability of the answer without sound and prompt, each of its tokens as if it were the first."""
    question = Question(model, item)
    inputs = question.inputs("silence", with_prompt=False)
    [rows] = question.log_probabilities(inputs)
    ids = {option: token_ids(model, option) for option in item.options or (item.answer,)}
    if not item.options:
        return sum(float(rows[0, 0, token]) for token in ids[item.answer])
    depth = first_difference(*ids.values())
    scores = rows[0, 0, [tokens[depth] for tokens in ids.values()]].log_softmax(dim=0)
    return float(scores[item.options.index(item.answer)])


def first_difference(one, other):
    return next(depth for depth, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)


def token_ids(model, text):
    space = "" if model.capabilities.has_audio_tokens else " "
    return model.tokenizer(space + text, add_special_tokens=False)["input_ids"]


def teacher_forced(model, inputs, name, answer):
    """Log-probability of each token of an answer, from a run of the module itself."""
    ids = token_ids(model, answer)
    fed = {key: x.to(model.dtype) if x.is_floating_point() else x for key, x in inputs.items()}
    start = fed[name].shape[1]
    fed[name] = torch.cat([fed[name], torch.tensor([ids])], dim=1)
    if "attention_mask" in fed and name == "input_ids":
        fed["attention_mask"] = torch.ones_like(fed[name])
    with torch.no_grad():
        rows = model.module(**fed).logits[0, start - 1 : -1].double().log_softmax(dim=-1)
    return [float(row[token]) for row, token in zip(rows, ids, strict=True)]


def compare_with_runs_by_hand(model, found, asked, inputs_by_hand, name):
    """The probabilities of a report, and those of the module with each answer behind the prompt."""
    for item in asked:
        own = found.conditions.query("item == @item.name and condition == 'sound'").iloc[0]
        inputs = inputs_by_hand(item)
        right = teacher_forced(model, inputs, name, item.answer)
        if not item.options:
            assert own["log_probability"] == pytest.approx(sum(right), abs=1e-9)
            continue
        [wrong] = [option for option in item.options if option != item.answer]
        depth = first_difference(token_ids(model, item.answer), token_ids(model, wrong))
        odds = right[depth] - teacher_forced(model, inputs, name, wrong)[depth]
        assert own["log_odds"] == pytest.approx(odds, abs=1e-9)
        assert own["probability"] == pytest.approx(1 / (1 + np.exp(-odds)), abs=1e-9)


@pytest.mark.parametrize("model_type", ["qwen2-audio", "granite-speech", "voxtral"])
def test_reports_of_audio_language_models_equal_runs_by_hand(model_type):
    model, asked = load(model_type), items()
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
    model, asked = whisper_with_prompts(), items()
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


def test_features_of_stacked_frames_lie_in_time():
    """Granite-speech stacks two frames of 10 ms: with the sum over stretches nothing is lost or counted twice."""
    model, item = load("granite-speech"), items()[0]
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
    question.reading.log_odds([rows], 0).sum().backward()
    by_frame = (features.grad * features).detach().sum(dim=2)[0]
    expected = [float(by_frame[:38].sum()), float(by_frame[38:].sum())]
    assert halves.tolist() == pytest.approx(expected, abs=1e-6)


def test_a_prompt_whose_letters_are_several_tokens_is_removed():
    """Qwen's tokens are bytes: é is two of them."""
    model = load("qwen2-audio")
    item = ListeningItem(clip(0, 1.5), "été : qui dort là ?", "chat", ("chat", "chien"))
    question = Question(model, item)
    inputs = question.inputs(OWN)["input_ids"][0]
    without = question.inputs(OWN, with_prompt=False)["input_ids"][0]
    changed = [int(id_) for id_, other in zip(inputs, without, strict=True) if id_ != other]
    assert changed == model.tokenizer(item.prompt)["input_ids"]
    report(model, [item, *items()[1:]])


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
        speechmix.listening(speechmix.load(model.module, processor=Broken()), items())
    with pytest.raises(InputError, match=r"without its processor.*processor="):
        speechmix.listening(speechmix.load(model.module), items())


@pytest.mark.long
@pytest.mark.parametrize("model_type", ["qwen2.5-omni", *WITH_PROCESSOR])
def test_reports_of_other_audio_language_models(model_type):
    model, asked = load(model_type), items()
    found = report(model, asked)
    if model.dtype != torch.float64:  # experts run in 32 bits
        return

    def inputs_by_hand(item):
        text = " ".join([item.hint, item.prompt]).strip()
        return prompt_inputs(model.with_prompt(text), item.clip)

    compare_with_runs_by_hand(model, found, asked, inputs_by_hand, "input_ids")


@pytest.mark.long
@pytest.mark.parametrize("model_type", WITHOUT_POSITIONS)
def test_models_whose_sound_has_no_known_positions_are_refused(model_type):
    with pytest.raises(InputError, match=r"is not known.*docs/howto/listening\.md"):
        speechmix.listening(load(model_type), items())
