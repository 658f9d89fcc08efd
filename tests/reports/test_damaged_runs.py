"""Runs that were stopped, damaged, or made of hostile names: one clear error, or a page that says
what it left out."""

from __future__ import annotations

import errno
import json
import random
import shutil
from pathlib import Path

import pandas as pd
import pytest

import speechmix
from speechmix.errors import InputError, SpeechmixError
from speechmix.files.whole_files import LOCK
from speechmix.interfaces.cli import main
from speechmix.reporting.pages import run_page
from speechmix.reporting.pages.page_sections import PageSection
from speechmix.reporting.pages.run_page import report
from speechmix.runs.results.open_run import open_run
from speechmix.runs.results.run_folder import RunFolder
from speechmix.runs.results.stored_maps import read_clip_maps, read_stored_clip
from tests.reports.synthetic_runs import synthetic_run


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return synthetic_run(
        tmp_path_factory.mktemp("damaged") / "run", clips=4, layers=2, measures=("value_zeroing",)
    )


@pytest.fixture
def folder(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "run")


@pytest.fixture(scope="module")
def whole_without_cue(tmp_path_factory):
    return synthetic_run(
        tmp_path_factory.mktemp("cueless") / "run",
        clips=4,
        layers=2,
        measures=("value_zeroing",),
        cue=False,
    )


@pytest.fixture(scope="module")
def whole_without_maps(tmp_path_factory):
    return synthetic_run(
        tmp_path_factory.mktemp("mapless") / "run", clips=2, layers=2, mapped=0, cue=False
    )


@pytest.fixture
def mapless(whole_without_maps, tmp_path):
    """A run whose page has no figure at all, for tests of what is around them."""
    return shutil.copytree(whole_without_maps, tmp_path / "run")


@pytest.fixture
def cueless(whole_without_cue, tmp_path):
    """A run whose page is quickly made, as no figure shows a contribution of a cue."""
    return shutil.copytree(whole_without_cue, tmp_path / "run")


def changed(path, **values):
    content = json.loads(path.read_text()) | values
    path.write_text(json.dumps(content))


@pytest.mark.usefixtures("undrawn")
def test_what_a_dead_process_left_is_no_clip(cueless):
    folder = cueless
    done = open_run(folder).done
    part = RunFolder(folder).part_files()[0]
    shutil.copy(part, part.with_name(".unfinished-12-abc.parquet"))
    shutil.copytree(folder / "maps" / "synthetic", folder / "maps" / ".unfinished-12-def")
    assert open_run(folder).done == done == 8
    assert list(read_clip_maps(open_run(folder), "clip_0000")) == [
        ("synthetic", "trained", None),
        ("synthetic", "random", 0),
    ]
    assert "unfinished" not in report(folder).read_text()


@pytest.mark.usefixtures("undrawn")
def test_a_run_that_was_stopped_is_said_to_be(mapless):
    folder = mapless
    changed(folder / "run.json", state="running")
    with pytest.warns(UserWarning, match="was stopped before its end"):
        page = report(folder, notes=["SYNTHETIC"])
    assert "was stopped before its end" in page.read_text()
    assert json.loads((folder / "report.json").read_text())["notes"] == ["SYNTHETIC"]
    changed(folder / "run.json", state="complete")
    assert "was stopped before" not in report(folder).read_text()
    (folder / "clips.csv").unlink()
    with pytest.raises(InputError, match="stopped before its tables were written: start it again"):
        open_run(folder)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("run.json", b"{"),
        ("run.json", b"[]"),
        ("run.json", b"\xff\xfe\x00"),
        ("run.json", b'{"options": 3}'),
        ("run.json", b"[" * 100_000),
        ("report.json", b'{"title": 3}'),
        ("report.json", b'{"notes": [3]}'),
        ("report.json", b""),
        ("clips.csv", b""),
        ("clips.csv", b"clip,text\na,b\n"),
        ("clips.csv", b"clip,text,seconds\na,b,long\n"),
        ("clips.csv", b"clip,text,seconds\na,b,0\n"),
        ("clips.csv", b"clip,text,seconds\na,b,1\na,b,1\n"),
        ("skipped.csv", b'"'),
        ("cue_contribution.parquet", b"PAR1"),
        ("ablation.parquet", b""),
        ("transcripts.parquet", b"no table"),
        ("boundaries.parquet", b"PAR1....PAR1"),
    ],
)
def test_a_damaged_file_is_one_error_that_names_it(folder, name, content, capsys):
    (folder / name).write_bytes(content)
    before = sorted(path for path in folder.rglob("*") if path.name != LOCK)
    with pytest.raises(InputError, match=name.replace(".", r"\.")):
        report(folder)
    assert main(["report", str(folder)]) == 1
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
    assert sorted(path for path in folder.rglob("*") if path.name != LOCK) == before
    if not name.startswith("report"):
        with pytest.raises(InputError):
            speechmix.compare(folder)


@pytest.mark.parametrize(
    "column", ["clip", "model", "init", "seed", "layer", "stack", "measure", "rows", "contribution"]
)
def test_a_table_without_a_column_or_of_other_values(folder, column):
    table = pd.read_parquet(folder / "cue_contribution.parquet")
    table.drop(columns=column).to_parquet(folder / "cue_contribution.parquet")
    with pytest.raises(InputError, match=rf"cue_contribution.*{column}"):
        open_run(folder)
    if column != "seed":
        wrong = table.assign(**{column: "x" if column in ("layer", "contribution") else 1.5})
        wrong.to_parquet(folder / "cue_contribution.parquet")
        with pytest.raises(InputError, match=f"other values in the columns {column}"):
            open_run(folder)


@pytest.mark.usefixtures("undrawn")
def test_a_damaged_map_is_left_out_and_named(cueless):
    folder = cueless
    (shard,) = (folder / "maps" / "synthetic").glob("*.safetensors")
    content = shard.read_bytes()
    shard.write_bytes(content[: len(content) // 8] + bytes(len(content) - len(content) // 8))
    run = open_run(folder)
    with pytest.warns(UserWarning, match="1 maps of 'clip_0000' are left out"):
        left = read_clip_maps(run, "clip_0000")
    assert list(left) == [("synthetic", "random", 0)]
    text = report(folder).read_text()
    assert "maps of the clips above cannot be read" in text
    assert f"synthetic/{shard.name}" in text


@pytest.mark.usefixtures("undrawn", "no_study_figures")
@pytest.mark.parametrize(
    "wrong",
    [
        {"model": None},
        {"words": 3},
        {"cue": 99},
        *(
            pytest.param(wrong, marks=pytest.mark.long)
            for wrong in (
                {"init": 3},
                {"seed": "one"},
                {"words": [["a"]]},
                {"words": [["a", "b", "c"]]},
                {"words": [["b", 0.5, 0.1]]},
                {"target": "x"},
                {"text": ["a"]},
                {"foil": 1},
            )
        ),
    ],
)
def test_a_map_of_unknown_origin_is_left_out(tmp_path, wrong):
    folder = synthetic_run(
        tmp_path / "run",
        clips=2,
        layers=2,
        measures=("value_zeroing",),
        cue="cue" in wrong,
        provenance=wrong,
    )
    run, reasons = open_run(folder), []
    maps = read_clip_maps(run, "clip_0000", unreadable=reasons)
    assert list(maps) == [("synthetic", "random", 0)]
    assert len(reasons) == 1
    assert read_stored_clip(run, "clip_0000", maps).words is not None
    report(folder, chosen_clips=["clip_0000"])


@pytest.mark.usefixtures("undrawn")
@pytest.mark.long
def test_where_the_page_cannot_be_written(folder, tmp_path, capsys):
    with pytest.raises(InputError, match="is a folder: expected the name of a file"):
        report(folder, out=tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write the page"):
        report(folder, out=tmp_path / "file" / "page.html")
    with pytest.raises(InputError, match="cannot write the comparison"):
        speechmix.compare(folder).write(tmp_path / "file")
    assert main(["report", str(folder), "--out", str(tmp_path)]) == 1
    assert main(["report", str(folder), "--group", "nobody"]) == 1
    assert capsys.readouterr().err.count("\n") == 2


@pytest.mark.usefixtures("undrawn")
def test_a_page_that_cannot_be_made_leaves_the_one_of_before(mapless, monkeypatch):
    folder = mapless
    page = report(folder, title="first")
    monkeypatch.setattr("speechmix.reporting.pages.run_page.render_page", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        report(folder, title="second")
    assert "<title>first</title>" in page.read_text()
    assert not list(folder.rglob(".unfinished-*"))


def test_any_damage_at_all_is_an_error_of_this_package_or_a_page(whole, tmp_path):
    """Bytes of every table and description changed at random, a hundred times."""
    rng = random.Random(0)
    names = ("run.json", "clips.csv", "skipped.csv", "cue_contribution.parquet")
    for number in range(100):
        folder = tmp_path / str(number)
        folder.mkdir()
        for name in names:
            shutil.copy(whole / name, folder / name)
        path = folder / names[number % 4]
        content = bytearray(path.read_bytes())
        for _ in range(rng.choice((1, 3, 30))):
            content[rng.randrange(len(content))] = rng.randrange(256)
        path.write_bytes(content[: rng.choice((None, len(content) // 2))])
        try:
            run = open_run(folder)
            assert isinstance(run.description, dict)
            read_clip_maps(run, "clip_0000")
        except SpeechmixError:
            continue


HOSTILE = (
    "<img src=x onerror=alert(1)> [x](javascript:alert(1)) a|b `c` $\\frac$ </script> http://x.y"
)


@pytest.mark.long
def test_hostile_names_are_text_in_markdown_page_tables_and_figures(tmp_path):
    folder = synthetic_run(
        tmp_path / "run",
        clips=4,
        layers=2,
        measures=("value_zeroing", "attention"),
        models=(HOSTILE[:60],),
    )
    clips = pd.read_csv(folder / "clips.csv").assign(
        side=[HOSTILE, HOSTILE, "=1+1", "=1+1"], number=HOSTILE, template=HOSTILE
    )
    clips.to_csv(folder / "clips.csv", index=False)
    text = report(folder, title=HOSTILE, notes=[HOSTILE]).read_text(encoding="utf-8")
    assert "<img src=x" not in text
    assert "&lt;img src=x" in text
    assert text.count("</script>") == text.count("<script")
    for path in (
        folder / "headline.md",
        speechmix.compare(folder).write(tmp_path / "out").parent / "headline.md",
    ):
        table = path.read_text(encoding="utf-8")
        assert "<" not in table
        assert "[x](" not in table.replace("\\[x\\](", "")
        lines = table.strip().splitlines()
        assert len({line.replace("\\|", "").count("|") for line in lines}) == 1
    assert pd.read_csv(folder / "layers.csv").side.str.startswith("'=").any()


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(
    ("render", "reason"),
    [
        (lambda content: {}["rate"], "KeyError: &#39;rate&#39;"),
        (lambda content: [{"rate": 1}], "found dict"),
        (lambda content: "a text", "a section returns a list of items, found the text"),
        (lambda content: None, "TypeError"),
        (lambda content: [Path("nothing.csv").read_text()], "FileNotFoundError"),
    ],
)
def test_a_section_that_raises_is_left_out_and_recorded(mapless, monkeypatch, render, reason):
    folder = mapless
    further = [PageSection("Mine", render), PageSection("Behind", lambda content: ["It is here."])]
    monkeypatch.setattr(run_page, "SECTIONS", further)
    with pytest.warns(UserWarning, match="the section 'Mine' is left out: "):
        page = report(folder, notes=["SYNTHETIC"]).read_text()
    assert reason in page[page.index("This section is left out") :]
    assert "It is here." in page
    record = (folder / "page_errors.txt").read_text()
    assert record.startswith("Mine\nTraceback")
    monkeypatch.setattr(run_page, "SECTIONS", further[1:])
    assert "left out" not in report(folder).read_text()
    assert not (folder / "page_errors.txt").exists()


@pytest.mark.usefixtures("undrawn")
def test_a_full_disk_in_a_section_is_no_fault_of_the_section(mapless, monkeypatch):
    folder = mapless

    def fill(content):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(run_page, "SECTIONS", [PageSection("Mine", fill)])
    with pytest.raises(InputError, match="No space left"):
        report(folder)
