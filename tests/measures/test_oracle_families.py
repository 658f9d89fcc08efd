"""The further families against the slow oracle: both engines, both distances, heads one by one,
attention, the residual sum."""

from __future__ import annotations

import numpy as np
import pytest

import speechmix
from speechmix.errors import ModelError
from tests import oracle_by_path as oracle
from tests.models import shared_models
from tests.models.more_families import MORE_FAMILIES, built

SPANS = [
    [(0, 1)],
    [(1, 4)],
    [(12, 14), (5, 9)],
    [(9, 11)],
    [(60, 95)],
    [(203, 211)],
]  # the third is in pieces


@pytest.fixture(params=MORE_FAMILIES)
def name(request):
    return request.param


def loaded(name):
    return shared_models.shared(("more", name), lambda: speechmix.load(built(name)))


def close(found, expected, tolerance):
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= tolerance * np.abs(expected).max()


def fed(entry):
    """The model's inputs by the names that `mix` takes."""
    names = {"hidden_states": "input_features"}
    return {names.get(name, name): tensor for name, tensor in entry.inputs(entry.length).items()}


def sides(entry, stack):
    """Spans and, of a stack, rows and columns as lists of positions."""
    spans = [
        [(start, min(stop, entry.length)) for start, stop in span if start < entry.length]
        for span in SPANS
    ]
    spans = [span for span in spans if span]
    words = [[place for start, stop in span for place in range(start, stop)] for span in spans]
    tokens = [[place] for place in range(entry.tokens)]
    alone = "cross" not in entry.stacks
    return (
        spans,
        (words if alone or stack == "encoder" else tokens),
        words if alone or stack != "decoder" else tokens,
    )


def lists_of(entry, found):
    """Rows and columns of a stack as lists of positions; where sound is among tokens, those that
    its map names."""
    if entry.heard and found.stack == "decoder":
        return [[list(span.positions) for span in side] for side in (found.targets, found.sources)]
    return sides(entry, found.stack)[1:]


@pytest.mark.parametrize(
    "change",
    [
        {"distance": "cosine"},
        pytest.param({"distance": "euclidean"}, marks=pytest.mark.long),
        pytest.param({"head": 3}, marks=pytest.mark.every_family),
    ],
    ids=str,
)
def test_value_zeroing_is_rerunning_the_layer_with_zeroed_values(name, change):
    entry, model = MORE_FAMILIES[name], loaded(name)
    if "head" in change and not entry.each_head:
        pytest.skip(
            "heads share value vectors, so no hook on the projection zeroes those of one head"
        )
    heads, distance = "each" if "head" in change else "mean", change.get("distance", "cosine")
    expected = {}  # slow, and the same for both engines
    for engine in ("delta", "replay") if change == {"distance": "cosine"} else ("delta",):
        measure = f"value_zeroing:distance={distance},engine={engine}"
        maps = speechmix.mix(
            model, fed(entry), measures=measure, spans=sides(entry, "encoder")[0], heads=heads
        )
        for stack, where in entry.stacks.items():
            rows, columns = lists_of(entry, maps[measure, stack])
            found = maps[measure, stack].scores
            found = found[:, change["head"]] if "head" in change else found
            if stack not in expected:
                expected[stack] = (
                    rows,
                    columns,
                    oracle.value_zeroing(
                        model.module, entry.inputs(entry.length), where, rows, columns, **change
                    ),
                )
            assert (rows, columns) == expected[stack][:2]
            exact = entry.heard and stack == "encoder"  # whose norms compute in float64
            close(found, expected[stack][2], 1e-10 if exact else entry.tolerance)


@pytest.mark.every_family
def test_attention_is_what_the_model_returns(name):
    entry, model = MORE_FAMILIES[name], loaded(name)
    if not entry.shown:
        pytest.skip(
            "transformers returns no attention weights of this family, or others than it computes "
            "with"
        )
    maps = speechmix.mix(model, fed(entry), measures=["attention"], heads="each")
    for stack, where in entry.stacks.items():
        if where.attentions is None:
            continue
        expected = oracle.attention_weights(model.module, entry.inputs(entry.length), where)
        if entry.heard:
            expected = by_units(expected, maps["attention", stack])
        close(maps["attention", stack].scores, expected, entry.eager)


def by_units(weights, found):
    """Weights [L, H, T, K] at the units of a map: means over their positions, without padding."""
    for axis, side in ((2, found.targets), (3, found.sources)):
        weights = np.stack(
            [weights.take(range(span.start, span.stop), axis).mean(axis) for span in side], axis
        )
    return weights


def test_measures_that_count_the_residual_stream_find_it_or_refuse(name):
    entry, model = MORE_FAMILIES[name], loaded(name)
    options = {
        "spans": sides(entry, "encoder")[0],
        "stacks": list(entry.unknown_sum_reason or entry.stacks)[:1],
    }
    assert all(
        bool(stack.unknown_sum_reason) == (name in entry.unknown_sum_reason)
        for name, stack in model.stacks.items()
    )
    if entry.unknown_sum_reason:
        with pytest.raises(ModelError, match="residual stream"):
            speechmix.mix(model, fed(entry), measures=["alti"], **options)
    else:
        for found in speechmix.mix(
            model, fed(entry), measures=["alti", "attention_norm_residual"], **options
        ).values():
            assert (found.scores.max(axis=(1, 2)) > 0).all()
            assert np.isfinite(found.scores).all()
