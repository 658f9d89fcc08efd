"""A run of another version is one error that says to compute it again: it is never read as if it
were of this one."""

from __future__ import annotations

import json

import pandas as pd
import pyarrow.parquet as pq
import pytest

from speechmix.errors import InputError
from speechmix.files.json_files import read_checked_json
from speechmix.runs.results.clip_result_files import open_part
from speechmix.runs.results.open_run import open_run
from speechmix.runs.results.run_folder import RunFolder
from tests.reports.synthetic_runs import synthetic_run

AGAIN = "of another version.*Score the clips again into this folder"


@pytest.fixture
def folder(tmp_path):
    return RunFolder(synthetic_run(tmp_path / "run", clips=1, layers=2, twins=1))


@pytest.mark.parametrize("entry", ["parts", "done"])
def test_a_description_without_part_files(folder, entry):
    description = json.loads(folder.description_path.read_text())
    del description[entry]
    folder.description_path.write_text(json.dumps(description))
    with pytest.raises(InputError, match=rf"run\.json is damaged or {AGAIN}"):
        open_run(folder.path)
    folder.description_path.write_text(json.dumps({**description, "state": "running"}))
    with pytest.raises(InputError, match="stopped before its tables were written: start it again"):
        open_run(folder.path)


def test_contributions_without_mixing_strengths(folder):
    path = folder.table_path("cue_contribution")
    pd.read_parquet(path).drop(columns="mixing_strength").to_parquet(path)
    with pytest.raises(InputError, match=rf"cue_contribution\.parquet is damaged or {AGAIN}"):
        open_run(folder.path)


def test_part_files_with_other_columns(folder):
    path = folder.part_files()[0]
    table = pq.read_table(path)
    pq.write_table(
        table.drop_columns(["content"]).replace_schema_metadata(table.schema.metadata), path
    )
    with pytest.raises(InputError, match=rf"{path.name} is damaged or {AGAIN}"):
        open_part(path)


def test_json_without_a_checksum(tmp_path):
    (tmp_path / "1-of-1.json").write_text('{"done": 3}')
    with pytest.raises(
        InputError, match=r"1-of-1\.json is damaged or of another version.*Start the run again"
    ):
        read_checked_json(tmp_path / "1-of-1.json")
