"""Tiny audio language models with the processors that their checkpoints come with, for whole ways:
a folder, a clip, a prompt.

Random weights; a window of two seconds instead of thirty; a tokenizer that reads bytes.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from tokenizers.pre_tokenizers import ByteLevel

import speechmix

SECONDS = 2
FRAMES = 50 * SECONDS
SPECIAL = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|AUDIO|>",
    "<|audio_bos|>",
    "<|audio_eos|>",
    "<|audio|>",
]
VOCABULARY = [*sorted(ByteLevel.alphabet()), *SPECIAL]
SOUND, GRANITE_SOUND = VOCABULARY.index("<|AUDIO|>"), VOCABULARY.index("<|audio|>")
GRANITE_CHAT = (
    "{% for message in messages %}{{ message['role'] + ': ' + message['content'] }}{% endfor %}"
    "{% if add_generation_prompt %} assistant: {% endif %}"
)
OMNI_CHAT = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{% for part in "
    "message['content'] %}"
    "{% if part['type'] == 'audio' %}<|audio_bos|><|AUDIO|><|audio_eos|>{% else %}{{ part['text'] "
    "}}{% endif %}{% endfor %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_WIDTHS = {
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "hidden_size": 32,
}
_TEXT = {
    **_WIDTHS,
    "vocab_size": len(VOCABULARY),
    "num_key_value_heads": 2,
    "max_position_embeddings": 600,
    "bos_token_id": None,
    "eos_token_id": VOCABULARY.index("<|im_end|>"),
    "pad_token_id": VOCABULARY.index("<|endoftext|>"),
}


def tokenizer(**options):
    """Qwen2's, without merges: a token is a byte."""
    made = transformers.Qwen2Tokenizer(
        vocab={token: i for i, token in enumerate(VOCABULARY)}, merges=[], **options
    )
    made.add_special_tokens({"additional_special_tokens": SPECIAL, "eos_token": "<|im_end|>"})
    return made


def extractor(bins: int = 16, **options):
    return transformers.WhisperFeatureExtractor(feature_size=bins, chunk_length=SECONDS, **options)


def qwen2_audio():
    """Model and processor of Qwen2-Audio."""
    tower = {
        "num_mel_bins": 16,
        "encoder_layers": 2,
        "encoder_attention_heads": 4,
        "encoder_ffn_dim": 48,
    }
    config = transformers.Qwen2AudioConfig(
        audio_config={
            "model_type": "qwen2_audio_encoder",
            **tower,
            "d_model": 32,
            "max_source_positions": FRAMES,
        },
        text_config={"model_type": "qwen2", **_TEXT},
        audio_token_index=SOUND,
    )
    processor = transformers.Qwen2AudioProcessor(
        feature_extractor=extractor(), tokenizer=tokenizer()
    )
    return _drawn(transformers.Qwen2AudioForConditionalGeneration, config), processor


def qwen2_5_omni():
    """Model of Qwen2.5-Omni, and a processor that makes of a sound and a text what its own does,
    which wants torchvision."""
    tower = {
        "num_mel_bins": 16,
        "encoder_layers": 2,
        "encoder_attention_heads": 4,
        "encoder_ffn_dim": 48,
        "d_model": 32,
    }
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2]}
    seen = {
        "depth": 1,
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_heads": 2,
        "out_hidden_size": 32,
    }
    others = {"image_token_index": 0, "video_token_index": 1, "vision_start_token_id": 2}
    config = transformers.Qwen2_5OmniThinkerConfig(
        audio_config={**tower, "n_window": 20, "output_dim": 32},
        text_config={**_TEXT, "rope_parameters": rope},
        vision_config={**seen, "fullatt_block_indexes": [0]},
        audio_token_index=SOUND,
        **others,
    )
    processor = transformers.Qwen2AudioProcessor(
        feature_extractor=extractor(), tokenizer=tokenizer()
    )
    return _drawn(transformers.Qwen2_5OmniThinkerForConditionalGeneration, config), processor


def own_processor_of_omni():
    """Qwen2.5-Omni's own processor; needs torchvision."""
    named = {f"{kind}_token": f"<|{kind.upper()}|>" for kind in ("image", "audio", "video")}
    named |= {
        f"{kind}_{side}_token": f"<|{kind}_{side}|>"
        for kind in ("vision", "audio")
        for side in ("bos", "eos")
    }
    return transformers.Qwen2_5OmniProcessor(
        image_processor=transformers.Qwen2VLImageProcessor(),
        video_processor=transformers.Qwen2VLVideoProcessor(),
        feature_extractor=extractor(),
        tokenizer=tokenizer(extra_special_tokens=named),
        chat_template=OMNI_CHAT,
    )


def granite_speech():
    """Model and processor of Granite-speech; its projector makes 3 positions of 15 frames."""
    pytest.importorskip("torchaudio", reason="Granite's feature extractor needs torchaudio")
    encoder = {
        "input_dim": 160,
        "num_layers": 2,
        "hidden_dim": 32,
        "num_heads": 4,
        "output_dim": 12,
    }
    config = transformers.GraniteSpeechConfig(
        encoder_config={**encoder, "context_size": 20, "max_pos_emb": 30},
        projector_config={"model_type": "blip_2_qformer", "encoder_hidden_size": 32, **_WIDTHS},
        text_config={"model_type": "granite", **_TEXT, "residual_multiplier": 0.5},
        audio_token_index=GRANITE_SOUND,
        has_lora_adapter=False,
    )
    processor = transformers.GraniteSpeechProcessor(
        transformers.GraniteSpeechFeatureExtractor(), tokenizer(), chat_template=GRANITE_CHAT
    )
    return _drawn(transformers.GraniteSpeechForConditionalGeneration, config), processor


def voxtral():
    """Model of Voxtral, and a processor that answers as Voxtral's does, whose tokenizer is of a
    library of its own."""
    tower = {
        "model_type": "voxtral_encoder",
        "num_mel_bins": 16,
        **_WIDTHS,
        "intermediate_size": 128,
    }
    config = transformers.VoxtralConfig(
        audio_config={**tower, "max_source_positions": FRAMES},
        text_config={"model_type": "llama", "head_dim": 8, **_TEXT},
        audio_token_id=SOUND,
    )
    return _drawn(transformers.VoxtralForConditionalGeneration, config), VoxtralStandIn()


class VoxtralStandIn:
    """What `VoxtralProcessor.apply_chat_template` takes and gives, with the tokenizer of this
    file."""

    audio_token = "<|AUDIO|>"

    def __init__(self):
        self.feature_extractor, self.tokenizer = extractor(), tokenizer()

    def apply_chat_template(self, conversation, *, processor_kwargs):
        import base64
        import io

        import soundfile

        sound, text = conversation[0]["content"]
        audio, rate = soundfile.read(io.BytesIO(base64.b64decode(sound["base64"])), dtype="float32")
        features = self.feature_extractor(audio, sampling_rate=rate, return_tensors="pt")[
            "input_features"
        ]
        written = (
            f"<|im_start|><|audio_bos|>{self.audio_token * (FRAMES // 4)}{text['text']}<|im_end|>"
        )
        return {**self.tokenizer(written, return_tensors="pt"), "input_features": features}


MODELS = {
    "qwen2-audio": qwen2_audio,
    "qwen2.5-omni": qwen2_5_omni,
    "voxtral": voxtral,
    "granite-speech": granite_speech,
}


def _drawn(kind, config):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = kind(config).eval().requires_grad_(False)
        for parameter in module.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 0.25)
    module.generation_config.eos_token_id = _TEXT["eos_token_id"]
    return module


def saved(name: str, folder: Path) -> Path:
    """A folder in hub format, with the model and its processor."""
    module, processor = MODELS[name]()
    module.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


def clip(text="le chat dort", seconds=1.5, **options) -> speechmix.Clip:
    """A clip of noise with its words, evenly spread."""
    words = text.split()
    step = seconds / len(words)
    times = [(word, round(step * i, 3), round(step * (i + 1), 3)) for i, word in enumerate(words)]
    audio = 0.1 * np.random.default_rng(0).standard_normal(round(16_000 * seconds)).astype(
        np.float32
    )
    return speechmix.Clip.from_array(audio, 16_000, text=text, words=times, **options)
