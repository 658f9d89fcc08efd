"""Small multiples of models: each panel draws its model's curves, and nobody else's."""

from __future__ import annotations

from itertools import pairwise

import pandas as pd
import pytest
from matplotlib.colors import to_rgb

from speechmix.errors import InputError
from speechmix.extensions.comparison.model_panels import STACK_STYLES, model_panels

LAYERS = {"a": {"encoder": 4, "cross": 2}, "b": {"encoder": 2, "cross": 2}}


@pytest.fixture
def table() -> pd.DataFrame:
    rows = [
        {
            "model": model,
            "init": init,
            "clip": clip,
            "stack": stack,
            "layer": layer,
            "measure": "attention",
            "contribution": 0.1 * (layer + 1) + 0.02 * (clip == "y") + 0.3 * (init == "trained"),
        }
        for model, stacks in LAYERS.items()
        for init in ("trained", "random")
        for stack, n in stacks.items()
        for clip in ("x", "y")
        for layer in range(n)
    ]
    return pd.DataFrame(rows)


def curves(ax) -> dict[tuple[str, str], list[tuple[float, float]]]:
    """Points of each line by its colour and dashes."""
    return {
        (line.get_color(), line.get_linestyle()): [
            (x, round(y, 6)) for x, y in zip(*line.get_data(), strict=True)
        ]
        for line in ax.lines
    }


def test_each_panel_holds_its_model_s_means_over_relative_depth(table):
    first, second = model_panels(table, band="none").axes
    encoder, cross = (STACK_STYLES[name][0] for name in ("encoder", "cross"))
    assert first.get_title() == "a\n4, 2 layers"
    drawn = curves(first)
    assert drawn[encoder, "--"] == [(0, 11), (1 / 3, 21), (2 / 3, 31), (1, 41)]
    assert drawn[encoder, "-"] == [(0, 41), (1 / 3, 51), (2 / 3, 61), (1, 71)]
    assert drawn[cross, "-"] == [(0, 41), (1, 51)]
    assert curves(second)[encoder, "--"] == [(0, 11), (1, 21)]
    assert first.get_ylim() == second.get_ylim()


def test_panels_follow_the_order_asked_for_and_empty_ones_are_not_there(table):
    figure = model_panels(
        table, models=["b", "a"], titles={"b": "of b"}, columns=3, stacks=["encoder"]
    )
    assert [ax.get_title().splitlines()[0] for ax in figure.axes] == ["of b", "a"]
    assert all(len(ax.lines) == 2 for ax in figure.axes)
    five = pd.concat([table.assign(model=name) for name in "vwxyz"])
    assert len(model_panels(five).axes) == 5


def test_stacks_differ_in_lightness_as_well_as_in_colour():
    lightness = sorted(
        0.299 * r + 0.587 * g + 0.114 * b
        for r, g, b in (to_rgb(color) for color, _ in STACK_STYLES.values())
    )
    assert min(b - a for a, b in pairwise(lightness)) > 0.2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"models": ["c"]}, "no rows of c; the table has a, b"),
        ({"columns": 0}, "columns should be at least 1"),
        ({"measure": "alti"}, "no contribution left to draw"),
    ],
)
def test_what_cannot_be_drawn_is_refused(table, options, message):
    with pytest.raises(InputError, match=message):
        model_panels(table, **options)


def test_of_several_measures_one_is_to_be_chosen(table):
    both = pd.concat([table, table.assign(measure="alti")])
    with pytest.raises(InputError, match="draws one measure, found attention, alti"):
        model_panels(both)
    assert len(model_panels(both, measure="alti").axes) == 2
