"""Cost of a run against its number of clips: seconds, memory, files and bytes, by the real writers.

    python benchmarks/run_at_scale.py [100 1000 10000 100000] [--layers 24] [--keep FOLDER] [--draw PNG]

In: numbers of clips. A stand-in takes the place of the forward pass: it returns SIMULATED random
scores at once, so what is measured is all that the package does besides: questions, scores, tables,
going on. Out: a line for each number: the run, the same run started again when it is finished, the
same with one clip more, and the page. Each in a process of its own, whose largest memory is that of
the line before (an empty process) and its own; where others are at work on the machine, seconds of
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
    """Clips that share a tenth of a second of noise; their names are in no order, as those of
    corpora often are."""
    import speechmix
    from speechmix.inputs.words.spans import Word

    noise = np.random.default_rng(0).standard_normal(SAMPLES).astype(np.float32) / 10
    words = [Word(word, index * 0.02, (index + 1) * 0.02) for index, word in enumerate(WORDS)]
    return [
        speechmix.Clip.from_array(
            noise,
            RATE,
            name=f"clip_{number * 999_983 % 1_000_003:06d}",
            text=" ".join(WORDS),
            words=words,
            cue="les",
            target="livres",
            meta={"number": ("sg", "pl")[number % 2], "pair": f"pair_{number // 2}"},
        )
        for number in range(count)
    ]


def simulated(layers: int):
    """A function like `mix_items` that returns random scores of a deep model."""
    from speechmix.inputs.words.spans import Span
    from speechmix.mixing.maps.map_set import Maps
    from speechmix.mixing.maps.mixing_map import MixingMap

    rng = np.random.default_rng(1)
    units = tuple(
        Span(i, i + 1, word, "word", i, i * 0.02, (i + 1) * 0.02) for i, word in enumerate(WORDS)
    )

    def mix_items(model, clips, request, **options):
        provenance = {
            "model": model.name,
            "init": model.init,
            "seed": model.seed,
            "simulated": True,
        }
        return [
            (
                clip,
                Maps(
                    {
                        (measure, "encoder"): MixingMap(
                            rng.random((layers, 1, len(units))).astype(np.float32),
                            units[4:],
                            units,
                            measure,
                            "encoder",
                            tuple(range(layers)),
                            {
                                **provenance,
                                "clip": clip.name,
                                "fingerprint": clip.fingerprint,
                                "cue": clip.cue,
                                "target": clip.target,
                                "words": [[w.text, w.start, w.end] for w in clip.words],
                            },
                        )
                        for measure in request.measures
                    }
                ),
            )
            for clip in clips
        ]

    return mix_items


def step(name: str, folder: Path, count: int, layers: int) -> None:
    """Do one step and print its seconds, the process's largest memory in MB, and what it took to
    list the clips."""
    import speechmix
    from speechmix.inputs import bundled
    from speechmix.runs.kinds import map_results as store
    from speechmix.runs.score_clips import score_clips

    models, clips = [], []
    if name != "page":
        source = bundled.models()["tiny-french-ctc"]
        models = [
            speechmix.load(source, device="cpu"),
            speechmix.load(source, device="cpu", init="random", seed=0),
        ]
        clips = clips_of(count + (name == "one more"))
    store.mix_items = simulated(layers)
    empty, began, processor = (
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        time.monotonic(),
        time.process_time(),
    )
    if name == "page":
        from speechmix.reporting.pages.run_page import report

        report(folder, title="SIMULATED scores")
    else:
        run = score_clips(
            models, clips, folder, figures=0, progress=False, report=lambda line: None
        )
        if run.done != 2 * len(clips):
            raise RuntimeError(run.summary())
    seconds, most = time.monotonic() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    cost = {"seconds": seconds, "processor": time.process_time() - processor}
    print(json.dumps({**cost, "MB": most / 1024, "MB before": empty / 1024}))


def measured(count: int, name: str, layers: int, folder: Path) -> dict:
    """Do a step in a process of its own, and tell what it cost and what the folder then holds."""
    command = [
        sys.executable,
        __file__,
        str(count),
        "--layers",
        str(layers),
        "--keep",
        str(folder),
        "--step",
        name,
    ]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    if told.returncode:
        raise SystemExit(told.stderr[-2_000:])
    files = [path for path in folder.rglob("*") if path.is_file()]
    held = {"files": len(files), "MB on disk": sum(path.stat().st_size for path in files) / 1e6}
    return {"clips": count, "step": name, **json.loads(told.stdout.splitlines()[-1]), **held}


def line_of(row: dict) -> str:
    """One step's cost as a line."""
    seconds = f"{row['seconds']:8.1f} s ({row['processor']:.1f} of a processor)"
    memory = f"{row['MB']:7.0f} MB (empty {row['MB before']:.0f})"
    return (
        f"{row['clips']:7d} clips  {row['step']:8s}  {seconds}  {memory}  {row['files']:5d} files  "
        f"{row['MB on disk']:8.1f} MB"
    )


def draw(rows: list[dict], path: Path) -> None:
    """Cost against the number of clips, both axes logarithmic, with each line's slope over its last
    decade."""
    import pandas as pd
    from matplotlib.figure import Figure

    table = pd.DataFrame(rows)
    table["memory (MB)"] = table["MB"] - table["MB before"]
    table = table.rename(
        columns={"processor": "seconds of a processor", "MB on disk": "on the disk (MB)"}
    )
    panels = {
        "seconds of a processor": STEPS,
        "memory (MB)": ("run", "again", "page"),
        "files": ("run", "page"),
        "on the disk (MB)": ("run", "page"),
    }
    figure = Figure(figsize=(10, 6.4), layout="constrained")
    for ax, (column, steps) in zip(figure.subplots(2, 2).flat, panels.items(), strict=True):
        for name, marker in zip(steps, "os^v", strict=False):
            of_step = table[(table["step"] == name) & (table[column] > 0)].sort_values("clips")
            if len(of_step) < 2:
                continue
            (few, low), (many, high) = of_step[["clips", column]].to_numpy(dtype=float)[-2:]
            slope = np.log(high / low) / np.log(many / few)
            ax.plot(
                of_step["clips"], of_step[column], marker=marker, label=f"{name}: slope {slope:.2f}"
            )
        ax.set(xscale="log", yscale="log", xlabel="clips", title=column)
        ax.grid(alpha=0.3)
        ax.legend(fontsize=8)
    figure.suptitle("SIMULATED scores, everything else as in any run; slope over the last decade")
    figure.savefig(path, dpi=110)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("counts", nargs="*", type=int, default=[100, 1_000, 10_000])
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--keep", metavar="FOLDER")
    parser.add_argument("--draw", metavar="PNG", help="draw all that --rows holds")
    parser.add_argument("--rows", metavar="JSONL", help="add what is measured to this file")
    parser.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=STEPS)
    options = parser.parse_args()
    if options.step:
        step(options.step, Path(options.keep), options.counts[0], options.layers)
        return 0
    rows = []
    for count in options.counts:
        folder = Path(options.keep or tempfile.mkdtemp()) / str(count)
        for name in options.steps:
            rows.append(measured(count, name, options.layers, folder))
            print(line_of(rows[-1]), flush=True)
            if options.rows:
                with open(options.rows, "a", encoding="utf-8") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
        if not options.keep:
            shutil.rmtree(folder.parent)
    if options.draw:
        stored = Path(options.rows).read_text(encoding="utf-8").splitlines() if options.rows else []
        draw([json.loads(line) for line in stored] or rows, Path(options.draw))
    return 0


if __name__ == "__main__":
    sys.exit(main())
