"""Between host and device: the same numbers on the other side, in few copies."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from speechmix.adapters.capture import device_copy as transfers
from speechmix.adapters.capture.device_copy import inputs_to_device, to_device, to_host
from tests.fake_device import FakeDevice


def test_results_of_several_types_come_back_in_order_one_copy_a_type():
    tensors = [torch.rand(2, 3), torch.rand(4, dtype=torch.double), torch.rand(0, 3), torch.rand(1)]
    with FakeDevice() as device:
        arrays = to_host([tensor.to("meta") for tensor in tensors])
    assert sum(device.asked.values()) == 2
    for array, tensor in zip(arrays, tensors, strict=True):
        assert array.dtype == tensor.numpy().dtype
        assert np.array_equal(array, tensor.numpy())
        assert array.flags.owndata or array.base.nbytes == array.nbytes


def test_large_results_go_by_themselves(monkeypatch):
    monkeypatch.setattr(transfers, "_MAX_COPY_BYTES", 16)
    tensors = [torch.rand(2), torch.rand(2), torch.rand(9), torch.rand(1)]
    with FakeDevice() as device:
        arrays = to_host([tensor.to("meta") for tensor in tensors])
    assert sum(device.asked.values()) == 3
    assert all(
        np.array_equal(array, tensor.numpy()) for array, tensor in zip(arrays, tensors, strict=True)
    )
    assert to_host([]) == []


def test_half_precision_comes_back_in_single():
    tensors = [
        torch.tensor([0.5, 2.0], dtype=dtype)
        for dtype in (torch.bfloat16, torch.float16, torch.float32)
    ]
    for array in [
        *to_host(tensors),
        *to_host(tensors[:1]),
        *to_host([torch.ones(2, dtype=torch.int8)]),
    ]:
        assert array.dtype in (np.float32, np.int8)
        assert array.tolist() in ([0.5, 2.0], [1, 1])


def test_only_floating_point_inputs_take_a_precision():
    inputs = {"input_features": torch.rand(1, 2), "decoder_input_ids": torch.tensor([[1, 2]])}
    moved = inputs_to_device(inputs, "cpu", torch.float64)
    assert {name: tensor.dtype for name, tensor in moved.items()} == {
        "input_features": torch.float64,
        "decoder_input_ids": torch.int64,
    }


def test_a_gpu_is_sent_pinned_memory_without_waiting(monkeypatch):
    calls = []
    to = torch.Tensor.to
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: calls.append("pinned") or tensor)
    monkeypatch.setattr(
        torch.Tensor,
        "to",
        lambda tensor, *args, **how: (
            calls.append((args, how)) or (tensor if "cuda" in args else to(tensor, *args, **how))
        ),
    )
    to_device(torch.ones(1), "cuda", torch.float64)
    assert calls == [((torch.float64,), {}), "pinned", (("cuda",), {"non_blocking": True})]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_there_and_back_on_a_gpu():
    tensors = [torch.rand(2, 3), torch.arange(4), torch.rand(5)]
    arrays = to_host([to_device(tensor, "cuda") for tensor in tensors])
    assert all(
        np.array_equal(array, tensor.numpy()) for array, tensor in zip(arrays, tensors, strict=True)
    )
