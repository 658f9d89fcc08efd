"""Verdicts over many seeds: models that answer from the text alone, and models that need the sound.

Each model has weights, items and training of its own. A verdict that is right in 95 % of models is right in fewer than
`binom.ppf(0.01, count, 0.95)` of them with a probability of at most 1 %.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

import speechmix
from recipes import listening as recipe
from speechmix.extensions.listening.effects import PLAYERS
from speechmix.extensions.listening.items import choose_donors
from speechmix.extensions.listening.listening import Listening
from speechmix.extensions.listening.questions import NOISE, OTHER, SILENCE, SOUNDS
from tests.evaluation import planted_listening as planted

GROUPS = 80  # about as many are needed to show that fewer than 5 % of the answers change


def check_rate(verdicts, expected):
    found, least = verdicts.count(expected), binom.ppf(0.01, len(verdicts), 0.95)
    print(f"{expected}: {found} of {len(verdicts)}")
    assert found >= least, verdicts


def planted_module(seed):
    rng = np.random.default_rng(seed)
    head = int(rng.integers(planted.LAYERS)), int(rng.integers(planted.HEADS))
    return planted.plant_head(planted.random_module(seed), *head)


def answer_by_hand(changed):
    """A result in which the answer is "low", but "high" with one of the sounds."""
    items = planted.items(GROUPS)
    donors, rows = choose_donors(items), []
    for item in items:
        for sound in SOUNDS:
            choice = "high" if sound == changed else "low"
            row = {"item": item.name, "condition": sound, "donor": donors[item.name].name}
            row |= {"choice": choice, "correct": choice == item.answer, "probability": 0.5}
            row |= {"log_probability": np.log(0.5), "mass": 1.0}
            rows.append(row | {f"shapley_{player}": 0.0 for player in PLAYERS})
    return Listening(tuple(items), pd.DataFrame(rows))


@pytest.mark.parametrize("unusual", [SILENCE, NOISE])
def test_a_change_in_silence_or_noise_alone_is_no_use_of_the_sound(unusual):
    found = answer_by_hand(unusual)
    assert found.verdict == "does not use the sound"
    assert f"In {GROUPS} items silence or noise changes the answer" in found.summary
    found = answer_by_hand(OTHER)
    assert found.verdict == "reacts to the sound"
    assert "silence or noise" not in found.summary


@pytest.mark.long
def test_planted_models_listen_and_do_not_without_their_sound():
    verdicts = [
        speechmix.listening(
            planted.load(planted_module(seed)), planted.items(12, seed=seed + 20)
        ).verdict
        for seed in range(30)
    ]
    check_rate(verdicts, "uses the sound")
    deaf = [planted.load(planted.make_deaf(planted_module(seed))) for seed in range(10)]
    items = planted.items(GROUPS)
    check_rate(
        [speechmix.listening(model, items).verdict for model in deaf], "does not use the sound"
    )


@pytest.mark.long
def test_models_trained_on_the_sound_listen():
    items = [recipe.make_items({"sound": 100}, seed=1_000 + seed) for seed in range(8)]
    models = [recipe.train(made, steps=300, batch=16, seed=seed) for seed, made in enumerate(items)]
    held_out = recipe.make_items({"sound": 24}, seed=50)
    check_rate([speechmix.listening(model, held_out).verdict for model in models], "uses the sound")


@pytest.mark.long
def test_models_trained_on_shuffled_sounds_do_not_listen():
    """They get the sound, and could react to it; but it told them nothing."""
    verdicts = []
    held_out = recipe.make_items({"sound": 48, "guess": GROUPS - 48}, seed=50)
    for seed in range(8):
        items = recipe.make_items({"guess": 60, "sound": 30}, seed=1_000 + seed)
        shuffled = recipe.shuffle_sounds(items, seed)
        model = recipe.train(shuffled, steps=250, batch=16, seed=seed)
        verdicts.append(speechmix.listening(model, held_out).verdict)
    check_rate(verdicts, "does not use the sound")
