"""HTA: Jacobian norms against torch's own Jacobian, layer by layer and from the input, in every
family and stack."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import torch

import speechmix
from speechmix.errors import InputError
from speechmix.extensions.gradient_measures import gradients as hta
from tests import oracle
from tests.conftest import build, inputs_of, tiny

# Frames of speech, tokens of text; in the decoder of a sequence-to-sequence model every token is a
# unit.
SPANS = [(3, 5), (5, 6)]
ROWS = {"encoder": [0, 1], "decoder": [1, 3], "cross": [0, 6]}
ROUNDED = (
    "llama",
    "mistral",
    "qwen2",
    "qwen3",
    "gemma",
    "gemma3_text",
)  # float32 inside, whatever the model's precision


def close(found, expected, model):
    tolerance = 1e-5 if model.config.model_type in ROUNDED else 1e-9
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= tolerance * np.abs(expected).max()


def units_of(model, stack):
    """Positions of target rows and of sources, as `mix` has them with SPANS and ROWS."""
    words = [list(range(a, b)) for a, b in SPANS]
    tokens = [[i] for i in range(7)]
    if stack == "encoder" or "cross" not in model.stacks:
        return words, words
    rows = [tokens[i] for i in ROWS[stack]]
    return rows, tokens if stack == "decoder" else words


def targets_of(model):
    return {
        stack: ROWS[stack] if "cross" in model.stacks and stack != "encoder" else [0, 1]
        for stack in model.stacks
    }


def swapped(layer, args, kwargs, name, value):
    """The layer's arguments with one of them replaced."""
    bound = inspect.signature(layer.forward).bind(*args, **kwargs)
    key = name or next(iter(bound.arguments))
    bound.arguments[key] = value
    return bound.args, bound.kwargs


def of_layer(module, stack, index, call, name):
    """A layer as a function of its states [1, K, D], behind the final norm if it is the last."""
    layers = oracle.layers_of(module, stack)
    norm = oracle.final_norm(module, stack) if index == len(layers) - 1 else lambda x: x

    def function(x):
        args, kwargs = swapped(layers[index], *call[:2], name, x)
        output = layers[index](*args, **kwargs)
        return norm(output[0] if isinstance(output, tuple) else output)

    return function


def entering(call, layer, name):
    args, kwargs = call[:2]
    bound = inspect.signature(layer.forward).bind(*args, **kwargs).arguments
    return bound[name or next(iter(bound))]


def pooled_norms(function, x, targets, sources):
    """Frobenius norms of pairs of positions from the whole Jacobian, averaged over the positions of
    units."""
    rows = sorted({position for target in targets for position in target})
    jacobian = torch.autograd.functional.jacobian(
        lambda x: function(x)[0, rows], x, vectorize=True
    )[:, :, 0]
    norms = jacobian.square().sum(dim=(1, 3)).sqrt()  # [R, D, K, D] -> [R, K]
    return np.array(
        [
            [norms[[rows.index(i) for i in target]][:, source].mean().item() for source in sources]
            for target in targets
        ]
    )


@pytest.mark.every_family
def test_layer_wise_is_the_norm_of_the_jacobian(any_model):
    inputs = inputs_of(any_model)
    maps = speechmix.mix(
        any_model, inputs, measures="hta", spans=SPANS, targets=targets_of(any_model), layers=[0, 2]
    )
    for stack in any_model.stacks:
        name = "encoder_hidden_states" if stack == "cross" else None
        calls, layers = (
            oracle.run(any_model.module, inputs, stack),
            oracle.layers_of(any_model.module, stack),
        )
        for index in (0, 2):
            function = of_layer(any_model.module, stack, index, calls[index], name)
            x = entering(calls[index], layers[index], name)
            expected = pooled_norms(function, x, *units_of(any_model, stack))
            close(maps["hta", stack].layer(index), expected, any_model)


@pytest.mark.every_family
def test_from_the_input_is_the_norm_of_the_jacobian_of_all_layers_up_to_it(any_model):
    inputs = inputs_of(any_model)
    maps = speechmix.mix(
        any_model, inputs, measures="hta_input", spans=SPANS, targets=targets_of(any_model)
    )
    for stack in any_model.stacks:
        calls, layers = (
            oracle.run(any_model.module, inputs, stack),
            oracle.layers_of(any_model.module, stack),
        )
        names = ("hidden", "encoder_hidden_states")
        x = entering(calls[0], layers[0], names[1] if stack == "cross" else None)
        for last in (0, 2):

            def function(x, last=last, stack=stack, calls=calls, layers=layers):
                hidden = entering(calls[0], layers[0], None) if stack == "cross" else x
                for index in range(last + 1):
                    args, kwargs = swapped(layers[index], *calls[index][:2], None, hidden)
                    if stack == "cross":
                        args, kwargs = swapped(
                            layers[index], args, kwargs, "encoder_hidden_states", x
                        )
                    output = layers[index](*args, **kwargs)
                    hidden = output[0] if isinstance(output, tuple) else output
                return oracle.final_norm(any_model.module, stack)(hidden) if last == 2 else hidden

            expected = pooled_norms(function, x, *units_of(any_model, stack))
            close(maps["hta_input", stack].layer(last), expected, any_model)


@pytest.mark.parametrize("measure", ["hta", "hta_input"])
class TestBoth:
    @pytest.mark.every_family
    @pytest.mark.parametrize(  # Whisper's decoder has the layers of BART's
        "name",
        [pytest.param("whisper-80", marks=pytest.mark.long), "gpt2", "llama", "mistral", "bart"],
    )
    def test_later_sources_of_a_causal_stack_are_exactly_zero(self, name, measure):
        model = tiny(name)
        scores = speechmix.mix(model, inputs_of(model), measures=measure, stacks="decoder")[
            measure, "decoder"
        ].scores
        assert not np.triu(scores, 1).any()
        assert (np.diagonal(scores, axis1=1, axis2=2) > 0).all()

    def test_batches_change_nothing(self, measure, monkeypatch):
        model = tiny("bart")
        stacks = ["encoder", "decoder"] if measure == "hta" else list(model.stacks)
        rows = {stack: ROWS[stack] for stack in stacks}  # two of 32 dimensions each
        options = {"measures": measure, "stacks": stacks, "targets": rows}
        expected = speechmix.mix(model, inputs_of(model), **options)
        monkeypatch.setattr(hta, "_HTA_BATCH_BYTES", 300_000)  # six to nine of the 64 products
        found = speechmix.mix(model, inputs_of(model), **options)
        for key in expected:
            close(found[key].scores, expected[key].scores, model)

    def test_pooling_is_over_norms_of_pairs_of_positions(self, measure):
        model = tiny("wav2vec2-stable")
        rows = list(range(3, 6))
        tokens = speechmix.mix(model, inputs_of(model), measures=measure, targets=rows)[
            measure, "encoder"
        ].scores
        for pooling, pool in (("mean", np.mean), ("max", np.max)):
            found = speechmix.mix(
                model, inputs_of(model), measures=measure, spans=[(3, 5), (5, 6)], pooling=pooling
            )
            expected = pool(tokens[:, :2, 3:5], axis=(1, 2))
            np.testing.assert_allclose(found[measure, "encoder"].scores[:, 0, 0], expected)

    def test_more_rows_than_can_be_differentiated_are_refused_with_what_to_do(
        self, measure, monkeypatch
    ):
        for limit in ("_MAX_PRODUCTS", "_MAX_PRODUCTS_FROM_INPUT"):
            monkeypatch.setattr(hta, limit, 10 * 32)
        model = tiny("bert")
        with pytest.raises(
            InputError, match=r"11 rows x 32 dimensions are 352 backward passes.*targets=.*up to 10"
        ):
            speechmix.mix(model, inputs_of(model), measures=measure)
        speechmix.mix(model, inputs_of(model), measures=measure, targets=[5])

    def test_heads_one_by_one_are_refused(self, measure):
        model = tiny("bert")
        with pytest.raises(InputError, match=f"{measure} has no form per head"):
            speechmix.mix(model, inputs_of(model), measures=measure, heads="each")

    def test_model_without_a_head_will_do_and_is_left_as_it_was(self, measure):
        model = speechmix.load(build("roberta").double())
        inputs = inputs_of(model)
        before = speechmix.mix(model, inputs)["value_zeroing", "encoder"].scores
        speechmix.mix(model, inputs, measures=measure)
        assert not any(p.requires_grad or p.grad is not None for p in model.module.parameters())
        assert not any(m._forward_pre_hooks or m._forward_hooks for m in model.module.modules())
        assert torch.is_grad_enabled()
        np.testing.assert_array_equal(
            speechmix.mix(model, inputs)["value_zeroing", "encoder"].scores, before
        )


def test_first_layer_is_the_same_from_the_input_and_layer_wise():
    model = tiny("gpt2")
    maps = speechmix.mix(model, inputs_of(model), measures=["hta", "hta_input"])
    np.testing.assert_allclose(
        maps["hta_input", "decoder"].layer(0), maps["hta", "decoder"].layer(0), rtol=1e-9
    )
    assert maps["hta", "decoder"].rollout().scores.shape == (3, 11, 11)


def test_float32_is_near_float64():
    model = tiny("bert", torch.float32)
    options = {"measures": ["hta", "hta_input"], "targets": [1, 5, 10]}
    exact = speechmix.mix(model, inputs_of(model), dtype="float64", **options)
    for key, found in speechmix.mix(model, inputs_of(model), **options).items():
        np.testing.assert_allclose(found.scores, exact[key].scores, rtol=1e-3, atol=1e-5)
