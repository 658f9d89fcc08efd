"""Phones by synthesis: where they are, how sure their boundaries are, and what cannot be aligned."""

import numpy as np
import pytest

import speechmix
from speechmix import Clip
from speechmix.alignment.phones import NEAR, phone_confidence
from speechmix.errors import InputError

pytest.importorskip("espeakng_loader")

import itertools

from speechmix.alignment.espeak import speak
from speechmix.alignment.phones import spoken_phones
from speechmix.inputs.words.unit_tiers import check_tiers, unit_owners

TEXT = "la petite maison est tombée dans le jardin"


@pytest.fixture(scope="module")
def speech():
    """A voice that the aligner does not have, at another rate and pitch."""
    return speak(TEXT, voice="fr-be+m4", rate=150, pitch=35)


@pytest.fixture(scope="module")
def clip(speech):
    noise = np.random.default_rng(0).normal(0, 1e-3, len(speech.audio) + 9600)
    audio = np.pad(speech.audio, 4800) + noise
    return Clip.from_array(audio.astype(np.float32), 16_000, name="a", text=TEXT, language="fr")


@pytest.fixture(scope="module")
def aligned(clip):
    return speechmix.align(clip, tiers=["word", "phone"])


def test_boundaries_of_another_voice(speech, aligned):
    spoken, owners = spoken_phones(speech)
    phones = aligned.tiers["phone"]
    assert [phone.text for phone in phones] == [phone.text for phone in spoken]
    errors = np.array(
        [
            (p.start - 0.3 - s.start, p.end - 0.3 - s.end)
            for p, s in zip(phones, spoken, strict=True)
        ]
    )
    assert np.median(np.abs(errors)) < 0.008
    assert (np.abs(errors) < NEAR).mean() > 0.9
    assert [word.text for word in aligned.words] == TEXT.split()
    assert len(owners) == len(phones)


def test_phones_fill_their_words(aligned):
    phones = aligned.tiers["phone"]
    owners = unit_owners(phones, aligned.words)
    for index, word in enumerate(aligned.words):
        members = [phone for phone, owner in zip(phones, owners, strict=True) if owner == index]
        assert members[0].start == pytest.approx(word.start)
        assert members[-1].end == pytest.approx(word.end)
        for left, right in itertools.pairwise(members):
            assert left.end == pytest.approx(right.start)


def test_scores_are_probabilities_and_fall_for_another_text(clip, aligned):
    scores = [phone.score for phone in aligned.tiers["phone"]]
    assert all(0 <= score <= 1 for score in scores)
    assert np.mean(scores) > 0.8
    with pytest.warns(UserWarning, match="doubtful"):
        wrong = speechmix.align(
            clip.replace(text="nous avons vu deux grands chevaux noirs hier"),
            tiers=["word", "phone"],
        )
    assert np.mean([phone.score for phone in wrong.tiers["phone"]]) < np.mean(scores) - 0.2


def test_words_that_are_known_stay(aligned):
    moved = [(word.text, word.start + 0.01, word.end + 0.01) for word in aligned.words]
    again = speechmix.align(aligned.replace(words=moved, tiers={}), tiers=["word", "phone"])
    assert [word.start for word in again.words] == [start for _, start, _ in moved]
    shifts = [
        b.start - a.start for a, b in zip(aligned.tiers["phone"], again.tiers["phone"], strict=True)
    ]
    np.testing.assert_allclose(shifts, 0.01, atol=1e-6)
    assert speechmix.align(aligned, tiers=["word", "phone"]) is aligned


def test_a_closure_belongs_to_its_stop():
    for voice in ("fr", "fr+f2", "fr+klatt"):
        phones, _ = spoken_phones(speak("le petit tapis", voice=voice))
        closures = [phone.seconds for phone in phones if phone.text in "pt"]
        assert min(closures) > 0.04


@pytest.mark.parametrize("voice", ["fr", "fr+f4", "fr+klatt"])
def test_phones_are_in_the_words_that_the_voice_says(voice):
    """Also where the closure of the next word's stop sounds, as with echo."""
    speech = speak("la planche tombe parce que", voice=voice)
    phones, owners = spoken_phones(speech)
    assert check_tiers({"phone": phones}, speech.words)["phone"] == phones
    labels = [
        "".join(phone.text for phone, owner in zip(phones, owners, strict=True) if owner == index)
        for index in range(3)
    ]
    assert labels == ["la", "plɑ̃ʃ", "tɔ̃b"]


def test_better_evidence_is_surer():
    weak, strong = np.array([[0.0, 1.0, 2.0, 4.0, 3.0]]), np.array([[6.0, 8.0, 4.0, 1.0, 3.0]])
    assert phone_confidence(weak)[0] < 0.5 < phone_confidence(strong)[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tiers": ["phone"]}, r"must be \['word'\] or \['word', 'phone'\]"),
        ({"tiers": ["word", "syllable"]}, "syllables come from a file"),
        ({"tiers": ["word", "phone"], "method": "whisper"}, "by method 'synthesis' only"),
    ],
)
def test_what_cannot_be_aligned(clip, options, message):
    with pytest.raises(InputError, match=message):
        speechmix.align(clip, **options)


def test_words_of_several_words_are_refused(aligned):
    words = [("la petite", 0.3, 0.9), ("maison", 0.9, 1.4)]
    with pytest.raises(InputError, match="without spaces in their labels"):
        speechmix.align(aligned.replace(words=words, tiers={}), tiers=["word", "phone"])
