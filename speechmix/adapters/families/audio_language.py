"""Qwen2-Audio, Qwen2.5-Omni, Voxtral, Granite-speech: an audio encoder, and a language model that
reads sound among tokens.

The encoder's frames pass a projector and take the place of audio tokens in the decoder's input
(model_inputs.py); there is no cross-attention. Encoders of Qwen2-Audio, Qwen2.5-Omni and Voxtral are
Whisper's, that of Granite-speech is a Conformer; the decoders are Qwen2, Llama and Granite.
Qwen2-Audio's and Qwen2.5-Omni's encoders average pairs of frames in front of their norm: frames of
the last layer are compared behind the norm all the same, each by itself. Qwen2.5-Omni is its
thinker: the encoder hears chunks of 2 s by themselves, all in a row (layer_run.py), and sound of any
length.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...errors import InputError
from ...inputs.audio.frame_grid import FrameGrid
from ..generation.audio_prompt import prepare_with_prompt, write_chat_inputs
from ..generation.greedy_generation import generate_answer
from ..generation.model_inputs import run_with_audio
from ..transformers_types import Config, PretrainedModule, Processor
from .conformers import GRANITE, granite_grid
from .family import Family
from .seq2seq import MBART
from .specs import StackSpec
from .text_decoders import LLAMA


def _make_granite_decoder(config: Config) -> StackSpec:
    """Outputs of blocks are multiplied before they are added, so that layers are replayed."""
    has_unit_multiplier = config.text_config.residual_multiplier == 1
    return LLAMA.with_root(
        "language_model", **({} if has_unit_multiplier else {"feed_forwards": ()})
    )


def _make_stacks(
    encoder: StackSpec, decoder_for: Callable[[Config], StackSpec]
) -> Callable[[Config], tuple[StackSpec, ...]]:
    return lambda config: (encoder, decoder_for(config))


def _run_omni(base: PretrainedModule, inputs: Mapping[str, Any], stacks: tuple[str, ...]) -> Any:
    if "feature_attention_mask" not in inputs:
        raise InputError(
            "Qwen2.5-Omni needs feature_attention_mask, which says how long the sound is, beside "
            "input_features and input_ids: "
            "give all, as its processor makes them"
        )
    return run_with_audio(base, inputs, stacks)


_TOWER_STACKS = _make_stacks(
    MBART[0].with_root("audio_tower"), lambda config: LLAMA.with_root("language_model")
)


def _count_heads(config: Config, stack: str) -> int:
    encoder = getattr(config, "audio_config", None) or config.encoder_config
    result: int = (encoder if stack == "encoder" else config.text_config).num_attention_heads
    return result


def _qwen2_grid(config: Config, n_samples: int) -> FrameGrid:
    """Mel frames every 10 ms, halved; of the window of 30 s the encoder's mask leaves the clip."""
    window, mel_frame_count = (
        FrameGrid.fixed_window(config.audio_config.max_source_positions),
        -(-n_samples // 160),
    )
    n_frames = (mel_frame_count - 1) // 2 + 1
    if n_frames > window.n_frames:
        return window
    return replace(window, n_frames=n_frames, duration=n_samples / 16_000, is_fixed_window=False)


def _omni_grid(config: Config, n_samples: int) -> FrameGrid:
    """As Qwen2-Audio's without a window: positions begin again in each chunk, so that sound is as
    long as it is."""
    n_frames = (-(-n_samples // 160) - 1) // 2 + 1
    return replace(
        FrameGrid.fixed_window(max(n_frames, 1)), duration=n_samples / 16_000, is_fixed_window=False
    )


def _voxtral_grid(config: Config, n_samples: int) -> FrameGrid:
    return FrameGrid.fixed_window(config.audio_config.max_source_positions)


def _qwen2_step(config: Config) -> tuple[int, int]:
    return 2, 1


def _voxtral_step(config: Config) -> tuple[int, int]:
    return config.audio_config.intermediate_size // config.audio_config.hidden_size, 1


def _granite_step(config: Config) -> tuple[int, int]:
    return config.window_size, config.window_size // config.downsample_rate


def _voxtral_chat_inputs(
    processor: Processor, audio: np.ndarray, text: str
) -> Mapping[str, torch.Tensor]:
    """Its tokenizer writes the conversation, and takes the sound in it as the bytes of a file."""
    import soundfile

    file = io.BytesIO()
    soundfile.write(
        file, audio, processor.feature_extractor.sampling_rate, format="WAV", subtype="FLOAT"
    )
    audio_part = {"type": "audio", "base64": base64.b64encode(file.getvalue()).decode("ascii")}
    conversation = [{"role": "user", "content": [audio_part, {"type": "text", "text": text}]}]
    result: Mapping[str, torch.Tensor] = processor.apply_chat_template(
        conversation, processor_kwargs={"return_tensors": "pt"}
    )
    return result


def _omni_chat_inputs(
    processor: Processor, audio: np.ndarray, text: str
) -> Mapping[str, torch.Tensor]:
    """Without the padding to a window of 300 s, which the model leaves out: many runs of an
    intervention would copy it."""
    chat_inputs = write_chat_inputs(processor, audio, text)
    length = int(chat_inputs["feature_attention_mask"].sum())
    padded_names = ("input_features", "feature_attention_mask")
    return {
        name: tensor[..., :length] if name in padded_names else tensor
        for name, tensor in chat_inputs.items()
    }


def _make_tiny_inputs(
    projector_step: Callable[[Config], tuple[int, int]],
    features_shape: Callable[[Config], tuple[int, ...]],
    frames: int,
) -> Callable[[Config], dict[str, Tensor]]:
    """A whole window of sound, with audio tokens for as many frames as the self-check leaves of
    it."""

    def tiny_inputs(config: Config) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(0)
        window_frames, window_positions = projector_step(config)
        audio_token_count, audio_token_id = (
            -(-frames // window_frames) * window_positions,
            config.audio_token_id,
        )
        ids = torch.randint(
            config.text_config.vocab_size - 1, (1, audio_token_count + 4), generator=generator
        )
        ids[ids >= audio_token_id] += 1  # any token but that of sound
        ids[:, 2 : 2 + audio_token_count] = audio_token_id
        return {
            "input_features": torch.randn(*features_shape(config), generator=generator),
            "input_ids": ids,
        }

    return tiny_inputs


def _tower_features(config: Config) -> tuple[int, ...]:
    return 1, config.audio_config.num_mel_bins, 2 * config.audio_config.max_source_positions


def _add_masks(
    tiny_inputs: Callable[[Config], dict[str, Tensor]],
) -> Callable[[Config], dict[str, Tensor]]:
    """With the mask of a sound that fills the window."""

    def masked_inputs(config: Config) -> dict[str, Tensor]:
        inputs = tiny_inputs(config)
        inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
        return inputs | {
            "feature_attention_mask": torch.ones(
                1, inputs["input_features"].shape[2], dtype=torch.long
            )
        }

    return masked_inputs


def _omni_frames(config: Config) -> int:
    """A whole chunk and a part of another, in pairs."""
    return 2 * (int(config.audio_config.n_window) // 2 + 2)


def _omni_features(config: Config) -> tuple[int, ...]:
    return 1, config.audio_config.num_mel_bins, 2 * _omni_frames(config)


FAMILIES = (
    Family(
        "qwen2-audio",
        ("qwen2_audio",),
        stacks=_TOWER_STACKS,
        grid=_qwen2_grid,
        prepare=prepare_with_prompt,
        generate=generate_answer,
        run=run_with_audio,
        tiny_inputs=_add_masks(_make_tiny_inputs(_qwen2_step, _tower_features, 8)),
        auto_class=lambda config: "Qwen2AudioForConditionalGeneration",
        heads=_count_heads,
        projector_step=_qwen2_step,
    ),
    Family(
        "qwen2.5-omni",
        ("qwen2_5_omni_thinker",),
        stacks=_make_stacks(
            MBART[0].with_root("audio_tower", final_norm="audio_tower.ln_post"),
            lambda config: LLAMA.with_root("language_model"),
        ),
        grid=_omni_grid,
        prepare=prepare_with_prompt,
        generate=generate_answer,
        run=_run_omni,
        tiny_inputs=lambda config: _add_masks(
            _make_tiny_inputs(_qwen2_step, _omni_features, _omni_frames(config))
        )(config),
        auto_class=lambda config: "Qwen2_5OmniThinkerForConditionalGeneration",
        heads=_count_heads,
        projector_step=_qwen2_step,
        build_chat_inputs=_omni_chat_inputs,
    ),
    Family(
        "voxtral",
        ("voxtral",),
        stacks=_TOWER_STACKS,
        grid=_voxtral_grid,
        prepare=prepare_with_prompt,
        generate=generate_answer,
        run=run_with_audio,
        tiny_inputs=_make_tiny_inputs(_voxtral_step, _tower_features, 8),
        auto_class=lambda config: "VoxtralForConditionalGeneration",
        heads=_count_heads,
        projector_step=_voxtral_step,
        build_chat_inputs=_voxtral_chat_inputs,
    ),
    Family(
        "granite-speech",
        ("granite_speech",),
        stacks=_make_stacks(GRANITE.with_root("encoder"), _make_granite_decoder),
        grid=granite_grid,
        prepare=prepare_with_prompt,
        generate=generate_answer,
        run=run_with_audio,
        tiny_inputs=_make_tiny_inputs(
            _granite_step, lambda config: (1, 9, config.encoder_config.input_dim), 8
        ),
        auto_class=lambda config: "GraniteSpeechForConditionalGeneration",
        heads=_count_heads,
        projector_step=_granite_step,
        feature_rows=(320, -160),
    ),
)
