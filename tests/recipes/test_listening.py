"""A tiny audio language model trained on a known mixture of items: the report finds the mixture."""

from __future__ import annotations

import pytest

import speechmix
from recipes import listening as recipe
from speechmix.extensions.listening.effects import NEEDS, find_share


def test_items_are_what_the_recipe_says():
    items = recipe.make_items({"sound": 4, "guess": 4, "conflict": 4}, seed=3)
    assert all(item.answer in item.prompt for item in items if item.kind == "guess")
    assert not any(item.answer in item.full_prompt for item in items if item.kind != "guess")
    assert all(item.is_conflict == (item.kind == "conflict") for item in items)
    assert len({item.clip.audio_hash for item in items}) == 12
    shuffled = recipe.shuffle_sounds(items)
    assert [item.question for item in shuffled] == [item.question for item in items]
    assert {item.clip.audio_hash for item in shuffled} == {item.clip.audio_hash for item in items}


@pytest.mark.long
def test_the_report_finds_the_known_mixture():
    model = recipe.train()
    items = recipe.make_items({"sound": 48, "guess": 32}, seed=50)
    found = speechmix.listening(model, items)
    needs = find_share(found.shares, NEEDS)
    assert needs["value"] == pytest.approx(0.6, abs=0.05)
    assert needs["low"] < 0.6 < needs["high"]
    assert recipe.item_auroc(found) >= 0.95
    assert found.verdict == "uses the sound"
    shuffled = speechmix.listening(model, recipe.shuffle_sounds(items[:48]))
    needs = find_share(shuffled.shares, NEEDS)
    assert needs["low"] < 0 < needs["high"]
    assert speechmix.listening(recipe.deafen(model), items).verdict == "does not use the sound"
