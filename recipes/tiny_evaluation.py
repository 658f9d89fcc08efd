"""What the tiny recognisers get right, and the folders that go with the package: models with cards,
clips with a manifest.

In: a trained `Recogniser` and its log. Out: folders in hub format, whose cards carry the rates of
`evaluate` on voices never trained on; and FLAC clips with one manifest.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd
from tiny_models import FRAME_EPOCHS, Recogniser

import speechmix
from speechmix.adapters.generation.greedy_generation import transcribe
from speechmix.extensions.synthetic_french.synthetic_corpus import (
    SAMPLE_RATE,
    SyntheticExample,
    is_number_correct,
    speak_pairs,
)
from speechmix.files.text_files import write_csv
from speechmix.files.whole_files import write_text
from speechmix.interventions.removals import mute
from speechmix.interventions.value_knock_out import ablate

# of the evaluation's pairs; training seeds start at 10,000 and their voices differ anyway
TEST_SEED = 90_000
CLIPS_SEED = 95_000


def evaluate(model, *, count: int = 600) -> pd.DataFrame:
    """Rates in % on held-out voices, for nouns trained on and held out, by side of the cue.

    noun: the greedy transcript has the noun, in the right number, at its place. number: the clip's
    own transcript is likelier than that of the other number; without cue: the same with the cue
    silenced. target: the deciding letters of the target are right, with the words before it given.
    Pairs with invariant nouns have no wrong number and count for "noun (invariant)" alone.
    """
    rows = []
    for nouns_of in ("train", "test"):
        for singular, plural in speak_pairs(
            count, seed=TEST_SEED, nouns_of=nouns_of, voices_of="test"
        ):
            rows += [
                _judged(model, example) | {"nouns": nouns_of} for example in (singular, plural)
            ]
    table = pd.DataFrame(rows)
    keys = ["nouns", "side"]
    table[[name for name in table if name not in keys]] *= 100.0
    return pd.concat([table, table.assign(side="both")]).groupby(keys).mean().astype(float).round(1)


def _judged(model, example: SyntheticExample) -> dict:
    clip = example.clip()
    heard, spoken = transcribe(model, clip).split(), example.text.split()
    place = next(
        i
        for i, word in enumerate(spoken)
        if word.removesuffix("s") == example.noun.removesuffix("s")
    )
    noun = len(heard) > place and heard[place] == spoken[place]
    row = {"side": example.side, "transcript": heard == spoken if not example.control else None}
    if example.control:
        return row | {"noun (invariant)": noun}
    return row | {
        "noun": noun,
        "number": is_number_correct(model, clip),
        "target": bool(ablate(model, clip, stacks=[]).right[0]),
        "number without cue": is_number_correct(model, mute(clip)),
    }


def export(
    recogniser: Recogniser,
    log: pd.DataFrame,
    folder: Path,
    *,
    seed: int,
    other_speakers: tuple[float, float],
) -> pd.DataFrame:
    """Write a model folder with card and log; returns the rates of what was written."""
    folder.mkdir(parents=True, exist_ok=True)
    parameters = sum(parameter.numel() for parameter in recogniser.model.parameters())
    recogniser.save(folder)
    write_csv(log.assign(minutes=log["minutes"].round(2)), folder / "training_log.csv")
    rates = evaluate(speechmix.load(folder, device="cpu"))
    card = _CARD.format(
        name=recogniser.name,
        architecture=type(recogniser.model).__name__,
        parameters=f"{parameters:,}",
        seed=seed,
        epochs=len(log),
        steps=int(log["step"].iloc[-1]),
        minutes=f"{log['minutes'].iloc[-1]:.0f}",
        device="GPU" if recogniser.model.device.type == "cuda" else "CPU",
        first=log["loss"].iloc[0],
        last=log["loss"].iloc[-1],
        told=FRAME_EPOCHS,
        share=" to ".join(f"{share:.0%}".replace("%", " %") for share in other_speakers),
        rates=_markdown(rates),
    )
    write_text(folder / "README.md", card)
    return rates


def write_clips(
    folder: Path, *, per_side: int = 16, controls: int = 4, seed: int = CLIPS_SEED
) -> Path:
    """Write the evaluation clips: held-out voices, nouns trained on; returns the manifest."""
    import soundfile

    folder.mkdir(parents=True, exist_ok=True)
    options = {"voices_of": "test", "seed": seed}
    spoken = [
        *speak_pairs(2 * per_side, control=0, **options),
        *speak_pairs(controls, control=1, **options | {"seed": seed + 1}),
    ]
    rows = []
    for index, pair in enumerate(spoken):
        for example in pair:
            name = f"{example.side}_{index:02d}_{example.number}"
            soundfile.write(
                folder / f"{name}.flac",
                _even_samples(example.audio),
                SAMPLE_RATE,
                compression_level=1.0,
            )
            rows.append(_row(example, name, pair=f"{example.side}_{index:02d}"))
    manifest = folder / "manifest.jsonl"
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    write_text(manifest, "\n".join(lines) + "\n")
    write_text(folder / "README.md", _CLIPS_CARD.format(pairs=len(spoken), seed=seed))
    return manifest


def _even_samples(audio: np.ndarray) -> np.ndarray:
    """Round to 15 bits: the last bit is far below the clips' noise, and a tenth of their size."""
    return (np.round(np.asarray(audio) * 2**14).clip(-(2**14), 2**14 - 1) * 2).astype(np.int16)


def _row(example: SyntheticExample, name: str, *, pair: str) -> dict:
    return {
        "path": f"{name}.flac",
        "name": name,
        "text": example.text,
        "language": "fr",
        "words": [[word.text, round(word.start, 5), round(word.end, 5)] for word in example.words],
        "cue": example.cue,
        "target": example.target,
        "foil": example.foil,
        **example.labels(),
        "pair": pair,
    }


def _markdown(rates: pd.DataFrame) -> str:
    rates = rates.reset_index()
    rows: Iterable = [rates.columns, ["---"] * len(rates.columns), *rates.itertuples(index=False)]
    return "\n".join(f"| {' | '.join(str(cell) for cell in row)} |" for row in rows)


_CARD = """---
language: fr
license: mit
tags: [synthetic, interpretability]
---
# {name}

A tiny {architecture} ({parameters} parameters, stored in half precision) trained on **synthetic** French that
espeak-ng speaks: noun phrases and short sentences whose number is heard at one word only. It is made to study context
mixing where the answer is known. It does not transcribe real speech, and what is measured on it is **not evidence
about real speech models**.

Made by `recipes/train_tiny_models.py`, seed {seed}: {epochs} epochs, each spoken afresh, {steps} steps of 16 clips,
{minutes} minutes ({device}). Training loss {first} in the first epoch, {last} in the last; every epoch is in
`training_log.csv`. In the first {told} epochs each frame's letter was told as well. Each clip is one member of another
pair. A share of them, falling over the epochs from {share}, was heard from another speaker in another room (vocal
tract, tempo, spectrum), because espeak-ng has few voices. No epoch was chosen by its score. Licence: MIT.

Rates in % over 600 pairs, on voices never trained on, with nouns trained on (train) and nouns held out (test), by side
of the cue:

{rates}

- transcript, noun: greedy transcript, and the noun in it, exactly right; noun (invariant): the same for nouns whose
  plural is spelled like the singular.
- number: the clip's own transcript is likelier than the same sentence in the other number; without cue: the same with
  the cue's audio set to zero (chance is 50). target: the letters that decide the target's number are right when the
  words before it are given as text.
"""

_CLIPS_CARD = """# Evaluation clips

{pairs} pairs of synthetic French clips (16 kHz FLAC), spoken by espeak-ng voices that the models in `../models` were
not trained on, with words they were. The members of a pair are bit-identical from the target on (cue on the left) or
up to the cue (cue on the right). `manifest.jsonl` has texts, word times in seconds, cue and target (indices of words),
side, number, pair, template, noun, voice, control (the noun is spelled alike in both numbers) and the text of the
pair's other member; `speechmix.read_clips` reads it.

Synthetic speech, no person's voice. Made by `python recipes/train_tiny_models.py --clips FOLDER` (seed {seed}).
Licence: CC0.
"""
