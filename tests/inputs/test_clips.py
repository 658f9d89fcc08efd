"""A clip: its audio in any form, its words checked, cue and target looked up, and every way it can
be wrong."""

import copy
import pickle
import re
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
import soundfile

from speechmix.errors import InputError, SpeechmixError
from speechmix.files.names import safe_name
from speechmix.inputs.clips.clip import Clip
from speechmix.inputs.words.cue_and_target import find_word, normalize_word
from speechmix.inputs.words.spans import Word
from speechmix.inputs.words.word_checks import check_words

RATE = 16_000
LIVRES = [
    ("elle", 0.1, 0.3),
    ("a", 0.3, 0.4),
    ("perdu", 0.4, 0.8),
    ("les", 0.9, 1.0),
    ("livres.", 1.0, 1.6),
]


def tone(seconds=2.0, rate=RATE, frequency=220.0, level=0.5):
    return (level * np.sin(2 * np.pi * frequency * np.arange(round(seconds * rate)) / rate)).astype(
        np.float32
    )


def silent(seconds=2.0, **options):
    return Clip.from_array(np.zeros(round(seconds * RATE)), RATE, name="c", **options)


@pytest.fixture
def wav(tmp_path):
    soundfile.write(tmp_path / "clip.wav", tone(), RATE, subtype="FLOAT")
    return tmp_path / "clip.wav"


class TestAudio:
    def test_file(self, wav):
        clip = Clip.from_file(wav, text=" elle a perdu les livres ", language="fr")
        assert (clip.name, clip.path, clip.text, clip.language) == (
            "clip",
            wav,
            "elle a perdu les livres",
            "fr",
        )
        assert clip.duration == 2.0
        np.testing.assert_array_equal(clip.audio(), tone())
        assert clip.audio().dtype == np.float32
        clip.validate()

    def test_reading_is_lazy(self, tmp_path):
        (tmp_path / "noise.wav").write_bytes(b"this is no audio")
        clip = Clip.from_file(tmp_path / "noise.wav")
        with pytest.raises(InputError, match=r"cannot read .*noise\.wav as audio"):
            clip.audio()
        with pytest.raises(InputError, match=r"cannot read .*noise\.wav as audio"):
            _ = clip.duration

    def test_a_caller_may_change_what_it_gets(self, wav):
        clip = Clip.from_file(wav)
        clip.audio()[:] = 9
        np.testing.assert_array_equal(clip.audio(), tone())

    def test_a_file_written_anew_is_read_anew(self, wav):
        Clip.from_file(wav).audio()
        soundfile.write(wav, tone(1.0), RATE)
        assert len(Clip.from_file(wav).audio()) == RATE

    def test_stereo_at_44100(self, tmp_path):
        channels = np.stack([tone(1.0, 44_100), tone(1.0, 44_100, level=0.1)], axis=1)
        soundfile.write(tmp_path / "stereo.wav", channels, 44_100, subtype="FLOAT")
        clip = Clip.from_file(tmp_path / "stereo.wav")
        audio = clip.audio()
        assert audio.shape == (RATE,)
        assert clip.duration == 1.0
        # the mean of 0.5 and 0.1, away from the edges of the resampling filter
        np.testing.assert_allclose(audio[1000:-1000], tone(1.0, level=0.3)[1000:-1000], atol=2e-3)
        assert clip.audio(sample_rate=44_100).shape == (44_100,)

    @pytest.mark.parametrize("ending", ["wav", "flac", "ogg", "mp3"])
    def test_formats(self, tmp_path, ending):
        path = tmp_path / f"clip.{ending}"
        soundfile.write(path, tone(), RATE)
        clip = Clip.from_file(path)
        audio = clip.audio()
        assert abs(len(audio) - 2 * RATE) <= 2400  # MP3 pads to whole blocks
        assert clip.duration == pytest.approx(len(audio) / RATE)
        inner = audio[4000:-4000]
        assert np.sqrt(np.mean(inner**2)) == pytest.approx(0.5 / np.sqrt(2), rel=0.05)
        peak = np.abs(np.fft.rfft(inner)).argmax() * RATE / len(inner)
        assert peak == pytest.approx(220, abs=2)

    def test_array(self):
        clip = Clip.from_array(tone(), RATE)
        assert (clip.name, clip.path, clip.duration) == (f"clip-{clip.audio_hash[:8]}", None, 2.0)
        np.testing.assert_array_equal(clip.audio(), tone())
        assert clip.audio(sample_rate=8000).shape == (RATE,)

    @pytest.mark.parametrize(("dtype", "full"), [(np.int16, 32767), (np.int32, 2**31 - 1)])
    def test_integers_are_scaled(self, dtype, full):
        clip = Clip.from_array((tone(level=0.5) * full).astype(dtype), RATE)
        np.testing.assert_allclose(clip.audio(), tone(level=0.5), atol=1e-4)

    def test_unsigned_bytes_are_centred(self):
        np.testing.assert_array_equal(
            Clip.from_array(np.array([0, 128, 192], np.uint8), RATE).audio(), [-1, 0, 0.5]
        )

    def test_silence_is_legitimate(self):
        silent().validate()

    @pytest.mark.parametrize(
        ("samples", "message"),
        [
            (np.zeros(0), "0 samples"),
            (np.full(100, np.nan), "100 of 100 that are NaN or infinite"),
            (np.array([0.0, np.inf]), "1 of 2 that are NaN or infinite"),
            (np.zeros((2, 100)), r"\[2, 100\].*transpose"),
            (np.zeros((1, 2, 3)), r"\[1, 2, 3\]"),
            (np.array(["a"]), "floats or integers"),
            (np.zeros(4, complex), "floats or integers, found complex128"),
        ],
    )
    def test_unusable_samples(self, samples, message):
        with pytest.raises(InputError, match=f"clip 'c'.*{message}"):
            Clip.from_array(samples, RATE, name="c")

    @pytest.mark.parametrize("rate", [0, -1, 16_000.5, None, "16000"])
    def test_unusable_rate(self, rate):
        with pytest.raises(InputError, match="sample_rate must be a positive whole number"):
            Clip.from_array(tone(), rate)
        with pytest.raises(InputError, match="sample_rate must be a positive whole number"):
            silent().audio(sample_rate=rate)

    @pytest.mark.parametrize(
        ("samples", "message"), [(np.zeros(0), "0 samples"), (np.full(9, np.nan), "9 of 9")]
    )
    def test_files_of_nothing_and_of_nans(self, tmp_path, samples, message):
        soundfile.write(tmp_path / "bad.wav", samples, RATE, subtype="FLOAT")
        with pytest.raises(InputError, match=rf"bad\.wav.*{message}"):
            Clip.from_file(tmp_path / "bad.wav").validate()

    def test_missing_file_folder_and_impossible_path(self, tmp_path):
        with pytest.raises(InputError, match=r"no such audio file: .*gone\.wav"):
            Clip.from_file(tmp_path / "gone.wav")
        with pytest.raises(InputError, match=f"found a folder: {re.escape(str(tmp_path))}"):
            Clip.from_file(tmp_path)
        for path in ("x" * 5000 + ".wav", "a\0.wav"):
            with pytest.raises(InputError, match="audio file"):
                Clip.from_file(tmp_path / path)

    def test_empty_file(self, tmp_path):
        (tmp_path / "empty.wav").touch()
        with pytest.raises(InputError, match=r"empty\.wav"):
            Clip.from_file(tmp_path / "empty.wav").validate()


class TestWords:
    def test_given_words(self):
        clip = silent(words=LIVRES)
        assert clip.words[0] == Word("elle", 0.1, 0.3)
        assert clip.alignment == "given"

    def test_with_words_leaves_the_first_clip_alone(self):
        clip = silent()
        aligned = clip.with_words([Word("oui", 0.1, 0.2, 0.9)], alignment="ctc")
        assert (clip.words, clip.alignment) == (None, None)
        assert (aligned.words, aligned.alignment) == ((Word("oui", 0.1, 0.2, 0.9),), "ctc")

    def test_words_of_no_length_are_left_out_but_for_the_text(self):
        words = [("il", 0.1, 0.2), ("y", 0.2, 0.2), ("a", 0.2, 0.3), ("il", 0.3, 0.4)]
        with pytest.warns(UserWarning, match=r"no length: word 1 'y' \(0\.200 to 0\.200 s\)"):
            clip = silent(words=words, cue="il:2", target=2)
        assert [word.text for word in clip.words] == ["il", "a", "il"]
        assert clip.text == "il y a il"
        assert (clip.cue, clip.target) == (2, 1)
        assert clip.replace(foil="à").target == 1
        with pytest.warns(UserWarning, match="no length"):
            assert silent(words=words, text="Il y a, il").text == "Il y a, il"

    @pytest.mark.parametrize("words", [[("y", 0.2, 0.2), ("a", 0.2, 0.3)], [("y", 2.0, 2.0)]])
    @pytest.mark.parametrize("role", ["cue", "target"])
    @pytest.mark.parametrize("request_", ["y", 0])
    def test_cue_and_target_need_a_length(self, words, role, request_):
        with pytest.raises(InputError, match=rf"the {role} word 0 'y' .* has no length"):
            silent(words=words, **{role: request_})

    def test_no_word_has_a_length(self):
        with (
            pytest.warns(UserWarning, match="no length"),
            pytest.raises(InputError, match="at least one word with a length, found none"),
        ):
            silent(words=[("fin", 2.0, 2.0)])

    def test_pauses_among_words_are_left_out(self):
        with pytest.warns(UserWarning, match="because they are no words: 'h#', 'sil'"):
            clip = silent(
                words=[("h#", 0, 0.1), ("a", 0.1, 0.2), ("sil", 0.2, 0.3), ("b", 0.3, 0.4)],
                target=3,
            )
        assert [word.text for word in clip.words] == ["a", "b"]
        assert (clip.target, clip.text) == (1, None)

    def test_rounding_noise_is_trimmed(self):
        words = [("a", -0.0004, 0.1005), ("b", 0.1, 0.3), ("c", 0.3, 0.3), ("d", 0.2995, 0.5)]
        with pytest.warns(UserWarning, match="no length"):
            clip = silent(words=words)
        assert clip.words == (Word("a", 0.0, 0.1), Word("b", 0.1, 0.3), Word("d", 0.3, 0.5))

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            ([], "at least one word, found none"),
            (
                [("a", 0.5, 0.6), ("b", 0.1, 0.2)],
                "in time order; word 1 'b' .* starts before word 0 'a'",
            ),
            (
                [("a", 0.1, 0.3), ("b", 0.2, 0.4)],
                "must not overlap .* word 0 'a' .* and word 1 'b' .* share 100 ms",
            ),
            ([("a", 0.1, 0.1021), ("b", 0.1, 0.2)], "share 2 ms"),
            ([("a", 0.3, 0.2)], "word 0 'a' .* ends before it starts"),
            ([("a", -0.2, 0.2)], "word 0 'a' .* negative time"),
            ([("a", 2.5, 2.6)], r"word 0 'a' .* starts past the end of the audio \(2\.000 s\)"),
            ([("a", 2.0, 2.01)], "starts past the end"),
            ([("a", 1.5, 2.06)], "word 0 'a' .* ends 60 ms past the end"),
            ([("", 0.1, 0.2)], "word 0 .* no label"),
            ([("a", 0.0, 0.1), (" ", 0.1, 0.2)], "word 1 .* no label"),
            ([("a", "x", 0.2)], "word 0 'a' .* no number"),
            ([("a", None, 0.2)], "word 0 'a' .* no number"),
            ([("a", 0.1, float("nan"))], "word 0 'a' .* finite times"),
            ([("a", 0.1)], r"word 0 must be \(text, start, end\)"),
            (["elle"], r"word 0 must be \(text, start, end\)"),
            ([(3, 0.1, 0.2)], "no label, found 3"),
        ],
    )
    def test_unusable_words(self, words, message):
        with pytest.raises(InputError, match=f"clip 'c': .*{message}"):
            silent(words=words)

    def test_words_against_the_end_of_a_file(self, wav):
        clip = Clip.from_file(wav, words=[("a", 1.0, 2.05)])
        clip.validate()
        assert clip.words == (Word("a", 1.0, 2.0),)
        with pytest.raises(InputError, match=r"clip 'clip': word 0 'a' .* ends 51 ms past the end"):
            Clip.from_file(wav, words=[("a", 1.0, 2.051)]).validate()
        with pytest.raises(InputError, match=r"clip 'clip': word 0 'a' .* starts past the end"):
            Clip.from_file(wav, words=[("a", 3.0, 4.0)]).validate()

    def test_word_file(self, wav, tmp_path):
        (tmp_path / "w.tsv").write_text("word\tstart\tend\nles\t0.1\t0.2\n")
        clip = Clip.from_file(wav, words=tmp_path / "w.tsv", cue="les")
        assert (clip.words, clip.alignment, clip.cue) == ((Word("les", 0.1, 0.2),), "table", 0)

    def test_empty_text(self, wav):
        for text in ("", "  \n"):
            with pytest.raises(
                InputError, match="clip 'clip': expected a text, found an empty one"
            ):
                Clip.from_file(wav, text=text)
        with pytest.raises(InputError, match="clip 'clip': expected a text, found nan"):
            Clip.from_array(tone(), RATE, name="clip", text=float("nan"))  # an empty cell in pandas

    def test_errors_are_caught_by_either_root(self):
        for kind in (SpeechmixError, ValueError):
            with pytest.raises(kind):
                silent(words=[])


class TestCueAndTarget:
    @pytest.mark.parametrize(
        "target", ["livres", "LIVRES", "livres.", "«livres»", 4, np.int64(4), "4", ("livres", 1)]
    )
    def test_ways_to_say_it(self, target):
        clip = silent(words=LIVRES, cue="les", target=target)
        assert (clip.cue, clip.target) == (3, 4)

    def test_looked_up_when_the_words_come(self):
        clip = silent(cue="les", target=("livres", 1))
        assert (clip.cue, clip.target) == (None, None)
        clip.validate()
        aligned = clip.with_words(LIVRES)
        assert (aligned.cue, aligned.target) == (3, 4)
        with pytest.raises(InputError, match="cue 'les' is not one of the words"):
            clip.with_words([("le", 0.1, 0.2)])

    def test_a_word_that_occurs_twice_is_not_guessed(self):
        words = [
            ("Les", 0.1, 0.2),
            ("chats", 0.2, 0.5),
            ("et", 0.5, 0.6),
            ("les", 0.6, 0.7),
            ("chiens", 0.7, 1.0),
        ]
        with pytest.raises(InputError, match="clip 'c': cue 'les' occurs 2 times") as error:
            silent(words=words, cue="les")
        for part in (
            "'Les:1' word 0",
            "0.100 to 0.200 s",
            "'les:2' word 3",
            "cue='les:2'",
            "cue=('les', 2)",
            "cue=3",
        ):
            assert part in str(error.value)
        assert silent(words=words, cue="les:2").cue == 3
        assert silent(words=words, cue=("LES", 1)).cue == 0

    @pytest.mark.parametrize(
        ("cue", "message"),
        [
            ("la", "cue 'la' is not one of the words; the words are 0 'elle', 1 'a', 2 'perdu'"),
            ("la:1", "cue 'la' is not one of the words"),
            ("les:2", "cue 'les' occurs 1 time.*found 2"),
            ("les:0", "count from 1, found 0"),
            (("les", 0), "count from 1, found 0"),
            (5, "cue index must be 0 to 4, found 5"),
            (-1, "cue index must be 0 to 4, found -1"),
            ("7", "cue index must be 0 to 4, found 7"),
            (True, "must be an index, a word or"),
            (1.0, "must be an index, a word or"),
            (("les", "2"), "pair must be"),
            (("les", 1.0), "pair must be"),
            (("la",), "cue 'la' is not one of the words"),
            ("", "cue '' is not one of the words"),
        ],
    )
    def test_requests_that_fit_nothing(self, cue, message):
        with pytest.raises(InputError, match=f"clip 'c': .*{message}"):
            silent(words=LIVRES, cue=cue)

    def test_cue_and_target_must_differ(self):
        with pytest.raises(
            InputError, match="cue and target must be two words, found word 3 'les' for both"
        ):
            silent(words=LIVRES, cue="les", target=3)

    def test_elided_forms_are_not_taken_apart(self):
        with pytest.raises(
            InputError, match='cue "l\'" is not one of the words; the words are 0 "l\'enfant"'
        ):
            silent(words=[("l'enfant", 0.1, 0.5)], cue="l'")

    def test_digits_are_a_word_before_they_are_an_index(self):
        words = check_words([("les", 0.0, 0.1), ("3", 0.1, 0.2), ("12:1", 0.2, 0.3)])
        assert find_word(words, "3") == 1
        assert find_word(words, "2") == 2
        assert find_word(words, "12:1") == 2
        assert find_word(words, "3:1") == 1

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ("aujourd’hui", "aujourd'hui"),
            ("été", "e\u0301te\u0301"),
            ("ÉTÉ", "été"),
            ("(oui)", "oui"),
            ("हिन्दी", "हिन्दी!"),
        ],
    )
    def test_spellings_that_are_the_same_word(self, one, other):
        assert normalize_word(one) == normalize_word(other)

    def test_spellings_that_are_not(self):
        assert normalize_word("mais") != normalize_word("maïs")
        assert normalize_word("%") != normalize_word("€")
        assert normalize_word("हिन्दी") != normalize_word("हिन्द")


class TestName:
    @pytest.mark.parametrize(
        ("name", "safe"),
        [
            ("a", "a"),
            ("../../etc/passwd", "etc_passwd"),
            ("a b:c", "a_b_c"),
            ("..", "clip"),
            ("e\u0301te\u0301", "été"),
            ("x" * 400, "x" * 141 + "-b281683f"),
        ],
    )
    def test_safe_in_a_file_name(self, name, safe):
        assert safe_name(name) == safe
        assert Clip.from_array(tone(), RATE, name=name).name == safe

    def test_repr(self, wav):
        assert (
            repr(Clip.from_file(wav, cue="les"))
            == "Clip('clip', no words yet, cue='les' (not looked up yet))"
        )
        assert repr(silent(words=LIVRES, cue="les")) == "Clip('c', 2.00 s, 5 words, cue=3 'les')"


def test_a_cut_keeps_whole_words_and_moves_cue_and_target():
    words = [("les", 0.1, 0.3), ("amis", 0.3, 0.8), ("les", 1.1, 1.3), ("livres", 1.3, 1.9)]
    clip = Clip.from_array(
        np.arange(32_000) / 32_000, 16_000, words=words, cue="les:2", target="livres", language="fr"
    )
    part = clip.cut(1.0, 1.95)
    assert part.text == "les livres"
    assert (part.cue, part.target, part.language) == (0, 1, "fr")
    assert part.words[0].start == pytest.approx(0.1)
    assert np.array_equal(part.audio(), clip.audio()[16_000:31_200])
    with pytest.raises(InputError, match="cue is not wholly between"):
        clip.cut(1.2, 2.0)
    with pytest.raises(InputError, match="0 <= start < end"):
        clip.cut(1.0, 1.0)


def state(clip):
    """All that a clip holds, its sound by its hash."""
    names = (
        "name",
        "path",
        "text",
        "words",
        "cue",
        "target",
        "foil",
        "language",
        "alignment",
        "doubts",
        "meta",
    )
    return {
        name: getattr(clip, name)
        for name in (*names, "audio_hash", "duration", "fingerprint_fields", "fingerprint")
    }


class TestAClipDoesNotChange:
    @pytest.mark.parametrize(
        "name", ["name", "text", "words", "cue", "language", "doubts", "meta", "duration", "new"]
    )
    def test_nothing_can_be_set_or_deleted(self, name):
        clip = silent(words=LIVRES, meta={"speaker": "anne"})
        before = state(clip)
        with pytest.raises(
            FrozenInstanceError,
            match=rf"cannot set '{name}' .*clip\.replace\({name}=\.\.\.\) returns",
        ):
            setattr(clip, name, None)
        with pytest.raises(FrozenInstanceError, match="cannot delete"):
            delattr(clip, name)
        with pytest.raises(TypeError):
            clip.meta["speaker"] = "marie"
        assert state(clip) == before

    def test_what_it_was_made_of_can_change(self):
        samples, meta, words = tone(), {"speaker": "anne"}, list(LIVRES)
        clip = Clip.from_array(samples, RATE, words=words, meta=meta)
        before = state(clip)
        samples[:] = 0
        meta.clear()
        words.clear()
        clip.audio()[:] = 0
        assert state(clip) == before
        np.testing.assert_array_equal(clip.audio(), tone())

    @pytest.mark.parametrize("kind", ["file", "memory"])
    def test_validate_changes_nothing(self, wav, kind):
        words = [
            ("les", 0.1, 0.5),
            ("livres", 0.5, 2.04),
        ]  # ends behind the audio, cut when the clip is made
        options = {"words": words, "cue": "les", "target": "livres", "text": "les livres"}
        clip = (
            Clip.from_file(wav, **options)
            if kind == "file"
            else Clip.from_array(tone(), RATE, **options)
        )
        assert clip.words[1] == Word("livres", 0.5, 2.0)
        before, held = state(clip), dict(vars(clip))
        for _ in range(2):
            clip.validate()
            assert state(clip) == before
            assert vars(clip) == held

    def test_validate_sees_a_file_that_was_replaced(self, wav):
        clip = Clip.from_file(wav, words=LIVRES)
        known = Clip.from_file(wav, words=LIVRES, audio_hash=clip.audio_hash)
        soundfile.write(wav, tone(1.0), RATE)
        with pytest.raises(InputError, match=r"word 4 'livres\.' .* starts past the end"):
            clip.validate()
        for refused in (known.validate, lambda: known.replace(words=LIVRES)):
            with pytest.raises(
                InputError, match="was replaced since its words were placed: align it again"
            ):
                refused()

    def test_copies_and_pickles_are_the_same_clip(self, wav):
        for clip in (
            Clip.from_file(wav, words=LIVRES, cue="les"),
            silent(words=LIVRES, meta={"a": "b"}, cue="les"),
        ):
            for other in (copy.copy(clip), copy.deepcopy(clip), pickle.loads(pickle.dumps(clip))):
                assert state(other) == state(clip)
                assert other.replace(words=LIVRES[3:]).cue == 0
                with pytest.raises(FrozenInstanceError):
                    other.cue = 1


class TestReplace:
    def test_the_first_clip_stays(self):
        clip = silent(words=LIVRES, cue="les", target="livres", foil="livre", language="fr")
        before = state(clip)
        other = clip.replace(
            language="en", name="d", doubts=["noisy"], meta={"a": "b"}, text=" oui ", foil=None
        )
        assert (other.language, other.name, other.doubts, other.meta) == (
            "en",
            "d",
            ("noisy",),
            {"a": "b"},
        )
        assert (other.text, other.foil, other.words, other.alignment) == (
            "oui",
            None,
            clip.words,
            "given",
        )
        assert state(clip) == before

    def test_cue_and_target_are_looked_up_anew(self):
        clip = silent(words=LIVRES, cue="les", target="livres")
        other = clip.replace(words=LIVRES[3:], alignment="ctc")
        assert ((clip.cue, clip.target), (other.cue, other.target)) == ((3, 4), (0, 1))
        assert (other.alignment, other.replace(words=LIVRES).alignment) == ("ctc", "given")
        waiting = clip.replace(words=None, cue="elle")
        assert (waiting.cue, waiting.target, waiting.alignment) == (None, None, None)
        assert (waiting.replace(words=LIVRES).cue, waiting.replace(words=LIVRES).target) == (0, 4)
        with pytest.raises(InputError, match="cue 'les' is not one of the words"):
            clip.replace(words=LIVRES[:3])

    def test_what_is_made_is_checked(self, wav):
        for clip in (silent(words=LIVRES), Clip.from_file(wav, words=LIVRES)):
            for changes in (
                {"words": [("a", 3.0, 4.0)]},
                {"text": " "},
                {"cue": 9},
                {"cue": 1, "target": 1},
            ):
                with pytest.raises(InputError, match=f"clip '{clip.name}'"):
                    clip.replace(**changes)

    def test_misspelt(self):
        with pytest.raises(
            InputError, match=r"expected facts of a clip \(text, cue, target, .*, found langauge"
        ):
            silent().replace(langauge="fr")
        with pytest.raises(InputError, match=r"found langauge"):
            silent(langauge="fr")
