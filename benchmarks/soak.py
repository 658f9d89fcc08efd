"""A soak: very many SYNTHETIC clips through a one-layer model, in shards that are killed, complete
and unique at the end.

    python benchmarks/soak.py [--clips 100000] [--shards 16] [--at-once 2] [--kills 20] [--engine ray] [--keep FOLDER]

In: a number of clips (a fifth of a second of noise each, no two alike) and a model with random
weights and one layer. Processes that hold a shard each run at once on one folder and are killed
(SIGKILL) at random moments, as often as is asked; whoever was killed is started again. With
`--engine ray` one process drives workers of this machine, and is killed instead. Out: how long it
took, the kills, clips scored more than once; then the tables are read: every clip must be there,
once, and the rows of 500 clips, spread over all, must be those of one process that nobody killed,
number for number. Ends with 1 if they are not.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

RATE, SAMPLES, COMPARED = 16_000, 3_200, 500
WORDS = (
    ("elle", 0.0, 0.04),
    ("a", 0.04, 0.06),
    ("perdu", 0.06, 0.1),
    ("les", 0.1, 0.12),
    ("livres", 0.12, 0.2),
)
KEYS = ["clip", "model", "init", "seed", "stack", "measure", "rows", "layer"]
_SOONEST, _LATEST = 15.0, 90.0  # seconds after its start that a process is killed


def clips_of(numbers) -> list:
    """Clips of noise, each its own; they are pairs, and their names are in no order."""
    import speechmix
    from speechmix.inputs.words.spans import Word

    noise = np.random.default_rng(0).standard_normal(SAMPLES + 200_000).astype(np.float32) / 10
    words = [Word(*word) for word in WORDS]
    return [
        speechmix.Clip.from_array(
            noise[number : number + SAMPLES],
            RATE,
            name=f"clip_{number * 999_983 % 1_000_003:06d}",
            text=" ".join(word.text for word in words),
            words=words,
            cue="les",
            target="livres",
            meta={"number": ("sg", "pl")[number % 2], "pair": f"pair_{number // 2}"},
        )
        for number in numbers
    ]


def one_layer():
    """A wav2vec2 with random weights and one small layer; its front end is as coarse as the real
    one."""
    import torch
    import transformers

    import speechmix

    config = transformers.Wav2Vec2Config(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        conv_dim=(8,) * 7,
        num_conv_pos_embeddings=8,
        num_conv_pos_embedding_groups=2,
        vocab_size=8,
    )
    torch.manual_seed(0)
    module = transformers.Wav2Vec2Model(config).eval()
    module.name_or_path = "SYNTHETIC-one-layer"
    return speechmix.load(module, processor=transformers.Wav2Vec2FeatureExtractor(), device="cpu")


def score(folder: Path, numbers, *, shard: str | None = None, engine: str | None = None) -> None:
    """Score clips; a line for each goes to standard output, so that what was done twice can be
    counted."""
    from speechmix.extensions.clusters.ray_executor import RayExecutor
    from speechmix.runs.score_clips import score_clips

    options = {"executor": RayExecutor(workers=2)} if engine == "ray" else {"shard": shard}
    run = score_clips(
        [one_layer],
        clips_of(numbers),
        folder,
        figures=0,
        progress=False,
        report=lambda line: print(line, flush=True),
        **options,
    )
    if run.skipped:
        raise RuntimeError(run.summary())


def driven(
    folder: Path, count: int, shards: list[str], at_once: int, kills: int, engine: str
) -> tuple[int, int]:
    """Run all shards to their ends, killing some; returns how many were killed, and lines of clips
    that were scored."""
    rng, waiting, running, killed = random.Random(1), [*shards], {}, 0
    log = folder.parent / "log"
    while waiting or running:
        while waiting and len(running) < at_once:
            shard = waiting.pop(0)
            command = [
                sys.executable,
                __file__,
                "--clips",
                str(count),
                "--keep",
                str(folder),
                "--shard",
                shard,
            ]
            out = log.open("a")
            process = subprocess.Popen(
                [*command, "--engine", engine],
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            due = (
                time.monotonic() + rng.uniform(_SOONEST, _LATEST)
                if killed + len(running) < kills
                else float("inf")
            )
            running[process] = shard, due
        time.sleep(0.2)
        for process, (shard, due) in list(running.items()):
            if process.poll() is None and time.monotonic() > due:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                killed += 1
                waiting.append(shard)
            elif process.poll() is None:
                continue
            elif process.returncode:
                raise RuntimeError(
                    f"shard {shard} ended with {process.returncode}: {log.read_text()[-2_000:]}"
                )
            del running[process]
    return killed, sum(" peaks at " in line for line in log.open(errors="replace"))


def compared(folder: Path, whole: Path, count: int) -> list[str]:
    """What is wrong with the tables; nothing, as a rule."""
    import pyarrow.dataset as ds

    import speechmix

    wrong, run = [], speechmix.open_run(folder)
    table = run.contributions
    names = {f"clip_{number * 999_983 % 1_000_003:06d}" for number in range(count)}
    if set(table["clip"].astype(str)) != names or set(run.clips["clip"]) != names:
        wrong.append(f"{len(names)} clips expected, {table['clip'].nunique()} are there")
    if table.duplicated(KEYS).any() or run.clips["clip"].duplicated().any():
        wrong.append(f"{int(table.duplicated(KEYS).sum())} rows are there twice")
    if run.skipped or run.description.get("state") != "complete":
        wrong.append(f"state {run.description.get('state')}, {len(run.skipped)} left out")
    score_rows = run.scores.count_rows()
    if score_rows != len(names) * len(WORDS) ** 2:
        wrong.append(f"{len(names) * len(WORDS) ** 2} scores expected, {score_rows} are there")
    alone = speechmix.open_run(whole)
    some = set(alone.clips["clip"])
    of_some, expected = (
        part[part["clip"].astype(str).isin(some)]
        .astype({"clip": str})
        .sort_values(KEYS)
        .reset_index(drop=True)
        for part in (table, alone.contributions)
    )
    of_some, expected = (
        part.astype(dict.fromkeys(part.select_dtypes("category"), str))
        for part in (of_some, expected)
    )
    if not of_some.equals(expected):
        wrong.append("contributions are not those of one process")
    scores = [
        part.scores.to_table(filter=ds.field("clip").isin(sorted(some)))
        .to_pandas()
        .sort_values(["clip", "layer", "target", "source"])
        .reset_index(drop=True)
        for part in (run, alone)
    ]
    try:
        pd.testing.assert_frame_equal(*scores, check_exact=True)
    except AssertionError as error:
        wrong.append(f"scores are not those of one process: {error}")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--clips", type=int, default=100_000)
    parser.add_argument("--shards", type=int, default=16)
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--engine", choices=("shards", "ray"), default="shards")
    parser.add_argument("--keep", metavar="FOLDER")
    parser.add_argument("--shard", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.shard:
        shard = {} if options.engine == "ray" else {"shard": options.shard}
        score(Path(options.keep), range(options.clips), engine=options.engine, **shard)
        return 0
    folder = Path(options.keep or tempfile.mkdtemp()) / "run"
    folder.parent.mkdir(parents=True, exist_ok=True)
    shards = [f"{index}/{options.shards}" for index in range(1, options.shards + 1)]
    shards, at_once = (["all"], 1) if options.engine == "ray" else (shards, options.at_once)
    began = time.monotonic()
    killed, lines = driven(folder, options.clips, shards, at_once, options.kills, options.engine)
    print(
        f"{options.clips} clips, {options.engine}: {time.monotonic() - began:.0f} s, {killed} "
        "kills, "
        f"{lines - options.clips} clips scored again ({100 * (lines / options.clips - 1):.1f} %)",
        flush=True,
    )
    numbers = np.linspace(0, options.clips - 1, min(COMPARED, options.clips)).round().astype(int)
    score(folder.parent / "alone", sorted({*numbers.tolist()}))
    wrong = compared(folder, folder.parent / "alone", options.clips)
    print(
        json.dumps(wrong, indent=1)
        if wrong
        else "every clip is there, once; 500 clips as by one process, to the bit"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
