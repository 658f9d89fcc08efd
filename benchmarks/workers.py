"""Processes against threads: one run by one process with all cores, and by several with a share of
them.

    python benchmarks/workers.py [--workers 2] [--clips 8] [--shapes tiny base small] [--rounds 2]

Whisper's shapes with random weights over the bundled clips in a window of 30 s (cue contribution,
three measures, target rows), and the package's own tiny models, each scored in the same folder
layout as `speechmix score --workers`. A run of so many clips and one of three times as many take
turns, and what the larger one takes beyond the smaller is what a clip takes once all is loaded;
what is left of the smaller is the start. Printed are the seconds, and the ratio of one process to
several. Nothing is asserted. On a machine that does something else meanwhile the ratios say little:
the load is printed, too.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from functools import partial
from pathlib import Path
from statistics import median

import torch
from study import MEASURES, SHAPES, model_of

import speechmix
from speechmix.inputs import bundled
from speechmix.runs.executors.local_workers import LocalWorkers
from speechmix.runs.score_clips import score_clips

FOLDS = 3  # clips of the larger run, in those of the smaller


def many(count: int) -> list[speechmix.Clip]:
    """So many clips, the bundled ones again and again under other names."""
    clips = bundled.clips()
    return [clips[number % len(clips)].replace(name=f"{number:04d}") for number in range(count)]


def seconds(load, clips: list[speechmix.Clip], workers: int) -> float:
    """Wall time of a run by so many workers that share the cores."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        run = score_clips(
            [load],
            clips,
            Path(folder),
            executor=LocalWorkers(workers, "cpu"),
            measures=MEASURES,
            targets="target",
            figures=0,
            progress=False,
            report=str,
        )
        if run.done != len(clips):
            raise RuntimeError(run.summary())
        return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, default=torch.get_num_threads())
    parser.add_argument("--clips", type=int, default=8, help="of the smaller run")
    parser.add_argument("--shapes", nargs="*", choices=SHAPES, default=["tiny", "base"])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    source = bundled.models()["tiny-french-whisper"]
    loads = {"the package's own": partial(speechmix.load, source, device="cpu")}
    loads |= {f"Whisper {shape}": partial(model_of, shape, None, "cpu") for shape in options.shapes}
    print(
        f"{torch.get_num_threads()} threads, 1 against {options.workers} workers; load "
        f"{os.getloadavg()[0]:.1f}"
    )
    for name, load in loads.items():
        taken: dict[tuple[int, int], list[float]] = {}
        for _ in range(options.rounds):
            for count in (options.clips, FOLDS * options.clips):
                for workers in (1, options.workers):
                    taken.setdefault((workers, count), []).append(
                        seconds(load, many(count), workers)
                    )
        clip, start = {}, {}
        for workers in (1, options.workers):
            few, more = (
                median(taken[workers, count]) for count in (options.clips, FOLDS * options.clips)
            )
            clip[workers] = (more - few) / ((FOLDS - 1) * options.clips)
            start[workers] = few - options.clips * clip[workers]
        one, several = clip[1], clip[options.workers]
        print(
            f"{name}: {1000 * one:.0f} ms a clip by one process, {1000 * several:.0f} by "
            f"{options.workers}: ratio "
            f"{one / several:.2f}; start {start[1]:.1f} s and {start[options.workers]:.1f} s"
        )


if __name__ == "__main__":
    main()
