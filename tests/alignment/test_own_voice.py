"""A voice learnt from clips: near to its own sounds, silent about those it does not know, the same
after a file."""

from __future__ import annotations

import numpy as np
import pytest
from safetensors import safe_open

from speechmix.alignment.cepstra import RecordingCepstra
from speechmix.alignment.speaker_sounds import (
    SpeakerVoice,
    find_sounds,
    frames_by_sound,
    learn_voice,
)
from speechmix.errors import InputError
from speechmix.inputs.words.spans import Word

CENTRES = {"a": 2.0, "s": -2.0, "m": 0.0}


def frames(phoneme, count=80, seed=0):
    return np.random.default_rng([seed, ord(phoneme)]).normal(CENTRES[phoneme], 1, (count, 6))


@pytest.fixture(scope="module")
def voice():
    return learn_voice(
        {(phoneme, third): frames(phoneme, seed=third) for phoneme in CENTRES for third in range(3)}
    )


def test_a_frame_is_nearest_to_the_sound_it_is_of(voice):
    sounds = [(phoneme, 0) for phoneme in CENTRES]
    for place, phoneme in enumerate(CENTRES):
        apart = voice.distances(frames(phoneme, 40, seed=9), sounds)
        assert (apart.argmin(1) == place).mean() > 0.9
        assert np.median(apart[:, place]) == pytest.approx(
            0.6, abs=0.1
        )  # as the synthetic speakers'


def test_a_third_that_is_not_known_is_judged_by_the_phoneme_and_a_phoneme_that_is_not_not_at_all():
    voice = learn_voice({("a", 0): frames("a"), ("a", 1): frames("a", 5), ("s", 0): frames("s")})
    apart = voice.distances(frames("a", 10, seed=3), [("a", 0), ("a", 2), ("z", 1)])
    assert np.isfinite(apart[:, :2]).all()
    assert np.isnan(apart[:, 2]).all()


def test_one_phoneme_or_a_few_frames_make_no_voice():
    assert learn_voice({("a", 0): frames("a")}) is None
    assert learn_voice({(phoneme, 0): frames(phoneme, 10) for phoneme in CENTRES}) is None
    few = {
        (phoneme, third): frames(phoneme, 25) for phoneme in CENTRES for third in range(3)
    }  # enough of each phoneme alone
    assert learn_voice(few) is None
    assert learn_voice({**few, ("a", 0): frames("a")}) is None


def test_a_voice_is_the_same_after_a_file_and_a_damaged_file_is_named(voice, tmp_path):
    voice.save(tmp_path / "a.safetensors")
    again = SpeakerVoice.load(tmp_path / "a.safetensors")
    asked = [("a", 0), ("s", 2), ("x", 0)]
    np.testing.assert_array_equal(
        again.distances(frames("m"), asked), voice.distances(frames("m"), asked)
    )
    (tmp_path / "b.safetensors").write_bytes((tmp_path / "a.safetensors").read_bytes()[:50])
    with pytest.raises(InputError, match=r"b\.safetensors is no voice"):
        SpeakerVoice.load(tmp_path / "b.safetensors")


def test_learning_again_gives_the_same_voice(voice):
    again = learn_voice(
        {(phoneme, third): frames(phoneme, seed=third) for phoneme in CENTRES for third in range(3)}
    )
    np.testing.assert_array_equal(again.means, voice.means)
    assert again.sounds == voice.sounds


def test_frames_go_to_the_third_of_the_phoneme_that_they_lie_in():
    power = np.abs(np.random.default_rng(0).normal(1, 0.3, (60, 40))) + 0.1
    recording = RecordingCepstra(
        power, np.zeros(60), quiet=-50.0, loud=0.0, noise=np.full(40, 1e-6)
    )
    collected = frames_by_sound([(recording, [Word("ˈa", 0.05, 0.125), Word("s", 0.125, 0.155)])])
    assert {sound: len(some) for sound, some in collected.items()} == {
        ("a", 0): 5,
        ("a", 1): 5,
        ("a", 2): 5,
        ("s", 0): 2,
        ("s", 1): 2,
        ("s", 2): 2,
    }


def test_sounds_of_a_synthetic_speaker():
    spoken = [Word("ˈa", 0.0, 0.3), Word("s", 0.3, 0.6)]
    assert find_sounds(spoken, np.array([0.0, 0.15, 0.29, 0.3, 0.7])) == [
        ("a", 0),
        ("a", 1),
        ("a", 2),
        ("s", 0),
        ("s", 2),
    ]


def test_a_file_has_the_same_bytes_whoever_writes_it(voice, tmp_path):
    """safetensors writes several entries of a header in an order that differs from process to
    process."""
    voice.save(tmp_path / "voice.safetensors")
    with safe_open(tmp_path / "voice.safetensors", "numpy") as file:
        assert list(file.metadata()) == ["voice"]
