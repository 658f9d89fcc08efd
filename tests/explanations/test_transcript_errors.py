"""Errors of a transcript: as few as the word error rate counts, and of those alignments the one
that a reader would choose."""

from __future__ import annotations

import numpy as np
import pytest
from rapidfuzz.distance import Levenshtein

from speechmix.extensions.explain.transcript_errors import align_words, transcript_errors
from speechmix.inputs.words.spans import Word


def told(said, written):
    return [
        (error.kind, error.said, error.wrote)
        for error in transcript_errors(said.split(), written.split())
    ]


@pytest.mark.parametrize(
    ("said", "written", "expected"),
    [
        ("les livres", "Les livres.", []),
        ("les livres", "les livre", [("substitution", "livres", "livre")]),
        (
            "les livres",
            "les livres les livres",
            [("insertion", None, "les livres")],
        ),
        ("elle a lu", "elle lu", [("deletion", "a", None)]),
        ("les livres", "", [("deletion", "les livres", None)]),
        ("l’été", "l'été", []),
        # Two ways cost the same: exchange both words and miss the last, or miss the first.
        (
            "oui notre maison",
            "nos maisons",
            [("substitution", "oui notre maison", "nos maisons")],
        ),
    ],
)
def test_errors(said, written, expected):
    assert told(said, written) == expected


@pytest.mark.parametrize(
    ("said", "written", "expected"),
    [
        ("set a timer for 4 and a half minutes", "Set a timer for 4.5 minutes.", []),
        ("brightness to 75 percent", "brightness to 75%", []),
        ("for 3 hours", "for three hours", []),
        ("never mind", "Nevermind.", []),
        ("it is two", "it is too", [("substitution", "two", "too")]),
        ("try again", "it was try again", [("insertion", None, "it was")]),
        ("ever tried", "ever cry it was", [("substitution", "tried", "cry it was")]),
    ],
)
def test_numbers_and_spellings_of_english_are_no_errors(said, written, expected):
    found = transcript_errors(said.split(), written.split(), "en")
    assert [(error.kind, error.said, error.wrote) for error in found] == expected


def test_what_stands_around_a_missing_word_and_when_it_was_said():
    said = [Word("elle", 0.1, 0.3), Word("a", 0.3, 0.4), Word("lu", 0.4, 0.8)]
    (error,) = transcript_errors(said, ["elle", "-", "lu"])
    assert (error.before, error.after, error.onset, error.offset) == ("elle", "lu", 0.3, 0.4)
    assert (error.reference, error.written) == (1, 2)
    assert str(error) == "'a' (0.30 to 0.40 s) is missing, beside 'elle' and 'lu'"
    (last,) = transcript_errors(["elle", "lu"], ["elle"])
    assert (last.before, last.after, last.written) == ("elle", None, 1)


def test_edits_are_as_few_as_there_can_be_and_turn_one_into_the_other():
    rng = np.random.default_rng(0)
    for _ in range(60):
        said, written = (
            list(rng.choice(["le", "les", "livre", "livres", "a"], size=rng.integers(0, 7)))
            for _ in "ab"
        )
        found = align_words(said, written)
        assert len(found) == Levenshtein.distance(said, written)
        made, reached = [], 0
        for kind, row, column in found:
            made += said[reached:row]
            made += [] if kind == "deletion" else [written[column]]
            reached = row + (kind != "insertion")
        assert made + said[reached:] == written
