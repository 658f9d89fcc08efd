"""Inputs without content, of the shape that a clip of some seconds has.

In: a model and a length in seconds. Out: tensors of zeros, word spans, and the rows of one word,
for counting operations (`operation_count`).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import torch
from torch import Tensor

from ...adapters.generation.text_tokens import most_positions
from ...adapters.model import Model
from ...errors import InputError

WORDS_PER_SECOND = 2.5
TOKENS_PER_WORD = 1.5
_PREFIX_TOKENS = 4  # tokens that a decoder starts from


def make_blank_inputs(
    model: Model, seconds: float
) -> tuple[dict[str, Tensor], list[tuple[int, int]]]:
    """Make inputs of the shape that a clip (or sentence) of some seconds has, and its word spans.

    It has 2.5 words per second, evenly spread, and 1.5 tokens per word, as read speech and the
    tokenizers of large models have.

    Raises
    ------
    InputError
        If the model cannot hear or read as much at a time.
    """
    model.refuse_audio_tokens(
        f"{model.name}: the cost of an audio language model cannot be estimated, because its "
        "decoder reads audio, prompt and answer. Time a few clips instead"
    )
    word_count = max(2, round(WORDS_PER_SECOND * seconds))
    token_count = max(6, _PREFIX_TOKENS + round(TOKENS_PER_WORD * word_count))
    inputs, feature_rows = {}, model.family.feature_rows
    for name, example in model.family.tiny_inputs(model.config).items():
        if name == "input_features" and feature_rows is not None:
            inputs[name] = example.new_zeros(
                1,
                (round(seconds * model.sample_rate) - feature_rows[1]) // feature_rows[0],
                example.shape[2],
            )
            continue
        length = example.shape[-1] if name == "input_features" else token_count
        length = round(seconds * model.sample_rate) if name == "input_values" else length
        inputs[name] = example.new_zeros(*example.shape[:-1], length)
    if model.hears:
        grid = model.grid(round(seconds * model.sample_rate))
        if grid.is_fixed_window and seconds > grid.duration:
            raise InputError(
                f"{model.name} hears {grid.duration:g} s at a time, found seconds={seconds:g}"
            )
        position_count = min(grid.n_frames, grid.frames_between(0.0, seconds)[1])
    else:
        inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
        position_count, max_tokens = token_count, most_positions(model)
        if max_tokens is not None and token_count > max_tokens:
            raise InputError(
                f"{model.name} reads {max_tokens} tokens at a time; a text of {seconds:g} s has about "
                f"{token_count}: give fewer seconds"
            )
    word_count = min(word_count, position_count)
    word_ends = [round(position_count * index / word_count) for index in range(word_count + 1)]
    return inputs, list(itertools.pairwise(word_ends))


def middle_word_rows(
    model: Model, word_count: int, inputs: Mapping[str, Tensor]
) -> dict[str, list[int]]:
    """List the rows of a word in the middle of a clip; in a decoder behind an encoder, those of
    two tokens."""
    word = word_count // 2
    token = inputs["decoder_input_ids"].shape[1] // 2 if "decoder_input_ids" in inputs else 0
    input_stack = model.capabilities.input_stack
    return {name: [word] if name == input_stack else [token - 1, token] for name in model.stacks}
