"""A run by tasks of Slurm, here as processes of this machine: tables of one process, whoever dies."""

from __future__ import annotations

import json
import os
import signal
from functools import partial
from pathlib import Path

import pytest

import speechmix
from speechmix.errors import InputError, SpeechmixError
from speechmix.extensions.clusters import slurm_executor
from speechmix.extensions.clusters.slurm_executor import SlurmExecutor
from speechmix.files.shard_assignment import Shard
from speechmix.inputs import bundled
from speechmix.interfaces.cli import main
from speechmix.runs.run_status import run_status
from speechmix.runs.score_clips import score_clips
from tests.experiments.test_shards_of_a_run import assert_same, tables

submitit = pytest.importorskip("submitit", reason="the extra `slurm` is not installed")

CTC = str(bundled.models()["tiny-french-ctc"])
TWIN = partial(speechmix.load, CTC, device="cpu", init="random", seed=0)
QUIET = {"figures": 0, "progress": False, "targets": "target"}
CLIPS = bundled.clips()[:4]


def load_or_die(traces: str, times: int) -> speechmix.Model:
    """Load a model; the first tasks that try are killed, and leave a trace each."""
    if len(list(Path(traces).iterdir())) < times:
        (Path(traces) / str(os.getpid())).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return TWIN()


@pytest.mark.long
def test_tables_are_those_of_one_process_though_a_task_died_once(tmp_path):
    lines: list[str] = []
    score_clips([TWIN], CLIPS, tmp_path / "one", report=str, **QUIET)
    (tmp_path / "deaths").mkdir()
    run = score_clips(
        [partial(load_or_die, str(tmp_path / "deaths"), 1)],
        CLIPS,
        tmp_path / "two",
        executor=SlurmExecutor(2, cluster="local"),
        report=lines.append,
        **QUIET,
    )
    assert len(list((tmp_path / "deaths").iterdir())) == 1
    assert sum("the task died" in line and "submitted again" in line for line in lines) == 1
    assert (run.done, run.skipped) == (4, [])
    assert_same(tables(tmp_path / "two"), tables(tmp_path / "one"))


@pytest.mark.long
def test_a_task_that_dies_twice_leaves_its_clips_missing_and_what_others_did(tmp_path):
    with pytest.raises(
        SpeechmixError, match=r"died twice: 1/2 \(job .*clips that are missing: "
    ) as error:
        score_clips(
            [partial(load_in_shard, Shard(2, 2))],
            CLIPS,
            tmp_path / "run",
            executor=SlurmExecutor(2, cluster="local"),
            report=str,
            **QUIET,
        )
    for clip in CLIPS:
        assert (clip.name in str(error.value)) == Shard(1, 2).holds(clip.name)
    assert run_status(tmp_path / "run").missing == [1]


def load_in_shard(shard: Shard) -> speechmix.Model:
    """Load a model; a task of another shard is killed."""
    from submitit.core.utils import DelayedSubmission

    submission = DelayedSubmission.load(submitit.JobEnvironment().paths.submitted_pickle)
    if submission.args[1] != str(shard):
        os.kill(os.getpid(), signal.SIGKILL)
    return TWIN()


SBATCH = """#!/bin/sh
# A Slurm of this machine: two tasks of an array, one after the other.
cp "$1" "$FAKE_SLURM/script.sh"
export SLURM_ARRAY_JOB_ID=7 SLURM_CPUS_PER_TASK=1 SLURM_NTASKS=1 SLURM_JOB_NUM_NODES=1 SLURM_NODEID=0 SLURM_PROCID=0
(sleep 1; for i in 0 1; do
    SLURM_JOB_ID=7$i SLURM_ARRAY_TASK_ID=$i bash "$FAKE_SLURM/script.sh"
done) >"$FAKE_SLURM/log.txt" 2>&1 &
echo "Submitted batch job 7"
"""
SRUN = """#!/bin/sh
while [ "$1" = --unbuffered ] || [ "$1" = --output ] || [ "$1" = --error ]; do
    if [ "$1" != --unbuffered ]; then shift; fi
    shift
done
exec "$@"
"""


@pytest.mark.long
def test_the_command_submits_one_job_array(tmp_path, monkeypatch, capsys):
    for name, text in (("sbatch", SBATCH), ("srun", SRUN), ("sacct", "#!/bin/sh\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("FAKE_SLURM", str(tmp_path))
    monkeypatch.setattr(slurm_executor, "_SECONDS_BETWEEN_LOOKS", {"slurm": 0.2})
    folder = Path(bundled.__file__).parent / "clips"
    rows = map(json.loads, (folder / "manifest.jsonl").read_text().splitlines()[:3])
    lines = [json.dumps({**row, "path": str(folder / row["path"])}) for row in rows]
    (tmp_path / "clips.jsonl").write_text("\n".join(lines))
    command = ["score", "--clips", str(tmp_path / "clips.jsonl"), "--model", CTC]
    command += [
        "--target-rows-only",
        "--figures",
        "0",
        "--device",
        "cpu",
        "--out",
        str(tmp_path / "run"),
    ]
    command += ["--allow-outside", "--engine", "slurm", "--workers", "2", "--slurm", "mem_gb=4"]
    assert main([*command, "--slurm", "slurm_partition=day"]) == 0
    assert "2 tasks are submitted: job 7_0" in capsys.readouterr().out
    script = (tmp_path / "script.sh").read_text()
    for option in ("--array=0-1%", "--mem=4GB", "--partition=day", "--time=240", "--requeue"):
        assert f"#SBATCH {option}" in script
    assert run_status(tmp_path / "run").state == "complete"


def test_what_cannot_be_submitted_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    for executor, wrong in (
        (SlurmExecutor(2), 'no tasks can be submitted: .*"srun"'),
        (SlurmExecutor(2, {"slurm_partitoin": "gpu"}, "local"), "Unknown argument 'partitoin'"),
        (SlurmExecutor(2, {"timeout_min": "x"}, "local"), '"timeout_min" expected type'),
    ):
        with pytest.raises(InputError, match=wrong):
            score_clips([TWIN], CLIPS, tmp_path / "run", executor=executor, **QUIET)
    with pytest.raises(InputError, match="found a model"):
        score_clips([TWIN()], CLIPS, tmp_path / "run", executor=SlurmExecutor(2), **QUIET)
    with pytest.raises(InputError, match="at least one task"):
        SlurmExecutor(0)
    with pytest.raises(InputError, match="slurm or local"):
        SlurmExecutor(1, cluster="pbs")
