"""The script that measures a GPU: all of it runs on the CPU, and what goes wrong in one part stays
there."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import gpu

SCRIPT = Path(gpu.__file__)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gpu")
    command = [
        sys.executable,
        SCRIPT,
        "--dry-run",
        "--wheels",
        folder,
        "--out",
        folder / "gpu.json",
    ]
    environment = {**os.environ, "PYTHONPATH": str(gpu.ROOT)}
    subprocess.run(command, env=environment, check=True, capture_output=True, timeout=460)
    return json.loads((folder / "gpu.json").read_text(encoding="utf-8"))


@pytest.mark.long  # the whole dry run: 30 s of a processor
def test_every_part_of_a_dry_run_is_done(results):
    assert {name: part["status"] for name, part in results["parts"].items()} == dict.fromkeys(
        gpu.BUDGETS, "done"
    )
    assert results["card"] == "none (dry run)"
    assert {"cuda", "torch", "transformers", "numpy", "speechmix", "python"} <= set(results)


@pytest.mark.long  # the whole dry run: 30 s of a processor
def test_a_dry_run_compares_the_cpu_with_itself(results):
    compared = results["parts"]["agreement"]["figures"]
    del compared["golden files"]
    assert {"tiny-french-ctc, float32", "tiny-french-ctc, float64"} <= set(compared)
    for row in compared.values():
        assert row["agrees"]
        assert set(row["differences"].values()) == {0.0}


@pytest.mark.long  # the whole dry run: 30 s of a processor
@pytest.mark.parametrize("part", ["clips, medium", "clips, small"])
def test_maps_of_clips_are_compared_with_their_forward_passes(results, part):
    figures = dict(results["parts"][part]["figures"])
    assert figures.pop("weights_mib") == 0
    assert set(figures) == {
        f"{stacks}, {product}"
        for stacks in ("encoder", "all stacks")
        for product in ("float32", "bfloat16")
    }
    for case in figures.values():
        assert case["clips_timed"] == 2
        assert case["times_the_forward_passes"] == pytest.approx(
            case["seconds_of_1000_clips"] / case["forward_seconds_of_1000_clips"]
        )
        assert np.isfinite(case["times_the_forward_passes"])


@pytest.fixture
def gpu_parts(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    return importlib.import_module("gpu_parts")


def test_the_card_of_a_dry_run_is_asked_what_a_real_one_answers(gpu_parts):
    assert all(callable(getattr(torch.cuda, name)) for name in vars(gpu_parts.DRY_CARD))


def test_clips_that_the_time_does_not_allow_are_skipped(gpu_parts):
    card = gpu_parts.DRY_CARD
    figures = dict(gpu_parts.clips("nano", 0, device="cpu", card=card, dry_run=True))
    del figures["weights_mib"]
    assert len(figures) == 4
    assert set(figures.values()) == {"skipped: the time of this part is used up"}


def test_what_a_part_reached_before_it_failed_is_kept():
    def part():
        yield "first", 1
        raise ValueError("no memory")

    result = gpu.run_part(part, 20)
    assert result["figures"] == {"first": 1}
    assert result["status"].startswith("failed: ")
    assert "no memory" in result["status"]


def test_a_part_whose_process_dies_has_failed():
    def part():
        yield "first", 1
        os._exit(7)

    result = gpu.run_part(part, 20)
    assert result["status"] == "failed: its process ended with exit code 7"
    assert result["figures"] == {"first": 1}


def test_a_part_that_takes_too_long_is_stopped_with_all_that_it_started(tmp_path):
    def part():
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        yield "child", child.pid
        time.sleep(60)

    result = gpu.run_part(part, 2)
    assert result["status"] == "stopped: 2 s, the time of this part, are used up"
    assert result["seconds"] < 20
    state = Path("/proc", str(result["figures"]["child"]), "stat")
    assert not state.exists() or state.read_text().split()[2] == "Z"  # gone, or not yet collected


def test_a_part_without_time_is_skipped():
    result = gpu.run_part(lambda: iter([("first", 1)]), 0)
    assert result["status"] == "skipped: the time of this part is used up"
    assert result["figures"] == {}


def test_a_command_that_fails_says_why():
    with pytest.raises(RuntimeError, match=r"exit code \d+\n(.|\n)*no_such_module"):
        gpu.run_module("no_such_module")


def test_what_is_installed_is_not_installed_again():
    assert list(gpu.install(None, dry_run=False)) == [("pip", "not needed")]


def test_a_bare_machine_installs_the_checkout(monkeypatch, tmp_path):
    def version(name):
        raise importlib.metadata.PackageNotFoundError(name)

    commands = []
    monkeypatch.setattr(importlib.metadata, "version", version)
    monkeypatch.setattr(gpu, "run_module", lambda *command: commands.append(command) or ["done"])
    for wheels in (None, tmp_path):
        assert list(gpu.install(wheels, dry_run=False)) == [("pip", ["done"])]
    pip, wanted = (
        ("pip", "install", "--disable-pip-version-check"),
        (str(gpu.ROOT), "pytest", "hypothesis"),
    )
    assert commands == [
        (*pip, *wanted),
        (*pip, "--no-index", "--find-links", str(tmp_path), *wanted),
    ]


def test_without_the_package_each_part_says_why_it_is_skipped(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "gpu_parts", None)  # its import fails
    monkeypatch.syspath_prepend(str(tmp_path))  # and sys.path is restored
    out = tmp_path / "gpu.json"
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--parts", "machine", "twins", "--out", str(out)])
    gpu.main()
    parts = json.loads(out.read_text(encoding="utf-8"))["parts"]
    assert set(parts) == {"machine", "twins"}
    assert all(part["status"].startswith("skipped: ") for part in parts.values())
