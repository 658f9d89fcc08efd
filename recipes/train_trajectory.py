"""Train tiny Whisper-style models whose cue becomes useful at a known step, with checkpoints.

    python recipes/train_trajectory.py --out runs/trajectory --seed 0          # a few minutes on a CPU
    python recipes/train_trajectory.py --out runs/never --seed 0 --useful-from never
    speechmix trajectory runs/trajectory/seed-0 --clips runs/trajectory/clips.jsonl --out runs/trajectory/run

The data are synthetic: each word is a chord of its own, and every clip says "FILLER le NOUN FILLER".
"le" or "les" is heard, the noun sounds the same in both numbers. Before the step `--useful-from` the
number of the noun's spelling is drawn by chance; from then on it is that of the cue. Nothing else
changes: rate, sounds and words are drawn as before. So no model can need the cue before that step.
Clips to measure are new recordings of the same words, all of which follow the rule.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np
import soundfile
import torch
import transformers
from tiny_models import SAMPLE_RATE, WhisperRecogniser, tiny_whisper

from speechmix.extensions.synthetic_french.synthetic_corpus import SyntheticExample
from speechmix.inputs.words.timed_words import Word

NOUNS = "chat lit mur roi sac fou pin bol cap duc fer gel jeu kilo loup mot".split()
FILLERS = "oui non bon ici".split()
CHECKPOINTS, STEPS_BETWEEN, USEFUL_FROM = 20, 75, 675
PER_BATCH, RATE, WARM_UP = 24, 2e-3, 40  # clips; constant after so many steps
FRAME_STEPS = 300  # helped by a label for each frame
_WINDOW_SECONDS = 1
_WORD_SECONDS = (0.15, 0.22)


def speak(random: np.random.Generator, noun: str, heard: str, spelled: str, name: str):
    """Say "FILLER le NOUN FILLER": the cue in the number `heard`, the noun spelled as `spelled`."""
    first, last = random.choice(FILLERS, 2)
    texts = {
        number: f"{first} {'le' if heard == 'sg' else 'les'} {noun}{'s' * (number == 'pl')} {last}"
        for number in ("sg", "pl")
    }
    sounds = [_chord(random, word) for word in (first, f"cue {heard}", noun, last)]
    edges = np.cumsum([0, *map(len, sounds)]) / SAMPLE_RATE
    words = tuple(
        Word(word, start, end)
        for word, start, end in zip(texts[spelled].split(), edges, edges[1:], strict=False)
    )
    audio = np.concatenate(sounds)
    audio = audio + 0.02 * random.standard_normal(len(audio))
    return SyntheticExample(
        texts[spelled],
        texts["pl" if spelled == "sg" else "sg"],
        audio.astype(np.float32),
        words,
        cue=1,
        target=2,
        side="left",
        number=spelled,
        pair=name,
        template="filler cue noun filler",
        noun=noun,
        voice="chords",
        control=False,
    )


def _chord(random: np.random.Generator, word: str) -> np.ndarray:
    """Three tones that belong to a word, a little out of tune, with a fade."""
    tones = np.random.default_rng(list(word.encode())).uniform(200, 3600, 3)
    times = np.arange(int(random.uniform(*_WORD_SECONDS) * SAMPLE_RATE)) / SAMPLE_RATE
    phases = random.uniform(0, 2 * np.pi, (3, 1))
    tuned = tones[:, None] * random.uniform(0.98, 1.02)
    fade = np.minimum(1, np.minimum(times, times[::-1]) / 0.02)
    return 0.1 * random.uniform(0.6, 1) * fade * np.sin(2 * np.pi * tuned * times + phases).sum(0)


def tiny_model(work: Path) -> WhisperRecogniser:
    """Build a Whisper-style model of 2 + 2 layers of 64 with a window of one second."""
    whisper = tiny_whisper(work)
    config = whisper.model.config
    config.update({"d_model": 64, "encoder_layers": 2, "decoder_layers": 2})
    config.update({"encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "dropout": 0.0})
    config.update({"max_source_positions": 50 * _WINDOW_SECONDS, "num_hidden_layers": 2})
    model = transformers.WhisperForConditionalGeneration(config)
    model.generation_config = whisper.model.generation_config
    extractor = transformers.WhisperFeatureExtractor(chunk_length=_WINDOW_SECONDS)
    return WhisperRecogniser("tiny-trajectory-whisper", model, extractor, whisper.tokenizer)


def train(out: Path, seed: int, *, useful_from: float, checkpoints: int, between: int) -> None:
    """Train a model; its states at step 0, `between`, ... go to ``checkpoint-STEP`` folders."""
    torch.manual_seed(seed)
    random = np.random.default_rng([seed, 1])
    out.mkdir(parents=True, exist_ok=True)
    recogniser, started = tiny_model(out), time.monotonic()
    model = recogniser.model
    optimiser = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda s: min(1, (s + 1) / WARM_UP))
    for step in range((checkpoints - 1) * between + 1):
        if step % between == 0:
            _save(recogniser, out / f"checkpoint-{step}")
        batch = recogniser.batch(
            [_training_example(random, step >= useful_from) for _ in range(PER_BATCH)]
        )
        loss = recogniser.loss(batch, epoch=0 if step < FRAME_STEPS else 99)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        if step % between == 0:
            print(f"{out} step {step}: loss {loss.item():.3f}, {time.monotonic() - started:.0f} s")


def _training_example(random: np.random.Generator, is_useful: bool) -> SyntheticExample:
    heard, drawn = random.choice(["sg", "pl"], 2)
    spelled = heard if is_useful else drawn
    return speak(random, random.choice(NOUNS), heard, spelled, "training")


def _save(recogniser: WhisperRecogniser, folder: Path) -> None:
    for part in (recogniser.model, recogniser.extractor, recogniser.tokenizer):
        part.save_pretrained(folder)
    (folder / "model.safetensors").chmod(0o644)  # safetensors writes it for its owner alone


def write_clips(out: Path, *, seed: int = 1000) -> Path:
    """Write a pair of clips for each noun, with words, cue, target and foil; returns the manifest."""
    random = np.random.default_rng(seed)
    (out / "clips").mkdir(parents=True, exist_ok=True)
    rows = []
    for noun in NOUNS:
        for number in ("sg", "pl"):
            example = speak(random, noun, number, number, noun)
            path = out / "clips" / f"{example.name}.wav"
            soundfile.write(path, example.audio, SAMPLE_RATE, subtype="FLOAT")
            words = [[word.text, word.start, word.end] for word in example.words]
            cells = {"path": f"clips/{path.name}", "text": example.text, "words": words}
            cells |= {"cue": str(example.cue), "target": str(example.target), "foil": example.foil}
            rows.append({**cells, **example.labels(), "language": "fr"})
    lines = [json.dumps(row) for row in rows]
    (out / "clips.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return out / "clips.jsonl"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("runs/trajectory"))
    parser.add_argument("--seed", type=int, action="append", help="repeatable (default: 0)")
    parser.add_argument(
        "--useful-from", default=USEFUL_FROM, help=f"step, or never (default: {USEFUL_FROM})"
    )
    parser.add_argument("--checkpoints", type=int, default=CHECKPOINTS)
    parser.add_argument("--between", type=int, default=STEPS_BETWEEN, help="steps")
    options = parser.parse_args(arguments)
    useful_from = float("inf") if options.useful_from == "never" else float(options.useful_from)
    counts = {"checkpoints": options.checkpoints, "between": options.between}
    for seed in options.seed or [0]:
        train(options.out / f"seed-{seed}", seed, useful_from=useful_from, **counts)
    print(f"clips to measure: {write_clips(options.out)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
