"""One flipped bit anywhere in a run's folder: what is read is right, or it is an error of this
package; never wrong data."""

from __future__ import annotations

import json
import os
import shutil
import warnings

import numpy as np
import pandas as pd
import pytest

import speechmix
from speechmix.errors import InputError, SpeechmixError
from speechmix.files.json_files import read_checked_json, write_checked_json
from speechmix.files.text_files import read_csv, read_text, write_csv
from speechmix.files.whole_files import DIGESTS, record_digests_in, write_json, write_text
from speechmix.inputs import bundled
from speechmix.inputs.clips.clip import Clip
from speechmix.runs.results.open_run import open_run
from speechmix.runs.results.stored_maps import read_clip_maps
from speechmix.runs.score_clips import score_clips

FLIPS_PER_FILE = 10
# What the package does not read back: tables for spreadsheets, and what a resumed run alone looks
# at.
UNREAD = ("results/_clips/", "results/.shards/", "cue_contribution.csv", "ablation.csv", "words/")


def scored(folder, **options):
    clip = bundled.clips()[0]
    model = speechmix.load(str(bundled.models()["tiny-french-ctc"]), device="cpu")
    silent = Clip.from_array(np.zeros(10, np.float32), 16_000, name="short")
    chosen = {"measures": ["attention"], "figures": 0, "progress": False, "report": str, **options}
    score_clips([model], [clip, silent], folder, **chosen)
    write_json(folder / "report.json", {"title": "A run", "notes": ["SYNTHETIC"]})
    return folder


@pytest.fixture(scope="module")
def of_words(tmp_path_factory):
    return scored(tmp_path_factory.mktemp("flipped") / "run", ablation=True)


@pytest.fixture(scope="module")
def of_frames(tmp_path_factory):
    return scored(tmp_path_factory.mktemp("flipped") / "run", units="frame")


def all_of(folder):
    """Everything that a run says, to the last bit."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = open_run(folder)
    tables = [
        run.clips,
        run.contributions,
        run.ablation,
        run.transcripts,
        run.boundaries,
        run.times,
    ]
    said = [table.to_csv() for table in tables] + [
        json.dumps(run.description, sort_keys=True),
        str(run.skipped),
        run.done,
    ]
    if any(part.scores for part in run.parts):
        cells = run.scores.to_table().sort_by(
            [(name, "ascending") for name in ("layer", "target", "source")]
        )
        found = run.scores.to_table(filter=speechmix_filter(run)).num_rows
        said += [cells.to_pandas().to_csv(), found]
    for name in run.clips["clip"]:
        unreadable = []
        maps = read_clip_maps(run, name, unreadable=unreadable)
        if unreadable:
            raise InputError(unreadable[0])
        for model, by_place in maps.items():
            for place, one in by_place.items():
                labels = (one.targets, one.sources, one.layers, one.provenance)
                said.append((model, place, np.asarray(one.scores).tobytes(), repr(labels)))
    return said


def speechmix_filter(run):
    """A filter that the statistics in a footer answer."""
    import pyarrow.dataset as ds

    return (ds.field("layer") == 1) & (
        ds.field("fingerprint") == str(run.clips["fingerprint"].iloc[0])
    )


def files_of(folder):
    paths = [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(".lock")
    ]
    return [path for path in paths if not path.relative_to(folder).as_posix().startswith(UNREAD)]


def positions(size, count):
    """The first and last bytes, where formats say what follows, and others evenly between."""
    edge = count // 4
    between = np.linspace(0, size - 1, count - 2 * edge).round().astype(int).tolist()
    return sorted(
        {
            position
            for position in (*range(edge), *between, *range(size - edge, size))
            if 0 <= position < size
        }
    )


def flip_bits(folder, count):
    expected = all_of(folder)
    wrong, refused = [], 0
    for path in files_of(folder):
        whole = path.read_bytes()
        for position in positions(len(whole), count):
            damaged = bytearray(whole)
            damaged[position] ^= 1 << (position % 8)
            path.write_bytes(damaged)
            try:
                found = all_of(folder)
            except SpeechmixError:
                refused += 1
            except Exception as error:
                wrong.append(f"{path.relative_to(folder)} at {position}: {error!r:.200}")
            else:
                if found != expected:
                    wrong.append(f"{path.relative_to(folder)} at {position}: other data")
        path.write_bytes(whole)
    assert not wrong, f"{len(wrong)} flipped bits were not noticed:\n" + "\n".join(wrong[:20])
    assert all_of(folder) == expected
    return refused


@pytest.mark.long
def test_a_flipped_bit_in_a_run_of_words(of_words):
    assert flip_bits(of_words, FLIPS_PER_FILE) > FLIPS_PER_FILE * 5


def test_a_flipped_bit_in_a_run_of_frames(of_frames):
    assert flip_bits(of_frames, FLIPS_PER_FILE) > FLIPS_PER_FILE * 3


@pytest.mark.long
def test_many_flipped_bits(of_words, of_frames):
    for folder in (of_words, of_frames):
        flip_bits(folder, 600)


def test_a_run_of_before_has_no_digests_and_opens(of_words, tmp_path):
    folder = shutil.copytree(of_words, tmp_path / "run")
    shutil.rmtree(folder / DIGESTS)
    assert all_of(folder) == all_of(of_words)


def test_an_error_names_the_file_and_what_to_do(of_words, tmp_path):
    folder = shutil.copytree(of_words, tmp_path / "run")
    table = pd.read_csv(folder / "clips.csv")
    table.assign(seconds=table["seconds"] * 2).to_csv(folder / "clips.csv", index=False)
    with pytest.raises(
        InputError, match=r"clips\.csv is damaged.*Score the clips again.*delete .*clips\.csv\.json"
    ):
        open_run(folder)
    (folder / DIGESTS / "clips.csv.json").unlink()
    assert len(open_run(folder).clips) == 1


@pytest.mark.parametrize("name", ["clips.csv", "skipped.csv"])
def test_scoring_again_mends_a_damaged_record_of_a_table(of_words, tmp_path, name):
    folder = shutil.copytree(of_words, tmp_path / "run")
    (folder / DIGESTS / f"{name}.json").write_text("[]", encoding="ascii")
    with pytest.raises(InputError, match="Score the clips again"):
        open_run(folder)
    run, expected = open_run(scored(folder, ablation=True)), open_run(of_words)
    assert run.clips.equals(expected.clips)
    assert run.skipped == expected.skipped


@pytest.mark.parametrize("dies_at", [1, 2, 3])
def test_a_writer_that_dies_at_any_replacement_leaves_a_file_that_can_be_read(
    tmp_path, monkeypatch, dies_at
):
    record_digests_in(tmp_path)
    path, replace = tmp_path / "clips.csv", os.replace
    write_csv(pd.DataFrame({"clip": ["a"]}), path)
    count = 0

    def killed(*paths):
        nonlocal count
        count += 1
        if count == dies_at:
            raise KeyboardInterrupt
        replace(*paths)

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            write_csv(pd.DataFrame({"clip": ["b"]}), path)
    assert read_csv(path)["clip"].tolist() == (["a"] if dies_at < 3 else ["b"])
    write_csv(pd.DataFrame({"clip": ["c"]}), path)
    assert read_csv(path)["clip"].tolist() == ["c"]


def test_files_of_other_folders_have_no_digests(tmp_path):
    write_text(tmp_path / "a.json", "{}")
    (tmp_path / "a.json").write_text("[]")
    assert read_text(tmp_path / "a.json") == "[]"
    assert not (tmp_path / "results").exists()


def test_a_record_that_is_damaged_is_an_error(tmp_path):
    record_digests_in(tmp_path)
    write_text(tmp_path / "a.json", "{}")
    for content in (b"", b"[]", b"{", b'["x"]', b"[3]"):
        (tmp_path / DIGESTS / "a.json.json").write_bytes(content)
        with pytest.raises(InputError, match="damaged"):
            read_text(tmp_path / "a.json")


def test_a_checked_json_file(tmp_path):
    path = tmp_path / "marker.json"
    write_checked_json(path, {"done": 3, 5: (1, 2)})
    assert read_checked_json(path) == {"done": 3, "5": [1, 2]}
    path.write_text(path.read_text().replace("3", "4"))
    with pytest.raises(InputError, match=r"marker\.json is damaged"):
        read_checked_json(path)
