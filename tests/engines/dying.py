"""Functions that load a model in a worker's process, and kill it there."""

from __future__ import annotations

import os
import signal
from multiprocessing import current_process
from pathlib import Path

import speechmix
from speechmix.adapters.model import Model


def load_once_dead(source: str, traces: str, worker: str, times: int) -> Model:
    """Load a model; the process of a worker is killed the first times it tries, and leaves a trace
    each."""
    if current_process().name == f"worker {worker}" and len(list(Path(traces).iterdir())) < times:
        (Path(traces) / str(os.getpid())).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return speechmix.load(source, device="cpu")
