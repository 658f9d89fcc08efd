"""Words that an aligner gave no times, as WhisperX does with numerals."""

from __future__ import annotations

import json

import pytest

from speechmix.errors import InputError
from speechmix.inputs.formats.word_files import read_words


def written(path, words):
    path.write_text(json.dumps({"segments": [{"words": words}]}))
    return path


def test_a_numeral_is_placed_between_its_neighbours_with_a_warning(tmp_path):
    words = [
        {"word": "en", "start": 0.5, "end": 0.7},
        {"word": "2014"},
        {"word": "ans", "start": 1.1, "end": 1.3},
    ]
    with pytest.warns(
        UserWarning, match=r"1 words have no times; placed between the words around them: 2014"
    ):
        found = read_words(written(tmp_path / "a.json", words))
    assert [(word.text, word.start, word.end) for word in found] == [
        ("en", 0.5, 0.7),
        ("2014", 0.7, 1.1),
        ("ans", 1.1, 1.3),
    ]


def test_one_without_room_is_left_out_with_a_warning(tmp_path):
    words = [
        {"word": "1"},
        {"word": "en", "start": 0.5, "end": 0.7},
        {"word": "2"},
        {"word": "an", "start": 0.7, "end": 0.9},
        {"word": "3"},
    ]
    with pytest.warns(UserWarning, match=r"3 words have no times; left out: 1, 2, 3"):
        found = read_words(written(tmp_path / "a.json", words))
    assert [word.text for word in found] == ["en", "an"]


@pytest.mark.parametrize(
    "words",
    [
        [{"word": "a"}],
        [{"word": "a", "start": 0.1}, {"word": "b", "start": 0.2, "end": 0.3}],
        [{"word": ""}, {"word": "b", "start": 0.2, "end": 0.3}],
    ],
)
def test_what_is_no_word_is_still_refused(tmp_path, words):
    with pytest.raises(InputError, match="word 0"):
        read_words(written(tmp_path / "a.json", words))
