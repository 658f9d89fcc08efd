"""What speechmix gives and costs on a GPU: its tests, agreement with the CPU, time and memory.

    python benchmarks/gpu.py [--out gpu.json] [--seconds 420] [--golden ../shared/golden/speech]
    python benchmarks/gpu.py --dry-run

Out: one JSON file with the card's name, versions and each figure, and a table of the figures that
have a goal. The models have Whisper's shapes and random weights; clips are 3 s of noise with eight
words at fixed times. "Forward" is the plain pass of the same clips, in the same batches, with inputs
ready on the device; `mix` also makes the features. Clips that the time does not allow are
extrapolated from those timed. `--dry-run` does all of it on the CPU, with tiny shapes. The fastest
check that a GPU gives right scores is `--parts agreement`. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import itertools
import json
import platform
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import torch
import transformers
from study import model_of, seconds

import speechmix
from speechmix.adapters.model import Model
from speechmix.files.timing import Seconds, timed_phases
from speechmix.inputs import bundled
from speechmix.mixing.passes.batches import clips_per_pass, pad_batch, split_into_groups
from speechmix.runs.score_clips import score_clips

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("tests", "agreement", "twins", "frames", "clips")
CLIP_COUNT, WORD_COUNT, CLIP_SECONDS = 1000, 8, 3.0
CHUNK = 64  # clips between two looks at the clock
TOLERANCES = {"float32": 1e-5, "float64": 1e-9}  # of a map's largest score
CHECKED_MEASURES = ("value_zeroing", "attention", "attention_norm", "alti")
GOLDEN_SPANS = [(7, 21), (21, 40), (45, 60)]
TWIN_COUNT, TWIN_CLIP_COUNT = 9, 80
ENCODER, ALL_STACKS = ("encoder",), ("encoder", "decoder", "cross")
# Shape, stacks, product_dtype, clips at most. Those of one shape share a model.
CASES = (
    ("medium", ENCODER, None, CLIP_COUNT),
    ("medium", ALL_STACKS, None, CLIP_COUNT),
    ("medium", ENCODER, "tf32", 2 * CHUNK),
    ("medium", ALL_STACKS, "tf32", 2 * CHUNK),
    ("small", ENCODER, None, CLIP_COUNT),
    ("small", ALL_STACKS, None, CLIP_COUNT),
)
DRY_CASES = (("nano", ENCODER, None, 2), ("nano", ALL_STACKS, "bfloat16", 2))


def gpu_tests(device: str, dry_run: bool) -> dict:
    """Run the tests marked `gpu`, of the files that have some."""
    files = [
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        if "pytest.mark.gpu" in path.read_text(encoding="utf-8")
    ]
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-m", "gpu", *files]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    lines = finished.stdout.splitlines()
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    return {"summary": lines[-1] if lines else finished.stderr[-2000:], "failed": failed}


def checked_models(golden: Path) -> Iterator[tuple[str, Path, list, dict]]:
    """Name, folder, items and options of `mix` of small models: the bundled ones, the golden ones
    where they are."""
    for name, folder in bundled.models().items():
        yield name, folder, bundled.clips()[:3], {}
    known = {"input_values", "input_features", "decoder_input_ids"}
    for folder in sorted(path for path in golden.glob("*") if path.is_dir()):
        with np.load(golden / f"{folder.name.split('_')[0]}_inputs.npz") as file:
            inputs = {name: torch.as_tensor(file[name]) for name in known & set(file)}
        if "input_values" in inputs:
            inputs["attention_mask"] = torch.ones(inputs["input_values"].shape, dtype=torch.long)
        yield f"golden {folder.name}", folder, [inputs], {"spans": GOLDEN_SPANS}


def agreement(device: str, golden: Path) -> list[dict]:
    """How far scores on the device are from those on the CPU: the largest difference of each
    measure, as a share of its map's largest score."""
    rows = []
    for name, folder, items, options in checked_models(golden):
        here, there = (speechmix.load(folder, device=place) for place in ("cpu", device))
        for dtype, tolerance in TOLERANCES.items():
            asked = {"measures": CHECKED_MEASURES, "dtype": dtype, **options}
            differences = dict.fromkeys(CHECKED_MEASURES, 0.0)
            for item in items:
                expected, found = (speechmix.mix(model, item, **asked) for model in (here, there))
                for (measure, stack), reference in expected.items():
                    difference = np.abs(found[measure, stack].scores - reference.scores).max()
                    share = float(difference / np.abs(reference.scores).max())
                    differences[measure] = max(differences[measure], share)
            rows.append(
                {
                    "model": name,
                    "dtype": dtype,
                    "differences": differences,
                    "agrees": all(value <= tolerance for value in differences.values()),
                }
            )
    return rows


def twins(device: str, dry_run: bool) -> dict[str, float]:
    """Seconds of a run of nine untrained twins of a bundled model over 80 clips, on the device and
    on the CPU (there from a quarter of the clips)."""
    model_count, clip_count = (2, 4) if dry_run else (TWIN_COUNT, TWIN_CLIP_COUNT)
    source, bundled_clips = bundled.models()["tiny-french-whisper"], bundled.clips()
    clips = [
        bundled_clips[number % len(bundled_clips)].replace(name=f"{number:03d}")
        for number in range(clip_count)
    ]
    taken = {}
    for place, part in {"cpu": 4, device: 1}.items():
        load = partial(speechmix.load, source, init="random", device=place)
        speechmix.mix(load(seed=99), clips[:1])  # what only the first model of a process costs
        with tempfile.TemporaryDirectory() as folder:
            loads = [partial(load, seed=seed) for seed in range(model_count)]
            run = partial(score_clips, loads, clips[::part], folder)
            taken[place] = part * seconds(
                partial(run, figures=0, progress=False, report=str), place
            )
    return taken


def noise_clips(count: int, seed: int) -> list[speechmix.Clip]:
    """Clips of noise, all different, with words of one letter at fixed times."""
    numbers, length = np.random.default_rng(seed), CLIP_SECONDS / WORD_COUNT
    words = [
        speechmix.Word("a", index * length, (index + 1) * length) for index in range(WORD_COUNT)
    ]
    return [
        speechmix.Clip.from_array(
            numbers.standard_normal(int(16_000 * CLIP_SECONDS)).astype(np.float32) / 10,
            16_000,
            words=words,
            language="fr",
            name=f"{seed}_{number}",
        )
        for number in range(count)
    ]


def prepared_batches(model: Model, clips: list[speechmix.Clip], stacks: tuple[str, ...]) -> list:
    """Inputs of the plain forward pass, on the device, batched as `mix` does."""
    prepared = [model.family.prepare(model, clip, stacks).inputs for clip in clips]
    return [
        {name: tensor.to(model.device) for name, tensor in pad_batch(model, group).items()}
        for group in split_into_groups(prepared, clips_per_pass(model))
    ]


def forward(model: Model, batches: list, stacks: tuple[str, ...]) -> None:
    with torch.no_grad():
        for inputs in batches:
            model.family.run(model.base, inputs, stacks)


def time_case(
    model: Model, stacks: tuple[str, ...], chosen: dict, most: int, allowed: float
) -> dict:
    """Seconds of word maps of 1,000 clips and of their forward passes, which take turns."""
    device, chunk = model.device.type, min(CHUNK, most)
    scored = partial(speechmix.mix, model, stacks=stacks, **chosen)
    warm = noise_clips(clips_per_pass(model), 0)
    forward(model, prepared_batches(model, warm, stacks), stacks)
    scored(warm)
    began, timed, taken = time.perf_counter(), 0, dict.fromkeys(("features", "forward", "maps"), 0)
    while timed == 0 or (timed < most and time.perf_counter() - began < allowed):
        clips, batches = noise_clips(chunk, 1 + timed), []
        taken["features"] += seconds(
            lambda clips=clips, batches=batches: batches.extend(
                prepared_batches(model, clips, stacks)
            ),
            device,
        )
        taken["forward"] += seconds(partial(forward, model, batches, stacks), device)
        taken["maps"] += seconds(partial(scored, clips), device)
        timed += chunk
    counted = Seconds()  # where the time of maps goes, waiting for the device behind each phase
    counted.settle = torch.cuda.synchronize if device == "cuda" else None
    with timed_phases(counted):
        scored(warm)
    return {
        "clips_timed": timed,
        "clips_at_once": clips_per_pass(model),
        **{f"{name}_ms_a_clip": 1000 * total / timed for name, total in taken.items()},
        "seconds_of_1000_clips": CLIP_COUNT * taken["maps"] / timed,
        "forward_seconds_of_1000_clips": CLIP_COUNT * taken["forward"] / timed,
        "times_the_forward_passes": taken["maps"] / taken["forward"],
        "phases_ms_a_clip": {
            name: 1000 * total / len(warm) for name, total in counted.by_phase.items()
        },
        "peak_mib": {
            "weights": allocated(device) / 2**20,
            "forward, one batch": peak_mib(lambda: forward(model, batches[:1], stacks), device),
            "word maps, one batch": peak_mib(lambda: scored(warm), device),
            "word maps, one clip": peak_mib(lambda: scored(warm[0]), device),
        },
    }


def allocated(device: str) -> int:
    return torch.cuda.memory_allocated() if device == "cuda" else 0


def peak_mib(work: Callable[[], object], device: str) -> float | None:
    """MiB on the GPU beyond what is there already."""
    if device != "cuda":
        work()
        return None
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    work()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def frame_map(model: Model, product_dtype: str | None, dry_run: bool) -> dict:
    """Seconds of one layer's map of all 1,500 frames beyond a pass that asks for one row, and
    memory."""
    inputs = {"input_features": torch.randn(1, model.config.num_mel_bins, 3000)}
    layer = model.config.encoder_layers // 2
    scored = partial(
        speechmix.mix, model, inputs, stacks="encoder", layers=[layer], product_dtype=product_dtype
    )
    one, every = partial(scored, targets=[0]), partial(scored, targets=[0, 1] if dry_run else None)
    device = model.device.type
    one(), every()
    taken = [min(seconds(work, device) for _ in range(3)) for work in (one, every)]
    return {"seconds_a_layer": taken[1] - taken[0], "peak_mib": peak_mib(every, device)}


def report(figures: dict) -> None:
    """Print the figures that have a goal."""
    rows = [("tests marked gpu", figures["tests"]["summary"], "")] if "tests" in figures else []
    for row in figures.get("agreement", []):
        worst = max(row["differences"].values())
        rows.append(
            (
                f"GPU - CPU, {row['model']}, {row['dtype']}",
                f"{worst:.0e}",
                f"{TOLERANCES[row['dtype']]:.0e}",
            )
        )
    for place, taken in figures.get("twins", {}).items():
        rows.append((f"nine twins, 80 clips, {place}", f"{taken:.1f} s", ""))
    for name, case in figures.get("frames", {}).items():
        rows.append((f"frame map, {name}", f"{case['seconds_a_layer']:.2f} s a layer", "0.25 s"))
    for name, case in figures.get("clips", {}).items():
        timed = f"{case['seconds_of_1000_clips']:.0f} s ({case['clips_timed']} timed)"
        rows.append((f"1,000 clips, {name}", timed, "120 s"))
        rows.append(
            ("  times the forward passes", f"{case['times_the_forward_passes']:.2f}", "1.3")
        )
    print("| figure | measured | goal |\n|---|--:|--:|")
    for row in rows:
        print(f"| {' | '.join(row)} |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("gpu.json"))
    parser.add_argument("--seconds", type=float, default=420, help="for all of it, about")
    parser.add_argument("--golden", type=Path, default=ROOT.parent / "shared" / "golden" / "speech")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--dry-run", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    end = time.perf_counter() + options.seconds
    device = "cpu" if options.dry_run else "cuda"
    figures: dict = {
        "card": "none (dry run)" if options.dry_run else torch.cuda.get_device_name(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "speechmix": speechmix.__version__,
    }
    print(figures, flush=True)

    def store(part: str, value: object) -> None:
        figures[part] = value
        options.out.write_text(json.dumps(figures, indent=1), encoding="utf-8")
        print(f"{part}: {end - time.perf_counter():.0f} s left", flush=True)

    if "tests" in options.parts:
        store("tests", gpu_tests(device, options.dry_run))
    if "agreement" in options.parts:
        store("agreement", agreement(device, options.golden))
    if "twins" in options.parts:
        store("twins", twins(device, options.dry_run))
    cases = DRY_CASES if options.dry_run else CASES
    for shape, of_shape in itertools.groupby(cases, key=lambda case: case[0]):
        model = model_of(shape, None, device)
        if "frames" in options.parts and shape == cases[0][0]:
            products = (None, "bfloat16") if options.dry_run else (None, "tf32", "bfloat16")
            names = [f"{shape}, {product or 'float32'} products" for product in products]
            store(
                "frames",
                {
                    name: frame_map(model, product, options.dry_run)
                    for name, product in zip(names, products, strict=True)
                },
            )
        for _, stacks, product, most in of_shape if "clips" in options.parts else ():
            done = figures.get("clips", {})
            allowed = (end - time.perf_counter()) / (len(cases) - len(done))
            chosen = {"product_dtype": product} if product else {}
            name = f"{shape}, {'all stacks' if stacks == ALL_STACKS else 'encoder'}, {product or 'float32'}"
            store("clips", {**done, name: time_case(model, stacks, chosen, most, allowed)})
    report(figures)


if __name__ == "__main__":
    main()
