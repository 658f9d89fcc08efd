"""`speechmix.similarity`: which units are compared, with what, beside which nulls."""

from __future__ import annotations

import functools
import importlib

import numpy as np
import pandas as pd
import pytest

import speechmix
from speechmix import Sentence
from speechmix.errors import InputError
from speechmix.extensions.similarity.measure_table import estimate_similarity
from speechmix.extensions.states.unit_states import states
from speechmix.inputs import bundled
from tests.models import text_models

unit_states = importlib.import_module("speechmix.extensions.states.unit_states")
CLIPS = bundled.clips()[:16]
QUIET = {"clips": CLIPS, "shuffles": 0}


@pytest.fixture(autouse=True)
def remembered_states(monkeypatch):
    """The states of a clip are computed once for all tests."""
    monkeypatch.setattr(unit_states, "states", remember_states)


def remember_states(model, item, *, level, stacks):
    hashed = getattr(item, "audio_hash", item.text), item.words, getattr(item, "tiers", None)
    key = str((id(model), hashed, level, stacks))
    if key not in STATES:
        try:
            STATES[key] = states(model, item, level=level, stacks=stacks)
        except InputError as error:
            STATES[key] = error
    if isinstance(STATES[key], InputError):
        raise STATES[key]
    return STATES[key]


STATES = {}


@functools.cache
def ctc():
    return speechmix.load("bundled:tiny-french-ctc", device="cpu")


@functools.cache
def whisper():
    return speechmix.load("bundled:tiny-french-whisper", device="cpu")


@functools.cache
def twins(count):
    return [
        speechmix.load("bundled:tiny-french-ctc", init="random", seed=seed, device="cpu")
        for seed in range(count)
    ]


@functools.cache
def layers(measure="cka"):
    return speechmix.similarity(ctc(), clips=CLIPS, measure=measure, shuffles=19, twins=twins(3))


def values(result, name="value"):
    return result.to_dataframe()[name].to_numpy(dtype=float)


@pytest.mark.long
def test_layers_are_those_of_the_states_of_words():
    table = layers().to_dataframe()
    assert len(table) == 10  # each pair of the input and four layers once
    found = speechmix.unit_states(ctc(), CLIPS)["encoder"]
    groups = found.units["group"].to_numpy()
    row = table[(table["layer"] == 0) & (table["feature_layer"] == 3)].iloc[0]
    again = estimate_similarity(found.values[:, 1], found.values[:, 4], groups)
    assert row["value"] == pytest.approx(again.value, abs=1e-6)
    assert (row["low"], row["high"]) == pytest.approx(again.interval, abs=1e-5)
    assert (row["units"], row["groups"]) == (len(groups), len(set(groups)))


def test_order_names_and_copies_of_clips_change_nothing():
    plain = layers()
    order = np.random.default_rng(0).permutation(len(CLIPS))
    renamed = [CLIPS[i].with_name(f"{n:02}") for n, i in enumerate(order)]
    for clips in (renamed, [*CLIPS, *CLIPS], [clip.with_name("same") for clip in CLIPS]):
        other = speechmix.similarity(ctc(), clips=clips, shuffles=0)
        for name in ("value", "low", "high"):
            assert values(other, name) == pytest.approx(values(plain, name), abs=1e-6)
    plain = speechmix.similarity(ctc(), "mel", measure="cca", **QUIET)
    other = speechmix.similarity(ctc(), "mel", clips=renamed, measure="cca", shuffles=0)
    assert values(other) == pytest.approx(values(plain), abs=1e-6)


def test_a_model_is_like_itself_and_not_like_shuffled_units():
    result = speechmix.similarity(ctc(), {"again": ctc()}, clips=CLIPS)
    table = result.to_dataframe()
    same = table[table["layer"] == table["feature_layer"]]
    assert same["value"].to_numpy() == pytest.approx(1, abs=1e-6)
    assert (same["p_shuffled"] <= 0.05).all()
    assert table["shuffled"].abs().max() < 0.15
    assert "20 of 25 similarities are above those of shuffled units" in result.summary
    assert "needs 5 untrained twins" in result.summary
    assert "found 0." in result.summary
    assert result.summary.endswith("speakers unknown.")


def test_stacks_of_a_model_are_compared_with_each_other():
    table = speechmix.similarity(whisper(), stacks=["encoder", "decoder"], **QUIET).to_dataframe()
    counts = table.groupby(["stack", "feature_stack"]).size()
    assert counts.to_dict() == {
        ("encoder", "encoder"): 6,
        ("encoder", "decoder"): 16,
        ("decoder", "decoder"): 6,
    }
    assert set(speechmix.similarity(ctc(), whisper(), **QUIET).table["feature_layer"]) == {
        *range(-1, 3)
    }


def test_frames_of_two_models_are_those_of_the_same_time():
    options = {"level": "frame", "units_per_clip": 7, **QUIET}
    table = speechmix.similarity(ctc(), whisper(), **options).to_dataframe()
    assert set(table["units"]) == {7 * len(CLIPS)}
    assert table["value"].max() > 0.3
    mel = speechmix.similarity(ctc(), "mel", **options).to_dataframe()
    untrained = speechmix.similarity(twins(1)[0], "mel", **options).to_dataframe()
    assert mel["value"].max() > 0.3 > untrained["value"].max()


def test_external_features_tables_and_labels():
    words = sorted({word.text for clip in CLIPS for word in clip.words})
    vectors = pd.DataFrame(
        np.random.default_rng(0).normal(size=(len(words), 50)), [w.upper() for w in words]
    )
    sources = {"GloVe": vectors, "sound": "mel", "formants": ["f1", "f2"], "duration": "duration"}
    result = speechmix.similarity(ctc(), sources, **QUIET)
    table = result.to_dataframe()
    assert list(table["feature"].unique()) == list(sources)
    assert len(table) == 20
    assert table["feature_layer"].isna().all()
    unnamed = speechmix.similarity(ctc(), ["duration", "position"], **QUIET).table
    assert set(unnamed["feature"]) == {"duration, position"}
    fewer = speechmix.similarity(ctc(), vectors.iloc[:-2], **QUIET).to_dataframe()
    assert fewer["units"].iloc[0] < table["units"].iloc[0]  # units without a vector do not count
    for measure, options in (("abx", {}), ("mutual_information", {"clusters": 8})):
        options = {"measure": measure, **QUIET, **options}
        labelled = speechmix.similarity(ctc(), **options).to_dataframe()
        untrained = speechmix.similarity(twins(1)[0], **options).to_dataframe()
        assert labelled["value"].max() > 0.05 + untrained["value"].max()


@pytest.mark.long
def test_phones_and_their_articulation():
    pytest.importorskip("panphon", reason="the extra `phones` is not installed")
    phones = [
        clip.replace(
            tiers={
                "phone": [
                    (label, start, start + (word.end - word.start) / 2)
                    for word in clip.words
                    for label, start in (
                        ("m" if word.text[0] < "m" else "s", word.start),
                        ("a", (word.start + word.end) / 2),
                    )
                ]
            }
        )
        for clip in CLIPS
    ]
    result = speechmix.similarity(ctc(), "articulation", clips=phones, level="phone", shuffles=0)
    assert result.table["units"].iloc[0] > 50
    frames = {"clips": phones, "level": "frame", "units_per_clip": 10, "measure": "abx"}
    assert speechmix.similarity(ctc(), shuffles=0, **frames).table["value"].max() > 0.1


def test_texts_are_compared_word_by_word():
    nouns = ("dogs", "cats", "birds", "boats", "keys", "maps", "trees")
    sentences = [Sentence(f"the {noun} {verb}") for noun in nouns for verb in ("move", "stay")]
    model = text_models.gpt2()
    table = speechmix.similarity(model, clips=sentences, shuffles=0).to_dataframe()
    assert table["units"].iloc[0] == 42
    with pytest.raises(InputError, match="is a text, which has no mel bands"):
        speechmix.similarity(model, "mel", clips=sentences)


def test_twins_stand_beside_and_few_conclude_nothing():
    table = layers().to_dataframe()
    own = [speechmix.similarity(twin, **QUIET) for twin in twins(3)]
    assert (table["twins"] == 3).all()
    assert (table["claim"] == "").all()
    means = np.mean([values(each) for each in own], axis=0)
    assert values(layers(), "random") == pytest.approx(means, abs=0.02)  # of the jackknife
    copies = [ctc(), *twins(2)]
    same = speechmix.similarity(ctc(), twins=copies, **QUIET).to_dataframe()
    assert ((same["difference_low"] < 0) & (same["difference_high"] > 0)).all()


def test_few_groups_conclude_nothing():
    clips = [clip for clip in CLIPS if clip.meta["pair"] in {c.meta["pair"] for c in CLIPS[:12]}]
    result = speechmix.similarity(ctc(), clips=clips[:12])
    assert result.table["groups"].iloc[0] < 8
    assert result.table["low"].isna().all()
    assert "fewer than 8 groups of clips allow no conclusion" in result.summary
    with pytest.raises(InputError, match="5 independent groups of clips or more"):
        speechmix.similarity(ctc(), clips=CLIPS[:2])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"b": "mfcc"}, "no feature 'mfcc'"),
        ({"b": pd.DataFrame({"x": [1.0]}, index=["zzz"])}, "no unit has features 'table'"),
        ({"b": pd.DataFrame({"x": ["a"]}, index=["nos"])}, "columns of 'table' should be numbers"),
        ({"b": pd.DataFrame({"x": [1, 2]}, index=["nos", "Nos"])}, "two rows for 'nos'"),
        ({"stacks": "cross"}, "cross"),
        ({"level": "phone"}, "no clip has states of phones"),
        ({"b": "control"}, "columns of 'control' should be numbers"),
        ({"b": "label"}, "'cka' compares layers with features; 'label' has labels"),
        ({"b": "mel", "measure": "abx"}, "'abx' compares layers with labels; 'mel' has features"),
        ({"b": {}}, "found nothing"),
        ({"b": []}, "found none"),
        ({"b": 3}, "expected a model, a table or names of features, found 3"),
        ({"shuffles": -1}, "shuffles of 0 or more, found -1"),
        ({"clips": []}, "found 0 clips"),
        ({"clusters": 3}, "'cka' has no option 'clusters'"),
    ],
)
def test_what_cannot_be_compared_is_refused(change, message):
    with pytest.raises(InputError, match=message):
        speechmix.similarity(ctc(), **{**QUIET, **change})


def test_a_clip_that_the_model_does_not_take_is_skipped():
    clips = [*CLIPS, CLIPS[0].replace(words=None, cue=None, target=None, foil=None)]
    result = speechmix.similarity(ctc(), clips=clips, shuffles=0)
    assert len(result.skipped) == 1
    assert values(result) == pytest.approx(values(layers()), abs=1e-6)


def test_figures_show_each_stack_and_all_external_features():
    assert len(layers().show().axes) == 2  # a map and its colour bar
    both = speechmix.similarity(ctc(), {"mel": "mel", "other": whisper()}, **QUIET)
    assert len(both.show().axes) == 3
    ax = both.plot(feature="mel")
    assert ax.get_ylabel() == "linear CKA, debiased"
    assert both.plot().get_xlabel() == "layer, other encoder"
    with pytest.raises(InputError, match="feature should be one of mel, other"):
        both.plot(feature="glove")
