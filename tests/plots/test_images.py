"""Every kind of figure against a picture of it (`baseline/`, made by this file: ``python -m
tests.plots.test_images``).

Inputs are fixed numbers. Pictures are compared coarsely (root mean square over pixels), so that
another version of a font library passes and a missing panel, axis, colour bar or band does not;
`test_figures.py` checks the numbers.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.testing.compare import compare_images

from speechmix.inputs.clips.clip import Clip
from speechmix.inputs.words.spans import Span
from speechmix.mixing.maps.mixing_map import MixingMap
from speechmix.reporting import plots

BASELINE = Path(__file__).parent / "baseline"
DPI, TOLERANCE = 50, 10.0
WORDS = ("elle", "a", "perdu", "les", "livres")


def words_map(measure="value_zeroing", stack="encoder", seed=3, layers=4):
    units = tuple(
        Span(5 * i, 5 * i + 5, word, "word", i, 0.2 * i, 0.2 * i + 0.2)
        for i, word in enumerate(WORDS)
    )
    scores = np.random.default_rng(seed).gamma(0.7, 1.0, (layers, 5, 5))
    return MixingMap(scores, units, units, measure, stack, tuple(range(layers)))


def frames_map():
    units = tuple(
        Span(i, i + 1, str(i), "frame", None, 0.02 * i, 0.02 * i + 0.02) for i in range(50)
    )
    distance = np.abs(np.arange(50)[:, None] - np.arange(50))
    return MixingMap(np.exp(-distance / 5.0)[None], units, units, "attention", "encoder", (2,))


def clip():
    times = np.arange(16_000) / 16_000
    words = [(word, 0.2 * i, 0.2 * i + 0.2) for i, word in enumerate(WORDS)]
    samples = 0.3 * np.sin(2 * np.pi * (200 + 800 * times) * times)
    return Clip.from_array(
        samples, 16_000, text=" ".join(WORDS), words=words, cue="les", target="livres", name="fixed"
    )


def table(models=("small", "large"), stacks=("encoder", "cross"), clips=14):
    rng, rows = np.random.default_rng(5), []
    for model, layers in zip(models, (4, 8), strict=False):
        for init, seed in (("trained", None), *(("random", seed) for seed in range(5))):
            for number in range(clips):
                for stack in stacks:
                    for layer in range(layers):
                        for measure in ("value_zeroing", "attention"):
                            gain = (
                                0.4 * np.exp(-((layer / (layers - 1) - 0.6) ** 2) * 12)
                                if init == "trained"
                                else 0
                            )
                            value = (
                                0.15
                                + gain * (1 if measure == "value_zeroing" else 0.4)
                                + rng.uniform(0, 0.2)
                            )
                            known = (model, init, seed, f"c{number}", ("sg", "pl")[number % 2])
                            rows.append((*known, stack, layer, measure, value))
    columns = [
        "model",
        "init",
        "seed",
        "clip",
        "number",
        "stack",
        "layer",
        "measure",
        "contribution",
    ]
    return pd.DataFrame(rows, columns=columns)


def one_model():
    found = table(models=("small",), stacks=("encoder",))
    return found[found["init"] == "trained"]


def probing():
    found = plots.published_probing()
    return plots.layer_curves(
        found[found["stack"] == "encoder"],
        x="depth",
        value="accuracy",
        label="accuracy (%)",
        band="none",
    ).figure


FIGURES = {
    "heat_map": lambda: plots.heat_map(words_map(), layer=1, ax=_axes()).figure,
    "layer_grid": lambda: plots.layer_grid(words_map()),
    "difference_map": lambda: (
        plots.difference_map(words_map(), words_map(seed=4), ax=_axes()).figure
    ),
    "timed_map": lambda: plots.timed_map(words_map()).figure,
    "words_under_sound": lambda: plots.sound_and_map(clip(), words_map()),
    "frames_under_sound": lambda: plots.sound_and_map(clip(), frames_map()),
    "clip_figure": lambda: plots.clip_figure(clip(), {("value_zeroing", "encoder"): words_map()}),
    "measure_heat_map": lambda: plots.measure_heat_map(one_model()).figure,
    "cue_heat_map": lambda: plots.cue_heat_map(table()),
    "cue_difference_map": lambda: plots.cue_difference_map(table()),
    "cue_difference_by_number": lambda: plots.cue_difference_map(
        table(), column="number", first="pl", second="sg"
    ),
    "layer_curves": lambda: (
        plots.layer_curves(table(stacks=("encoder",)).query("measure == 'attention'")).figure
    ),
    "cue_figure_by_depth": lambda: plots.cue_figure(table(), x="depth"),
    "cue_figure_by_number": lambda: plots.cue_figure(
        table(), rows="number", measures=["value_zeroing"]
    ),
    "cue_figure_published": lambda: plots.cue_figure(table(), x="depth", published=True),
    "cue_heat_map_published": lambda: plots.cue_heat_map(
        table(models=("small",), stacks=("encoder",)), published=True
    ),
    "published_probing": probing,
    "clip_distribution": lambda: (
        plots.clip_distribution(table(models=("small",), stacks=("encoder",))).figure
    ),
    "distribution_figure": lambda: plots.distribution_figure(table()),
}


def _axes():
    from matplotlib.figure import Figure

    return Figure(figsize=(3.6, 3), layout="constrained").add_subplot()


_VARIANTS = {  # of figures that are compared, too
    *("cue_heat_map_published", "cue_figure_published", "cue_difference_by_number"),
    *("cue_figure_by_number", "cue_figure_by_depth"),
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.long] * (name in _VARIANTS)) for name in FIGURES],
)
def test_figure_looks_as_it_did(name, tmp_path):
    FIGURES[name]().savefig(tmp_path / f"{name}.png", dpi=DPI)
    different = compare_images(
        str(BASELINE / f"{name}.png"), str(tmp_path / f"{name}.png"), tol=TOLERANCE
    )
    assert different is None, different


def test_a_picture_of_something_else_is_told_apart(tmp_path):
    plots.heat_map(words_map(seed=8), layer=1, ax=_axes()).figure.savefig(
        tmp_path / "other.png", dpi=DPI
    )
    assert (
        compare_images(str(BASELINE / "heat_map.png"), str(tmp_path / "other.png"), tol=TOLERANCE)
        is not None
    )


def test_baselines_are_all_used_and_small():
    paths = list(BASELINE.glob("*.png"))
    assert {path.stem for path in paths} == set(FIGURES)
    assert sum(path.stat().st_size for path in paths) < 1_000_000


if __name__ == "__main__":
    BASELINE.mkdir(exist_ok=True)
    for name, draw in FIGURES.items():
        draw().savefig(BASELINE / f"{name}.png", dpi=DPI)
