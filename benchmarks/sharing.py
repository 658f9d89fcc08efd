"""What the parts of a study take for one clip, and what sharing features and encoder states between
them saves.

    python benchmarks/sharing.py [--model small] [--layers 4] [--repeats 3]

Maps of the target's rows, ablation with its control, transcript and states for probes, as a run
asks for them: each by itself, and all within `Model.unchanged`. The shape of a Whisper with random
weights; figures are shares and ratios within one run, of each the fastest of the repeats. Nothing
is asserted.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable

import torch
from study import MEASURES, SHAPES, model_of

import speechmix
from speechmix.adapters.generation.greedy_generation import transcribe
from speechmix.extensions.probing.task import read_item_states
from speechmix.inputs import bundled
from speechmix.interventions.value_knock_out import ablate_with_control


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", choices=SHAPES, default="tiny")
    parser.add_argument("--layers", type=int)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--tokens", type=int, default=20, help="of the transcript: random weights write no end"
    )
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    model, clip = model_of(options.model, options.layers, "cpu"), bundled.clips()[0]
    parts: dict[str, Callable[[], object]] = {
        "maps": lambda: speechmix.mix(model, clip, measures=MEASURES, targets="target"),
        "ablation": lambda: ablate_with_control(model, clip),
        "transcript": lambda: transcribe(model, clip, max_tokens=options.tokens),
        "states": lambda: read_item_states(model, clip, ("target", "deciding")),
    }

    def together() -> None:
        with model.unchanged():
            for part in parts.values():
                part()

    together()
    apart = {
        name: min(seconds(part) for _ in range(options.repeats)) for name, part in parts.items()
    }
    shared, whole = min(seconds(together) for _ in range(options.repeats)), sum(apart.values())
    print(f"shape of Whisper {options.model}, RANDOM weights, {torch.get_num_threads()} threads")
    for name, took in apart.items():
        print(f"  {name:<10} {took / whole:.0%}")
    print(f"  together, shared: {shared / whole:.2f} of all of them apart")


if __name__ == "__main__":
    main()
