"""Cells of time x band: they add up to the sound, and are removed as by hand."""

from __future__ import annotations

import numpy as np
import pytest

from speechmix import Clip, Word
from speechmix.errors import InputError
from speechmix.extensions.spectral.spectral_explain import SpectralCells
from speechmix.inputs.audio.spectrograms import band_edges, split_bands
from speechmix.inputs.bundled import clips

RATE = 16_000
EDGES = (0.0, 700.0, 1500.0, 3000.0, 5000.0, 8000.0)
TONES = (350.0, 1100.0, 2200.0, 4000.0, 6500.0)  # one within each band


def tone_bursts(centre=0.5, width=0.05):
    """Tones that swell and fade as a Gauss curve: each is within its band to below 1e-9, [5, samples]."""
    seconds = np.arange(RATE) / RATE
    swell = np.exp(-0.5 * ((seconds - centre) / width) ** 2)
    return 0.15 * swell * np.sin(2 * np.pi * np.array(TONES)[:, None] * seconds)


def as_clip(sound, words=None):
    return Clip.from_array(sound, RATE, name="synthetic", words=words)


@pytest.mark.parametrize("band", range(5))
def test_a_band_that_is_removed_leaves_the_other_tones(band):
    """By hand: the sound is made again without the tone."""
    tones = tone_bursts()
    cells = SpectralCells(as_clip(tones.sum(axis=0)), [Word("all", 0.0, 1.0)], EDGES)
    by_hand = np.delete(tones, band, axis=0).sum(axis=0)
    np.testing.assert_allclose(cells.remove([band]).audio(), by_hand, rtol=0, atol=1e-6)


def test_a_band_of_one_time_is_removed_there_only():
    early, late = tone_bursts(0.25, 0.02), tone_bursts(0.75, 0.02)
    words = [Word("early", 0.0, 0.5), Word("late", 0.5, 1.0)]
    cells = SpectralCells(as_clip((early + late).sum(axis=0), words), words, EDGES)
    by_hand = early.sum(axis=0) + np.delete(late, 3, axis=0).sum(axis=0)
    np.testing.assert_allclose(cells.remove([5 + 3]).audio(), by_hand, rtol=0, atol=1e-6)


def test_filters_are_those_of_a_fourier_sum_by_hand():
    """Each band, as a sum over all frequencies of a matrix of cosines, with the slopes drawn here again."""
    sound = np.random.default_rng(0).normal(size=800)
    edges, count = (0.0, 2000.0, 3000.0), 1600 + len(sound) + 1600  # with silence on both sides
    angles = 2j * np.pi * np.outer(np.arange(1600, 2400), np.arange(count)) / count
    hertz = np.minimum(np.arange(count), count - np.arange(count)) * RATE / count
    rise = 0.5 + 0.5 * np.sin(np.pi / 2 * np.clip((hertz - 2000) / 50, -1, 1))
    fall = 0.5 - 0.5 * np.sin(np.pi / 2 * np.clip((hertz - 3000) / 50, -1, 1))
    waves = np.exp(angles)
    spectrum = sound @ waves.conj()
    by_hand = [(waves @ (gain * spectrum)).real / count for gain in (1 - rise, rise + fall - 1)]
    np.testing.assert_allclose(split_bands(sound, RATE, edges), by_hand, rtol=0, atol=1e-9)


@pytest.mark.parametrize("count", [1, 3, 12])
@pytest.mark.parametrize("scale", ["mel", "erb"])
def test_bands_add_up_to_the_sound(count, scale):
    sound = clips()[1].audio()
    bands = split_bands(sound, RATE, band_edges(count, scale=scale, nyquist=8000))
    np.testing.assert_allclose(bands.sum(axis=0), sound, rtol=0, atol=1e-9)


@pytest.mark.parametrize("fill", ["zeros", "noise", "mean"])
def test_nothing_removed_is_the_sound_itself(fill):
    clip = clips()[1]
    cells = SpectralCells(clip, clip.words, EDGES, fill)
    np.testing.assert_array_equal(cells.remove([]).audio(), clip.audio())


def test_all_cells_of_words_and_silence_around_are_silent_or_as_before():
    clip = clips()[1]
    silent = SpectralCells(clip, clip.words, EDGES).remove(range(10)).audio()
    first, last = clip.words[0].start, clip.words[-1].end
    inside = slice(round((first + 0.01) * RATE), round((last - 0.01) * RATE))
    before = slice(0, round((first - 0.01) * RATE))
    assert np.abs(silent[inside]).max() < 1e-6
    np.testing.assert_allclose(silent[before], clip.audio()[before], rtol=0, atol=1e-6)


def test_noise_has_the_loudness_of_its_cell_and_the_mean_that_of_the_speaker():
    rng = np.random.default_rng(1)
    loudness = np.repeat([0.02, 0.1], RATE // 2)  # the second half is louder by 14 dB
    clip = as_clip(loudness * rng.normal(size=RATE))
    halves = [Word("soft", 0.0, 0.5), Word("loud", 0.5, 1.0)]

    def level(fill, band=2):
        changed = SpectralCells(clip, halves, EDGES, fill).remove([band]).audio()
        sound = split_bands(changed, RATE, EDGES)[band][1000:7000]
        return np.sqrt(np.mean(sound**2))

    original = np.sqrt(np.mean(split_bands(clip.audio(), RATE, EDGES)[2][1000:7000] ** 2))
    both = np.sqrt(np.mean(split_bands(clip.audio(), RATE, EDGES)[2] ** 2))
    assert level("noise") == pytest.approx(original, rel=0.1)
    assert level("mean") == pytest.approx(both, rel=0.1)


def test_noise_is_the_same_for_the_same_seed():
    clip = clips()[1]
    one, again, other = (
        SpectralCells(clip, clip.words, EDGES, "noise", seed).remove([1]).audio()
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, other)


def test_a_cell_or_fill_that_there_is_not():
    clip = clips()[1]
    with pytest.raises(InputError, match="cells from 0 to 9"):
        SpectralCells(clip, clip.words, EDGES).remove([10])
    with pytest.raises(InputError, match="expected a fill among"):
        SpectralCells(clip, clip.words, EDGES, "room").remove([0])
