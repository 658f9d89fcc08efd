"""How often is an untrained model claimed to be special? `tests/benchmarks/twins_as_trained.py`, short, on SYNTHETIC numbers.

Weights shift a model's contribution on all clips alike, each layer's by its own draw. So clips alone find most twins special.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.test_docs import module_at

twins_as_trained = module_at(Path(__file__).resolve().parents[1] / "benchmarks" / "twins_as_trained.py")
PAGES, TWINS, GROUPS, LAYERS, FEW = 24, 10, 7, 3, 4


def contributions(gain: float, seed: int) -> pd.DataFrame:
    """One model (its gain in the middle layer) and its twins; further twins heard four of seven clips."""
    rng = np.random.default_rng(seed)
    clips, inits = rng.normal(0.30, 0.05, GROUPS), [("trained", None), *(("random", twin) for twin in range(TWINS))]
    rows = []
    for init, twin in inits:
        shifts = rng.normal(0, 0.03, LAYERS)
        heard = GROUPS if twin in (None, 0) else FEW
        for layer in range(LAYERS):
            here = clips[:heard] + shifts[layer] + (gain if init == "trained" and layer == 1 else 0)
            rows += [
                (f"c{clip}", init, twin, layer, value) for clip, value in enumerate(here + rng.normal(0, 0.02, heard))
            ]
    table = pd.DataFrame(rows, columns=["clip", "init", "seed", "layer", "contribution"])
    fixed = {"side": "all", "control": "no", "model": "m", "stack": "encoder", "measure": "value_zeroing"}
    return table.assign(**fixed, group=table["clip"])


@pytest.fixture(scope="module")
def untrained():
    pages = [twins_as_trained.page(contributions(0.0, seed)).assign(model="m", pose=seed) for seed in range(PAGES)]
    return pd.concat(pages, ignore_index=True)


def test_untrained_models_are_seldom_claimed_and_by_clips_alone_often(untrained):
    shares = twins_as_trained.shares(untrained.assign(all="all rows"), ["all"]).iloc[0]
    assert (shares["rows"], shares.twins) == (PAGES * (LAYERS + 2), PAGES)
    low, high = map(float, shares.chance.split(" to "))
    assert low <= shares.both <= high
    assert low <= shares["twins alone"] <= high
    assert shares["clips alone"] > 30
    # A page has two families of comparisons, headlines and layers, of which each keeps 5 %.
    assert untrained[untrained.claim != ""].pose.nunique() / PAGES <= 0.2


def test_every_kind_of_row_keeps_the_level(untrained):
    for row in twins_as_trained.shares(untrained, ["kind"]).to_dict("records"):
        low, high = map(float, row["chance"].split(" to "))
        assert low <= row["both"] <= high, row


def test_a_trained_model_is_claimed_in_its_layer():
    page = twins_as_trained.page(contributions(0.3, seed=0)).set_index("kind")
    assert page.loc["best layer"].claim == "more"
    assert page.loc["best layer"].layer == "1"
    assert page.loc["every layer"].set_index("layer").claim[1] == "more"
