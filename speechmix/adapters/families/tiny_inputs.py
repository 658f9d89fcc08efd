"""The smallest inputs of a model, for its self-check: random numbers, the same each time."""

from __future__ import annotations

import torch
from torch import Tensor

from ..transformers_types import Config


def random_features(*shape: int) -> Tensor:
    """Draw features of a shape from a normal distribution."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def tiny_ids(config: Config) -> dict[str, Tensor]:
    """Draw six tokens, the smallest input of a text model."""
    generator = torch.Generator().manual_seed(0)
    return {"input_ids": torch.randint(config.vocab_size, (1, 6), generator=generator)}
