"""The table over training seeds, on one bundled model and a few clips."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from speechmix.inputs import bundled

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def recipe():
    path = ROOT / "recipes" / "seeds_of_tiny_models.py"
    spec = importlib.util.spec_from_file_location("seeds_of_tiny_models", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["tiny-french-ctc", "tiny-french-whisper"])
def test_every_reading_layer_by_layer_with_what_is_left_when_the_cue_is_silent(
    recipe, name, tmp_path, capsys, monkeypatch
):
    clips = bundled.clips()
    control = next(clip for clip in clips if not clip.foil)
    monkeypatch.setattr(recipe.bundled, "clips", lambda: [*clips[:4], control])
    out = tmp_path / "new" / "seeds.csv"
    assert recipe.main([str(bundled.models()[name]), "--out", str(out)]) == 0
    table = pd.read_csv(out)
    read = {"target", "target, sg", "target, pl", "invariant noun", "number right when silenced"}
    assert read <= set(table.reading) <= {*read, "word after"}
    contributions = table[table.layer >= 0]
    assert contributions.value.between(0, 1).all()
    left = contributions.query("side == 'left' and stack == 'encoder' and layer == 0")
    of = left.groupby("reading").value.mean()
    assert np.isclose(of["target"], (of["target, sg"] + of["target, pl"]) / 2)
    assert "accuracy left" in capsys.readouterr().out
