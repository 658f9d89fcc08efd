"""Aligners side by side."""

import numpy as np
import pytest

from speechmix import Clip, Word
from speechmix.alignment.comparison import compare_aligners, summarize_aligners
from speechmix.errors import AlignmentError, InputError

WORDS = [Word("les", 0.1, 0.3), Word("livres", 0.3, 0.9)]


def shifted(seconds):
    return lambda clip: [Word(w.text, w.start + seconds, w.end + seconds, 0.5) for w in WORDS]


def failing(clip):
    raise AlignmentError("no speech")


def clips(words):
    return [
        Clip.from_array(np.ones(16_000), 16_000, text="les livres", words=words, name=name)
        for name in "ab"
    ]


def test_against_a_reference():
    table = compare_aligners(clips(WORDS), {"late": shifted(0.03), "never": failing})
    late, never = summarize_aligners(table).to_dict(orient="records")
    assert (late["against"], late["words"], late["failures"]) == ("reference", 4, 0)
    assert (late["start_ms"], late["end_ms"], late["within_20_ms"], late["within_50_ms"]) == (
        30.0,
        30.0,
        0.0,
        100.0,
    )
    assert (never["words"], never["failures"]) == (0, 2)
    assert set(table.reason.dropna()) == {"no speech"}


def test_without_one_the_others_median_stands_in():
    table = compare_aligners(
        clips(None), {"a": shifted(0.0), "b": shifted(0.02), "c": shifted(0.06)}
    )
    assert summarize_aligners(table).set_index("method").start_ms.to_dict() == {
        "a": 40.0,
        "b": 10.0,
        "c": 50.0,
    }
    assert set(summarize_aligners(table).against) == {"others"}


def test_nothing_aligned_is_an_error():
    with pytest.raises(InputError, match="no speech"):
        summarize_aligners(compare_aligners(clips(None), {"never": failing}))
