"""Names of the files of a page, where columns of a manifest or of a run hold what no file may be
called."""

from __future__ import annotations

import json

import pandas as pd
import pyarrow.parquet as pq
import pytest

from speechmix.errors import InputError
from speechmix.files.names import distinct_file_names, path_within, safe_name
from speechmix.reporting.pages.html_page import side_suffixes
from speechmix.reporting.pages.run_page import report
from speechmix.runs.results.clip_result_files import RESULTS, open_part
from speechmix.runs.results.open_run import open_run
from speechmix.runs.results.score_files import partition_folder
from tests.reports.synthetic_runs import synthetic_run

HOSTILE = ("x/../../..", "..", "a" * 300, "a/b", "a_b", "A_B", "é\0", "all clips")


@pytest.mark.long
def test_figures_of_a_hostile_column_stay_in_the_run(tmp_path):
    folder = synthetic_run(tmp_path / "deep" / "er" / "run", clips=8)
    clips = pd.read_csv(folder / "clips.csv", keep_default_na=False)
    clips["side"] = [("x/../../..", "x_.._..")[number % 2] for number in range(8)]
    clips.to_csv(folder / "clips.csv", index=False)
    victim = tmp_path / "deep" / "_cue.png"
    victim.write_text("mine")
    report(folder)
    outside = {path for path in tmp_path.rglob("*") if path.is_file()} - {*folder.rglob("*")}
    assert outside == {victim}
    assert victim.read_text() == "mine"
    assert (
        len(list(folder.glob("contribution_and_need*.png"))) == 2
    )  # neither side overwrites the other


def test_names_of_sides_are_safe_short_and_distinct():
    suffixes = side_suffixes([*HOSTILE, "all", ""])
    files = [f"contribution_and_need{suffix}.png" for suffix in suffixes.values()]
    assert len({name.casefold() for name in files}) == len(HOSTILE) + 2
    assert all("/" not in name and "\0" not in name and len(name.encode()) <= 255 for name in files)
    assert suffixes["all"] == ""


@pytest.mark.parametrize("name", [*HOSTILE, "", ".", "あ" * 300, "a\\b", "C:\\x"])
def test_a_safe_name_is_one_part_of_a_path(name):
    safe = safe_name(name)
    assert safe not in ("", ".", "..")
    assert not {"/", "\\", "\0", ":"} & {*safe}
    assert len(safe.encode()) <= 200


def test_names_that_one_file_system_takes_for_one_differ():
    names = distinct_file_names(HOSTILE)
    assert len({name.casefold() for name in names.values()}) == len(HOSTILE)


def test_a_long_model_name_makes_a_folder_that_a_file_system_takes():
    folder = partition_folder("é" * 300, "trained", "attention", "encoder")
    assert all(len(part.encode()) <= 255 for part in folder.parts)
    assert folder != partition_folder("é" * 301, "trained", "attention", "encoder")


@pytest.mark.parametrize("name", ["../../x", "/etc/x", "a/../../x", "", "C:/x", "..\\x"])
def test_a_path_that_leads_out_of_a_run_is_refused(tmp_path, name):
    with pytest.raises(InputError, match="below"):
        path_within(tmp_path, name, where="run.json")


def test_a_part_file_cannot_name_files_outside_the_run(tmp_path):
    told = {"owner": {}, "shard": "1-of-1", "scores": {"../../victim": [1, "0"]}, "maps": {}}
    schema = RESULTS.with_metadata({b"speechmix": json.dumps(told)})
    pq.write_table(schema.empty_table(), tmp_path / "a.parquet")
    with pytest.raises(InputError, match="victim"):
        open_part(tmp_path / "a.parquet")


def test_a_run_cannot_name_part_files_outside_itself(tmp_path):
    folder = synthetic_run(tmp_path / "run", clips=2)
    description = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(
        json.dumps({**description, "parts": {"../x.parquet": [1, "0"]}})
    )
    with pytest.raises(InputError, match="below"):
        _ = open_run(folder).parts
