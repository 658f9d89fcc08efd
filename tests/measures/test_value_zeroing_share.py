"""The measured share of cross-attention against slow hooks: all values of one block zeroed, the
layer run again."""

from __future__ import annotations

import numpy as np
import pytest

import speechmix
from speechmix.errors import InputError
from speechmix.extensions.planted.planting import plant
from tests import oracle
from tests.conftest import inputs_of, tiny


def shares_by_hooks(model, inputs, distance, targets, n_heard):
    """What cross-attention moves, of what both blocks move, [L, targets]; a hook on the value
    projection zeroes all of it."""
    n_tokens = inputs["decoder_input_ids"].shape[1]
    moved = {
        stack: oracle.value_zeroing(
            model.module, inputs, stack, targets, [list(range(count))], distance
        )[..., 0]
        for stack, count in (("cross", n_heard), ("decoder", n_tokens))
    }
    return moved["cross"] / (moved["cross"] + moved["decoder"])


@pytest.mark.parametrize("engine", ["delta", pytest.param("replay", marks=pytest.mark.long)])
@pytest.mark.parametrize("distance", ["cosine", pytest.param("euclidean", marks=pytest.mark.long)])
@pytest.mark.parametrize("name", ["whisper-80", "bart", "mbart", "marian"])
def test_rows_of_cross_attention_sum_to_the_share_that_hooks_measure(name, distance, engine):
    model = tiny(name)
    inputs = inputs_of(model)
    spans = [(3, 9), (9, 10), (12, 31)] if model.hears else [(0, 2), (2, 3), (4, 8)]
    options = f"distance={distance},engine={engine}"
    names = [f"value_zeroing:{options}", f"value_zeroing_share:{options}"]
    maps = speechmix.mix(model, inputs, measures=names, spans=spans)
    expected = shares_by_hooks(
        model, inputs, distance, [[p] for p in range(7)], 60 if model.hears else 11
    )
    assert expected.min() >= 0
    assert np.ptp(expected) > 0.01
    own, plain = (maps[measure, "cross"] for measure in reversed(names))
    np.testing.assert_allclose(own.scores.sum(-1), expected, rtol=0, atol=1e-10)
    np.testing.assert_allclose(
        own.normalized().scores, plain.normalized().scores, rtol=0, atol=1e-12
    )
    for stack in ("encoder", "decoder"):
        np.testing.assert_array_equal(maps[names[1], stack].scores, maps[names[0], stack].scores)


def test_composed_maps_weigh_the_stacks_by_the_measured_share():
    model = tiny("whisper-80")
    names = ["value_zeroing", "value_zeroing_share"]
    maps = speechmix.mix(model, inputs_of(model), measures=names, spans=[(0, 30), (30, 60)])
    composed = maps.composed(names[1])
    assert composed.provenance["steps"][-1].endswith(
        "share value_zeroing_share, layers weighted by mixing strength, prefix=True)"
    )
    gates = maps[names[1], "cross"].scores.sum(-1)
    np.testing.assert_allclose(composed.scores[0, :, :2].sum(-1), gates[0])
    half = maps.composed(names[0], weighted=False).scores
    np.testing.assert_allclose(half[0, :, :2].sum(-1), 0.5)
    np.testing.assert_allclose(maps.composed(names[1], share=0.5, weighted=False).scores, half)


def test_a_decoder_that_only_hears_and_one_that_only_remembers():
    """Planted: the copied content comes by cross-attention in one model, by self-attention in the
    other."""
    shares = {}
    for stack in ("cross", "decoder"):
        planted = plant("copy", family="whisper", stack=stack, layer=1, noise=0.0)
        maps = speechmix.mix(planted.model, planted.item, measures="value_zeroing_share")
        shares[stack] = maps["value_zeroing_share", "cross"].scores.sum(-1)[1, 6]
    assert shares["cross"] > 0.7
    assert shares["decoder"] < 0.3


def test_there_is_no_share_of_a_head():
    model = tiny("bart")
    with pytest.raises(InputError, match="share is one of the whole block"):
        speechmix.mix(model, inputs_of(model), measures="value_zeroing_share", heads="each")
