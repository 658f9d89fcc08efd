"""Distances of Value Zeroing: each against its definition on states, and what must hold between
them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from speechmix import Sentence
from speechmix.errors import InputError
from speechmix.extensions.agreement.distance_metric_effect import distance_effect
from speechmix.mixing.maps.numerics import DISTANCES, find_distance
from tests.models import text_models

SENTENCE = Sentence("the cats <mask> very here .", cue=1, target=2)


@pytest.fixture(scope="module")
def table():
    return distance_effect(text_models.bert(), SENTENCE, cue=[1], target=2)


def test_distances_are_their_definitions_also_of_small_changes():
    x, y = np.random.default_rng(0).standard_normal((2, 12))
    for size in (1.0, 1e-6):
        z = x + size * y
        unit = [v / np.sqrt((v**2).sum()) for v in (x, z)]
        expected = {
            "correlation": 1 - np.corrcoef(x, z)[0, 1],
            "unit_euclidean": np.sqrt(((unit[0] - unit[1]) ** 2).sum()),
            "unit_manhattan": np.abs(unit[0] - unit[1]).sum(),
        }
        for name, value in expected.items():
            # 1 - r of nearly equal states is lost to rounding in the plain form, which is why it is
            # not used.
            tolerance = {"abs": 1e-10} if size == 1.0 else {"rel": 1e-6, "abs": 1e-15}
            found = [
                find_distance(name)(torch.tensor(x), torch.tensor(z)),
                find_distance(name, of_change=True)(torch.tensor(x), torch.tensor(size * y)),
            ]
            assert float(found[0]) == pytest.approx(float(found[1]), rel=1e-6)
            if size == 1.0 or name != "correlation":
                assert float(found[1]) == pytest.approx(value, **tolerance)


def test_the_length_of_a_state_counts_for_no_distance_of_normalised_states():
    x, y = torch.randn(2, 12, dtype=torch.double)
    for name in DISTANCES:
        once, longer = (find_distance(name)(x, other) for other in (y, 3 * y))
        assert torch.isclose(once, longer) == (name not in ("euclidean", "manhattan"))


def test_every_distance_is_scored_and_held_against_the_cosine(table):
    assert list(dict.fromkeys(table["distance"])) == list(DISTANCES)
    assert len(table) == len(DISTANCES) * 3
    by = table.groupby("distance")["rank_correlation"]
    assert by.min()["cosine"] == 1
    assert by.min()["unit_euclidean"] == pytest.approx(
        1
    )  # sqrt(2 (1 - cos)): the same order, whatever the model
    assert by.max().max() <= 1 + 1e-12
    assert table["dot_product"].between(0, 1).all()
    assert table["dot_product"].nunique() > 6  # not one distance under six names


def test_an_unknown_distance_or_none_is_refused():
    with pytest.raises(InputError, match="distance must be one of"):
        distance_effect(text_models.bert(), SENTENCE, cue=[1], target=2, distances=["taxi"])
    with pytest.raises(InputError, match="expected one distance or more"):
        distance_effect(text_models.bert(), SENTENCE, cue=[1], target=2, distances=[])
