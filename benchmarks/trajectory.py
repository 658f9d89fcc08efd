"""What a trajectory takes beside separate passes over the same checkpoints.

    python benchmarks/trajectory.py [--model tiny] [--checkpoints 3] [--clips 4]

Separate: each checkpoint is loaded, its maps and its knock-outs (whole stacks and layers) are computed
clip by clip, nothing is stored; or each has a run of its own. A trajectory does the same in one run,
with tables, intervals and onsets. Random weights; processor time, one after the other in one start.
Nothing is asserted.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

from study import SHAPES, model_of

import speechmix
from speechmix.inputs import bundled
from speechmix.inputs.clips.clip import Clip
from speechmix.interventions.value_knock_out import ablate_with_control
from speechmix.runs.score_clips import score_clips


def write_checkpoints(folder: Path, shape: str, layers: int | None, count: int) -> Path:
    """Write one random model as so many checkpoints."""
    model = model_of(shape, layers, "cpu")
    for step in range(count):
        path = folder / f"checkpoint-{step}"
        for part in (model.module, model.feature_extractor, model.tokenizer):
            part.save_pretrained(path)
    return folder


def measure_separately(folder: Path, clips: Sequence[Clip]) -> None:
    """Load each checkpoint, and compute maps and knock-outs of each clip."""
    for path in sorted(folder.iterdir()):
        model = speechmix.load(path, device="cpu")
        with model.unchanged():
            for clip in clips:
                speechmix.mix(model, clip, targets="target")
                ablate_with_control(model, clip, by_layer=True)


def measure_in_runs(folder: Path, clips: Sequence[Clip], out: Path) -> None:
    """Compute a run of each checkpoint by itself."""
    kinds = {"ablation": {"by_layer": frozenset(clip.name for clip in clips)}}
    quiet = {"progress": False, "report": lambda line: None, "figures": 0}
    for path in sorted(folder.iterdir()):
        model = speechmix.load(path, device="cpu")
        score_clips(model, clips, out / path.name, targets="target", kinds=kinds, **quiet)


def measure_together(folder: Path, clips: Sequence[Clip], out: Path) -> None:
    """Compute the trajectory."""
    quiet = {"progress": False, "report": lambda line: None, "load_options": {"device": "cpu"}}
    speechmix.trajectory(folder, clips, out, targets="target", **quiet)


def processor_seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", choices=SHAPES, default="tiny")
    parser.add_argument("--layers", type=int)
    parser.add_argument("--checkpoints", type=int, default=3)
    parser.add_argument("--clips", type=int, default=4)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    clips = [clip for clip in bundled.clips() if clip.foil][: options.clips]
    with tempfile.TemporaryDirectory() as folder:
        trained = write_checkpoints(
            Path(folder, "seed-0"), options.model, options.layers, options.checkpoints
        )
        measure_separately(trained, clips[:1])  # what is imported and compiled once
        apart = processor_seconds(lambda: measure_separately(trained, clips))
        runs = processor_seconds(lambda: measure_in_runs(trained, clips, Path(folder, "runs")))
        run = processor_seconds(lambda: measure_together(trained, clips, Path(folder, "run")))
    print(f"passes {apart:.1f} s, separate runs {runs:.1f} s, trajectory {run:.1f} s")
    print(f"ratio to the passes {run / apart:.3f}, to the separate runs {run / runs:.3f}")


if __name__ == "__main__":
    main()
