"""Frames of a clip in a fixed window, and its padding as one unit, against maps of all frames and zeroing by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import speechmix
from speechmix.errors import InputError
from speechmix.mixing.maps.composition import strongest_routes

from .test_mix import clip_of, whisper_that_hears


@pytest.fixture(scope="module")
def whisper():
    return whisper_that_hears()


def test_frames_of_the_clip_are_those_of_the_window_and_padding_is_one_unit(whisper):
    clip, stacks = clip_of(), ["encoder", "cross"]
    n_frames = whisper.grid(len(clip.audio(16_000))).n_frames
    maps = speechmix.mix(whisper, clip, units="frame", stacks=stacks, include=["padding"])
    whole = speechmix.mix(whisper, clip, units="frame", stacks=stacks, window=(0, 30))
    for (measure, stack), found in maps.items():
        frames, padding = found.sources[:-1], found.sources[-1]
        count = len(frames)
        assert {span.kind for span in frames} == {"frame"}
        assert (padding.kind, padding.start, padding.stop) == ("padding", count, n_frames)
        every = whole[measure, stack]
        rows = slice(count) if stack == "encoder" else slice(None)
        np.testing.assert_allclose(
            found.scores[:, rows, :count], every.scores[:, rows, :count], atol=1e-6, rtol=1e-6
        )
        together = speechmix.mix(whisper, clip, spans=[(count, n_frames)], stacks=stacks)
        by_hand = together[measure, stack].scores[:, :, 0]
        padding_rows = slice(count, None) if stack == "encoder" else slice(None)
        np.testing.assert_allclose(found.scores[:, padding_rows, -1], by_hand, atol=1e-6, rtol=1e-6)
        if stack == "encoder":  # as a target, the padding is the mean of its frames
            pooled = every.scores[:, count:, :count].mean(axis=1)
            np.testing.assert_allclose(found.scores[:, -1, :count], pooled, rtol=1e-6)


def test_the_padding_is_a_target_only_where_it_is_included(whisper):
    by_default = speechmix.mix(whisper, clip_of(), units="frame")
    included = speechmix.mix(whisper, clip_of(), units="frame", include=["padding"])
    for key, found in by_default.items():
        whole = included[key]
        count = len(whole.targets) - (key[1] == "encoder")
        assert (found.targets, found.sources) == (whole.targets[:count], whole.sources)
        np.testing.assert_allclose(found.scores, whole.scores[:, :count], rtol=1e-6, atol=1e-9)
    assert included["value_zeroing", "encoder"].rollout().scores.shape[-2] == len(whole.sources)
    by_layers = by_default["value_zeroing", "encoder"]
    for combine in (
        by_layers.rollout,
        lambda: by_default.composed("value_zeroing"),
        lambda: strongest_routes(by_default, "value_zeroing", 0),
        lambda: strongest_routes(by_default, "value_zeroing", 0, stack="encoder"),
    ):
        with pytest.raises(InputError, match=r"include=\['padding'\]\) makes .* a target") as error:
            combine()
        assert "window=" not in str(error.value)  # the call was right, but for the padding
    assert len(by_layers.without("padding").rollout().sources) == len(by_layers.targets)
    assert strongest_routes(included, "value_zeroing", 0).shares


def test_the_padding_column_is_that_of_all_its_values_at_zero(whisper):
    clip = clip_of()
    found = speechmix.mix(whisper, clip, units="frame", stacks="encoder", layers=0)
    found = found["value_zeroing", "encoder"]
    padding = found.sources[-1]
    layer = whisper.base.encoder.layers[0]
    inputs = {
        name: value.to(whisper.state_dtype)
        for name, value in whisper.features(clip.audio(16_000)).items()
    }

    def layer_output(stop):
        def zero_padding(module, args, output):
            output[:, padding.start : stop] = 0

        hook = layer.self_attn.v_proj.register_forward_hook(zero_padding)
        outputs = []
        read = layer.register_forward_hook(
            lambda module, args, output: outputs.append(
                output[0] if isinstance(output, tuple) else output
            )
        )
        with torch.no_grad():
            whisper.base.encoder(**inputs)
        hook.remove()
        read.remove()
        return outputs[0].reshape(-1, outputs[0].shape[-1])

    before, after = layer_output(padding.start), layer_output(padding.stop)
    distances = 1 - torch.nn.functional.cosine_similarity(before, after, dim=-1)
    expected = distances[: padding.start].numpy()
    np.testing.assert_allclose(found.scores[0, :, -1], expected, atol=1e-6)
    assert expected.max() > 1e-5
