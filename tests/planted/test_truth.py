"""The truth is true: what a model does when states and inputs are exchanged, run plainly
(`plain.py`), against its edges."""

from __future__ import annotations

import functools
import itertools

import pytest
import torch

import speechmix
from speechmix.extensions.planted.case_table import cases
from speechmix.extensions.planted.hand_set_models import FAMILIES
from speechmix.extensions.planted.hand_set_weights import CHANNELS, channel_basis
from speechmix.extensions.planted.planting import plant
from tests.planted import plain

PLACES = [
    (case.name, family, stack)
    for family, home in FAMILIES.items()
    for stack in home.stacks
    for case in cases()
    if not case.families or family in case.families
]
# A state that takes in a content moves by about 2 when it is negated (by 1 if another cue stands
# against it, less what bystanders add); what heads see beside what they look at moves others far
# less.
CLEARLY, HARDLY = 0.6, 0.3


@functools.cache
def planted_at(case: str, family: str, stack: str):
    return plant(case, family=family, stack=stack, layer=1, seed=3, noise=0.002)


@pytest.mark.parametrize(("case", "family", "stack"), PLACES)
def test_edges_are_where_the_case_says_and_nowhere_else(case, family, stack):
    planted = planted_at(case, family, stack)
    stacks = (
        planted.model.stacks if case == "copy" else {stack, *(edge[0] for edge in planted.edges)}
    )
    for name in stacks:
        moves = plain.moves_of_edges(planted, name)
        for layer, target, source in itertools.product(*map(range, moves.shape)):
            edge, move = (name, layer, target, source), float(moves[layer, target, source])
            if edge in planted.edges:
                assert move > CLEARLY, (edge, move)
            elif name == "cross" or target != source:
                assert move < HARDLY, (edge, move)


@pytest.mark.parametrize(("case", "family", "stack"), PLACES)
def test_inputs_reach_the_states_and_decide_the_margin_that_the_case_says(case, family, stack):
    planted = planted_at(case, family, stack)
    for path, move in plain.moves_of_inputs(planted).items():
        if path in planted.reached:
            assert move > CLEARLY, (path, move)
        elif path[:2] != path[2:]:
            assert move < 0.4, (path, move)  # of three layers
    sources = plain.inputs_with_content(planted)
    margin, *negated = plain.margins(
        planted, [planted.item, *(planted.negate_contents([source]) for source in sources)]
    )
    assert planted.margin() == pytest.approx(margin)
    assert margin > 1
    said_at = (list(planted.contents)[-1], planted.position)
    for source, other in zip(sources, negated, strict=True):
        if source in planted.decisive:
            assert abs(other - margin) > 4, source
        elif source != said_at:
            assert abs(other - margin) < 1.2, source


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("layer", [0, 2])
def test_a_copy_can_stand_in_each_layer_of_each_stack(family, layer):
    for stack in FAMILIES[family].stacks:
        planted = plant("copy", family=family, stack=stack, layer=layer)
        moves = plain.moves_of_edges(planted, stack)
        assert moves[layer, 6, 2] > CLEARLY
        assert planted.margin() > 1 > 0 > planted.margin(planted.negate_contents(planted.decisive))


def values_zeroed(layer: int, sources):
    """Hooks that take value vectors away from a GPT-2 layer's fused projection."""

    def zeroed(module):
        def hook(_, args, output):
            output = output.clone()
            output[:, list(sources), 2 * output.shape[-1] // 3 :] = 0
            return output

        return [module.transformer.h[layer].attn.c_attn.register_forward_hook(hook)]

    return zeroed


def test_of_redundant_cues_one_is_enough():
    planted = plant("redundant", family="gpt2", layer=1)
    margin = planted.margin()
    assert all(
        plain.margin_without(planted, values_zeroed(1, [s])) == pytest.approx(margin, abs=0.1)
        for s in (2, 4)
    )
    assert plain.margin_without(planted, values_zeroed(1, [2, 4])) < 0


def test_the_gate_hides_the_cue_and_another_token_opens_it():
    planted = plant("gate", family="bert", layer=1)
    shut, cue = planted.item, ("encoder", 2)
    opened = planted.negate_contents([("encoder", 4)])
    both = planted.negate_contents([("encoder", 4), cue])
    assert planted.margin(planted.negate_contents([cue])) == pytest.approx(
        planted.margin(shut), abs=0.2
    )
    assert abs(planted.margin(opened) - planted.margin(both)) > 8


@pytest.mark.parametrize("family", FAMILIES)
def test_models_are_what_transformers_builds(family):
    module = plant("copy", family=family).model.module
    assert type(module).__module__.startswith(f"transformers.models.{family}")
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in module.modules())
    assert not any("forward" in vars(part) for part in module.modules())


@pytest.mark.parametrize("family", FAMILIES)
def test_the_self_check_passes_what_has_an_effect_and_refuses_what_has_none(family):
    speechmix.load(plant("copy", family=family).model.module)
    with pytest.raises(speechmix.errors.ModelError, match="changes nothing"):
        speechmix.load(plant("nothing", family=family).model.module)


@pytest.mark.parametrize("family", FAMILIES)
def test_rotated_models_have_rotated_states(family):
    axes, turned = (
        plant("relay", family=family, layer=1, rotation_seed=seed, noise=0.01) for seed in (None, 5)
    )
    assert axes.margin() == pytest.approx(turned.margin(), abs=1e-8)
    stack = "encoder" if "encoder" in axes.contents else "decoder"
    hidden = [plain.run(planted, [planted.item])[stack][1] for planted in (axes, turned)]
    states = [x @ planted.basis.T for x, planted in zip(hidden, (axes, turned), strict=True)]
    assert torch.allclose(*states, atol=1e-8)
    assert (hidden[0] - hidden[1]).abs().max() > 1


def test_layer_norms_are_linear_up_to_one_over_the_square_of_the_constant():
    bent = {}
    for constant in (10.0, 100.0):
        planted = plant("copy", family="gpt2", layer=0, constant=constant, rotation_seed=1)
        state = plain.run(planted, [planted.item])["decoder"][-1]
        through = planted.model.module.transformer.ln_f(state)
        bent[constant] = float((through - state).abs().max() / constant)
    assert bent[100.0] < 1e-3
    assert 50 < bent[10.0] / bent[100.0] < 200


def test_channels_fit_the_basis():
    assert max(CHANNELS.values()) < 16
    assert channel_basis(None).shape == channel_basis(7).shape == (32, 64)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"case": "cpoy"}, "no planted case"),
        ({"family": "t5"}, "family should be one of"),
        ({"family": "bert", "stack": "cross"}, "bert has the stacks encoder"),
        ({"case": "relay", "layer": 2}, "layer should be 0 to 1, found 2"),
        ({"case": "round attention"}, "can be planted in wav2vec2"),
        ({"noise": -1.0}, "expected noise"),
        ({"constant": 1.0}, "constant of 5 or more"),
    ],
)
def test_what_cannot_be_planted_is_refused(options, message):
    with pytest.raises(speechmix.errors.InputError, match=message):
        plant(**options)
