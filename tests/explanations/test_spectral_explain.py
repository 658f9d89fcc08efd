"""Bands and times that a decision rests on: planted readers, sums, nulls, ties and bad input."""

from __future__ import annotations

import numpy as np
import pytest

import speechmix
from speechmix import Clip, Word
from speechmix.errors import InputError
from speechmix.extensions.spectral.spectral_explanation import SpectralExplanation, SpectralGame
from speechmix.inputs.audio.spectrograms import band_edges
from speechmix.inputs.bundled import clips
from speechmix.interventions.decision import Decision
from tests.conftest import trained
from tests.explanations.planted_bands import (
    EDGES,
    WORDS,
    band_reader,
    inner_range,
    noisy_clip,
)

YES = {"objective": ("yes", "no")}


def explain_bands(model, clip, **options):
    settings = {"units": "clip", "bands": EDGES, "fills": ["zeros"], **YES, **options}
    return speechmix.spectral_explain(model, clip, **settings)


def first_bands(result, count):
    return set(np.argsort(-np.abs(result.scores.sum(axis=0)))[:count].tolist())


def test_the_band_that_is_read_is_first_and_all_others_are_zero():
    result = explain_bands(band_reader([inner_range(3)]), noisy_clip(0))
    assert result.leading_cells == ((0, 3),)
    np.testing.assert_allclose(np.delete(result.scores[0], 3), 0, atol=1e-6)
    assert result.summary.startswith("the model told 'yes' from 'no' by 3.2 to 5 kHz (")


@pytest.mark.parametrize("reading", ["sum", "product", "either"])
def test_of_a_decision_by_two_bands_both_are_first(reading):
    model = band_reader([inner_range(1), inner_range(4)], reading=reading)
    result = explain_bands(model, noisy_clip(1))
    assert first_bands(result, 2) == {1, 4}


def test_the_time_and_band_that_are_read_lead():
    model = band_reader([inner_range(2)], window=WORDS[1][1:])
    result = explain_bands(model, noisy_clip(2), units="word", samples=16)
    assert result.leading_cells == ((1, 2),)
    assert "1.8 to 3.2 kHz of 'bb'" in result.summary


def test_a_clip_without_words_has_windows():
    clip, model = (
        noisy_clip(2).replace(words=None),
        band_reader([inner_range(2)], window=(0.2, 0.4)),
    )
    result = explain_bands(model, clip, units=200, bands=[0, 1800, 3200, 8000])
    assert [time.text for time in result.times] == ["0.00-0.20 s", "0.20-0.40 s", "0.40-0.60 s"]
    assert result.leading_cells == ((1, 1),)


def test_phones_of_a_clip_are_times_and_within_selects_some():
    phones = [("a", 0.02, 0.1), ("s", 0.1, 0.2), ("b", 0.2, 0.38), ("c", 0.38, 0.58)]
    clip = noisy_clip(2).replace(tiers={"phone": phones})
    model = band_reader([inner_range(2)], window=(0.1, 0.2))
    result = explain_bands(model, clip, units="phone", within=(0.0, 0.2), samples=4)
    assert [time.text for time in result.times] == ["a", "s"]
    assert result.leading_cells == ((1, 2),)
    assert "1.8 to 3.2 kHz of 's'" in result.summary


def test_the_decision_with_and_without_the_sound_is_that_of_the_sound_and_of_silence():
    model, clip = trained("tiny-french-ctc"), clips()[1]
    (game,) = speechmix.spectral_explain(model, clip, units="clip", bands=1, fills=["zeros"]).games
    silence = Clip.from_array(0 * clip.audio(), 16_000, words=clip.words, target=1, foil=clip.foil)
    ends = [Decision.prepare(model, sound).margin for sound in (clip, silence)]
    assert (game.full, game.empty) == pytest.approx(ends, abs=1e-3)


def test_nothing_is_claimed_of_a_model_that_ignores_the_sound():
    result = explain_bands(
        band_reader([], reading="nothing"), noisy_clip(3), fills=["zeros", "noise", "mean"]
    )
    assert result.leading_cells == () == result.leading_bands
    assert not result.scores.any()
    assert result.summary.startswith("nothing is claimed")


def test_a_tie_is_not_separated():
    """Six bands that count alike: none leads, and the largest of them is not named."""
    model = band_reader([inner_range(band) for band in range(5)])
    result = explain_bands(model, noisy_clip(4))
    assert result.leading_cells == ()
    assert result.summary.startswith("not separated")


def test_what_one_fill_says_is_not_claimed_where_another_contradicts():
    """Noise of the same spectrum leaves the level as it is, which is all that this model reads."""
    result = explain_bands(band_reader([inner_range(3)]), noisy_clip(0), fills=["zeros", "noise"])
    assert result.leading_cells == ()


def test_the_largest_of_a_twin_must_be_exceeded():
    model, twin = band_reader([inner_range(3)]), band_reader([inner_range(0)])
    clip = noisy_clip(5)
    assert explain_bands(model, clip, twins=[band_reader([], reading="nothing")]).leading_cells
    assert not explain_bands(model, clip, twins=[twin, model]).leading_cells


def test_bands_over_all_times_are_compared_with_those_of_twins():
    """Each cell of the twin is below the band of the model, but its band is above."""
    values, none = np.tile([1.0, 0.0, 0.0], (4, 1)), np.zeros((4, 3))
    game = SpectralGame("zeros", 0, values, none, none, 4.0, 0.0)
    times = [Word(str(i), i / 10, (i + 1) / 10) for i in range(4)]
    rest = (noisy_clip(0), times, (0.0, 1000.0, 2000.0, 8000.0), (game,), ("yes", "no"))
    assert SpectralExplanation(*rest).leading_bands == (0,)
    twin = np.tile([0.0, 0.0, 1.2], (4, 1))
    assert SpectralExplanation(*rest, twin_values=[twin]).leading_bands == ()


@pytest.mark.parametrize("fill", ["zeros", "noise", "mean"])
def test_values_of_a_trained_model_add_up(fill):
    result = speechmix.spectral_explain(
        trained("tiny-french-ctc"), clips()[1], units="clip", bands=4, fills=[fill]
    )
    for game in result.games:
        assert game.values.sum() == pytest.approx(game.full - game.empty, abs=1e-6)
        assert abs(game.full - game.empty) > 0.1


def test_sampled_values_add_up_and_have_errors():
    result = speechmix.spectral_explain(
        trained("tiny-french-ctc"), clips()[1], units=200, bands=2, fills=["zeros"], samples=2
    )
    (game,) = result.games
    assert game.values.shape == (6, 2)
    assert game.values.sum() == pytest.approx(game.full - game.empty, abs=1e-6)
    assert game.errors.max() > 0


def test_the_table_has_each_cell_with_each_fill():
    result = explain_bands(band_reader([inner_range(3)]), noisy_clip(6), fills=["zeros", "noise"])
    table = result.to_dataframe()
    assert len(table) == 5 * 3  # noise is drawn twice
    assert table.loc[table["fill"] == "noise", "draw"].unique().tolist() == [0, 1]
    zeros = table[table["fill"] == "zeros"]
    # Of a model that adds nothing up from several bands, a band's value is what is lost without it.
    np.testing.assert_allclose(zeros["shapley"], zeros["alone"], atol=1e-9)


def test_integrated_gradients_of_log_mel_inputs_are_complete():
    model = trained("tiny-french-whisper")
    clip = clips()[3]
    result = speechmix.spectral_explain(
        model, clip, units="clip", bands=[0, 2000, 8000], fills=["zeros"], gradients=True
    )
    (game,) = result.games
    assert result.gradients.any()
    assert result.provenance["gradients_missed"] < 0.05 * abs(game.full - game.empty) + 0.05


def test_the_figure_frames_the_leading_cell_and_shows_the_summary():
    result = explain_bands(band_reader([inner_range(3)]), noisy_clip(0))
    ax = result.plot()
    frames = [patch for patch in ax.patches if not patch.get_fill()]
    assert [(frame.get_y(), frame.get_height()) for frame in frames] == [(3200, 1800)]
    assert "told 'yes' from 'no'" in ax.get_title()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"bands": [0, 4000, 9000]},
            "up to 8000 Hz .half its sampling rate., found a band up to 9000 Hz",
        ),
        ({"bands": 0}, "expected at least 1 band"),
        ({"bands": [2000]}, "expected at least 1 band"),
        ({"bands": [3000, 1000]}, "ascending edges"),
        ({"units": 700}, "the clip of 600 ms is shorter than a window of 700 ms"),
        ({"units": "phone"}, "there is no unit .phone. .* the clip has .*word"),
        ({"within": (5.0, 6.0)}, "expected within= as two times in the 0.6 s of the clip"),
        (
            {"units": "word", "within": (0.0, 0.05)},
            "there is no unit .word. with its middle within 0 to 0.05 s",
        ),
        ({"fills": ["room"]}, "fills should be some of"),
        ({"scale": "bark"}, "scale should be one of"),
        ({"samples": 1}, "at least 2"),
        ({"gradients": True}, "does not read a log-mel spectrogram"),
    ],
)
def test_bad_input_has_a_message(options, message):
    with pytest.raises(InputError, match=message):
        explain_bands(band_reader([inner_range(3)]), noisy_clip(0), **options)


@pytest.mark.long
def test_planted_bands_are_first_in_95_of_100_seeds():
    """Bands of the package's own scales; of cells, a band at one of three times."""
    counts = dict.fromkeys(("band", "claimed", "both", "both claimed", "cell", "cell claimed"), 0)
    for seed in range(100):
        rng, clip = np.random.default_rng(seed), noisy_clip(1000 + seed)
        edges = band_edges(6, scale=("mel", "erb")[seed % 2], nyquist=8000)
        band, second = rng.choice(len(edges) - 1, size=2, replace=False).tolist()
        ranges = [inner_range(band, edges), inner_range(second, edges)]
        result = explain_bands(band_reader(ranges[:1]), clip, bands=edges)
        counts["band"] += first_bands(result, 1) == {band}
        counts["claimed"] += result.leading_bands == (band,)
        reading = ("sum", "product", "either")[seed % 3]
        result = explain_bands(band_reader(ranges, reading=reading), clip, bands=edges)
        counts["both"] += first_bands(result, 2) == {band, second}
        counts["both claimed"] += set(result.leading_bands) == {band, second}
        time = int(rng.integers(3))
        model = band_reader(ranges[:1], window=WORDS[time][1:])
        result = explain_bands(model, clip, bands=edges, units="word", samples=4)
        counts["cell"] += int(np.argmax(result.scores)) == time * 6 + band
        counts["cell claimed"] += result.leading_cells == ((time, band),)
    print(counts)
    assert min(counts.values()) >= 95, counts


@pytest.mark.parametrize("options", [{}, {"samples": 2}, {"twins": True}])
def test_the_bar_counts_every_set_of_cells(options, capsys):
    if "twins" in options:
        options = {"twins": [band_reader([inner_range(2)])]}
    model = band_reader([inner_range(3)])
    explain_bands(model, noisy_clip(0), fills=["zeros", "mean"], progress=True, **options)
    last = capsys.readouterr().err.strip().rpartition("\r")[2]
    done, total = last.split("|")[2].split()[0].split("/")
    assert "100%" in last
    assert done == total
