"""Kinds of results: computed in a run or alone, in shards, by workers, killed and resumed; a kind
from outside the package."""

from __future__ import annotations

import os
import signal

import pandas as pd
import pytest

from speechmix.errors import InputError
from speechmix.inputs import bundled
from speechmix.interfaces.cli import main
from speechmix.runs.executors.local_workers import LocalWorkers
from speechmix.runs.kinds.explanations import ToExplain, stored_explanations
from speechmix.runs.kinds.registry import find_kind, forget_kind, register_kind
from speechmix.runs.kinds.result_kind import Result, ResultKind
from speechmix.runs.results.open_run import open_run
from speechmix.runs.run_status import job_status
from speechmix.runs.score_clips import compute_kinds, score_clips
from tests.conftest import trained
from tests.reliability.kills import snapshot
from tests.reports.test_tables import documented

QUIET = {"progress": False, "report": lambda line: None}
CLIPS = bundled.clips()[:4]
NAMES: list[str] = []


def word_lengths(item):
    """Length of each word of a clip, in seconds."""
    NAMES.append(item.clip.name)
    unit = item.options.get("unit", 1)
    return Result(
        [{"word": word.text, "seconds": (word.end - word.start) / unit} for word in item.clip.words]
    )


def load_model():
    return trained("tiny-french-ctc")


@pytest.fixture
def kind():
    NAMES.clear()
    yield register_kind(ResultKind("word_lengths", word_lengths, columns={"seconds": "float64"}))
    forget_kind("word_lengths")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run without further kinds."""
    out = tmp_path_factory.mktemp("run") / "run"
    score_clips(load_model(), CLIPS, out, figures=0, measures=["attention"], **QUIET)
    return out


def copied(run, folder):
    import shutil

    return shutil.copytree(run, folder / "run")


def table_of(folder):
    return pd.read_parquet(folder / "word_lengths.parquet")


def test_a_kind_from_outside_is_computed_in_a_run_and_once(kind, tmp_path):
    given = {"figures": 0, "measures": ["attention"], "kinds": ["word_lengths"], **QUIET}
    run = score_clips(load_model(), CLIPS, tmp_path, **given)
    assert (run.done, len(NAMES)) == (4, 4)
    table = table_of(tmp_path)
    assert list(table)[:5] == ["clip", "fingerprint", "model", "init", "seed"]
    assert len(table) == sum(len(clip.words) for clip in CLIPS)
    score_clips(load_model(), CLIPS, tmp_path, **given)
    assert len(NAMES) == 4
    score_clips(load_model(), CLIPS, tmp_path, **{**given, "kinds": {"word_lengths": {"unit": 2}}})
    assert len(NAMES) == 8
    assert table_of(tmp_path).seconds.sum() == pytest.approx(table.seconds.sum() / 2)


def test_alone_it_leaves_the_run_as_it_is_and_the_run_leaves_it(kind, run, tmp_path):
    folder = copied(run, tmp_path)
    before = {name: content for name, content in snapshot(folder).items() if ".digests" not in name}
    compute_kinds(load_model(), CLIPS, folder, ["word_lengths"], **QUIET)
    after = snapshot(folder)
    assert {name: after.get(name) for name in before} == before
    table = table_of(folder)
    assert [job.text() for job in job_status(folder)] == [
        "word_lengths: 1 of 1 shards done, 0 failed"
    ]
    score_clips(load_model(), CLIPS, folder, figures=0, measures=["attention"], **QUIET)
    NAMES.clear()
    compute_kinds(load_model(), CLIPS, folder, ["word_lengths"], **QUIET)
    assert NAMES == []
    pd.testing.assert_frame_equal(table_of(folder), table)


def test_in_shards_it_has_the_table_of_one_process_and_status_says_what_is_missing(
    kind, tmp_path, capsys
):
    compute_kinds(load_model(), CLIPS, tmp_path / "one", ["word_lengths"], **QUIET)
    first = compute_kinds(
        load_model(), CLIPS, tmp_path / "two", ["word_lengths"], shard="2/2", **QUIET
    )
    assert not first.is_complete
    assert main(["status", str(tmp_path / "two")]) == 0
    assert "word_lengths: 1 of 2 shards done, 0 failed; missing: 1" in capsys.readouterr().out
    assert compute_kinds(
        load_model(), CLIPS, tmp_path / "two", ["word_lengths"], shard="1/2", **QUIET
    ).is_complete
    pd.testing.assert_frame_equal(table_of(tmp_path / "two"), table_of(tmp_path / "one"))


@pytest.mark.parametrize("after", [1, 3])
def test_killed_and_started_again_it_ends_as_if_nothing_had_happened(after, kind, run, tmp_path):
    compute_kinds(load_model(), CLIPS, copied(run, tmp_path / "whole"), ["word_lengths"], **QUIET)
    folder = copied(run, tmp_path / "killed")
    child = os.fork()
    if child == 0:
        lines: list[str] = []

        def report(line):
            lines.append(line)
            if len(lines) == after:
                os.kill(os.getpid(), signal.SIGKILL)

        compute_kinds(load_model(), CLIPS, folder, ["word_lengths"], progress=False, report=report)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    compute_kinds(load_model(), CLIPS, folder, ["word_lengths"], **QUIET)
    assert snapshot(folder) == snapshot(tmp_path / "whole" / "run")


@pytest.mark.long
def test_workers_compute_a_kind_of_the_package(tmp_path):
    compute_kinds([load_model], CLIPS, tmp_path / "one", ["states"], **QUIET)
    executor = LocalWorkers(2, "cpu")
    compute_kinds([load_model], CLIPS, tmp_path / "two", ["states"], executor=executor, **QUIET)
    assert [job.text() for job in job_status(tmp_path / "two")] == [
        "states: 2 of 2 shards done, 0 failed"
    ]


def test_explanations_alone_are_those_of_the_page(run, tmp_path):
    folder = copied(run, tmp_path)
    options = {
        "to_explain": ToExplain.of(CLIPS[:1], 1),
        "request": {"measures": "gradient_input", "top": 1},
    }
    compute_kinds(load_model(), CLIPS[:1], folder, {"explanations": options}, **QUIET)
    ((owner, clip, content),) = stored_explanations(open_run(folder).parts)
    assert (owner.label, clip) == ("tiny-french-ctc", CLIPS[0].name)
    assert {"text", "view"} == set(content)


def test_the_command_ablates_the_clips_of_a_run_alone(run, tmp_path, capsys):
    folder, model = copied(run, tmp_path), str(bundled.models()["tiny-french-ctc"])
    command = ["ablate", "--model", model, "--device", "cpu", "--out", str(folder)]
    assert main([*command, "--shard", "1/2"]) == 0
    assert main([*command, "--shard", "2/2"]) == 0
    assert set(open_run(folder).ablation["clip"]) == {clip.name for clip in CLIPS}
    assert main(["status", str(folder)]) == 0
    assert "ablation: 2 of 2 shards done, 0 failed" in capsys.readouterr().out


def test_names_of_kinds_are_checked(kind):
    assert find_kind("word_lengths") is kind
    with pytest.raises(InputError, match="no kind of result is called 'none'"):
        compute_kinds(load_model(), CLIPS, "nowhere", ["none"])
    with pytest.raises(InputError, match="no kind of the package has"):
        register_kind(ResultKind("ablation", word_lengths))


def test_knock_out_says_what_a_clip_lacks(tmp_path):
    clip = CLIPS[0].replace(cue=None, target=None, foil=None)
    run = compute_kinds(load_model(), [clip, CLIPS[1]], tmp_path, ["knock_out"], **QUIET)
    assert run.done == 1
    assert [left["clip"] for left in run.skipped] == [clip.name]
    assert "target" in run.skipped[0]["reason"]


def test_knock_out_in_a_run_is_that_of_the_function(tmp_path):
    import speechmix

    clips, model = CLIPS[:2], load_model()
    for shard in ("1/2", "2/2"):
        compute_kinds(model, clips, tmp_path, ["knock_out"], shard=shard, **QUIET)
    table = pd.read_parquet(tmp_path / "knock_out.parquet")
    assert set(table) == documented("knock_out")
    for clip in clips:
        found = speechmix.knock_out(model, clip).table
        stored = table[table["clip"] == clip.name]
        assert list(stored["layer"]) == list(found["layer"])
        assert list(stored["drop"]) == pytest.approx(list(found["drop"]), abs=1e-6)
