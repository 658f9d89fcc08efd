"""Families whose encoder lies inside a larger model, or whose checkpoints name another class:
loaded from a folder."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers

import speechmix
from speechmix.errors import InputError
from tests.models.audio_language_models import VOCABULARY, tokenizer
from tests.models.more_families import _SIDES, _SPEECH, built

_SIZES = {
    name: _SPEECH[name]
    for name in ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
}
_OF_ENCODER = {"layers": 2, "attention_heads": 4, "intermediate_size": 48}


def parakeet():
    encoder = {**_SIZES, "num_mel_bins": 16, "subsampling_conv_channels": 8, "conv_kernel_size": 7}
    config = transformers.ParakeetTDTConfig(
        vocab_size=20, encoder_config=encoder, decoder_hidden_size=16
    )
    return transformers.ParakeetForTDT(config)


def seamless():
    sizes = {f"speech_encoder_{name}": size for name, size in _OF_ENCODER.items()}
    config = transformers.SeamlessM4Tv2Config(
        hidden_size=32,
        feature_projection_input_dim=16,
        conv_depthwise_kernel_size=7,
        vocab_size=60,
        **_SIDES,
        **sizes,
    )
    return transformers.SeamlessM4Tv2ForSpeechToText(config)


def granite():
    encoder = {"input_dim": 16, "num_layers": 2, "hidden_dim": 32, "num_heads": 4, "output_dim": 12}
    text = {
        "model_type": "granite",
        "vocab_size": 60,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    config = transformers.GraniteSpeechConfig(
        encoder_config={**encoder, "context_size": 20, "max_pos_emb": 30},
        projector_config={"model_type": "blip_2_qformer", "encoder_hidden_size": 32, **_SIZES},
        text_config={**text, "num_key_value_heads": 4, **_SIZES},
        audio_token_index=59,
    )
    return transformers.GraniteSpeechForConditionalGeneration(config)


def ast():
    return transformers.ASTForAudioClassification(
        transformers.ASTConfig(**_SIZES, max_length=40, num_mel_bins=32)
    )


@pytest.mark.parametrize("build", [parakeet, seamless, granite, ast])
def test_a_model_is_loaded_from_its_folder_and_scored(build, tmp_path):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = build()
    module.save_pretrained(tmp_path)
    model = speechmix.load(tmp_path, device="cpu")
    assert type(model.module) is type(module)
    assert {
        name: len(stack)
        for name, stack in model.stacks.items()
        if name == "encoder" or build is not granite
    } == {"encoder": 2}
    (name, tiny), *_ = model.family.tiny_inputs(model.config).items()
    long = torch.randn(1, 4 * tiny.shape[1], tiny.shape[2]) if build is not ast else tiny
    found = speechmix.mix(model, {name: long}, spans=[(0, 1), (1, 4)])[
        "value_zeroing", "encoder"
    ].scores
    assert found.shape == (2, 2, 2)
    assert (found.max(axis=(1, 2)) > 0).all()


def test_ast_has_a_frame_for_each_column_of_patches():
    model = speechmix.load(
        ast(), processor=transformers.ASTFeatureExtractor(num_mel_bins=32, max_length=40)
    )
    samples = torch.linspace(-1, 1, 6_000).numpy()
    maps = speechmix.mix(model, speechmix.Clip.from_array(samples, 16_000), units="frame")
    assert maps["value_zeroing", "encoder"].scores.shape == (2, 3, 3)
    assert [len(span) for span in maps["value_zeroing", "encoder"].sources] == [2, 2, 2]


def test_a_gemma3_that_sees_says_that_its_folder_has_no_tokenizer(tmp_path):
    built("gemma3, multimodal", torch.float32).save_pretrained(tmp_path)
    model = speechmix.load(tmp_path, device="cpu")
    assert model.tokenizer is None
    with pytest.raises(InputError, match="without a tokenizer"):
        speechmix.mix(model, "the keys are here")


def test_the_language_model_in_a_gemma3_that_sees_is_that_of_one_that_only_reads(tmp_path):
    sees = built("gemma3, multimodal", torch.float32)
    sees.resize_token_embeddings(len(VOCABULARY), mean_resizing=False)
    reads = transformers.Gemma3ForCausalLM(sees.config.text_config)
    reads.model.load_state_dict(sees.model.language_model.state_dict())
    reads.lm_head.load_state_dict(sees.lm_head.state_dict())
    models = []
    for name, module in (("sees", sees), ("reads", reads)):
        module.save_pretrained(tmp_path / name)
        tokenizer().save_pretrained(tmp_path / name)
        models.append(speechmix.load(tmp_path / name, device="cpu"))
    assert [model.family.name for model in models] == ["gemma3-multimodal", "gemma3"]
    sentence = speechmix.Sentence("the keys are here", cue="keys", target="are", foil="is")
    names = ["value_zeroing", "attention", "alti", "gradient_input"]
    maps = [
        speechmix.mix(model, sentence, measures=names, objective="contrast") for model in models
    ]
    for key, found in maps[0].items():
        assert [span.label for span in found.sources] == [
            span.label for span in maps[1][key].sources
        ]
        assert np.array_equal(found.scores, maps[1][key].scores)
        assert (found.scores.max(axis=(1, 2)) > 0).all()
    drops = [speechmix.knock_out(model, sentence).scores("decoder") for model in models]
    assert np.array_equal(*drops)
    assert np.abs(drops[0]).max() > 0
    parts = [speechmix.logit_contributions(model, sentence).scores["decoder"] for model in models]
    assert np.array_equal(*parts)
    pixels = {"input_ids": torch.tensor([[5, 6]]), "pixel_values": torch.zeros(1, 3, 28, 28)}
    with pytest.raises(InputError, match="text"):
        speechmix.mix(models[0], pixels)
