"""Tiny classifiers of sound for the tests, one of each class of transformers' audio classification
mapping: random weights in float64, made-up labels, with the feature extractor that a checkpoint of
the class has."""

from __future__ import annotations

import numpy as np
import torch
import transformers

import speechmix
from tests.models import shared_models

LABELS = ("angry", "happy", "sad", "calm")
_IDS = {
    "id2label": dict(enumerate(LABELS)),
    "label2id": {name: index for index, name in enumerate(LABELS)},
}
_SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "initializer_range": 0.3,
}
_WAVES = {
    **_SIZES,
    "conv_dim": (16,) * 7,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 2,
    "vocab_size": 20,
    "classifier_proj_size": 24,
}
_SEW = {**_WAVES, "conv_dim": (16,) * 13}
_WHISPER = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_source_positions": 100,
    "init_std": 0.3,
    "vocab_size": 50,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 3,
    "num_mel_bins": 80,
    "classifier_proj_size": 24,
}
_WAVE_EXTRACTOR = transformers.Wav2Vec2FeatureExtractor

# name -> (config class, model class, options, feature extractor)
CLASSIFIERS = {
    "ast": (
        "ASTConfig",
        "ASTForAudioClassification",
        {**_SIZES, "max_length": 120, "num_mel_bins": 32},
        lambda: transformers.ASTFeatureExtractor(num_mel_bins=32, max_length=120),
    ),
    "data2vec-audio": (
        "Data2VecAudioConfig",
        "Data2VecAudioForSequenceClassification",
        {**_WAVES, "conv_pos_kernel_size": 3},
        _WAVE_EXTRACTOR,
    ),
    "hubert": ("HubertConfig", "HubertForSequenceClassification", _WAVES, _WAVE_EXTRACTOR),
    "sew": ("SEWConfig", "SEWForSequenceClassification", _SEW, _WAVE_EXTRACTOR),
    "sew-d": ("SEWDConfig", "SEWDForSequenceClassification", _SEW, _WAVE_EXTRACTOR),
    "unispeech": ("UniSpeechConfig", "UniSpeechForSequenceClassification", _WAVES, _WAVE_EXTRACTOR),
    "unispeech-sat": (
        "UniSpeechSatConfig",
        "UniSpeechSatForSequenceClassification",
        _WAVES,
        _WAVE_EXTRACTOR,
    ),
    "wav2vec2": ("Wav2Vec2Config", "Wav2Vec2ForSequenceClassification", _WAVES, _WAVE_EXTRACTOR),
    "wav2vec2-bert": (
        "Wav2Vec2BertConfig",
        "Wav2Vec2BertForSequenceClassification",
        {
            **_SIZES,
            "feature_projection_input_dim": 32,
            "conv_depthwise_kernel_size": 7,
            "classifier_proj_size": 24,
        },
        lambda: transformers.SeamlessM4TFeatureExtractor(feature_size=16, num_mel_bins=16),
    ),
    "wav2vec2-conformer": (
        "Wav2Vec2ConformerConfig",
        "Wav2Vec2ConformerForSequenceClassification",
        {**_WAVES, "conv_depthwise_kernel_size": 7},
        _WAVE_EXTRACTOR,
    ),
    "wavlm": ("WavLMConfig", "WavLMForSequenceClassification", _WAVES, _WAVE_EXTRACTOR),
    "whisper": (
        "WhisperConfig",
        "WhisperForAudioClassification",
        _WHISPER,
        lambda: transformers.WhisperFeatureExtractor(feature_size=80, chunk_length=2),
    ),
}


def build_classifier(name: str, seed: int = 0, **changes: object) -> torch.nn.Module:
    """Tiny classifier with random weights; the layer weights of a weighted sum differ."""
    config_class, model_class, options, _ = CLASSIFIERS[name]
    config = getattr(transformers, config_class)(**{**options, **_IDS, **changes})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = getattr(transformers, model_class)(config)
        if hasattr(module, "layer_weights"):
            module.layer_weights.data.normal_()
    return module.double().eval().requires_grad_(False)


def classifier(name: str, **changes: object) -> speechmix.adapters.Model:
    """Tiny classifier, loaded and checked once, shared by all tests of the process."""
    return shared_models.shared(
        ("audio classifier", name, *sorted(changes.items())),
        lambda: speechmix.load(build_classifier(name, **changes), processor=CLASSIFIERS[name][3]()),
    )


def sound(seconds: float = 1.2, seed: int = 3) -> np.ndarray:
    """Tones that glide, in noise: something that changes in time."""
    times = np.arange(round(16_000 * seconds)) / 16_000
    noise = np.random.default_rng(seed).normal(size=len(times))
    return (0.3 * np.sin(2 * np.pi * (200 + 900 * times) * times) + 0.05 * noise).astype("float32")


def clip(**options: object) -> speechmix.Clip:
    """Four words with times in 1.2 s."""
    words = [("les", 0.1, 0.3), ("amis", 0.3, 0.55), ("sont", 0.6, 0.8), ("partis", 0.8, 1.1)]
    return speechmix.Clip.from_array(sound(), 16_000, name="clip", **{"words": words, **options})
