"""Train the two tiny French recognisers that come with the package, and write the clips they are
studied on.

    python recipes/train_tiny_models.py --model both --out runs/tiny_models     # minutes each on two CPU cores
    python recipes/train_tiny_models.py --clips speechmix/inputs/bundled/clips

Every epoch is spoken afresh by espeak-ng (extra `synthesis`); data, initialisation and order follow
from --seed. A run that was stopped goes on from its last epoch. No epoch is chosen by a score: the
last one is written. `speechmix.inputs.bundled.packed_weights.pack_weights` then makes a folder ready
for the package.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from tiny_models import BUILDERS, WINDOW_SECONDS, Recogniser
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm

from speechmix.extensions.synthetic_french.synthetic_corpus import (
    SAMPLE_RATE,
    SyntheticExample,
    random_pair,
)

EPOCHS = 22  # less than 25 minutes on two quiet cores
PEAK_RATE = {"ctc": 2e-3, "whisper": 1.5e-3}
WARM_UP = 0.06  # of the steps
PER_BATCH, AT_ONCE = (
    16,
    128,
)  # clips; so many are spoken together and sorted by length, so that batches are padded less
OTHER_SPEAKERS = (0.6, 0.2)  # share of the clips in the first epoch and in the last
TILTS = (-0.4, 0.9)  # of their spectra: a filter's pole; towards 1 dark, below 0 bright


class Epoch(Dataset):
    """One epoch's batches, in lists of those spoken together.

    Of each pair one member is heard, so that all clips of a batch differ: nouns are learned in far
    fewer steps.
    """

    def __init__(self, recogniser: Recogniser, clips: int, seed: int, epoch: int, epochs: int):
        self.recogniser, self.clips, self.seed = recogniser, clips, 10_000 * (seed + 1) + epoch
        self.changed = float(np.interp(epoch, [0, max(epochs - 1, 1)], OTHER_SPEAKERS))

    def __len__(self) -> int:
        return -(-self.clips // AT_ONCE)

    def __getitem__(self, index: int) -> list[dict[str, torch.Tensor]]:
        which = range(index * AT_ONCE, min((index + 1) * AT_ONCE, self.clips))
        examples = sorted(map(self._example, which), key=lambda example: len(example.audio))
        batches = [examples[i : i + PER_BATCH] for i in range(0, len(examples), PER_BATCH)]
        order = np.random.default_rng([self.seed, index, 2]).permutation(len(batches))
        return [self.recogniser.batch(batches[i]) for i in order]

    def _example(self, index: int) -> SyntheticExample:
        random = np.random.default_rng([self.seed, index, 1])
        example = random_pair(index, seed=self.seed)[random.integers(2)]
        return another_speaker(example, random) if random.random() < self.changed else example


def another_speaker(example: SyntheticExample, random: np.random.Generator) -> SyntheticExample:
    """Change the vocal tract's length, the tempo, the tilt of the spectrum and the room of a clip.

    Without this a model learns the fifty-odd voices that espeak-ng has to train on. Tilt and echo
    are one causal filter of 2 ms, less than the cross-fade of the joint: it carries nothing of the
    cue into what the members of a pair share.
    """
    audio = example.audio
    slower = min(random.uniform(0.9, 1.12), WINDOW_SECONDS * SAMPLE_RATE / len(audio))
    echo = np.append(1.0, random.normal(0, 0.25, 31) * 0.7 ** np.arange(31))
    echo = np.convolve(echo, random.uniform(*TILTS) ** np.arange(32))[:32]
    peak = random.uniform(0.2, 0.95)
    times = np.arange(round(len(audio) * slower)) / slower
    audio = np.convolve(np.interp(times, np.arange(len(audio)), audio), echo)[: len(times)]
    words = tuple(
        replace(word, start=word.start * slower, end=word.end * slower) for word in example.words
    )
    return replace(
        example, audio=(peak / np.abs(audio).max() * audio).astype(np.float32), words=words
    )


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if options.clips:
        from tiny_evaluation import write_clips

        print(f"wrote {write_clips(Path(options.clips))}")
        return 0
    for kind in BUILDERS if options.model == "both" else [options.model]:
        recogniser, log = train(kind, options)
        folder = Path(options.out) / recogniser.name
        from tiny_evaluation import export

        print(
            export(
                recogniser, log, folder, seed=options.seed, other_speakers=OTHER_SPEAKERS
            ).to_string()
        )
        print(f"wrote {folder}")
    return 0


def train(kind: str, options) -> tuple[Recogniser, pd.DataFrame]:
    """Train one model, from its checkpoint if it has one; returns it with one row of log per
    epoch."""
    work = Path(options.work) / f"{kind}-seed{options.seed}"
    work.mkdir(parents=True, exist_ok=True)
    epochs = options.epochs or EPOCHS
    steps = -(-options.examples // PER_BATCH)
    torch.manual_seed(options.seed)
    recogniser = BUILDERS[kind](work)
    device = torch.device(options.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    model = recogniser.model.to(device)
    rate = options.rate or PEAK_RATE[kind]
    optimiser = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.98), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, partial(_share_of_peak, steps=epochs * steps)
    )
    parts = {"model": model, "optimiser": optimiser, "schedule": schedule}
    log = _resume(work / "checkpoint.pt", parts)
    progress = tqdm(
        total=epochs * steps, initial=len(log) * steps, desc=recogniser.name, disable=None
    )
    for epoch in range(len(log), epochs):
        minutes = log[-1]["minutes"] if log else 0.0
        if options.minutes and minutes >= options.minutes:
            print(
                f"stopped after {epoch} of {epochs} epochs: {minutes:.1f} minutes are spent",
                file=sys.stderr,
            )
            break
        started = time.monotonic()
        torch.manual_seed(10_000 * (options.seed + 1) + epoch)
        spoken = Epoch(recogniser, options.examples, options.seed, epoch, epochs)
        batches = DataLoader(spoken, batch_size=None, num_workers=options.workers)
        loss = _train_epoch(recogniser, epoch, batches, optimiser, schedule, progress)
        minutes += (time.monotonic() - started) / 60
        log.append(
            {
                "epoch": epoch + 1,
                "step": (epoch + 1) * steps,
                "loss": round(loss, 4),
                "minutes": minutes,
            }
        )
        print(
            f"{recogniser.name} epoch {epoch + 1}/{epochs}: loss {loss:.4f}, {minutes:.1f} min",
            flush=True,
        )
        _save(work / "checkpoint.pt", parts, log)
    progress.close()
    return recogniser, pd.DataFrame(log)


def _share_of_peak(step: int, *, steps: int) -> float:
    """Learning rate at a step, as a share of the peak: a cosine up, then a longer one down to
    nearly none."""
    done = min(step / steps, 1.0)
    low, progress = (0.04, done / WARM_UP) if done < WARM_UP else (1e-5, (1 - done) / (1 - WARM_UP))
    return low + (1 - low) * (1 - math.cos(math.pi * progress)) / 2


def _train_epoch(
    recogniser: Recogniser, epoch: int, batches, optimiser, schedule, progress
) -> float:
    model, losses = recogniser.model.train(), []
    for batch in (batch for together in batches for batch in together):
        batch = {name: value.to(model.device) for name, value in batch.items()}
        loss = recogniser.loss(batch, epoch=epoch)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        losses.append(loss.item())
        progress.update()
        progress.set_postfix(loss=f"{losses[-1]:.3f}", refresh=False)
    return sum(losses) / len(losses)


def _resume(path: Path, parts: dict) -> list[dict]:
    if not path.exists():
        return []
    state = torch.load(path, map_location="cpu", weights_only=True)
    for name, part in parts.items():
        part.load_state_dict(state[name])
    return state["log"]


def _save(path: Path, parts: dict, log: list[dict]) -> None:
    partial_file = path.with_suffix(
        ".partial"
    )  # a stop while writing must not cost the last whole checkpoint
    torch.save(
        {name: part.state_dict() for name, part in parts.items()} | {"log": log}, partial_file
    )
    partial_file.replace(path)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", choices=[*BUILDERS, "both"], default="both")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--out", default="runs/tiny_models", help="where the model folders are written"
    )
    parser.add_argument(
        "--work", default="runs/tiny_models/work", help="checkpoints, to go on from after a stop"
    )
    parser.add_argument(
        "--epochs", type=int, help=f"the learning rate ends with them (default: {EPOCHS})"
    )
    parser.add_argument("--rate", type=float, help=f"peak learning rate (default: {PEAK_RATE})")
    parser.add_argument(
        "--examples",
        type=int,
        default=3200,
        help="clips per epoch, each of another pair (default: 3200)",
    )
    parser.add_argument(
        "--minutes", type=float, help="begin no epoch after so many minutes of training"
    )
    parser.add_argument(
        "--workers", type=int, default=0, help="processes that speak ahead of the training"
    )
    parser.add_argument("--device", help="cpu, cuda, ... (default: cuda if there is one)")
    parser.add_argument(
        "--clips", metavar="FOLDER", help="write the evaluation clips instead of training"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
