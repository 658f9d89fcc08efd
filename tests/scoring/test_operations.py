"""Operations are those that are counted while a real model of the same shape answers the same
question."""

from __future__ import annotations

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import speechmix
from speechmix.extensions.estimate.operation_count import (
    build_meta_model,
    count_operations,
    make_blank_inputs,
    middle_word_rows,
)
from tests.conftest import ALL_FAMILIES, tiny


class _NoModules:
    """Stands in for what tells torch's counter which module runs: it hooks gradients, and measures
    take some."""

    parents = frozenset({"Global"})

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None


def counted(work) -> int:
    """Operations of a call, attention among them: torch counts it only where it is made of
    products."""
    counter = FlopCounterMode(display=False)
    counter.mod_tracker = _NoModules()
    with counter, sdpa_kernel(SDPBackend.MATH):
        work()
    return counter.get_total_flops()


_FEW_ROWS = (
    "whisper-80",
    "wav2vec2-post",
    "gpt2",
)  # the others count rows and these measures alike


@pytest.mark.every_family
@pytest.mark.parametrize(
    ("name", "measures", "rows"),
    [
        pytest.param(
            name,
            measures,
            rows,
            marks=[pytest.mark.long] * (rows == "target" and name not in _FEW_ROWS),
            id=f"{name}-{measures[0]}-{rows}",
        )
        for name in ALL_FAMILIES
        for measures, rows in (
            (["value_zeroing"], None),
            (["attention", "attention_norm"], "target"),
        )
    ],
)
def test_a_forward_pass_and_maps_take_what_they_take_in_a_real_model(name, measures, rows):
    model = tiny(name, torch.float32)
    operations = count_operations(
        build_meta_model(model), seconds=1.0, measures=measures, targets=rows
    )
    inputs, spans = make_blank_inputs(model, 1.0)
    inputs = {
        key: x + 0.01 * torch.randn(x.shape) if x.is_floating_point() else x
        for key, x in inputs.items()
    }
    if "input_ids" in inputs:  # not the padding token, whose states are zero in some families
        inputs["input_ids"] = inputs["input_ids"] + 1
    targets = None if rows is None else middle_word_rows(model, len(spans), inputs)
    with torch.no_grad():
        plain = counted(lambda: model.family.run(model.base, inputs, tuple(model.stacks)))
    mixed = counted(
        lambda: speechmix.mix(model, inputs, measures=measures, spans=spans, targets=targets)
    )
    assert operations.forward == plain
    assert operations.total == mixed
    assert set(operations.measures) == {*measures, "mixing_strength"}
