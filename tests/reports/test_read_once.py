"""A page is made in one direction: each file of the run's folder is read once, and the headline is
computed once."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import speechmix
from speechmix.extensions.comparison import model_comparison as comparing
from speechmix.reporting.pages import study_results as study
from speechmix.reporting.pages.run_page import report, write_page
from speechmix.runs.results import open_run as reading
from tests.reports.synthetic_runs import synthetic_run

_WATCHED: list[Counter[str]] = []


def _count(event: str, arguments: tuple) -> None:
    if (
        event == "open" and _WATCHED and isinstance(arguments[0], str) and not arguments[2] & 3
    ):  # opened for reading
        _WATCHED[-1][arguments[0]] += 1


sys.addaudithook(
    _count
)  # for good: no other way sees what any library opens; it does nothing but in `reads`


@contextmanager
def reads(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """How often each file in a folder is read in this block; Arrow opens its own without Python."""
    counts: Counter[str] = Counter()
    read_table = pq.read_table
    monkeypatch.setattr(
        pq,
        "read_table",
        lambda path, **options: counts.update([str(path)]) or read_table(path, **options),
    )
    _WATCHED.append(counts)
    yield counts
    _WATCHED.pop()
    for path in [
        path for path in counts if not path.startswith(f"{folder}/") or path.endswith(".wav")
    ]:
        del counts[path]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return synthetic_run(tmp_path_factory.mktemp("once") / "run", clips=8, layers=2)


@pytest.mark.usefixtures("undrawn")
def test_every_file_of_the_run_is_read_once_for_a_page(folder, monkeypatch):
    with reads(folder, monkeypatch) as counts:
        report(folder, notes=["SYNTHETIC"])
    names = {Path(path).name for path in counts}
    assert {"run.json", "clips.csv", "skipped.csv", "cue_contribution.parquet"} <= names
    shards = [counts.pop(path) for path in list(counts) if str(path).endswith(".safetensors")]
    assert len(shards) == 2
    assert (
        max(shards) <= 1 + 6 * 2
    )  # a look at the header, and one for each map of a clip and measure
    assert set(counts.values()) == {1}, counts.most_common(3)


@pytest.mark.long
def test_every_table_is_read_once_for_a_comparison(folder, tmp_path, monkeypatch):
    with reads(folder, monkeypatch) as counts:
        speechmix.compare(folder).write(tmp_path)
    assert set(counts.values()) == {1}, counts.most_common(3)


def test_maps_beyond_what_memory_may_hold_are_read_again(folder, monkeypatch):
    run = reading.open_run(folder)
    monkeypatch.setattr(reading, "_MAX_MAP_BYTES", 0)
    with reads(folder, monkeypatch) as counts:
        for _ in range(2):
            run.read_part_maps(run.parts[0], "clip_0000")
    shards = [count for path, count in counts.items() if str(path).endswith(".safetensors")]
    assert shards
    assert set(shards) == {2 * min(counts.values())}


@pytest.mark.long
def test_the_headline_is_computed_once_for_a_page_and_once_for_a_comparison(
    folder, tmp_path, monkeypatch
):
    calls = Counter()

    def count_calls(module, name):
        function = getattr(module, name)
        monkeypatch.setattr(
            module,
            name,
            lambda *args, **options: calls.update([name]) or function(*args, **options),
        )

    count_calls(study, "contribution_cells")
    count_calls(comparing, "compare_with_twins")
    opened = study.Study.open(folder)
    assert opened.headline is opened.headline
    write_page(opened, title="once", notes=["SYNTHETIC"])
    assert calls == {"contribution_cells": 1}
    calls.clear()
    speechmix.compare(opened.run).write(tmp_path)
    assert calls == {"compare_with_twins": 1}


def test_maps_that_another_thread_forgets_meanwhile_are_answered():
    """The app reads clips of a run in several threads."""
    memory = reading._ReadMaps()

    class Place:
        def __hash__(self):
            memory._maps = {}  # as another does whose maps are too many
            return 1

    memory._maps = {place: {} for place in [Place()]}
    (place,) = (filled := memory._maps)
    memory._maps = filled
    assert memory.read(place, dict) == {}
