"""The recipe that causes errors on purpose: the culprit is where it says, and the tables say what
was counted."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from speechmix.inputs import bundled

RECIPE = Path(__file__).resolve().parents[2] / "recipes" / "why_this_word.py"


@pytest.fixture(scope="module")
def recipe():
    spec = importlib.util.spec_from_file_location("why_this_word", RECIPE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_only_the_culprit_sounds_different(recipe):
    clips = bundled.clips()[:6]
    clip, partner = clips[:2]
    kinds = {}
    for kind, index, spliced in recipe.culprits(clip, clips):
        kinds[kind] = index
        assert [word.text for word in spliced.words] == [word.text for word in clip.words]
        for place in range(len(clip.words)):
            if place != index:
                np.testing.assert_array_equal(
                    recipe.sound_of(spliced, place), recipe.sound_of(clip, place)
                )
            else:
                assert not np.array_equal(
                    recipe.sound_of(spliced, place), recipe.sound_of(clip, place)
                )
        if kind == "swapped cue":
            np.testing.assert_array_equal(
                recipe.sound_of(spliced, index), recipe.sound_of(partner, clip.cue)
            )
    assert set(kinds) == {"swapped cue", "noise", "strange word"}
    assert kinds["swapped cue"] == clip.cue


@pytest.mark.long
def test_it_runs_and_counts(recipe, tmp_path):
    asked = ["--models", "tiny-french-ctc", "--clips", "4", "--measures", "occlusion", "attention"]
    assert recipe.main([*asked, "--out", str(tmp_path)]) == 0
    cases, means = (pd.read_csv(tmp_path / f"{name}.csv") for name in ("cases", "means"))
    assert set(cases["measure"]) == {"occlusion", "attention", "random", "length", "nearness"}
    random = cases[cases["measure"] == "random"]
    np.testing.assert_allclose(random["first"], 1 / random["sources"])
    assert means["first"].between(0, 1).all()
    swapped = cases.query(
        "culprit == 'swapped cue' and where == 'elsewhere' and init == 'trained' and measure == "
        "'occlusion'"
    )
    assert len(swapped)
    by_fill = pd.read_csv(tmp_path / "fills.csv")
    assert set(by_fill["fills"]) == {"silence", "noise"}
    for key, part in by_fill.groupby(["culprit", "where"]):
        counted = cases[
            (cases["culprit"] == key[0])
            & (cases["where"] == key[1])
            & (cases["measure"] == "random")
        ]
        assert part["errors"].unique().tolist() == [(counted["init"] == "trained").sum()]
