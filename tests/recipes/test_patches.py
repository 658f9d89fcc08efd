"""The recipes for images and music: they run on random weights, and draw a patch for each unit."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest

from speechmix.adapters.families import registry

RECIPES = Path(__file__).parents[2] / "recipes"


@pytest.mark.parametrize(
    ("recipe", "shape"), [("image_patches.py", (4, 4)), ("music_patches.py", (2, 12))]
)
def test_there_is_a_share_for_each_patch(recipe, shape, tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "_FAMILIES", dict(registry._FAMILIES))
    monkeypatch.setattr(sys, "argv", [recipe, "--out", str(tmp_path / "patches.png")])
    results = runpy.run_path(str(RECIPES / recipe))
    plt.close(results["figure"])
    assert (tmp_path / "patches.png").stat().st_size > 1000
    for ax in results["axes"]:
        (picture,) = ax.images
        assert picture.get_array().shape == shape
        assert np.isfinite(picture.get_array()).all()
