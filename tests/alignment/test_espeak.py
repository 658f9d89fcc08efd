"""espeak-ng through ctypes: the same call gives the same bits, and every written word has its
time."""

import hashlib
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest

from speechmix.alignment.alignment_result import aligned_words
from speechmix.errors import InputError, MissingExtraError

pytest.importorskip("espeakng_loader", reason="synthesis needs the extra speechmix[synthesis]")

from speechmix.alignment import espeak
from speechmix.alignment.espeak import speak

TEXTS = [
    "L'enfant mange 80% des petits-pois : « oui » !",
    "Est-ce qu'il y a 1 234,5 € — parce que c'est trop…",
    "s'il vous plaît, tout à coup M. Dupont n'y va pas. 50 % de 3 !",
    "le 14/07/1989 à 18h30 (environ) l’œuvre d'Agnès coûte 3,50€",
]


@pytest.mark.parametrize("text", TEXTS)
def test_every_written_word_has_its_time_in_order(text):
    speech = speak(text)
    assert [word.text for word in speech.words] == aligned_words(text)
    starts, ends = (
        np.array([getattr(word, side) for word in speech.words]) for side in ("start", "end")
    )
    assert (ends > starts).all()
    assert (starts[1:] >= ends[:-1]).all()
    assert starts[0] >= 0
    assert ends[-1] <= len(speech.audio) / speech.sample_rate


def test_number_and_sign_are_one_written_word_as_long_as_their_spoken_form():
    digits, letters = (
        speak(text).words
        for text in ("il mange 80% des pois", "il mange quatre-vingts pourcent des pois")
    )
    assert digits[2].text == "80%"
    assert digits[2].end - digits[2].start == pytest.approx(
        letters[3].end - letters[2].start, abs=0.1
    )
    assert digits[3].text == "des"


def test_punctuation_makes_a_pause_that_belongs_to_no_word():
    first, second = speak("bonjour ; bonsoir").words
    assert second.start - first.end > 0.1


def test_words_hold_the_sound_and_the_pause_is_silent():
    speech = speak("bonjour ; bonsoir")
    first, second = speech.words
    level = [
        np.abs(speech.audio[round(a * speech.sample_rate) : round(b * speech.sample_rate)]).max()
        for a, b in (
            (first.start, first.end),
            (first.end + 0.03, second.start - 0.01),
            (second.start, second.end),
        )
    ]
    assert level[0] > 20 * level[1]
    assert level[2] > 20 * level[1]


def test_phonemes_tile_the_audio():
    speech = speak("elle a perdu, les livres")
    assert all(
        a.end == pytest.approx(b.start)
        for a, b in zip(speech.phonemes, speech.phonemes[1:], strict=False)
    )
    assert speech.phonemes[0].text == "ɛ"
    assert speech.phonemes[-1].end == pytest.approx(
        len(speech.audio) / speech.sample_rate, abs=0.001
    )


@pytest.mark.parametrize("voice", ["fr", "fr+f2"])
def test_same_call_same_bits_whatever_was_spoken_before(voice):
    text = "les enfants sages chantent"
    first = speak(text, voice=voice)
    speak("something else altogether", voice="en-us+m3", rate=300, pitch=90)
    second = speak(text, voice=voice)
    np.testing.assert_array_equal(first.audio, second.audio)
    assert first.words == second.words


@pytest.mark.long
def test_same_bits_in_another_process():
    code = (
        "import hashlib; from speechmix.alignment.espeak import speak;"
        "print(hashlib.sha256(speak('les livres', voice='fr+f2').audio.tobytes()).hexdigest())"
    )
    other = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert (
        other.strip()
        == hashlib.sha256(speak("les livres", voice="fr+f2").audio.tobytes()).hexdigest()
    )


def test_options_are_set_anew_at_every_call():
    slow, fast, again = (speak("un deux trois", rate=rate) for rate in (100, 300, 100))
    assert len(slow.audio) > 1.5 * len(fast.audio)
    np.testing.assert_array_equal(slow.audio, again.audio)


def test_sample_rate_changes_the_samples_and_not_the_times():
    native, low = (speak("bonjour à tous", sample_rate=rate) for rate in (22_050, 8_000))
    assert native.words == low.words
    assert len(native.audio) / 22_050 == pytest.approx(len(low.audio) / 8_000, abs=0.001)
    assert native.audio.dtype == np.float32
    assert np.abs(native.audio).max() <= 1


def test_languages():
    assert espeak.espeak_voices()["fr-be"] == "French (Belgium)"
    assert [word.text for word in speak("hello world", voice="en").words] == ["hello", "world"]
    assert len(speak("bonjour", voice="fr_FR").audio)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"voice": "xx-yy"}, r"voices\(\)"),
        ({"voice": "fr+nobody"}, r"variants\(\)"),
        ({"rate": 10}, "between 80 and 450"),
        ({"pitch": 100}, "between 0 and 99"),
    ],
)
def test_unusable_options(options, message):
    with pytest.raises(InputError, match=message):
        speak("bonjour", **options)


@pytest.mark.parametrize("text", ["", "  ", "« … »"])
def test_text_without_words(text):
    with pytest.raises(InputError, match="with words"):
        speak(text)


def test_missing_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "espeakng_loader", None)
    with pytest.raises(MissingExtraError, match=r"\[synthesis\]'"):
        speak("bonjour")


@pytest.mark.parametrize(
    ("voice", "text", "phonemes"),
    [
        ("fr", "un mail", "œ̃ m ˈeɪ l"),
        ("fr", "le football anglais", "l ə- f ˈʊ t b ɔː l ɑ̃ ɡ l ˈɛ"),
        ("de", "ein Bike", "aɪ n b ˈaɪ k"),
        ("ru", "мир hello", "mʲ ˈi r h ə l ˈəʊ"),
        ("el", "λέξη word", "l ˈe k s i w ˈɜː d"),
        ("fr", "λόγος", "l ˈo ɣ o s"),
    ],
)
def test_marks_of_another_language_are_no_phonemes(voice, text, phonemes):
    speech = speak(text, voice=voice)
    assert " ".join(phone.text for phone in speech.phonemes if phone.text) == phonemes
    assert speech.phonemes[0].start == 0
    for phoneme, following in pairwise(speech.phonemes):
        assert phoneme.start < phoneme.end == following.start


def test_a_mark_of_a_language_lies_in_its_word():
    speech = speak("un mail", voice="fr")
    assert speech.phonemes[1].start == speech.words[1].start


@pytest.mark.parametrize(
    ("voice", "text", "words"),
    [
        ("ja", "わたし が 日本 好き", "'日本', '好き'"),
        ("ja", "ねこ hello", "'hello'"),
        ("fr", "le слово", "'слово'"),
        ("hi", "日本", "'日本'"),
    ],
)
def test_letters_that_a_voice_cannot_read(voice, text, words):
    with pytest.raises(InputError, match=f"voice '{voice}' cannot read {words}: it would say"):
        speak(text, voice=voice)


def test_letters_that_a_voice_reads():
    for voice, text in (("cmn", "日本人"), ("ko", "한국어"), ("ja", "ねこ NHK"), ("ru", "слово")):
        assert speak(text, voice=voice).words
