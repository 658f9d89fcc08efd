"""SYNTHETIC run folders, made of numbers alone: what the page is tried on. No model was run for
them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import soundfile

from speechmix.files.cache_keys import FileMark, versions
from speechmix.files.shard_assignment import Shard
from speechmix.inputs.words.spans import Span
from speechmix.mixing.maps.map_files import labels_to_text
from speechmix.mixing.maps.mixing_map import MixingMap
from speechmix.runs.results.clip_result_files import Owner
from speechmix.runs.results.map_files import score_digests, tensor_name
from speechmix.runs.results.result_store import Key, Results
from speechmix.runs.results.run_folder import COMPLETE, RunFolder

WORDS = ("elle", "a", "perdu", "les", "livres")
RATE, TWINS = 16_000, 5
GAIN = 0.4  # that training adds to the cue's contribution in the middle layer
MIDDLE_STRENGTH, OTHERS_STRENGTH = (
    0.2,
    0.3,
)  # how far the middle layer moves the target, and all others together
WHOLE_STACK_GAIN = (
    GAIN * MIDDLE_STRENGTH / (MIDDLE_STRENGTH + OTHERS_STRENGTH)
)  # each layer weighted by its strength


def synthetic_run(
    folder: Path,
    *,
    clips: int = 6,
    layers: int = 4,
    measures: tuple[str, ...] = ("value_zeroing", "attention"),
    stacks: tuple[str, ...] = ("encoder",),
    cue: bool = True,
    value: float | None = None,
    text: str | None = None,
    mapped: int = 6,
    sound: bool = True,
    models: tuple[str, ...] = ("synthetic",),
    seconds: float | Sequence[float] = 1.0,
    pairs: bool = True,
    twins: int = TWINS,
    provenance: Mapping[str, Any] | None = None,
) -> Path:
    """Write a run: trained contributions rise by `GAIN` in the middle, random ones are flat.

    The first `mapped` clips have maps. With 5 `twins` and 15 groups of clips
    differences can be claimed. `value` stands for every contribution and score (NaN), `text`
    for every transcript. `provenance` replaces entries of the provenance of the first clip's
    trained maps.
    """
    rng = np.random.default_rng(7)
    folder.mkdir(parents=True)
    run, rows, table = RunFolder(folder), [], []
    owners = {
        (model, seed): Owner(
            model, init, seed, model if seed is None else f"{model} (random {seed})", "synthetic"
        )
        for model in models
        for init, seed in (("trained", None), ("random", 0))[: 1 + (twins > 0)]
    }
    results = {who: Results(run, owner, Shard(), print) for who, owner in owners.items()}
    for number in range(clips):
        name = f"clip_{number:04d}"
        path = folder / "sound" / f"{name}.wav"
        has_sound = sound and number < mapped
        duration = seconds if isinstance(seconds, (int, float)) else seconds[number]
        rows.append(
            {
                "clip": name,
                "seconds": duration,
                "text": text or " ".join(WORDS),
                "cue": "les" if cue else "",
                "target": "livres" if cue else "",
                "foil": "",
                "alignment": "given",
                "doubts": "",
                "number": ("sg", "pl")[number % 2],
                **({"pair": f"pair_{number // 2}", "lemma": f"w{number // 2}"} if pairs else {}),
                "audio_file": str(path) if has_sound else "",
                "sound": "",
            }
        )
        if has_sound:
            _write_sound(path, duration)
        for model in models:
            for init, seed in (("trained", None), *(("random", seed) for seed in range(twins))):
                if number < mapped and seed in (None, 0):
                    changed = provenance if number == 0 and init == "trained" else None
                    maps = _maps(
                        rows[-1],
                        model,
                        init,
                        seed,
                        layers,
                        measures,
                        stacks,
                        cue,
                        value,
                        rng,
                        changed or {},
                    )
                    _put(results[model, seed], name, maps)
                if cue:
                    table += _contributions(
                        name, model, init, seed, layers, measures, stacks, value, rng
                    )
    pd.DataFrame(rows).to_csv(folder / "clips.csv", index=False)
    if cue:
        pd.DataFrame(table).astype({"seed": "Int64"}).to_parquet(
            folder / "cue_contribution.parquet"
        )
    skipped = [{"clip": "broken", "model": "", "reason": "no such file"}]
    pd.DataFrame(skipped).to_csv(folder / "skipped.csv", index=False)
    for of_model in results.values():
        of_model.write()
    done = min(clips, mapped) * len(results)
    parts = {path.relative_to(folder).as_posix(): FileMark.of(path) for path in run.part_files()}
    described = {"options": {"measures": list(measures)}, "versions": versions(), "state": COMPLETE}
    (folder / "run.json").write_text(json.dumps({**described, "done": done, "parts": parts}))
    return folder


def _write_sound(path: Path, seconds: float) -> None:
    """The same rising tone for every clip of a length: written once, then copied."""
    frames = round(RATE * seconds)
    for former in path.parent.glob("*.wav"):
        if soundfile.info(former).frames == frames:
            shutil.copy(former, path)
            return
    path.parent.mkdir(exist_ok=True)
    times = np.arange(frames) / RATE
    soundfile.write(path, 0.3 * np.sin(2 * np.pi * (200 + 300 * times) * times), RATE)


def _contributions(name, model, init, seed, layers, measures, stacks, value, rng) -> list[dict]:
    return [
        {
            "clip": name,
            "model": model,
            "init": init,
            "seed": seed,
            "cue": "les",
            "target": "livres",
            "stack": stack,
            "measure": measure,
            "rows": "target",
            "layer": layer,
            "depth": layer / max(layers - 1, 1),
            "contribution": value
            if value is not None
            else float(
                np.clip(
                    0.2
                    + (GAIN * (layer == layers // 2) if init == "trained" else 0)
                    + rng.normal(0, 0.04),
                    0,
                    1,
                )
            ),
            "mixing_strength": MIDDLE_STRENGTH
            if layer == layers // 2
            else OTHERS_STRENGTH / (layers - 1),
            "share_of_length": 0.2,
            "length_matched": 0.15,
        }
        for stack in stacks
        for measure in measures
        for layer in range(layers)
    ]


def _maps(
    row, model, init, seed, layers, measures, stacks, cue, value, rng, changed
) -> list[MixingMap]:
    words = row["text"].split()[:12] or ["x"]
    edges = np.linspace(0.1, 0.9, len(words) + 1) * row["seconds"]
    units = tuple(
        Span(5 * i, 5 * i + 5, word, "word", i, float(edges[i]), float(edges[i + 1]))
        for i, word in enumerate(words)
    )
    target = len(words) - 1
    provenance = {
        "model": model,
        "init": init,
        "seed": seed,
        "weights": "synthetic",
        "text": row["text"],
        "foil": None,
        "words": [[word, float(edges[i]), float(edges[i + 1])] for i, word in enumerate(words)],
        "cue": target - 1 if cue and target else None,
        "target": target if cue and target else None,
        "alignment": "given",
        **changed,
    }
    maps = []
    for stack in stacks:
        for measure in measures:
            scores = rng.gamma(0.7, 1.0, (layers, len(units), len(units)))
            if value is not None:
                scores[:] = value
            maps.append(
                MixingMap(scores, units, units, measure, stack, tuple(range(layers)), provenance)
            )
    return maps


def _put(results: Results, clip: str, maps: list[MixingMap]) -> None:
    """Store maps as a run stores those of frames: scores in a shard, labels in a row for each
    measure."""
    for measure in dict.fromkeys(found.measure for found in maps):
        of_measure = [found for found in maps if found.measure == measure]
        labels = [
            labels_to_text(found)
            | {
                "dtype": "float64",
                "shape": found.scores.shape,
                "digests": score_digests(found.scores, "float64"),
            }
            for found in of_measure
        ]
        tensors = {
            tensor_name(clip, measure, found.stack): (found.scores, "float64")
            for found in of_measure
        }
        results.put(Key(clip, measure, "synthetic"), content=json.dumps(labels), tensors=tensors)
