"""Audio files: fingerprints of their sound, and files that are not what their name or header
says."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile

from speechmix import Clip
from speechmix.errors import InputError
from speechmix.inputs.audio.audio_source import (
    audio_fingerprint,
    audio_seconds,
    read_audio,
    samples_fingerprint,
    to_mono,
)
from speechmix.inputs.audio.decoding import (
    _MAX_DECODED_VALUES,
    MAX_AUDIO_SECONDS,
    TruncatedAudioError,
)

RATE = 16_000


def tone(seconds: float = 2.0, rate: int = RATE) -> np.ndarray:
    return (0.4 * np.sin(np.arange(round(seconds * rate)) * 2 * np.pi * 220 / rate)).astype(
        np.float32
    )


def written(path: Path, samples: np.ndarray | None = None, rate: int = RATE, **options) -> Path:
    soundfile.write(path, tone() if samples is None else samples, rate, **options)
    return path


def changed(path: Path, place: Callable[[bytes], int], content: bytes) -> Path:
    """The file with some of its bytes replaced."""
    data = bytearray(path.read_bytes())
    start = place(data)
    data[start : start + len(content)] = content
    path.write_bytes(data)
    return path


class TestFingerprint:
    def test_the_same_sound_has_it_whatever_the_file_is_called(self, tmp_path):
        first, second = written(tmp_path / "a.wav"), tmp_path / "b.wav"
        second.write_bytes(first.read_bytes())
        assert audio_fingerprint(first) == audio_fingerprint(second)
        assert re.fullmatch("[0-9a-f]{32}", audio_fingerprint(first))

    def test_other_samples_or_another_rate_have_another(self, tmp_path):
        louder = tone()
        louder[100] += 1e-3
        paths = [
            written(tmp_path / "a.wav", subtype="FLOAT"),
            written(tmp_path / "b.wav", louder, subtype="FLOAT"),
            written(tmp_path / "c.wav", rate=8000, subtype="FLOAT"),
        ]
        assert len({audio_fingerprint(path) for path in paths}) == 3

    @pytest.mark.parametrize("rate", [RATE, 44_100])
    def test_an_array_has_that_of_the_file_it_is_written_to(self, tmp_path, rate):
        stereo = np.stack([tone(1.0, rate), 0.1 * tone(1.0, rate)], axis=1)
        path = written(tmp_path / "a.wav", stereo, rate, subtype="FLOAT")
        assert samples_fingerprint(stereo, rate) == audio_fingerprint(path)
        assert samples_fingerprint(
            to_mono(stereo, rate, sample_rate=rate, where="stereo"), rate
        ) == audio_fingerprint(path)
        whole = (20_000 * tone(1.0, rate)).astype(np.int16)
        assert samples_fingerprint(whole, rate) == audio_fingerprint(
            written(tmp_path / "b.wav", whole, rate)
        )

    def test_sound_and_fingerprint_are_decoded_once(self, tmp_path, monkeypatch):
        path, opened = written(tmp_path / "a.wav"), []
        real = soundfile.SoundFile
        monkeypatch.setattr(
            soundfile, "SoundFile", lambda *args: opened.append(args) or real(*args)
        )
        audio_fingerprint(path)
        read_audio(path)
        audio_fingerprint(path)
        assert len(opened) == 1


class TestLength:
    def test_a_long_file_is_refused_and_its_part_is_read(self, tmp_path):
        path = tmp_path / "long.flac"
        with soundfile.SoundFile(path, "w", 8000, 1) as file:
            for second in range(int(MAX_AUDIO_SECONDS) + 60):
                file.write(np.full(8000, (second % 100) / 200))
        tracemalloc.start()
        with pytest.raises(
            InputError,
            match=r"long\.flac: expected at most 10 minutes of audio, found 660\.00 s.*cut",
        ):
            read_audio(path)
        assert tracemalloc.get_traced_memory()[1] < 2e6
        tracemalloc.stop()
        part = read_audio(path, sample_rate=8000, start=630.0, stop=632.0)
        np.testing.assert_allclose(part, np.repeat([0.15, 0.155], 8000), atol=1e-4)
        assert audio_seconds(path) == MAX_AUDIO_SECONDS + 60

    def test_a_part_is_cut_out_of_a_long_clip(self, tmp_path):
        path = written(tmp_path / "long.wav", np.zeros(int(MAX_AUDIO_SECONDS + 1) * 1000), 1000)
        clip = Clip.from_file(path, words=[("les", 600.1, 600.3), ("livres", 600.3, 600.8)]).cut(
            600.0, 601.0
        )
        assert clip.duration == 1.0
        assert [word.text for word in clip.words] == ["les", "livres"]

    def test_a_part_that_is_too_long_or_holds_nothing(self, tmp_path):
        path = written(tmp_path / "a.wav")
        with pytest.raises(InputError, match="at most 10 minutes"):
            read_audio(path, start=0.5, stop=2000.0)
        with pytest.raises(InputError, match="0 samples"):
            read_audio(path, start=5.0, stop=6.0)

    def test_arrays_too(self):
        with pytest.raises(InputError, match=r"clip 'c'.*at most 10 minutes"):
            Clip.from_array(np.zeros(int(MAX_AUDIO_SECONDS) * 1000 + 1, np.int8), 1000, name="c")
        with pytest.raises(InputError, match="samples per second, found 1:"):
            Clip.from_array(np.zeros(RATE), 1)

    def test_many_channels_are_averaged_in_parts(self, tmp_path, monkeypatch):
        noise = np.random.default_rng(0).standard_normal((3000, 7)).astype(np.float32) / 10
        path = written(tmp_path / "seven.wav", noise, subtype="FLOAT")
        whole = read_audio(path)
        monkeypatch.setattr("speechmix.inputs.audio.decoding._MAX_DECODED_VALUES", 1000)
        np.testing.assert_array_equal(read_audio(path, start=0.0, stop=100.0), whole)
        assert _MAX_DECODED_VALUES > 600 * 48_000 * 2  # an MP3 is always read in one go


class TestHeadersThatLie:
    @pytest.mark.parametrize("promised", [4_000_000_000, 2**32 - 1, 100_000])
    def test_wav_with_less_than_it_says(self, tmp_path, promised):
        path = changed(
            written(tmp_path / "a.wav"), lambda d: d.find(b"data") + 4, struct.pack("<I", promised)
        )
        for read in (read_audio, audio_seconds):
            with pytest.raises(
                TruncatedAudioError,
                match=r"a\.wav: its header promises .* it holds 2\.00 s: it was cut off",
            ):
                read(path)

    def test_a_wav_that_was_streamed_does_not_know_its_length(self, tmp_path):
        path = changed(written(tmp_path / "a.wav"), lambda d: d.find(b"data") + 4, b"\xff" * 4)
        assert len(read_audio(changed(path, lambda d: 4, b"\xff" * 4))) == 2 * RATE

    HOLDS_MORE = (
        r"its header promises 0\.500 s, but it holds 2\.000 s: the recording was not finished"
    )
    UNFINISHED = "its header says that it holds no sound, but 64,000 bytes of sound follow"
    ALL_IS_READ = r"promises 0\.500 s, but it holds 2\.000 s: all of it is read"

    @pytest.mark.parametrize(
        ("layout", "marker", "offset", "number", "unfinished"),
        [
            ("WAV", b"data", 4, "<I", 0),
            ("RF64", b"ds64", 16, "<Q", 0),
            ("AIFF", b"SSND", 4, ">I", 8),
            ("AU", b".snd", 8, ">I", 0),
            ("CAF", b"data", 4, ">Q", 4),
        ],
    )
    def test_a_file_that_holds_more_than_it_says(
        self, tmp_path, layout, marker, offset, number, unfinished
    ):
        path = written(tmp_path / "a.bin", format=layout)
        whole = path.read_bytes()
        for length, message in (
            (16_000 + unfinished, self.HOLDS_MORE),
            (unfinished, self.UNFINISHED),
        ):
            path.write_bytes(whole)
            changed(path, lambda d: d.find(marker) + offset, struct.pack(number, length))
            for read in (
                read_audio,
                audio_seconds,
                lambda path: read_audio(path, start=0.1, stop=0.2),
            ):
                with pytest.raises(InputError, match=message):
                    read(path)
        path.write_bytes(whole[:20_000])
        with pytest.raises(InputError, match=r"cut off|malformed"):
            audio_seconds(path)

    @pytest.mark.parametrize(
        ("layout", "marker", "content"),
        [
            ("W64", b"data\xf3\xac", struct.pack("<Q", 24 + 16_000)),
            ("NIST", b"sample_count", b" -i 8000 "),
        ],
    )
    def test_a_file_of_which_all_is_read_for_all_that_it_says(
        self, tmp_path, layout, marker, content
    ):
        path = written(tmp_path / "a.bin", format=layout)
        marker_bytes = 16 if layout == "W64" else len(marker)
        changed(path, lambda d: d.find(marker) + marker_bytes, content)
        with pytest.warns(UserWarning, match=self.ALL_IS_READ):
            assert len(read_audio(path)) == 2 * RATE

    def test_what_may_stand_behind_the_sound(self, tmp_path, recwarn):
        path = written(tmp_path / "a.wav")
        whole = path.read_bytes()
        chunk = b"LIST" + struct.pack("<I", 4) + b"INFO"
        for rest in (b"", chunk, bytes(4096), b"TAG" + b"x" * 125, chunk + bytes(3)):
            path.write_bytes(whole + rest)
            assert len(read_audio(path)) == 2 * RATE
        assert not recwarn.list

    def test_a_chunk_behind_the_sound_of_w64_is_no_sound(self, tmp_path, recwarn):
        path = written(tmp_path / "a.w64", format="W64")
        name = b"note" + path.read_bytes()[-2 * 2 * RATE - 20 : -2 * 2 * RATE - 8]
        path.write_bytes(path.read_bytes() + name + struct.pack("<Q", 24 + 800) + b"x" * 800)
        assert len(read_audio(path)) == 2 * RATE
        assert len(read_audio(path, start=1.9, stop=2.1)) == RATE // 10
        assert audio_seconds(path) == 2.0
        assert not recwarn.list

    def test_a_few_samples_too_few_are_said(self, tmp_path):
        path = written(tmp_path / "a.wav")
        path.write_bytes(path.read_bytes()[:-800])
        with pytest.warns(UserWarning, match=r"promises 2\.000 s, but it holds 1\.975 s"):
            assert len(read_audio(path)) == 2 * RATE - 400

    def test_ffmpeg_writes_all_of_it_anew(self, tmp_path):
        ffmpeg = shutil.which("ffmpeg") or pytest.skip("ffmpeg is not installed")
        path = changed(written(tmp_path / "a.wav"), lambda d: d.find(b"data") + 4, bytes(4))
        options = ["-v", "error", "-ignore_length", "1", "-i", path, tmp_path / "b.wav"]
        subprocess.run([ffmpeg, *options], check=True)
        assert len(read_audio(tmp_path / "b.wav")) == 2 * RATE

    @pytest.mark.parametrize("seconds", [0, 1])
    def test_sox_writes_all_of_it_anew(self, tmp_path, seconds):
        sox = shutil.which("sox") or pytest.skip("sox is not installed")
        au = written(tmp_path / "a.au", format="AU")
        changed(au, lambda d: 8, struct.pack(">I", 2 * RATE * seconds))
        aiff = written(tmp_path / "a.aiff", format="AIFF")
        changed(aiff, lambda d: d.find(b"COMM") + 10, struct.pack(">I", RATE * seconds))
        changed(aiff, lambda d: d.find(b"SSND") + 4, struct.pack(">I", 8 + 2 * RATE * seconds))
        for path in (au, aiff):
            with pytest.raises(InputError, match=r"`sox --ignore-length IN out\.wav`"):
                read_audio(path)
            subprocess.run([sox, "-V1", "--ignore-length", path, tmp_path / "b.wav"], check=True)
            assert len(read_audio(tmp_path / "b.wav")) == 2 * RATE

    def test_caf_has_no_program_that_ignores_its_length(self, tmp_path):
        path = written(tmp_path / "a.caf", format="CAF")
        changed(path, lambda d: d.find(b"data") + 4, struct.pack(">Q", 4 + 2 * RATE))
        with pytest.raises(InputError, match="write all of it anew with a sound editor"):
            read_audio(path)

    @pytest.mark.parametrize("rate", [1, 999, 400_000, 2**31 - 1])
    def test_wav_with_a_rate_that_nothing_has(self, tmp_path, rate):
        path = changed(written(tmp_path / "a.wav"), lambda d: 24, struct.pack("<I", rate))
        with pytest.raises(
            InputError, match=f"expected 1,000 to 384,000 samples per second, found {rate:,}"
        ):
            read_audio(path)

    def test_wav_with_all_the_channels_there_can_be(self, tmp_path):
        path = changed(written(tmp_path / "a.wav"), lambda d: 22, b"\xff\xff")
        with pytest.raises(InputError, match=r"a\.wav as audio .*channels"):
            read_audio(path)

    @pytest.mark.parametrize(
        ("frames", "message"), [(2**31 - 1, "it holds 2"), (20, "but it holds 2")]
    )
    def test_mp3_with_a_forged_count(self, tmp_path, frames, message):
        path = written(tmp_path / "a.mp3")
        path = changed(
            path, lambda d: max(d.find(b"Xing"), d.find(b"Info")) + 8, struct.pack(">I", frames)
        )
        for read in (read_audio, audio_seconds):
            with pytest.raises(InputError, match=rf"a\.mp3: its header promises .* {message}"):
                read(path)

    @pytest.mark.parametrize("samples", [2**36 - 1, 0])
    def test_flac_with_a_forged_count(self, tmp_path, samples):
        path = written(tmp_path / "a.flac")
        start = int.from_bytes(path.read_bytes()[18:26], "big") >> 36 << 36
        changed(path, lambda d: 18, (start | samples).to_bytes(8, "big"))
        with pytest.raises(
            InputError,
            match=r"a\.flac: (expected at most 10 minutes|its header does not say how long)",
        ):
            read_audio(path)

    @pytest.mark.parametrize("ending", ["wav", "flac", "ogg", "mp3"])
    @pytest.mark.parametrize("share", [0.3, 0.8])
    def test_cut_off(self, tmp_path, ending, share):
        path = written(
            tmp_path / f"a.{ending}", np.random.default_rng(0).standard_normal(4 * RATE) / 10
        )
        path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
        with pytest.raises(InputError, match="cut off"):
            read_audio(path)


class TestChannels:
    @pytest.mark.parametrize("right", [-1.0, -0.8])
    def test_channels_that_cancel_each_other(self, tmp_path, right):
        stereo = np.stack([tone(), right * tone()], axis=1)
        path = written(tmp_path / "a.wav", stereo)
        for read in (
            lambda: read_audio(path),
            lambda: read_audio(path, start=0.5, stop=1.0),
            lambda: Clip.from_array(stereo, RATE, name="a"),
        ):
            with pytest.raises(InputError, match="2 channels cancel each other"):
                read()

    @pytest.mark.parametrize("channels", [2, 8])
    def test_channels_that_do_not(self, channels):
        noise = np.random.default_rng(0).standard_normal((RATE, channels)) / 10
        silent = np.zeros_like(noise)
        single = np.where(np.arange(channels) == 0, noise, 0)
        for samples in (noise, silent, single):
            assert len(to_mono(samples, RATE, sample_rate=RATE, where="a")) == RATE


class TestFilesThatAreNoAudio:
    @pytest.mark.parametrize(
        ("content", "kind"),
        [
            (b"", "holds 0 bytes"),
            (b"<!DOCTYPE html><html><body>404 Not Found</body></html>" * 100, "is an HTML page"),
            (b'{"error": "not found"}', "is a JSON text"),
            ("Prière de réessayer. ".encode() * 100, "is a text"),
            (
                b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n",
                "is a pointer of Git LFS",
            ),
        ],
    )
    @pytest.mark.parametrize("ending", ["wav", "mp3", "flac"])
    def test_is_called_what_it_is(self, tmp_path, content, kind, ending):
        path = tmp_path / f"a.{ending}"
        path.write_bytes(content)
        for read in (read_audio, audio_seconds):
            with pytest.raises(InputError, match=rf"cannot read .*a\.{ending} as audio: it {kind}"):
                read(path)

    def test_noise_is_no_audio(self, tmp_path):
        path = tmp_path / "noise.wav"
        path.write_bytes(np.random.default_rng(0).bytes(4000))
        with pytest.raises(InputError, match="expected WAV, FLAC, OGG or MP3; convert"):
            read_audio(path)
