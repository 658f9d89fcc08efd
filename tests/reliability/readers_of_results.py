"""Readers of what an earlier run wrote, under test: maps, annotated data sets, journals, run
folders.

Where the files have checksums (`exact`), only the result of the undamaged ones is right.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import speechmix
from speechmix import MixingMap, Span
from speechmix.errors import InputError
from speechmix.inputs import bundled
from speechmix.runs.journal.stage_journal import run_stage
from speechmix.runs.journal.stage_lines import (
    input_digest,
    lines,
    read_kept_lines,
    read_stage_inputs,
    read_stage_options,
)
from speechmix.runs.results.open_run import open_run
from speechmix.runs.results.stored_maps import read_clip_maps, read_stored_clip
from speechmix.runs.score_clips import score_clips
from speechmix.runs.scored_run import Run
from speechmix.studies.french.dataset import read_dataset_metadata, read_examples, write_examples

from .target import Target, look_over, require, tone


def _a_map() -> MixingMap:
    units = tuple(
        Span(5 * i, 5 * i + 5, word, "word", i, i / 10, i / 10 + 0.1)
        for i, word in enumerate(("les", "étés"))
    )
    scores = np.random.default_rng(0).random((3, 2, 2)).astype(np.float32)
    provenance = {
        "model": "tiny",
        "words": [["les", 0.0, 0.1]],
        "steps": [],
        "cue": 0,
        "seed": None,
    }
    return MixingMap(scores, units, units, "value_zeroing", "encoder", (0, 1, 2), provenance)


def _write_map(folder: Path) -> None:
    _a_map().save(folder / "map.safetensors")


def _read_map(lazy: bool) -> Callable[[Path], Any]:
    def read(folder: Path) -> Any:
        found = MixingMap.load(folder / "map.safetensors", lazy=lazy)
        found.to_dataframe()
        labels = (
            found.targets,
            found.sources,
            found.measure,
            found.stack,
            found.layers,
            found.provenance,
        )
        return found.scores.shape, np.asarray(found.scores).tobytes(), repr(labels)

    return read


def _write_examples(folder: Path) -> None:
    tone(folder, "sound/a.wav", 1.0)
    words = [("les", 0.1, 0.3), ("livres", 0.3, 0.9)]
    words = [
        {"text": text, "start": start, "end": end, "score": 0.9, "from": 0, "to": 3}
        for text, start, end in words
    ]
    example = {
        "name": "a",
        "clip": "a",
        "audio": "a.wav",
        "text": "les livres",
        "language": "fr",
        "seconds": 1.0,
        "cue": 0,
        "target": 1,
        "foil": "livre",
        "words": words,
        "alignment": "ctc",
        "doubts": [],
        "models": [],
        "meta": '{"age": "teens"}',
    }
    write_examples(
        folder / "data", [example, {**example, "name": "b"}], {"audio_root": str(folder / "sound")}
    )


def _read_examples(folder: Path) -> Any:
    require(isinstance(read_dataset_metadata(folder / "data"), dict), "about")
    left_out: list[tuple[str, str]] = []
    clips = read_examples(folder / "data", skipped=left_out, audio_root=folder / "sound")
    look_over(clips)
    read_examples(folder / "data")
    return [
        (clip.name, clip.text, clip.words, clip.cue, clip.target, clip.foil) for clip in clips
    ], left_out


_ITEMS = [(key, {"text": f"le livre {key}"}) for key in "abcdef"]


def _stage(folder: Path, *, dies_at: str | None = None, overwrite: bool = False) -> Path:
    def work(item: dict) -> dict:
        if item["text"].endswith(f" {dies_at}"):
            raise KeyboardInterrupt
        if item["text"].endswith(" b"):
            raise InputError("left out")
        return {"length": len(item["text"]), "text": item["text"]}

    return run_stage(
        folder / "lengths.jsonl", _ITEMS, work, options={"language": "fr"}, overwrite=overwrite
    )


def _write_stage(dies_at: str | None) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        try:
            _stage(folder, dies_at=dies_at)
        except KeyboardInterrupt:
            require(dies_at is not None, "a stage that died")

    return write


def _read_stage(folder: Path) -> Any:
    path = folder / "lengths.jsonl"
    for line in lines(path):
        require(isinstance(line, dict) and isinstance(line["key"], str), line)
    require(
        isinstance(read_stage_options(path), dict) and isinstance(read_stage_inputs(path), dict),
        "options",
    )
    return input_digest(path, "length", "text"), list(read_kept_lines(path))


def _resume_stage(folder: Path) -> Any:
    try:
        path = _stage(folder)
    except InputError:
        path = _stage(folder, overwrite=True)
    return list(lines(path))


def _write_run(folder: Path) -> None:
    from tests.reports.synthetic_runs import synthetic_run

    synthetic_run(folder / "run", clips=2, layers=2, measures=("value_zeroing",), mapped=1)


def _read_run(folder: Path) -> Any:
    run = open_run(folder / "run")
    require(isinstance(run.description, dict) and run.done >= 0, run)
    require(isinstance(Run(run.out, run.done, list(run.skipped)).summary(), str), run)
    tables = [run.clips, run.contributions, run.ablation, run.transcripts]
    require({"clip", "seconds"} <= set(run.clips), list(run.clips))
    maps = {name: read_clip_maps(run, name) for name in list(run.clips["clip"])[:3]}
    for name, by_model in maps.items():
        read_stored_clip(run, name, by_model)
    return [table.to_csv() for table in tables], [_bytes_of(by_model) for by_model in maps.values()]


def _bytes_of(maps: dict) -> dict:
    return {
        model: {key: one.scores.tobytes() for key, one in by_key.items()}
        for model, by_key in maps.items()
    }


def _begin_run(folder: Path) -> None:
    _go_on_with_run(folder)


def _go_on_with_run(folder: Path) -> Any:
    """Start a run again: whatever is damaged is made anew, or the run refuses; the tables are those
    of before."""
    clip = bundled.clips()[0]
    options = {
        "measures": ["value_zeroing"],
        "figures": 0,
        "ablation": True,
        "progress": False,
        "report": str,
    }
    run = score_clips([_model()], [clip], folder / "run", **options)
    require(run.done == 1 and not run.skipped, run.summary())
    maps = _bytes_of(read_clip_maps(open_run(run.out), clip.name))
    tables = (run.clips, run.contributions, run.ablation, run.transcripts)
    return (
        [table.to_csv() for table in tables],
        maps,
        sorted(path.name for path in folder.rglob("*.[ctp]*")),
    )


@functools.cache
def _model() -> Any:
    return speechmix.load(str(bundled.models()["tiny-french-ctc"]), device="cpu")


_FILES_OF_A_RUN = ("run/*.json", "run/*.csv", "run/*.parquet", "run/maps/*/*", "run/results/*/*")
TARGETS = (
    Target("map", _write_map, _read_map(False), exact=True),
    Target("map, lazy", _write_map, _read_map(True), exact=True),
    Target(
        "annotated data set",
        _write_examples,
        _read_examples,
        ("data/examples.parquet", "data/about.json"),
    ),
    Target("journal", _write_stage(None), _read_stage, ("*.jsonl",), exact=True),
    Target("journal, done again", _write_stage(None), _resume_stage, ("*.jsonl",), exact=True),
    Target("journal, resumed", _write_stage("d"), _resume_stage, ("*.unfinished",), exact=True),
    Target("run folder", _write_run, _read_run, _FILES_OF_A_RUN),
    Target(
        "run, gone on with",
        _begin_run,
        _go_on_with_run,
        ("run/*.json", "run/*/*/*", "run/*/*/*/*"),
        exact=True,
    ),
)
