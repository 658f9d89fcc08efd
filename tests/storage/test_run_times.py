"""Where the time went: phases within phases and beside them, restarts, shards; and no result knows
of it."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

import pandas as pd
import pytest

import speechmix
from speechmix.errors import InputError
from speechmix.files import timing
from speechmix.files.timing import Seconds, count_clip, phase, timed_phases
from speechmix.reporting.pages.run_page import report
from speechmix.runs.results.run_folder import RunFolder
from speechmix.runs.results.run_times import COLUMNS, run_times, sum_by_phase
from speechmix.runs.score_clips import score_clips
from tests.experiments.test_shards_of_a_run import QUIET, clips, models, tables  # noqa: F401
from tests.reliability.kills import snapshot


@pytest.fixture
def ticking(monkeypatch):
    """A clock that goes on by a second whenever it is looked at."""
    clock = itertools.count()
    monkeypatch.setattr(timing, "perf_counter", lambda: float(next(clock)))


def test_a_phase_is_charged_its_own_time_alone(ticking):
    seconds = Seconds()  # the clock is looked at
    with timed_phases(seconds):  # begins at 1
        with phase("forward"):  # 2
            with phase("attention"):  # 3 to 4
                pass
            with phase("attention"):  # 5 to 6
                count_clip()
        # 7
        with phase("writing"):  # 8 to 9
            pass
    # ends at 10
    assert seconds.by_phase == {"attention": 2, "forward": 3, "writing": 1, "other": 3}
    assert sum(seconds.by_phase.values()) == 10 - 1
    assert seconds.clips == 1


def test_what_raises_is_counted_and_nobody_counts_outside(ticking):
    seconds = Seconds()
    with phase("before"), pytest.raises(InputError), timed_phases(seconds), phase("forward"):
        raise InputError
    with phase("after"):
        count_clip()
    assert set(seconds.by_phase) == {"forward", "other"}
    assert seconds.clips == 0


def test_a_thread_works_ahead_and_two_who_count_do_not_meet():
    def work():
        with phase("features"), phase("reading"):
            pass

    def count():
        with timed_phases(Seconds()) as _, ThreadPoolExecutor(1) as reader:
            reader.submit(copy_context().run, work).result()
            reader.submit(work).result()  # in no context of ours: not counted

    seconds = Seconds()
    with timed_phases(seconds), ThreadPoolExecutor(1) as reader:
        reader.submit(copy_context().run, work).result()
        count()
    assert set(seconds.by_phase) == {"features (ahead)", "reading (ahead)", "other"}


def test_a_device_is_waited_for_around_every_phase_where_that_is_asked():
    waits: list[int] = []
    seconds = Seconds()
    with timed_phases(seconds):
        seconds.settle = lambda: waits.append(1)
        with phase("forward"), phase("attention"):
            pass
        assert len(waits) == 4


def test_what_is_counted_is_kept_now_and_then(ticking, monkeypatch):
    monkeypatch.setattr(timing, "_SAVE_SECONDS", 5.0)
    kept: list[float] = []
    seconds = Seconds(keep=lambda: kept.append(seconds.by_phase["forward"]))
    with timed_phases(seconds):
        for _ in range(6):
            with phase("forward"):
                pass
    assert kept == [3.0, 6.0]


@pytest.mark.long
def test_a_run_says_where_its_time_went(models, tmp_path):  # noqa: F811
    score_clips(models, clips(3), tmp_path, **QUIET)
    table = speechmix.open_run(tmp_path).times
    assert tuple(table.columns) == COLUMNS
    assert set(table["model"]) == {"", models[0].name}
    trained = table[table["init"] == "trained"].set_index("phase")
    assert {
        "loading",
        "forward",
        "attention",
        "contributions",
        "writing",
        "other",
    } < set(trained.index)
    assert set(trained["clips"]) == {3}
    waited = run_times(RunFolder(tmp_path)).dropna(subset=["share"])
    assert waited.groupby(["model", "init"])["share"].sum().to_list() == pytest.approx(
        [1] * 3, abs=1e-2
    )
    summed = sum_by_phase(table)
    assert summed["% of the time"].sum() == pytest.approx(100)
    page = report(tmp_path).read_text(encoding="utf-8")
    assert (
        page.index("Models, options and versions")
        < page.index("Computing time of each phase")
        < page.index("</main>")
    )


def test_starts_and_shards_are_added_up_and_no_result_changes(models, tmp_path):  # noqa: F811
    first, again = tmp_path / "first", tmp_path / "again"
    for out in (first, again):
        for shard in ("1/2", "2/2"):
            score_clips(models, clips(), out, shard=shard, **QUIET)
    before, results = run_times(RunFolder(again)), snapshot(again)
    score_clips(models, clips(), again, shard="1/2", **QUIET)
    after = run_times(RunFolder(again))
    assert set(after.loc[after["init"] == "trained", "clips"]) == {7}
    keys = ["model", "init", "phase"]
    both = before.merge(after, on=keys, suffixes=("_before", "_after"))
    assert (both["seconds_after"] >= both["seconds_before"]).all()
    assert both["seconds_after"].sum() > both["seconds_before"].sum()
    assert snapshot(again) == results == snapshot(first)
    assert (first / "times.csv").read_bytes() != (again / "times.csv").read_bytes()


def test_times_of_another_question_are_forgotten_and_damaged_ones_are_none(models, tmp_path):  # noqa: F811
    score_clips(models[:1], clips(2), tmp_path, **QUIET)
    assert "attention" in set(pd.read_csv(tmp_path / "times.csv")["phase"])
    times = next((tmp_path / "results" / ".shards").glob("times-*.json"))
    times.write_text('{"models": [{"owner": 3}]}', encoding="utf-8")
    score_clips(
        models[:1], clips(2), tmp_path, **QUIET | {"measures": ["value_zeroing"], "overwrite": True}
    )
    assert "attention" not in set(pd.read_csv(tmp_path / "times.csv")["phase"])
    (tmp_path / "times.csv").write_text("model\nx\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"times\.csv is damaged"):
        _ = speechmix.open_run(tmp_path).times
