"""What Ray costs a run: a stand-in that sleeps as long as a forward pass, by 1, 2, 4 and 8 workers
of one machine.

    python benchmarks/ray_efficiency.py [--seconds 0.5] [--clips 96] [--workers 1 2 4 8]

In: seconds that a clip's pass takes, clips for each worker. A worker loads a tiny model, computes
the maps of its first clip, sleeps for each further one and takes the maps of the first for its: all
else is done as in any run (keys, tables, part files, notes, rows). Sleeping workers need no core of
their own, so eight of them say on a small machine what Ray and the run add, if the machine has
nothing else to do: its load is printed. Out: for each number of workers

    efficiency   seconds slept / (workers x seconds from the first clip's beginning to the last one's end)
    overhead     milliseconds a clip between what a worker sleeps, while it works on its blocks
    start        seconds until the first clip is begun: Ray, the workers, their imports, the model

and the overhead of one process without Ray beside it. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

sys.path.insert(
    0, str(Path(__file__).resolve().parents[1])
)  # for workers, which import this by its place
os.environ["PYTHONPATH"] = os.pathsep.join([sys.path[0], os.environ.get("PYTHONPATH", "")])

import numpy as np

import speechmix
from speechmix.adapters.model import Model
from speechmix.extensions.clusters.ray_executor import RayExecutor
from speechmix.runs.kinds import map_results as store
from speechmix.runs.score_clips import score_clips

WORDS = [("les", 0.1, 0.3), ("livres", 0.35, 0.55)]


def load_sleeping(folder: Path, log: Path, seconds: float) -> Model:
    """Load the tiny model in a process whose further passes are sleep; it notes when each began and
    ended."""
    real, first = store.mix_items, []

    def asleep(model, clips, request, **options):
        if not first:
            [(_, maps)] = real(model, clips[:1], request, **options)
            first.append(maps)
        began = time.monotonic()
        time.sleep(seconds * len(clips))
        with (log / f"{os.getpid()}").open("a") as file:
            file.write(f"{began} {time.monotonic()} {len(clips)}\n")
        return [(clip, first[0]) for clip in clips]

    store.mix_items = asleep
    return speechmix.load(folder)


def clips(count: int) -> list[speechmix.Clip]:
    noise = np.random.default_rng(0).standard_normal(9_600).astype(np.float32) / 10
    one = speechmix.Clip.from_array(
        noise, 16_000, words=WORDS, text="les livres", cue="les", target="livres"
    )
    return [one.with_name(f"clip-{number:05d}") for number in range(count)]


def measured(folder: Path, count: int, workers: int | None, seconds: float) -> None:
    """Print what one run took; without workers by this process."""
    with tempfile.TemporaryDirectory() as temporary:
        log = Path(temporary) / "log"
        log.mkdir()
        executor = None if workers is None else RayExecutor(workers=workers)
        some, began = clips(count), time.monotonic()
        score_clips(
            [partial(load_sleeping, folder, log, seconds)],
            some,
            Path(temporary) / "run",
            executor=executor,
            figures=0,
            progress=False,
            report=lambda line: None,
        )
        ended = time.monotonic()
        passes = {path.name: np.loadtxt(path, ndmin=2) for path in log.iterdir()}
    first, last = (
        min(rows[0, 0] for rows in passes.values()),
        max(rows[-1, 1] for rows in passes.values()),
    )
    slept = sum((rows[:, 1] - rows[:, 0]).sum() for rows in passes.values())
    between = np.concatenate([(rows[1:, 0] - rows[:-1, 1]) for rows in passes.values()])
    asked = workers or 1
    print(
        f"{'one process' if workers is None else f'{workers} workers':12} {count} clips x "
        f"{seconds} s: efficiency "
        f"{slept / (asked * (last - first)):6.1%} "
        f"({count * seconds / (asked * (last - first)):.1%} of what was asked for), "
        f"overhead {1000 * between.mean():5.1f} ms a clip (median "
        f"{1000 * np.median(between):.1f}), "
        f"start {first - began:.1f} s, end {ended - last:.1f} s, {len(passes)} processes, load "
        f"{os.getloadavg()[0]:.1f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=0.5, help="of a clip's pass")
    parser.add_argument("--clips", type=int, default=96, help="of each worker")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument(
        "--measure", type=int, help=argparse.SUPPRESS
    )  # workers, in a process of its own; 0: without Ray
    options = parser.parse_args()
    if options.measure is not None:
        with tempfile.TemporaryDirectory() as temporary:
            folder = save_tiny(Path(temporary) / "tiny")
            if options.measure:
                import ray

                ray.init(
                    num_cpus=options.measure,
                    object_store_memory=2**28,
                    include_dashboard=False,
                    log_to_driver=False,
                )
            measured(
                folder,
                max(options.measure, 1) * options.clips,
                options.measure or None,
                options.seconds,
            )
        return
    for workers in (0, *options.workers):
        again = f"--seconds {options.seconds} --clips {options.clips} --measure {workers}"
        os.spawnv(os.P_WAIT, sys.executable, [sys.executable, __file__, *again.split()])


def save_tiny(folder: Path) -> Path:
    """A tiny wav2vec 2.0 in a folder."""
    import transformers

    from tests.conftest import build

    build("wav2vec2-post").save_pretrained(folder)
    transformers.Wav2Vec2FeatureExtractor().save_pretrained(folder)
    return folder


if __name__ == "__main__":
    main()
