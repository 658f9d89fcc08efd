"""Covariates: of every kind of table, for the right unit, and refused where they cannot be right."""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
import pytest

import speechmix
from speechmix import Clip, MixingMap, Sentence, Span, add_covariates
from speechmix.errors import InputError, MissingExtraError
from speechmix.extensions.encoding.unit_features import COVARIATES


def clip_of(name="a", **fields):
    words = [("le", 0.1, 0.2), ("grand", 0.2, 0.5), ("le", 0.6, 0.7), ("club", 0.7, 1.0)]
    phones = [("k", 0.7, 0.8), ("l", 0.8, 0.85), ("y", 0.85, 0.9), ("b", 0.9, 1.0)]
    options = {
        "words": words,
        "language": "fr",
        "meta": {"speaker": "s1"},
        "tiers": {"phone": phones},
    }
    return Clip.from_array(np.zeros(17_600), 16_000, name=name, **(options | fields))


def map_of(spans):
    scores = np.ones((1, len(spans), len(spans)))
    return MixingMap(scores, tuple(spans), tuple(spans), "value_zeroing", "encoder", (0,))


def test_a_map_has_those_of_targets_and_sources():
    pytest.importorskip("wordfreq")
    spans = [
        Span(0, 2, "le", "word", 0, 0.1, 0.2),
        Span(2, 4, "<silence>", "silence", None, 0.5, 0.6),
        Span(4, 6, "le", "word", 2, 0.6, 0.7),
        Span(6, 8, "club", "word", 3, 0.7, 1.0),
    ]
    table = add_covariates(map_of(spans).to_dataframe(), clip_of())
    by_source = table.drop_duplicates("source").set_index("source")
    assert by_source["source_position"].fillna(-1).tolist() == [0, -1, 2, 3]
    assert by_source["source_position_from_end"].fillna(-1).tolist() == [3, -1, 1, 0]
    assert by_source["source_letters"].fillna(-1).tolist() == [2, -1, 2, 4]
    assert by_source["source_phones"].fillna(-1).tolist() == [0, -1, 0, 4]
    np.testing.assert_allclose(by_source["source_duration"], [0.1, np.nan, 0.1, 0.3])
    frequency = by_source["source_frequency"]
    assert frequency[0] == frequency[2] > frequency[3] > 3
    assert np.isnan(frequency[1])
    assert set(table["speaker"]) == {"s1"}
    assert "target_phone_class" not in table  # no phones in the map


@pytest.mark.parametrize("word", ["c’est", "cʼest", "C’est,"])
def test_the_frequency_of_an_elision_is_that_of_any_apostrophe(word):
    pytest.importorskip("wordfreq")
    clips = [
        clip_of(name, words=[(text, 0.1, 0.2)]) for name, text in (("a", word), ("b", "c'est"))
    ]
    table = pd.DataFrame({"clip": ["a", "b"], "word": [0, 0]})
    typographic, plain = add_covariates(table, clips, ["frequency"])["frequency"]
    assert typographic == plain > 6


def test_phones_have_a_class_and_no_frequency():
    pytest.importorskip("panphon")
    spans = [Span(0, 2, "k", "phone", 3, 0.7, 0.8), Span(2, 3, "y", "phone", 3, 0.85, 0.9)]
    table = pd.DataFrame(
        {"label": [s.label for s in spans], "onset": [s.onset for s in spans], "kind": "phone"}
    )
    wanted = ["phone_class", "position", "duration", "letters"]
    result = add_covariates(table, clip_of(), wanted)
    assert result["phone_class"].tolist() == ["stop", "vowel"]
    assert result["position"].tolist() == [0, 2]
    assert result["letters"].isna().all()


def test_cue_contributions_have_those_of_cue_and_target():
    clips = [clip_of("a", cue="grand", target="club"), clip_of("b", cue="le grand", target="club")]
    table = pd.DataFrame(
        {"clip": ["b", "a"], "cue": ["le grand", "grand"], "target": "club", "contribution": 0.1}
    )
    table = add_covariates(table, clips, ["letters", "duration", "position"])
    assert table["cue_letters"].tolist() == [7, 5]
    assert table["cue_position"].tolist() == [0, 1]
    np.testing.assert_allclose(table["cue_duration"], [0.4, 0.3])
    assert table["target_position"].tolist() == [3, 3]


def test_equal_words_of_a_text_are_told_apart_by_their_order():
    sentence = Sentence("the cat saw the dog")
    spans = [Span(i, i + 1, word) for i, word in enumerate("<s> the cat saw the dog".split())]
    spans[0] = Span(0, 1, "<s>", "special")
    table = add_covariates(map_of(spans).to_dataframe(), sentence, ["position"])
    assert table.drop_duplicates("source")["source_position"].fillna(-1).tolist() == [
        -1,
        0,
        1,
        2,
        3,
        4,
    ]


def test_columns_that_are_there_stay():
    table = pd.DataFrame({"word": [0, 1], "letters": "mine", "position": [7, 8]})
    result = add_covariates(table, clip_of(), ["letters", "position", "duration"])
    assert result[["letters", "position"]].equals(table[["letters", "position"]])
    assert list(table) == ["word", "letters", "position"]


def test_a_covariate_is_one_function(monkeypatch):
    monkeypatch.setitem(COVARIATES, "vowels", lambda unit: sum(c in "aeiou" for c in unit.label))
    table = add_covariates(pd.DataFrame({"word": [1, 3]}), clip_of(), ["vowels"])
    assert table["vowels"].tolist() == [1, 1]


@pytest.mark.parametrize(
    ("table", "clips", "names", "message"),
    [
        ({"word": [0]}, [clip_of()], ["frequencies"], "there is no covariate 'frequencies'"),
        ({"word": [0]}, [clip_of(), clip_of()], None, "two clips are called 'a'"),
        ({"word": [0]}, [clip_of(), clip_of("b")], None, "no column 'clip'"),
        ({"word": [0], "clip": "c"}, [clip_of()], None, "clip 'c' of the table is not among"),
        ({"word": [9]}, [clip_of()], None, "lacks the word 9"),
        ({"word": [0], "label": ["club"]}, [clip_of()], None, "lacks the word 'club'"),
        ({"clip": "a", "cue": ["les"]}, [clip_of(cue="grand")], None, "lacks the cue 'les'"),
        ({"clip": "a", "cue": ["les"]}, [clip_of()], None, "lacks the cue 'les'"),
        ({"target_label": ["x"]}, [clip_of()], None, "no label of the table is a word"),
        ({"score": [1.0]}, [clip_of()], None, "no label of the table is a word"),
        ({"word": [0]}, [clip_of(language=None)], ["frequency"], "has no language"),
        (
            {"word": [0]},
            [clip_of(language="xx")],
            ["frequency"],
            "no word frequencies in language 'xx'",
        ),
    ],
)
def test_what_cannot_be_right_is_refused(table, clips, names, message):
    if names == ["frequency"]:
        pytest.importorskip("wordfreq")
    with pytest.raises(InputError, match=message):
        add_covariates(pd.DataFrame(table), clips, names)


def test_without_wordfreq_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "wordfreq", None)
    table = pd.DataFrame({"word": [0]})
    with pytest.raises(MissingExtraError, match="statistics"):
        speechmix.add_covariates(table, clip_of())
    assert "letters" in add_covariates(table, clip_of(), ["letters"])
