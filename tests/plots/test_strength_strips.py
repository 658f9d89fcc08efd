"""Strips of mixing strength below curves: what is drawn is what is in the table, and layers below
the floor are grey."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest

from speechmix.mixing.maps.numerics import STRENGTH_FLOOR
from speechmix.reporting.plots import cue_curves as strength_strips
from speechmix.reporting.plots import cue_figure, figure_style, layer_curves
from speechmix.reporting.plots.need_figure import contribution_and_need
from tests.conftest import maps_of

STRENGTHS = {
    "a": (0.3, 2e-4, 0.02, 0.005),
    "b": (0.2, 0.2, 1.4, 0.2),
}  # of layers, by trained model


def table(strengths=STRENGTHS, stacks=("encoder", "cross")):
    rows = [
        {
            "model": model,
            "init": init,
            "seed": None if init == "trained" else 0,
            "clip": clip,
            "stack": stack,
            "layer": layer,
            "measure": measure,
            "contribution": 0.1 * (layer + 1) + 0.01 * number,
            "mixing_strength": strengths[model][layer] * (1 + number) / 1.5
            if init == "trained"
            else 1e-6,
        }
        for model, init, stack, measure, layer, (number, clip) in itertools.product(
            strengths,
            ("trained", "random"),
            stacks,
            ("value_zeroing", "attention"),
            range(4),
            enumerate("xy"),
        )
    ]
    return pd.DataFrame(rows)


def strips_of(figure):
    return [ax for ax in figure.axes if ax.get_yscale() == "log"]


def by_label(figure):
    return [ax for ax in figure.axes if ax.get_yscale() == "linear"]


@pytest.mark.parametrize("narrow", [False, True])
def test_each_panel_has_a_strip_with_the_mean_strengths_of_the_trained_models(narrow):
    figure = cue_figure(table(), narrow=narrow)
    assert len(strips_of(figure)) == len(by_label(figure)) == 4
    for strip in strips_of(figure):
        lines = [line for line in strip.lines if line.get_linestyle() == "-"]
        assert len(lines) == 2
        np.testing.assert_allclose(
            lines[0].get_ydata(), [0.3, 1e-3, 0.02, 0.005]
        )  # what is lower is drawn at the edge
        np.testing.assert_allclose(lines[1].get_ydata(), STRENGTHS["b"])
        (floor,) = [line for line in strip.lines if line.get_linestyle() == "--"]
        assert list(floor.get_ydata()) == [STRENGTH_FLOOR] * 2
        (triangles,) = [
            line for line in strip.lines if line.get_marker() == "v" and len(line.get_xdata())
        ]
        assert triangles.get_xdata().tolist() == [1]
        low, high = strip.get_ylim()
        assert low < 1e-3
        assert high > 1.4
    assert strength_strips.STRIP_NOTE.split(";")[0] in figure.legends[
        0
    ].get_title().get_text().replace("\n", " ")
    figure_style.png_bytes(figure)  # lays it out
    boxes = [ax.get_tightbbox() for ax in figure.axes]
    assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))


def test_layers_below_the_floor_are_grey_in_trained_models_alone():
    panel = by_label(cue_figure(table(), stacks=["encoder"], measures=["value_zeroing"]))[0]
    grey = [line for line in panel.lines if line.get_color() == strength_strips.IDLE_COLOR]
    assert [line.get_xdata().tolist() for line in grey] == [[0, 1, 2, 3]]
    points = [
        line
        for line in panel.lines
        if line.get_markerfacecolor() == "white" and line.get_linestyle() == "None"
    ]
    assert [line.get_xdata().tolist() for line in points] == [[1, 3]]
    np.testing.assert_allclose(points[0].get_ydata(), [20.5, 40.5])


def test_pieces_keep_the_colour_between_layers_that_are_not_idle():
    strengths = {"a": (0.3, 0.3, 0.3, 0.001)}
    panel = by_label(cue_figure(table(strengths), stacks=["encoder"], measures=["attention"]))[0]
    pieces = [
        (line.get_color(), line.get_xdata().tolist())
        for line in panel.lines
        if line.get_linewidth() == 1.4
    ]
    assert ("#000000", [0, 1, 2]) in pieces
    assert (strength_strips.IDLE_COLOR, [2, 3]) in pieces


@pytest.mark.parametrize("change", ["no column", "missing", "of twins alone"])
def test_without_strengths_of_trained_models_nothing_is_added(change):
    changed = table()
    if change == "no column":
        changed = changed.drop(columns="mixing_strength")
    elif change == "missing":
        changed["mixing_strength"] = np.nan
    else:
        changed.loc[changed["init"] == "trained", "mixing_strength"] = np.nan
    for figure in (cue_figure(changed), contribution_and_need(changed, pd.DataFrame())):
        assert strips_of(figure) == []
        assert not any(
            line.get_color() == strength_strips.IDLE_COLOR
            for ax in figure.axes
            for line in ax.lines
        )
        assert "strips" not in figure.legends[0].get_title().get_text()


def test_some_panels_may_lack_them():
    some = table()
    some.loc[some["measure"] == "attention", "mixing_strength"] = np.nan
    figure = cue_figure(some)
    assert [
        sum(line.get_linestyle() == "-" for line in strip.lines) for strip in strips_of(figure)
    ] == [2, 2, 0, 0]


def test_one_panel_of_its_own_and_over_depth():
    rows = table().query("stack == 'cross' and measure == 'attention'")
    figure = layer_curves(rows, x="depth").figure
    (strip,) = strips_of(figure)
    assert strip.lines[1].get_xdata().tolist() == [0, 1 / 3, 2 / 3, 1]
    assert strip.get_xlabel().startswith("relative depth")


@pytest.mark.parametrize("narrow", [False, True])
def test_need_has_strips_below_contribution(narrow):
    drops = pd.DataFrame(
        [
            {"model": model, "ablated": stack, "layer": layer, "drop": 1.0, "low": 0.5, "high": 1.5}
            for model, stack, layer in itertools.product("ab", ("encoder", "cross"), range(4))
        ]
    )
    figure = contribution_and_need(table(), drops, narrow=narrow)
    assert (len(strips_of(figure)), len(by_label(figure))) == (2, 4)
    alone = contribution_and_need(table(), drops.iloc[:0], narrow=narrow)
    assert (len(strips_of(alone)), len(by_label(alone))) == (2, 2)
    assert [ax.get_xlabel() for ax in strips_of(alone)] == ["layer", "layer"]


def test_panels_of_maps_say_the_strength():
    mixing_map = maps_of("whisper-80", ("attention",))["attention", "cross"]
    strengths = mixing_map.mixing_strength.mean(axis=1)
    titles = [ax.get_title() for ax in mixing_map.show().axes[:3]]
    assert titles == [
        f"layer {layer}, strength {strength:.2g}" for layer, strength in enumerate(strengths)
    ]
    title = mixing_map.plot(layer=1, ax=figure_style.new_figure(4, 3).add_subplot()).get_title()
    assert title == f"attention, cross, layer 1\nmixing strength {strengths[1]:.2g}"
