"""SYNTHETIC run folders, made of numbers alone: what the page is tried on. No model was run for them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import soundfile

from speechmix.inputs.spans import Span
from speechmix.maps.mixing import MixingMap
from speechmix.versions import versions

WORDS = ("elle", "a", "perdu", "les", "livres")
RATE, TWINS = 16_000, 5
GAIN = 0.4  # that training adds to the cue's contribution in the middle layer
MIDDLE_STRENGTH, OTHERS_STRENGTH = 0.2, 0.3  # how far the middle layer moves the target, and all others together
WHOLE_STACK_GAIN = GAIN * MIDDLE_STRENGTH / (MIDDLE_STRENGTH + OTHERS_STRENGTH)  # each layer weighted by its strength


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
    seconds: float = 1.0,
    pairs: bool = True,
    twins: int = TWINS,
) -> Path:
    """Write a run: trained contributions rise by `GAIN` in the middle, random ones are flat.

    The first `mapped` clips have maps. With 39 `twins` (`rank_test.TWINS_NEEDED`) and 8 groups of clips differences can be
    claimed. `value` stands for every contribution and score (NaN), `text` for every transcript.
    """
    rng = np.random.default_rng(7)
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({"options": {"measures": list(measures)}, "versions": versions()}))
    rows, table = [], []
    for number in range(clips):
        name = f"clip_{number:04d}"
        path = folder / "sound" / f"{name}.wav"
        has_sound = sound and number < mapped
        rows.append(
            {
                "clip": name, "seconds": seconds, "text": text or " ".join(WORDS), "cue": "les" if cue else "",
                "target": "livres" if cue else "", "foil": "", "alignment": "given", "doubts": "",
                "number": ("sg", "pl")[number % 2],
                **({"pair": f"pair_{number // 2}", "lemma": f"w{number // 2}"} if pairs else {}),
                "audio_file": str(path) if has_sound else "",
            }
        )  # fmt: skip
        if has_sound:
            _write_sound(path, seconds)
        for model in models:
            for init, seed in (("trained", None), *(("random", seed) for seed in range(twins))):
                if number < mapped and seed in (None, 0):
                    _write_maps(folder, rows[-1], model, init, seed, layers, measures, stacks, cue, value, rng)
                if cue:
                    table += _contributions(name, model, init, seed, layers, measures, stacks, value, rng)
    pd.DataFrame(rows).to_csv(folder / "clips.csv", index=False)
    if cue:
        pd.DataFrame(table).astype({"seed": "Int64"}).to_parquet(folder / "cue_contribution.parquet")
    skipped = [{"clip": "broken", "model": "", "reason": "no such file"}]
    pd.DataFrame(skipped).to_csv(folder / "skipped.csv", index=False)
    return folder


def _write_sound(path: Path, seconds: float) -> None:
    """The same rising tone for every clip: written once, then copied."""
    first = next(path.parent.glob("*.wav"), None)
    if first is not None:
        shutil.copy(first, path)
        return
    path.parent.mkdir(exist_ok=True)
    times = np.arange(int(RATE * seconds)) / RATE
    soundfile.write(path, 0.3 * np.sin(2 * np.pi * (200 + 300 * times) * times), RATE)


def _contributions(name, model, init, seed, layers, measures, stacks, value, rng) -> list[dict]:
    return [
        {
            "clip": name, "model": model, "init": init, "seed": seed, "cue": "les", "target": "livres", "stack": stack,
            "measure": measure, "rows": "target", "layer": layer, "depth": layer / max(layers - 1, 1),
            "contribution": value if value is not None else float(
                np.clip(0.2 + (GAIN * (layer == layers // 2) if init == "trained" else 0) + rng.normal(0, 0.04), 0, 1)
            ),
            "mixing_strength": MIDDLE_STRENGTH if layer == layers // 2 else OTHERS_STRENGTH / (layers - 1),
            "share_of_length": 0.2, "length_matched": 0.15,
        }
        for stack in stacks for measure in measures for layer in range(layers)
    ]  # fmt: skip


def _write_maps(folder, row, model, init, seed, layers, measures, stacks, cue, value, rng) -> None:
    words = row["text"].split()[:12] or ["x"]
    edges = np.linspace(0.1, 0.9, len(words) + 1) * row["seconds"]
    units = tuple(
        Span(5 * i, 5 * i + 5, word, "word", i, float(edges[i]), float(edges[i + 1])) for i, word in enumerate(words)
    )
    target = len(words) - 1
    provenance = {
        "model": model, "init": init, "seed": seed, "weights": "synthetic", "text": row["text"], "foil": None,
        "words": [[word, float(edges[i]), float(edges[i + 1])] for i, word in enumerate(words)],
        "cue": target - 1 if cue and target else None, "target": target if cue and target else None, "alignment": "given",
    }  # fmt: skip
    place = folder / "maps" / (f"{model}_random_{seed}" if init == "random" else model) / row["clip"]
    place.mkdir(parents=True)
    for stack in stacks:
        for measure in measures:
            scores = rng.gamma(0.7, 1.0, (layers, len(units), len(units)))
            if value is not None:
                scores[:] = value
            found = MixingMap(scores, units, units, measure, stack, tuple(range(layers)), provenance)
            found.save(place / f"{measure}.{stack}.safetensors")
