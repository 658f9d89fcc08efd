"""What the app answers is what the package says: maps are those of `mix`, words those of the
aligners, files read back."""

from __future__ import annotations

import io
import os
import tempfile

import numpy as np
import pytest
import soundfile

import speechmix
from speechmix.adapters.generation.greedy_generation import transcribe
from speechmix.errors import InputError
from speechmix.extensions.app import clip_changes
from speechmix.extensions.app import downloads as saving
from speechmix.extensions.app import measurements as answers
from speechmix.inputs import bundled
from speechmix.inputs.formats.textgrid import read_textgrid

HOSTILE = (
    "../../etc/passwd",
    "<img src=x onerror=alert(1)>.wav",
    "a\r\nSet-Cookie: x",
    "\x00",
    "é" * 500,
    "",
    "CON",
    ".",
)


@pytest.fixture(scope="module")
def ctc():
    return speechmix.load(bundled.models()["tiny-french-ctc"])


@pytest.fixture(scope="module")
def whisper():
    return speechmix.load(bundled.models()["tiny-french-whisper"])


@pytest.fixture(scope="module")
def clip():
    return bundled.clips()[1]


def wav(seconds: float, rate: int = 8_000) -> bytes:
    buffer = io.BytesIO()
    soundfile.write(buffer, 0.1 * np.sin(np.arange(round(rate * seconds)) / 5), rate, format="WAV")
    return buffer.getvalue()


class TestRecordings:
    def test_a_recording_is_read_at_the_rate_of_the_models(self):
        clip = clip_changes.clip_from_bytes(wav(0.5), "a.wav", max_seconds=1)
        assert (clip.name, len(clip.audio(16_000))) == ("a", 8_000)

    @pytest.mark.parametrize("name", HOSTILE)
    def test_no_name_leaves_the_folder_or_stays_on_the_disk(self, name, tmp_path, monkeypatch):
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        clip = clip_changes.clip_from_bytes(wav(0.1), name, max_seconds=1)
        assert not set(clip.name) & set('/\\<>"\r\n\x00')
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("content", [b"", b"RIFF", b"<html>", wav(0.5)[:300], os.urandom(5000)])
    def test_what_is_no_audio_is_called_what_it_is_and_no_path_is_told(self, content):
        with pytest.raises(InputError, match=r"mine\.wav") as refusal:
            clip_changes.clip_from_bytes(content, "mine.wav", max_seconds=1)
        assert tempfile.gettempdir() not in str(refusal.value)

    def test_too_long_says_how_long_and_is_not_decoded(self, monkeypatch):
        monkeypatch.setattr(clip_changes, "read_audio", None)
        with pytest.raises(
            InputError, match=r"is 2\.0 s long, the limit is 1 s: open a shorter file"
        ):
            clip_changes.clip_from_bytes(wav(2.0), "long.wav", max_seconds=1)


class TestWords:
    def test_the_model_places_them_as_align_does(self, ctc, clip):
        bare = clip.replace(words=None, cue=None, target=None, foil=None)
        assert (
            clip_changes.add_word_times(bare, model=ctc).words
            == speechmix.align(bare, model=ctc).words
        )
        assert (
            clip_changes.add_word_times(clip, model=ctc).words
            == speechmix.align(bare, model=ctc).words
        )  # words it had are left

    def test_whisper_places_them_by_its_attention(self, whisper, clip):
        placed = clip_changes.add_word_times(clip, model=whisper)
        assert ([word.text for word in placed.words], placed.alignment) == (
            ["nos", "maisons"],
            "whisper",
        )

    def test_evenly_is_in_order_within_the_clip_and_as_long_as_the_letters(self, clip):
        words = clip_changes.add_word_times(clip.replace(text="a bbb cc"), method="evenly").words
        lengths = [word.end - word.start for word in words]
        assert np.allclose(np.array(lengths) / lengths[0], [1, 3, 2])
        assert words[0].start > 0
        assert words[-1].end < clip.duration

    def test_what_cannot_place_says_what_can(self, clip):
        twin = speechmix.load(
            bundled.models()["tiny-french-ctc"], init="random", seed=0, check=False
        )
        for model in (None, twin):
            with pytest.raises(InputError, match=r"cannot align words.*evenly"):
                clip_changes.add_word_times(clip, model=model)
        with pytest.raises(InputError, match="has no text"):
            clip_changes.add_word_times(clip.replace(text=None), model=None, method="evenly")


class TestMaps:
    def test_they_are_those_of_mix_to_the_last_bit(self, whisper, clip):
        result = answers.measure_clip(whisper, clip)
        maps = speechmix.mix(whisper, clip)
        assert result.maps.keys() == set(maps)
        assert all(np.array_equal(result.maps[key].scores, maps[key].scores) for key in maps)

    def test_a_measure_that_is_not_defined_is_left_out_with_its_reason(self, ctc, clip):
        result = answers.measure_clip(ctc, clip, measures=["attention", "globenc"])
        assert {measure for measure, _ in result.maps} == {"attention"}
        assert "globenc" in result.failure_reasons["globenc"]
        with pytest.raises(InputError, match="globenc"):
            answers.measure_clip(ctc, clip, measures=["globenc"])

    def test_unknown_measures_and_those_of_one_decision_are_refused(self, ctc, clip):
        for measures in (["gradient_input"], ["x"], []):
            with pytest.raises(InputError, match="measures should be"):
                answers.measure_clip(ctc, clip, measures=measures)


class TestSilence:
    def test_what_it_writes_is_the_transcript_of_the_silenced_sound(self, ctc, clip):
        result = clip_changes.mute_words(ctc, clip, [0])
        quiet = speechmix.mute(clip, 0)
        assert (result.text_before, result.text_after) == (
            transcribe(ctc, clip),
            transcribe(ctc, quiet),
        )
        assert result.text_before != result.text_after
        start, stop = (round(16_000 * time) for time in (clip.words[0].start, clip.words[0].end))
        assert not result.clip.audio(16_000)[start:stop].any()

    def test_without_words_nothing_changes(self, ctc, clip):
        result = clip_changes.mute_words(ctc, clip, [])
        assert (result.text_after, result.clip) == (result.text_before, clip)
        assert all(old == new for old, new in result.changes)

    def test_models_that_write_nothing_say_so(self, clip):
        twin = speechmix.load(
            bundled.models()["tiny-french-ctc"], init="random", seed=0, check=False
        )
        with pytest.raises(InputError, match="random weights"):
            clip_changes.mute_words(twin, clip, [0])


class TestFiles:
    def test_a_textgrid_reads_back(self, clip, tmp_path):
        file = saving.build_textgrid_file(clip)
        (tmp_path / file.name).write_bytes(file.content)
        for word, read in zip(clip.words, read_textgrid(tmp_path / file.name), strict=True):
            assert (read.text, read.start, read.end) == (
                word.text,
                pytest.approx(word.start),
                pytest.approx(word.end),
            )

    def test_a_row_and_its_sound_are_a_manifest(self, clip, tmp_path):
        for file in (saving.build_manifest_row_file(clip), saving.build_flac_file(clip)):
            (tmp_path / file.name).write_bytes(file.content)
        (read,) = speechmix.read_clips(tmp_path / f"{clip.name}.jsonl")
        assert (read.name, read.text, read.words, read.cue, read.target, read.foil) == (
            clip.name,
            clip.text,
            clip.words,
            clip.cue,
            clip.target,
            clip.foil,
        )
        assert np.abs(read.audio(16_000) - clip.audio(16_000)).max() < 2**-14

    def test_the_page_needs_no_other_file_and_the_picture_is_one(self, ctc, clip):
        maps = answers.measure_clip(ctc, clip, measures=["value_zeroing", "attention"]).maps
        page = saving.render_maps_page(
            clip, {("tiny", "trained", None): maps}, initial_view={"layer": 1}
        ).content.decode()
        assert "default-src 'none'" in page
        assert "data:audio/wav" in page
        assert "http" not in page.replace("http-equiv", "")
        assert saving.render_maps_picture(
            clip, maps["attention", "encoder"], layer=1
        ).content.startswith(b"\x89PNG")

    def test_without_words_there_is_no_textgrid(self, clip):
        with pytest.raises(InputError, match="click Align words first"):
            saving.build_textgrid_file(clip.replace(words=None))
