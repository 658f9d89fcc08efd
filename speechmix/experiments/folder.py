"""The run's folder: where each thing lies, what run it is, whether it is finished; one writer at a time.

In: a path and the options of a run. Out: `RunFolder`, which knows every place in it, and `run.json`:

    options      of `mix`, with their defaults: a folder holds answers to one question
    alignment    how words were placed, and by which model
    versions     of this start; those of earlier starts, if they were others, under earlier_versions
    state        "running", or "complete" when all tables stand

The file is written whole or not at all. A damaged one is set aside and made again; nothing else depends on it, for every
stored result says itself what it is made of.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..adapters.model import Model
from ..errors import InputError
from ..files.names import safe_name
from ..files.whole_files import UNFINISHED, clear_leftovers, write_json
from ..inputs.clips import Clip
from ..scoring.question import Question
from ..versions import versions

RUNNING, COMPLETE = "running", "complete"
# Tables that grow clip by clip, in Parquet and CSV.
CONTRIBUTIONS, ABLATION, TRANSCRIPTS = "cue_contribution", "ablation", "transcripts"
SCORES = "scores"  # a folder of Parquet files; a table of earlier versions
BOUNDARIES = "boundaries"  # contributions with moved word boundaries
SPEECH_ABLATION = "speech_ablation"  # the published ablation, by `speech_ablations`


@dataclass(frozen=True)
class RunFolder:
    """Places in a run's folder.

    Parameters
    ----------
    path : Path
    """

    path: Path

    @property
    def description(self) -> Path:
        """What run this is."""
        return self.path / "run.json"

    @property
    def clips(self) -> Path:
        """Table of the clips."""
        return self.path / "clips.csv"

    @property
    def skipped(self) -> Path:
        """Table of what was left out, and why."""
        return self.path / "skipped.csv"

    def table(self, name: str, ending: str = "parquet") -> Path:
        """One of the tables that grow clip by clip: `CONTRIBUTIONS`, `ABLATION`, ..."""
        return self.path / f"{name}.{ending}"

    @property
    def scores(self) -> Path:
        """Folder of the scores (`experiments.score_files`)."""
        return self.path / SCORES

    @property
    def audio(self) -> Path:
        """Where audio files may lie that are no longer where the run found them."""
        return self.path / "audio"

    @property
    def page(self) -> Path:
        """The page of the run."""
        return self.path / "index.html"

    @property
    def page_description(self) -> Path:
        """Title and notes of the page."""
        return self.path / "report.json"

    def beside_page(self, name: str, ending: str) -> Path:
        """A figure or table that was made for the page: "headline.md", "layers.csv", "cue_contribution.png", ..."""
        return self.path / f"{name}.{ending}"

    @property
    def words(self) -> Path:
        """Word times as JSON and TextGrid, by clip."""
        return self.path / "words"

    def maps(self, model: Model, clip: Clip) -> Path:
        """Folder of a clip's maps."""
        return self.path / "maps" / safe_name(model.label) / clip.name

    def map_folders(self) -> Iterator[Path]:
        """Folders of maps by model that are there, in alphabetical order."""
        return _folders_in(self.path / "maps")

    def spelling(self, model: Model, clip: Clip) -> Path:
        """Ablation and transcript of a clip."""
        return self.path / "spelling" / safe_name(model.label) / f"{clip.name}.json"

    def states(self, label: str, clip: Clip) -> Path:
        """Mean states of a clip's positions, by a model of this label."""
        return self.path / "states" / safe_name(label) / f"{clip.name}.safetensors"

    @property
    def probes_question(self) -> Path:
        """What the tables of probes were made of."""
        return self.path / "states" / "probes.json"

    def written(self, model: Model, clip: Clip) -> Path:
        """What the trained model of this name wrote about a clip without a text; its random twins read it too."""
        return self.path / "written" / safe_name(model.name) / f"{clip.name}.json"

    def figure(self, model: Model, clip: Clip) -> Path:
        """Picture of a clip's maps."""
        return self.path / "figures" / safe_name(model.label) / f"{clip.name}.png"

    def begin(
        self, question: Question, alignment: Mapping[str, Any], overwrite: bool, report: Callable[[str], None]
    ) -> None:
        """Say which run the folder holds from now on; the caller holds its lock.

        Raises
        ------
        InputError
            If it holds a run with other options, and `overwrite` is not said.
        """
        asked = question.described()
        stored = self._stored_description(report)
        stored_options = {**Question().described(), **stored.get("options", asked)}
        if stored_options != asked and not overwrite:
            raise InputError(
                f"{self.path} holds a run with other options ({_difference(stored_options, asked)}): choose another folder, or "
                "say overwrite (--overwrite) to go on there with these; what was made with others is then made again"
            )
        description = {"options": asked, "alignment": dict(alignment), "versions": versions(), "state": RUNNING}
        if "standing" in stored:
            description["standing"] = stored["standing"]
        elif stored_options != asked:  # until new tables stand, those of before do
            description["standing"] = {"options": stored["options"]}
        former = {*stored.get("earlier_versions", ()), stored.get("versions")} - {None, description["versions"]}
        if former:
            description["earlier_versions"] = sorted(former)
            report(f"this run was begun with other versions, which is noted in run.json: {'; '.join(sorted(former))}")
        # A finished run has nothing unfinished but perhaps of its page, which is made after it.
        clear_leftovers(self.path, below=stored.get("state") != COMPLETE)
        write_json(self.description, description)

    def finish(self, done: int) -> None:
        """Say that all tables stand, and how many (clip, model) pairs they are of."""
        description = json.loads(self.description.read_text(encoding="utf-8"))
        description.pop("standing", None)
        write_json(self.description, {**description, "state": COMPLETE, "done": done})

    def _stored_description(self, report: Callable[[str], None]) -> dict[str, Any]:
        """What run.json says; nothing if there is none. A damaged one is set aside."""
        path = self.description
        if not path.exists():
            return {}
        try:
            content = json.loads(path.read_bytes().decode("utf-8"))
            if isinstance(content, dict) and isinstance(content.get("options"), dict):
                earlier = content.get("earlier_versions", [])
                texts = [content.get("versions", ""), *(earlier if isinstance(earlier, list) else [None])]
                if all(isinstance(text, str) for text in texts):
                    return content
        except (ValueError, RecursionError):
            pass
        aside = path.with_name("run.json.damaged")
        path.replace(aside)
        report(
            f"{path} is damaged: set aside as {aside.name} and made again; stored results say themselves what they are of"
        )
        return {}


def clip_folders(model: Path) -> Iterator[Path]:
    """Folders of a model's maps by clip, in alphabetical order; what dead processes left is no clip."""
    return _folders_in(model)


def map_files(clip: Path) -> list[Path]:
    """Maps in the folder of a model and a clip, in alphabetical order."""
    return sorted(clip.glob("*.safetensors"))


def _folders_in(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.glob("*")) if path.is_dir() and not path.name.startswith(UNFINISHED))


def _difference(stored: Mapping[str, Any], asked: Mapping[str, Any]) -> str:
    names = [name for name in {**stored, **asked} if stored.get(name) != asked.get(name)]
    return "; ".join(f"{name}: {stored.get(name)!r}, now {asked.get(name)!r}" for name in names)[:500]
