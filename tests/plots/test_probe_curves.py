"""Figures of probes: what is drawn is in the table, over the axis that both panels share."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from speechmix.errors import InputError
from speechmix.extensions.probing.probe_curves import probe_and_mixing
from speechmix.reporting.plots import probe_figure
from speechmix.reporting.plots.figure_style import png_bytes
from tests.evaluation.probing.synthetic_probes import synthetic_probes


def lines(ax) -> dict[str, np.ndarray]:
    """Solid and dashed lines by their style: y values."""
    return {str(line.get_linestyle()): line.get_ydata() for line in reversed(ax.lines)}


def test_trained_twins_control_and_majority_are_drawn_over_depth():
    table, _ = synthetic_probes()
    figure = probe_figure(table)
    (ax,) = figure.axes
    trained, random = table[table["init"] == "trained"], table[table["init"] == "random"]
    (solid,) = [
        line for line in ax.lines if line.get_linestyle() == "-" and len(line.get_xdata()) == 6
    ]
    assert np.allclose(solid.get_xdata(), [-0.25, 0, 0.25, 0.5, 0.75, 1])
    assert np.allclose(solid.get_ydata(), 100 * trained.accuracy)
    assert np.allclose(lines(ax)["--"], 100 * random.groupby("layer").accuracy.mean())
    assert any(
        np.allclose(line.get_ydata(), 100 * trained.control)
        for line in ax.lines
        if len(line.get_xdata()) == 6
    )
    assert any(set(line.get_ydata()) == {50} for line in ax.lines)
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == [
        "synthetic, trained",
        "synthetic, untrained",
        "control: random labels of words",
        "majority label",
    ]
    assert png_bytes(figure)


def test_stacks_beside_each_other_positions_below_and_published_curves():
    tables = [
        synthetic_probes(stack=stack, position=position)[0]
        for stack, position in (
            ("encoder", "target"),
            ("decoder", "target"),
            ("decoder", "deciding"),
        )
    ]
    figure = probe_figure(pd.concat(tables))
    assert [ax.get_title() for ax in figure.axes] == [
        "encoder, target",
        "decoder, target",
        "encoder, deciding",
        "decoder, deciding",
    ]
    figure = probe_figure(pd.concat(tables[:2]), published=True)
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert {"XLSR-53 (published)", "Whisper-small (published)"} <= set(legend)
    xlsr = [line for line in figure.axes[0].lines if len(line.get_xdata()) == 24]
    assert any(np.isclose(line.get_ydata().max(), 98.7) for line in xlsr)
    assert png_bytes(figure)


def test_what_is_read_stands_above_what_is_mixed():
    table, _ = synthetic_probes()
    layers = pd.DataFrame({"layer": range(5), "contribution": [0.1, 0.2, 0.6, 0.2, 0.1], "key": 0})
    mixing = layers.merge(pd.DataFrame({"clip": ["a", "b", "c"], "key": 0})).assign(
        model="synthetic", init="trained", stack="encoder", measure="value_zeroing"
    )
    figure = probe_and_mixing(table, mixing)
    above, below = figure.axes
    assert above.get_xlim() == below.get_xlim()
    assert np.allclose(lines(below)["-"], [10, 20, 60, 20, 10])
    assert [ax.get_title() for ax in figure.axes] == ["encoder: probed", "encoder: mixed"]
    assert below.get_ylabel() == "value zeroing (%)"
    assert png_bytes(figure)
    decoder = synthetic_probes(stack="decoder")[0]
    figure = probe_and_mixing(pd.concat([table, decoder]), mixing.assign(stack="cross"))
    assert [ax.get_title() for ax in figure.axes] == ["decoder: probed", "cross-attention: mixed"]
    with pytest.raises(InputError, match="no stack has both"):
        probe_and_mixing(table, mixing.assign(stack="cross"))


def test_compression_has_its_own_scale():
    table = pd.DataFrame(
        {
            "model": "m",
            "init": "trained",
            "stack": "encoder",
            "layer": [-1, 0, 1],
            "compression": [1, 1.5, 3],
        }
    )
    (ax,) = probe_figure(table, value="compression").axes
    assert [list(line.get_ydata()) for line in ax.lines] == [[1, 1.5, 3], [1, 1]]


def test_tables_that_cannot_be_drawn_are_refused():
    table, _ = synthetic_probes()
    with pytest.raises(InputError, match="no accuracy"):
        probe_figure(table.drop(columns="accuracy"))
    with pytest.raises(InputError, match="none has these stacks"):
        probe_figure(table, stacks=["decoder"])
    both = pd.concat([table, synthetic_probes(position="cue", label="person")[0]])
    with pytest.raises(InputError, match="label: number, person"):
        probe_figure(both)
    with pytest.raises(InputError, match="value should be"):
        probe_figure(table, value="bits")
    with pytest.raises(InputError, match="published"):
        probe_figure(table.assign(compression=1.0), value="compression", published=True)
