"""Continua and graded changes: what was requested is measured back from the samples, by other means
than made them."""

from __future__ import annotations

import librosa
import numpy as np
import pytest
import scipy.linalg
import scipy.signal
import soundfile

import speechmix
from speechmix.errors import InputError, MissingExtraError
from speechmix.extensions.continua.continua import CHANGES, Continuum
from speechmix.inputs import bundled

RATE = 16_000
needs_world = pytest.mark.usefixtures("world")


@pytest.fixture
def world():
    pytest.importorskip("pyworld", reason="the extra `continua` is not installed")


def vowel(f0=120.0, formants=(700, 1200, 2500), seconds=0.5):
    """Pulses through resonators of known frequencies, 80 Hz wide."""
    count = round(seconds * RATE)
    sound = (np.diff(np.floor(np.arange(count + 1) * f0 / RATE)) > 0).astype(float)
    for frequency in formants:
        pole = np.exp(-np.pi * 80 / RATE + 2j * np.pi * frequency / RATE)
        sound = scipy.signal.lfilter([1], np.poly([pole, pole.conj()]).real, sound)
    return (0.3 * sound / abs(sound).max()).astype(np.float32)


def clip(samples, name="clip", rate=RATE, **options):
    return speechmix.Clip.from_array(samples, rate, name=name, **options)


# By scipy: numba compiles librosa's functions for this for a quarter of a minute.


def pitch(sound):
    """Median over frames that are voiced, of the shortest period at which they are like themselves."""
    size, periods = 1024, np.arange(RATE // 500, RATE // 60)
    found = []
    for start in range(0, len(sound) - size - periods[-1], 160):
        frame = sound[start : start + size].astype(float)
        later = np.lib.stride_tricks.sliding_window_view(
            sound[start : start + size + periods[-1]].astype(float), size
        )[periods]
        likeness = later @ frame / (np.linalg.norm(later, axis=1) * np.linalg.norm(frame) + 1e-9)
        peaks = np.flatnonzero(np.diff(np.sign(np.diff(likeness))) < 0) + 1
        if not len(peaks) or likeness[peaks].max() < 0.7:
            continue  # not voiced
        best = next(peak for peak in peaks if likeness[peak] > 0.95 * likeness[peaks].max())
        before, at, after = likeness[best - 1 : best + 2]
        found.append(RATE / (periods[best] + (before - after) / (before - 2 * at + after) / 2))
    return np.median(found)


def formants_of(sound):
    """Frequencies of the poles of linear prediction, the narrow ones."""
    middle = sound[len(sound) // 4 : -len(sound) // 4].astype(float)
    products = scipy.signal.correlate(*[np.hamming(len(middle)) * middle] * 2)[len(middle) - 1 :]
    roots = np.roots([1, *-scipy.linalg.solve_toeplitz(products[:10], products[1:11])])
    roots = roots[(roots.imag > 0) & (abs(roots) > 0.93)]
    return np.sort(np.angle(roots) * RATE / 2 / np.pi)


def mel_power(sound):
    filters = librosa.filters.mel(sr=RATE, n_fft=512, n_mels=40)
    return filters @ abs(scipy.signal.stft(sound, RATE, nperseg=512, noverlap=352)[2]) ** 2


def log_mel(sound):
    decibels = 10 * np.log10(np.maximum(mel_power(sound), 1e-15))
    return np.maximum(decibels, decibels.max() - 60)


def pair(number="left_00"):
    clips = {clip.name: clip for clip in bundled.clips()}
    return clips[f"{number}_sg"], clips[f"{number}_pl"]


class TestMixing:
    def test_ends_are_the_samples_and_steps_their_weighted_sums(self):
        a, b = clip(vowel(), "a"), clip(vowel(200, seconds=0.4), "b")
        steps = speechmix.continuum(a, b, 5, method="mix")
        ends = a.audio(RATE), np.pad(b.audio(RATE), (0, 1600))
        np.testing.assert_array_equal(steps.clips[0].audio(RATE), ends[0])
        np.testing.assert_array_equal(steps.clips[-1].audio(RATE), ends[1])
        np.testing.assert_allclose(
            steps.clips[1].audio(RATE), 0.75 * ends[0] + 0.25 * ends[1], atol=1e-7
        )

    def test_reversal_mirrors_the_sounds(self):
        a, b = pair()
        forth = speechmix.continuum(a, b, 7, method="mix")
        back = speechmix.continuum(b, a, 7, method="mix")
        for one, other in zip(forth.clips, reversed(back.clips), strict=True):
            np.testing.assert_allclose(one.audio(RATE), other.audio(RATE), atol=1e-7)
            assert (one.text, other.text) == (a.text, b.text)

    def test_a_file_keeps_its_own_rate(self, tmp_path):
        for name, f0 in (("a", 100), ("b", 200)):
            soundfile.write(tmp_path / f"{name}.wav", np.repeat(vowel(f0), 2), 2 * RATE)
        a, b = (speechmix.Clip.from_file(tmp_path / f"{name}.wav") for name in "ab")
        steps = speechmix.continuum(a, b, 2, method="mix")
        np.testing.assert_array_equal(steps.clips[0].audio(2 * RATE), a.audio(2 * RATE))


@needs_world
class TestInterpolation:
    def test_an_end_has_nothing_of_the_other(self):
        a, others = clip(vowel(), "a"), (clip(vowel(200, (400, 2000, 2800), 0.4)), clip(vowel(90)))
        ends = [speechmix.continuum(a, b, 2).clips[0].audio(RATE) for b in others]
        np.testing.assert_allclose(ends[0], ends[1], atol=1e-6)
        mirrored = speechmix.continuum(others[0], a, 2).clips[-1].audio(RATE)
        np.testing.assert_allclose(mirrored, ends[0], atol=1e-6)

    @pytest.mark.parametrize(  # nothing depends on which pair it is
        "number", ["left_00", pytest.param("right_01", marks=pytest.mark.long)]
    )
    def test_ends_sound_like_the_clips(self, number):
        a, b = pair(number)
        steps = speechmix.continuum(a, b, 2)
        for end, original in zip(steps.clips, (a, b), strict=True):
            assert len(end.audio(RATE)) == len(original.audio(RATE))
            difference, to_another = (
                np.median(abs(log_mel(end.audio(RATE)) - log_mel(sound)))
                for sound in (
                    original.audio(RATE),
                    np.resize(pair("left_02")[0].audio(RATE), len(end.audio(RATE))),
                )
            )
            assert difference < 2 < 4 < to_another  # dB

    def test_pitch_and_length_go_between(self):
        a = clip(vowel(100, (500, 1000, 2500), 0.4), "a")
        b = clip(vowel(160, (500, 1000, 2500), 0.6), "b")
        steps = speechmix.continuum(a, b, 5).clips
        assert [len(step.audio(RATE)) for step in steps] == [6400, 7200, 8000, 8800, 9600]
        wanted = [100 * 1.6 ** (index / 4) for index in range(5)]
        np.testing.assert_allclose([pitch(step.audio(RATE)) for step in steps], wanted, rtol=0.02)

    def test_sounds_move_in_time_and_are_not_heard_twice(self):
        """A burst 0.2 s into one clip and 0.4 s into the other: one burst, in between."""
        noise = np.random.default_rng(0).normal(size=640)
        ends = []
        for start in (0.2, 0.4):
            sound = vowel(110, seconds=0.7) * 0.05
            sound[round(start * RATE) :][:640] += 0.5 * noise
            ends.append(clip(sound, f"burst_{start}"))
        energies = [
            np.convolve(
                speechmix.continuum(*ends, 3, method=method).clips[1].audio(RATE) ** 2,
                np.ones(640),
                mode="valid",
            )
            for method in ("world", "mix")
        ]
        assert energies[0].argmax() / RATE == pytest.approx(0.3, abs=0.01)
        lengths = [np.ptp(np.flatnonzero(energy > energy.max() / 4)) / RATE for energy in energies]
        assert lengths[0] < 0.1 < 0.2 < lengths[1]  # mixed, both bursts are heard

    def test_reversal_mirrors_the_sounds(self):
        a, b = pair()
        forth = speechmix.continuum(a, b, 3)
        back = speechmix.continuum(b, a, 3)
        for one, other in zip(forth.clips, reversed(back.clips), strict=True):
            assert np.median(abs(log_mel(one.audio(RATE)) - log_mel(other.audio(RATE)))) < 0.5


class TestWords:
    def test_boundaries_and_phones_go_between(self):
        words = [("le", 0.05, 0.2), ("lit", 0.2, 0.45)], [("le", 0.05, 0.1), ("lit", 0.1, 0.45)]
        phones = {"phone": [("l", 0.2, 0.3), ("i", 0.3, 0.45)]}
        options = {"target": "lit", "foil": "lits", "cue": "le"}
        a = clip(vowel(), "a", words=words[0], tiers=phones, **options)
        b = clip(vowel(200), "b", words=words[1], **options)
        steps = speechmix.continuum(a, b, 3, method="mix").clips
        assert steps[0].words == a.words
        assert [(word.start, word.end) for word in steps[1].words] == [
            pytest.approx((0.05, 0.15)),
            pytest.approx((0.15, 0.45)),
        ]
        assert [phone.start for phone in steps[2].tiers["phone"]] == pytest.approx([0.1, 0.24])
        assert (steps[1].cue, steps[1].target, steps[1].foil) == (0, 1, "lits")

    def test_another_number_of_words_leaves_the_times_of_the_text(self):
        a = clip(vowel(), "a", words=[("le", 0.05, 0.2), ("lit", 0.2, 0.45)])
        b = clip(vowel(200), "b", words=[("lis", 0.1, 0.4)])
        assert speechmix.continuum(a, b, 3, method="mix").clips[2].words == a.words


class TestChanges:
    @pytest.mark.parametrize("decibels", [-10, 0, 7.5, 30])
    def test_signal_to_noise_ratio(self, decibels):
        intact = pair()[0]
        noise = (
            speechmix.graded_changes(intact, "noise", [decibels, 90]).clips[0].audio(RATE)
            - intact.audio(RATE)
        ).astype(float)
        ratio = np.mean(intact.audio(RATE).astype(float) ** 2) / np.mean(noise**2)
        assert 10 * np.log10(ratio) == pytest.approx(decibels, abs=0.01)

    def test_one_noise_at_all_ratios_with_the_spectrum_of_the_clip(self):
        intact = pair()[0].audio(RATE)
        noisy = speechmix.graded_changes(pair()[0], "noise", [0, 20, np.inf], seed=1).clips
        loud, soft, none = (step.audio(RATE) - intact for step in noisy)
        np.testing.assert_allclose(soft * 10, loud, atol=1e-5)
        assert not none.any()
        spectra = [mel_power(sound).mean(axis=1) for sound in (loud, intact)]
        assert np.median(abs(10 * np.log10(spectra[0] / spectra[1]))) < 2

    def test_intensity(self):
        grades = speechmix.graded_changes(clip(vowel()), "intensity", [-20, 0, 6])
        levels = [20 * np.log10(np.std(step.audio(RATE))) for step in grades.clips]
        np.testing.assert_allclose(np.diff(levels), [20, 6], atol=1e-3)

    @needs_world
    def test_pitch_alone(self):
        grades = speechmix.graded_changes(clip(vowel()), "pitch", [-6, 0, 3.5])
        sounds = [step.audio(RATE) for step in grades.clips]
        semitones = [12 * np.log2(pitch(sound) / pitch(sounds[1])) for sound in sounds]
        np.testing.assert_allclose(semitones, [-6, 0, 3.5], atol=0.1)
        np.testing.assert_allclose(formants_of(sounds[2])[:2], (700, 1200), rtol=0.05)

    @needs_world
    def test_formants_alone(self):
        for sound, factor in zip(
            speechmix.graded_changes(clip(vowel()), "formants", [0.85, 1, 1.2]).clips,
            (0.85, 1, 1.2),
            strict=True,
        ):
            expected = np.multiply((700, 1200), factor)
            np.testing.assert_allclose(formants_of(sound.audio(RATE))[:2], expected, rtol=0.05)
            assert pitch(sound.audio(RATE)) == pytest.approx(120, rel=0.01)

    @needs_world
    def test_tempo_alone(self):
        sound = vowel(seconds=0.8) * 0.05
        sound[6400:7040] += np.random.default_rng(0).normal(size=640) * 0.5
        words = [("a", 0.1, 0.4), ("b", 0.4, 0.44)]
        for step, factor in zip(
            speechmix.graded_changes(clip(sound, words=words), "tempo", [0.5, 1, 1.6]).clips,
            (0.5, 1, 1.6),
            strict=True,
        ):
            changed = step.audio(RATE)
            assert len(changed) == round(12_800 / factor)
            energy = np.convolve(changed**2, np.ones(round(640 / factor)), mode="valid")
            assert energy.argmax() / RATE == pytest.approx(0.4 / factor, abs=0.015)
            assert step.words[1].start == pytest.approx(0.4 / factor)
            assert pitch(changed[: round(5600 / factor)]) == pytest.approx(120, rel=0.01)

    @pytest.mark.parametrize("seconds", [0.2, 0.5, 1.2])
    def test_reverberation_time(self, seconds):
        """The slope of the energy that is left (Schroeder 1965), from -5 to -25 dB, of a click."""
        click = np.zeros(2 * RATE, np.float32)
        click[0] = 0.5
        wet = speechmix.graded_changes(clip(click), "reverberation", [0, seconds]).clips[1]
        tail = wet.audio(RATE)[1:].astype(float)
        assert np.sum(tail**2) == pytest.approx(float(wet.audio(RATE)[0]) ** 2, rel=1e-3)
        left = 10 * np.log10(np.cumsum(tail[::-1] ** 2)[::-1] / np.sum(tail**2) + 1e-12)
        samples = np.flatnonzero((left < -5) & (left > -25))
        slope = np.polyfit(samples / RATE, left[samples], 1)[0]
        assert -60 / slope == pytest.approx(seconds, rel=0.05)

    def test_no_reverberation_is_no_change(self):
        grades = speechmix.graded_changes(pair()[0], "reverberation", [0, 1])
        np.testing.assert_allclose(grades.clips[0].audio(RATE), pair()[0].audio(RATE), atol=1e-7)
        levels = [np.std(step.audio(RATE)) for step in grades.clips]
        assert levels[1] == pytest.approx(levels[0], rel=0.01)


class TestBadInput:
    @pytest.mark.parametrize("steps", [1, 0, 2.5])
    def test_steps(self, steps):
        with pytest.raises(InputError, match="2 steps or more"):
            speechmix.continuum(*pair(), steps)

    def test_rates(self):
        a, b = clip(vowel(), "a"), clip(vowel(), "b", rate=8_000)
        with pytest.raises(InputError, match="a has 16000 samples per second and b 8000: resample"):
            speechmix.continuum(a, b, 3)

    def test_silence(self):
        silent = clip(np.zeros(8_000), "silent")
        for call in (
            lambda: speechmix.continuum(clip(vowel()), silent, 3),
            lambda: speechmix.graded_changes(silent, "noise", [0, 10]),
        ):
            with pytest.raises(InputError, match="silent is digital silence"):
                call()

    def test_options(self):
        with pytest.raises(InputError, match="world or mix"):
            speechmix.continuum(*pair(), 3, method="morph")
        with pytest.raises(InputError, match="change should be one of pitch, tempo"):
            speechmix.graded_changes(pair()[0], "speed", [1, 2])
        with pytest.raises(InputError, match=r"tempo from 0.25 to 4 times as fast, found 0"):
            speechmix.graded_changes(pair()[0], "tempo", [0, 1])
        for amounts in ([0], [0, 0], [0, 2, 1]):
            with pytest.raises(InputError, match="ascending or descending"):
                speechmix.graded_changes(pair()[0], "intensity", amounts)
        with pytest.raises(InputError, match="ascending or descending"):
            Continuum(pair(), [0, float("nan")])

    @needs_world
    def test_noise_has_no_pitch(self):
        whisper = clip(np.random.default_rng(0).normal(size=8_000) * 0.1)
        with pytest.raises(InputError, match="no frame of the sound is voiced"):
            speechmix.graded_changes(whisper, "pitch", [0, 1])

    def test_without_the_extra(self, monkeypatch):
        monkeypatch.setitem(__import__("sys").modules, "pyworld", None)
        with pytest.raises(MissingExtraError, match=r"continua"):
            speechmix.graded_changes(clip(vowel(130)), "pitch", [0, 1])

    def test_every_change_says_its_unit(self):
        assert all(change.unit and change.lowest < change.highest for change in CHANGES.values())
