"""Tiny models of every family for the tests: random weights, float64 where exactness is needed; one
table for all of them.

`build` makes a new one, `tiny` returns one that all tests of a process share. Families with inputs
of their own are in `more_families.py`; models with tokenizers, processors or training of their own
in the other modules of this package.
"""

from __future__ import annotations

import functools

import torch
import transformers

import speechmix
from speechmix.inputs import bundled
from tests.models import shared_models

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

# name -> (config class, model class, options); a variant with and one without a head, both norm
# orders and front ends
FAMILIES = {
    "wav2vec2-post": ("Wav2Vec2Config", "Wav2Vec2ForCTC", {**_WAV2VEC2, **_POST}),
    "wav2vec2-stable": ("Wav2Vec2Config", "Wav2Vec2Model", {**_WAV2VEC2, **_STABLE}),
    "wav2vec2-adapters": (
        "Wav2Vec2Config",
        "Wav2Vec2ForCTC",
        {**_WAV2VEC2, **_STABLE, "adapter_attn_dim": 8},
    ),
    "hubert-post": ("HubertConfig", "HubertForCTC", {**_WAV2VEC2, **_POST}),
    "hubert-stable": ("HubertConfig", "HubertModel", {**_WAV2VEC2, **_STABLE}),
    "wavlm-post": ("WavLMConfig", "WavLMForCTC", {**_WAV2VEC2, **_POST}),
    "wavlm-stable": ("WavLMConfig", "WavLMModel", {**_WAV2VEC2, **_STABLE}),
    "data2vec-audio": (
        "Data2VecAudioConfig",
        "Data2VecAudioForCTC",
        {**_WAV2VEC2, "conv_pos_kernel_size": 3},
    ),
    "whisper-80": (
        "WhisperConfig",
        "WhisperForConditionalGeneration",
        {**WHISPER, "num_mel_bins": 80},
    ),
    "whisper-128": ("WhisperConfig", "WhisperModel", {**WHISPER, "num_mel_bins": 128}),
}

_IDS = {"vocab_size": 60, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_ENCODER = {
    **_IDS,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 40,
    "initializer_range": 0.3,
}
_DISTILBERT = {
    **_IDS,
    "dim": 32,
    "n_layers": 3,
    "n_heads": 4,
    "hidden_dim": 48,
    "max_position_embeddings": 40,
}
_GPT2 = {
    **_IDS,
    "n_embd": 32,
    "n_layer": 3,
    "n_head": 4,
    "n_positions": 40,
    "initializer_range": 0.3,
}
_GROUPED = {**_ENCODER, "num_key_value_heads": 2, "head_dim": 8}
_SEQ2SEQ = {
    **_IDS,
    "d_model": 32,
    "encoder_layers": 3,
    "decoder_layers": 3,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 40,
    "decoder_start_token_id": 2,
    "forced_eos_token_id": 2,
    "init_std": 0.3,
}

# Text models: post-norm encoders, pre-norm decoders (plain, grouped values, a window, norms of
# branches), and both
TEXT_FAMILIES = {
    "bert": ("BertConfig", "BertForMaskedLM", _ENCODER),
    "roberta": ("RobertaConfig", "RobertaModel", _ENCODER),
    "electra": ("ElectraConfig", "ElectraModel", {**_ENCODER, "embedding_size": 16}),
    "distilbert": (
        "DistilBertConfig",
        "DistilBertModel",
        {**_DISTILBERT, "initializer_range": 0.3},
    ),
    "gpt2": ("GPT2Config", "GPT2LMHeadModel", _GPT2),
    "llama": ("LlamaConfig", "LlamaForCausalLM", _GROUPED),
    "mistral": ("MistralConfig", "MistralModel", {**_GROUPED, "sliding_window": 4}),
    "qwen2": ("Qwen2Config", "Qwen2Model", _GROUPED),
    "qwen3": ("Qwen3Config", "Qwen3Model", _GROUPED),
    "gemma": ("GemmaConfig", "GemmaModel", _GROUPED),
    "gemma3_text": ("Gemma3TextConfig", "Gemma3TextModel", {**_GROUPED, "sliding_window": 4}),
    "bart": ("BartConfig", "BartForConditionalGeneration", _SEQ2SEQ),
    "mbart": ("MBartConfig", "MBartModel", _SEQ2SEQ),
    "marian": ("MarianConfig", "MarianMTModel", _SEQ2SEQ),
}
ALL_FAMILIES = {**FAMILIES, **TEXT_FAMILIES}


def build(name: str, seed: int = 0, **changes) -> torch.nn.Module:
    """Tiny Hugging Face model of a family with random weights; without gradients, so that oracles
    can compute with it."""
    config_class, model_class, options = ALL_FAMILIES[name]
    config = getattr(transformers, config_class)(**{**options, **changes})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return getattr(transformers, model_class)(config).eval().requires_grad_(False)


def inputs_of(model: speechmix.adapters.Model, seed: int = 1) -> dict[str, torch.Tensor]:
    """Prepared inputs of about 60 frames, float64; of 11 tokens for text models."""
    generator = torch.Generator().manual_seed(seed)
    if not model.hears:
        inputs = {"input_ids": torch.randint(4, 50, (1, 11), generator=generator)}
        if "cross" in model.stacks:
            inputs["decoder_input_ids"] = torch.randint(4, 50, (1, 7), generator=generator)
        return inputs
    if model.family.name == "whisper":
        frames = 2 * model.config.max_source_positions
        return {
            "input_features": torch.randn(
                1, model.config.num_mel_bins, frames, generator=generator, dtype=torch.double
            ),
            "decoder_input_ids": torch.randint(4, 50, (1, 7), generator=generator),
        }
    return {"input_values": torch.randn(1, 19_280, generator=generator, dtype=torch.double)}


def tiny(name: str, dtype: torch.dtype = torch.float64, **changes) -> speechmix.adapters.Model:
    """Tiny model of a family, shared by all tests of the process: loaded and checked once, and not
    to be changed."""
    key = (name, dtype, *sorted(changes.items()))
    return shared_models.shared(key, lambda: speechmix.load(build(name, **changes).to(dtype)))


def trained_and_twin() -> list[speechmix.adapters.Model]:
    """A small wav2vec2 that stands for a trained model, and its random twin, loaded anew: a run
    changes and hashes them."""
    import transformers

    extractor, module = transformers.Wav2Vec2FeatureExtractor(), build("wav2vec2-post")
    models = [
        speechmix.load(module, processor=extractor),
        speechmix.load(module, processor=extractor, init="random", seed=3),
    ]
    assert all(model.fingerprint for model in models)
    return models


def trained(name: str) -> speechmix.adapters.Model:
    """A bundled model, tiny-french-ctc or tiny-french-whisper, shared as `tiny` ones are."""
    return shared_models.shared(
        (name,), lambda: speechmix.load(bundled.models()[name], device="cpu")
    )


@functools.lru_cache(maxsize=16)
def maps_of(name: str, measures: tuple[str, ...], **options) -> speechmix.mixing.maps.map_set.Maps:
    """Maps of a family's tiny model and its prepared inputs: one `mix` for tests that look at
    different sides of them.

    Options are those of `speechmix.mix`, with tuples for lists; the scores cannot be written to.
    """
    model = tiny(name)
    maps = speechmix.mix(model, inputs_of(model), measures=measures, **options)
    for found in maps.values():
        found.scores.setflags(write=False)
    return maps
