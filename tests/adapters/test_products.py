"""Products in a type that the processor only emulates are done in float32, with one warning."""

from __future__ import annotations

import warnings

import pytest
import torch

import speechmix
from speechmix.adapters.delta_engine import matrix_products as products
from tests.conftest import inputs_of, tiny

CPU = torch.device("cpu")


@pytest.fixture
def timed(monkeypatch):
    """Seconds of a product by type, and which types were timed."""
    seconds = {torch.float32: 1.0, torch.bfloat16: 0.4, torch.float16: 60.0}
    calls = []
    monkeypatch.setattr(
        products, "_time_product", lambda dtype: calls.append(dtype) or seconds[dtype]
    )
    products.is_emulated.cache_clear()
    yield seconds, calls
    products.is_emulated.cache_clear()


def test_a_type_with_instructions_of_its_own_is_used(timed):
    assert products.resolve_product_dtype("bfloat16", CPU) == torch.bfloat16
    assert products.resolve_product_dtype("float64", CPU) == torch.float64


def test_an_emulated_type_gives_way_to_float32_with_one_warning(timed):
    seconds, calls = timed
    seconds[torch.bfloat16] = 57.0
    with pytest.warns(
        UserWarning, match="57 times as slowly in bfloat16 as in float32, so float32 is used"
    ):
        assert products.resolve_product_dtype("bfloat16", CPU) == torch.float32
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert products.resolve_product_dtype("bfloat16", CPU) == torch.float32
    assert len(calls) == 2  # timed once per process
    assert products.resolve_product_dtype("bfloat16", torch.device("cuda")) == torch.bfloat16


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("seconds", "used"), [(0.4, "bfloat16"), (57.0, "float32")])
def test_the_provenance_says_what_was_used(timed, seconds, used):
    timed[0][torch.bfloat16] = seconds
    model = tiny("gpt2", dtype=torch.float32)
    [found] = speechmix.mix(
        model, inputs_of(model), measures="value_zeroing:product_dtype=bfloat16"
    ).values()
    assert found.provenance["product_dtype"] == used


def test_a_small_product_is_timed():
    assert 0 < products._time_product(torch.float32) < 10
