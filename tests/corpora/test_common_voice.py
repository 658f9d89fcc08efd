"""Reading a release and manifests of one's own: every layout, every kind of bad row, and no more
memory for more rows."""

from __future__ import annotations

import os
import random
import sys
import tracemalloc
from collections import Counter

import pytest

from speechmix.errors import InputError
from speechmix.inputs.clips.corpus_row import RejectedRow, Row
from speechmix.inputs.clips.manifests import read_manifest_rows
from speechmix.inputs.corpora.corpus_reading import read_corpus, read_release
from tests.corpora.miniature import COLUMNS, row


@pytest.fixture
def release(tmp_path):
    """An empty release with three clips."""
    folder = tmp_path / "cv-corpus-1" / "fr"
    (folder / "clips").mkdir(parents=True)
    for name in ("a", "b", "c"):
        (folder / "clips" / f"{name}.mp3").write_bytes(b"not read here")
    return folder


def write(
    release, *lines: str | bytes, table: str = "test.tsv", header: str = COLUMNS.replace(" ", "\t")
):
    encoded = [line if isinstance(line, bytes) else line.encode() for line in (header, *lines)]
    (release / table).write_bytes(b"\n".join(encoded) + b"\n")
    return release / table


def reasons(rows) -> dict[str, str]:
    return {row.name: row.reason_kind if isinstance(row, RejectedRow) else "good" for row in rows}


def test_a_release_as_it_is(release):
    write(release, row("a", "Les livres.", age="teens"), row("b", '"Les livres, dit-elle.'))
    first, second = read_release(release)
    assert first == Row("a", "Les livres.", release / "clips", "a.mp3", meta=first.meta)
    assert first.meta == {"client_id": "a1b2", "up_votes": "2", "age": "teens", "locale": "fr"}
    assert second.text == '"Les livres, dit-elle.'


def test_only_path_and_sentence_are_needed_in_any_order_and_case(release):
    write(release, "les livres\ta.mp3", "le livre\tb", header="\ufeffSentence\tPath")
    assert [(row.text, row.path) for row in read_release(release)] == [
        ("les livres", "a.mp3"),
        ("le livre", "b.mp3"),
    ]


@pytest.mark.parametrize("depth", [".", "..", "../.."])
def test_the_folders_above_are_understood(release, depth):
    write(release, row("a", "Les livres."))
    (release / "clip_durations.tsv").write_text("clip\tduration[ms]\na.mp3\t900\n")
    assert [row.name for row in read_corpus((release / depth).resolve())] == ["a"]


def test_which_table_is_read(release):
    for name, clip in (("test", "a"), ("train", "b"), ("invalidated", "c")):
        write(release, row(clip, "Les livres."), table=f"{name}.tsv")
    assert [row.name for row in read_corpus(release)] == ["a", "b"]
    assert [row.name for row in read_corpus(release, split="invalidated")] == ["c"]
    assert [row.name for row in read_corpus(release / "train.tsv")] == ["b"]
    write(release, row("c", "Les livres."), table="validated.tsv")
    assert [row.name for row in read_corpus(release)] == ["c"]
    with pytest.raises(
        InputError, match="no table 'dev': it has invalidated, test, train, validated"
    ):
        list(read_corpus(release, split="dev"))


def test_two_languages_and_no_release_are_errors(release, tmp_path):
    write(release, row("a", "Les livres."))
    other = release.parent / "de"
    other.mkdir()
    write(other, row("a", "Die Bücher."))
    with pytest.raises(InputError, match="holds the releases de, fr"):
        list(read_corpus(release.parent))
    with pytest.raises(InputError, match="expected a Common Voice release"):
        list(read_corpus(release / "clips"))
    with pytest.raises(InputError, match="no such corpus"):
        list(read_corpus(tmp_path / "gone.tsv"))


def test_adversarial_rows_are_named_and_nothing_else_happens(release, tmp_path):
    (tmp_path / "secret.mp3").write_bytes(b"secret")
    os.symlink(tmp_path / "secret.mp3", release / "clips" / "link.mp3")
    os.symlink(release / "clips" / "loop.mp3", release / "clips" / "loop.mp3")
    before = sorted(tmp_path.rglob("*"))
    write(
        release,
        row("up", "Les livres.", path="../../../secret.mp3"),
        row("absolute", "Les livres.", path=str(tmp_path / "secret.mp3")),
        row("link", "Les livres."),
        row("loop", "Les livres."),
        row("null", "Les livres.", path="nu\0ll.mp3"),
        row("x", "Les livres.", path="x" * 5000 + ".mp3"),
        row("megabyte", "les livres " * 100_000),
        row("long", "les livres " * 100),
        row("bell", "Les \a livres."),
        row("escape", "Les \x1b[2J livres."),
        row("latin", "L'été.").encode("latin-1"),
        row("cells", "Les livres.") + "\tmore" * 3,
        row("blank", "   "),
        "client\t",
        "",
        row("gone", "Les livres."),
        row("a", "Les livres.") + "\r",
        row("a", "Les livres."),
    )
    found = list(read_corpus(release))
    assert [row.name for row in found if isinstance(row, Row)] == ["a"]
    assert Counter(row.reason_kind for row in found if isinstance(row, RejectedRow)) == {
        "unsafe path": 4,
        "missing clip": 3,
        "too long": 2,
        "control characters": 2,
        "invalid UTF-8": 1,
        "unreadable row": 2,
        "empty sentence": 1,
        "duplicate": 1,
    }
    known = reasons(found)
    assert known["secret"] == "unsafe path"
    assert known["latin"] == "invalid UTF-8"
    assert all(len(row.reason) < 700 for row in found if isinstance(row, RejectedRow))
    assert all(row.name.isprintable() and "/" not in row.name for row in found)
    assert sorted(tmp_path.rglob("*")) == sorted([*before, release / "test.tsv"])


BITS = [
    b"a.mp3",
    b"../a.mp3",
    b"/etc/passwd",
    b"\t",
    b"\n",
    b"les livres",
    b"\xff",
    b"\0",
    b'"',
    b"\xe2\x80\xa8",
    b"\r",
    b"..",
]
BITS += [
    b"\xed\xa0\x80",
    b"b.mp3\tles livres\n",
    b'{"path":"a.mp3","text":"le livre"}\n',
    b'"a.mp3","le livre"\n',
    b"x" * 300,
]


@pytest.mark.parametrize("header", ["test.tsv path\tsentence", "test.csv path,text", "test.jsonl "])
def test_any_bytes_at_all_are_rows_or_reasons(release, header):
    name, _, columns = header.partition(" ")
    rng = random.Random(0)
    for _ in range(40):
        body = b"".join(rng.choice(BITS) for _ in range(rng.randrange(100)))
        (release / name).write_bytes(columns.encode() + b"\n" + body)
        for found in read_manifest_rows(release / name, sentences=True):
            assert (
                found.reason_kind
                if isinstance(found, RejectedRow)
                else (found.root / found.path).is_file()
            )


def test_a_table_in_another_encoding_is_read_or_an_error(release):
    table, text = release / "test.tsv", "path\tsentence\na.mp3\tété"
    table.write_bytes(text.encode("utf-16"))
    assert [row.text for row in read_corpus(table)] == ["été"]
    for encoded, message in (
        (text.encode("utf-16-le"), "null characters"),
        (
            text.replace("path", "é").encode("latin-1"),
            "expected UTF-8 or UTF-16 text, found byte 0xe9",
        ),
        (text.encode("utf-16")[:-1], "expected UTF-16 text"),
        (text.replace("path", "file").encode(), "expected a first row with the column path"),
    ):
        table.write_bytes(encoded)
        with pytest.raises(InputError, match=message):
            list(read_manifest_rows(table, sentences=True))


def test_two_recordings_of_one_name_are_told_apart(release):
    (release / "clips" / "more").mkdir()
    (release / "clips" / "more" / "A.mp3").write_bytes(b"")
    write(release, row("a", "Les livres."), row("b", "Le livre.", path="more/A.mp3"))
    first, second = (row.name for row in read_corpus(release))
    assert first == "a"
    assert second.startswith("A-")


def many_rows(release, rows):
    with (release / "test.tsv").open("w", encoding="utf-8") as file:
        file.write("client_id\tpath\tsentence\n")
        file.writelines(f"c{i}\tcv_{i}.mp3\tLes livres de la maison {i}.\n" for i in range(rows))


@pytest.mark.long
def test_a_hundred_thousand_rows_hold_no_more_objects_than_a_thousand(release):
    many_rows(release, 100_000)
    held = {}
    for number, _ in enumerate(read_corpus(release), start=1):
        if number in (1_000, 100_000):
            held[number] = sys.getallocatedblocks()
    assert abs(held[100_000] - held[1_000]) < 100


@pytest.mark.long
def test_ten_times_the_rows_need_no_more_memory(release):
    peaks = {}
    for rows in (500, 500, 5_000):  # the first for what is imported and compiled once
        many_rows(release, rows)
        tracemalloc.start()
        assert sum(1 for _ in read_corpus(release)) == rows
        peaks[rows] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peaks[5_000] < peaks[500] + 5_000


def test_a_sample_depends_on_names_and_not_on_order(release):
    lines = [f"cv_{i}.mp3\tLes livres." for i in range(2_000)]
    write(release, *lines, header="path\tsentence")
    some = {row.name for row in read_corpus(release, sample=0.1, seed=1)}
    write(release, *reversed(lines), header="path\tsentence")
    assert some == {row.name for row in read_corpus(release, sample=0.1, seed=1)}
    assert 150 < len(some) < 250
    assert some != {row.name for row in read_corpus(release, sample=0.1, seed=2)}
    with pytest.raises(InputError, match="share of rows"):
        read_corpus(release, sample=0)


MANIFESTS = {
    "m.tsv": 'path\ttext\twords\tcue\ttarget\tfoil\tspeaker\na.wav\t"les '
    "livres\tw.tsv\tles\tlivres\tlivre\tanne\n",
    "m.csv": 'path,text,words,cue,target,foil,speaker\na.wav,"""les '
    'livres",w.tsv,les,livres,livre,anne\n',
    "m.jsonl": '{"path": "a.wav", "text": "\\"les livres", "words": [["les", 0.1, 0.3], ["livres", '
    "0.3, 0.9]], "
    '"cue": "les", "target": "livres", "foil": "livre", "speaker": "anne"}\n',
}


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_manifest_of_ones_own(tmp_path, name):
    (tmp_path / "a.wav").write_bytes(b"")
    (tmp_path / "w.tsv").write_text("word\tstart\tend\nles\t0.1\t0.3\nlivres\t0.3\t0.9\n")
    (tmp_path / name).write_text(MANIFESTS[name], encoding="utf-8")
    (found,) = read_corpus(tmp_path / name)
    assert (found.name, found.text, found.path, found.root) == (
        "a",
        '"les livres',
        "a.wav",
        tmp_path,
    )
    assert [word.text for word in found.words] == ["les", "livres"]
    assert found.pairs == ({"cue": "les", "target": "livres", "foil": "livre"},)
    assert found.meta == {"speaker": "anne"}


def test_bad_rows_of_a_manifest(tmp_path):
    (tmp_path / "a.wav").write_bytes(b"")
    lines = [
        '{"path": "a.wav", "text": 5}',
        "[1]",
        "{",
        '{"path": "a.wav", "text": "le\\ud800"}',
        "[" * 50_000,
    ]
    lines += [
        '{"path": "a.wav", "text": "le livre", "words": "../w.tsv"}',
        '{"path": "../a.wav", "text": "le livre"}',
    ]
    (tmp_path / "m.jsonl").write_text("\n".join(lines))
    why = [row.reason_kind for row in read_corpus(tmp_path / "m.jsonl")]
    assert why == [
        "empty sentence",
        *["unreadable row"] * 2,
        "invalid UTF-8",
        *["unreadable row"],
        "unreadable words",
        "unsafe path",
    ]


def test_a_quoted_line_end_in_a_csv_is_a_control_character(tmp_path):
    (tmp_path / "a.wav").write_bytes(b"")
    (tmp_path / "m.csv").write_text('path,text\na.wav,"les\nlivres"\na.wav,les livres\n')
    assert [getattr(row, "reason_kind", "good") for row in read_corpus(tmp_path / "m.csv")] == [
        "control characters",
        "good",
    ]
