"""Units of prepared inputs without spans: every frame or token there is, and no padding."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import speechmix
from tests.conftest import tiny

N_SAMPLES = (9_680, 19_280)  # the first of two clips is half as long


def padded_batch(model, n_samples):
    """Two clips in one batch, padded with zeros; the mask says so."""
    generator = torch.Generator().manual_seed(0)
    audio = torch.randn(2, max(n_samples), generator=generator, dtype=torch.double)
    mask = torch.arange(max(n_samples)) < torch.tensor(n_samples)[:, None]
    return {"input_values": audio * mask, "attention_mask": mask.long()}


@pytest.mark.parametrize(
    "name", ["wav2vec2-stable", "hubert-stable", "wavlm-stable", "wavlm-post", "data2vec-audio"]
)
def test_frames_behind_the_mask_are_no_units(name):
    model = tiny(name)
    batch = padded_batch(model, N_SAMPLES)
    for maps, n_samples, row in zip(speechmix.mix(model, batch), N_SAMPLES, range(2), strict=True):
        found = maps["value_zeroing", "encoder"]
        n_frames = model.grid(n_samples).n_frames
        assert found.scores.shape == (3, n_frames, n_frames)
        assert (
            [span.start for span in found.targets]
            == [span.start for span in found.sources]
            == list(range(n_frames))
        )
        given = speechmix.mix(
            model,
            {key: x[row : row + 1] for key, x in batch.items()},
            spans=[(i, i + 1) for i in range(n_frames)],
        )
        np.testing.assert_array_equal(found.scores, given["value_zeroing", "encoder"].scores)


def test_padding_changes_nothing_where_the_front_end_allows_it():
    model = tiny("wav2vec2-stable")
    batch = padded_batch(model, N_SAMPLES)
    alone = {"input_values": batch["input_values"][:1, : N_SAMPLES[0]]}
    measures = ["value_zeroing", "attention", "alti"]
    padded = speechmix.mix(model, batch, measures=measures)[0]
    for key, expected in speechmix.mix(model, alone, measures=measures).items():
        assert padded[key].scores.shape == expected.scores.shape
        np.testing.assert_allclose(padded[key].scores, expected.scores, rtol=1e-7, atol=1e-12)


def test_whisper_hears_its_padding_and_has_units_for_it():
    """Its encoder has no mask: what a feature extractor masks takes part in mixing."""
    model = tiny("whisper-80")
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(1, 80, 120, generator=generator, dtype=torch.double)
    mask = (torch.arange(120) < 60).long()[None]
    scores = speechmix.mix(model, {"input_features": features}, stacks="encoder")[
        "value_zeroing", "encoder"
    ].scores
    assert scores.shape == (3, 60, 60)
    inputs = {"input_features": features, "attention_mask": mask}
    assert speechmix.mix(model, inputs, stacks="encoder")[
        "value_zeroing", "encoder"
    ].scores.shape == (3, 60, 60)


@pytest.mark.parametrize("name", ["llama", "mistral", "bert"])
def test_causal_and_sliding_masks_leave_every_position_a_unit(name):
    model = tiny(name)
    (maps,) = speechmix.mix(model, {"input_ids": torch.arange(4, 14)[None]}, units="token").values()
    assert maps.scores.shape == (3, 10, 10)
