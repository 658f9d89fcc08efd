"""What the host waits for while maps are made: no more in deep models or for many measures, shown
on a device that is none."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import speechmix
from speechmix.adapters.model import Model
from speechmix.errors import InputError
from speechmix.mixing.maps.map_set import Maps
from speechmix.mixing.measures.measure import check_defined
from speechmix.mixing.measures.measure_functions import list_measures
from speechmix.mixing.passes.forward_pass import compute_maps
from speechmix.mixing.passes.request import MixRequest
from tests.conftest import build, inputs_of
from tests.fake_device import FakeDevice

# The baseline draws from a seed that values of each block are part of; DeepLift's rule is captum's.
_OF_BLOCKS = [
    name
    for name, measure in list_measures().items()
    if measure.scope == "layer" and name != "random"
]
SHAPES = {
    "whisper-80": ("encoder_layers", "decoder_layers"),
    "wav2vec2-stable": ("num_hidden_layers",),
    "bert": ("num_hidden_layers",),
    "gpt2": ("n_layer",),
}


def counted(family: str, layers: int, monkeypatch, **options) -> tuple[FakeDevice, Maps]:
    """`mix` on the fake device."""
    monkeypatch.setattr(Model, "fingerprint", "0")
    model = speechmix.load(
        build(family, **dict.fromkeys(SHAPES[family], layers)).double(), device="cpu"
    )
    inputs = inputs_of(model)
    with sdpa_kernel(SDPBackend.MATH), FakeDevice() as device:
        device.put(model.module)
        maps = speechmix.mix(model, inputs, **options)
    return device, maps


def asked(family: str, layers: int, monkeypatch, **options) -> int:
    return sum(counted(family, layers, monkeypatch, **options)[0].asked.values())


def measures_of(family: str) -> list[str]:
    """Measures of blocks that are defined in all stacks of a family."""
    model = speechmix.load(build(family), device="cpu", check=False)
    defined = []
    for name in _OF_BLOCKS:
        try:
            for stack in model.stacks.values():
                check_defined(list_measures()[name], stack)
        except InputError:
            continue
        defined.append(name)
    return defined


@pytest.mark.parametrize(
    "family",
    [pytest.param(family, marks=[pytest.mark.long] * (family != "bert")) for family in SHAPES],
)
def test_the_host_waits_as_often_for_many_layers_and_measures_as_for_few(family, monkeypatch):
    names = measures_of(family)
    assert {"value_zeroing", "attention", "attention_norm", "alti", "hta"} <= set(names)
    options = {"targets": [0, 2]}
    one, maps = counted(family, 2, monkeypatch, measures="value_zeroing", **options)
    shallow, more_maps = counted(family, 2, monkeypatch, measures=names, **options)
    deep, _ = counted(family, 3, monkeypatch, measures=names, **options)
    assert len(more_maps) == len(names) * len(maps)
    assert deep.operations > shallow.operations > one.operations
    assert deep.asked == shallow.asked == one.asked
    assert deep.sent == shallow.sent
    assert (
        sum(deep.asked.values()) <= 3
    )  # the scores; of prepared inputs which positions are padding


@pytest.mark.parametrize("family", [pytest.param("whisper-80", marks=pytest.mark.long), "bert"])
def test_scores_made_there_are_those_made_here(family, monkeypatch):
    names = measures_of(family)
    _, there = counted(family, 2, monkeypatch, measures=names, targets=[0, 2])
    model = speechmix.load(build(family, **dict.fromkeys(SHAPES[family], 2)).double(), device="cpu")
    here = speechmix.mix(model, inputs_of(model), measures=names, targets=[0, 2])
    for key, expected in here.items():
        np.testing.assert_allclose(there[key].scores, expected.scores, rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize(
    "options",
    [
        {"measures": "value_zeroing:engine=replay"},
        {"pooling": "max", "spans": [(0, 3), (3, 4), (4, 8)]},
    ],
)
def test_so_it_is_for_other_engines_and_poolings(options, monkeypatch):
    few, many = (counted("bert", layers, monkeypatch, **options)[0] for layers in (2, 3))
    assert many.asked == few.asked
    assert many.sent == few.sent


@pytest.mark.parametrize("family", [pytest.param("whisper-80", marks=pytest.mark.long), "gpt2"])
def test_clips_of_a_pass_are_given_to_the_device_together(family, monkeypatch):
    monkeypatch.setattr(Model, "fingerprint", "0")
    request = MixRequest.of({"measures": "value_zeroing"})

    def device_of(layers: int, clip_count: int) -> FakeDevice:
        module = build(family, **dict.fromkeys(SHAPES[family], layers)).double()
        model = speechmix.load(module, device="cpu")
        items = [inputs_of(model, seed) for seed in range(clip_count)]
        alone = [speechmix.mix(model, item, measures="value_zeroing") for item in items]
        with sdpa_kernel(SDPBackend.MATH), FakeDevice() as device:
            device.put(model.module)
            together = compute_maps(model, items, itertools.repeat(None), request, torch.float64)
        for found, expected in zip(together, alone, strict=True):
            for key, one in expected.items():
                np.testing.assert_allclose(found[key].scores, one.scores, rtol=1e-8, atol=1e-12)
        return device

    shallow, deep, single = device_of(2, 3), device_of(3, 3), device_of(2, 1)
    assert deep.asked == shallow.asked
    assert deep.sent == shallow.sent
    assert shallow.launches < 1.6 * single.launches


def test_gradients_of_many_layers_leave_together(monkeypatch):
    options = {
        "measures": ["gradient_input", "integrated_gradients:steps=4"],
        "objective": (3, 5),
    }
    few, many = (asked("bert", layers, monkeypatch, **options) for layers in (2, 3))
    assert many == few


def test_gradients_of_half_precision_states_are_stored_as_other_scores_are():
    model = speechmix.load(build("bert"), dtype="bfloat16", device="cpu")
    with pytest.warns(UserWarning, match="bfloat16 states"):
        maps = speechmix.mix(
            model,
            inputs_of(model),
            dtype="bfloat16",
            measures=["attention", "gradient_input"],
            objective=(3, 5),
        )
    assert {map_of.scores.dtype.name for map_of in maps.values()} == {"float32"}


def test_the_fake_device_sees_what_makes_a_host_wait():
    with FakeDevice() as device:
        x = torch.arange(4.0).to("meta")
        assert not device.asked
        assert x.sum().item() == 6.0
        assert x[x > 1].to("cpu").tolist() == [2.0, 3.0]
        x[torch.tensor([0, 1]).to("meta")] = torch.zeros(2).to("meta")
        assert x.cpu().tolist() == [0.0, 0.0, 2.0, 3.0]
    assert sum(device.asked.values()) == 4
    assert device.sent == {"_to_copy": 3}
