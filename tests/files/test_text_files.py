"""Tables as CSV: nothing in them computes, and everything comes back."""

from __future__ import annotations

import csv

import pandas as pd
import pytest

from speechmix.errors import InputError
from speechmix.files.text_files import read_csv, write_csv

COMPUTED = [
    "=1+1",
    "+cmd|' /C calc'!A0",
    "@SUM(A1)",
    "-cmd",
    "-2+3",
    "- 1",
    "\t=1",
    "\r=1",
    "'=1",
    "''=1",
    "-1e5x",
]
PLAIN = [
    "les livres",
    "-0.5",
    "-12",
    "-3,5",
    "-1e-05",
    "-",
    "'",
    "aujourd'hui",
    '"a"',
    "a,b",
    "a\nb",
    "a\rb",
    "a\r\nb",
    "é",
    "",
]


def test_cells_that_a_spreadsheet_would_compute_are_text_and_come_back(tmp_path):
    cells = [*COMPUTED, *PLAIN]
    table = pd.DataFrame({"=name": cells, "number": [-1.5] * len(cells)})
    write_csv(table, tmp_path / "t.csv")
    with (tmp_path / "t.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["'=name", "number"]
    assert [row[0] for row in rows[1:]] == [*(f"'{cell}" for cell in COMPUTED), *PLAIN]
    assert {row[1] for row in rows[1:]} == {"-1.5"}
    back = read_csv(tmp_path / "t.csv")
    assert back["=name"].tolist() == cells
    assert list(tmp_path.iterdir()) == [tmp_path / "t.csv"]


def test_what_no_table_may_hold_does_not_make_it_unreadable(tmp_path):
    table = pd.DataFrame({"a": ["x\0y", "\ud800"]}, dtype=object)
    write_csv(table, tmp_path / "t.csv")
    assert read_csv(tmp_path / "t.csv")["a"].tolist() == ["x\ufffdy", "\\ud800"]


@pytest.mark.parametrize("content", [b"", b"\xff\x00", b"a,b\n1,2,3,4\n5", b"\0" * 99, b'a\n"x'])
def test_a_damaged_table_is_one_error(tmp_path, content):
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(InputError, match=r"t\.csv"):
        read_csv(tmp_path / "t.csv")


def test_a_table_is_written_whole_or_not_at_all(tmp_path):
    write_csv(pd.DataFrame({"a": ["old"]}), tmp_path / "t.csv")

    class Unwritable:
        def __str__(self):
            raise RuntimeError("disk full")

    with pytest.raises(RuntimeError, match="disk full"):
        write_csv(pd.DataFrame({"a": ["new", Unwritable()]}), tmp_path / "t.csv")
    assert read_csv(tmp_path / "t.csv")["a"].tolist() == ["old"]
    assert len(list(tmp_path.iterdir())) == 1
