"""What a word gets because it is long: by hand, and in random models of two families."""

from __future__ import annotations

import numpy as np
import pytest

import speechmix
from speechmix.evaluation.cue_contribution import length_exponent, length_matched_share
from speechmix.inputs import bundled
from speechmix.inputs.words.spans import Span
from speechmix.mixing.maps.mixing_map import MixingMap

UNITS = (Span(0, 10, "a", word=0), Span(10, 40, "b", word=1), Span(40, 60, "c", word=2))


def one(measure="value_zeroing", units=UNITS, scores=None, **provenance):
    scores = np.ones((1, len(units), len(units))) if scores is None else scores
    return MixingMap(
        scores, units, units, measure, "encoder", tuple(range(len(scores))), provenance
    )


def test_share_by_hand():
    assert length_matched_share(one(), cue=0) == pytest.approx(100 / 1400)
    assert length_matched_share(one(distance="euclidean"), cue=0) == pytest.approx(10 / 60)
    assert length_matched_share(one(distance="manhattan"), cue=0) == pytest.approx(10 / 60)
    assert length_matched_share(one("attention"), cue=0) == pytest.approx(1 / 3)
    assert np.isnan(length_matched_share(one("alti"), cue=0))
    padded = (*UNITS, Span(60, 1500, "<padding>", "padding"))
    assert length_matched_share(one(units=padded), cue=0) == pytest.approx(100 / 1400)


def test_exponent_is_recovered_and_the_targets_own_column_does_not_count():
    lengths = np.array([10.0, 30.0, 20.0])
    scores = np.tile(lengths**1.9, (2, 3, 1))
    scores[:, range(3), range(3)] = 1e6
    assert length_exponent([one(scores=scores)]) == pytest.approx(1.9)
    assert np.isnan(length_exponent([one(scores=np.zeros((1, 3, 3)))]))
    assert np.isnan(length_exponent([]))


def test_random_models_grow_as_the_baseline_assumes():
    """Measured: 1.98 in the wav2vec2-style and 1.85 in the Whisper-style twin; 0.00 and 0.01 for
    attention."""
    clips = [clip for clip in bundled.clips() if len(clip.words) > 2][:8]
    for folder in bundled.models().values():
        twin = speechmix.load(folder, init="random", seed=0, device="cpu")
        maps = [
            speechmix.mix(twin, clip, measures=["value_zeroing", "attention"], stacks=["encoder"])
            for clip in clips
        ]
        assert length_exponent(
            [found["value_zeroing", "encoder"] for found in maps]
        ) == pytest.approx(2, abs=0.25)
        assert length_exponent([found["attention", "encoder"] for found in maps]) == pytest.approx(
            0, abs=0.05
        )
