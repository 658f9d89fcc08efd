"""What speechmix gives and costs on a GPU, in one command of at most eight minutes on a bare machine.

    python benchmarks/gpu.py [--out gpu.json] [--seconds 460] [--golden ../shared/golden/speech] [--wheels FOLDER]
    python benchmarks/gpu.py --dry-run

Out: one JSON file, written after each part, with the card's name, versions, and each part's status
and figures (`gpu_parts.py` says what they are). The first part installs the checkout where it is
missing; without a network, from the wheels in FOLDER. Each part is a process of its own with a time
budget, and what an earlier part leaves is added to it. A part that fails or takes too long keeps the
figures that it has reached, and the next one begins; when its time is used up, it is skipped.
`--dry-run` does all of it on the CPU, with tiny shapes and a few clips. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import importlib.util
import json
import multiprocessing
import os
import platform
import shlex
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BUDGETS = {  # seconds; stretched or shrunk to --seconds
    "install": 60,
    "tests": 60,
    "machine": 10,
    "agreement": 60,
    "clips, medium": 110,
    "clips, small": 70,
    "frame map": 40,
    "twins": 50,
}
GOALS = {
    "agreement": "differences of at most 1e-5 of the largest score in float32, 1e-9 in float64",
    "clips": "seconds_of_1000_clips: 120; times_the_forward_passes: 1.3 (H100)",
    "frame map": "seconds_a_layer: 0.25 (H100)",
}
Part = Callable[[], Iterator[tuple[str, object]]]


def run_part(part: Part, limit: float) -> dict[str, Any]:
    """Run a part in a process of its own, so that neither a crash nor an error that spoils the GPU's
    context reaches the next one; keep all that it has reached."""
    if limit <= 0:
        return {"status": "skipped: the time of this part is used up", "seconds": 0, "figures": {}}
    # A fork spares each part the imports. It is safe because this process never touches the GPU.
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=send_figures, args=(part, sender))
    began, figures = time.perf_counter(), {}
    status = f"stopped: {limit:.0f} s, the time of this part, are used up"
    process.start()
    assert process.pid is not None
    sender.close()
    try:
        while receiver.poll(max(0, began + limit - time.perf_counter())):
            name, value = receiver.recv()
            if name is None:
                status = value
                break
            figures[name] = value
    except EOFError:
        process.join()
        status = f"failed: its process ended with exit code {process.exitcode}"
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)  # it leads a group, with all that it started
        except ProcessLookupError:
            process.kill()
        process.join()
    return {"status": status, "seconds": time.perf_counter() - began, "figures": figures}


def send_figures(part: Part, sender: Connection) -> None:
    """In the part's own process: send each figure, then how it ended."""
    os.setsid()
    try:
        for figure in part():
            sender.send(figure)
        sender.send((None, "done"))
    except Exception:
        sender.send((None, f"failed: {traceback.format_exc()}"))


def run_module(*command: str, accepted: tuple[int, ...] = (0,)) -> list[str]:
    """Run a module of this Python on the checkout; return the lines of its output."""
    finished = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if finished.returncode not in accepted:
        raise RuntimeError(f"exit code {finished.returncode}\n{finished.stdout[-4000:]}")
    return finished.stdout.strip().splitlines()


def install(wheels: Path | None, dry_run: bool) -> Iterator[tuple[str, object]]:
    """Install the checkout and what the tests need, where they are missing."""
    try:
        importlib.metadata.version("speechmix-toolkit")
        complete = all(importlib.util.find_spec(name) for name in ("pytest", "hypothesis"))
    except importlib.metadata.PackageNotFoundError:
        complete = False
    if complete and not dry_run:
        yield "pip", "not needed"
        return
    options = ["--no-index", "--find-links", str(wheels)] if wheels else []
    if dry_run:
        options += ["--dry-run", "--no-deps", "--no-build-isolation"]
    wanted = (str(ROOT), "pytest", "hypothesis")
    lines = run_module("pip", "install", "--disable-pip-version-check", *options, *wanted)
    yield "pip", lines[-1:]


def gpu_tests(dry_run: bool) -> Iterator[tuple[str, object]]:
    """Run the tests marked `gpu`, of the files that have some."""
    files = [
        str(path)
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        if "@pytest.mark.gpu\n" in path.read_text(encoding="utf-8")
    ]
    chosen = files[:1] if dry_run else files
    command = ("pytest", "-p", "no:cacheprovider", "-m", "gpu", *chosen)
    lines = run_module(*command, accepted=(0, 1))  # 1: tests failed, and are named below
    yield "summary", lines[-1]
    yield "failed", [line for line in lines if line.startswith(("FAILED", "ERROR"))]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("gpu.json"))
    parser.add_argument("--seconds", type=float, default=sum(BUDGETS.values()), help="for all")
    parser.add_argument("--golden", type=Path, default=ROOT.parent / "shared" / "golden" / "speech")
    parser.add_argument("--wheels", type=Path, help="install from here, without a network")
    parser.add_argument("--parts", nargs="+", choices=BUDGETS, default=BUDGETS)
    parser.add_argument("--dry-run", action="store_true", help="all of it, tiny, on the CPU")
    options = parser.parse_args()
    end = time.perf_counter()  # of the time that the parts so far may have taken together
    parts: dict[str, Callable[[float], Iterator[tuple[str, object]]]] = {
        "install": lambda limit: install(options.wheels, options.dry_run),
        "tests": lambda limit: gpu_tests(options.dry_run),
    }
    results: dict[str, Any] = {
        "command": shlex.join(sys.argv),
        "python": platform.python_version(),
        "goals": GOALS,
        "parts": {},
    }
    missing = None
    for name in (name for name in BUDGETS if name in options.parts):
        if name not in parts and missing is None:
            # Not at the top: on a bare machine, torch is there only after the first part.
            importlib.invalidate_caches()
            sys.path.insert(0, str(ROOT))
            try:
                import gpu_parts

                parts |= gpu_parts.parts(options.golden, options.dry_run)
            except ImportError as error:
                missing = f"skipped: {error}"
        end += BUDGETS[name] * options.seconds / sum(BUDGETS.values())
        if name in parts:
            limit = end - time.perf_counter()
            result = run_part(partial(parts[name], limit), limit)
        else:
            result = {"status": missing, "seconds": 0, "figures": {}}
        results |= result["figures"] if name == "machine" else {}
        results["parts"][name] = result
        options.out.write_text(json.dumps(results, indent=1), encoding="utf-8")
        print(f"{name}: {json.dumps(result, indent=1)}", flush=True)


if __name__ == "__main__":
    main()
