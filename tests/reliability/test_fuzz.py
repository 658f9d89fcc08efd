"""No damaged file makes a reader raise anything but an error of speechmix, give a wrong result,
hang, or take all memory.

The short form runs with the tests; the long one (``-m long``) is 10,000 inputs and prints the table
of docs/reliability.md.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from .fuzz import as_table, fuzz
from .readers import TARGETS

ROOT = Path(__file__).parents[2]


def run(tmp_path: Path, inputs: int, seconds: float) -> dict:
    """Fuzz in a process of its own, which has a limit on its memory and may crash."""
    out = tmp_path / "fuzz.json"
    command = [
        sys.executable,
        "-m",
        "tests.reliability.fuzz",
        "--inputs",
        str(inputs),
        "--out",
        str(out),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    last = out.with_suffix(".now")
    assert out.is_file(), (
        f"died at {last.read_text() if last.is_file() else 'its start'}: {done.stderr[-2000:]}"
    )
    return json.loads(out.read_text())


@pytest.mark.parametrize("target", TARGETS[:12], ids=lambda target: target.name)
def test_damaged_files_short(target, tmp_path):
    """In this process, without a limit on its memory."""
    counts, faults = fuzz(target, 1, seed=14, folder=tmp_path)
    assert not faults
    assert counts.total() == 1


@pytest.mark.long
def test_damaged_files_long(tmp_path):
    result = run(tmp_path, 10_000, 3600)
    print(as_table(result["counts"]))
    assert not result["faults"], "\n".join(result["faults"])
