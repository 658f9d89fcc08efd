"""Sets that hold many recordings in a file: rows and sound are those of files; nothing is copied,
or read too early."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import tarfile
from collections import Counter

import numpy as np
import pytest
import soundfile

from speechmix.errors import InputError
from speechmix.inputs.audio.decoding import file_signature, open_bytes, parse_location
from speechmix.inputs.clips.clip import Clip
from speechmix.inputs.clips.corpus_row import RejectedRow, Row
from speechmix.inputs.clips.manifests import read_clips
from speechmix.inputs.corpora.corpus_reading import read_corpus, read_corpus_clips
from speechmix.runs.journal.stage_lines import read_kept_lines
from speechmix.studies.french.stages import align_corpus
from speechmix.studies.french.study_folder import recording_signature
from tests.corpora.containers import (
    ENDINGS,
    KINDS,
    NAMES,
    TEXTS,
    add_json,
    encoded,
    tar_of,
    write_files,
    write_shar,
    write_tars,
)


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    """Every kind of set, written once, and a manifest of the same recordings in files of their
    own."""
    root = tmp_path_factory.mktemp("sets")
    return {kind: write(root / kind.replace(" ", "_")) for kind, write in KINDS.items()} | {
        "files": write_files(root / "f")
    }


def reasons(rows) -> Counter:
    return Counter(row.reason_kind for row in rows if isinstance(row, RejectedRow))


def test_names_that_are_no_utf_8_are_names(tmp_path):
    members = {
        "été".encode("latin-1") + b".flac": encoded(0),
        "été".encode("latin-1") + b".txt": b"les livres",
    }
    with tarfile.open(tmp_path / "old.tar", "w", format=tarfile.GNU_FORMAT) as tar:
        for name, content in members.items():
            entry = tarfile.TarInfo(name.decode("utf-8", "surrogateescape"))
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    (row,) = read_corpus(tmp_path / "old.tar")
    assert (row.name, row.text) == ("été", "les livres")


@pytest.mark.parametrize("kind", KINDS)
def test_rows_and_sound_are_those_of_files(sets, kind):
    expected = read_clips(sets["files"])
    rows = list(read_corpus(sets[kind]))
    assert [(row.name, row.text, row.audio, row.meta.get("language")) for row in rows] == [
        (clip.name, clip.text, None, "fr") for clip in expected
    ]
    clips = list(read_corpus_clips(sets[kind]))
    for index, (clip, file) in enumerate(zip(clips, expected, strict=True)):
        assert (clip.name, clip.text, clip.language) == (file.name, file.text, file.language)
        if (
            kind == "shar" and ENDINGS[index] != "wav"
        ):  # what is decoded from MP3 is written anew, in 16 bits
            assert np.abs(clip.audio() - file.audio()).max() < 1e-4
            continue
        assert clip.duration == file.duration
        assert clip.fingerprint == file.fingerprint
        assert np.array_equal(clip.audio(), file.audio())
        clip.validate()


@pytest.mark.parametrize("kind", KINDS)
def test_a_clip_is_small_and_can_be_picked_up_by_another_process(sets, kind):
    for clip in read_corpus_clips(sets[kind]):
        sent = pickle.dumps(clip)
        assert len(sent) < 2_000
        again = pickle.loads(sent)
        assert again.audio_hash == clip.audio_hash
        assert again.path == clip.path


def test_the_bytes_are_those_that_the_library_reads(sets):
    import webdataset

    tars = sorted(map(str, sets["tars"].glob("*.tar")))
    samples = list(webdataset.WebDataset(tars, shardshuffle=False))
    assert [sample["__key__"] for sample in samples] == list(NAMES)
    for sample, ending, row in zip(samples, ENDINGS, read_corpus(sets["tars"]), strict=True):
        with open_bytes(row.root / row.path) as file:
            assert file.read() == sample[ending]


def test_words_of_a_cut_are_its_alignment(tmp_path):
    write_shar(tmp_path / "set", aligned=True)
    clips = list(read_corpus_clips(tmp_path / "set"))
    assert [word.text for word in clips[2].words] == ["Elle", "a", "vu", "les", "chats"]
    assert clips[2].words[3].start == pytest.approx(0.2)
    assert clips[2].meta == {"speaker": "s1"}


def test_patterns_folders_and_single_tars(sets, tmp_path):
    folder = sets["tars"]
    names = [row.name for row in read_corpus(folder)]
    assert (
        [row.name for row in read_corpus(f"{folder}/shard-{{000000..000001}}.tar")]
        == names
        == list(NAMES)
    )
    assert [row.name for row in read_corpus(folder / "shard-000001.tar")] == names[3:]
    with pytest.raises(InputError, match=r"no such tar: .*shard-000002.tar \(1 of 3\)"):
        list(read_corpus(f"{folder}/shard-{{000000..000002}}.tar"))


@pytest.mark.parametrize("said_in", ["txt", "transcript", "sentence"])
def test_texts_are_found_by_usual_names(tmp_path, said_in):
    write_tars(tmp_path / "set", said_in=said_in)
    assert [row.text for row in read_corpus(tmp_path / "set")] == list(TEXTS)


def test_columns_can_be_named(tmp_path):
    write_tars(tmp_path / "set", said_in="raw")
    assert reasons(read_corpus(tmp_path / "set")) == {"empty sentence": len(NAMES)}
    assert [row.text for row in read_corpus(f"{tmp_path / 'set'},text=raw")] == list(TEXTS)
    with pytest.raises(InputError, match="split=, text= or audio="):
        list(read_corpus(f"{tmp_path / 'set'},txt=raw"))
    with pytest.raises(InputError, match="audio= behind a corpus, found 'name=id'"):
        list(read_corpus(f"{tmp_path / 'set'},text=raw,name=id"))


def test_what_a_tar_lacks_is_said_row_by_row(tmp_path):
    sound, text = encoded(0), add_json(text="Le livre.")
    tar = tar_of(
        tmp_path / "a.tar",
        ("good.wav", sound),
        ("good.json", text),
        ("silent.json", text),
        ("mute.wav", sound),
        ("two.wav", sound),
        ("two.mp3", encoded(2)),
        ("two.json", text),
        ("broken.wav", sound),
        ("broken.json", b"{"),
        ("list.wav", sound),
        ("list.json", b"[1]"),
        ("latin.wav", sound),
        ("latin.txt", "été".encode("latin-1")),
        ("twice.wav", sound),
        ("twice.wav", sound),
        ("twice.json", text),
        ("apart.wav", sound),
        ("other.wav", sound),
        ("other.txt", b"Un ami."),
        ("apart.txt", b"Un ami."),
    )
    rows = list(read_corpus(tar))
    assert [row.name for row in rows if isinstance(row, Row)] == ["good", "twice", "other"]
    assert reasons(rows) == {
        "missing clip": 2,
        "empty sentence": 2,
        "several recordings": 1,
        "unreadable row": 2,
        "invalid UTF-8": 1,
        "doubled member": 1,
    }
    with pytest.raises(InputError, match="expected a member"):
        list(read_corpus_clips(tar))
    told: list[str] = []
    clips = list(read_corpus_clips(tar, on_error=lambda row, name, error: told.append(name)))
    assert [clip.name for clip in clips] == [
        "good",
        "mute",
        "twice",
        "apart",
        "other",
    ]  # a text is not needed
    assert told.count("silent") == 1


def test_one_key_in_two_tars(tmp_path):
    (tmp_path / "set").mkdir()
    first = ("a.wav", encoded(0)), ("a.txt", b"Le livre.")
    tar_of(tmp_path / "set" / "0.tar", *first)
    tar_of(tmp_path / "set" / "1.tar", ("a.wav", encoded(1)), ("a.txt", b"Les livres."))
    tar_of(tmp_path / "set" / "2.tar", *first)
    rows = list(read_corpus(tmp_path / "set"))
    assert [(row.name, getattr(row, "reason_kind", "good")) for row in rows] == [
        ("a", "good"),
        ("a-2", "good"),
        ("a", "duplicate"),
    ]


def test_damaged_tars_lose_what_is_damaged_alone(tmp_path):
    write_tars(tmp_path / "set")
    first, second = sorted((tmp_path / "set").glob("*.tar"))
    whole = first.read_bytes()
    with tarfile.open(first) as tar:
        last = tar.getmembers()[-1]
        middle = tar.getmembers()[2]
    for content, good in (
        (whole[: middle.offset_data + 10], 1),  # in the middle of a member
        (whole[: last.offset], 2),  # between members: the last one lacks its text
        (
            whole[: middle.offset] + b"\xff" * 512 + whole[middle.offset + 512 :],
            1,
        ),  # a damaged header
    ):
        first.write_bytes(content)
        rows = list(read_corpus(tmp_path / "set"))
        assert sum(isinstance(row, Row) for row in rows) == good + 3, len(content)
        assert reasons(rows)["truncated tar"] == 1
    first.write_bytes(b"")
    assert reasons(read_corpus(tmp_path / "set")) == {"truncated tar": 1}
    tar_of(first)
    assert reasons(read_corpus(tmp_path / "set")) == {"empty tar": 1}
    first.write_bytes(b"no tar" * 500)
    with pytest.raises(InputError, match="expected a tar"):
        list(read_corpus(first))
    compressed = tmp_path / "b.tar.gz"
    compressed.write_bytes(gzip.compress(second.read_bytes()))
    with pytest.raises(InputError, match=r"compressed as a whole.*gunzip"):
        list(read_corpus(compressed))


def test_damaged_shar(sets, tmp_path):
    folder = write_shar(tmp_path / "set")
    (folder / "recording.000001.tar").unlink()
    with pytest.raises(InputError, match=r"found none called recording.000001.tar"):
        list(read_corpus(folder))
    whole = (sets["shar"] / "recording.000001.tar").read_bytes()
    (folder / "recording.000001.tar").write_bytes(whole[:2000])
    rows = list(read_corpus(folder))
    assert reasons(rows) == {"missing clip": 3, "truncated tar": 1}
    (folder / "recording.000001.tar").write_bytes(whole)
    cuts = folder / "cuts.000001.jsonl.gz"
    cuts.write_bytes(cuts.read_bytes()[:60])
    rows = list(read_corpus(folder))
    assert [row.name for row in rows if isinstance(row, Row)] == list(NAMES[:3])
    assert reasons(rows) == {"unreadable row": 1}


def test_columns_that_are_not_plain_are_listed(tmp_path):
    import datasets

    rows = [{"speech": {"bytes": encoded(0), "path": "a.wav"}, "said": "Le livre.", "age": 30}]
    data = datasets.Dataset.from_list(rows).cast_column("speech", datasets.Audio(decode=False))
    (tmp_path / "set").mkdir()
    data.to_parquet(tmp_path / "set" / "train.parquet")
    with pytest.raises(
        InputError, match=r"found speech \(.*said \(string\), age \(int64\): name them"
    ):
        list(read_corpus(tmp_path / "set"))
    (row,) = read_corpus(f"{tmp_path / 'set'},text=said")
    assert (row.name, row.text, row.meta) == ("a", "Le livre.", {"age": "30"})


def test_names_of_many_rows_are_read_without_their_sound(tmp_path, monkeypatch):
    sound = b"x" * 100_000
    tar = tar_of(
        tmp_path / "big.tar",
        *(m for i in range(2_000) for m in ((f"k{i}.mp3", sound), (f"k{i}.txt", b"Le livre."))),
    )
    count = 0

    class Counting(io.FileIO):
        def readinto(self, buffer):
            nonlocal count
            n_read = super().readinto(buffer)
            count += n_read or 0
            return n_read

        def read(self, size=-1):
            nonlocal count
            content = super().read(size)
            count += len(content)
            return content

    monkeypatch.setattr("speechmix.extensions.corpora.tar_corpora.open_unbuffered", Counting)
    monkeypatch.setattr("speechmix.inputs.audio.decoding.open_unbuffered", Counting)
    assert sum(1 for _ in read_corpus(tar)) == 2_000
    assert 0 < count < 0.02 * tar.stat().st_size


def test_marks_tell_that_a_tar_was_written_again(sets, tmp_path):
    tar = tar_of(tmp_path / "a.tar", ("a.wav", encoded(0)), ("b.wav", encoded(4)))
    first, second = (str(clip.path) for clip in read_corpus_clips(tar))
    stored = recording_signature(first, {})
    assert (
        recording_signature(first, {**stored, "sound": "as stored"})["sound"] == "as stored"
    )  # not read again
    assert (
        recording_signature(second, stored)["sound"] != stored["sound"]
    )  # another place of the same file is read
    tar_of(tar, ("a.wav", encoded(4)), ("b.wav", encoded(0)))
    os.utime(tar, ns=(1, 1))
    assert recording_signature(first, stored)["sound"] != stored["sound"]
    assert file_signature(first)[-2:] == [parse_location(first).offset, parse_location(first).size]
    tar.write_bytes(tar.read_bytes()[:600])
    with pytest.raises(InputError, match="cut off or replaced"):
        Clip.from_file(first, name="a").audio()
    tar.unlink()
    assert recording_signature(first, stored) == {"sound": None, "file": None}
    with pytest.raises(InputError, match="no such audio file"):
        Clip.from_file(first, name="a")


def test_a_place_in_a_tar_is_no_audio(tmp_path):
    tar = tar_of(tmp_path / "a.tar", ("a.wav", b"a text"), ("b.wav", encoded(0)[:4_000]))
    text, cut = read_corpus_clips(tar)
    with pytest.raises(InputError, match="is a text"):
        text.audio()
    with pytest.raises(InputError, match="was cut off"):
        cut.audio()


def test_a_manifest_may_name_a_place_but_not_lead_out(sets, tmp_path):
    tar = tar_of(tmp_path / "outside.tar", ("a.wav", encoded(0)))
    (path,) = (clip.path for clip in read_corpus_clips(tar))
    folder = tmp_path / "in"
    folder.mkdir()
    os.symlink(tar, folder / "link.tar")
    for cell in (path, f"link.tar::{parse_location(path).offset}+{parse_location(path).size}"):
        (folder / "m.tsv").write_text(f"path\ttext\tname\n{cell}\tLe livre.\ta\n")
        with pytest.raises(InputError, match="leads out"):
            read_clips(folder / "m.tsv")
        (clip,) = read_clips(folder / "m.tsv", allow_outside=True)
        assert clip.audio_hash == Clip.from_file(path).audio_hash


def test_a_study_of_a_tar_copies_nothing_and_goes_on(sets, tmp_path):
    """Aligned as it is, killed and again: the same lines as from files."""
    write_shar(tmp_path / "set", aligned=True)
    lines = list(read_kept_lines(align_corpus(tmp_path / "whole", source=tmp_path / "set")))
    assert [line["key"] for line in lines] == list(NAMES)
    assert not (tmp_path / "whole" / "audio").exists()
    path = align_corpus(tmp_path / "again", source=tmp_path / "set")
    text = path.read_bytes().splitlines(keepends=True)
    path.with_name(f"{path.name}.unfinished").write_bytes(b"".join(text[:3]) + text[3][:20])
    path.unlink()
    assert list(read_kept_lines(align_corpus(tmp_path / "again", source=tmp_path / "set"))) == lines


def test_scores_are_those_of_files(tmp_path):
    import speechmix
    from speechmix.inputs import bundled

    model = speechmix.load(bundled.models()["tiny-french-whisper"])
    files = bundled.clips()[:2]
    members = []
    for clip in files:
        words = [[word.text, word.start, word.end] for word in clip.words or ()]
        told = {
            "text": clip.text,
            "language": "fr",
            "foil": clip.foil,
            "cue": clip.cue,
            "target": clip.target,
        }
        members += [(f"{clip.name}{clip.path.suffix}", clip.path.read_bytes())]
        members += [
            (
                f"{clip.name}.json",
                add_json(**{k: v for k, v in told.items() if v is not None}, words=words),
            )
        ]
    stored = list(read_corpus_clips(tar_of(tmp_path / "a.tar", *members)))
    assert [clip.fingerprint for clip in stored] == [clip.fingerprint for clip in files]
    for one, other in zip(speechmix.mix(model, stored), speechmix.mix(model, files), strict=True):
        assert all(np.array_equal(one[key].scores, other[key].scores) for key in one)


def test_sounds_in_ogg_are_read(tmp_path):
    file = io.BytesIO()
    soundfile.write(file, np.sin(np.arange(16_000) / 20) / 4, 16_000, format="OGG", subtype="OPUS")
    (clip,) = read_corpus_clips(
        tar_of(tmp_path / "a.tar", ("a.opus", file.getvalue()), ("a.txt", b"Oui."))
    )
    assert clip.duration == pytest.approx(1.0, abs=0.05)
    assert clip.audio().any()
