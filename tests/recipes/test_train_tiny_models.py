"""Training of the tiny recognisers on a few synthetic clips: reproducible, resumable, the same
however many workers speak."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
KINDS = ("ctc", "whisper")


@pytest.fixture(scope="module")
def recipe():
    pytest.importorskip("espeakng_loader", reason="the extra `synthesis` is not installed")
    sys.path.insert(0, str(RECIPES))
    try:
        import train_tiny_models
    finally:
        sys.path.remove(str(RECIPES))
    return train_tiny_models


def train(recipe, kind: str, work: Path, *options: str):
    given = ["--examples", "16", "--epochs", "2", "--device", "cpu", "--work", str(work), *options]
    recogniser, log = recipe.train(kind, recipe._parser().parse_args(given))
    return recogniser.model.state_dict(), log


def alike(one: dict, other: dict) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_a_stopped_training_goes_on_to_the_same_weights(recipe, kind, tmp_path):
    whole, log = train(recipe, kind, tmp_path / "whole", "--workers", "1")
    _, begun = train(recipe, kind, tmp_path / "parts", "--minutes", "1e-9")
    resumed, after = train(recipe, kind, tmp_path / "parts")
    assert len(begun) == 1
    assert len(after) == len(log) == 2
    assert after["loss"].tolist() == log["loss"].tolist()
    assert alike(whole, resumed)
    other, _ = train(recipe, kind, tmp_path / "other", "--seed", "1")
    assert not alike(whole, other)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_every_clip_of_an_epoch_is_of_another_pair_with_a_label_for_each_frame(
    recipe, kind, tmp_path
):
    recogniser = recipe.BUILDERS[kind](tmp_path)
    epoch = recipe.Epoch(recogniser, 20, seed=0, epoch=0, epochs=2)
    assert len({epoch._example(index).pair for index in range(20)}) == 20
    (together,) = (epoch[i] for i in range(len(epoch)))
    assert sorted(len(batch["labels"]) for batch in together) == [4, 16]
    for batch in together:
        with torch.no_grad():
            late, early = (recogniser.loss(dict(batch), epoch=number) for number in (5, 0))
        assert torch.isfinite(early)
        assert early > late


def test_another_speaker_says_the_same_words_in_the_same_order(recipe):
    from speechmix.extensions.synthetic_french.synthetic_corpus import random_pair

    example = random_pair(0, seed=0)[0]
    other = recipe.another_speaker(example, np.random.default_rng(0))
    assert (other.text, other.cue, other.target) == (example.text, example.cue, example.target)
    scale = {round(b.end / a.end, 6) for a, b in zip(example.words, other.words, strict=True)}
    assert len(scale) == 1
    assert abs(len(other.audio) - scale.pop() * len(example.audio)) <= 1
    assert np.abs(other.audio).max() <= 1
