"""Counts of a study as tables: nothing in them computes, and they are shown as they were."""

from __future__ import annotations

from speechmix.files.text_files import read_csv
from speechmix.runs.journal.stage_journal import SkipItem, run_stage
from speechmix.studies.french.stage_counts import SelectionCounts, format_stage_counts, write_counts
from speechmix.studies.french.study_folder import PAIRS, WORDS


def test_reasons_that_a_spreadsheet_would_compute_are_text(tmp_path):
    def left_out(item):
        raise SkipItem("@SUM(A1) $x$ $", "-cmd")

    for name in (PAIRS, WORDS):
        run_stage(tmp_path / name, [("=1+1", None)], left_out, options={})
    write_counts(tmp_path / "examples", SelectionCounts(tmp_path, ["tiny"]))
    text = (tmp_path / "examples" / "dropped.csv").read_text()
    assert "mine,'=1+1,'@SUM(A1) $x$ $,'-cmd" in text
    assert read_csv(tmp_path / "examples" / "dropped.csv").loc[0, "name"] == "=1+1"
    assert "@SUM(A1)" in format_stage_counts(tmp_path / "examples")
    assert "'@SUM" not in format_stage_counts(tmp_path / "examples")
    assert {path.suffix for path in (tmp_path / "examples").iterdir()} == {".csv", ".png"}
