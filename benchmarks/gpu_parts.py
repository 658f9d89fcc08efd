"""The parts of `gpu.py` that need speechmix: agreement with the CPU, time and memory.

The models have Whisper's shapes and random weights; clips are 3 s of noise with eight words at fixed
times. "Forward" is the plain pass of the same clips, in the same batches, with inputs ready on the
device; maps also make the features. 1,000 clips are extrapolated from those that the time allows.
Each part is a generator of names and figures.
"""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import transformers
from study import model_of, seconds

# Transformers imports these when they are first used; here, once for all parts.
from transformers import Wav2Vec2ForCTC, WhisperForConditionalGeneration  # noqa: F401

import speechmix
from speechmix.adapters.model import Model
from speechmix.files.timing import Seconds, timed_phases
from speechmix.inputs import bundled
from speechmix.mixing.passes.batches import clips_per_pass, pad_batch, split_into_groups
from speechmix.runs.score_clips import score_clips

Figures = Iterator[tuple[str, Any]]
CLIP_COUNT, WORD_COUNT, CLIP_SECONDS = 1000, 8, 3.0
CHUNK = 32  # clips between two looks at the clock
TOLERANCES = {"float32": 1e-5, "float64": 1e-9}  # of a map's largest score
CHECKED_MEASURES = ("value_zeroing", "attention", "attention_norm", "alti")
GOLDEN_SPANS = [(7, 21), (21, 40), (45, 60)]
TWIN_COUNT, TWIN_CLIP_COUNT = 40, 20
ENCODER, ALL_STACKS = ("encoder",), ("encoder", "decoder", "cross")
DRY_CARD = SimpleNamespace(  # what is asked of torch.cuda, so that a dry run leaves out no line
    get_device_name=lambda: "none (dry run)",
    get_device_capability=lambda: (0, 0),
    mem_get_info=lambda: (0, 0),
    synchronize=lambda: None,
    reset_peak_memory_stats=lambda: None,
    memory_allocated=lambda: 0,
    max_memory_allocated=lambda: 0,
)


def parts(golden: Path, dry_run: bool) -> dict[str, Callable[[float], Figures]]:
    """Each part by its name, as a function of the seconds that it has."""
    warnings.simplefilter("ignore")
    device = "cpu" if dry_run else "cuda"
    if dry_run:
        torch.set_num_threads(1)  # tiny products: threads would only wait for each other
    card: Any = DRY_CARD if dry_run else torch.cuda
    given = {"device": device, "card": card, "dry_run": dry_run}
    return {
        "machine": lambda limit: machine(card),
        "agreement": lambda limit: agreement(golden, device, dry_run),
        "clips, medium": partial(clips, "nano" if dry_run else "medium", **given),
        "clips, small": partial(clips, "nano" if dry_run else "small", **given),
        "frame map": lambda limit: frame_maps("nano" if dry_run else "medium", **given),
        "twins": lambda limit: twins(device, dry_run),
    }


def machine(card: Any) -> Figures:
    yield "card", card.get_device_name()
    yield "compute_capability", card.get_device_capability()
    yield "gpu_gib", card.mem_get_info()[1] / 2**30
    yield "cuda", torch.version.cuda
    for package in (torch, transformers, np, speechmix):
        yield package.__name__, str(package.__version__)


def checked_models(golden: Path) -> Iterator[tuple[str, Path, list, dict]]:
    """Name, folder, items and options of `mix` of small models: the golden ones, the bundled ones."""
    known = {"input_values", "input_features", "decoder_input_ids"}
    for folder in sorted(path for path in golden.glob("*") if path.is_dir()):
        with np.load(golden / f"{folder.name.split('_')[0]}_inputs.npz") as file:
            inputs = {name: torch.as_tensor(file[name]) for name in known & set(file)}
        if "input_values" in inputs:
            inputs["attention_mask"] = torch.ones(inputs["input_values"].shape, dtype=torch.long)
        yield f"golden {folder.name}", folder, [inputs], {"spans": GOLDEN_SPANS}
    for name, folder in bundled.models().items():
        yield name, folder, bundled.clips()[:3], {}


def agreement(golden: Path, device: str, dry_run: bool) -> Figures:
    """How far scores on the device are from those on the CPU: the largest difference of each
    measure, as a share of its map's largest score."""
    yield "golden files", "compared" if golden.is_dir() else f"skipped: {golden} is not there"
    models = [
        model for model in checked_models(golden) if not dry_run or not model[0].endswith("whisper")
    ]
    for name, folder, items, options in models:
        here, there = (speechmix.load(folder, device=place) for place in ("cpu", device))
        for dtype, tolerance in TOLERANCES.items():
            asked = {"measures": CHECKED_MEASURES, "dtype": dtype, **options}
            differences = dict.fromkeys(CHECKED_MEASURES, 0.0)
            for item in items[:1] if dry_run else items:
                expected, found = (speechmix.mix(model, item, **asked) for model in (here, there))
                for (measure, stack), reference in expected.items():
                    difference = np.abs(found[measure, stack].scores - reference.scores).max()
                    share = float(difference / np.abs(reference.scores).max())
                    differences[measure] = max(differences[measure], share)
            agrees = all(value <= tolerance for value in differences.values())
            yield f"{name}, {dtype}", {"differences": differences, "agrees": agrees}


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


def clips(shape: str, limit: float, device: str, card: Any, dry_run: bool) -> Figures:
    """Word maps of 1,000 clips and their forward passes: the encoder, all stacks, then the same in
    TF32 (dry run: bfloat16)."""
    end = (
        time.perf_counter() + 0.9 * limit
    )  # the rest is for what follows the last look at the clock
    model = model_of(shape, None, device)
    yield "weights_mib", card.memory_allocated() / 2**20
    fast = "bfloat16" if dry_run else "tf32"
    cases = [(stacks, product) for product in (None, fast) for stacks in (ENCODER, ALL_STACKS)]
    for number, (stacks, product) in enumerate(cases):
        allowed = (end - time.perf_counter()) / (len(cases) - number)
        name = f"{'all stacks' if stacks == ALL_STACKS else 'encoder'}, {product or 'float32'}"
        if allowed <= 0:
            yield name, "skipped: the time of this part is used up"
            continue
        chosen = {"measures": f"value_zeroing:product_dtype={product}"} if product else {}
        most = 2 if dry_run else CLIP_COUNT
        yield name, time_case(model, stacks, chosen, most, allowed, card)


def time_case(
    model: Model, stacks: tuple[str, ...], chosen: dict, most: int, allowed: float, card: Any
) -> dict:
    """Seconds of word maps and of forward passes, which take turns, and the memory of both."""
    began, device, chunk = time.perf_counter(), model.device.type, min(CHUNK, most)
    scored = partial(speechmix.mix, model, stacks=stacks, **chosen)
    warm = noise_clips(clips_per_pass(model), 0)
    batches = prepared_batches(model, warm, stacks)
    forward(model, batches, stacks)
    scored(warm)
    memory = {
        "forward, one batch": peak_mib(lambda: forward(model, batches, stacks), card),
        "word maps, one batch": peak_mib(lambda: scored(warm), card),
        "word maps, one clip": peak_mib(lambda: scored(warm[0]), card),
    }
    counted = Seconds()  # where the time of maps goes, waiting for the device behind each phase
    counted.settle = card.synchronize
    with timed_phases(counted):
        scored(warm)
    timed, taken = 0, dict.fromkeys(("forward", "maps"), 0.0)
    while timed == 0 or (timed < most and time.perf_counter() - began < allowed):
        clips = noise_clips(chunk, 1 + timed)
        batches = prepared_batches(model, clips, stacks)
        taken["forward"] += seconds(partial(forward, model, batches, stacks), device)
        taken["maps"] += seconds(partial(scored, clips), device)
        timed += chunk
    return {
        "clips_timed": timed,
        "clips_at_once": clips_per_pass(model),
        "forward_seconds_of_1000_clips": CLIP_COUNT * taken["forward"] / timed,
        "seconds_of_1000_clips": CLIP_COUNT * taken["maps"] / timed,
        "times_the_forward_passes": taken["maps"] / taken["forward"],
        "phases_ms_a_clip": {
            name: 1000 * total / len(warm) for name, total in counted.by_phase.items()
        },
        "peak_mib": memory,
    }


def peak_mib(work: Callable[[], object], card: Any) -> float:
    """MiB on the GPU beyond what is there already."""
    card.synchronize()
    card.reset_peak_memory_stats()
    before = card.memory_allocated()
    work()
    card.synchronize()
    return (card.max_memory_allocated() - before) / 2**20


def frame_maps(shape: str, device: str, card: Any, dry_run: bool) -> Figures:
    """Seconds of one encoder layer's map of all 1,500 frames beyond a pass that asks for one row,
    and memory."""
    model = model_of(shape, None, device)
    inputs = {"input_features": torch.randn(1, model.config.num_mel_bins, 3000)}
    layer = model.config.encoder_layers // 2
    for product in (None, "bfloat16") if dry_run else (None, "tf32", "bfloat16"):
        measure = f"value_zeroing:product_dtype={product}" if product else "value_zeroing"
        asked = {"stacks": "encoder", "layers": [layer], "measures": measure}
        one = partial(speechmix.mix, model, inputs, targets=[0], **asked)
        every = partial(speechmix.mix, model, inputs, targets=[0, 1] if dry_run else None, **asked)
        one(), every()
        taken = [min(seconds(work, device) for _ in range(3)) for work in (one, every)]
        memory = peak_mib(every, card)
        yield product or "float32", {"seconds_a_layer": taken[1] - taken[0], "peak_mib": memory}


def twins(device: str, dry_run: bool) -> Figures:
    """A run of 40 untrained twins of a bundled model over 20 clips, and four of them on the CPU."""
    source = bundled.models()["tiny-french-whisper"]
    clips = bundled.clips()[: 2 if dry_run else TWIN_CLIP_COUNT]
    for place, count in {device: TWIN_COUNT, "cpu": TWIN_COUNT // 10}.items():
        load = partial(speechmix.load, source, init="random", device=place)
        speechmix.mix(load(seed=99), clips[:1])  # what only the first model of a process costs
        loads = [partial(load, seed=seed) for seed in range(2 if dry_run else count)]
        with tempfile.TemporaryDirectory() as folder:
            run = partial(score_clips, loads, clips, folder, figures=0, progress=False, report=str)
            taken = seconds(run, place)
        yield (
            f"{len(loads)} twins, {len(clips)} clips, {place}",
            {"seconds": taken, "ms_a_twin_and_clip": 1000 * taken / len(loads) / len(clips)},
        )
