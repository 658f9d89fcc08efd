"""Training with a cue that becomes useful at a known step: the data, the checkpoints, the clips."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import speechmix
from speechmix.extensions.trajectories.checkpoints import list_checkpoints

RECIPES = Path(__file__).resolve().parents[2] / "recipes"


@pytest.fixture(scope="module")
def recipe():
    sys.path.insert(0, str(RECIPES))
    try:
        import train_trajectory
    finally:
        sys.path.remove(str(RECIPES))
    return train_trajectory


def test_the_cue_says_nothing_before_the_step_and_all_after_it(recipe):
    random = np.random.default_rng(0)
    agree = {}
    for is_useful in (False, True):
        texts = [recipe._training_example(random, is_useful).text.split() for _ in range(200)]
        agree[is_useful] = np.mean(
            [(cue == "les") == noun.endswith("s") for _, cue, noun, _ in texts]
        )
    assert agree[True] == 1
    assert 0.4 < agree[False] < 0.6


def test_the_noun_sounds_the_same_in_both_numbers(recipe):
    one, other = (
        recipe.speak(np.random.default_rng(3), "chat", "sg", spelled, "x")
        for spelled in ("sg", "pl")
    )
    np.testing.assert_array_equal(one.audio, other.audio)
    assert (one.text.split()[2], other.text.split()[2]) == ("chat", "chats")
    assert one.foil == "chats"


def test_checkpoints_and_clips_are_written(recipe, tmp_path, capsys):
    given = ["--out", str(tmp_path), "--checkpoints", "2", "--between", "1", "--useful-from", "1"]
    assert recipe.main(given) == 0
    found = list_checkpoints(tmp_path / "seed-0")
    assert [checkpoint.step for checkpoint in found] == [0, 1]
    assert found[0].load(device="cpu").can_transcribe
    clips = speechmix.read_clips(tmp_path / "clips.jsonl")
    assert len(clips) == 2 * len(recipe.NOUNS)
    assert clips[1].words[clips[1].target].text == "chats"
    assert clips[1].foil == "chat"
