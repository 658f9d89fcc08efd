"""Cue and target by name in a map: spellings that count as equal, and errors that say what is there."""

import numpy as np
import pytest

import speechmix
from speechmix import MixingMap, Span
from speechmix.errors import InputError

TEXT = ("Nos", "maisons", "aujourd’hui", "étés", "nos")


def map_of(spans, provenance=None, stack="encoder"):
    scores = 1.0 + np.arange(len(spans) ** 2).reshape(1, len(spans), len(spans))
    return MixingMap(scores, spans, spans, "attention", stack, (0,), provenance or {})


def words_map(*skipped):
    return map_of(
        tuple(Span(i, i + 1, text, word=i) for i, text in enumerate(TEXT) if i not in skipped)
    )


@pytest.mark.parametrize(
    ("name", "index"),
    [("MAISONS", 1), ("aujourd'hui", 2), ("e\u0301te\u0301s", 3), ("nos:2", 4), ("Nos:1", 0)],
)
def test_case_apostrophes_and_accents_make_no_difference(name, index):
    target = 3 if index == 1 else 1
    np.testing.assert_array_equal(
        speechmix.cue_contribution(words_map(), cue=name, target=target),
        speechmix.cue_contribution(words_map(), cue=index, target=target),
    )


@pytest.mark.parametrize(
    ("cue", "message"),
    [
        ("nos", r"cue 'nos' occurs 2 times: 'Nos:1' word 0 .*'nos:2' word 4 .*\(its index\)"),
        ("vos", r"cue 'vos' is not one of the words; the words are 0 'Nos', 1 'maisons'"),
        ("etes", "cue 'etes' is not one of the words; .*3 'étés'"),
        ("9", "cue index must be 0 to 4, found 9"),
    ],
)
def test_an_error_lists_the_words(cue, message):
    with pytest.raises(InputError, match=message):
        speechmix.cue_contribution(words_map(), cue=cue, target=1)


def test_an_index_is_that_of_the_clip_where_the_map_lacks_a_word():
    found = words_map(1)
    np.testing.assert_array_equal(
        speechmix.cue_contribution(found, cue="2", target=3),
        speechmix.cue_contribution(found, cue=2, target=3),
    )
    with pytest.raises(InputError, match=r"word 1 \(cue\) is not among the sources"):
        speechmix.cue_contribution(found, cue="1", target=3)
    with pytest.raises(InputError, match=r"0 'Nos', 1 '\(not in the map\)', 2 'aujourd’hui'"):
        speechmix.cue_contribution(found, cue="maisons", target=3)


def test_a_letter_of_two_tokens_is_in_the_word_once():
    spans = (Span(0, 1, "é", "token", 0), Span(1, 2, "é", "token", 0), Span(2, 3, "a", "token", 1))
    provenance = {"words": [["é", 0.0, 0.2], ["a", 0.2, 0.4]]}
    found = map_of(spans, provenance, stack="decoder")
    np.testing.assert_array_equal(
        speechmix.cue_contribution(found, cue="É", target="a"),
        speechmix.cue_contribution(found, cue=0, target=1),
    )
