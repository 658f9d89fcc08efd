"""Cost of a run against its number of clips: seconds, memory, files and bytes, by the real writers.

    python tests/benchmarks/run_at_scale.py [100 1000 10000 100000] [--layers 24] [--keep FOLDER]

In: numbers of clips. A stand-in takes the place of the forward pass: it returns SIMULATED random scores at once, so what
is measured is all that the package does besides: questions, scores, tables, going on. Out: a line for each number: the run, the
same run started again when it is finished, the same with one clip more, and the page. Each in a process of its own, whose
largest memory is that of the line before (an empty process) and its own; where others are at work on the machine, seconds of
the processor count. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

RATE, SAMPLES = 16_000, 1_600
WORDS = ("elle", "a", "perdu", "les", "livres")
STEPS = ("run", "again", "one more", "page")


def clips_of(count: int) -> list:
    """Clips that share a tenth of a second of noise; their names are in no order, as those of corpora often are."""
    import speechmix
    from speechmix.inputs.spans import Word

    noise = np.random.default_rng(0).standard_normal(SAMPLES).astype(np.float32) / 10
    words = [Word(word, index * 0.02, (index + 1) * 0.02) for index, word in enumerate(WORDS)]
    return [
        speechmix.Clip.from_array(
            noise, RATE, name=f"clip_{number * 999_983 % 1_000_003:06d}", text=" ".join(WORDS), words=words,
            cue="les", target="livres", meta={"number": ("sg", "pl")[number % 2], "pair": f"pair_{number // 2}"},
        )
        for number in range(count)
    ]  # fmt: skip


def simulated(layers: int):
    """A function like `speechmix.mix` that returns random scores of a deep model."""
    from speechmix.inputs.spans import Span
    from speechmix.maps.mixing import Maps, MixingMap

    rng = np.random.default_rng(1)
    units = tuple(Span(i, i + 1, word, "word", i, i * 0.02, (i + 1) * 0.02) for i, word in enumerate(WORDS))

    def mix(model, clips, *, measures, **options):
        provenance = {"model": model.name, "init": model.init, "seed": model.seed, "simulated": True}
        return [
            Maps(
                {
                    (measure, "encoder"): MixingMap(
                        rng.random((layers, 1, len(units))).astype(np.float32), units[4:], units, measure, "encoder",
                        tuple(range(layers)),
                        {**provenance, "clip": clip.name, "fingerprint": clip.fingerprint, "cue": clip.cue,
                         "target": clip.target, "words": [[w.text, w.start, w.end] for w in clip.words]},
                    )
                    for measure in measures
                }
            )
            for clip in clips
        ]  # fmt: skip

    return mix


def step(name: str, folder: Path, count: int, layers: int) -> None:
    """Do one step and print its seconds, the process's largest memory in MB, and what it took to list the clips."""
    import speechmix
    from speechmix import bundled
    from speechmix.experiments import store
    from speechmix.experiments.run import score_clips

    source = bundled.models()["tiny-french-ctc"]
    models = [speechmix.load(source, device="cpu"), speechmix.load(source, device="cpu", init="random", seed=0)]
    store.mix = simulated(layers)
    clips = clips_of(count + (name == "one more")) if name != "page" else []
    empty, began, processor = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic(), time.process_time()
    if name == "page":
        from speechmix.reports.study_page import report

        report(folder, title="SIMULATED scores")
    else:
        run = score_clips(models, clips, folder, figures=0, progress=False, report=lambda line: None)
        if run.done != 2 * len(clips):
            raise RuntimeError(run.summary())
    seconds, most = time.monotonic() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    cost = {"seconds": seconds, "processor": time.process_time() - processor}
    print(json.dumps({**cost, "MB": most / 1024, "MB before": empty / 1024}))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("counts", nargs="*", type=int, default=[100, 1_000, 10_000])
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--keep", metavar="FOLDER")
    parser.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=STEPS)
    options = parser.parse_args()
    if options.step:
        step(options.step, Path(options.keep), options.counts[0], options.layers)
        return 0
    for count in options.counts:
        folder = Path(options.keep or tempfile.mkdtemp()) / str(count)
        for name in options.steps:
            command = [sys.executable, __file__, str(count), "--layers", str(options.layers), "--keep", str(folder)]
            told = subprocess.run([*command, "--step", name], capture_output=True, text=True, check=False)
            if told.returncode:
                print(told.stderr[-2_000:], file=sys.stderr)
                return 1
            cost = json.loads(told.stdout.splitlines()[-1])
            files = [path for path in folder.rglob("*") if path.is_file()]
            size = sum(path.stat().st_size for path in files) / 1e6
            seconds = f"{cost['seconds']:8.1f} s ({cost['processor']:.1f} of a processor)"
            memory = f"{cost['MB']:7.0f} MB (empty {cost['MB before']:.0f})"
            print(
                f"{count:7d} clips  {name:8s}  {seconds}  {memory}  {len(files):5d} files  {size:8.1f} MB", flush=True
            )
        if not options.keep:
            shutil.rmtree(folder.parent)
    return 0


if __name__ == "__main__":
    sys.exit(main())
