"""What the page of a large run costs: a run with SIMULATED contributions, read and shown, its steps
timed one by one.

    python benchmarks/large_run.py 100 1000 10000 100000 [--layers 24] [--measures 1] [--twins 9] [--keep FOLDER]

In: numbers of clips. The run is written as a run writes its own (`TableWriter`, `write_csv`,
`run.json`): one trained model, a random twin that heard all clips, further twins that heard at most
40, one stack; no model was run and no sound exists, the clips are rows alone. Out: for each number
of clips, by a process of its own, wall and processor seconds of opening, of each attribute of a
`Study` in the order in which a page asks for it, and of the page (`write_page`) from nothing; peak
memory of that process. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from speechmix.files.cache_keys import versions
from speechmix.files.text_files import write_csv
from speechmix.mixing.passes.request import MixRequest
from speechmix.runs.results.run_folder import CONTRIBUTIONS, RunFolder
from speechmix.runs.results.tidy_tables import TableWriter

MEASURES = ("value_zeroing", "attention", "attention_norm")
TWIN_CLIPS = 40  # of each twin but the first, as `speechmix study` has it
STEPS = (
    "clips",
    "table",
    "cells",
    "layers",
    "headline",
    "control",
    "after_target",
    "main_rows",
    "clip_values",
    "ranked_clips",
)
_CLIPS_AT_ONCE = 1000
_TEMPLATES = ("{} a perdu", "voici", "elle garde", "on voit")


def simulated_clips(count: int) -> pd.DataFrame:
    """Clip table: pairs of a singular and a plural of one noun, in four templates; every 20th pair
    is a control."""
    pair = np.arange(count) // 2
    plural = np.arange(count) % 2 == 1
    nouns = [f"nom{number}" for number in pair]
    cues = np.where(plural, "les", "le")
    targets = [noun + ("s" if many else "") for noun, many in zip(nouns, plural, strict=True)]
    template = [_TEMPLATES[number % len(_TEMPLATES)].format("elle") for number in pair]
    return pd.DataFrame(
        {
            "clip": [f"clip_{number:06d}" for number in range(count)],
            "seconds": 1.5 + (np.arange(count) % 7) / 4,
            "text": [
                f"{start} {cue} {target}"
                for start, cue, target in zip(template, cues, targets, strict=True)
            ],
            "cue": cues,
            "target": targets,
            "foil": "",
            "alignment": "given",
            "doubts": "",
            "language": "fr",
            "number": np.where(plural, "pl", "sg"),
            "template": template,
            "lemma": nouns,
            "pair": [f"pair_{number}" for number in pair],
            "control": np.where(pair % 20 == 19, "yes", "no"),
            "audio_file": "",
            "fingerprint": [f"{number:016x}" for number in range(count)],
            "sound": "",
        }
    )


def simulated_contributions(
    clips: pd.DataFrame,
    seed: int | None,
    layers: int,
    measures: tuple[str, ...],
    rng: np.random.Generator,
) -> pd.DataFrame:
    """Contributions of some clips: a trained model's rise in the middle, a twin's are flat; the
    control's are flat in both."""
    rows = clips.loc[
        clips.index.repeat(layers * len(measures)),
        ["clip", "fingerprint", "cue", "target", "control"],
    ]
    layer = np.tile(np.arange(layers), len(clips) * len(measures))
    rise = (
        0.1
        * np.exp(-(((layer - layers / 2) / (layers / 8)) ** 2))
        * (rows["control"] != "yes").to_numpy()
    )
    share = 0.2 + (rise if seed is None else 0.002 * seed) + rng.normal(0, 0.06, len(rows))
    table = rows.drop(columns="control").reset_index(drop=True)
    table.insert(2, "model", "SIMULATED")
    table.insert(3, "init", "trained" if seed is None else "random")
    table.insert(4, "seed", pd.array([seed] * len(table), dtype="Int64"))
    return table.assign(
        stack="encoder",
        measure=np.tile(np.repeat(measures, layers), len(clips)),
        rows="target",
        layer=layer,
        depth=layer / max(layers - 1, 1),
        contribution=share.clip(0, 1),
        mixing_strength=(0.4 + rng.normal(0, 0.05, len(rows))).clip(0, 1),
        share_of_length=0.2,
        length_matched=0.15,
        after_target=(0.2 + rng.normal(0, 0.05, len(rows))).clip(0, 1),
    )


def simulated_run(
    path: Path, clips: int, *, layers: int = 24, measures: int = 1, twins: int = 9
) -> Path:
    """Write a run of so many clips; every number in it is SIMULATED."""
    rng, folder, names = np.random.default_rng(11), RunFolder(path), MEASURES[:measures]
    path.mkdir(parents=True)
    table = simulated_clips(clips)
    pairs = np.unique(np.linspace(0, (clips - 1) // 2, TWIN_CLIPS // 2).round().astype(int))
    few = table[np.isin(np.arange(clips) // 2, pairs)]
    with TableWriter(path / CONTRIBUTIONS) as writer:
        for seed in (None, *range(twins)):
            heard = few if seed else table
            for start in range(0, len(heard), _CLIPS_AT_ONCE):
                part = heard.iloc[start : start + _CLIPS_AT_ONCE]
                writer.append(simulated_contributions(part, seed, layers, names, rng))
    write_csv(table, folder.clips_path)
    options = MixRequest().described() | {"measures": list(names), "stacks": ["encoder"]}
    done = 2 * clips + (twins - 1) * len(few)
    description = {
        "options": options,
        "versions": versions(),
        "state": "complete",
        "done": done,
        "parts": {},
    }
    folder.description_path.write_text(json.dumps(description), encoding="utf-8")
    return path


def seconds() -> tuple[float, float]:
    """Wall clock and processor time of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return time.perf_counter(), usage.ru_utime + usage.ru_stime


def peak() -> float:
    """Largest memory of this process so far, GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def measure_steps(folder: Path) -> None:
    """Print what opening, and each attribute of a study, costs in this process."""
    from speechmix.reporting.pages.study_results import Study

    began, study = seconds(), Study.open(folder)
    _say("open_run", began)
    for step in STEPS:
        began = seconds()
        getattr(study, step)
        _say(f"Study.{step}", began)


def measure_page(folder: Path) -> None:
    """Print what the page costs in this process, from the folder to the HTML."""
    from speechmix.reporting.pages.run_page import write_page
    from speechmix.reporting.pages.study_results import Study

    began = seconds()
    path = write_page(
        Study.open(folder),
        title="SIMULATED run",
        notes=["SIMULATED: no model was run."],
        out=folder / "index.html",
    )
    _say("page", began, f"{path.stat().st_size / 1e6:.2f} MB of HTML")


def _say(step: str, began: tuple[float, float], more: str = "") -> None:
    wall, processor = (now - then for now, then in zip(seconds(), began, strict=True))
    print(
        f"  {step:20} {wall:8.2f} s wall {processor:8.2f} s processor   peak {peak():5.2f} GB  "
        f"{more}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("clips", nargs="*", type=int, default=[100, 1000, 10_000])
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--measures", type=int, default=1, choices=range(1, len(MEASURES) + 1))
    parser.add_argument("--twins", type=int, default=9)
    parser.add_argument("--keep", type=Path, help="folder that keeps the runs, and is used again")
    parser.add_argument("--only", choices=("steps", "page"), help="measure this alone")
    parser.add_argument(
        "--measured", type=Path, help=argparse.SUPPRESS
    )  # a run, in the process that is measured
    options = parser.parse_args()
    if options.measured:
        (measure_steps if options.only == "steps" else measure_page)(options.measured)
        return
    with tempfile.TemporaryDirectory() as temporary:
        for clips in options.clips:
            folder = (
                options.keep or Path(temporary)
            ) / f"{clips}_clips_{options.layers}_layers_{options.measures}_measures"
            began = seconds()
            if not folder.is_dir():
                simulated_run(
                    folder,
                    clips,
                    layers=options.layers,
                    measures=options.measures,
                    twins=options.twins,
                )
            print(
                f"{clips} clips, {options.layers} layers, {options.measures} measures, SIMULATED",
                flush=True,
            )
            _say("writing the run", began)
            for what in (options.only,) if options.only else ("steps", "page"):
                subprocess.run(
                    [sys.executable, __file__, "--only", what, "--measured", str(folder)],
                    check=True,
                )


if __name__ == "__main__":
    main()
