"""Commands that are killed: word times adapted to speakers, maps of frames, each stage of a study,
report, compare and export.

In: a scratch folder for what the commands read (synthetic clips of the package, a release in
miniature, a run). Out: jobs by name, each a function that gives commands a folder to write into.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

from speechmix.inputs import bundled
from tests.corpora.miniature import write_release

Job = Callable[[Path], None]
NAMES = ("adapt", "frames", "mine", "align", "transcribe", "select", "report", "compare", "export")
_CLIPS = 14  # of one voice, so that it is learnt


def command_jobs(scratch: Path) -> dict[str, Job]:
    """Jobs by name (`NAMES`); what they read is written below `scratch` first."""
    ctc = str(bundled.models()["tiny-french-ctc"])
    clips, release = _manifest(scratch), write_release(scratch / "release")
    run, study = scratch / "run", scratch / "study"
    score = (
        "score",
        "--clips",
        str(clips),
        "--language",
        "fr",
        "--model",
        ctc,
        "--device",
        "cpu",
    )
    score = (*score, "--measure", "attention", "--no-progress")
    _do([*score, "--figures", "1", "--out", str(run)])
    for command in _stages(release, study, ctc).values():
        _do(command)

    def commands(folder: Path) -> dict[str, Sequence[str]]:
        whole = str(folder / "run")
        return {
            "adapt": ("align", str(folder), "--corpus", str(clips), "--adapt"),
            "frames": (
                *score,
                "--units",
                "frame",
                "--maps",
                "--figures",
                "0",
                "--out",
                str(folder),
            ),
            **_stages(release, folder, ctc),
            "report": ("report", whole, "--title", "killed"),
            "compare": ("compare", str(run), str(run), "--out", str(folder)),
            "export": ("export", whole, "--clip", _name(0)),
        }

    def job(name: str) -> Job:
        def do(folder: Path) -> None:
            if name in ("report", "export"):
                _copied(run, folder / "run")
            elif name in ("align", "transcribe", "select"):
                _copied(study, folder, but=_written_from(name))
            _do(commands(folder)[name])

        return do

    return {name: job(name) for name in NAMES}


def _stages(release: Path, study: Path, model: str) -> dict[str, Sequence[str]]:
    """The stages of a study, one command each."""
    return {
        "mine": ("mine", str(release), "--out", str(study)),
        "align": ("align", str(study)),
        "transcribe": ("transcribe", str(study), "--model", model, "--device", "cpu"),
        "select": ("select", str(study), "--keep-doubtful"),
    }


def _written_from(stage: str) -> tuple[str, ...]:
    """What a stage and those behind it write into a study folder."""
    outputs = {
        "align": ("words*", "textgrids"),
        "transcribe": ("transcripts",),
        "select": ("examples",),
    }
    return tuple(
        name for later in list(outputs)[list(outputs).index(stage) :] for name in outputs[later]
    )


def _copied(source: Path, folder: Path, *, but: tuple[str, ...] = ()) -> None:
    """Copy a folder, whole or not at all, unless it is there."""
    if not folder.exists():
        unfinished = folder.parent.parent / f"unfinished_{os.getpid()}"
        shutil.copytree(source, unfinished, ignore=shutil.ignore_patterns(*but))
        folder.parent.mkdir(parents=True, exist_ok=True)
        unfinished.rename(folder)


def _do(command: Sequence[str]) -> None:
    from speechmix.interfaces.cli.command_line import main

    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        if main(list(command)):
            raise RuntimeError(f"ended with an error status: speechmix {' '.join(command)}")


def _name(number: int) -> str:
    return bundled.clips()[number].name


def _manifest(scratch: Path) -> Path:
    """A manifest of copies of the package's clips, without word times: they are placed."""
    path = scratch / "clips.tsv"
    path.parent.mkdir(parents=True, exist_ok=True)
    clips = [clip for clip in bundled.clips() if clip.path is not None][:_CLIPS]
    rows = ["path\tname\ttext\tlanguage\tcue\ttarget"]
    for clip in clips:
        shutil.copy(clip.path, scratch)
    rows += [
        "\t".join(
            (
                clip.path.name,
                clip.name,
                clip.text,
                "fr",
                clip.words[clip.cue].text,
                clip.words[clip.target].text,
            )
        )
        for clip in clips
    ]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path
