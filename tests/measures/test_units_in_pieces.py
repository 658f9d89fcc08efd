"""Units of several ranges of positions: the oracles on the union, and what must make no difference
to the bit.

`test_oracle_families.py` has such a unit for every further family.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

import speechmix
from speechmix.errors import InputError
from speechmix.inputs.words.spans import Span
from tests import oracle, oracle_decompositions
from tests.conftest import inputs_of, maps_of, tiny

FAMILIES = ("wav2vec2-post", "whisper-80", "bert", "gpt2", "bart")
FRAMES = (((20, 31), (3, 9), (12, 14)), (9, 10), ((40, 42), (50, 59)), (42, 47))
TOKENS = (((8, 9), (1, 2), (3, 5)), (2, 3), ((5, 6), (7, 8)))
EVERYWHERE = ("value_zeroing", "attention", "attention_norm", "alti", "random")
WITH_RESIDUAL = ("attention_norm_residual", "mixing_ratio_attention_norm")


def spans_of(model):
    return FRAMES if model.hears else TOKENS


def positions_of(spans):
    return [
        [p for a, b in (span if isinstance(span[0], tuple) else (span,)) for p in range(a, b)]
        for span in spans
    ]


def sides(model, stack, n_tokens=7):
    """Positions of targets and sources: the units on the encoder's side or a lone decoder's, tokens
    one by one elsewhere."""
    units, tokens = positions_of(spans_of(model)), [[i] for i in range(n_tokens)]
    alone = stack == "encoder" or len(model.stacks) == 1
    return (units if alone else tokens), (tokens if stack == "decoder" and not alone else units)


def close(found, expected, tolerance=1e-10):
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= tolerance * np.abs(expected).max()


@pytest.mark.parametrize("pooling", ["mean", "max"])
@pytest.mark.parametrize("engine", ["delta", "replay"])
@pytest.mark.parametrize("name", FAMILIES)
def test_value_zeroing_zeroes_the_union_in_one_rerun_of_the_layer(name, engine, pooling):
    model = tiny(name)
    measure = f"value_zeroing:engine={engine}"
    maps = maps_of(name, (measure,), spans=spans_of(model), pooling=pooling)
    for stack in model.stacks:
        expected = oracle.value_zeroing(
            model.module, inputs_of(model), stack, *sides(model, stack), pooling=pooling
        )
        close(maps[measure, stack].scores, expected)


@pytest.mark.parametrize("engine", ["delta", "replay"])
def test_each_head_alone(engine):
    model = tiny("whisper-80")
    measure = f"value_zeroing:engine={engine}"
    maps = maps_of("whisper-80", (measure,), spans=FRAMES, heads="each")
    for stack in model.stacks:
        expected = oracle.value_zeroing(
            model.module, inputs_of(model), stack, *sides(model, stack), head=2
        )
        close(maps[measure, stack].scores[:, 2], expected)


def test_zeroing_pieces_together_is_not_zeroing_them_one_by_one():
    """What would be seen if a unit in pieces were a sum of its pieces: scores grow with the square
    of what is taken."""
    apart = maps_of("whisper-80", ("value_zeroing",), spans=((20, 31), (3, 9), (12, 14)))[
        "value_zeroing", "cross"
    ].scores
    together = maps_of("whisper-80", ("value_zeroing",), spans=FRAMES)[
        "value_zeroing", "cross"
    ].scores[..., 0]
    assert np.median(np.abs(apart.sum(axis=-1) / together - 1)) > 0.2


@pytest.mark.parametrize("pooling", ["mean", "max"])
@pytest.mark.parametrize(
    ("name", "measure", "heads"),
    [
        ("whisper-80", "attention", "each"),
        ("whisper-80", "attention_norm", "each"),
        ("gpt2", "attention", "each"),
        ("gpt2", "attention_norm_residual", "mean"),
    ],
)
def test_pairs_of_positions_are_pooled_over_the_union(name, measure, heads, pooling):
    model = tiny(name)
    maps = maps_of(name, (measure,), spans=spans_of(model), pooling=pooling, heads=heads)
    single = maps_of(name, (measure,), heads=heads)
    pool = {"mean": np.mean, "max": np.max}[pooling]
    for stack in model.stacks:
        targets, sources = sides(model, stack)
        pairs = single[measure, stack].scores
        by_source = np.stack([pool(pairs[..., places], axis=-1) for places in sources], axis=-1)
        expected = np.stack(
            [pool(by_source[..., places, :], axis=-2) for places in targets], axis=-2
        )
        close(maps[measure, stack].scores, expected)


@pytest.mark.parametrize("name", ["whisper-80", "bert"])
def test_alti_and_mixing_ratio_add_up_the_vectors_of_the_union(name):
    model = tiny(name)
    maps = maps_of(name, ("alti",), spans=spans_of(model))
    ratios = maps_of(
        name, ("mixing_ratio_attention_norm_residual",), spans=spans_of(model), stacks=("encoder",)
    )
    for stack in model.stacks:
        targets, sources = sides(model, stack)
        norms = 0 if oracle_decompositions.is_pre_norm(model.module) else 1
        parts = list(oracle_decompositions.parts(model.module, inputs_of(model), stack, norms))
        close(
            maps["alti", stack].scores, oracle_decompositions.alti(parts, stack, targets, sources)
        )
    targets, _ = sides(model, "encoder")
    for layer, (vectors, residual, *_) in enumerate(
        oracle_decompositions.parts(model.module, inputs_of(model), "encoder", 0)
    ):
        for unit, own in enumerate(targets):
            rest = [i for i in range(vectors.shape[1]) if i not in own]
            mixed = vectors[own][:, rest].sum(1).norm(dim=-1)
            preserved = (vectors[own][:, own].sum(1) + residual[own]).norm(dim=-1)
            found = ratios["mixing_ratio_attention_norm_residual", "encoder"].mixing_ratio()[
                layer, unit
            ]
            assert found == pytest.approx((mixed / (mixed + preserved)).mean().item(), rel=1e-9)


@pytest.mark.parametrize("name", ["whisper-80", "gpt2"])
def test_neither_the_order_of_pieces_nor_how_a_range_is_cut_makes_a_difference(name):
    model = tiny(name)
    spans = spans_of(model)
    whole = ((3, 9), (12, 31)) if model.hears else ((1, 4), (5, 8))
    cut = (
        (((5, 9), (3, 5)), ((12, 13), (20, 31), (13, 20)))
        if model.hears
        else (((1, 2), (2, 4)), ((6, 8), (5, 6)))
    )
    turned = tuple(span[::-1] if isinstance(span[0], tuple) else span for span in spans)
    for measures, stacks in ((EVERYWHERE, None), (WITH_RESIDUAL, (next(iter(model.stacks)),))):
        for one, other in ((whole, cut), (spans, turned)):
            expected, found = (
                maps_of(name, measures, spans=asked, stacks=stacks) for asked in (one, other)
            )
            assert expected.keys() == found.keys()
            for key in expected:
                assert np.array_equal(found[key].scores, expected[key].scores), key
                assert [s.ranges for s in found[key].sources] == [
                    s.ranges for s in expected[key].sources
                ]


def test_gradients_are_pooled_over_the_union():
    model, inputs = tiny("gpt2"), inputs_of(tiny("gpt2"))
    options = {"measures": "gradient_input", "objective": (10, 7)}
    units = speechmix.mix(model, inputs, spans=TOKENS, **options)[
        "gradient_input", "decoder"
    ].scores
    tokens = speechmix.mix(model, inputs, **options)["gradient_input", "decoder"].scores
    close(
        units,
        np.stack([tokens[..., places].mean(axis=-1) for places in positions_of(TOKENS)], axis=-1),
    )


def test_contributions_to_a_logit_add_up_the_union():
    model, inputs = tiny("gpt2"), inputs_of(tiny("gpt2"))
    units = speechmix.logit_contributions(model, inputs, objective=(10, 7), spans=TOKENS)
    tokens = speechmix.logit_contributions(model, inputs, objective=(10, 7))
    found = units.scores["decoder"]
    close(
        found,
        np.stack(
            [tokens.scores["decoder"][:, places].sum(-1) for places in positions_of(TOKENS)],
            axis=-1,
        ),
        1e-9,
    )


def test_a_finished_map_is_pooled_into_units_in_pieces():
    frames = maps_of("whisper-80", ("attention",))["attention", "encoder"]
    pooled = frames.pooled([[(20, 31), (3, 9), (12, 14)], (9, 10)], sources="mean")
    expected = maps_of("whisper-80", ("attention",), spans=FRAMES)["attention", "encoder"]
    close(pooled.scores, expected.scores[:, :2, :2], 1e-12)
    assert pooled.targets[0].ranges == ((3, 9), (12, 14), (20, 31))


@pytest.mark.parametrize(
    ("spans", "message"),
    [
        ([[(1, 4), (3, 6)]], r"unit '0': its pieces \[1, 4\) and \[3, 6\) overlap"),
        ([[(1, 4), (6, 6)]], r"the empty \[6, 6\)"),
        ([[(1, 4), (8, 6)]], r"the empty \[8, 6\)"),
        ([[(1, 4), (6, 8)], (7, 9)], "spans 0 and 1 share position 7"),
        ([(7, 9), [(1, 4), (6, 8)]], "spans 0 and 1 share position 7"),
        ([[(1, 4), (6, 99)]], "ends past its 11 positions"),
        ([[(1, 4), (6, 7.5)]], "should be .* in whole frames, or a list of these"),
        ([[(1, 4), 6]], "should be"),
        ([[]], "should be"),
    ],
)
def test_what_is_no_unit(spans, message):
    model = tiny("gpt2")
    with pytest.raises(InputError, match=message):
        speechmix.mix(model, inputs_of(model), spans=spans)


def test_spans_may_still_share_positions_where_none_is_in_pieces():
    assert maps_of("gpt2", ("attention",), spans=((1, 4), (3, 6)))[
        "attention", "decoder"
    ].scores.shape == (3, 2, 2)


def test_a_map_keeps_its_pieces_in_a_file(tmp_path):
    found = maps_of("whisper-80", ("value_zeroing",), spans=FRAMES)["value_zeroing", "encoder"]
    again = speechmix.MixingMap.load(found.save(tmp_path / "x.safetensors"))
    assert (again.sources, again.targets) == (found.sources, found.targets)
    assert again.sources[0] == Span.from_ranges(FRAMES[0], "0", word=0)
    assert torch.equal(torch.as_tensor(again.scores), torch.as_tensor(found.scores.copy()))
