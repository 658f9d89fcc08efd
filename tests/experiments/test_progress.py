"""Progress where there is no terminal: lines, not too many; the same from workers."""

from __future__ import annotations

import pytest

from speechmix.runs import progress as progress_module
from speechmix.runs.executors.local_workers import progress_bar
from speechmix.runs.progress import ProgressLines, show_progress


@pytest.fixture
def clock(monkeypatch):
    seconds = [0.0]
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: seconds[0])
    return seconds


def test_a_stage_prints_a_line_every_ten_seconds_and_one_at_its_end(clock, capsys):
    lines = ProgressLines()
    for _ in show_progress(range(30), lines, "score m", total=30):
        clock[0] += 1
    printed = capsys.readouterr().err.splitlines()
    assert printed == [f"score m: {count} of 30 clips" for count in (10, 20, 30)]


def test_a_stage_with_nothing_to_do_prints_nothing(clock, capsys):
    assert list(show_progress([], ProgressLines(), "score m", total=0)) == []
    assert capsys.readouterr().err == ""


def test_workers_call_the_function_instead_of_drawing_a_bar(capsys):
    calls = []
    with progress_bar(8, 2, lambda *call: calls.append(call)) as show:
        show(3)
        show(8)
    assert calls == [("score, 2 workers", 3, 8), ("score, 2 workers", 8, 8)]
    assert capsys.readouterr().err == ""
