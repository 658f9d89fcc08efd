"""Conformers: padding, batches, chosen rows, clips, and a convolution that the table leaves out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers

import speechmix
from speechmix.adapters import family_of_type
from speechmix.adapters.delta_engine.change_propagator import sigmoid_change
from speechmix.adapters.families import registry
from speechmix.errors import ModelError
from tests import oracle_by_path as oracle
from tests.models import shared_models
from tests.models.more_families import MORE_FAMILIES, built

SPANS = [(0, 1), (3, 9), (30, 40)]
MASKED = {
    "wav2vec2-bert": 1,
    "seamless-m4t-v2, in chunks": 1,
    "parakeet": 8,
}  # rows of features for a position


def loaded(name):
    return shared_models.shared(("more", name), lambda: speechmix.load(built(name)))


def inputs(name, length, *, padding=0, seed=0):
    """Features of so many positions, and a mask that leaves out what is padded behind them."""
    each = MASKED[name]
    heard = torch.randn(
        1, each * length, 16, dtype=torch.double, generator=torch.Generator().manual_seed(seed)
    )
    mask = (torch.arange(each * (length + padding)) < each * length)[None]
    mask = mask if name == "parakeet" else mask.long()
    return {
        "input_features": torch.nn.functional.pad(heard, (0, 0, 0, each * padding)),
        "attention_mask": mask,
    }


def scores(model, item, *, engine="delta", **options):
    measure = f"value_zeroing:engine={engine}"
    return speechmix.mix(model, item, measures=measure, **options)[measure, "encoder"].scores


@pytest.mark.parametrize("name", MASKED)
def test_padding_that_the_mask_leaves_out_is_no_unit_and_changes_nothing(name):
    model, padded = loaded(name), inputs(name, 41, padding=12)
    rows = [list(range(*span)) for span in SPANS]
    expected = oracle.value_zeroing(
        model.module, padded, MORE_FAMILIES[name].stacks["encoder"], rows, rows
    )
    for engine in ("delta", "replay"):
        np.testing.assert_allclose(
            scores(model, padded, spans=SPANS, engine=engine), expected, rtol=1e-10, atol=1e-15
        )
    whole = scores(model, padded)
    assert whole.shape == (2, 41, 41)
    np.testing.assert_allclose(whole, scores(model, inputs(name, 41)), rtol=1e-10, atol=1e-15)
    np.testing.assert_allclose(
        scores(model, padded, targets={"encoder": [40, 3]}), whole[:, [40, 3]], rtol=1e-11
    )


@pytest.mark.parametrize("name", MASKED)
def test_clips_of_a_batch_are_those_alone(name):
    model, items = loaded(name), [inputs(name, 41), inputs(name, 57, seed=1)]
    together = speechmix.mix(model, items, spans=SPANS, clips_at_once=2)
    for item, maps in zip(items, together, strict=True):
        alone = scores(model, item, spans=SPANS)
        np.testing.assert_allclose(
            maps["value_zeroing", "encoder"].scores, alone, rtol=1e-10, atol=1e-15
        )


@pytest.mark.parametrize("batch_size", [1, 50, 100_000])
def test_batch_size_changes_nothing(batch_size, set_pair_batches):
    model, item = loaded("wav2vec2-bert"), inputs("wav2vec2-bert", 41)
    expected = scores(model, item, spans=SPANS)
    set_pair_batches(batch_size)
    for engine in ("delta", "replay"):
        found = scores(model, item, spans=SPANS, engine=engine)
        np.testing.assert_allclose(found, expected, rtol=1e-11)


def test_a_change_of_one_row_reaches_no_further_than_the_kernel():
    """Frames of the chunk before, which none attends to, give only what the convolution brings over
    the border."""
    found = scores(loaded("seamless-m4t-v2, in chunks"), inputs("seamless-m4t-v2, in chunks", 130))[
        0
    ]
    reached = np.abs(found[60:, :60]).max(axis=1) > 1e-12
    assert reached[:6].all()
    assert not reached[6:].any()


EXTRACTORS = {
    "wav2vec2-bert": lambda: transformers.SeamlessM4TFeatureExtractor(
        feature_size=8, num_mel_bins=8
    ),
    "parakeet": lambda: transformers.ParakeetFeatureExtractor(feature_size=16),
}


LONG_ONES = [pytest.param(n, marks=pytest.mark.long) for n in (16_479, 23_999)]


@pytest.mark.parametrize("n_samples", [16_000, *LONG_ONES, 24_001])
@pytest.mark.parametrize("name", EXTRACTORS)
def test_the_grid_of_a_clip_has_the_frames_that_the_model_gives(name, n_samples):
    model = speechmix.load(built(name, torch.float32), processor=EXTRACTORS[name]())
    sound = np.random.default_rng(0).normal(size=n_samples).astype(np.float32)
    clip = speechmix.Clip.from_array(sound, 16_000)
    with model.in_use():
        prepared = model.family.prepare(model, clip, ("encoder",))
    found = speechmix.mix(model, prepared.inputs, measures=["attention"])["attention", "encoder"]
    assert len(found.sources) == model.grid(n_samples).n_frames
    of_clip = speechmix.mix(model, clip, units="frame", measures=["attention"])[
        "attention", "encoder"
    ]
    np.testing.assert_allclose(of_clip.scores, found.scores)


@pytest.mark.parametrize("strength", [1, 1e-2, 1e-4])
def test_a_convolution_that_the_table_leaves_out_is_found_however_weak(monkeypatch, strength):
    monkeypatch.setattr(registry, "_FAMILIES", dict(registry._FAMILIES))
    module, family = built("parakeet", torch.float32), family_of_type("parakeet_ctc")
    for layer in module.encoder.layers:
        layer.conv.pointwise_conv2.weight *= strength
    speechmix.load(module)
    plan = replace(family.stacks(module.config)[0], convolution=None)
    for described in (True, False):
        silent = plan if described else replace(plan, feed_forwards=())
        speechmix.register(replace(family, stacks=lambda config, silent=silent: (silent,)))
        with pytest.raises(ModelError, match="mixes positions"):
            speechmix.load(module)


def test_the_change_of_a_sigmoid_neither_cancels_nor_overflows():
    x = torch.tensor([0.0, 3.0, -40.0, 100.0, -100.0], dtype=torch.double)
    for dx in (1e-12, -1e-12, 2.0, -2.0, 200.0, -150.0):
        derivative = x.sigmoid() * (-x).sigmoid()
        exact = derivative * dx if abs(dx) < 1e-9 else (x + dx).sigmoid() - x.sigmoid()
        np.testing.assert_allclose(
            sigmoid_change(x, torch.full_like(x, dx)),
            exact,
            rtol=1e-9,
            atol=1e-60 if abs(dx) < 1 else 1e-16,
        )
