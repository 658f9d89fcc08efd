"""Clips whose forward pass would not fit are refused before it runs."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import speechmix
from speechmix.adapters.capture import module_access as memory_check
from speechmix.errors import InputError
from tests.conftest import build, tiny


@pytest.fixture(scope="module")
def model():
    import transformers

    return speechmix.load(
        build("wav2vec2-stable"), processor=transformers.Wav2Vec2FeatureExtractor()
    )


def test_a_clip_that_does_not_fit_is_refused_before_memory_is_taken(model, monkeypatch):
    monkeypatch.setattr(memory_check, "free_bytes", lambda device: 2**20)
    with pytest.raises(
        InputError, match=r"a clip of 10 s .* 0\.0 GiB are free: cut it .* to less than \d+ s"
    ):
        speechmix.mix(model, speechmix.Clip.from_array(np.ones(160_000) / 9, 16_000), units="frame")
    short = speechmix.Clip.from_array(np.ones(16_000) / 9, 16_000)
    assert len(speechmix.mix(model, short, units="frame", targets=[0])) == 1


def test_what_is_free_is_known_here_and_nothing_is_refused_where_it_is_not(model, monkeypatch):
    free = memory_check.free_bytes(torch.device("cpu"))
    assert free is None or free > 2**20
    monkeypatch.setattr(memory_check, "free_bytes", lambda device: None)
    memory_check.check_fits(model, 10**12)


def test_whisper_hears_thirty_seconds_whatever_the_clip(monkeypatch):
    whisper = tiny("whisper-80", torch.float32)
    assert memory_check.bytes_per_sample(whisper) == 0
    memory_check.check_fits(whisper, 10**12)


def test_what_torch_holds_for_use_again_is_free_too(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (100, 1000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 700)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 300)
    assert memory_check.free_bytes(torch.device("cuda")) == 500
