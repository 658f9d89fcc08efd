"""The run's folder: where each thing lies, what run it is, whether it is finished; one writer at a
time.

In: a path and the options of a run. Out: `RunFolder`, which knows every place in it, and
`run.json`:

    options      of `mix`, with their defaults: a folder holds answers to one question
    alignment    how words were placed, and by which model
    versions     of this start; those of earlier starts, if they were others, under earlier_versions
    parts        the part files (part_files.py) that its tables are made of, with size and hash of each
    asked        hash of clips and options of the last start: what a shard did that was asked something else is outdated
    state        "running", or "complete" when all tables stand

The file is written whole or not at all. A damaged one is set aside and made again; nothing else
depends on it, for every stored result says itself what it is made of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...errors import InputError
from ...files.cache_keys import file_digest
from ...files.file_fingerprints import FileMark
from ...files.json_files import Json, JsonObject, read_checked_json, read_json_object
from ...files.names import path_within, safe_name
from ...files.recorded_checksums import DIGESTS, record_digests_in
from ...files.unfinished_files import UNFINISHED, clear_leftovers
from ...files.versions import versions
from ...files.whole_files import write_json
from ...inputs.clips.clip import Clip
from ...mixing.passes.request import MixRequest
from .part_files import Part, part_paths

RUNNING, COMPLETE = "running", "complete"
_OF_TABLES = (
    "standing",
    "done",
    "parts",
    "made_of",
    "tables",
)  # entries that say what the tables are of
# Tables that grow clip by clip, in Parquet and CSV.
CONTRIBUTIONS, ABLATION, TRANSCRIPTS = "cue_contribution", "ablation", "transcripts"
SCORES = "scores"  # a folder of Parquet files
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
        """Folder of the scores (`score_files`)."""
        return self.path / SCORES

    @property
    def maps(self) -> Path:
        """Folder of the maps that are files of their own (`map_files`)."""
        return self.path / "maps"

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
        """A figure or table that was made for the page: "headline.md", "layers.csv",
        "cue_contribution.png", ..."""
        return self.path / f"{safe_name(name)}.{ending}"

    @property
    def words(self) -> Path:
        """Word times as TextGrid, by clip."""
        return self.path / "words"

    def results(self, label: str | None) -> Path:
        """Folder of the part files of a model of this label; without one, of what is of the clips
        alone."""
        return self.path / "results" / ("_clips" if label is None else safe_name(label))

    def part_files(self) -> list[Path]:
        """All part files that are there, in alphabetical order."""
        folders = [
            path for path in _folders_in(self.path / "results") if not path.name.startswith(".")
        ]
        return [path for folder in folders for path in part_paths(folder)]

    @property
    def shards(self) -> Path:
        """What each shard has done, and its lock."""
        return self.path / "results" / ".shards"

    def times_of(self, shard: str) -> Path:
        """How long a shard of this label took, and for what."""
        return self.shards / f"times-{shard}.json"

    @property
    def times(self) -> Path:
        """How long the run took, and for what."""
        return self.path / "times.csv"

    @property
    def probes_question(self) -> Path:
        """What the tables of probes were made of."""
        return self.path / "results" / "probes.json"

    def figure(self, label: str, clip: Clip) -> Path:
        """Picture of a clip's maps by the model with this label."""
        return self.path / "figures" / safe_name(label) / f"{clip.name}.png"

    def begin(
        self,
        question: MixRequest,
        alignment: Mapping[str, Json],
        overwrite: bool,
        report: Callable[[str], None],
        *,
        shards: int = 1,
        asked_of_all: str = "",
    ) -> None:
        """Say which run the folder holds from now on, and in how many shards it is done; the caller
        holds its lock.

        `asked_of_all` is a hash of clips and options, with which markers of shards begin.

        Raises
        ------
        InputError
            If it holds a run with other options, and `overwrite` is not said.
        """
        record_digests_in(self.path)
        asked = question.described()
        stored = self._stored_description(report)
        stored_options = stored.get("options", asked)
        if stored_options != asked and not overwrite:
            raise InputError(
                f"{self.path} holds a run with other options "
                f"({_difference(stored_options, asked)}): choose another folder, or "
                "say overwrite (--overwrite) to go on there with these; what was made with others "
                "is then made again"
            )
        description: JsonObject = {
            "options": asked,
            "alignment": dict(alignment),
            "versions": versions(),
        }
        description |= {"state": RUNNING, "shards": shards, "asked": asked_of_all}
        description |= {name: stored[name] for name in _OF_TABLES if name in stored}
        if (
            "standing" not in stored and stored_options != asked
        ):  # until new tables stand, those of before do
            description["standing"] = {"options": stored["options"]}
        former = {*stored.get("earlier_versions", ()), stored.get("versions")} - {
            None,
            description["versions"],
        }
        if former:
            description["earlier_versions"] = sorted(former)
            report(
                "this run was begun with other versions, which is noted in run.json: "
                f"{'; '.join(sorted(former))}"
            )
        # A finished run has nothing unfinished but perhaps of its page, which is made after it.
        if shards == 1:
            clear_leftovers(self.path, below=stored.get("state") != COMPLETE)
            clear_leftovers(self.path / DIGESTS, below=False)
        write_json(self.description, description)

    def clear_job_leftovers(self) -> None:
        """Remove what dead processes left of jobs; the caller holds the folder's lock."""
        clear_leftovers(self.path, below=False)
        for folder in (self.path / "results", self.words):
            clear_leftovers(folder)

    def finish(
        self, done: int, parts: Sequence[Path], made_of: str, tables: Sequence[str] = ()
    ) -> None:
        """Say that all tables stand, how many (clip, model) pairs they are of, and what they are
        made of.

        Parameters
        ----------
        done : int
        parts : sequence of Path
            Part files.
        made_of : str
            Hash of what the shards have done.
        tables : sequence of str
            File names of the tables of further kinds.
        """
        description = read_json_object(self.description)
        for name in _OF_TABLES:
            description.pop(name, None)
        marks = {path.relative_to(self.path).as_posix(): FileMark.of(path) for path in parts}
        made = {"done": done, "parts": marks, "made_of": made_of, "tables": self._tables(tables)}
        write_json(self.description, {**description, "state": COMPLETE, **made})

    def mark_complete_if_unchanged(self, made_of: str, tables: Sequence[str] = ()) -> bool:
        """Mark the run complete if its tables are those of what the shards have done; returns
        whether they are."""
        description = read_json_object(self.description)
        same = description.get("made_of") == made_of and description.get("tables") == self._tables(
            tables
        )
        if same:
            told = {name: description.pop(name) for name in _OF_TABLES if name in description}
            write_json(self.description, {**description, "state": COMPLETE, **told})
        return same

    def _tables(self, further: Sequence[str] = ()) -> dict[str, str]:
        """Hash of each table that is there, those of further kinds of results among them."""
        names = [
            f"{table}.{ending}"
            for table in (CONTRIBUTIONS, ABLATION, TRANSCRIPTS)
            for ending in ("parquet", "csv")
        ]
        names += ["clips.csv", "skipped.csv", "probes.csv", "probe_answers.csv"]
        paths = [self.path / name for name in dict.fromkeys((*names, *further))]
        return {path.name: file_digest(path) for path in paths if path.is_file()}

    def standing_parts(self) -> dict[Path, FileMark]:
        """Part files that the run's tables are made of, as they were written; none while there are
        no tables."""
        try:
            marks = read_json_object(self.description).get("parts", {})
            where = self.description
            return {
                path_within(self.path, name, where=where): FileMark.read(mark)
                for name, mark in marks.items()
            }
        except (InputError, OSError, AttributeError, TypeError):
            return {}

    def job_parts(self) -> list[Path]:
        """Part files of finished jobs that computed kinds alone in this folder; a damaged record names none."""
        paths: list[Path] = []
        for record in sorted(self.shards.glob("*/*.json")):
            try:
                content = read_checked_json(record)
                names = [
                    *content["clips"],
                    *(name for _, names in content["models"] for name in names),
                ]
                paths += [path_within(self.path, name, where=record) for name in names]
            except (InputError, OSError, KeyError, TypeError, ValueError):
                continue
        return list(dict.fromkeys(paths))

    def needed_parts(self) -> set[Path]:
        """Part files that tables are made of: those of the run, and of jobs that computed kinds alone."""
        return {*self.standing_parts(), *self.job_parts()}

    @property
    def is_running(self) -> bool:
        """Whether a run has begun here and its tables are not written."""
        try:
            return bool(read_json_object(self.description).get("state") == RUNNING)
        except (InputError, OSError):
            return False

    def relative(self, parts: Sequence[Part]) -> list[str]:
        """Paths of parts below the folder."""
        return [part.path.relative_to(self.path).as_posix() for part in parts]

    def _stored_description(self, report: Callable[[str], None]) -> JsonObject:
        """What run.json says; nothing if there is none. A damaged one is set aside."""
        path = self.description
        if not path.exists():
            return {}
        try:
            content = read_json_object(path)
            if isinstance(content.get("options"), dict):
                earlier = content.get("earlier_versions", [])
                texts = [
                    content.get("versions", ""),
                    *(earlier if isinstance(earlier, list) else [None]),
                ]
                if all(isinstance(text, str) for text in texts):
                    return content
        except InputError:
            pass
        aside = path.with_name("run.json.damaged")
        path.replace(aside)
        report(
            f"{path} is damaged: set aside as {aside.name} and made again; stored results say "
            "themselves what they are of"
        )
        return {}


def _folders_in(folder: Path) -> Iterator[Path]:
    return (
        path
        for path in sorted(folder.glob("*"))
        if path.is_dir() and not path.name.startswith(UNFINISHED)
    )


def _difference(stored: Mapping[str, Json], asked: Mapping[str, Json]) -> str:
    names = [name for name in {**stored, **asked} if stored.get(name) != asked.get(name)]
    return "; ".join(f"{name}: {stored.get(name)!r}, now {asked.get(name)!r}" for name in names)[
        :500
    ]
