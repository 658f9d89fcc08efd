"""Do two checkouts compute the same? Six small runs by each, on this machine, compared value by value.

    python -m tests.frozen_runs write CHECKOUT FOLDER     # the runs of one checkout
    python -m tests.frozen_runs compare FOLDER FOLDER     # what differs
    python -m tests.frozen_runs resume CHECKOUT FOLDER    # does a checkout find the runs of another finished?

Floats depend on the machine, so no values are kept here: a refactoring is compared with the commit before it. Compared are all
tables (cache keys among them), maps, pages and JSON files; times, versions and paths are left out.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

CTC, WHISPER = "bundled:tiny-french-ctc", "bundled:tiny-french-whisper"
_PASSING = re.compile(
    r"seconds|version|time|date|path|host|python|torch|platform|folder|commit|created|peak|processes|when"
)
_PASSING_FILES = (".log", ".lock", "times.csv", "times.csv.json", "run.json.json", "1-of-1.json")
_FIRST_CLIPS = 4


def commands(clips: str) -> dict[str, list[list[str]]]:
    """Return run -> its commands; each run has a folder of its own, the working directory."""
    one = f"{clips}/left_00_pl.flac"
    pair = ["--cue", "nos", "--target", "maisons", "--foil", "maison"]
    text = ["--text", "nos maisons", "--language", "fr"]
    score = ["score", "--clips", f"{clips}/manifest.jsonl", "--no-progress", "--out", "run"]
    measures = [
        part for name in ("value_zeroing", "attention", "alti") for part in ("--measure", name)
    ]
    return {
        "ctc": [
            [
                *score,
                "--model",
                CTC,
                "--twins",
                "1",
                *measures,
                "--maps",
                "--ablate",
                "--knock-out",
                "--figures",
                "1",
            ],
            ["report", "run"],
            ["export", "run", "--out", "tiers"],
        ],
        "whisper": [
            [
                *score,
                "--model",
                WHISPER,
                "--twins",
                "1",
                "--explain",
                "2",
                "--ablate",
                "--lens",
                "logit",
                "--figures",
                "0",
            ],
            ["report", "run"],
            ["card", "run", "--out", "card"],
        ],
        "frames": [[*score, "--model", CTC, "--units", "frame", "--figures", "0"]],
        "faithfulness": [
            [*score, "--model", WHISPER, "--faithfulness", "--figures", "0"],
            ["report", "run"],
        ],
        "look_ahead": [["look-ahead", f"{clips}/manifest.jsonl", "--model", CTC, "--out", "run"]],
        "one_clip": [
            ["explain", one, "--model", WHISPER, *text, "--out", "why.html"],
            ["ground", one, "--model", WHISPER, "--language", "fr", "--out", "ground"],
            ["ablate", one, "--model", CTC, *text, *pair, "--out", "ablation.csv"],
        ],
    }


def write_runs(checkout: Path, folder: Path, *, fresh: bool = True) -> None:
    """Run all commands with the package of a checkout; what they print goes beside their files.

    They run in one place, whatever the folder, since tables hold the paths of clips.
    """
    place = folder.parent / "running"
    if not fresh:
        folder.rename(place)
    else:
        source, clips = checkout / "speechmix/inputs/bundled/clips", place / "clips"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(place, ignore_errors=True)
        clips.mkdir(parents=True)
        lines = (source / "manifest.jsonl").read_text("utf-8").splitlines()[:_FIRST_CLIPS]
        (clips / "manifest.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
        for line in lines:
            shutil.copy(source / json.loads(line)["path"], clips)
    environment = {**os.environ, "PYTHONPATH": str(checkout), "COLUMNS": "100"}
    for name, all_arguments in commands("../clips").items():
        (place / name).mkdir(exist_ok=True)
        for number, arguments in enumerate(all_arguments):
            done = subprocess.run(
                [sys.executable, "-m", "speechmix", *arguments],
                cwd=place / name,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            log = place / name / f"{number}_{arguments[0]}{'' if fresh else '_again'}.log"
            log.write_text(f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}", "utf-8")
            print(f"{name}: speechmix {arguments[0]} -> {done.returncode}", flush=True)
    place.rename(folder)


def differences(first: Path, second: Path) -> Iterator[str]:
    """Yield the files of two folders that differ."""
    one, other = (
        {str(path.relative_to(root)): path for path in root.rglob("*") if path.is_file()}
        for root in (first, second)
    )
    for name in sorted(one.keys() ^ other.keys()):
        if not name.endswith(_PASSING_FILES):
            yield f"{name}: only in {first if name in one else second}"
    for name in sorted(one.keys() & other.keys()):
        if not name.endswith(_PASSING_FILES) and _content(one[name]) != _content(other[name]):
            yield name


def _content(path: Path) -> str:
    if path.suffix == ".parquet":
        import pandas as pd

        table = pd.read_parquet(path)
        kept = [column for column in table if not _PASSING.search(str(column))]
        return table[kept].to_json(orient="split", double_precision=15, default_handler=_digest)
    data = path.read_bytes()
    if path.suffix in {".json", ".jsonl"}:
        return "\n".join(
            str(_without_passing(json.loads(line))) for line in _documents(data.decode("utf-8"))
        )
    if path.suffix in {".html", ".md", ".csv", ".log", ".tex"}:
        text = data.decode("utf-8")
        if path.name == "times.csv" or path.suffix == ".log":
            return ""
        text = re.sub(r"sha256-[\w+/=]{20,}|data:image/png;base64,[\w+/=]+", "", text)
        return re.sub(
            r"\b\d+(\.\d+)? (s|ms|seconds|minutes)\b|speechmix \d+\.\d+\.\d+\S*", "", text
        )
    return _digest(data)


def _documents(text: str) -> list[str]:
    try:
        json.loads(text)
    except json.JSONDecodeError:
        return [line for line in text.splitlines() if line]
    return [text]


def _without_passing(value: object) -> object:
    if isinstance(value, dict):
        return {key: _without_passing(x) for key, x in value.items() if not _PASSING.search(key)}
    return [_without_passing(x) for x in value] if isinstance(value, list) else value


def _digest(value: object) -> str:
    return hashlib.sha256(value if isinstance(value, bytes) else repr(value).encode()).hexdigest()


if __name__ == "__main__":
    action, first, second = sys.argv[1], Path(sys.argv[2]).resolve(), Path(sys.argv[3]).resolve()
    if action == "compare":
        found = list(differences(first, second))
        print("\n".join(found) or "no difference")
        sys.exit(bool(found))
    write_runs(first, second, fresh=action == "write")
