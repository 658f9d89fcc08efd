"""Whisper, every size: an encoder over a fixed window, a causal decoder, and cross-attention
between them.

All layers are pre-norm with a final norm, as mBART's. The encoder always sees its whole window (30 s, 80 or 128
mel bins) and has no mask, so padding takes part in mixing. In the decoder, input position p holds
token p and predicts token p + 1.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...errors import InputError
from ...inputs.audio.frame_grid import FrameGrid
from ...inputs.clips.clip import Clip
from ..capture.model_use import extract_features
from ..generation.decoder_text import check_prefix
from ..generation.greedy_generation import add_decoder_tokens, generate_transcript
from ..generation.model_inputs import PreparedInputs
from ..transformers_types import Config, Inputs, ModelOutput, PretrainedModule
from .family import Family
from .seq2seq import MBART, count_heads
from .specs import class_of_head

if TYPE_CHECKING:
    from ..model import Model


def _frame_grid(config: Config, n_samples: int) -> FrameGrid:
    return FrameGrid.fixed_window(config.max_source_positions)


def _prepare_clip(model: Model, clip: Clip, stacks: tuple[str, ...]) -> PreparedInputs:
    audio = clip.audio(model.sample_rate)
    window = _frame_grid(model.config, 0).duration
    if len(audio) > window * model.sample_rate:
        raise InputError(
            f"{clip.name}: {len(audio) / model.sample_rate:.2f} s of audio, but {model.name} hears "
            f"{window:g} s at a time. "
            f"Cut it at a pause: clip.cut(start, end) of up to {window:g} s (--cut 0:{window:g} on "
            "the command line) "
            "keeps the words that lie between, where their times are known"
        )
    features = extract_features(model, clip)
    prepared_inputs = PreparedInputs(
        {"input_features": features.tensors["input_features"]}, audio_hash=features.audio_hash
    )
    return add_decoder_tokens(model, clip, stacks, prepared_inputs)


def _run_stacks(base: PretrainedModule, inputs: Inputs, stacks: tuple[str, ...]) -> ModelOutput:
    if not set(stacks) & {"decoder", "cross"}:
        return base.encoder(inputs["input_features"])
    if "decoder_input_ids" not in inputs:
        raise InputError(
            "decoder and cross stacks need decoder_input_ids beside input_features; "
            "give them, or ask for stacks=['encoder']"
        )
    return base(**inputs, use_cache=False)


def _tiny_inputs(config: Config) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    shape = (1, config.num_mel_bins, 2 * config.max_source_positions)
    features = torch.randn(*shape, generator=generator)
    ids = torch.randint(
        config.vocab_size, (1, min(6, config.max_target_positions)), generator=generator
    )
    return {"input_features": features, "decoder_input_ids": ids}


_SPEECH_RECOGNISER = "WhisperForConditionalGeneration"
_LABEL_HEAD = {"ForAudioClassification": "WhisperForAudioClassification"}

FAMILIES = (
    Family(
        "whisper",
        ("whisper",),
        lambda config: MBART,
        _frame_grid,
        _prepare_clip,
        _run_stacks,
        _tiny_inputs,
        partial(class_of_head, class_by_ending=_LABEL_HEAD, default=_SPEECH_RECOGNISER),
        count_heads,
        can_batch=lambda config: True,
        generate=generate_transcript,
        check_prefix=check_prefix,
    ),
)
