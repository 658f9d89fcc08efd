"""Tiny random models of transformers' speech mappings for which there is no written table.

In: a name. Out: a module whose weights all differ; its class is that of the checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import transformers

from .automatic_configs import tiny_config

WIDTHS = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
}
_SIDES = {
    f"{side}_{name}": 3 if name == "layers" else 4
    for side in ("encoder", "decoder")
    for name in ("layers", "attention_heads")
}
_SIDES |= {f"{side}_ffn_dim": 48 for side in ("encoder", "decoder")}
_CONVOLUTIONS = {
    "conv_dim": (16,) * 7,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 2,
}
_IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
SOUND = 55  # the audio token
_TEXT = {
    **WIDTHS,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "vocab_size": 60,
    "max_position_embeddings": 1000,
    **_IDS,
}
_MEL_ENCODER = {**WIDTHS, "num_mel_bins": 16, "max_position_embeddings": 400}
_PARAKEET = {
    **WIDTHS,
    "model_type": "parakeet_encoder",
    "num_mel_bins": 16,
    "subsampling_conv_channels": 8,
    "max_position_embeddings": 500,
}


def _config(name: str, **values: Any) -> transformers.PretrainedConfig:
    return getattr(transformers, name)(**values)


def _lasr() -> transformers.PretrainedConfig:
    encoder = {**_MEL_ENCODER, "subsampling_conv_channels": 16, "conv_kernel_size": 8}
    return _config("LasrCTCConfig", encoder_config=encoder, vocab_size=30)


def _granite5() -> transformers.PretrainedConfig:
    encoder = {**WIDTHS, "num_mel_bins": 16, "context_size": 40, "vocab_size": 30}
    encoder |= {"max_position_embeddings": 64, "subsample_layers": [1]}
    return _config("GraniteSpeech5CTCConfig", encoder_config=encoder, vocab_size=30)


def _sew_d() -> transformers.PretrainedConfig:
    return _config(
        "SEWDConfig",
        **WIDTHS,
        vocab_size=20,
        conv_dim=(16,) * 3,
        conv_stride=(5, 8, 8),
        conv_kernel=(10, 8, 8),
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=2,
        position_buckets=16,
        max_position_embeddings=64,
    )


def _moonshine_streaming() -> transformers.PretrainedConfig:
    encoder = {**WIDTHS, "num_key_value_heads": 4, "sliding_windows": [[16, 4]] * 3}
    return _config(
        "MoonshineStreamingConfig",
        encoder_config=encoder,
        **{**WIDTHS, **_IDS, "num_key_value_heads": 4},
        vocab_size=60,
        decoder_start_token_id=1,
    )


def _cohere() -> transformers.PretrainedConfig:
    ids = {"pad_token_id": 2, "eos_token_id": 3, "bos_token_id": 4, "decoder_start_token_id": 4}
    return _config("CohereAsrConfig", encoder_config=_PARAKEET, **WIDTHS, vocab_size=60, **ids)


def _canary() -> transformers.PretrainedConfig:
    decoder = {**_TEXT, "num_key_value_heads": 4, "pad_token_id": 2, "eos_token_id": 3}
    return _config(
        "CanaryConfig",
        encoder_config=_PARAKEET,
        decoder_config={**decoder, "bos_token_id": 4},
        vocab_size=60,
    )


def _seamless(name: str) -> Callable[[], transformers.PretrainedConfig]:
    def config() -> transformers.PretrainedConfig:
        values = {
            "hidden_size": 32,
            "vocab_size": 60,
            "feature_projection_input_dim": 16,
            "conv_depthwise_kernel_size": 7,
            "speech_encoder_layers": 3,
            "speech_encoder_attention_heads": 4,
            "speech_encoder_intermediate_size": 48,
            "adaptor_kernel_size": 4,
            "adaptor_stride": 4,
            "max_position_embeddings": 500,
            "t2u_encoder_layers": 1,
            "t2u_decoder_layers": 1,
        }
        return _config(name, **values, **_SIDES, **_IDS, decoder_start_token_id=2)

    return config


def _speech_encoder_decoder() -> transformers.PretrainedConfig:
    encoder = transformers.Wav2Vec2Config(**WIDTHS, **_CONVOLUTIONS, vocab_size=20)
    decoder = transformers.BertConfig(
        **WIDTHS, vocab_size=60, is_decoder=True, add_cross_attention=True
    )
    return transformers.SpeechEncoderDecoderConfig.from_encoder_decoder_configs(
        encoder, decoder, decoder_start_token_id=1, pad_token_id=0
    )


def _nemotron(name: str) -> Callable[[], transformers.PretrainedConfig]:
    def config() -> transformers.PretrainedConfig:
        encoder = {**_PARAKEET, "sliding_window": 22, "default_num_lookahead_tokens": 5}
        encoder.pop("model_type")
        return _config(
            name, encoder_config=encoder, vocab_size=31, blank_token_id=30, decoder_hidden_size=24
        )

    return config


_QWEN = {**_TEXT, "model_type": "qwen3"}


def _audio_language(
    name: str, audio: dict[str, Any], **values: Any
) -> Callable[[], transformers.PretrainedConfig]:
    def config() -> transformers.PretrainedConfig:
        options = {"text_config": _QWEN, "audio_token_id": SOUND, **values}
        return _config(name, audio_config=audio, **options)

    return config


_OMNI_ENCODER = {
    "num_mel_bins": 16,
    "encoder_layers": 3,
    "encoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "d_model": 32,
    "output_dim": 32,
    "downsample_hidden_size": 8,
}

_WHISPER_TOWER = {
    "num_mel_bins": 16,
    "encoder_layers": 3,
    "encoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "d_model": 32,
    "max_source_positions": 200,
}


def _granite_plus() -> transformers.PretrainedConfig:
    encoder = {"input_dim": 16, "num_layers": 3, "hidden_dim": 32, "num_heads": 4, "output_dim": 12}
    return _config(
        "GraniteSpeechPlusConfig",
        encoder_config={**encoder, "context_size": 40, "max_pos_emb": 60, "dim_head": 8},
        projector_config={
            "model_type": "blip_2_qformer",
            "encoder_hidden_size": 32,
            **WIDTHS,
        },
        text_config={**_TEXT, "model_type": "granite"},
        audio_token_index=SOUND,
        has_lora_adapter=False,
    )


def _kyutai() -> transformers.PretrainedConfig:
    codec = {
        "hidden_size": 16,
        "num_filters": 4,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "intermediate_size": 16,
        "upsample_groups": 16,
        "codebook_dim": 8,
        "vector_quantization_hidden_dimension": 8,
    }
    sizes = {"num_codebooks": 4, "codebook_vocab_size": 60, "ffn_dim": 96, "sliding_window": 30}
    ids = {"audio_bos_token_id": 58, "audio_pad_token_id": 59}
    text = {name: value for name, value in _TEXT.items() if name != "intermediate_size"}
    return _config("KyutaiSpeechToTextConfig", codec_config=codec, **text, **sizes, **ids)


def _qwen3_omni() -> transformers.PretrainedConfig:
    config = tiny_config("qwen3_omni_moe_thinker")
    config.vision_start_token_id = 2
    return config


def _gemma4() -> transformers.PretrainedConfig:
    """Of as many bins as its front end's first convolution has channels."""
    config = tiny_config("gemma4")
    config.audio_config.subsampling_conv_channels = [128, 8]
    return config


def _gemma4_shared() -> transformers.PretrainedConfig:
    """The last layers read keys and values of earlier ones, as in the sizes that hear."""
    config = _gemma4()
    layers = {"num_hidden_layers": 4, "num_kv_shared_layers": 2}
    for name, value in layers.items():
        setattr(config.text_config, name, value)
    config.text_config.layer_types = ["sliding_attention", "full_attention"] * 2
    return config


# Name (that of the mapping) -> (class, config).
TRACED_MODELS: dict[str, tuple[str, Callable[[], transformers.PretrainedConfig]]] = {
    "lasr_ctc": ("LasrForCTC", _lasr),
    "granite_speech5_ctc": ("GraniteSpeech5ForCTC", _granite5),
    "sew-d": ("SEWDForCTC", _sew_d),
    "moonshine_streaming": ("MoonshineStreamingForConditionalGeneration", _moonshine_streaming),
    "cohere_asr": ("CohereAsrForConditionalGeneration", _cohere),
    "canary": ("CanaryForConditionalGeneration", _canary),
    "seamless_m4t": ("SeamlessM4TForSpeechToText", _seamless("SeamlessM4TConfig")),
    "speech-encoder-decoder": ("SpeechEncoderDecoderModel", _speech_encoder_decoder),
    "nemotron_asr_streaming": (
        "NemotronAsrStreamingForRNNT",
        _nemotron("NemotronAsrStreamingConfig"),
    ),
    "nemotron3_5_asr": ("Nemotron3_5AsrForRNNT", _nemotron("Nemotron3_5AsrConfig")),
    "qwen3_asr": (
        "Qwen3ASRForConditionalGeneration",
        _audio_language("Qwen3ASRConfig", {**_OMNI_ENCODER, "n_window_infer": 200}),
    ),
    "glmasr": (
        "GlmAsrForConditionalGeneration",
        _audio_language(
            "GlmAsrConfig",
            {**_MEL_ENCODER, "intermediate_size": 128},
            text_config={**_TEXT, "model_type": "llama"},
        ),
    ),
    "voxtral_realtime": (
        "VoxtralRealtimeForConditionalGeneration",
        lambda: _config(
            "VoxtralRealtimeConfig",
            audio_config={**_MEL_ENCODER, "head_dim": 8, "sliding_window": 30},
            text_config={**_TEXT, "model_type": "voxtral_realtime_text", "sliding_window": 20},
        ),
    ),
    "granite_speech_plus": ("GraniteSpeechPlusForConditionalGeneration", _granite_plus),
    "fun_asr_nano": (
        "FunAsrNanoForConditionalGeneration",
        _audio_language(
            "FunAsrNanoConfig",
            {
                **WIDTHS,
                "num_mel_bins": 16,
                "num_timestamp_prediction_layers": 3,
            },
            adaptor_config={**WIDTHS, "intermediate_size": 8, "projector_hidden_size": 48},
        ),
    ),
    "moss_transcribe_diarize": (
        "MossTranscribeDiarizeForConditionalGeneration",
        _audio_language("MossTranscribeDiarizeConfig", _WHISPER_TOWER),
    ),
    "kyutai_speech_to_text": ("KyutaiSpeechToTextForConditionalGeneration", _kyutai),
    "qwen3_omni_moe_thinker": ("Qwen3OmniMoeThinkerForConditionalGeneration", _qwen3_omni),
    "phi4_multimodal": ("Phi4MultimodalForCausalLM", lambda: tiny_config("phi4_multimodal")),
    "gemma4": ("Gemma4ForConditionalGeneration", _gemma4),
    "gemma4, shared values": ("Gemma4ForConditionalGeneration", _gemma4_shared),
    "gemma4_unified": (
        "Gemma4UnifiedForConditionalGeneration",
        lambda: tiny_config("gemma4_unified"),
    ),
    "muse_spark": ("MuseSparkForConditionalGeneration", lambda: tiny_config("muse_spark")),
    "dots3_note": ("Dots3NoteForConditionalGeneration", lambda: tiny_config("dots3_note")),
    "pop2piano": ("Pop2PianoForConditionalGeneration", lambda: tiny_config("pop2piano")),
    "dia": ("DiaForConditionalGeneration", lambda: tiny_config("dia")),
    "vibevoice": ("VibeVoiceForConditionalGeneration", lambda: tiny_config("vibevoice")),
    "vibevoice_asr": ("VibeVoiceAsrForConditionalGeneration", lambda: tiny_config("vibevoice_asr")),
    "audioflamingo3": (
        "AudioFlamingo3ForConditionalGeneration",
        _audio_language(
            "AudioFlamingo3Config",
            {
                **_MEL_ENCODER,
                "max_source_positions": 200,
                "model_type": "audioflamingo3_encoder",
            },
            text_config={**_TEXT, "model_type": "qwen2"},
        ),
    ),
}


@cache
def build_traced_model(name: str) -> torch.nn.Module:
    """Build the module of a name: 64-bit weights that differ, gains that are not one."""
    class_name, config = TRACED_MODELS[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = getattr(transformers, class_name)(config()).eval().requires_grad_(False)
        for parameter in module.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 0.2)
            else:
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return module.double()
