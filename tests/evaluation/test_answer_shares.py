"""What of an answer is from sound, prompt and answer: shares by hand, and which maps have them."""

from __future__ import annotations

import numpy as np
import pytest

import speechmix
from speechmix import MixingMap, Span
from speechmix.errors import InputError

SOUND = [Span(2, 6, "les", "word", 0), Span(6, 9, "livres", "word", 1)]
FED = (
    Span(0, 1, "Q", "token"),
    *SOUND,
    Span(9, 10, ":", "token"),
    Span(10, 11, "les", "token", 0),
    Span(11, 12, "livres", "token", 1),
)
WRITTEN = (
    FED[0],
    *SOUND,
    Span(9, 10, "les", "token", 0),
    Span(10, 11, "livres", "token", 1),
    Span(11, 12, "</s>", "special"),
)
PLACES = {"sound_positions": [2, 9], "answer_position": 10, "answer": "les livres"}


def made(scores, **changes):
    return MixingMap(
        np.asarray(scores, float),
        WRITTEN,
        FED,
        "value_zeroing",
        "decoder",
        (0, 1),
        PLACES | changes,
    )


def drawn():
    return np.tril(np.random.default_rng(0).random((2, 6, 6)))


def test_shares_are_those_of_normalised_rows_that_write():
    scores = drawn()
    table = speechmix.answer_shares(made(scores), cue=0)
    rows = scores[:, 3:5] / scores[:, 3:5].sum(axis=-1, keepdims=True)
    mean = rows.mean(axis=1)
    assert table["layer"].tolist() == [0, 1]
    np.testing.assert_allclose(table["sound"], mean[:, 1:3].sum(axis=1))
    np.testing.assert_allclose(table["prompt"], mean[:, [0, 3]].sum(axis=1))
    np.testing.assert_allclose(table["answer"], mean[:, 4:].sum(axis=1))
    np.testing.assert_allclose(table["cue_heard"], mean[:, 1])
    np.testing.assert_allclose(table["cue_written"], mean[:, 4])
    np.testing.assert_allclose(table[["sound", "prompt", "answer"]].sum(axis=1), 1)


def test_one_word_of_the_answer_may_be_asked_about():
    scores = drawn()
    table = speechmix.answer_shares(made(scores), target=1)
    np.testing.assert_allclose(
        table["answer"], (scores[:, 4] / scores[:, 4].sum(axis=-1, keepdims=True))[:, 4:].sum(-1)
    )
    with pytest.raises(InputError, match="writes word 7"):
        speechmix.answer_shares(made(scores), target=7)


def test_a_map_that_does_not_know_where_the_answer_is_is_refused():
    scores = drawn()
    with pytest.raises(InputError, match="audio language model"):
        speechmix.answer_shares(MixingMap(scores, WRITTEN, FED, "value_zeroing", "decoder", (0, 1)))
