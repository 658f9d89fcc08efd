"""How far a run is: what it says of shards that were asked something else, of damaged ones, and
while others are at work."""

from __future__ import annotations

import fcntl
import json
import threading

import pytest

import speechmix
from speechmix.errors import InputError
from speechmix.files.json_files import write_checked_json
from speechmix.files.shard_assignment import Shard, shard_number
from speechmix.files.whole_files import LOCK, hold_lock, is_held
from speechmix.interfaces.cli import main
from speechmix.runs.results.clip_result_files import open_part
from speechmix.runs.results.run_folder import RunFolder
from speechmix.runs.run_status import run_status
from speechmix.runs.score_clips import score_clips
from tests.conftest import build
from tests.experiments.test_run import clip

QUIET = {"figures": 0, "progress": False, "report": lambda line: None, "measures": ["attention"]}


@pytest.fixture(scope="module")
def model():
    import transformers

    return speechmix.load(build("wav2vec2-post"), processor=transformers.Wav2Vec2FeatureExtractor())


@pytest.fixture(scope="module")
def clips():
    """Two of each shard of two."""
    names = [f"clip_{index}" for index in range(20)]
    own = [[name for name in names if shard_number(name, 2) == index][:2] for index in (1, 2)]
    return [clip(name) for name in [*own[0], *own[1]]]


@pytest.fixture
def run(model, clips, tmp_path):
    for index in (1, 2):
        score_clips([model], clips, tmp_path, shard=Shard(index, 2), **QUIET)
    return tmp_path


def states(folder) -> list[str]:
    return run_status(folder).table.drop_duplicates("shard")["state"].tolist()


def test_a_shard_that_was_asked_something_else_is_not_done(run, model, clips):
    """One clip less: the shard that heard of it is of another run than the one that did not."""
    assert (states(run), run_status(run).missing) == (["done", "done"], [])
    score_clips([model], clips[:-1], run, shard=Shard(1, 2), **QUIET)
    status = run_status(run)
    assert (status.state, states(run), status.missing) == ("running", ["done", "outdated"], [2])
    assert "1 done, 1 outdated" in status.text()
    assert "to be started (again): --shard 2" in status.text()
    score_clips([model], clips[:-1], run, shard=Shard(2, 2), **QUIET)
    assert (run_status(run).state, states(run)) == ("complete", ["done", "done"])


def test_a_shard_is_outdated_as_soon_as_another_begins_with_something_else(run, model, clips):
    """Before that one has ended: its line, while it is at work, is all that is there of the new
    start."""

    def stop(line):
        raise KeyboardInterrupt

    for changed in (
        {"clips": clips[:-1]},
        {"clips": clips, "stacks": ["encoder"], "layers": [0], "overwrite": True},
    ):
        with pytest.raises(KeyboardInterrupt):
            score_clips(
                [model],
                changed.pop("clips"),
                run,
                shard=Shard(1, 2),
                **{**QUIET, "report": stop},
                **changed,
            )
        assert states(run)[1] == "outdated"
        assert run_status(run).missing == [1, 2]
    with pytest.raises(
        KeyboardInterrupt
    ):  # as it was asked at first, so what the second did stands
        score_clips(
            [model], clips, run, shard=Shard(1, 2), overwrite=True, **{**QUIET, "report": stop}
        )
    assert run_status(run).missing == [1]


def test_a_model_that_failed_on_every_clip_is_counted(run):
    path = RunFolder(run).shards_dir / "1-of-2.json"
    marker = json.loads(path.read_text(encoding="utf-8"))
    marker.pop("checksum")
    marker["skipped"] = [{"clip": "a", "model": "other", "reason": "too long"}]
    write_checked_json(path, marker)
    assert "other: 0 clips, 1 failed" in run_status(run).text()


@pytest.mark.parametrize("count", ["two", 0, None])
def test_a_damaged_number_of_shards_says_so(tmp_path, count):
    (tmp_path / "run.json").write_text(
        json.dumps({"options": {}, "shards": count}), encoding="utf-8"
    )
    with pytest.raises(InputError, match="its number of shards"):
        run_status(tmp_path)


def test_a_shard_whose_results_are_damaged_is_not_done(run, capsys):
    parts = [path for path in RunFolder(run).part_files() if open_part(path).shard == "2-of-2"]
    parts[-1].write_bytes(parts[-1].read_bytes()[:-20])
    assert (states(run), run_status(run).missing) == (["done", "damaged"], [2])
    parts[-1].unlink()
    assert run_status(run).missing == [2]
    assert main(["status", str(run), "--missing", "score"]) == 0
    assert capsys.readouterr().out == "2\n"


def test_a_run_that_was_stopped_before_its_first_score_is_not_said_to_be_running(
    model, clips, tmp_path, monkeypatch
):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("speechmix.runs.score_clips.score_in_process", stop)
    with pytest.raises(KeyboardInterrupt):
        score_clips([model], clips, tmp_path, **QUIET)
    assert run_status(tmp_path).text().startswith(f"{tmp_path}: not complete; stopped\n")


def test_a_run_by_one_process_goes_on_by_the_same_command(model, clips, tmp_path):
    def stop(line):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        score_clips([model], clips, tmp_path, **{**QUIET, "report": stop})
    status = run_status(tmp_path)
    assert status.missing == [1]
    assert status.text().splitlines()[0] == f"{tmp_path}: not complete; stopped"
    assert status.text().endswith("the same command goes on")
    assert "--shard" not in status.text()


def test_a_shard_without_a_marker_is_missing(tmp_path):
    (tmp_path / "run.json").write_text(
        json.dumps({"options": {}, "state": "running"}), encoding="utf-8"
    )
    assert run_status(tmp_path).missing == [1]
    (tmp_path / "run.json").write_text(
        json.dumps({"units": "token"}), encoding="utf-8"
    )  # of recipes/english_agreement.py
    with pytest.raises(InputError, match="is not of a run"):
        run_status(tmp_path)


def test_to_look_is_not_to_be_at_work(tmp_path):
    """Two who look at once do not take each other for a writer, and a writer that begins just then
    waits."""
    with hold_lock(tmp_path, "1-of-2"):
        assert is_held(tmp_path, "1-of-2")
        assert not is_held(tmp_path, "2-of-2")
        assert not is_held(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{LOCK}-1-of-2"]
    with (tmp_path / f"{LOCK}-1-of-2").open("rb") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        assert not is_held(tmp_path, "1-of-2")
        threading.Timer(0.05, fcntl.flock, (looking, fcntl.LOCK_UN)).start()
        with hold_lock(tmp_path, "1-of-2"):
            pass
