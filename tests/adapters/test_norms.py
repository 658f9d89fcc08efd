"""A norm taken apart at given states: whole again, its change, and what is no norm."""

from __future__ import annotations

import pytest
import torch
import transformers
from torch import nn

from speechmix.adapters.binding.bound_layers import Norm, norm_gain
from speechmix.errors import ModelError


def with_weights(norm: nn.Module) -> nn.Module:
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in norm.parameters():
            weight += 0.3 * torch.randn(weight.shape, generator=generator)
    return norm.double().requires_grad_(False)


class RootMeanSquare(nn.Module):
    """Calls what it adds by a name of its own."""

    def __init__(self, width: int):
        super().__init__()
        self.weight, self.small_number = nn.Parameter(torch.ones(width)), 1e-3

    def forward(self, x):
        return self.weight * x * (x.square().mean(-1, keepdim=True) + self.small_number).rsqrt()


NORMS = {
    "layer norm": (lambda: nn.LayerNorm(12), 1e-13),
    "layer norm without weights": (lambda: nn.LayerNorm(12, elementwise_affine=False), 1e-13),
    "layer norm without bias": (lambda: nn.LayerNorm(12, bias=False), 1e-13),
    "torch RMS norm": (lambda: nn.RMSNorm(12, eps=1e-5), 1e-13),
    # These compute in float32.
    "Llama": (lambda: transformers.models.llama.modeling_llama.LlamaRMSNorm(12), 1e-6),
    "Gemma, weight - 1": (lambda: transformers.models.gemma.modeling_gemma.GemmaRMSNorm(12), 1e-6),
}


@pytest.fixture(params=NORMS)
def norm(request):
    make, tolerance = NORMS[request.param]
    return with_weights(make()), tolerance


@pytest.fixture
def states():
    return (
        3 * torch.randn(5, 12, dtype=torch.double, generator=torch.Generator().manual_seed(1)) + 1
    )


def test_parts_make_the_whole(norm, states):
    module, tolerance = norm
    taken = Norm(module, states)
    torch.testing.assert_close(
        taken.scale[:, None] * taken.direction(states) + taken.bias,
        module(states),
        rtol=0,
        atol=tolerance,
    )
    torch.testing.assert_close(taken.scale, 1 / taken.deviation[:, 0], rtol=tolerance, atol=0)


def test_changes_are_differences(norm, states):
    module, tolerance = norm
    dx = torch.randn(4, 5, 12, dtype=torch.double, generator=torch.Generator().manual_seed(2))
    change = Norm(module, states).change(dx)
    torch.testing.assert_close(
        change, module(states + dx) - module(states), rtol=0, atol=10 * tolerance
    )


def test_direction_is_linear(norm, states):
    taken = Norm(norm[0], states)
    vectors = torch.randn(3, 12, dtype=torch.double, generator=torch.Generator().manual_seed(3))
    torch.testing.assert_close(
        taken.direction(2 * vectors + states[:3]),
        2 * taken.direction(vectors) + taken.direction(states[:3]),
    )


def test_scale_does_not_ask_what_an_rms_norm_calls_its_epsilon(states):
    module = with_weights(RootMeanSquare(12))
    taken = Norm(module, 0.01 * states)
    torch.testing.assert_close(
        taken.scale[:, None] * taken.direction(0.01 * states), module(0.01 * states)
    )


@pytest.mark.parametrize("module", [nn.Tanh(), nn.Linear(12, 12).double()])
def test_what_is_no_norm_is_refused(module, states):
    with pytest.raises(
        ModelError, match=f"{type(module).__name__} is neither a layer norm nor an RMS norm"
    ):
        _ = Norm(module.requires_grad_(False), states).scale


def test_gain_has_the_states_precision():
    assert (
        norm_gain(
            nn.LayerNorm(3, elementwise_affine=False), torch.zeros(2, 3, dtype=torch.double)
        ).dtype
        == torch.double
    )
