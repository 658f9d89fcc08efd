"""Audio language models: a folder, a clip, a prompt; which positions of the decoder stand for which
word; the answer."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers

import speechmix
from speechmix.adapters.generation.audio_prompt import locate_audio_tokens
from speechmix.adapters.generation.model_inputs import AudioTokens
from speechmix.adapters.generation.text_tokens import generate_text
from speechmix.errors import InputError, ModelError
from speechmix.extensions.estimate.operation_count import build_meta_model
from speechmix.inputs.words.spans import Span
from tests.models import audio_language_models as tiny
from tests.models import shared_models

CLIP = tiny.clip()


@pytest.fixture(params=tiny.MODELS)
def model(request):
    def load():
        module, processor = tiny.MODELS[request.param]()
        return speechmix.load(module, processor=processor)

    return shared_models.shared(("audio-language", request.param), load)


@pytest.fixture
def qwen():
    return shared_models.shared(
        ("audio-language", "qwen2-audio"),
        lambda: speechmix.load(tiny.qwen2_audio()[0], processor=tiny.qwen2_audio()[1]),
    )


def decoder_map(model, clip=CLIP, **options):
    return speechmix.mix(model, clip, stacks="decoder", measures="attention", **options)[
        "attention", "decoder"
    ]


@pytest.mark.parametrize("name", ["qwen2-audio", "qwen2.5-omni", "granite-speech"])
def test_a_folder_with_its_processor_is_loaded_and_asked(name, tmp_path):
    model = speechmix.load(tiny.saved(name, tmp_path), device="cpu")
    maps = speechmix.mix(model.with_prompt("Who speaks?", answer="le chat"), CLIP)
    assert list(maps) == [("value_zeroing", "encoder"), ("value_zeroing", "decoder")]
    assert [span.label for span in maps["value_zeroing", "encoder"].sources] == CLIP.text.split()
    found = maps["value_zeroing", "decoder"]
    assert np.isfinite(found.scores).all()
    assert (found.scores.max(axis=(1, 2)) > 0).all()
    assert found.provenance["prompt"] == "Who speaks?"
    assert found.provenance["answer"] == "le chat"


def test_of_a_model_that_thinks_and_talks_the_thinker_is_measured(tmp_path):
    thinker, processor = tiny.qwen2_5_omni()
    config = transformers.Qwen2_5OmniConfig(
        thinker_config=thinker.config.to_dict(), enable_audio_output=False
    )
    whole = transformers.Qwen2_5OmniForConditionalGeneration(config).eval()
    whole.thinker.load_state_dict(thinker.state_dict())
    whole.save_pretrained(tmp_path)
    expected = decoder_map(speechmix.load(thinker, processor=processor))
    for source in (whole, tmp_path):
        model = speechmix.load(source, processor=processor, device="cpu")
        assert type(model.module) is type(thinker)
        assert np.array_equal(decoder_map(model).scores, expected.scores)
    assert len(build_meta_model(tmp_path).stacks["encoder"]) == 2


def test_qwen2_5_omni_is_asked_by_its_own_processor(tmp_path):
    pytest.importorskip("torchvision", reason="Qwen2.5-Omni's processor needs it")
    module, processor = tiny.qwen2_5_omni()
    module.save_pretrained(tmp_path)
    tiny.own_processor_of_omni().save_pretrained(tmp_path)
    own, stand_in = (
        speechmix.load(tmp_path, device="cpu"),
        speechmix.load(module, processor=processor),
    )
    assert type(own.processor).__name__ == "Qwen2_5OmniProcessor"
    asked = [
        model.with_prompt("<|audio_bos|><|AUDIO|><|audio_eos|>Who?", answer="le")
        for model in (own, stand_in)
    ]
    inputs = [model.family.prepare(model, CLIP, ("encoder", "decoder")).inputs for model in asked]
    assert inputs[0].keys() == inputs[1].keys()
    assert all(torch.equal(inputs[0][name], tensor) for name, tensor in inputs[1].items())
    assert decoder_map(own).provenance["answer"] == CLIP.text


def test_what_lies_behind_the_sound_is_not_carried_along():
    module, processor = tiny.qwen2_5_omni()
    model = speechmix.load(module, processor=processor)
    inputs = model.family.prepare(model, CLIP, ("encoder", "decoder")).inputs
    assert inputs["input_features"].shape == (1, 16, 150)
    made = processor(
        text="<|AUDIO|>", audio=CLIP.audio(16_000), sampling_rate=16_000, return_tensors="pt"
    )
    assert made["input_features"].shape == (1, 16, 200)
    whole = {
        **inputs,
        **{name: made[name] for name in ("input_features", "feature_attention_mask")},
    }
    with torch.no_grad():
        assert torch.equal(module(**inputs).logits, module(**whole).logits)


def test_the_adapter_that_granite_speech_hears_with_is_merged(tmp_path):
    from transformers.integrations.peft import MIN_PEFT_VERSION

    peft = pytest.importorskip("peft", minversion=MIN_PEFT_VERSION)
    folder = tiny.saved("granite-speech", tmp_path)
    adapted, _ = tiny.granite_speech()
    adapted.add_adapter(
        peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    )
    adapted.peft_config["default"].base_model_name_or_path = str(folder)
    transformers.PreTrainedModel.save_pretrained(
        adapted, folder
    )  # the adapter alone, beside the model, as on the hub
    model = speechmix.load(folder, device="cpu")
    inputs = model.family.prepare(model, CLIP, ("encoder", "decoder")).inputs
    with torch.no_grad():
        expected = adapted(**inputs).logits
        adapted.disable_adapters()
        plain = adapted(**inputs).logits
        found = model.module(**inputs).logits
    assert (found - expected).abs().max() < 1e-4
    assert (plain - expected).abs().max() > 0.1


def test_prompt_sound_and_answer_stand_in_one_row(model):
    found = decoder_map(model)
    start, stop = found.provenance["sound_positions"]
    answer = found.provenance["answer_position"]
    sound = [span for span in found.sources if start <= span.start < stop]
    assert [span.label for span in sound] == ["le", "chat", "dort"]
    assert [span.word for span in sound] == [0, 1, 2]
    assert all(span.onset is not None for span in sound)
    assert [(span.start, span.stop) for span in found.sources] == [
        (span.start, span.stop) for span in found.targets
    ]
    fed = [span for span in found.sources if span.start >= answer]
    written = [span for span in found.targets if span.start >= answer - 1]
    assert "".join(span.label for span in fed) == "le␣chat␣dort"
    assert [span.label for span in written] == [*(span.label for span in fed), "<|im_end|>"]
    assert [span.word for span in written] == [0, 0, None, 1, 1, 1, 1, None, 2, 2, 2, 2, None]
    assert all(span.word is None for span in found.targets if span.start < answer - 1)


def test_what_is_fed_is_what_the_processor_makes(qwen):
    _, processor = tiny.qwen2_audio()
    told = [
        {
            "role": "user",
            "content": [{"type": "audio", "audio": "x"}, {"type": "text", "text": "Who speaks?"}],
        }
    ]
    text = processor.apply_chat_template(told, add_generation_prompt=True, tokenize=False)
    expected = processor(
        text=text, audio=CLIP.audio(16_000), sampling_rate=16_000, return_tensors="pt"
    )
    asked = qwen.with_prompt("Who speaks?", answer="le chat")
    prepared = asked.family.prepare(asked, CLIP, ("encoder", "decoder"))
    n_prompt = expected["input_ids"].shape[1]
    assert torch.equal(prepared.inputs["input_ids"][:, :n_prompt], expected["input_ids"])
    assert torch.equal(prepared.inputs["input_features"], expected["input_features"])
    assert torch.equal(
        prepared.inputs["feature_attention_mask"], expected["feature_attention_mask"]
    )
    assert processor.tokenizer.decode(prepared.inputs["input_ids"][0, n_prompt:]) == "le chat"


def test_a_position_belongs_to_the_word_that_the_centre_of_its_frames_lies_in():
    words = [(0.0, 0.5), (0.5, 1.0), (1.0, 1.5)]
    for name, frames, positions, centre in (
        ("qwen2-audio", 2, 1, 0.01),
        ("granite-speech", 15, 3, 0.145),
    ):
        module, processor = tiny.MODELS[name]()
        found = decoder_map(speechmix.load(module, processor=processor))
        start, stop = found.provenance["sound_positions"]
        step = 0.02 * frames
        for (onset, end), span in zip(
            words, [s for s in found.sources if start <= s.start < stop], strict=True
        ):
            held = [
                k
                for k in range((stop - start) // positions)
                if onset <= centre + k * step < end - 1e-9
            ]
            assert (span.start - start, span.stop - start) == (
                positions * held[0],
                positions * (held[-1] + 1),
            )


def test_frames_of_the_sound_are_positions_of_their_own(qwen):
    found = decoder_map(qwen, units="frame")
    start, stop = found.provenance["sound_positions"]
    heard = [span for span in found.sources if span.kind == "frame"]
    assert [(span.start, span.stop) for span in heard] == [
        (place, place + 1) for place in range(start, stop)
    ]


def test_padding_is_a_unit_where_the_decoder_hears_it():
    module, processor = tiny.voxtral()
    found = decoder_map(speechmix.load(module, processor=processor), include=["padding"])
    assert [span.label for span in found.sources if span.kind == "padding"] == ["<padding>"]


def test_the_answer_is_written_where_none_is_given(qwen, monkeypatch):
    monkeypatch.setattr("speechmix.adapters.generation.greedy_generation.MAX_TRANSCRIPT_TOKENS", 8)
    found = decoder_map(qwen.with_prompt("Who speaks?"))
    assert found.provenance["answer_by"].startswith("answer of the model")
    module, processor = tiny.qwen2_audio()
    asked = qwen.with_prompt("Who speaks?")
    ids = asked.family.prepare(asked, CLIP, ("encoder",)).inputs
    with torch.no_grad():
        own = module.generate(**ids, do_sample=False, max_new_tokens=8)[
            0, ids["input_ids"].shape[1] :
        ].tolist()
    assert list(generate_text(asked, CLIP).ids) == own
    assert found.provenance["answer"] == processor.tokenizer.decode(own, skip_special_tokens=True)


def test_a_twin_writes_nothing_and_is_fed_what_is_given(qwen):
    module, processor = tiny.qwen2_audio()
    twin = speechmix.load(module, processor=processor, init="random", seed=1)
    with pytest.raises(InputError, match="answer="):
        decoder_map(twin.with_prompt("Who speaks?"))
    answered = decoder_map(twin.with_prompt("Who speaks?", answer="le chat"))
    assert answered.provenance["answer_by"] == "answer given"


def test_a_prompt_makes_another_model_of_it(qwen):
    asked = qwen.with_prompt("Who speaks?")
    assert asked.name.endswith("(Who speaks?)")
    assert asked.with_prompt("Why?").name.endswith("ForConditionalGeneration (Why?)")
    assert (
        len({qwen.fingerprint, asked.fingerprint, asked.with_prompt(answer="x").fingerprint}) == 3
    )
    with pytest.raises(InputError, match="give one"):
        qwen.with_prompt("Why?", answer="x", transcribes=True)
    other = shared_models.shared(("whisperless", 0), lambda: speechmix.load(_bert()))
    with pytest.raises(InputError, match="audio language models"):
        other.with_prompt("Why?")


def _bert():
    sizes = {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 16,
    }
    return transformers.BertModel(transformers.BertConfig(vocab_size=20, **sizes))


def test_sound_and_audio_tokens_that_do_not_fit_are_refused(qwen):
    inputs = dict(qwen.family.prepare(qwen, CLIP, ("encoder",)).inputs)
    ids = inputs["input_ids"]
    place = int((ids[0] == tiny.SOUND).nonzero()[0, 0])
    one_less = torch.cat([ids[:, :place], ids[:, place + 1 :]], dim=1)
    for wrong in (
        one_less,
        torch.cat([ids[:, :place], ids[:, place : place + 1], ids[:, place:]], dim=1),
    ):
        with pytest.raises(InputError, match="audio token"):
            speechmix.mix(
                qwen, {**inputs, "input_ids": wrong, "attention_mask": torch.ones_like(wrong)}
            )
    with pytest.raises(InputError, match="no audio token"):
        speechmix.mix(qwen, {**inputs, "input_ids": torch.zeros_like(ids)})
    apart = ids.clone()
    apart[0, place + 3] = 5
    with pytest.raises(InputError, match="side by side"):
        speechmix.mix(qwen, {**inputs, "input_ids": apart})
    legacy = torch.cat(
        [ids[:, :place], ids[:, place : place + 1], ids[:, ids.shape[1] - 20 :]], dim=1
    )
    with pytest.raises(InputError, match="audio token"):
        speechmix.mix(
            qwen,
            {**inputs, "input_ids": legacy, "attention_mask": torch.ones_like(legacy)},
            stacks="decoder",
        )


def test_frames_become_positions_and_too_many_or_few_are_noticed(qwen):
    heard = AudioTokens(3, 13, frames=2, positions=1)
    assert heard.n_windows == 10
    for n_frames in (19, 20, 21):
        heard.check(n_frames, "m")
    for n_frames in (18, 22):
        with pytest.raises(InputError, match="audio tokens"):
            heard.check(n_frames, "m")
    spans = heard.convert_frame_spans([Span(0, 1), Span(0, 4), Span(7, 20)])
    assert [(span.start, span.stop) for span in spans] == [(3, 4), (3, 5), (6, 13)]
    with pytest.raises(InputError, match="no audio token"):
        locate_audio_tokens(qwen, [1, 2, 3])


def test_a_model_without_its_processor_says_what_it_needs():
    model = speechmix.load(tiny.qwen2_audio()[0])
    with pytest.raises(ModelError, match="processor="):
        speechmix.mix(model, CLIP)


def test_a_clip_longer_than_the_window_is_refused(model):
    if model.family.name == "granite-speech":
        pytest.skip("hears clips of any length")
    with pytest.raises(InputError, match="Cut it at a pause"):
        speechmix.mix(model, tiny.clip(seconds=2.5))


def test_what_a_clip_or_a_text_lacks_is_said(qwen):
    with pytest.raises(InputError, match=r"of 0.010 s of audio .* no position.*longer clip"):
        speechmix.mix(qwen, tiny.clip("le", seconds=0.01))
    with pytest.raises(InputError, match=r"is in the text.*leave it out"):
        speechmix.mix(qwen, tiny.clip("le chat<|im_end|>"))
    with pytest.raises(InputError, match=r"cannot spell.*knock_out"):
        speechmix.ablate(qwen, tiny.clip(cue=0, target=1, foil="chats"))


def test_a_prompt_with_the_audio_token_is_taken_as_it_is(qwen):
    prompt = "<|audio_bos|><|AUDIO|><|audio_eos|>Write:"
    found = decoder_map(qwen.with_prompt(prompt, answer="le"))
    assert [span.label for span in found.sources][:2] == ["<|audio_bos|>", "le"]
