"""The recipe of the leaderboard: a row for each measure, what knows the answer apart, and no clip
judged twice."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from speechmix.inputs import bundled

RECIPE = Path(__file__).resolve().parents[2] / "recipes" / "measures_on_trial.py"


@pytest.fixture
def recipe(monkeypatch):
    spec = importlib.util.spec_from_file_location("measures_on_trial", RECIPE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    clips = [clip for clip in bundled.clips() if len(clip.words) >= 4][:2]
    monkeypatch.setattr(module.bundled, "clips", lambda: clips)
    for name, value in {
        "MAPS": ("attention",),
        "TO_OUTPUT": ("lrp", "occlusion"),
        "JUDGES": ("mute (zeros)", "patch"),
    }.items():
        monkeypatch.setattr(module, name, value)
    return module


@pytest.mark.long
def test_one_table_a_model_and_nothing_is_judged_twice(recipe, tmp_path, capsys, monkeypatch):
    asked = ["--out", str(tmp_path), "--models", "tiny-french-ctc", "--twins", "1"]
    assert recipe.main(asked) == 0
    printed = capsys.readouterr().out
    rows = {
        line.split(" | ")[0].strip("| "): line
        for line in printed.splitlines()
        if line.startswith("| ")
    }
    assert {
        "attention, encoder, last",
        "attention, encoder, rollout",
        "lrp, encoder, to the output",
    } <= set(rows)
    assert (
        rows["occlusion (zeros), encoder, to the output"].count("*") == 2
    )  # by silence, and not by patching
    assert "| *oracle*, encoder | 1.00 (1.00) |" in printed
    assert (tmp_path / "bundled" / "faithfulness.csv").is_file()
    monkeypatch.setattr("speechmix.extensions.faithfulness.kind.evaluate_item", None)
    assert recipe.main(asked) == 0
    assert capsys.readouterr().out == printed
