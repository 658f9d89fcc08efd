"""A run by several processes: tables of one, whoever dies; stopped, it goes on; what cannot be sent
to one is refused."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import torch

import speechmix
from speechmix.adapters.capture import module_access as memory_check
from speechmix.errors import InputError, SpeechmixError
from speechmix.files.shard_assignment import Shard
from speechmix.inputs import bundled
from speechmix.interfaces.cli import main
from speechmix.runs.executors import local_workers as machine
from speechmix.runs.executors import local_workers as workers
from speechmix.runs.executors.local_workers import LocalWorkers, assign_gpu, plan_workers
from speechmix.runs.run_status import run_status
from speechmix.runs.score_clips import score_clips
from tests.engines.dying import load_once_dead
from tests.experiments.test_run import clip as clip_in_memory
from tests.experiments.test_shards_of_a_run import assert_same, tables

CTC = str(bundled.models()["tiny-french-ctc"])
TWIN = partial(speechmix.load, CTC, device="cpu", init="random", seed=0)
OPTIONS = {"figures": 0, "progress": False, "targets": "target"}


@pytest.mark.long
def test_tables_are_those_of_one_process_though_a_worker_died_once(tmp_path):
    clips, lines = bundled.clips()[:6], []
    assert {Shard(2, 2).holds(clip.name) for clip in clips} == {True, False}
    score_clips(
        [partial(speechmix.load, CTC, device="cpu"), TWIN],
        clips,
        tmp_path / "one",
        report=str,
        **OPTIONS,
    )
    (tmp_path / "deaths").mkdir()
    dying = partial(load_once_dead, CTC, str(tmp_path / "deaths"), "2/2", times=1)
    run = score_clips(
        [dying, TWIN],
        clips,
        tmp_path / "two",
        executor=LocalWorkers(2, "cpu"),
        report=lines.append,
        **OPTIONS,
    )
    assert len(list((tmp_path / "deaths").iterdir())) == 1
    assert sum("killed by SIGKILL): started again" in line for line in lines) == 1
    assert run.done == 12
    assert not run.skipped
    assert_same(tables(tmp_path / "two"), tables(tmp_path / "one"))
    for number in (1, 2):  # a line each of the trained and the random model
        names = [clip.name for clip in clips if Shard(number, 2).holds(clip.name)]
        says = f"{names[0]}  " if len(names) == 1 else f": {len(names)} clips scored"
        assert sum(f"[{number}/2] " in line and says in line for line in lines) == 2


@pytest.mark.long
def test_a_worker_that_dies_twice_leaves_its_clips_missing_and_what_others_did(tmp_path):
    clips = [*bundled.clips()[:3]]
    (tmp_path / "deaths").mkdir()
    dying = partial(load_once_dead, CTC, str(tmp_path / "deaths"), "1/2", times=9)
    with pytest.raises(SpeechmixError, match="died twice: 1/2") as refused:
        score_clips(
            [dying], clips, tmp_path / "run", executor=LocalWorkers(2, "cpu"), report=str, **OPTIONS
        )
    for clip in clips:
        assert (clip.name in str(refused.value)) == Shard(1, 2).holds(clip.name)
    status = run_status(tmp_path / "run")
    assert (status.state, status.missing) == ("running", [1])
    assert len(list((tmp_path / "deaths").iterdir())) == 2


@pytest.mark.long
def test_stopped_it_keeps_what_is_done_and_ends_its_processes(tmp_path):
    clips, processes = bundled.clips()[:12], []

    def stop(line):
        processes.extend(workers_at_work)
        raise KeyboardInterrupt

    workers_at_work = []
    real = workers._Worker.start

    def start(worker):
        channel = real(worker)
        workers_at_work.append(worker.process)
        return channel

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workers._Worker, "start", start)
        with pytest.raises(KeyboardInterrupt):
            score_clips(
                [TWIN], clips, tmp_path, executor=LocalWorkers(1, "cpu"), report=stop, **OPTIONS
            )
    assert processes
    assert not any(process.is_alive() for process in processes)
    lines = []
    run = score_clips([TWIN], clips, tmp_path, report=lines.append, **OPTIONS)
    assert run.done == 12
    assert any("clips were scored before" in line for line in lines), lines


@pytest.mark.long
def test_workers_of_a_command_that_is_killed_write_what_they_have_and_end(tmp_path):
    manifest = Path(bundled.__file__).parent / "clips" / "manifest.jsonl"
    arguments = [
        "--clips",
        str(manifest),
        "--model",
        CTC,
        "--twins",
        "1",
        "--target-rows-only",
        "--figures",
        "0",
    ]
    arguments += ["--device", "cpu", "--out", str(tmp_path)]
    command = [sys.executable, "-u", "-m", "speechmix", "score", *arguments]
    with subprocess.Popen(
        [*command, "--workers", "2"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert next(line for line in process.stdout if line.startswith("["))
        process.kill()
    deadline = time.monotonic() + 120
    while "at work" in set(run_status(tmp_path).table["state"]):
        assert time.monotonic() < deadline, "workers go on though nobody waits for them"
        time.sleep(0.2)
    assert run_status(tmp_path).table["clips"].sum() > 0
    subprocess.run([*command, "--workers", "2"], check=True)
    subprocess.run([*command[:-1], str(tmp_path / "one")], check=True)
    assert_same(tables(tmp_path), tables(tmp_path / "one"))


@pytest.mark.long
def test_an_error_that_a_worker_meets_is_raised_here_once(tmp_path):
    clips = bundled.clips()[:1]
    score_clips([TWIN], clips, tmp_path, report=str, **OPTIONS)
    with pytest.raises(InputError, match="holds a run with other options"):
        score_clips(
            [TWIN],
            clips,
            tmp_path,
            executor=LocalWorkers(1, "cpu"),
            heads="each",
            report=str,
            **OPTIONS,
        )


def test_clips_in_memory_can_be_sent_to_a_process():
    sent = clip_in_memory("a")
    again = pickle.loads(pickle.dumps(sent))
    assert (again.name, again.fingerprint, again.words) == (sent.name, sent.fingerprint, sent.words)


def test_what_cannot_be_sent_to_a_process_is_refused(tmp_path):
    for models, wrong in (
        ([TWIN()], "found a model"),
        ([lambda: None], "cannot be sent to a process"),
    ):
        with pytest.raises(InputError, match=wrong):
            score_clips(models, bundled.clips()[:2], tmp_path, executor=LocalWorkers(2))
    with pytest.raises(InputError, match="at least one worker"):
        score_clips([TWIN], bundled.clips()[:2], tmp_path, executor=LocalWorkers(0))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [(["--workers", "few"], "found 'few'"), (["--workers", "0"], "found '0'")],
)
def test_numbers_of_workers_on_the_command_line(arguments, wrong, tmp_path, capsys):
    clip = str(bundled.clips()[0].path)
    assert main(["score", clip, "--model", CTC, "--out", str(tmp_path), *arguments]) == 1
    assert wrong in capsys.readouterr().err


def test_workers_and_shards_are_one_or_the_other(tmp_path, capsys):
    arguments = ["score", str(bundled.clips()[0].path), "--model", CTC, "--out", str(tmp_path)]
    assert main([*arguments, "--workers", "2", "--shard", "1/2"]) == 1
    assert "give one of them" in capsys.readouterr().err


def test_auto_counts_threads_and_what_memory_holds(tmp_path, monkeypatch):
    (tmp_path / "model.safetensors").write_bytes(b"")
    os.truncate(tmp_path / "model.safetensors", 3 * 2**30)  # sparse: takes no room
    assert memory_check.weight_bytes(tmp_path) == 3 * 2**30
    assert memory_check.weight_bytes("nobody/has-this-model") == 0
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for free, expected in ((1000, 8), (22, 3), (5, 1), (None, 8)):
        monkeypatch.setattr(machine, "free_bytes", lambda device, free=free: free and free * 2**30)
        assert plan_workers([tmp_path]) == expected


def test_with_gpus_each_worker_sees_one(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert (plan_workers([]), plan_workers([], device="cuda:1")) == (2, 1)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert [assign_gpu(index, None) for index in (1, 2, 3)] == [
        {"CUDA_VISIBLE_DEVICES": place} for place in "010"
    ]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,GPU-8f")
    assert assign_gpu(2, "cuda") == {"CUDA_VISIBLE_DEVICES": "GPU-8f"}
    assert assign_gpu(2, "cuda:1") == assign_gpu(2, "cpu") == {}
