"""Several processes on one folder at once: one writes, the others are told who; nothing is torn,
whoever comes first."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from speechmix.errors import StorageError
from speechmix.files.whole_files import HOLDER, LOCK, hold_lock, hold_writing_lock
from tests.reliability.kills import snapshot

if not hasattr(os, "fork"):
    pytest.skip("the processes are forks of one", allow_module_level=True)
pytest.importorskip(
    "espeakng_loader", reason="words are placed by synthesis: extra speechmix[synthesis]"
)
pytest.importorskip("jiwer", reason="models transcribe: extra speechmix[french]")

DONE, REFUSED = 0, 7


@pytest.fixture(scope="module")
def job():
    from tests.reliability.jobs import score_job

    return score_job(figures=0)


def at_once(job, folder: Path, count: int, wait: float) -> list[int]:
    """Exit status of each of some processes that start `wait` seconds after each other on one
    folder."""
    children = []
    for _ in range(count):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                job(folder)
                status = DONE
            except StorageError as error:
                status = REFUSED if "is being written to by process" in str(error) else 2
            finally:
                os._exit(status)
        children.append(child)
        time.sleep(wait)
    return [os.WEXITSTATUS(os.waitpid(child, 0)[1]) for child in children]


def check_times(job, tmp_path: Path, times: int) -> None:
    whole = tmp_path / "whole"
    assert at_once(job, whole, 1, 0) == [DONE]
    expected = snapshot(whole)
    for number in range(times):
        count = (2, 4)[number % 2]
        folder = tmp_path / f"run{number}"
        statuses = at_once(job, folder, count, wait=0.01 * (number % 5))
        assert statuses.count(DONE) >= 1
        assert set(statuses) <= {DONE, REFUSED}
        assert snapshot(folder) == expected


@pytest.mark.long
def test_two_and_four_processes_on_one_folder(job, tmp_path):
    check_times(job, tmp_path, 2)


@pytest.mark.long
def test_two_and_four_processes_on_one_folder_50_times(job, tmp_path):
    check_times(job, tmp_path, 50)


def test_the_holder_is_named_and_a_dead_one_holds_nothing(tmp_path):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        with hold_lock(tmp_path):
            os.write(writer, b"held")
            time.sleep(60)
        os._exit(0)
    assert os.read(reader, 4) == b"held"
    with (
        pytest.raises(
            StorageError,
            match=rf"process {child} on .* since \d{{4}}-.*wait for it.*delete .*{LOCK}",
        ),
        hold_lock(tmp_path),
    ):
        pass
    os.kill(child, 9)
    os.waitpid(child, 0)
    assert json.loads((tmp_path / HOLDER).read_text())["process"] == child  # it could not clean up
    with hold_lock(tmp_path), hold_writing_lock(tmp_path):
        assert json.loads((tmp_path / HOLDER).read_text())["process"] == os.getpid()
    assert not (tmp_path / HOLDER).exists()


def test_a_thread_of_this_process_is_refused_too(tmp_path):
    from concurrent.futures import ThreadPoolExecutor

    def attempt() -> str:
        try:
            with hold_lock(tmp_path):
                return "held"
        except StorageError as error:
            return str(error)

    with hold_lock(tmp_path), ThreadPoolExecutor(1) as other:
        assert "is being written to by process" in other.submit(attempt).result()
    assert attempt() == "held"
