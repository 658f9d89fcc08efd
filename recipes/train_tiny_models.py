"""Train the two tiny French recognisers that come with the package, and write the clips they are studied on.

    python recipes/train_tiny_models.py --model both --out runs/tiny_models     # minutes each on two CPU cores
    python recipes/train_tiny_models.py --clips speechmix/bundled/clips

Every epoch is spoken afresh by espeak-ng (extra `synthesis`); data, initialisation and order follow from --seed. A run
that was stopped goes on from its last epoch. No epoch is chosen by a score: the last one is written.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from functools import partial
from pathlib import Path

import pandas as pd
import torch
from tiny_models import BUILDERS, Recogniser
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm

from speechmix.corpora.synthetic_french import random_pair

# Epochs, and the share of the peak learning rate that they rise to; each falls to nearly none. A third cycle makes the
# Whisper-style model worse at number on voices it has not heard (99.3 to 95.9 %).
CYCLES = {"ctc": ((16, 1.0), (7, 0.7), (12, 0.8)), "whisper": ((16, 1.0), (7, 0.7))}
PEAK_RATE = {"ctc": 2e-3, "whisper": 1.5e-3}
PAIRS_PER_BATCH = 8
PAIRS_AT_ONCE = 64  # spoken together and sorted by length, so that batches are padded less
WARM_UP = 0.08  # of a cycle's steps


class Epoch(Dataset):
    """One epoch's pairs: those of another seed for every epoch."""

    def __init__(self, count: int, seed: int, epoch: int):
        self.count, self.seed = count, 10_000 * (seed + 1) + epoch

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int):
        return random_pair(index, seed=self.seed)


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

        print(export(recogniser, log, folder, seed=options.seed).to_string())
        print(f"wrote {folder}")
    return 0


def train(kind: str, options) -> tuple[Recogniser, pd.DataFrame]:
    """Train one model, from its checkpoint if it has one; returns it with one row of log per epoch."""
    work = Path(options.work) / f"{kind}-seed{options.seed}"
    work.mkdir(parents=True, exist_ok=True)
    epochs = options.epochs or sum(epochs for epochs, _ in CYCLES[kind])
    steps = -(-options.pairs // PAIRS_PER_BATCH)
    torch.manual_seed(options.seed)
    recogniser = BUILDERS[kind](work)
    device = torch.device(options.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    model = recogniser.model.to(device)
    rate = options.rate or PEAK_RATE[kind]
    optimiser = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.98), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, partial(_share_of_peak, cycles=CYCLES[kind], steps_per_epoch=steps)
    )
    parts = {"model": model, "optimiser": optimiser, "schedule": schedule}
    log = _resume(work / "checkpoint.pt", parts)
    progress = tqdm(total=epochs * steps, initial=len(log) * steps, desc=recogniser.name, disable=None)
    for epoch in range(len(log), epochs):
        minutes = log[-1]["minutes"] if log else 0.0
        if options.minutes and minutes >= options.minutes:
            print(f"stopped after {epoch} of {epochs} epochs: {minutes:.1f} minutes are spent", file=sys.stderr)
            break
        started = time.monotonic()
        torch.manual_seed(10_000 * (options.seed + 1) + epoch)
        batches = DataLoader(
            Epoch(options.pairs, options.seed, epoch),
            batch_size=PAIRS_AT_ONCE,
            collate_fn=partial(_collate, recogniser, PAIRS_PER_BATCH),
            num_workers=options.workers,
        )
        loss = _train_epoch(recogniser, epoch, batches, optimiser, schedule, progress)
        minutes += (time.monotonic() - started) / 60
        log.append({"epoch": epoch + 1, "step": (epoch + 1) * steps, "loss": round(loss, 4), "minutes": minutes})
        print(f"{recogniser.name} epoch {epoch + 1}/{epochs}: loss {loss:.4f}, {minutes:.1f} min", flush=True)
        _save(work / "checkpoint.pt", parts, log)
    progress.close()
    return recogniser, pd.DataFrame(log)


def _share_of_peak(step: int, *, cycles: tuple[tuple[int, float], ...], steps_per_epoch: int) -> float:
    """Learning rate at a step, as a share of the peak: within each cycle a cosine up, then a longer one down."""
    for epochs, peak in cycles:
        length = epochs * steps_per_epoch
        if step < length:
            done = step / length
            low, progress = (0.04, done / WARM_UP) if done < WARM_UP else (1e-5, (1 - done) / (1 - WARM_UP))
            return peak * (low + (1 - low) * (1 - math.cos(math.pi * progress)) / 2)
        step -= length
    return 0.0


def _train_epoch(recogniser: Recogniser, epoch: int, batches, optimiser, schedule, progress) -> float:
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


def _collate(recogniser: Recogniser, size: int, pairs) -> list[dict[str, torch.Tensor]]:
    """Batches of pairs of about the same length, in random order."""
    pairs = sorted(pairs, key=lambda pair: len(pair[0].audio))
    batches = [pairs[i : i + size] for i in range(0, len(pairs), size)]
    examples = [[example for pair in batches[i] for example in pair] for i in torch.randperm(len(batches))]
    return [recogniser.batch(batch) for batch in examples]


def _resume(path: Path, parts: dict) -> list[dict]:
    if not path.exists():
        return []
    state = torch.load(path, map_location="cpu", weights_only=True)
    for name, part in parts.items():
        part.load_state_dict(state[name])
    return state["log"]


def _save(path: Path, parts: dict, log: list[dict]) -> None:
    partial_file = path.with_suffix(".partial")  # a stop while writing must not cost the last whole checkpoint
    torch.save({name: part.state_dict() for name, part in parts.items()} | {"log": log}, partial_file)
    partial_file.replace(path)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=[*BUILDERS, "both"], default="both")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="runs/tiny_models", help="where the model folders are written")
    parser.add_argument("--work", default="runs/tiny_models/work", help="checkpoints, to go on from after a stop")
    parser.add_argument("--epochs", type=int, help="stop after so many (default: all cycles)")
    parser.add_argument("--rate", type=float, help=f"peak learning rate (default: {PEAK_RATE})")
    parser.add_argument("--pairs", type=int, default=1600, help="pairs of clips per epoch (default: 1600)")
    parser.add_argument("--minutes", type=float, help="begin no epoch after so many minutes of training")
    parser.add_argument("--workers", type=int, default=0, help="processes that speak ahead of the training")
    parser.add_argument("--device", help="cpu, cuda, ... (default: cuda if there is one)")
    parser.add_argument("--clips", metavar="FOLDER", help="write the evaluation clips instead of training")
    return parser


if __name__ == "__main__":
    sys.exit(main())
