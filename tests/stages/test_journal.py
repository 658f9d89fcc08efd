"""Stages that can be stopped anywhere: whole or not there, and the same in the end."""

import random
import signal
import subprocess
import sys
import time
import tracemalloc
from types import SimpleNamespace

import pytest

from speechmix.errors import InputError
from speechmix.runs.journal import stage_journal as journal
from speechmix.runs.journal.stage_journal import SkipItem, run_stage
from speechmix.runs.journal.stage_lines import (
    input_digest,
    lines,
    read_kept_lines,
    read_stage_options,
    summarize_stage_output,
)

ITEMS = [(f"clip_{i}", i) for i in range(60)]


def work(number):
    if number % 7 == 3:
        raise SkipItem("odd one", f"{number} is one of those")
    return {"square": number**2, "text": "é\n"}


def test_what_it_keeps(tmp_path):
    path = run_stage(tmp_path / "squares.jsonl", ITEMS, work, options={"power": 2})
    assert [line["square"] for line in read_kept_lines(path)][:3] == [0, 1, 4]
    dropped = [line for line in lines(path) if "why" in line]
    assert dropped[0] == {"key": "clip_3", "why": "odd one", "reason": "3 is one of those"}
    assert read_stage_options(path) == {"power": 2}
    assert not list(tmp_path.glob("*.unfinished"))


def test_counts_are_those_of_the_lines(tmp_path):
    """Also where a kept item has an entry called why deeper down, and an answer that looks like
    one."""

    def told(number):
        return work(number) | {"meta": {"why": "asked"}, "text": '", "why": "no"'}

    path = run_stage(tmp_path / "squares.jsonl", ITEMS, told, options={})
    whys = [line.get("why") for line in lines(path)]
    assert (
        summarize_stage_output(path)
        == f"squares: {whys.count(None)} kept, {whys.count('odd one')} dropped (odd one 9); {path}"
    )


def test_quick_items_wait_a_tenth_of_a_second_for_the_disk_and_slow_ones_do_not(
    tmp_path, monkeypatch
):
    seconds, so_far = iter([0, 0.04, 0.08, 0.12, 0.16, 5, 10]), []
    monkeypatch.setattr(journal, "time", SimpleNamespace(monotonic=lambda: next(seconds)))

    def items():
        for key, number in ITEMS[:7]:
            file = tmp_path / "squares.jsonl.unfinished"
            so_far.append(file.read_bytes().count(b'"key"') if number else 0)
            yield key, number

    path = run_stage(tmp_path / "squares.jsonl", items(), work, options={})
    assert so_far == [0, 1, 1, 1, 4, 4, 6]
    assert len(list(lines(path))) == 7


def test_stopped_at_any_byte_it_ends_the_same(tmp_path):
    whole = run_stage(tmp_path / "whole" / "cut.jsonl", ITEMS, work, options={}).read_bytes()
    rng = random.Random(0)
    for _ in range(60):
        cut = tmp_path / "cut.jsonl"
        cut.unlink(missing_ok=True)
        (tmp_path / "cut.jsonl.unfinished").write_bytes(whole[: rng.randrange(len(whole) + 1)])
        assert run_stage(cut, ITEMS, work, options={}).read_bytes() == whole


def test_only_what_is_left_is_done_again(tmp_path):
    done = []

    def summarize_stage_output(number):
        if number == 40 and 40 not in done:
            done.append(number)
            raise KeyboardInterrupt
        done.append(number)
        return {}

    path = tmp_path / "a.jsonl"
    with pytest.raises(KeyboardInterrupt):
        run_stage(path, ITEMS, summarize_stage_output, options={})
    with pytest.raises(InputError, match="was stopped before its end"):
        list(lines(path))
    run_stage(path, ITEMS, summarize_stage_output, options={})
    assert done == [*range(41), *range(40, 60)]
    run_stage(path, ITEMS, summarize_stage_output, options={})
    assert len(done) == 61


def test_an_error_that_is_no_bad_row_stops_the_stage_and_names_the_item(tmp_path):
    def broken(number):
        return {"inverse": 1 / number}

    with pytest.raises(ZeroDivisionError) as caught:
        run_stage(tmp_path / "a.jsonl", ITEMS, broken, options={})
    assert "at 'clip_0' of the stage a" in caught.value.__notes__[0]


def test_other_options_or_items_are_not_mixed_in(tmp_path):
    path = run_stage(tmp_path / "a.jsonl", ITEMS, work, options={"power": 2})
    with pytest.raises(InputError, match="power: 2, now 3"):
        run_stage(path, ITEMS, work, options={"power": 3})
    assert read_stage_options(
        run_stage(path, ITEMS, work, options={"power": 3}, overwrite=True)
    ) == {"power": 3}
    with pytest.raises(InputError, match="was not done"):
        list(lines(tmp_path / "b.jsonl"))


@pytest.mark.parametrize("lost", [1, 2, 30, 60])
def test_a_line_that_is_lost_or_doubled_is_noticed(tmp_path, lost):
    path = run_stage(tmp_path / "squares.jsonl", ITEMS, work, options={})
    whole = path.read_bytes().splitlines(keepends=True)
    for damaged in (
        whole[:lost] + whole[lost + 1 :],
        whole[:lost] + whole[lost - 1 :],
        whole[:lost] + whole[-1:] + whole[lost:],
    ):
        path.write_bytes(b"".join(damaged))
        with pytest.raises(InputError, match=r"squares\.jsonl"):
            assert all("key" in line for line in lines(path))
        assert run_stage(path, ITEMS, work, options={}).read_bytes() == b"".join(whole)


def test_the_digest_is_of_what_was_asked_for(tmp_path):
    first = run_stage(tmp_path / "a.jsonl", ITEMS, work, options={})
    second = run_stage(
        tmp_path / "b.jsonl", ITEMS, lambda n: {**work(n), "text": "other"}, options={"more": 1}
    )
    assert input_digest(first, "square") == input_digest(second, "square")
    assert (
        input_digest(first, "square") != input_digest(first, "text") != input_digest(second, "text")
    )


def test_many_items_need_no_more_memory_than_few(tmp_path):
    peaks = {}
    for number in (1_000, 10_000):
        items = ((f"clip_{i}", i) for i in range(number))
        tracemalloc.start()
        run_stage(tmp_path / f"{number}.jsonl", items, work, options={})
        peaks[number] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peaks[10_000] < 1.2 * peaks[1_000] + 20_000


SLOW = """
import sys, time
from pathlib import Path
from speechmix.runs.journal.stage_journal import run_stage
def work(number):
    time.sleep(0.004)
    return {"square": number ** 2, "text": "é" * 50}
run_stage(Path(sys.argv[1]), ((f"clip_{i}", i) for i in range(250)), work, options={})
"""


def test_killed_at_random_points(tmp_path):
    path, rng, kills = tmp_path / "cut.jsonl", random.Random(1), 0
    part = tmp_path / "cut.jsonl.unfinished"
    while not path.is_file():
        assert kills < 20
        running = subprocess.Popen([sys.executable, "-c", SLOW, str(path)])
        before, deadline = (part.stat().st_size if part.is_file() else 0), time.monotonic() + 60
        while running.poll() is None and time.monotonic() < deadline:
            if part.is_file() and part.stat().st_size > before + 200:
                break
            time.sleep(0.005)
        time.sleep(rng.uniform(0.05, 0.4))
        if running.poll() is None:
            running.send_signal(signal.SIGKILL)
            kills += 1
        running.wait()
    assert kills >= 2
    rows = list(lines(path))
    assert [row["key"] for row in rows] == [f"clip_{i}" for i in range(250)]
    assert all(row["square"] == i**2 and row["text"] == "é" * 50 for i, row in enumerate(rows))
