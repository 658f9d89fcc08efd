"""Sets that hold many recordings in a file, at their edges: links, doubles, odd names, options that
have no meaning."""

from __future__ import annotations

import io
import json
import tarfile
from collections import Counter

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import soundfile

from speechmix.errors import InputError
from speechmix.extensions.corpora.hub_datasets import StoredRow
from speechmix.inputs.clips.clip import Clip
from speechmix.inputs.clips.corpus_row import RejectedRow, Row
from speechmix.inputs.clips.manifests import read_clips
from speechmix.inputs.corpora.corpus_reading import read_corpus, read_corpus_clips
from tests.corpora.containers import (
    NAMES,
    TEXTS,
    add_json,
    data_set,
    encoded,
    tar_of,
    write_arrow,
    write_parquet,
    write_shar,
    write_tars,
)


def tone(frequency: float, seconds: float = 0.25) -> bytes:
    """A WAV, as long in bytes as every other of so many seconds."""
    file = io.BytesIO()
    soundfile.write(
        file, np.sin(np.arange(int(16_000 * seconds)) * frequency) / 4, 16_000, format="WAV"
    )
    return file.getvalue()


def outcomes(rows) -> list[tuple[str, str]]:
    return [(row.name, getattr(row, "reason_kind", "good")) for row in rows]


@pytest.mark.parametrize("write", [write_tars, write_shar, write_parquet, write_arrow])
def test_files_behind_links_are_read_as_in_the_cache_of_the_hub(write, tmp_path):
    """`hf download` gives a folder of links to files that lie elsewhere."""
    written, linked = write(tmp_path / "set"), tmp_path / "snapshot"
    blobs = tmp_path / "blobs"
    blobs.mkdir()
    for index, file in enumerate(sorted(path for path in written.rglob("*") if path.is_file())):
        link = linked / file.relative_to(written)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(file.rename(blobs / str(index)))
    rows = list(read_corpus(linked))
    assert outcomes(rows) == [(name, "good") for name in NAMES]
    assert [len(clip.audio()) > 0 for clip in read_corpus_clips(linked)] == [True] * len(NAMES)


def test_a_word_file_may_still_not_lead_out_of_the_folder(tmp_path):
    (tmp_path / "words.tsv").write_text("word\tstart\tend\nles\t0\t0.1\n")
    members = ("a.wav", tone(0.1)), ("a.json", add_json(text="Les.", words="../words.tsv"))
    tar_of(tmp_path / "set" / "a.tar", *members)
    (rejected,) = read_corpus(tmp_path / "set")
    assert "leads out of the folder" in rejected.reason
    (row,) = read_corpus(tmp_path / "set", allow_outside=True)
    assert [word.text for word in row.words] == ["les"]


def test_recordings_alike_in_name_text_and_size_are_two_if_their_bytes_differ(tmp_path):
    """Takes of one sentence by several speakers, each of the same length, as in a corpus of
    commands."""
    take = {
        speaker: tone(frequency) for speaker, frequency in (("s1", 0.1), ("s2", 0.2), ("s3", 0.3))
    }
    assert len({len(content) for content in take.values()}) == 1
    members = [
        m
        for speaker, content in take.items()
        for m in ((f"{speaker}/take.wav", content), (f"{speaker}/take.txt", b"Oui."))
    ]
    tar_of(tmp_path / "tars" / "0.tar", *members)
    tar_of(tmp_path / "tars" / "1.tar", ("s2/take.wav", take["s2"]), ("s2/take.txt", b"Oui."))
    expected = [("take", "good"), ("take-2", "good"), ("take-3", "good"), ("take", "duplicate")]
    assert outcomes(read_corpus(tmp_path / "tars")) == expected
    sounds = [
        clip.audio_hash for clip in read_corpus_clips(tmp_path / "tars", on_error=lambda *_: None)
    ]
    assert len(set(sounds)) == 3

    rows = [
        {"audio": {"bytes": take[speaker], "path": f"{speaker}/take.wav"}, "text": "Oui."}
        for speaker in ("s1", "s2", "s3", "s2")
    ]
    data = datasets.Dataset.from_list(rows).cast_column("audio", datasets.Audio(decode=False))
    (tmp_path / "parquet").mkdir()
    data.to_parquet(tmp_path / "parquet" / "train.parquet")
    data.save_to_disk(tmp_path / "arrow")
    for folder in ("parquet", "arrow"):
        assert outcomes(read_corpus(tmp_path / folder)) == expected


def test_files_of_one_name_in_two_folders_are_two_recordings(tmp_path):
    """A data set that only names its files."""
    paths = []
    for speaker, frequency in (("s1", 0.1), ("s2", 0.2)):
        (tmp_path / speaker).mkdir()
        (tmp_path / speaker / "take.wav").write_bytes(tone(frequency))
        paths.append(str(tmp_path / speaker / "take.wav"))
    rows = [{"audio": path, "text": "Oui."} for path in [*paths, paths[0]]]
    data = datasets.Dataset.from_list(rows)
    data.save_to_disk(tmp_path / "names")
    data.cast_column("audio", datasets.Audio(decode=False)).save_to_disk(tmp_path / "audio")
    (tmp_path / "parquet").mkdir()
    data.to_parquet(tmp_path / "parquet" / "train.parquet")
    for folder in ("names", "audio", "parquet"):
        refused = (
            [] if folder == "audio" else list(read_corpus(tmp_path / folder))
        )  # save_to_disk puts the bytes in
        assert {why for _, why in outcomes(refused)} <= {"unsafe path"}
        rows = list(read_corpus(tmp_path / folder, allow_outside=True))
        assert outcomes(rows) == [("take", "good"), ("take-2", "good"), ("take", "duplicate")], (
            folder
        )
        clips = list(
            read_corpus_clips(tmp_path / folder, allow_outside=True, on_error=lambda *_: None)
        )
        assert [clip.audio_hash for clip in clips] == [
            Clip.from_file(path).audio_hash for path in paths
        ]


def test_cuts_of_one_id_have_each_its_own_recording(tmp_path):
    """In their order, as Lhotse itself reads them; so too where one of them has none."""
    from lhotse import CutSet, MonoCut, Recording, SupervisionSegment

    cuts = []
    for index, frequency in enumerate((0.1, None, 0.2)):
        recording = None
        if frequency is not None:
            (tmp_path / f"{index}.wav").write_bytes(tone(frequency))
            recording = Recording.from_file(tmp_path / f"{index}.wav", recording_id=str(index))
        supervision = SupervisionSegment(
            id=str(index), recording_id=str(index), start=0, duration=0.25, text=f"Oui {index}."
        )
        cuts.append(MonoCut("same", 0, 0.25, 0, supervisions=[supervision], recording=recording))
    (tmp_path / "set").mkdir()
    CutSet.from_cuts(cuts).to_shar(tmp_path / "set", fields={"recording": "wav"}, shard_size=3)
    rows = list(read_corpus(tmp_path / "set"))
    assert outcomes(rows) == [("same", "good"), ("same-2", "missing clip"), ("same-3", "good")]
    clips = list(read_corpus_clips(tmp_path / "set", on_error=lambda *_: None))
    for clip, index in zip(clips, (0, 2), strict=True):
        assert clip.text == f"Oui {index}."
        assert np.abs(clip.audio() - Clip.from_file(tmp_path / f"{index}.wav").audio()).max() < 1e-4


def test_what_else_a_cut_says_leads_to_no_other_file(tmp_path):
    from lhotse import CutSet

    (tmp_path / "set").mkdir()
    folder = write_shar(tmp_path / "set" / "plain")
    custom = {"path": "elsewhere.wav", "words": "elsewhere.ctm", "age": 30}
    for cuts in folder.glob("cuts.*.jsonl.gz"):
        changed = list(CutSet.from_jsonl_lazy(cuts))
        for cut in changed:
            cut.supervisions[0].custom = custom
        CutSet.from_cuts(changed).to_file(cuts)
    rows = list(read_corpus(folder))
    assert outcomes(rows) == [(name, "good") for name in NAMES]
    assert {row.meta["age"] for row in rows} == {"30"}
    for cuts in folder.glob("cuts.*.jsonl.gz"):
        changed = list(CutSet.from_jsonl_lazy(cuts))
        changed[0].supervisions[0].text = 5
        changed[1].supervisions[0].language = ["fr"]
        CutSet.from_cuts(changed).to_file(cuts)
    assert [row.reason_kind for row in read_corpus(folder) if isinstance(row, RejectedRow)] == [
        "unreadable row"
    ] * 4


def test_cuts_in_one_file_without_a_number(tmp_path):
    folder = write_shar(tmp_path / "set", shard_size=None)
    assert (folder / "cuts.jsonl.gz").is_file()
    assert outcomes(read_corpus(folder)) == [(name, "good") for name in NAMES]
    (folder / "recording.tar").rename(
        folder / "other.bin"
    )  # a list of cuts whose sound lies elsewhere
    with pytest.raises(InputError, match="expected a Common Voice release"):
        list(read_corpus(folder))


@pytest.mark.parametrize("option", ["split=test", "text=raw", "audio=wav"])
def test_what_is_said_behind_a_corpus_is_heard_or_refused(option, tmp_path):
    """Left unheard, a split would be all rows and a column another one."""
    name = option.partition("=")[0]
    shar, tars = write_shar(tmp_path / "shar"), write_tars(tmp_path / "tars")
    table = tmp_path / "shar_files" / "manifest.tsv"
    if name == "split":
        for source in (shar, table, tars, tars / "shard-000000.tar"):
            with pytest.raises(InputError, match="which has no split: leave"):
                list(read_corpus(f"{source},{option}"))
        with pytest.raises(InputError, match="which has no split"):
            list(read_corpus(tars, split="test"))
        return
    with pytest.raises(InputError, match=r"with the column (raw|wav), found .*,audio=COLUMN"):
        list(read_corpus(f"{table},{option}"))
    if name == "audio":
        with pytest.raises(InputError, match=r"none called wav\.000000\.tar"):
            list(read_corpus(f"{shar},{option}"))
    else:
        assert {outcome for _, outcome in outcomes(read_corpus(f"{shar},{option}"))} == {
            "empty sentence"
        }


def test_a_table_at_the_root_of_a_folder_of_audio_has_no_splits(tmp_path):
    (tmp_path / "a.wav").write_bytes(tone(0.1))
    (tmp_path / "metadata.csv").write_text("file_name,text\na.wav,Oui.\n")
    assert outcomes(read_corpus(tmp_path)) == [("a", "good")]
    with pytest.raises(InputError, match="which has no"):
        list(read_corpus(f"{tmp_path},split=test"))
    (tmp_path / "metadata.csv").write_text("file,File_Name,text\nb.wav,a.wav,Oui.\n")
    assert outcomes(read_corpus(f"{tmp_path},audio=file")) == [("b", "missing clip")]


def test_a_column_that_was_named_is_not_another(tmp_path):
    tar = tar_of(
        tmp_path / "a.tar",
        ("a.wav", tone(0.1)),
        ("a.json", add_json(raw="Oui.", text="no")),
        ("b.wav", tone(0.2)),
        ("b.json", add_json(text="no", sentence="no")),
        ("c.wav", tone(0.3)),
        ("c.json", add_json(raw=5)),
    )
    source = f"{tar},text=raw"
    assert outcomes(read_corpus(source)) == [
        ("a", "good"),
        ("b", "empty sentence"),
        ("c", "unreadable row"),
    ]
    clips = list(read_corpus_clips(source, on_error=lambda *_: None))
    assert [(clip.name, clip.text) for clip in clips] == [("a", "Oui."), ("b", None)]


def names_and_texts(source):
    return [(clip.name, clip.text) for clip in read_corpus_clips(source, on_error=lambda *_: None)]


def test_dots_belong_to_keys_unless_a_text_has_the_short_name(tmp_path):
    sounds = [tone(0.1 * number) for number in range(1, 5)]
    tar = tar_of(
        tmp_path / "dots.tar",
        ("a_2.0.wav", sounds[0]),
        ("a_2.0.JSON", add_json(text="Oui.")),
        ("a_2.1.wav", sounds[1]),
        ("a_2.1.txt", b"Non."),
        ("a_2.2.txt", b"Alone."),
        ("b.1.wav", sounds[2]),
        ("b.2.wav", sounds[3]),
    )
    assert outcomes(read_corpus(tar)) == [
        ("a_2.0", "good"),
        ("a_2.1", "good"),
        ("a_2.2", "missing clip"),
        ("b.1", "empty sentence"),
        ("b.2", "empty sentence"),
    ]
    assert names_and_texts(tar)[:2] == [("a_2.0", "Oui."), ("a_2.1", "Non.")]
    channels = [("c.left.wav", sounds[0]), ("c.right.wav", sounds[1]), ("c.txt", b"Oui.")]
    tar_of(tar, *channels)
    assert outcomes(read_corpus(tar)) == [("c", "several recordings")]
    assert names_and_texts(f"{tar},audio=left.wav") == [("c", "Oui.")]
    tar_of(tar, ("d.wav", sounds[0]), ("d.txt", b"Oui."), ("d.words.json", b"[]"))
    assert names_and_texts(tar) == [("d", "Oui.")]


def test_columns_of_every_reader_can_be_named(tmp_path):
    (tmp_path / "a.wav").write_bytes(tone(0.1))
    tables = {
        "m.tsv": "Wav\tSaid\ttext\na.wav\tOui.\tno\n",
        "m.csv": 'wav,said,text\na.wav,Oui.,"no"\n',
        "m.jsonl": '{"wav": "a.wav", "said": "Oui.", "text": "no"}\n',
    }
    for name, table in tables.items():
        (tmp_path / name).write_text(table)
        source = f"{tmp_path / name},audio=wav,text=said"
        assert names_and_texts(source) == [("a", "Oui.")]
        (clip,) = read_clips(source)
        assert (clip.text, dict(clip.meta)) == ("Oui.", {})
        with pytest.raises(InputError, match="audio=COLUMN"):
            read_clips(tmp_path / name)
    (shar,) = [write_shar(tmp_path / "shar")]
    for tar in shar.glob("recording.*.tar"):
        tar.rename(tar.with_name(tar.name.replace("recording", "clean")))
    assert names_and_texts(f"{shar},audio=clean")[0][0] == "clip_0"


def test_numbers_that_are_missing_or_infinite(tmp_path):
    folder = tmp_path / "set"
    folder.mkdir()
    ages = {"a.wav": 3.0, "b.wav": float("nan"), "c.wav": float("inf")}
    for number, name in enumerate(ages, start=1):
        (folder / name).write_bytes(tone(0.1 * number))
    table = {"audio": list(ages), "text": ["Oui."] * 3, "age": list(ages.values())}
    pq.write_table(pa.table(table), folder / "train.parquet")
    rows = [json.dumps({"path": name, "age": age}) for name, age in ages.items()]
    (folder / "m.jsonl").write_text("\n".join(rows))
    for source in (folder / "m.jsonl", folder):
        errors: list[str] = []
        clips = list(
            read_corpus_clips(
                source, on_error=lambda row, name, error, e=errors: e.append(str(error))
            )
        )
        assert [clip.meta.get("age", "")[:1] for clip in clips] == ["3", ""]
        assert "expected age to be finite, found inf" in "".join(errors)


def test_no_name_of_a_member_is_taken_for_compression(tmp_path):
    tar = tar_of(tmp_path / "a.tar", ("BZ_0001.wav", tone(0.1)), ("BZ_0001.txt", b"Oui."))
    assert outcomes(read_corpus(tar)) == [("BZ_0001", "good")]


@pytest.mark.parametrize("method", ["gz", "bz2", "xz"])
def test_each_compression_is_named(tmp_path, method):
    with tarfile.open(tmp_path / "a.tar", f"w:{method}") as tar:
        tar.addfile(tarfile.TarInfo("a.wav"))
    with pytest.raises(InputError, match="compressed as a whole"):
        list(read_corpus(tmp_path / "a.tar"))


@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.DIRTYPE])
def test_a_header_that_leads_back_does_not_lead_round_for_ever(tmp_path, kind):
    tar = tar_of(
        tmp_path / "a.tar",
        ("a.wav", tone(0.1)),
        ("a.txt", b"Oui."),
        ("b.wav", tone(0.2)),
        ("b.txt", b"Non."),
    )
    content = bytearray(tar.read_bytes())
    with tarfile.open(tar) as opened:
        start = opened.getmember("b.wav").offset
    content[start + 124 : start + 136] = b"\xff" * 10 + b"\xf8\x00"  # a size of -2048
    content[start + 156 : start + 157] = kind
    content[start + 148 : start + 156] = b" " * 8
    content[start + 148 : start + 156] = b"%06o\0 " % sum(content[start : start + 512])
    tar.write_bytes(content)
    assert outcomes(read_corpus(tar)) == [("a", "good"), ("a-2", "truncated tar")]


def test_a_release_is_read_though_its_archive_still_lies_there(tmp_path):
    release = tmp_path / "cv" / "fr"
    (release / "clips").mkdir(parents=True)
    (release / "clips" / "a.mp3").write_bytes(tone(0.1))
    (release / "validated.tsv").write_text("path\tsentence\na.mp3\tOui.\n")
    for folder in (tmp_path, release):
        with tarfile.open(folder / "fr.tar.gz", "w:gz") as tar:
            tar.add(release / "clips")
    tar_of(release / "clips.tar", ("a.mp3", tone(0.1)))
    for folder in (tmp_path, release):
        assert outcomes(read_corpus(folder)) == [("a", "good")]


@pytest.mark.parametrize("kind", ["arrow", "parquet"])
def test_clips_of_a_data_set_need_no_text(kind, tmp_path):
    data = data_set().remove_columns("text")
    (tmp_path / "set").mkdir()
    (
        data.save_to_disk
        if kind == "arrow"
        else lambda folder: data.to_parquet(folder / "train.parquet")
    )(tmp_path / "set")
    clips = list(read_corpus_clips(tmp_path / "set"))
    assert [(clip.name, clip.text) for clip in clips] == [(name, None) for name in NAMES]
    with pytest.raises(InputError, match="expected the columns audio and one of"):
        list(read_corpus(tmp_path / "set"))
    with pytest.raises(InputError, match="expected the columns audio and raw"):
        list(read_corpus_clips(f"{tmp_path / 'set'},text=raw"))


@pytest.mark.parametrize("kind", ["arrow", "parquet"])
def test_a_column_of_something_else_is_named(kind, tmp_path):
    data = datasets.Dataset.from_list(
        [{"audio": {"array": [0.0], "sampling_rate": 16_000}, "text": "Oui."}]
    )
    (tmp_path / "set").mkdir()
    (
        data.save_to_disk
        if kind == "arrow"
        else lambda folder: data.to_parquet(folder / "train.parquet")
    )(tmp_path / "set")
    with pytest.raises(
        InputError, match=r"expected recordings in the column audio .* found struct<"
    ):
        list(read_corpus(tmp_path / "set"))


def test_files_of_a_set_may_lack_a_text(tmp_path):
    (tmp_path / "set").mkdir()
    sound = [{"bytes": tone(0.1), "path": "a.wav"}]
    pq.write_table(
        pa.table({"audio": sound, "text": ["Oui."]}), tmp_path / "set" / "train-0.parquet"
    )
    pq.write_table(
        pa.table({"audio": sound, "said": ["Non."]}), tmp_path / "set" / "train-1.parquet"
    )
    rows = list(read_corpus(tmp_path / "set"))
    assert [isinstance(row, Row) for row in rows] == [True, False]
    assert Counter(row.reason_kind for row in rows[1:]) == {"empty sentence": 1}


@pytest.mark.parametrize("kind", ["arrow", "parquet"])
def test_a_second_recording_of_each_row_is_not_read(kind, tmp_path, monkeypatch):
    columns = {"audio": tone(0.1), "noisy": tone(0.2)}
    rows = [
        {name: {"bytes": sound, "path": "a.wav"} for name, sound in columns.items()}
        | {"text": "Oui."}
    ]
    data = datasets.Dataset.from_list(rows)
    for name in columns:
        data = data.cast_column(name, datasets.Audio(decode=False))
    (tmp_path / "set").mkdir()
    (
        data.save_to_disk
        if kind == "arrow"
        else lambda folder: data.to_parquet(folder / "train.parquet")
    )(tmp_path / "set")
    columns_read = []

    def stored(cells, *rest, **more):
        columns_read.append(set(cells))
        return StoredRow(cells, *rest, **more)

    monkeypatch.setattr("speechmix.extensions.corpora.hub_datasets.StoredRow", stored)
    (row,) = read_corpus(tmp_path / "set")
    assert columns_read == [{"text"}]
    assert row.text == "Oui."


def test_an_error_says_which_row_of_a_data_set_it_is(tmp_path):
    rows = [
        {"audio": {"bytes": tone(0.1), "path": f"{i}.wav"}, "text": text}
        for i, text in enumerate(("Oui.", "", "Non."))
    ]
    data = datasets.Dataset.from_list(rows).cast_column("audio", datasets.Audio(decode=False))
    data.save_to_disk(tmp_path / "set")
    bad = [row for row in read_corpus(tmp_path / "set") if isinstance(row, RejectedRow)]
    assert [(row.origin.row, row.origin.path) for row in bad] == [(2, "1.wav")]


def test_a_word_file_of_several_recordings_is_asked_for_the_member(tmp_path):
    (tmp_path / "all.ctm").write_text(
        "a 1 0.00 0.10 oui\nset 1 0.00 0.10 autre\nb.1 1 0.05 0.10 non\n"
    )
    tar = tar_of(
        tmp_path / "set.tar",
        ("x/a.wav", tone(0.1)),
        ("x/a.json", add_json(text="Oui.", words="all.ctm", name="first")),
    )
    (row,) = read_corpus(tar)
    assert [word.text for word in row.words] == ["oui"]
    (clip,) = read_corpus_clips(tar_of(tmp_path / "b.tar", ("a.wav", tone(0.1))))
    assert [word.text for word in clip.with_words(tmp_path / "all.ctm").words] == ["oui"]


def test_a_manifest_keeps_a_column_file_name_beside_its_path(tmp_path):
    (tmp_path / "a.wav").write_bytes(encoded(0))
    (tmp_path / "m.tsv").write_text(f"path\tfile_name\ttext\na.wav\tb.wav\t{TEXTS[0]}\n")
    (row,) = read_corpus(tmp_path / "m.tsv")
    assert row.meta == {"file_name": "b.wav"}
