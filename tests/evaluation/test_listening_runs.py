"""Listening in a run's folder: the same results as at once, whatever fails, and nothing twice."""

from __future__ import annotations

import pandas as pd
import pytest

import speechmix
from speechmix.extensions.listening import kind as kinds
from speechmix.extensions.listening import sound_routes
from speechmix.extensions.listening.items import ListeningItem
from speechmix.extensions.listening.listening_runs import listen_to_items
from tests.evaluation import planted_listening as planted


@pytest.fixture(scope="module")
def models():
    """Two models with names of their own."""
    modules = [
        planted.plant_head(planted.random_module(4), 0, 3),
        planted.random_module(5),
    ]
    for module, name in zip(modules, ("listener", "random"), strict=True):
        module.config._name_or_path = module.name_or_path = name
    return [planted.load(module) for module in modules]


def test_a_run_says_where_as_a_report_at_once_does(models, tmp_path, monkeypatch):
    items = planted.items(8)
    same_tokens = ListeningItem(items[0].clip.replace(name="same"), "?", "low", ("low", " low"))
    items = [*items[:4], same_tokens, *items[4:]]
    loaded = []
    loads = [lambda model=model: loaded.append(model.name) or model for model in models]
    found, _ = listen_to_items(loads, items, tmp_path, where=True)
    assert loaded == ["listener", "random"] * 2  # once more for the last step
    expected = speechmix.listening(models[0], items, where=True)
    assert found.skipped[0][0] == "same"
    pd.testing.assert_frame_equal(found.table, expected.table)
    for name in ("layers", "heads", "removal"):
        tables = [getattr(result.routes, name) for result in (found, expected)]
        pd.testing.assert_frame_equal(*tables)
    assert found.routes.named_heads == [(0, 3)]

    def compute_again(model, item, *args, **options):
        assert item.name == "same"  # all others are stored
        raise speechmix.SpeechmixError("same")

    monkeypatch.setattr(kinds, "item_routes", compute_again)
    monkeypatch.setattr(sound_routes, "item_routes", compute_again)
    [again] = listen_to_items(models[:1], items, tmp_path, where=True)
    pd.testing.assert_frame_equal(again.routes.heads, found.routes.heads)
