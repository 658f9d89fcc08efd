"""Fixtures: tiny models of every family (random weights, float64 where exactness is asked), and the shared folder."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers

import speechmix

SHARED = Path(__file__).resolve().parents[1].parent / "shared"

_WAV2VEC2 = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "conv_dim": (16,) * 7,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 2,
    "vocab_size": 20,
    "initializer_range": 0.3,
}
_STABLE = {"do_stable_layer_norm": True, "feat_extract_norm": "layer"}
_POST = {"do_stable_layer_norm": False, "feat_extract_norm": "group"}
WHISPER = {
    "d_model": 32,
    "encoder_layers": 3,
    "decoder_layers": 3,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_source_positions": 60,
    "max_target_positions": 24,
    "vocab_size": 50,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 3,
    "init_std": 0.3,
}

# name -> (config class, model class, options); a variant with and one without a head, both norm orders and front ends
FAMILIES = {
    "wav2vec2-post": ("Wav2Vec2Config", "Wav2Vec2ForCTC", {**_WAV2VEC2, **_POST}),
    "wav2vec2-stable": ("Wav2Vec2Config", "Wav2Vec2Model", {**_WAV2VEC2, **_STABLE}),
    "wav2vec2-adapters": ("Wav2Vec2Config", "Wav2Vec2ForCTC", {**_WAV2VEC2, **_STABLE, "adapter_attn_dim": 8}),
    "hubert-post": ("HubertConfig", "HubertForCTC", {**_WAV2VEC2, **_POST}),
    "hubert-stable": ("HubertConfig", "HubertModel", {**_WAV2VEC2, **_STABLE}),
    "wavlm-post": ("WavLMConfig", "WavLMForCTC", {**_WAV2VEC2, **_POST}),
    "wavlm-stable": ("WavLMConfig", "WavLMModel", {**_WAV2VEC2, **_STABLE}),
    "data2vec-audio": ("Data2VecAudioConfig", "Data2VecAudioForCTC", {**_WAV2VEC2, "conv_pos_kernel_size": 3}),
    "whisper-80": ("WhisperConfig", "WhisperForConditionalGeneration", {**WHISPER, "num_mel_bins": 80}),
    "whisper-128": ("WhisperConfig", "WhisperModel", {**WHISPER, "num_mel_bins": 128}),
}


def build(name: str, seed: int = 0, **changes) -> torch.nn.Module:
    """Tiny Hugging Face model of a family with random weights."""
    config_class, model_class, options = FAMILIES[name]
    config = getattr(transformers, config_class)(**{**options, **changes})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return getattr(transformers, model_class)(config).eval()


def inputs_of(model: speechmix.adapters.Model, seed: int = 1) -> dict[str, torch.Tensor]:
    """Prepared inputs of about 60 frames, float64."""
    generator = torch.Generator().manual_seed(seed)
    if model.family.name == "whisper":
        frames = 2 * model.config.max_source_positions
        return {
            "input_features": torch.randn(
                1, model.config.num_mel_bins, frames, generator=generator, dtype=torch.double
            ),
            "decoder_input_ids": torch.randint(4, 50, (1, 7), generator=generator),
        }
    return {"input_values": torch.randn(1, 19_280, generator=generator, dtype=torch.double)}


@pytest.fixture(params=FAMILIES)
def family_name(request) -> str:
    return request.param


@pytest.fixture
def model(family_name) -> speechmix.adapters.Model:
    """A tiny float64 model of each family in turn."""
    return speechmix.load(build(family_name).double())


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder with golden outputs and real data beside the project; tests that need it are skipped without it."""
    if not SHARED.is_dir():
        pytest.skip("no ../shared folder beside the project: golden outputs and real data are not here")
    return SHARED
