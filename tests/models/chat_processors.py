"""Processors of transformers for tiny models of which only the decoder is measured, and whose sound is among its tokens.

In: a model type. Out: a tiny module and the type's own processor, which writes the prompt around the sound, with a
tokenizer of letters and a short chat template. The processor's parts for images and videos are left out.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
import transformers
from transformers.models.auto import modeling_auto

from tests import mapping_coverage
from tests.models.synthetic_processors import build_tokenizer

_AUDIO_TOKEN = "<audio>"
_TEMPLATE = (
    "{% for part in messages[0]['content'] %}"
    "{{ '<audio>' if part['type'] == 'audio' else part['text'] }}"
    "{% endfor %}"
)
_PARTS = {
    "dots3_note": ("Dots3NoteProcessor", "Dots3NoteFeatureExtractor"),
    "fun_asr_nano": ("FunAsrNanoProcessor", "FunAsrNanoFeatureExtractor"),
    "gemma4": ("Gemma4Processor", "Gemma4AudioFeatureExtractor"),
    "gemma4_unified": ("Gemma4UnifiedProcessor", "Gemma4UnifiedAudioFeatureExtractor"),
    "muse_spark": ("MuseSparkProcessor", "MuseSparkFeatureExtractor"),
    "phi4_multimodal": ("Phi4MultimodalProcessor", "Phi4MultimodalFeatureExtractor"),
    "vibevoice_asr": ("VibeVoiceAsrProcessor", "VibeVoiceAcousticTokenizerFeatureExtractor"),
}
TYPES = tuple(_PARTS)
RUN_IN_32_BITS = ("dots3_note", "gemma4", "muse_spark")


def build_chat_model(model_type: str) -> tuple[torch.nn.Module, Any]:
    """Return a tiny random module, in 64 bits where it runs in them, and its processor."""
    kind = "audio language model"
    mapping = dict(getattr(modeling_auto, mapping_coverage.SPEECH_MAPPINGS[kind]))
    built = mapping_coverage.build(model_type, mapping)
    config = copy.deepcopy(built.config)
    _fit_sizes(model_type, config)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        module = type(built)(config).eval().requires_grad_(False)
        module = module.float() if model_type in RUN_IN_32_BITS else module.double()
        for weight in (x for x in module.parameters() if x.ndim > 1):
            weight.normal_(0, 0.2)
    return module, _build_processor(model_type, config)


def _fit_sizes(model_type: str, config: Any) -> None:
    """Mend what does not fit together in an automatic config."""
    if model_type == "dots3_note":
        config.audio_config.conv_output_size = 16 * config.audio_config.downsample_hidden_size
    if model_type == "gemma4_unified":
        config.audio_config.audio_embed_dim = 160  # samples of a token: 10 ms
    if model_type == "phi4_multimodal":  # its automatic id is that of the first token
        audio = config.audio_config
        audio.audio_token_id, config.image_token_id = 93, 92
        audio.ext_pw_out_channel = audio.depthwise_separable_out_channel = audio.hidden_size


def _build_processor(model_type: str, config: Any) -> Any:
    name, extractor_name = _PARTS[model_type]
    if model_type == "fun_asr_nano":
        pytest.importorskip("torchaudio", reason="FunASR's feature extractor needs torchaudio")
    extractor = getattr(transformers, extractor_name)(**_extractor_sizes(model_type, config))
    tokenizer = build_tokenizer(config)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.unk_token
    names = ("audio", "image", "video", "boi", "eoi", "boa", "eoa")
    for name_ in names:
        token = f"<{name_}>"
        if token in tokenizer.get_vocab():
            setattr(tokenizer, f"{name_}_token", token)
            setattr(tokenizer, f"{name_}_token_id", tokenizer.convert_tokens_to_ids(token))

    class WithoutImages(getattr(transformers, name)):
        """Accepts None for what reads images."""

        def check_argument_for_proper_class(self, argument_name: str, argument: Any) -> Any:
            if argument is not None:
                return super().check_argument_for_proper_class(argument_name, argument)
            return None

    attributes = getattr(transformers, name).get_attributes()
    parts = dict.fromkeys(attributes)
    parts |= {"tokenizer": tokenizer}
    parts |= {part: extractor for part in ("feature_extractor", "audio_processor") if part in parts}
    processor = WithoutImages(**parts)
    processor.chat_template = _TEMPLATE
    processor.audio_token, processor.audio_token_id = _AUDIO_TOKEN, tokenizer.audio_token_id
    return processor


def _extractor_sizes(model_type: str, config: Any) -> dict[str, int]:
    audio = getattr(config, "audio_config", None)
    if model_type == "fun_asr_nano":
        return {"feature_size": audio.num_mel_bins}
    if model_type == "gemma4_unified":
        return {
            "audio_samples_per_token": audio.audio_embed_dim,
            "feature_size": audio.audio_embed_dim,
        }
    if model_type == "muse_spark":
        return {"samples_per_token": math.prod(audio.patch_sizes)}
    return {}
