"""Attributions of frames: the parts of a word, what is between words, and the parts of a logit again."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import speechmix
from speechmix.errors import InputError
from speechmix.inputs.clips.segments import segment_clip
from speechmix.mixing.maps.measure_registry import MEASURE_FACTS
from tests.explanations.test_explain import CTC, WHISPER, clip_named, model_named

MADE, OWN = ["gradient_input", "lrp"], ["alti_logit", "attention"]


@pytest.fixture(scope="module", params=[CTC, pytest.param(WHISPER, marks=pytest.mark.long)])
def explained(request):
    model = model_named(request.param)
    return model, speechmix.explain(
        model, clip_named(), measures=[*MADE, *OWN], frames=True, against="runner_up", top=0
    )


def of_words(why):
    """Places of the sound's words among the sources, and their frames."""
    return [
        (place, list(source.source.positions))
        for place, source in enumerate(why.sources)
        if source.side == "sound"
    ]


def test_frames_are_those_of_the_model_up_to_the_end_of_the_clip(explained):
    model, why = explained
    grid = model.grid(len(clip_named().audio(model.sample_rate)))
    centres = why.frames.mean(axis=1)
    np.testing.assert_allclose(centres[1:], grid.centres()[1 : len(centres)], atol=1e-9)
    assert why.frames[-1, 0] < why.clip.duration <= why.frames[-1, 1] + grid.stride
    for attribution in why.attributions.values():
        assert attribution.by_frame.values.shape == (len(why.choices), len(why.frames))
        assert np.isfinite(attribution.by_frame.values).all()


@pytest.mark.parametrize("measure", MADE)
def test_a_word_is_made_of_its_frames_and_is_what_is_claimed_without_frames(explained, measure):
    model, why = explained
    alone = speechmix.explain(
        model, clip_named(), measures=measure, frames=False, against="runner_up", top=0
    )
    assert alone.attributions[measure].by_frame is None
    attribution, parts = why.attributions[measure], why.attributions[measure].by_frame.values
    for place, frames in of_words(why):
        made = {"lrp": np.sum, "gradient_input": np.mean}[measure](parts[:, frames], axis=1)
        np.testing.assert_allclose(
            made, alone.attributions[measure].values[:, place], rtol=0, atol=1e-10
        )
    np.testing.assert_allclose(
        attribution.values, alone.attributions[measure].values, rtol=0, atol=1e-10
    )
    if attribution.totals is not None:
        np.testing.assert_allclose(
            attribution.rest, alone.attributions[measure].rest, rtol=0, atol=1e-10
        )


@pytest.mark.long
@pytest.mark.parametrize("measure", ["deeplift", "chefer"])
def test_so_are_the_others(measure):
    model = model_named(CTC)
    made, alone = (
        speechmix.explain(
            model, clip_named(), measures=measure, frames=frames, against=(), top=0
        ).attributions[measure]
        for frames in (None, False)
    )
    assert made.by_frame is not None
    np.testing.assert_allclose(made.values, alone.values, rtol=0, atol=1e-10)


def test_what_is_left_over_by_frames_is_what_is_left_by_words_less_the_pauses(explained):
    """Frames, text and rest are the logit: of the rest without frames nothing has gone but what
    lies between words."""
    model, why = explained
    alone = speechmix.explain(
        model, clip_named(), measures="lrp", frames=False, against="runner_up", top=0
    )
    parts = why.attributions["lrp"].by_frame
    in_words = {frame for _, frames in of_words(why) for frame in frames}
    pauses = [frame for frame in range(len(why.frames)) if frame not in in_words]
    assert np.abs(parts.values[:, pauses].sum(axis=1)).max() > 1e-3
    np.testing.assert_allclose(
        alone.attributions["lrp"].rest - parts.rest,
        parts.values[:, pauses].sum(axis=1),
        rtol=0,
        atol=1e-10,
    )


def test_what_takes_a_word_as_a_whole_has_another_answer_for_its_frames(explained):
    """So the page may not say that a word is the sum of the frames that are coloured."""
    _, why = explained
    attribution = why.attributions["alti_logit"]
    assert "alti_logit" not in [
        name for name, facts in MEASURE_FACTS.items() if facts.word_from_frames
    ]
    sums = np.stack(
        [attribution.by_frame.values[:, frames].sum(axis=1) for _, frames in of_words(why)], axis=1
    )
    words = [place for place, _ in of_words(why)]
    assert np.abs(sums - attribution.values[:, words]).max() > 0.1


def test_by_default_frames_are_told_apart_where_it_costs_nothing():
    model = model_named(CTC)
    why = speechmix.explain(
        model, clip_named(), measures=["occlusion", "gradient_input", "attention"]
    )
    assert [name for name, attribution in why.attributions.items() if attribution.by_frame] == [
        "gradient_input"
    ]
    assert len(why.frames) == 59
    named = speechmix.explain(
        model, clip_named(), measures=["gradient_input", "attention"], frames="attention", top=0
    )
    assert [name for name, attribution in named.attributions.items() if attribution.by_frame] == [
        "attention"
    ]
    none = speechmix.explain(model, clip_named(), measures="occlusion")
    assert len(none.frames) == 0
    assert none.frames_to_dataframe().empty


def test_the_table_of_frames_says_in_which_word_each_is(explained):
    _, why = explained
    table = why.frames_to_dataframe()
    assert len(table) == len(why.attributions) * len(why.choices) * len(why.frames)
    sums = (
        table.query("measure == 'lrp' and against == ''")
        .groupby(["unit", "label"])["attribution"]
        .sum()
    )
    for unit in why.units:
        for place, _ in of_words(why):
            value = why.attributions["lrp"].values[why.choice(unit.unit), place]
            assert sums[unit.unit, why.sources[place].label] == pytest.approx(value, abs=1e-9)
    assert table["label"].isna().any()  # between words


def test_what_has_no_frames_says_so():
    model = model_named(CTC)
    with pytest.raises(InputError, match="takes words away, and says nothing of frames"):
        speechmix.explain(model, clip_named(), frames=["occlusion"])
    with pytest.raises(InputError, match="frames are asked of lrp, and measures are attention"):
        speechmix.explain(model, clip_named(), measures="attention", frames="lrp")
    with pytest.raises(InputError, match="is a text, which has no frames"):
        speechmix.explain(model, "nos maisons", frames=True)


def test_a_words_figure_has_a_waveform_for_each_measure_of_frames(explained):
    _, why = explained
    figure = why.show(0)
    waves = [ax for ax in figure.axes if ax.get_xlabel() == "seconds" or ax.get_ylabel()]
    assert [ax.get_ylabel() for ax in waves] == ["gradient input", "lrp", "alti logit", "attention"]
    shades = waves[1].collections[0].get_array().ravel()
    values = why.attributions["lrp"].by_frame.values[why.choice(0)]
    np.testing.assert_allclose(shades, values / np.abs(values).max(), rtol=0, atol=1e-12)
    figure.canvas.draw()


def test_labels_above_a_waveform_stay_apart(explained):
    """Of segments that have no room for all, those of the largest sources."""
    model, _ = explained
    clip = segment_clip(clip_named().replace(words=None, cue=None, target=None, foil=None), 0.05)
    why = speechmix.explain(model, clip, measures="gradient_input", frames=True, top=0)
    figure = why.show(0)
    figure.canvas.draw()
    texts = figure.axes[-1].texts
    boxes = [text.get_window_extent() for text in texts]
    assert 2 < len(boxes) < len(clip.words)
    assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))
    values = np.abs(why.attributions["gradient_input"].values[why.choice(0)])
    assert why.sources[int(np.nanargmax(values))].label in {text.get_text() for text in texts}
