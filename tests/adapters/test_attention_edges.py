"""Edges of attention removed in a running model: in every way that models call attention, and as a
streaming mask."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

import speechmix
from speechmix.adapters.capture.forward_pass import Capture, use_attention
from speechmix.errors import InputError
from speechmix.extensions.look_ahead.look_ahead import (
    chunk_edges,
    remove_attention_edges,
    streaming_attention,
)
from speechmix.inputs import bundled
from tests.models import inputs_of, shared_models, tiny
from tests.models.more_families import MORE_FAMILIES, built

# How attention is called: sdpa, torch's multi-head function, the module's own softmax, padded heads,
# blocks in the batch, blocks in a row, and masks of the model's own.
NAMES = (
    "wavlm-post",
    "whisper-80",
    "speecht5",
    "moonshine",
    "parakeet",
    "granite-speech",
    "qwen2.5-omni",
    "seamless-m4t-v2, in chunks",
    "wav2vec2-bert",
)


def loaded(name):
    if name not in MORE_FAMILIES:
        model = tiny(name)
        return model, inputs_of(model)
    model = shared_models.shared(("more", name), lambda: speechmix.load(built(name)))
    return model, MORE_FAMILIES[name].inputs(100)


def first_weights(model, inputs, stack):
    """Attention weights [H, Q, K] of the first layer of a stack."""
    found = []
    with (
        model.in_use(),
        torch.no_grad(),
        use_attention(model.module, model.readable_attention),
        Capture([model.stacks[stack]], lambda block: found.append(block.attention()), layers=[0]),
    ):
        options = {"use_cache": False} if len(model.stacks) > 1 else {}
        model.module(**inputs, **options)
    return found[0]


@pytest.mark.parametrize("name", NAMES)
def test_weights_of_the_edges_that_stay_are_the_former_ones_rescaled(name):
    model, inputs = loaded(name)
    for stack in ("encoder", "cross"):
        if stack not in model.stacks:
            continue
        intact = first_weights(model, inputs, stack)
        is_removed = torch.rand(intact.shape[1:], generator=torch.Generator().manual_seed(0)) < 0.5
        length = min(is_removed.shape)
        is_removed[range(length), range(length)] = False

        def removed(targets, sources, is_removed=is_removed):
            assert (targets, sources) == tuple(is_removed.shape)
            return is_removed[None]

        with remove_attention_edges(model, {(stack, 0): removed}):
            found = first_weights(model, inputs, stack)
        expected = intact.masked_fill(is_removed, 0)
        expected = expected / expected.sum(dim=-1, keepdim=True)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-7)
        assert ((intact > 0) & is_removed).any()
        torch.testing.assert_close(first_weights(model, inputs, stack), intact, rtol=0, atol=0)


def test_maps_under_a_streaming_mask_are_the_same_by_both_engines_and_end_at_chunks():
    model = tiny("whisper-80")
    inputs = inputs_of(model)
    full = speechmix.mix(model, inputs)["value_zeroing", "encoder"].scores
    stride = model.grid(16_000).stride
    with streaming_attention(model, 5 * stride, left=3 * stride):
        measures = ["value_zeroing", "value_zeroing:engine=replay"]
        maps = speechmix.mix(model, inputs, measures=measures)
        found, replayed = (maps[measure, "encoder"].scores for measure in measures)
    np.testing.assert_allclose(found, replayed, rtol=1e-9, atol=1e-14)
    is_removed = chunk_edges(found.shape[1], 5, 3)[0].numpy()
    assert np.abs(found[:, is_removed]).max() < 1e-12
    assert (found[0][~is_removed & ~np.eye(len(is_removed), dtype=bool)] > 0).all()
    again = speechmix.mix(model, inputs)["value_zeroing", "encoder"].scores
    np.testing.assert_array_equal(again, full)


def test_chunks_with_all_left_context():
    assert chunk_edges(5, 2, None)[0].int().tolist() == [
        [0, 0, 1, 1, 1],
        [0, 0, 1, 1, 1],
        [0, 0, 0, 0, 1],
        [0, 0, 0, 0, 1],
        [0, 0, 0, 0, 0],
    ]


def test_what_cannot_be_removed_is_refused():
    model = speechmix.load("bundled:tiny-french-ctc")
    with (
        pytest.raises(InputError, match="no layer 9"),
        remove_attention_edges(model, {("encoder", 9): lambda targets, sources: None}),
    ):
        pass
    with pytest.raises(InputError, match="at least one frame"), streaming_attention(model, 0.001):
        pass
    with (
        pytest.raises(InputError, match="no stack 'cross'"),
        streaming_attention(model, 0.2, stack="cross"),
    ):
        pass
    with streaming_attention(model, 0.2):
        speechmix.mix(model, bundled.clips()[0])
    assert not any(
        module._forward_pre_hooks for module in model.stacks["encoder"].layers[0].module.modules()
    )


def test_a_part_that_has_its_own_attention_implementation_has_it_again_afterwards():
    """A config hands what it is given on to the configs inside it."""
    module = copy.deepcopy(built("granite-speech"))
    config = module.config
    config._attn_implementation = {"": "eager", "encoder_config": "eager", "text_config": "sdpa"}
    before = [part._attn_implementation for part in (config, config.text_config)]
    with use_attention(module, "sdpa"):
        assert config.text_config._attn_implementation == "sdpa" == config._attn_implementation
    assert [part._attn_implementation for part in (config, config.text_config)] == before
    with use_attention(module, "flash_attention_2", exceptions=["sdpa"]):
        assert config.text_config._attn_implementation == "sdpa"
