"""In which precision a model runs and measures compute."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ...adapters.capture.forward_pass import use_attention
from ...adapters.capture.module_access import resolve_dtype
from ...adapters.model import Model
from .request import MixRequest


def resolve_state_dtype(model: Model, request: MixRequest) -> torch.dtype:
    """Precision of the states: float32 or better by default, because scores are small differences
    of states, which half precision rounds away."""
    if request.dtype is None:
        return model.state_dtype
    dtype = resolve_dtype(request.dtype)
    if dtype.itemsize < 4:
        warnings.warn(
            f"scores are computed on {dtype} states: expect relative errors of tens of percent, and "
            "small scores to be noise; measures='value_zeroing:product_dtype=bfloat16' is as fast "
            "and keeps errors below 1 %",
            stacklevel=4,
        )
    return dtype


@contextmanager
def inference_context(model: Model, dtype: torch.dtype) -> Iterator[None]:
    """Run a model unchanged while the block lasts: its own weights in this precision, no gradients,
    no random number taken from the caller."""
    with (
        torch.inference_mode(False),  # a caller's, in which nothing could be differentiated
        model.in_use(dtype),
        torch.no_grad(),
        use_attention(model.module, model.readable_attention),
    ):
        yield
