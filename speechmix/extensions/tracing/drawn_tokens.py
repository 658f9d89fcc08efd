"""Draw the tokens of a model's inputs: of a text, and of a prompt around a sound."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ...adapters.transformers_types import Config, PretrainedModule
from .small_models import iterate_configs


def count_audio_positions(base: PretrainedModule, inputs: Mapping[str, Tensor]) -> int:
    """Count the positions that an audio language model's decoder has for a sound."""
    with torch.no_grad():
        output: Any = base.get_audio_features(**inputs)
    mask = getattr(output, "attention_mask", None)
    if isinstance(mask, Tensor):  # the decoder gets the positions that are no padding
        return int(mask.sum())
    states = getattr(output, "pooler_output", None)
    states = output if states is None else states
    tensors = [states] if isinstance(states, Tensor) else [x for x in states if x is not None]
    return sum(math.prod(x.shape[:-1]) for x in tensors)


def draw_prompt(base: PretrainedModule, inputs: Mapping[str, Tensor]) -> Tensor:
    """Draw two tokens, the sound, two tokens; one token for each position, if there is no audio token."""
    position_count = count_audio_positions(base, inputs)
    token_id = getattr(base.config, "audio_token_id", None)
    if token_id is None:
        return draw_ids(base.config, position_count)
    ids = draw_ids(base.config, position_count + 4)
    ids[ids == token_id] = token_id - 1 if token_id else 1
    ids[:, 2 : 2 + position_count] = token_id
    return ids


def draw_ids(config: Config, length: int) -> Tensor:
    """Draw tokens [1, length], none of them special."""
    parts = list(iterate_configs(config))
    sizes = [getattr(part, "vocab_size", None) or 32 for part in parts]
    text_config = getattr(config, "text_config", None) or getattr(config, "decoder", None) or config
    vocabulary = getattr(text_config, "vocab_size", None) or min(sizes)
    special = {
        value
        for part in parts
        for name in dir(part)
        if name.endswith("token_id") and isinstance(value := getattr(part, name, None), int)
    }
    usual = [token_id for token_id in range(int(vocabulary)) if token_id not in special][:997]
    generator = torch.Generator().manual_seed(0)
    return torch.tensor(usual)[torch.randint(len(usual), (1, length), generator=generator)]
