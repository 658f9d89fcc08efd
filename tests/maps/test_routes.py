"""Routes: all of them add up to the composed (or rolled-out) map, the strongest come first, and
relays show."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import speechmix
from speechmix.errors import InputError
from speechmix.mixing.maps.composition import roll_out, strongest_routes
from speechmix.reporting.plots import routes_figure
from tests.conftest import maps_of


def sums_by_source(table, count, offset):
    totals = np.zeros(count)
    for row in table.itertuples():
        totals[row.source + (offset if row.side == "decoder" else 0)] += row.share
    return totals


def test_all_routes_of_a_row_are_the_composed_map():
    maps = maps_of("whisper-80", ("value_zeroing", "attention"), spans=((0, 3), (3, 10), (10, 16)))
    for measure in ("value_zeroing", "attention"):
        composed = maps.composed(measure)
        heard = len(composed.sources) - len(composed.targets)
        for row in (0, 3):
            table = strongest_routes(maps, measure, row, max_routes=10**6).to_dataframe()
            sums = sums_by_source(table, len(composed.sources), heard)
            np.testing.assert_allclose(sums, composed.scores[-1, row], atol=1e-6)
            assert table["share"].is_monotonic_decreasing
            few = strongest_routes(maps, measure, row, max_routes=5).to_dataframe()
            np.testing.assert_allclose(few["share"], table["share"][:5])


@pytest.mark.parametrize("measure", ["value_zeroing", "attention", "alti"])
def test_all_routes_of_one_stack_are_the_rollout_and_none_is_missed(measure):
    maps = maps_of("gpt2", (measure,))
    rolled = maps[measure, "decoder"].rollout()
    count, layers = len(rolled.sources), len(rolled.layers)
    by_strength = strongest_routes(maps, measure, 5, max_routes=10**6).to_dataframe()
    expected = roll_out(maps[measure, "decoder"]).scores[-1, 5]
    np.testing.assert_allclose(sums_by_source(by_strength, count, 0), expected, atol=1e-6)
    table = strongest_routes(maps, measure, 5, weighted=False, max_routes=10**6).to_dataframe()
    np.testing.assert_allclose(sums_by_source(table, count, 0), rolled.scores[-1, 5], atol=1e-6)
    matrices = (
        maps[measure, "decoder"].with_identity()
        if measure == "attention"
        else maps[measure, "decoder"].normalized()
    )
    by_hand = []
    for way in itertools.product(range(count), repeat=layers):
        places = (5, *way)
        weights = [matrices.scores[layers - 1 - i][places[i], places[i + 1]] for i in range(layers)]
        by_hand.append(np.prod(weights))
    np.testing.assert_allclose(table["share"][:20], sorted(by_hand, reverse=True)[:20], atol=1e-7)


def test_a_planted_relay_shows():
    """3 steps in GPT-2: the cue goes to a third token in one layer, and from there to the target in
    the next."""
    planted = speechmix.planted.plant("relay", family="gpt2", layer=0, seed=1)
    maps = speechmix.mix(planted.model, planted.item, measures="value_zeroing")
    routes = strongest_routes(maps, "value_zeroing", planted.position, max_routes=40)
    (cue,) = [source for _, source in planted.decisive]
    first = next(way for way in routes.paths if way[-1][1] == cue)
    relay = {(target, source) for _, _, target, source in planted.edges}
    assert {(upper[1], lower[1]) for lower, _, upper in routes.moves(first)} == relay
    assert [name for _, name, _ in routes.moves(first)] == ["decoder 0", "decoder 1"]


def test_the_figure_has_a_ribbon_for_each_route():
    maps = maps_of("whisper-80", ("value_zeroing",), spans=((0, 3), (3, 10), (10, 16)))
    figure = routes_figure(strongest_routes(maps, "value_zeroing", 3, max_routes=6))
    assert len(figure.axes[0].patches) == 6


def test_what_has_no_routes():
    maps = maps_of("gpt2", ("value_zeroing",))
    with pytest.raises(InputError, match="row=99 should be"):
        strongest_routes(maps, "value_zeroing", 99)
    with pytest.raises(InputError, match="explains one number"):
        strongest_routes(maps, "gradient_input", 0)
    with pytest.raises(InputError, match="expected all layers"):
        strongest_routes(maps, "attention", 0)
