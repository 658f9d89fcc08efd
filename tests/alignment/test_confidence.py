"""How sure of a word: ways that agree or not, borders that could lie elsewhere, decoys that cost as
much as the text."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from speechmix.alignment.cepstra import RecordingCepstra
from speechmix.alignment.confidence import (
    Evidence,
    Warp,
    list_doubts,
    text_confidence,
    word_confidence,
)
from speechmix.inputs.words.spans import Word

N_FRAMES = 400
BORDERS = [(40, 140), (140, 240), (280, 360)]
WORDS = [
    Word(text, first / 200, last / 200, 0.9)
    for text, (first, last) in zip("abc", BORDERS, strict=True)
]


def warp(borders, cost=0.5, nearer=0.02):
    owner = np.full(N_FRAMES, -1)
    for index, (first, last) in enumerate(borders):
        owner[first:last] = index
    said = np.where(owner < 0, np.nan, 1.0)
    return Warp(owner, np.full(N_FRAMES, cost), said * np.arange(N_FRAMES) / 200, said * nearer)


def border_costs(flat=(), price=1.0):
    """Each frame away from where a border lies costs as much more; for the words in `flat`,
    nothing."""
    places = np.array([[first, last - 1] for first, last in BORDERS]).T[:, :, None]
    costs = price * np.abs(np.arange(N_FRAMES) - places)
    costs[:, list(flat)] = 0
    return costs + 100.0


def evidence(ways, *, decoy=0.65, sounds=BORDERS, likeness=0.7, nearer=0.02, borders=None):
    energy = np.full(N_FRAMES, -50.0)
    for first, last in sounds:
        energy[first:last] = 0
    recording = RecordingCepstra(
        np.ones((N_FRAMES, 40)), energy, quiet=-50.0, loud=0.0, noise=np.ones(40)
    )
    natural = np.array([last - first for first, last in BORDERS]) / 200
    text, others = warp(BORDERS, nearer=nearer), tuple(map(warp, ways))
    borders = border_costs() if borders is None else borders
    return Evidence(recording, natural, text, others, (warp(BORDERS, decoy),), likeness, borders)


def test_ways_that_agree_leave_no_doubt():
    sure = evidence([BORDERS] * 4)
    assert sure.edges.tolist() == [[first, last - 1] for first, last in BORDERS]
    assert (word_confidence(sure) > 0.95).all()
    assert text_confidence(sure) > 0.9
    assert list_doubts(WORDS, sure) == ()


def test_a_word_lies_at_the_median_and_is_less_sure_the_further_one_way_has_it():
    scores = []
    for shift in (0, 8, 40):
        other = [(40, 140 - shift), (140 - shift, 240), (280, 360)]
        some = evidence([BORDERS, BORDERS, BORDERS, other])
        assert some.edges[:, 0].tolist() == [40, 140, 280]
        scores.append(word_confidence(some))
    assert scores[0][1] > scores[1][1] > scores[2][1]
    assert scores[0][2] == pytest.approx(scores[2][2])


def test_a_word_is_less_sure_where_other_borders_cost_as_much():
    sure, unsure = evidence([BORDERS] * 4), evidence([BORDERS] * 4, borders=border_costs(flat=[1]))
    assert sure.margin.tolist() == [20, 20, 20]
    assert unsure.margin.tolist() == [20, 0, 20]
    before, after = word_confidence(sure), word_confidence(unsure)
    assert after[1] < before[1] - 0.1
    assert after[[0, 2]].tolist() == before[[0, 2]].tolist()


def test_only_borders_more_than_100_ms_away_count():
    near = evidence([BORDERS] * 4, borders=border_costs(price=0.5))
    assert near.margin.tolist() == [10.5, 10.5, 10.5]  # 21 frames of 5 ms


def test_sound_that_no_word_takes():
    filled = evidence([BORDERS] * 4, sounds=[(40, 140), (140, 360)])
    assert filled.unexplained == pytest.approx(40 / 320)


def test_a_text_that_fits_worse_than_its_sounds_in_another_order_is_doubted():
    wrong = evidence([BORDERS] * 4, decoy=0.48, likeness=0.3)
    assert text_confidence(wrong) < 0.6
    assert "may not be what is said" in list_doubts(WORDS, wrong)[0]


@pytest.mark.parametrize("worse", [{"decoy": 0.5}, {"likeness": 0.3}, {"nearer": 0.3}])
def test_each_sign_of_another_text_lowers_the_score(worse):
    assert (
        text_confidence(evidence([BORDERS] * 4, **worse))
        < text_confidence(evidence([BORDERS] * 4)) - 0.02
    )


def test_the_same_gain_says_more_of_a_voice_that_is_unlike_the_speakers():
    strange = evidence([BORDERS] * 4, decoy=0.65, likeness=0.45)
    alike = evidence([BORDERS] * 4, decoy=0.65, likeness=0.45)
    object.__setattr__(strange, "warp", warp(BORDERS, cost=0.7))
    object.__setattr__(strange, "decoys", (warp(BORDERS, cost=0.91),))
    assert strange.gain == pytest.approx(alike.gain)
    assert text_confidence(strange) > text_confidence(alike)


def test_more_is_expected_of_a_text_with_a_voice_that_was_learnt():
    between = evidence([BORDERS] * 4, decoy=0.53, likeness=0.55)
    assert 0.6 < text_confidence(between) < 0.75
    assert list_doubts(WORDS, between) == ()
    assert "expected at least 0.75" in list_doubts(WORDS, between, adapted=True)[0]


def test_a_word_that_lies_in_silence_is_named():
    doubts = list_doubts(WORDS, evidence([BORDERS] * 4, sounds=[(0, 10), (140, 240), (280, 360)]))
    assert any("silence" in doubt and "a" in doubt.split(":")[1] for doubt in doubts)


def test_high_scores_in_another_language_are_not_calibrated_and_silence_no_doubt():
    right = evidence([BORDERS] * 4)
    assert list_doubts(WORDS, right, language="fr-be") == ()
    (doubt,) = list_doubts(WORDS, right, language="en-us")
    assert "tuned on French: in en-us" in doubt


@pytest.mark.parametrize("language", ["fr", "en-us"])
def test_words_below_the_promised_score_are_named_in_every_language(language):
    words = [WORDS[0], replace(WORDS[1], score=0.6), *WORDS[2:]]
    doubts = list_doubts(words, evidence([BORDERS] * 4), language=language)
    assert f"{words[1].text} (0.60)" in doubts[-1]


def test_sound_behind_a_word_that_none_takes_makes_it_less_sure():
    quiet, noisy = evidence([BORDERS] * 4), evidence([BORDERS] * 4, sounds=[(40, 140), (140, 360)])
    assert noisy.sound_behind.tolist() == pytest.approx([0, 0.2, 0])
    before, after = word_confidence(quiet), word_confidence(noisy)
    assert after[1] < before[1]
    assert after[[0, 2]].tolist() == pytest.approx(before[[0, 2]].tolist())


def test_words_of_low_score_are_named():
    words = [Word("a", 0.2, 0.7, 0.9), Word("b", 0.7, 1.2, 0.3), Word("c", 1.4, 1.8, 0.9)]
    (doubt,) = list_doubts(words, evidence([BORDERS] * 4))
    assert "100 ms off" in doubt
    assert "b (0.30)" in doubt
    assert "a (" not in doubt
