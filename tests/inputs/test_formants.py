"""Formants of synthetic vowels, whose resonances are set here."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.signal import lfilter

from speechmix.errors import InputError
from speechmix.inputs.audio.spectrograms import track_formants

RATE = 16_000
BANDWIDTHS = (60, 90, 150, 200, 300)
# F1 to F3: means of men, Peterson & Barney (1952)
VOWELS = {
    "i": (270, 2290, 3010),
    "ɪ": (390, 1990, 2550),
    "ɛ": (530, 1840, 2480),
    "æ": (660, 1720, 2410),
    "ɑ": (730, 1090, 2440),
    "ɔ": (570, 840, 2410),
    "ʊ": (440, 1020, 2240),
    "u": (300, 870, 2240),
    "ʌ": (640, 1190, 2390),
    "ɝ": (490, 1350, 1690),
}


def synthetic_vowel(formants, pitch, seconds=0.5):
    """Glottal pulses of a falling pitch, -12 dB an octave, radiated at the lips, through five resonators."""
    count = round(seconds * RATE)
    cycles = np.cumsum(pitch * np.linspace(1.05, 0.92, count)) / RATE
    decay = np.exp(-2 * np.pi * 100 / RATE)
    sound = lfilter([1], [1, -2 * decay, decay**2], np.diff(np.floor(cycles), prepend=0.0))
    sound = lfilter([1, -1], [1], sound)
    for frequency, bandwidth in zip((*formants, 3600, 4700), BANDWIDTHS, strict=True):
        radius = np.exp(-np.pi * bandwidth / RATE)
        poles = [1, -2 * radius * np.cos(2 * np.pi * frequency / RATE), radius**2]
        sound = lfilter([sum(poles)], poles, sound)
    return sound / np.abs(sound).max() / 2


@pytest.mark.parametrize("pitch", [90, 120])
@pytest.mark.parametrize("vowel", VOWELS)
def test_formants_of_synthetic_vowels_are_within_8_percent(vowel, pitch):
    times, formants = track_formants(synthetic_vowel(VOWELS[vowel], pitch), RATE)
    medians = np.nanmedian(formants[(times > 0.1) & (times < 0.4), :3], axis=0)
    np.testing.assert_allclose(medians, VOWELS[vowel], rtol=0.08)


@pytest.mark.parametrize("pitch", [180, 240])
@pytest.mark.parametrize("vowel", VOWELS)
def test_of_higher_voices_the_first_formant_is_within_half_a_harmonic(vowel, pitch):
    _, formants = track_formants(synthetic_vowel(VOWELS[vowel], pitch), RATE)
    first, *others = np.nanmedian(formants[:, :3], axis=0)
    assert abs(first - VOWELS[vowel][0]) < pitch / 2
    np.testing.assert_allclose(others, VOWELS[vowel][1:], rtol=0.08)


def test_silence_and_the_quiet_part_have_no_formants():
    vowel = synthetic_vowel(VOWELS["ɑ"], 120)
    times, formants = track_formants(np.concatenate([vowel, np.zeros(RATE // 2)]), RATE)
    assert np.isnan(formants[times > 0.6]).all()
    assert np.isnan(track_formants(np.zeros(RATE), RATE)[1]).all()


@pytest.mark.parametrize(
    ("samples", "options"), [(RATE, {"ceiling": 9000.0}), (500, {}), (RATE, {"count": 0})]
)
def test_bad_input_has_a_message(samples, options):
    with pytest.raises(InputError, match="formants: expected a ceiling up to 8000 Hz"):
        track_formants(np.zeros(samples), RATE, **options)
