"""A model computes in all digits of its numbers, whatever the caller allows; then all is as before."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from speechmix.adapters.capture.model_use import ExactWeightNorm
from speechmix.adapters.delta_engine.matrix_products import float32_precision
from tests.conftest import tiny

OPERATIONS = {
    "products": torch.backends.cuda.matmul,
    "convolutions": torch.backends.cudnn.conv,
    "products on the processor": torch.backends.mkldnn.matmul,
}


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
@pytest.mark.parametrize("allowed", ["tf32", "ieee"])
def test_what_the_caller_allows_is_his_again(operation, allowed):
    model = tiny("whisper-80")
    with float32_precision(operation, allowed):
        with model.in_use():
            assert operation.fp32_precision == "ieee"
        assert operation.fp32_precision == allowed


@pytest.mark.parametrize("dim", [0, 2])
@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
@pytest.mark.parametrize(
    "normed", [nn.utils.parametrizations.weight_norm, nn.utils.weight_norm], ids=["new", "old"]
)
def test_exact_weight_norm_is_weight_norm(normed, dim):
    convolution = normed(nn.Conv1d(4, 6, 3).double(), dim=dim).requires_grad_(False)
    sound = torch.randn(1, 4, 9, dtype=torch.float64)
    expected = convolution(sound)
    with ExactWeightNorm():
        found = convolution(sound)
    torch.testing.assert_close(found, expected, rtol=1e-14, atol=1e-14)
