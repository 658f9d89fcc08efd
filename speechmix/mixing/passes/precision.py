"""In which precision a model runs and measures compute."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch

from ...adapters.capture.forward_pass import use_attention
from ...adapters.capture.module_access import resolve_dtype
from ...adapters.delta_engine.matrix_products import TF32, supported_product_dtype
from ...adapters.model import Model
from ...errors import InputError
from .request import MixRequest


class Precision(NamedTuple):
    """Types of numbers: of the states, and of the delta engine's products."""

    states: torch.dtype
    products: torch.dtype | str

    @classmethod
    def of(cls, model: Model, request: MixRequest) -> Precision:
        """Float32 or better by default: scores are small differences of states, which half
        precision rounds away."""
        states, products = model.state_dtype, request.product_dtype
        if request.dtype is not None:
            states = resolve_dtype(request.dtype)
            if states.itemsize < 4:
                warnings.warn(
                    f"scores are computed on {states} states: expect relative errors of tens of "
                    "percent, and small scores "
                    "to be noise; product_dtype='bfloat16' is as fast and keeps errors below 1 %",
                    stacklevel=3,
                )
        if products == TF32 and model.device.type != "cuda":
            raise InputError(
                f"product_dtype='tf32' is for CUDA devices; {model.name} is on {model.device}"
            )
        if products is None or products == TF32:
            return cls(states, products or states)
        return cls(states, supported_product_dtype(resolve_dtype(products), model.device))


@contextmanager
def inference_context(model: Model, precision: Precision) -> Iterator[None]:
    """Run a model unchanged while the block lasts: its own weights in this precision, no gradients,
    no random number taken from the caller."""
    with (
        torch.inference_mode(False),  # a caller's, in which nothing could be differentiated
        model.in_use(precision.states),
        torch.no_grad(),
        use_attention(model.module, model.readable_attention),
    ):
        yield
