"""Pipes, devices and packed files without end, wherever a user names a file: one clear error,
soon."""

from __future__ import annotations

import gzip
import os
import signal
from contextlib import contextmanager

import pytest

from speechmix.adapters.loading.load import adapter_base
from speechmix.errors import InputError, SpeechmixError
from speechmix.extensions.inseq.inseq_conversion import _read_inseq_json as read_inseq
from speechmix.files import text_files as bounded_reads
from speechmix.files.json_files import read_json_object
from speechmix.files.text_files import (
    bounded_lines,
    decompress_bounded,
    read_bounded,
    read_csv,
    read_text,
)
from speechmix.files.user_tables import read_table
from speechmix.inputs.audio.audio_source import read_audio
from speechmix.inputs.audio.decoding import header_seconds, open_bytes
from speechmix.inputs.clips.manifests import read_clips
from speechmix.inputs.formats.word_files import read_words
from speechmix.inputs.sentences.sentence import read_sentences
from speechmix.studies.french.language.lexicon import read_lexicon_rows
from speechmix.studies.french.pair_template import load_template

READERS = {
    "words.json": read_words,
    "words.TextGrid": read_words,
    "words.ctm": read_words,
    "words.tsv": read_words,
    "text.txt": read_text,
    "object.json": read_json_object,
    "run.csv": read_csv,
    "clips.tsv": read_clips,
    "clips.jsonl": read_clips,
    "clips.csv": lambda path: list(read_table(path)),
    "texts.tsv": read_sentences,
    "sound.wav": read_audio,
    "header.flac": header_seconds,
    "bytes.mp3": open_bytes,
    "lexicon.tsv": read_lexicon_rows,
    "template.toml": load_template,
    "inseq.json": read_inseq,
}


@contextmanager
def seconds(count):
    """Fail, rather than hang."""

    def late(*_):
        raise AssertionError("it hangs")

    former = signal.signal(signal.SIGALRM, late)
    signal.alarm(count)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, former)


@pytest.mark.parametrize("name", READERS)
def test_a_pipe_is_refused(tmp_path, name):
    path = tmp_path / name
    os.mkfifo(path)
    with seconds(20), pytest.raises(InputError, match="pipe"):
        READERS[name](path)


@pytest.mark.parametrize("name", READERS)
def test_a_device_is_refused(tmp_path, name):
    path = tmp_path / name
    path.symlink_to("/dev/zero")
    with seconds(20), pytest.raises(InputError, match="device"):
        READERS[name](path)


def test_an_adapter_config_that_is_a_pipe_is_none(tmp_path):
    os.mkfifo(tmp_path / "adapter_config.json")
    with seconds(20):
        assert adapter_base(str(tmp_path)) is None


@pytest.mark.parametrize("name", ["words.json", "text.txt", "object.json"])
def test_a_file_larger_than_any_is_refused(tmp_path, monkeypatch, name):
    monkeypatch.setattr("speechmix.files.text_files.MAX_TEXT_BYTES", 100)
    path = tmp_path / name
    with path.open("wb") as file:
        file.truncate(2**33)  # a hole: nothing is on the disk
    with seconds(20), pytest.raises(InputError, match="at most 100 bytes"):
        READERS[name](path)


def test_the_bytes_of_a_file_up_to_the_most(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"x" * 10)
    assert read_bounded(path, most=10) == b"x" * 10
    with pytest.raises(InputError, match="at most 9 bytes"):
        read_bounded(path, most=9)
    with pytest.raises(IsADirectoryError):
        read_bounded(tmp_path)


def test_a_packed_line_without_end_is_refused(tmp_path):
    path = tmp_path / "cuts.jsonl.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b'{"a": 1}\n')
        for _ in range(40):
            file.write(bytes(2**20))
    assert path.stat().st_size < 2**20
    lines = bounded_lines(path)
    assert next(lines) == b'{"a": 1}'
    with pytest.raises(InputError, match=r"lines of at most 16,777,216 bytes.*line 2"):
        next(lines)


def test_cuts_of_lhotse_with_a_line_without_end(tmp_path, monkeypatch):
    pytest.importorskip("lhotse", reason="extra lhotse")
    import tarfile

    from speechmix.extensions.corpora.tar_corpora import read_shar

    monkeypatch.setattr(bounded_reads.bounded_lines, "__kwdefaults__", {"most": 1000})
    with gzip.open(tmp_path / "cuts.000000.jsonl.gz", "wb") as file:
        file.write(b"[" * 5000)
    with tarfile.open(tmp_path / "recording.000000.tar", "w"):
        pass
    reasons = [row.reason for row in read_shar(tmp_path)]
    assert any("at most 1,000 bytes" in reason for reason in reasons), reasons


def test_a_packed_bomb_is_refused(tmp_path):
    bomb = gzip.compress(bytes(2**24))
    with pytest.raises(InputError, match="behind gzip"):
        decompress_bounded(bomb, where="a.gz", most=2**20)
    for damaged in (bomb[:-9], bomb[:50] + b"xxxx" + bomb[54:]):
        with pytest.raises(SpeechmixError, match="gzip"):
            decompress_bounded(damaged, where="a.gz")
    assert decompress_bounded(b"plain", where="a") == b"plain"
