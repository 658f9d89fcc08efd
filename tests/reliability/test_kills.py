"""Killed at any moment and started again, a run ends as if nothing had happened: map for map, row
for row, byte for byte.

The short form kills twice, the long one (`make soak`) 1,000 times: each file-system call of the job
in turn, and random calls and moments of the tries that follow.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.reliability.command_jobs import NAMES, command_jobs
from tests.reliability.kills import Tally, count_calls, snapshot, to_the_end, try_once

pytest.importorskip(
    "espeakng_loader", reason="words are placed by synthesis: extra speechmix[synthesis]"
)
pytest.importorskip("jiwer", reason="examples are chosen by transcript: extra speechmix[french]")
if not hasattr(os, "fork"):
    pytest.skip("tries are forks of one process", allow_module_level=True)

KILLS_OF_COMMANDS = int(
    os.environ.get("SPEECHMIX_KILLS_OF_COMMANDS", "25")
)  # of each of the nine commands
KILLS = int(os.environ.get("SPEECHMIX_KILLS", "500"))  # of each of the two jobs in the long form


@pytest.fixture(scope="module")
def scoring() -> Callable[[Path], None]:
    from tests.reliability.jobs import score_job

    return score_job()


@pytest.fixture(scope="module")
def recipe(tmp_path_factory) -> Callable[[Path], None]:
    from tests.corpora.miniature import write_release
    from tests.reliability.jobs import recipe_job

    return recipe_job(write_release(tmp_path_factory.mktemp("corpus")))


@pytest.fixture(scope="module")
def commands(tmp_path_factory) -> dict[str, Callable[[Path], None]]:
    return command_jobs(tmp_path_factory.mktemp("read"))


def kill_until(job: Callable[[Path], None], tmp_path: Path, kills: int, most: int) -> Tally:
    """Kill fresh folders `most` times each, until there were so many kills; each must end like the
    folder nobody killed."""
    whole = tmp_path / "whole" / "run"
    calls = count_calls(job, whole)
    expected = snapshot(whole)
    started = time.monotonic()
    try_once(job, tmp_path / "timed" / "run")
    seconds = time.monotonic() - started
    rng, tally, round_number = random.Random(0), Tally(), 0
    while tally.kills < kills:
        shutil.rmtree(
            whole.parent
        )  # the same path each time, for paths stand in what a study keeps
        first = 1 + round_number * 7 % calls
        tally.by_call += try_once(job, whole, call=first)
        to_the_end(job, whole, rng, calls=calls, seconds=seconds, most=most, tally=tally)
        assert snapshot(whole) == expected, f"round {round_number}, first killed at call {first}"
        round_number += 1
        if round_number % 10 == 0:
            print(f"{tally.kills} kills, {round_number} folders", flush=True)
    print(
        f"\n{tally.kills} kills ({tally.by_call} at a file-system call of {calls}, {tally.by_time} "
        "at a random moment of "
        f"{seconds:.1f} s), {round_number} folders, all identical to the one nobody killed"
    )
    return tally


@pytest.mark.long
def test_a_run_killed_twice(scoring, tmp_path):
    assert kill_until(scoring, tmp_path, kills=2, most=3).kills >= 2


@pytest.mark.long
def test_a_run_killed_500_times(scoring, tmp_path):
    assert kill_until(scoring, tmp_path, kills=KILLS, most=7).kills >= KILLS


@pytest.mark.long
def test_the_recipe_killed_500_times(recipe, tmp_path):
    assert kill_until(recipe, tmp_path, kills=KILLS, most=12).kills >= KILLS


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_a_command_killed_anywhere(commands, name, tmp_path):
    tally = kill_until(commands[name], tmp_path, kills=KILLS_OF_COMMANDS, most=4)
    assert tally.kills >= KILLS_OF_COMMANDS


@pytest.mark.long
def test_adaptation_that_is_killed_learns_a_voice(commands, tmp_path):
    commands["adapt"](tmp_path / "run")
    assert list((tmp_path / "run").rglob("*.safetensors"))


@pytest.mark.long
def test_the_tables_of_before_stand_until_new_ones_do(scoring, tmp_path):
    folder = tmp_path / "run"
    calls = count_calls(scoring, folder)
    before = {path: path.read_bytes() for path in folder.glob("**/*.parquet")}
    assert len(before) > len(list(folder.glob("*.parquet")))
    assert try_once(scoring, folder, call=calls // 2) or calls
    assert {path: path.read_bytes() for path in folder.glob("**/*.parquet")} == before
    assert json.loads((folder / "run.json").read_text(encoding="utf-8"))["state"] in (
        "running",
        "complete",
    )
