"""Reliability of attribution between seeds and measures, on tiny untrained classifiers (synthetic),
against correlations by hand."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

import speechmix
from speechmix.errors import InputError
from speechmix.extensions.faithfulness.reliability import (
    FRAME,
    FRAMES_OF_WORDS,
    attribution_reliability,
)
from tests.models.audio_classifiers import CLASSIFIERS, build_classifier, classifier, clip

MEASURES = ("occlusion", "gradient_input")


@pytest.fixture(scope="module")
def models():
    extractor = CLASSIFIERS["ast"][3]()
    return [
        speechmix.load(build_classifier("ast", seed=seed), processor=extractor) for seed in (0, 1)
    ]


def test_whole_words_are_removed_and_compared_between_seeds(models):
    labelled = clip(meta={"label": "happy"})
    table = attribution_reliability(models, [labelled], measures=MEASURES)
    drops = [
        speechmix.ablate_input(model, labelled, fills=["zeros"], objective=("happy",)).table["drop"]
        for model in models
    ]
    row = table.query("agreement == 'seeds' and level == 'word'").iloc[0]
    assert row.measure == row.other == "occlusion"
    assert row.pearson == pytest.approx(np.corrcoef(*drops)[0, 1])
    assert row.spearman == pytest.approx(scipy.stats.spearmanr(*drops)[0])
    assert row.clips == 1


def test_frames_and_their_means_in_words(models):
    labelled = clip(meta={"label": "happy"})
    table = attribution_reliability(models, [labelled], measures=["gradient_input"])
    assert set(table["level"]) == {FRAME, FRAMES_OF_WORDS}
    maps = [
        speechmix.mix(
            model,
            labelled,
            measures="gradient_input",
            units="frame",
            layers=0,
            objective=("happy",),
        )["gradient_input", "encoder"]
        for model in models
    ]
    frames = [found.scores[0, 0].astype(float) for found in maps]
    by_frame = table.query("level == @FRAME").iloc[0]
    assert by_frame.pearson == pytest.approx(np.corrcoef(*frames)[0, 1], abs=1e-6)
    centres = 0.0875 + 0.1 * np.arange(len(frames[0]))
    words = [
        [scores[(word.start <= centres) & (centres < word.end)].mean() for word in labelled.words]
        for scores in frames
    ]
    by_word = table.query("level == @FRAMES_OF_WORDS").iloc[0]
    assert by_word.pearson == pytest.approx(np.corrcoef(*words)[0, 1], abs=1e-6)


def test_a_model_agrees_with_itself(models):
    table = attribution_reliability([models[0], models[0]], [clip()], measures=MEASURES)
    seeds = table.query("agreement == 'seeds'")
    np.testing.assert_allclose(seeds["pearson"], 1, atol=1e-9)
    assert set(table["agreement"]) == {"seeds", "measures"}


def test_clips_of_one_name_count_as_two(models):
    """And a label may be given by its number."""
    clips = [clip(meta={"label": "0"}), clip(meta={"label": "calm"})]
    options = {"measures": ["occlusion"]}
    both = attribution_reliability(models, clips, **options)
    each = [attribution_reliability(models, [one], **options) for one in clips]
    named = attribution_reliability(models, [clip(meta={"label": "angry"})], **options)
    assert set(both["clips"]) == {2}
    np.testing.assert_allclose(
        both["pearson"], np.mean([table["pearson"] for table in each], axis=0)
    )
    np.testing.assert_allclose(each[0]["pearson"], named["pearson"])


def test_what_cannot_be_compared_is_refused(models):
    wordless = clip(words=None)
    for chosen, clips in ((models[:1], [clip()]), (models, []), (models, [wordless])):
        with pytest.raises(InputError, match="two classifiers of sound or more"):
            attribution_reliability(chosen, clips)
    assert classifier("ast").has_label_head
