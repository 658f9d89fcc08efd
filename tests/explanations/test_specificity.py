"""What is specific to a written word; measures that are the same for all words are marked, and no
defaults."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import speechmix
from speechmix.extensions.explain.choices import Choice
from speechmix.extensions.explain.page import explanation_view
from speechmix.extensions.explain.specificity import (
    LEAST_DISTANCE,
    distance_between_words,
    positive_shares,
    specific_shares,
)
from tests.explanations.test_explain import CTC, WHISPER, clip_named, model_named

NAN = float("nan")


def words(*names):
    return [Choice(unit, name, (unit,), unit, 1.0) for unit, name in enumerate(names)]


def test_what_all_words_share_is_specific_to_none():
    same = np.tile([0.1, 0.2, 0.7], (3, 1))
    np.testing.assert_allclose(specific_shares(same, words("a", "b", "c")), 0, atol=1e-15)
    assert distance_between_words(same, words("a", "b", "c")) == pytest.approx(0, abs=1e-15)


def test_specific_is_the_share_less_the_mean_share_of_the_other_words():
    values = np.array([[3.0, 1.0], [1.0, 3.0], [2.0, -5.0]])
    shares = np.array([[0.75, 0.25], [0.25, 0.75], [1.0, 0.0]])
    np.testing.assert_allclose(positive_shares(values), shares)
    found = specific_shares(values, words("a", "b", "c"))
    for word in range(3):
        np.testing.assert_allclose(
            found[word], shares[word] - np.delete(shares, word, axis=0).mean(axis=0)
        )
    expected = np.mean([np.abs(row).sum() / 2 for row in found])
    assert distance_between_words(values, words("a", "b", "c")) == pytest.approx(expected)


def test_an_earlier_word_is_compared_among_the_words_behind_it():
    values = np.array([[1.0, 1.0, NAN, NAN], [1.0, 1.0, 2.0, NAN], [1.0, 1.0, 0.0, 6.0]])
    found = specific_shares(values, words("a", "b", "c"))
    np.testing.assert_allclose(found[:, :2], 0, atol=1e-15)  # among the sound all words agree
    np.testing.assert_allclose(found[:, 2], [NAN, 0.5, -0.5])  # 2 of 4 and 0 of 2
    assert np.isnan(found[:, 3]).all()  # one word alone is behind it


def test_one_written_word_has_nothing_to_be_compared_with():
    only = [*words("a"), Choice(1, "(end)", (1,), None, 1.0)]
    values = np.array([[1.0, 2.0], [2.0, 1.0]])
    assert np.isnan(specific_shares(values, only)[0]).all()
    assert np.isfinite(specific_shares(values, only)[1]).all()  # the end is compared with the word
    assert np.isnan(distance_between_words(values, only))


@pytest.fixture(scope="module", params=[CTC, WHISPER])
def explained(request):
    return speechmix.explain(
        model_named(request.param), clip_named(), measures=["occlusion", "alti_logit", "attention"]
    )


def test_a_measure_that_is_almost_the_same_for_every_word_is_marked(explained):
    """One map for all words, in the place of attention's."""
    assert all(explained.tells_words_apart(name) for name in ("occlusion", "alti_logit"))
    values = explained.attributions["attention"].values
    same = np.where(np.isfinite(values), values[:1], np.nan)
    distances = {
        **explained.distances,
        "attention": distance_between_words(same, explained.choices),
    }
    assert distances["attention"] < LEAST_DISTANCE
    marked = replace(explained, distances=distances)
    assert [marked.tells_words_apart(name) for name in marked.attributions] == [True, True, False]
    assert "attention (share; almost the same for every word)" in marked.details()
    marks = {
        measure["name"]: measure["mark"]
        for measure in explanation_view(marked, sound=False)["measures"]
    }
    assert marks == {
        "occlusion": "",
        "alti_logit": "",
        "attention": "almost the same for every word",
    }


def test_the_table_tells_it(explained):
    table = explained.to_dataframe()
    for (_, measure), part in table[(table["side"] == "sound")].groupby(["unit", "measure"]):
        assert part["specific"].sum() == pytest.approx(0, abs=1e-12)
        assert part["distance"].unique().tolist() == [explained.distances[measure]]
    of_maisons = table.query(
        "written == 'maisons' and label == 'maisons' and measure == 'alti_logit' and side == "
        "'sound'"
    )
    assert of_maisons["specific"].item() > 0.3


def test_a_measure_that_does_not_tell_words_apart_is_no_default():
    for name in (CTC, WHISPER):
        why = speechmix.explain(model_named(name), clip_named())
        assert all(why.tells_words_apart(measure) for measure in why.attributions)
        assert {"occlusion", "alti_logit"} <= why.attributions.keys()
        assert ("gradient_input" in why.attributions) == (name == CTC)
