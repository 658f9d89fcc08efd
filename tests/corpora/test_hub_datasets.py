"""Folders written by `datasets`: nothing is decoded, and the paper's annotated set is used as it
is."""

from __future__ import annotations

import io

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import soundfile

from speechmix.errors import InputError
from speechmix.extensions.listening.items import read_listening_items
from speechmix.inputs.audio.decoding import open_bytes
from speechmix.inputs.clips.corpus_row import RejectedRow
from speechmix.inputs.corpora.corpus_reading import read_corpus


@pytest.fixture(scope="module")
def encoded() -> bytes:
    file = io.BytesIO()
    soundfile.write(file, np.sin(np.arange(16_000) / 20) / 4, 16_000, format="WAV")
    return file.getvalue()


def saved(folder, rows: list[dict], **splits) -> None:
    data = datasets.Dataset.from_list(rows).cast_column("audio", datasets.Audio(decode=False))
    (datasets.DatasetDict(dict.fromkeys(splits, data)) if splits else data).save_to_disk(folder)


def test_a_folder_with_its_recordings_inside(tmp_path, encoded):
    rows = [
        {"audio": {"bytes": encoded, "path": "x/a.wav"}, "sentence": text, "age": 30}
        for text in ("Le livre.", "")
    ]
    saved(tmp_path / "data", rows)
    good, bad = read_corpus(tmp_path / "data")
    assert (good.name, good.text, good.audio, good.meta) == ("a", "Le livre.", None, {"age": "30"})
    with open_bytes(good.root / good.path) as file:  # not copied, and not read until now
        assert file.read() == encoded
    assert bad == RejectedRow("a-2", "empty sentence", "expected a sentence, found none")


@pytest.mark.parametrize("kind", ["saved", "parquet"])
def test_questions_with_lists_of_options(tmp_path, encoded, kind):
    """A set of questions about recordings: lists of texts or whole numbers are kept, vectors are not."""
    rows = [
        {
            "audio": {"bytes": encoded, "path": f"{name}.wav"},
            "question": "Who speaks?",
            "answer": "l'élève",
            "choices": choices,
            "vector": [0.5, 1.0],
            "counts": [1, 2],
        }
        for name, choices in (("a", ["l'élève", "a|b"]), ("b", None), ("c", []))
    ]
    folder = tmp_path / "data"
    if kind == "saved":
        saved(folder, rows)
    else:
        folder.mkdir()
        data = datasets.Dataset.from_list(rows).cast_column("audio", datasets.Audio(decode=False))
        data.to_parquet(folder / "train.parquet")
    items = read_listening_items(folder)
    assert [item.options for item in items] == [("l'élève", "a|b"), (), ()]
    assert {item.answer for item in items} == {"l'élève"}
    assert "vector" not in items[0].clip.meta
    assert items[0].clip.meta["counts"] == "[1, 2]"
    assert items[2].clip.duration == 1


@pytest.mark.parametrize(
    ("name", "content"),
    [("state.json", "{}"), ("state.json", "3"), ("dataset_info.json", "[true]")],
)
def test_a_damaged_folder_is_named(tmp_path, encoded, name, content):
    saved(
        tmp_path / "data", [{"audio": {"bytes": encoded, "path": "a.wav"}, "sentence": "Le livre."}]
    )
    (tmp_path / "data" / name).write_text(content)
    with pytest.raises(InputError, match="cannot load the data set"):
        list(read_corpus(tmp_path / "data"))


def test_splits(tmp_path, encoded):
    saved(
        tmp_path / "data",
        [{"audio": {"bytes": encoded, "path": "a.wav"}, "text": "Le livre."}],
        train=1,
        test=1,
    )
    assert len(list(read_corpus(tmp_path / "data", split="test"))) == 1
    with pytest.raises(InputError, match="one of the splits train, test"):
        list(read_corpus(tmp_path / "data"))


def test_a_set_without_text_is_an_error(tmp_path, encoded):
    saved(tmp_path / "data", [{"audio": {"bytes": encoded, "path": "a.wav"}, "label": 1}])
    with pytest.raises(
        InputError,
        match=r"columns audio and one of sentence, .*found audio \(.*\), label \(int64\): name them",
    ):
        list(read_corpus(tmp_path / "data"))


def annotated(encoded: bytes, **changes) -> dict:
    words = ["elle", "a", "vu", "les", "livres", "et", "les", "livres"]
    intervals = [
        {"start": i / 10, "end": (i + 1) / 10, "word": word} for i, word in enumerate(words)
    ]
    row = {
        "audio": {"bytes": encoded, "path": "a.wav"},
        "transcription": "Elle a vu les livres et les livres.",
        "template": "det_noun",
        "cue_word": "les",
        "target_word": "livres",
        "target_word_2": None,
        "alignment": {"id": 3, "total_start": 0.0, "total_end": 1.0, "intervals": intervals},
        "label_number": "Number_plur",
    }
    return {**row, **changes}


def test_the_papers_annotated_set_keeps_its_words_and_pairs(tmp_path, encoded):
    exact = {"cue_indices": {"enc": [3]}, "target_indices": {"enc": [4]}}
    saved(tmp_path / "nearest", [annotated(encoded)])
    saved(tmp_path / "exact", [annotated(encoded, **exact)])
    saved(tmp_path / "gone", [annotated(encoded, cue_word="la")])
    (row,) = read_corpus(tmp_path / "nearest")
    assert [word.text for word in row.words][3:5] == ["les", "livres"]
    assert row.pairs == (
        {"cue": 6, "target": 7, "template": "det_noun", "number": "p"},
    )  # the published rule
    (row,) = read_corpus(tmp_path / "exact")
    assert (row.pairs[0]["cue"], row.pairs[0]["target"]) == (3, 4)
    (row,) = read_corpus(tmp_path / "gone")
    assert row.reason_kind == "pair not found"


def test_an_annotated_row_of_another_kind_is_rejected(tmp_path, encoded):
    no_times = {"intervals": [{"word": "les"}]}
    outside = {"cue_indices": {"enc": [3]}, "target_indices": {"enc": [40]}}
    for name, changes, why in (
        ("text", {"alignment": "les livres"}, "unreadable row"),
        ("no times", {"alignment": no_times}, "unreadable row"),
        ("outside", outside, "pair not found"),
    ):
        saved(tmp_path / name, [annotated(encoded, **changes)])
        (row,) = read_corpus(tmp_path / name)
        assert row.reason_kind == why


def test_determiner_noun_and_verb_are_two_pairs(tmp_path, encoded):
    """le club et Alexander se séparent: the label is the verb's number; the noun has its own."""
    words = ["le", "club", "et", "Alexander", "se", "séparent"]
    intervals = [
        {"start": i / 10, "end": (i + 1) / 10, "word": word} for i, word in enumerate(words)
    ]
    told = {
        "cue_word": "le",
        "target_word": "club",
        "target_word_2": "séparent",
        "template": "det_noun_verb",
    }
    alignment = {"id": 3, "total_start": 0.0, "total_end": 1.0, "intervals": intervals}
    saved(
        tmp_path / "data",
        [annotated(encoded, **told, transcription=" ".join(words), alignment=alignment)],
    )
    (found,) = read_corpus(tmp_path / "data")
    assert [(p["cue"], p["target"], p["number"]) for p in found.pairs] == [
        (0, 1, "s"),
        ((0, 1), 5, "p"),
    ]


def test_a_row_that_names_a_file_outside_of_its_folder_is_refused(tmp_path, encoded):
    (tmp_path / "secret.wav").write_bytes(encoded)
    (tmp_path / "other.wav").write_bytes(encoded)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "own.wav").write_bytes(encoded)
    (tmp_path / "data" / "too.wav").write_bytes(encoded)
    names = [
        str(tmp_path / "secret.wav"),
        "../other.wav",
        str(tmp_path / "data" / "own.wav"),
        "too.wav",
    ]
    rows = [{"audio": {"bytes": None, "path": name}, "sentence": "Le livre."} for name in names]
    schema = datasets.Features(
        audio=datasets.Audio(decode=False), sentence=datasets.Value("string")
    ).arrow_schema
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), tmp_path / "data" / "train.parquet")
    found = list(read_corpus(tmp_path / "data"))
    assert [isinstance(row, RejectedRow) for row in found] == [True, True, False, False]
    assert {row.reason_kind for row in found[:2]} == {"unsafe path"}
    assert "leads out of the folder" in found[0].reason
    assert "--allow-outside" in found[0].reason
    allowed = list(read_corpus(tmp_path / "data", allow_outside=True))
    assert not any(isinstance(row, RejectedRow) for row in allowed)
    for row in allowed:
        with open_bytes(row.root / row.path) as file:
            assert file.read() == encoded


class Stream:
    """A data set that is streamed, whose connection breaks."""

    def __init__(self, rows, error=None):
        self.rows, self.error = rows, error
        self.features = {
            "audio": datasets.Audio(decode=False),
            "sentence": datasets.Value("string"),
        }

    def cast_column(self, *column):
        return self

    def __iter__(self):
        yield from ({"audio": dict(row), "sentence": "Le livre."} for row in self.rows)
        if self.error is not None:
            raise self.error


def streamed(monkeypatch, stream):
    monkeypatch.setattr(datasets, "load_dataset", lambda *args, **options: stream)
    monkeypatch.chdir("/")
    return read_corpus("someone/speech", allow_outside=True)


def test_a_row_of_the_hub_names_no_file_of_this_machine(tmp_path, encoded, monkeypatch):
    (tmp_path / "secret.wav").write_bytes(encoded)
    names = [
        str(tmp_path / "secret.wav"),
        str(tmp_path / "secret.wav")[1:],
        f"file://{tmp_path}/secret.wav",
    ]
    rows = [{"bytes": None, "path": name} for name in names]
    *refused, good = streamed(monkeypatch, Stream([*rows, {"bytes": encoded, "path": names[0]}]))
    assert [row.reason_kind for row in refused] == ["unsafe path"] * 3
    assert good.audio == encoded


@pytest.mark.parametrize(
    "error",
    [
        OSError("connection reset"),
        TimeoutError("timed out"),
        "requests",
        "httpx",
    ],
)
def test_a_stream_that_breaks_off_says_what_to_do(encoded, monkeypatch, error):
    if isinstance(error, str):
        module = pytest.importorskip(error)
        error = (
            module.ConnectError("refused")
            if error == "httpx"
            else module.exceptions.ChunkedEncodingError("broken")
        )
    rows = streamed(monkeypatch, Stream([{"bytes": encoded, "path": "a.wav"}] * 2, error))
    assert len([next(rows), next(rows)]) == 2
    with pytest.raises(
        InputError, match=r"someone/speech broke off behind row 2 \(\w+: .*the same command goes on"
    ):
        next(rows)
