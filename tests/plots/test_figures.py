"""Figures: structure (panels, labels, limits), awkward maps, and what a hostile label may not
do."""

import base64
import dataclasses
import subprocess
import sys
import warnings
import xml.etree.ElementTree as ElementTree
from io import BytesIO

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot
from matplotlib.figure import Figure
from matplotlib.text import Text

from speechmix.errors import InputError
from speechmix.evaluation.cue_contribution import cue_contribution
from speechmix.evaluation.statistics.groups import choose_evenly
from speechmix.evaluation.statistics.intervals import mean_intervals, twin_bands
from speechmix.inputs.clips.clip import Clip
from speechmix.inputs.words.spans import Span, Word
from speechmix.mixing.maps.map_set import Maps
from speechmix.mixing.maps.mixing_map import MixingMap
from speechmix.reporting import plots
from speechmix.reporting.plots.cue_tables import curve_table, select_cue_rows
from speechmix.reporting.plots.map_figures import (
    as_html,
    clip_figure,
    cue_figure,
    cue_heat_map,
    heat_map,
    layer_grid,
)

WORDS = (
    "elle",
    "a",
    "perdu",
    "les",
    "livres",
    "anticonstitutionnellement",
    "où",
    "l'hétérogénéité",
)
MEASURES, STACKS = ("value_zeroing", "attention", "attention_norm"), ("encoder", "decoder", "cross")


def word_units(count):
    return tuple(
        Span(5 * i, 5 * i + 5, WORDS[i % len(WORDS)], "word", i, 0.1 * i, 0.1 * i + 0.1)
        for i in range(count)
    )


def frame_units(count, *, timed=True):
    return tuple(
        Span(
            i,
            i + 1,
            str(i),
            "frame",
            None,
            0.02 * i if timed else None,
            0.02 * i + 0.02 if timed else None,
        )
        for i in range(count)
    )


def mixing_map(
    layers=4,
    targets=5,
    sources=5,
    *,
    measure="value_zeroing",
    stack="encoder",
    heads=None,
    **provenance,
):
    targets, sources = (
        word_units(side) if isinstance(side, int) else side for side in (targets, sources)
    )
    layers = tuple(range(layers)) if isinstance(layers, int) else layers
    shape = (len(layers), *([heads] if heads else []), len(targets), len(sources))
    scores = np.random.default_rng(3).gamma(0.7, 1.0, shape)
    return MixingMap(scores, targets, sources, measure, stack, layers, provenance)


def sine_clip(count=5, *, cue=3, target=4, seconds=1.0, **options):
    samples = 0.3 * np.sin(2 * np.pi * 440 * np.arange(int(16_000 * seconds)) / 16_000)
    edges = np.linspace(0.1 * seconds, 0.9 * seconds, count + 1)
    words = [Word(WORDS[i % len(WORDS)], edges[i], edges[i + 1]) for i in range(count)]
    return Clip.from_array(samples, 16_000, words=words or None, cue=cue, target=target, **options)


def cue_table(
    *, models=("a/small",), clips=3, stacks=("encoder",), measures=MEASURES[:2], layers=4
):
    rng = np.random.default_rng(5)
    rows = [
        (model, init, seed, f"clip{clip}", stack, layer, measure, rng.uniform(0.1, 0.6))
        for model in models
        for init, seeds in (("random", (0, 1)), ("trained", (None,)))
        for seed in seeds
        for clip in range(clips)
        for stack in stacks
        for layer in range(layers)
        for measure in measures
    ]
    return pd.DataFrame(
        rows, columns=["model", "init", "seed", "clip", "stack", "layer", "measure", "contribution"]
    )


def saved(figure):
    """PNG and SVG bytes; warnings (labels that do not fit, missing letters) are errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        files = BytesIO(), BytesIO()
        figure.savefig(files[0], format="png")
        figure.set_layout_engine("none")  # everything has its place now
        figure.savefig(files[1], format="svg")
    png, svg = (file.getvalue() for file in files)
    assert png.startswith(b"\x89PNG")
    assert ElementTree.fromstring(svg).tag.endswith("svg")
    return png


def maps_of(figure):
    return [image for ax in figure.axes for image in ax.images]


def labels(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def drawn(figure):
    """Draw a figure, so that everything has its place; warnings are errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure.canvas.draw()


def text_boxes(axis):
    return [label.get_window_extent() for label in axis.get_ticklabels() if label.get_text()]


@pytest.fixture(autouse=True)
def _close_and_leave_style_alone():
    before = dict(matplotlib.rcParams)
    yield
    pyplot.close("all")
    assert dict(matplotlib.rcParams) == before


# heat_map
# -------------------------------------------------------------------------------------------------------------


def test_heat_map_has_targets_downwards_sources_across_and_shares_in_percent():
    scores = np.array([[[9.0, 1.0], [1.0, 1.0]]])
    units = (Span(0, 5, "les", word=0), Span(5, 9, "livres", word=1))
    ax = heat_map(
        MixingMap(scores, units, units, "value_zeroing", "encoder", (3,)), ax=Figure().add_subplot()
    )
    assert ax.get_title() == "value zeroing, encoder, layer 3"
    assert labels(ax.xaxis) == labels(ax.yaxis) == ["les", "livres"]
    assert ax.get_ylim() == (2, 0)
    np.testing.assert_allclose(ax.images[0].get_array(), [[90, 10], [50, 50]])
    assert ax.figure.axes[1].get_ylabel() == "share of row (%)"
    assert ax.images[0].get_clim() == (0, 90)


def test_raw_scores_are_drawn_as_they_are():
    one = mixing_map()
    ax = one.plot(layer=1, normalize=False)
    np.testing.assert_allclose(ax.images[0].get_array(), one.scores[1])
    assert ax.figure.axes[1].get_ylabel() == "raw score"


def test_layer_is_the_models_number_and_the_last_by_default():
    some = mixing_map((2, 7))
    assert heat_map(some).get_title().endswith("layer 7")
    assert heat_map(some, layer=2).get_title().endswith("layer 2")
    with pytest.raises(InputError, match="no layer 3"):
        heat_map(some, layer=3)


def test_heads_are_normalised_first_and_averaged_after():
    each = mixing_map(heads=3)
    expected = 100 * (each.scores / each.scores.sum(-1, keepdims=True)).mean(1)
    np.testing.assert_allclose(heat_map(each, layer=0).images[0].get_array(), expected[0])


def test_missing_scores_are_masked_and_zero_rows_stay_zero():
    one = mixing_map(1)
    one.scores[0, 0, 2] = np.nan
    one.scores[0, 1] = 0
    ax = heat_map(one)
    drawn = ax.images[0].get_array()
    assert drawn.mask.tolist() == [[True] * 5] + [[False] * 5] * 4
    assert (drawn[1] == 0).all()
    assert "grey: no value" in ax.figure.axes[1].get_ylabel()
    saved(ax.figure)


@pytest.mark.parametrize("value", [0.0, np.nan])
def test_map_without_anything_in_it(value):
    one = mixing_map(2)
    one.scores[:] = value
    saved(heat_map(one).figure)
    saved(layer_grid(one))


def test_rows_with_one_source_do_not_set_the_scale():
    scores = np.array([[[1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [2.0, 1.0, 1.0]]])
    units = word_units(3)
    ax = heat_map(MixingMap(scores, units, units, "attention", "decoder", (0,)))
    assert ax.images[0].get_clim() == (0, 50)
    assert ax.images[0].colorbar.extend == "max"


@pytest.mark.parametrize(
    ("targets", "sources"),
    [(1, 1), (1, 9), pytest.param(50, 50, marks=pytest.mark.long), (2, 40), (30, 2)],
)
def test_labels_of_any_number_of_words_do_not_overlap(targets, sources):
    ax = heat_map(mixing_map(1, targets, sources))
    drawn(ax.figure)
    for axis in (ax.xaxis, ax.yaxis):
        boxes = text_boxes(axis)
        assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[i + 1 :])
    assert all(ax.figure.bbox.contains(*box.min) for box in text_boxes(ax.xaxis))


def test_long_dollar_accent_and_empty_labels_are_plain_text():
    texts = ["x" * 60, "$\\frac$", "dé\nçà", "", "<script>"]
    units = tuple(Span(i, i + 1, text, "word", i) for i, text in enumerate(texts))
    ax = heat_map(mixing_map(1, units, units))
    assert labels(ax.yaxis) == ["x" * 21 + "…", "$\\frac$", "dé çà", "3", "<script>"]
    saved(ax.figure)


def test_frame_map_has_few_ticks_in_seconds():
    frames = frame_units(250)
    ax = heat_map(mixing_map(1, frames, frames))
    assert ax.get_xlabel() == "source, time (s)"
    assert 3 <= len(ax.get_xticks()) <= 16
    assert labels(ax.xaxis)[-1] == "5"
    assert ax.get_xticks()[-1] == pytest.approx(250)
    saved(ax.figure)


def test_frames_without_times_are_numbered_and_chosen_frames_are_labelled():
    frames = frame_units(300, timed=False)
    ax = heat_map(mixing_map(1, (frames[7], frames[90]), frames))
    assert ax.get_xlabel() == "source, frame"
    assert "100" in labels(ax.xaxis)
    assert labels(ax.yaxis) == ["7", "90"]


def test_heat_map_draws_into_a_given_panel():
    figure = Figure(figsize=(8, 3), layout="constrained")
    left, right = figure.subplots(1, 2)
    assert heat_map(mixing_map(), ax=right) is right
    assert not left.images
    assert not pyplot.get_fignums()
    saved(figure)


# layer_grid
# -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layers", [1, 7, pytest.param(12, marks=pytest.mark.long)])
def test_grid_has_a_panel_for_every_layer_on_one_scale(layers):
    figure = mixing_map(layers).show()
    images = maps_of(figure)
    assert [image.axes.get_title() for image in images] == [f"layer {i}" for i in range(layers)]
    assert len({image.get_clim() for image in images}) == 1
    saved(figure)


def test_grid_of_many_layers_shows_twelve_with_first_and_last():
    titles = [image.axes.get_title() for image in maps_of(layer_grid(mixing_map(24)))]
    assert len(titles) == 12
    assert (titles[0], titles[-1]) == ("layer 0", "layer 23")
    assert len(maps_of(layer_grid(mixing_map(24), layers=range(20)))) == 20


def test_grid_labels_only_the_outer_edge():
    axes = [image.axes for image in maps_of(layer_grid(mixing_map(8)))]
    left = [ax.yaxis.get_tick_params()["labelleft"] for ax in axes]
    below = [ax.xaxis.get_tick_params()["labelbottom"] for ax in axes]
    assert left == [True, False, False, False] * 2
    assert below == [False] * 4 + [True] * 4


def test_grid_of_one_target_row_and_of_frames():
    saved(layer_grid(mixing_map(6, word_units(9)[4:5], 9)))
    saved(layer_grid(mixing_map(2, frame_units(80), frame_units(80))))


def test_grid_refuses_what_it_cannot_draw():
    with pytest.raises(InputError, match="no layer 9"):
        layer_grid(mixing_map(), layers=[0, 9])
    with pytest.raises(InputError, match="empty"):
        layer_grid(mixing_map(), layers=[])
    with pytest.raises(InputError, match="no cells"):
        layer_grid(mixing_map(2, 0, 4))


def test_title_names_a_model_but_not_the_folder_it_lies_in():
    figure = layer_grid(
        mixing_map(2, model="/home/someone/models/tiny", init="random", clip="demo")
    )
    assert figure.get_suptitle() == "value zeroing, encoder · tiny (untrained) · demo"


def test_values_are_chosen_evenly():
    assert choose_evenly(range(3), 12) == [0, 1, 2]
    assert choose_evenly(range(32), 4) == [0, 10, 21, 31]


# clip_figure
# ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n_stacks", "n_measures"),
    [
        (1, 1),
        pytest.param(1, 3, marks=pytest.mark.long),
        pytest.param(3, 1, marks=pytest.mark.long),
        pytest.param(3, 3, marks=pytest.mark.long),
    ],
)
def test_clip_figure_has_a_row_for_each_measure_and_stack(n_measures, n_stacks):
    maps = {
        (measure, stack): mixing_map(12, measure=measure, stack=stack)
        for measure in MEASURES[:n_measures]
        for stack in STACKS[:n_stacks]
    }
    figure = clip_figure(sine_clip(text="elle a perdu les livres"), Maps(maps))
    images = maps_of(figure)
    assert len(images) == 4 * n_measures * n_stacks
    assert len({image.get_clim() for image in images}) == 1
    curves = [ax for ax in figure.axes if ax.get_xlabel() == "layer (counted from 0)"]
    assert [len(ax.lines) for ax in curves] == [n_measures] * n_stacks
    assert all(ax.get_ylim()[0] == 0 for ax in curves)
    assert figure.get_figheight() < 17
    saved(figure)


def test_the_legend_of_a_clip_figure_fits_into_it():
    figure = clip_figure(sine_clip(), {("value_zeroing", "decoder"): decoder_maps(2)})
    figure.draw_without_rendering()
    legends = [part for part in figure.findobj(Text) if "outlined:" in part.get_text()]
    assert legends
    for legend in legends:
        box = legend.get_window_extent()
        assert box.x0 >= 0
        assert box.x1 <= figure.bbox.x1


def test_wide_letters_of_a_clip_figure_have_room():
    words = ("W" * 16, "M" * 16, "les")
    units = tuple(
        Span(5 * i, 5 * i + 5, word, "word", i, 0.3 * i, 0.3 * i + 0.3)
        for i, word in enumerate(words)
    )
    times = [(word, 0.3 * i, 0.3 * i + 0.3) for i, word in enumerate(words)]
    clip = Clip.from_array(np.ones(16_000), 16_000, words=times, cue=0, target=1)
    figure = clip_figure(clip, {("value_zeroing", "encoder"): mixing_map(4, units, units)})
    figure.draw_without_rendering()
    [image, *_] = maps_of(figure)
    note = next(text for text in figure.findobj(Text) if "outlined:" in text.get_text())
    for label in image.axes.get_yticklabels():
        assert label.get_window_extent().x0 > image.axes.yaxis.label.get_window_extent().x1
    for label in image.axes.get_xticklabels():
        assert label.get_window_extent().y0 > note.get_window_extent().y1
    assert image.axes.yaxis.label.get_window_extent().x0 >= 0


def test_clip_figure_shows_the_peak_layer_and_the_curve_in_percent():
    one, clip = mixing_map(12), sine_clip()
    one.scores[7, 4, 3] = 50.0
    figure = clip_figure(clip, {("value_zeroing", "encoder"): one})
    titles = [image.axes.get_title().strip() for image in maps_of(figure)]
    assert titles == ["layer 0", "layer 6", "layer 7, peak", "layer 11"]
    (line,) = next(ax for ax in figure.axes if ax.get_ylabel() == "cue contribution (%)").lines
    np.testing.assert_allclose(line.get_ydata(), 100 * cue_contribution(one, cue=3, target=4))


def decoder_maps(layers=4, *, heads=None):
    """A decoder's map: rows are the tokens written, a position later than those fed; the last
    letter decides."""
    fed = tuple(Span(i, i + 1, text, "token", word) for i, (text, word) in enumerate(TOKENS[:-1]))
    written = tuple(
        Span(i, i + 1, text, "token", word) for i, (text, word) in enumerate(TOKENS[1:])
    )
    return mixing_map(
        layers,
        written,
        fed,
        stack="decoder",
        heads=heads,
        deciding_position=len(TOKENS) - 3,
        cue=3,
        target=4,
    )


def flat(one):
    """The same map of a model that has learned nothing."""
    return dataclasses.replace(one, scores=np.ones_like(one.scores))


TOKENS = [
    ("<s>", None),
    ("l", 3),
    ("e", 3),
    ("s", 3),
    *((letter, 4) for letter in "livres"),
    ("</s>", None),
]


def outlines(ax):
    """Corners of what is outlined: left, top, right, bottom."""
    green = matplotlib.colors.to_rgba(plots.figure_style.CELL_COLOR)
    boxes = [patch for patch in ax.patches if patch.get_edgecolor() == green]
    return [
        (box.get_x(), box.get_y(), box.get_x() + box.get_width(), box.get_y() + box.get_height())
        for box in boxes
    ]


def test_one_line_goes_around_all_that_the_cue_gives_the_target():
    image = maps_of(clip_figure(sine_clip(), {("value_zeroing", "decoder"): decoder_maps()}))[0]
    assert outlines(image.axes) == [(1, 3, 4, 9)]  # columns l e s, rows l i v r e s
    several = maps_of(
        clip_figure(sine_clip(cue=(0, 1, 3)), {("value_zeroing", "encoder"): mixing_map()})
    )[0]
    assert outlines(several.axes) == [(0, 4, 2, 5), (3, 4, 4, 5)]  # a word lies between


@pytest.mark.parametrize("measures", [1, 9], ids=["one measure", "labels thinned"])
def test_a_decoders_rows_are_called_predicted_and_its_deciding_row_is_labelled_and_marked(measures):
    maps = {(f"measure_{number}", "decoder"): decoder_maps(1) for number in range(measures)}
    figure = clip_figure(sine_clip(), maps)
    texts = [text.get_text() for ax in figure.axes for text in ax.texts]
    assert "decoder: row = predicted token (target), column = input token (source)" in texts
    for image in maps_of(figure):
        ticks = dict(zip(image.axes.get_yticks(), labels(image.axes.yaxis), strict=True))
        assert ticks[8.5] == "s"
        (mark,) = [
            line for line in image.axes.lines if line.get_marker() == plots.figure_style.ROW_MARKER
        ]
        assert mark.get_ydata() == [8.5]
    assert len(ticks) == (10 if measures == 1 else 4)
    assert "deciding row" in figure.subfigs[1].get_supxlabel()


def test_a_text_decoders_rows_are_not_called_predicted():
    held = tuple(Span(i, i + 1, text, "token", word) for i, (text, word) in enumerate(TOKENS))
    axes = [
        mixing_map(1, held, held, stack="decoder").plot(ax=Figure().add_subplot()),
        decoder_maps(1).plot(),
    ]
    assert [ax.get_ylabel() for ax in axes] == ["target", "predicted token (target)"]
    assert [ax.get_xlabel() for ax in axes] == ["source", "input token (source)"]
    pyplot.close("all")


def test_curves_name_their_rows_and_have_the_twins_as_thin_lines():
    maps = {
        ("value_zeroing", "encoder"): mixing_map(),
        ("value_zeroing", "decoder"): decoder_maps(),
    }
    twin = {key: flat(one) for key, one in maps.items()}
    figure = clip_figure(sine_clip(), maps, twins=[twin])
    curves = {
        ax.get_title(): ax.lines
        for ax in figure.axes
        if ax.get_xlabel() == "layer (counted from 0)"
    }
    assert list(curves) == ["encoder, target rows", "decoder, deciding row"]
    for (title, (trained, untrained)), (key, one) in zip(curves.items(), maps.items(), strict=True):
        rows = "deciding" if "deciding" in title else "target"
        for line, drawn in ((trained, one), (untrained, twin[key])):
            np.testing.assert_allclose(
                line.get_ydata(), 100 * cue_contribution(drawn, cue=3, target=4, rows=rows)
            )
        assert untrained.get_linewidth() < trained.get_linewidth()
    assert not any(
        ax.lines[1:] for ax in clip_figure(sine_clip(), maps).axes if "rows" in ax.get_title()
    )


def test_stacks_have_the_same_layers_or_each_a_choice_of_its_own():
    encoder, decoder = mixing_map(12), decoder_maps(12)
    encoder.scores[3, 4, 3] = decoder.scores[8, 8, 1:4] = 90.0
    maps = {("value_zeroing", "encoder"): encoder, ("value_zeroing", "decoder"): decoder}
    titles = [image.axes.get_title().strip() for image in maps_of(clip_figure(sine_clip(), maps))]
    assert titles == [
        "layer 0",
        "layer 3, peak",
        "layer 6",
        "layer 8",
        "layer 11",
        "layer 0",
        "layer 3",
        "layer 6",
        "layer 8, peak",
        "layer 11",
    ]
    maps = {**maps, ("value_zeroing", "decoder"): decoder_maps(2)}
    shown = [
        image.axes.get_title().strip().split(",")[0]
        for image in maps_of(clip_figure(sine_clip(), maps))
    ]
    assert shown == ["layer 0", "layer 3", "layer 6", "layer 11", "layer 0", "layer 1"]


def test_framed_cell_is_the_share_without_silence_and_padding():
    units = (*word_units(5), Span(40, 90, "<padding>", "padding"))
    one = mixing_map(2, units, units)
    image = maps_of(clip_figure(sine_clip(), {("value_zeroing", "encoder"): one}, layers=[1]))[0]
    assert image.get_array().shape == (5, 5)
    assert image.get_array()[4, 3] == pytest.approx(100 * cue_contribution(one, cue=3, target=4)[1])
    (frame,) = image.axes.patches
    assert frame.get_xy() == (3, 4)


def test_clip_figure_labels_words_and_colours_cue_and_target():
    figure = clip_figure(sine_clip(), {})
    wave = figure.axes[0]
    assert labels(wave.xaxis) == list(WORDS[:5])
    colors = [label.get_color() for label in wave.get_xticklabels()]
    assert len({*colors[:3]}) == 1
    assert len({*colors}) == 3
    legend = next(ax.get_legend() for ax in figure.axes if ax.get_legend())
    assert [text.get_text() for text in legend.get_texts()] == ["cue: les", "target: livres"]


def test_clip_figure_takes_given_contributions_and_layers():
    maps = {("attention", "encoder"): mixing_map((3, 9), measure="attention")}
    clip = sine_clip(cue=None, target=None)
    figure = clip_figure(
        clip, maps, layers=[9], contributions={("attention", "encoder"): np.array([0.1, 0.2])}
    )
    assert len(maps_of(figure)) == 1
    (line,) = next(ax for ax in figure.axes if ax.get_ylabel() == "cue contribution (%)").lines
    assert line.get_xdata().tolist() == [3, 9]
    with pytest.raises(InputError, match="no layer 4"):
        clip_figure(clip, maps, layers=[4])
    with pytest.raises(InputError, match="layers is empty"):
        clip_figure(clip, maps, layers=[])


@pytest.mark.long
def test_clip_figure_of_silence_of_many_words_and_of_none():
    saved(clip_figure(Clip.from_array(np.zeros(300), 16_000), {}))
    saved(
        clip_figure(
            sine_clip(50, seconds=10.0), {("value_zeroing", "encoder"): mixing_map(24, 50, 50)}
        )
    )
    hostile = Clip.from_array(
        np.ones(8000), 16_000, words=[("$\\frac$", 0, 0.2), ("_b_", 0.2, 0.5)], cue=0, target=1
    )
    saved(clip_figure(hostile, {("value_zeroing", "encoder"): mixing_map(1, 2, 2)}))


# heads
# ----------------------------------------------------------------------------------------------------------------


def test_a_head_alone_is_drawn_as_it_is_and_named():
    one = decoder_maps(3, heads=4)
    ax = one.plot(layer=1, head=2, ax=Figure().add_subplot())
    expected = one.scores[1, 2] / one.scores[1, 2].sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(ax.images[0].get_array(), 100 * expected)
    assert ax.get_title() == "value zeroing, decoder, head 2, layer 1"
    for head, message in ((4, "heads are 0 to 3"), (-1, "no head -1")):
        with pytest.raises(InputError, match=message):
            one.plot(head=head)


def test_a_map_without_heads_says_what_to_ask_for():
    for draw in (lambda one: one.plot(head=0), plots.head_grid, lambda one: one.head(0)):
        with pytest.raises(InputError, match=r"heads='each'"):
            draw(mixing_map(2))


def test_heads_and_layers_are_small_multiples_on_one_scale():
    one = decoder_maps(3, heads=4)
    figure = one.show_heads(layers=[0, 2], heads=[3, 1])
    images = maps_of(figure)
    assert len(images) == 4
    assert len({image.get_clim() for image in images}) == 1
    shares = one.normalized().scores
    for image, (layer, head) in zip(images, [(0, 3), (0, 1), (2, 3), (2, 1)], strict=True):
        np.testing.assert_allclose(image.get_array(), 100 * shares[layer, head])
        assert outlines(image.axes) == [(1, 3, 4, 9)]
    assert [image.axes.get_title() for image in images] == ["head 3", "head 1", "", ""]
    assert (figure.get_supylabel(), figure.get_supxlabel()) == (
        "predicted token (target)",
        "input token (source)",
    )
    saved(figure)
    for wrong in ({"layers": [7]}, {"heads": [4]}, {"heads": []}):
        with pytest.raises(InputError):
            plots.head_grid(one, **wrong)


@pytest.mark.long
def test_of_many_heads_and_layers_some_are_drawn_evenly():
    figure = plots.head_grid(mixing_map(24, 2, 2, heads=20))
    assert len(maps_of(figure)) == 12 * 16
    assert figure.axes[15].get_title() == "head 19"
    assert max(figure.get_size_inches()) < 15


# cue_figure, cue_heat_map
# ---------------------------------------------------------------------------------------------


def test_cue_figure_has_a_panel_for_each_stack_and_measure():
    table = cue_table(stacks=STACKS, measures=MEASURES[:2], clips=12)
    figure = cue_figure(table)
    assert [ax.get_title() for ax in figure.axes[:2]] == [
        "value zeroing, encoder (12 clips)",
        "value zeroing, decoder (12 clips)",
    ]
    assert len(figure.axes) == 6
    assert all(ax.get_ylim()[0] == 0 for ax in figure.axes)
    assert len(cue_figure(table, stacks=["cross"], measures=["attention"]).axes) == 1
    saved(figure)


def test_cue_line_is_the_mean_over_clips_of_the_mean_over_seeds():
    table = cue_table(clips=12, measures=("attention",))
    (ax,) = cue_figure(table).axes
    trained, random = ax.lines
    assert (trained.get_linestyle(), random.get_linestyle()) == ("-", "--")
    mine = table[table["init"] == "random"].groupby("layer")["contribution"].mean()
    np.testing.assert_allclose(random.get_ydata(), 100 * mine)
    assert len(ax.collections) == 2  # the bands


def test_few_clips_are_drawn_one_by_one():
    (ax,) = cue_figure(cue_table(clips=4, measures=("attention",))).axes
    assert len(ax.lines) == 2 * (4 + 1)


@pytest.mark.parametrize(
    "change",
    [
        {"clips": 1},
        {"layers": 1},
        pytest.param({"models": ("$x$", "_b", "/c/d")}, marks=pytest.mark.long),
    ],
)
def test_cue_figures_of_odd_tables(change):
    table = cue_table(measures=MEASURES[:1], **change)
    saved(cue_figure(table))
    saved(cue_heat_map(table))


def test_cue_heat_map_writes_the_number_in_each_cell_trained_first():
    table = cue_table(stacks=("encoder", "cross"), measures=MEASURES)
    figure = cue_heat_map(table)
    images = maps_of(figure)
    assert [image.axes.get_title() for image in images] == [
        "encoder, trained",
        "encoder, untrained",
        "cross, trained",
        "cross, untrained",
    ]
    assert len({image.get_clim() for image in images}) == 1
    for image in images:
        written = [float(text.get_text()) for text in image.axes.texts]
        np.testing.assert_allclose(written, image.get_array().ravel(), atol=0.051)
        assert image.axes.get_ylim() == (4, 0)
    chosen = (
        (table["stack"] == "cross")
        & (table["init"] == "trained")
        & (table["measure"] == "attention_norm")
    )
    expected = table[chosen].groupby("layer")["contribution"].mean()
    np.testing.assert_allclose(images[2].get_array()[:, 2], 100 * expected)
    saved(figure)


@pytest.mark.long
def test_models_of_other_depth_and_missing_twins_leave_holes():
    table = cue_table(models=("small", "large"), stacks=("encoder", "cross"))
    table = table[(table["model"] == "large") | (table["layer"] < 2)]
    table = table[~((table["model"] == "small") & (table["init"] == "trained"))]
    figure = cue_heat_map(table)
    assert len(maps_of(figure)) == 6
    assert {"small", "large"} <= {ax.get_ylabel() for ax in figure.axes if ax.axison}
    saved(figure)
    saved(cue_figure(table))


def test_tables_that_cannot_be_drawn():
    table = cue_table()
    with pytest.raises(InputError, match="clip, measure not found"):
        cue_figure(table.drop(columns=["clip", "measure"]))
    with pytest.raises(InputError, match="no contribution left"):
        cue_figure(table, stacks=["decoder"])
    with pytest.raises(InputError, match="no contribution left"):
        cue_heat_map(table.assign(contribution=np.nan))


# notebooks
# ------------------------------------------------------------------------------------------------------------


def test_html_is_an_inline_png_and_escapes_the_caption():
    page = as_html(layer_grid(mixing_map(1)), caption='<script>alert("x")</script>')
    assert "<script" not in page
    assert "&lt;script&gt;alert(&quot;x&quot;)" in page
    data = page.split("base64,")[1].split('"')[0]
    assert base64.b64decode(data).startswith(b"\x89PNG")


def test_map_and_figure_show_themselves_in_a_notebook():
    one = mixing_map(2)
    assert "MixingMap(value_zeroing, encoder: 2 layers" in one._repr_html_()
    assert one.show()._repr_png_().startswith(b"\x89PNG")
    assert not pyplot.get_fignums()


@pytest.mark.long  # imports all in a process of its own
def test_figures_leave_pyplot_and_librosa_alone_until_needed():
    code = (
        "import sys, speechmix.reporting.plots.map_figures; print('matplotlib.pyplot' in "
        "sys.modules, 'librosa' in sys.modules)"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).split() == [
        "False",
        "False",
    ]


def test_cue_heat_map_titles_a_stack_that_the_first_model_lacks():
    table = pd.concat(
        [cue_table(models=("ctc",)), cue_table(models=("whisper",), stacks=("encoder", "decoder"))],
        ignore_index=True,
    )
    titles = [ax.get_title() for ax in cue_heat_map(table).axes if ax.get_title()]
    assert [title.replace("\n", " ") for title in titles] == [
        "encoder, trained",
        "encoder, untrained",
        "decoder, trained",
        "decoder, untrained",
    ]


@pytest.mark.parametrize(
    "draw", [cue_heat_map, plots.distribution_figure, plots.cue_difference_map]
)
@pytest.mark.parametrize("narrow", [False, True])
def test_titles_of_panels_stay_apart_and_inside(draw, narrow):
    """However few measures, and however long the name of a model."""
    models = ("tiny-french-whisper", "facebook/wav2vec2-xls-r-300m-french")
    stacks = ("encoder", "decoder", "cross")
    figure = draw(cue_table(models=models, stacks=stacks, measures=("attention",)), narrow=narrow)
    drawn(figure)
    boxes = [ax.title.get_window_extent() for ax in figure.axes if ax.axison and ax.get_title()]
    assert len(boxes) > 2
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[i + 1 :])
    assert all(figure.bbox.contains(*box.min) for box in boxes)
    assert all(figure.bbox.contains(*box.max) for box in boxes)


# plots
# ----------------------------------------------------------------------------------------------------------------


def test_curves_lie_at_their_depth_and_bands_are_what_they_say():
    table = cue_table(models=("small", "large"), clips=12, measures=("attention",))
    table = table[(table["model"] == "large") | (table["layer"] < 2)]
    ax = plots.layer_curves(table, x="depth", ax=Figure().add_subplot())
    assert {tuple(line.get_xdata().round(2)) for line in ax.lines} == {(0, 1), (0, 0.33, 0.67, 1)}
    rows = select_cue_rows(table[table["model"] == "large"])
    curve = curve_table(rows).set_index(["init", "layer"])
    assert (curve.loc["trained"].seeds == 1).all()
    assert (curve.loc["random"].seeds == 2).all()
    means = (
        rows[rows["init"] == "random"]
        .groupby(["layer", "seed"])
        .contribution.mean()
        .mul(100)
        .unstack()
    )
    low, high = twin_bands(means.to_numpy(), rows=len(means))  # for all layers together
    np.testing.assert_allclose(curve.loc["random"].low, low.clip(0))
    np.testing.assert_allclose(curve.loc["random"].high, high)
    alone = curve_table(rows[rows.seed != 1]).set_index(["init", "layer"])
    assert alone.loc["random"][["low", "high"]].isna().all(axis=None)  # one twin has no band
    values = (
        rows[rows["init"] == "trained"].pivot(index="layer", columns="clip", values="contribution")
        * 100
    )
    low, high = mean_intervals(values.to_numpy(), level=1 - 0.05 / len(values))
    np.testing.assert_allclose(curve.loc["trained"].low, low)
    np.testing.assert_allclose(curve.loc["trained"].high, high)
    seven = curve_table(
        rows[rows["clip"].isin([f"clip{number}" for number in range(7)])]
    ).set_index(["init", "layer"])
    assert (
        seven.loc["trained"][["low", "high"]].isna().all(axis=None)
    )  # no interval of so few groups
    assert seven.loc["random"][["low", "high"]].notna().all(axis=None)
    with pytest.raises(InputError, match="band should be one of"):
        curve_table(rows, band="bootstrap")


def test_clips_of_a_group_count_as_one():
    table = cue_table(clips=4, measures=("attention",)).assign(
        group=lambda t: t["clip"].isin(["clip0", "clip1"])
    )
    assert (curve_table(select_cue_rows(table)).units == 2).all()


def test_published_curves_stand_beside_ones_own_and_not_in_their_place():
    table = cue_table(clips=3)
    figure = cue_figure(table, x="depth", published=True)
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert {"a/small, trained", "XLSR-53, published, trained"} <= set(labels)
    widths = {line.get_linewidth() for line in figure.axes[0].lines}
    assert {0.9, 1.4} <= widths
    images = maps_of(cue_heat_map(table, published=True))
    assert len(images) == 6  # three models, trained and random
    assert images[2].get_array().shape == (24, 2)


def with_rows(table):
    """Contributions of all rows of the target, and, outside the encoder, of the deciding one, which
    are 0.3 higher."""
    deciding = table[table["stack"] != "encoder"].assign(rows="deciding")
    deciding = deciding.assign(contribution=deciding["contribution"] + 0.3)
    return pd.concat([table.assign(rows="target"), deciding], ignore_index=True)


def test_rows_of_a_target_are_never_averaged_with_the_deciding_one_and_are_named():
    table = cue_table(stacks=("encoder", "cross"), measures=("attention",))
    both = with_rows(table)
    of_target, of_deciding = (
        select_cue_rows(both, target_rows=rows).groupby("stack").contribution.mean()
        for rows in ("target", "deciding")
    )
    assert of_deciding["encoder"] == of_target["encoder"]
    assert of_deciding["cross"] == pytest.approx(of_target["cross"] + 0.3)
    pd.testing.assert_series_equal(
        select_cue_rows(both).groupby("stack").contribution.mean(), of_deciding
    )
    assert cue_figure(both).get_suptitle() == "decoder, cross-attention: deciding row"
    assert "target rows" in cue_heat_map(both, target_rows="target").get_suptitle()
    with pytest.raises(InputError, match="target_rows should be one of"):
        cue_figure(both, target_rows="all")


@pytest.mark.long
def test_published_figures_are_of_the_same_rows_or_say_that_they_are_not():
    both = with_rows(cue_table(stacks=("encoder", "cross"), clips=2))
    like, unlike = (
        cue_heat_map(both, published=True, **options)
        for options in ({}, {"target_rows": "deciding"})
    )
    titles = [" ".join(figure.get_suptitle().split()) for figure in (like, unlike)]
    assert (
        "target rows, as published (XLSR-53: whole % read off a picture; Whisper-medium: whole %"
        in titles[0]
    )
    assert "deciding row, but published for target rows" in titles[1]
    for figure in (like, unlike):  # one scale for one's own and the published
        assert len({image.get_clim() for image in maps_of(figure)}) == 1
    own = [
        100 * part.contribution.mean()
        for _, part in both[(both.init == "trained") & (both["stack"] == "cross")].groupby("rows")
    ]
    means = [np.mean(maps_of(figure)[2].get_array()) for figure in (unlike, like)]
    np.testing.assert_allclose(means, own)
    assert "read off a picture" in cue_figure(both, x="depth", published=True).get_suptitle()


def test_published_numbers_are_those_of_the_data_files():
    table = plots.published_contributions()
    assert len(table) == 2 * 24 * 3 * (1 + 3)
    chosen = table[(table["model"] == "Whisper-medium, published") & (table["init"] == "trained")]
    peak = chosen[chosen.measure == "value_zeroing"].groupby("stack").contribution.max()
    assert peak.to_dict() == {"cross": 0.55, "decoder": 0.62, "encoder": 0.30}
    probing = plots.published_probing()
    assert probing.accuracy.between(0.5, 1).all()
    assert (probing["stack"] == "encoder").sum() == 2 * (24 + 24 + 24 + 12 + 6)


def test_differences_are_first_less_second_and_centred_at_zero():
    one, other = mixing_map(3), mixing_map(3)
    other.scores[:] = 1.0
    ax = plots.difference_map(one, other, layer=1)
    np.testing.assert_allclose(
        ax.images[0].get_array(),
        100 * (one.normalized().scores[1] - other.normalized().scores[1]),
        atol=1e-9,
    )
    low, high = ax.images[0].get_clim()
    assert low == -high
    with pytest.raises(InputError, match="same numbers of units"):
        plots.difference_map(one, mixing_map(3, 4, 5))
    table = cue_table(measures=("attention",))
    (image,) = maps_of(plots.cue_difference_map(table))
    means = table.groupby(["init", "layer"]).contribution.mean().unstack("init") * 100
    np.testing.assert_allclose(image.get_array()[:, 0], means["trained"] - means["random"])
    assert image.get_clim()[0] == -image.get_clim()[1]
    with pytest.raises(InputError, match="'pl' and 'sg'"):
        plots.cue_difference_map(table, column="number", first="pl", second="sg")


def test_a_timed_map_puts_each_source_at_its_time_and_leaves_gaps_white():
    units = (
        Span(0, 5, "a", word=0, onset=0.1, offset=0.3),
        Span(9, 12, "b", word=1, onset=0.5, offset=0.6),
    )
    one = MixingMap(
        np.array([[[3.0, 1.0], [1.0, 1.0]]]), units, units, "attention", "encoder", (0,)
    )
    mesh = plots.timed_map(one).collections[0]
    np.testing.assert_allclose(mesh.get_coordinates()[0, :, 0], [0.1, 0.3, 0.5, 0.6])
    np.testing.assert_allclose(
        np.ma.filled(mesh.get_array(), -1).reshape(2, 3), [[75, -1, 25], [50, -1, 50]]
    )
    with pytest.raises(InputError, match="sources with times"):
        plots.timed_map(mixing_map(1, 2, frame_units(3, timed=False)))


def test_plots_refuse_what_they_cannot_put_on_one_axes():
    with pytest.raises(InputError, match="one stack and measure"):
        plots.layer_curves(cue_table())
    with pytest.raises(InputError, match="one init"):
        plots.measure_heat_map(cue_table())
    with pytest.raises(InputError, match="one model"):
        plots.clip_distribution(cue_table(models=("a", "b")))
    with pytest.raises(InputError, match="no column"):
        cue_figure(cue_table(), rows="dialect")
    with pytest.raises(InputError, match="one measure"):
        cue_figure(cue_table().assign(template="x"), rows="template")
    with pytest.raises(InputError, match="'layer' or 'depth'"):
        plots.layer_curves(cue_table(measures=("attention",)), x="time")


def test_every_plot_is_reached_from_the_package():
    import speechmix

    assert speechmix.plots is plots
    assert all(callable(getattr(plots, name)) for name in plots.__all__)
