"""The files and folders of a run, by name.

In: the folder of a run. Out: `RunFolder`, which knows the path of everything in it; what run it is
and how far, is said below.

State of a run's folder: its options, completeness and part files.

In: a run's folder, options, completion records. Out: `run.json`:

    options      of `mix`, with their defaults: a folder holds maps by one set of them
    alignment    how words were aligned, and by which model
    versions     of this start; those of earlier starts, if they were others, under earlier_versions
    parts        the part files (clip_result_files.py) that its tables are made of, with size and hash of each
    asked        hash of clips and options of the last start: a shard with another hash is outdated
    group        column of the clips that says which belong together, where one was named
    state        "running", or "complete" when all tables are written

The file is written whole or not at all. A damaged one is set aside and made again; nothing else
depends on it, for every stored result has its own cache key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...errors import InputError
from ...files.cache_keys import FileMark, file_digest, versions
from ...files.json_files import Json, JsonObject, read_checked_json, read_json_object
from ...files.names import path_within, safe_name
from ...files.whole_files import (
    DIGESTS,
    UNFINISHED,
    clear_leftovers,
    has_digest,
    record_digests_in,
    write_json,
)
from ...inputs.clips.clip import Clip
from ...mixing.passes.request import MixRequest
from .clip_result_files import Part, part_paths

# Tables that grow clip by clip, in Parquet and CSV.
CONTRIBUTIONS, ABLATION, TRANSCRIPTS = "cue_contribution", "ablation", "transcripts"
SCORES = "scores"  # a folder of Parquet files
BOUNDARIES = "boundaries"  # contributions with moved word boundaries
SPEECH_ABLATION = "speech_ablation"  # the published ablation, in clips of speech


@dataclass(frozen=True)
class RunFolder:
    """Paths in a run's folder."""

    path: Path

    @property
    def description_path(self) -> Path:
        """What run this is."""
        return self.path / "run.json"

    @property
    def clips_path(self) -> Path:
        """Table of the clips."""
        return self.path / "clips.csv"

    @property
    def skipped_path(self) -> Path:
        """Table of what was left out, and why."""
        return self.path / "skipped.csv"

    def table_path(self, name: str, ending: str = "parquet") -> Path:
        """One of the tables that grow clip by clip: `CONTRIBUTIONS`, `ABLATION`, ..."""
        return self.path / f"{name}.{ending}"

    @property
    def scores_dir(self) -> Path:
        """Folder of the scores (`score_files`)."""
        return self.path / SCORES

    @property
    def maps_dir(self) -> Path:
        """Folder of the maps that are files of their own (`map_files`)."""
        return self.path / "maps"

    @property
    def audio_dir(self) -> Path:
        """Where audio files may lie that are no longer where the run found them."""
        return self.path / "audio"

    @property
    def page_path(self) -> Path:
        """The page of the run."""
        return self.path / "index.html"

    @property
    def page_description_path(self) -> Path:
        """Title and notes of the page."""
        return self.path / "report.json"

    def page_file_path(self, name: str, ending: str) -> Path:
        """A figure or table that was made for the page: "headline.md", "layers.csv",
        "cue_contribution.png", ..."""
        return self.path / f"{safe_name(name)}.{ending}"

    @property
    def words_dir(self) -> Path:
        """Word times as TextGrid, by clip."""
        return self.path / "words"

    def results_dir(self, label: str | None) -> Path:
        """Folder of the part files of a model of this label; without one, of what is of the clips
        alone."""
        return self.path / "results" / ("_clips" if label is None else safe_name(label))

    def part_files(self) -> list[Path]:
        """All part files that are there, in alphabetical order."""
        folders = [
            path for path in _list_folders(self.path / "results") if not path.name.startswith(".")
        ]
        return [path for folder in folders for path in part_paths(folder)]

    @property
    def shards_dir(self) -> Path:
        """What each shard has done, and its lock."""
        return self.path / "results" / ".shards"

    def shard_times_path(self, shard: str) -> Path:
        """How long a shard of this label took, and for what."""
        return self.shards_dir / f"times-{shard}.json"

    @property
    def times_path(self) -> Path:
        """How long the run took, and for what."""
        return self.path / "times.csv"

    @property
    def probes_key_path(self) -> Path:
        """What the tables of probes were made of."""
        return self.path / "results" / "probes.json"

    def figure_path(self, label: str, clip: Clip) -> Path:
        """Picture of a clip's maps by the model with this label."""
        return self.path / "figures" / safe_name(label) / f"{clip.name}.png"

    def relative(self, parts: Sequence[Part]) -> list[str]:
        """Paths of parts below the folder."""
        return [part.path.relative_to(self.path).as_posix() for part in parts]


def _list_folders(folder: Path) -> Iterator[Path]:
    return (
        path
        for path in sorted(folder.glob("*"))
        if path.is_dir() and not path.name.startswith(UNFINISHED)
    )


RUNNING, COMPLETE = "running", "complete"
_TABLE_ENTRIES = ("standing", "done", "parts", "made_of", "tables")  # what the tables are made of


@dataclass(frozen=True)
class RunState:
    """The state of the run in a folder, as `run.json` and completion records say it."""

    folder: RunFolder

    def begin(
        self,
        request: MixRequest,
        alignment: Mapping[str, Json],
        overwrite: bool,
        report: Callable[[str], None],
        *,
        shard_count: int = 1,
        request_hash: str = "",
        group: str | None = None,
    ) -> None:
        """Write which run the folder holds from now on; the caller holds its lock.

        `alignment` is method and aligner. `request_hash` hashes clips and options: completion
        records of shards begin with it. `group` is the column that says which clips belong
        together. InputError if the folder holds a run with other options, unless `overwrite` is
        given.
        """
        path = self.folder.path
        record_digests_in(path)
        options = request.described()
        stored = self._read_or_set_aside(report)
        stored_options = stored.get("options", options)
        if stored_options != options and not overwrite:
            raise InputError(
                f"{path} holds a run with other options "
                f"({_difference(stored_options, options)}): choose another folder, or "
                "say overwrite (--overwrite) to go on there with these; what was made with others "
                "is then made again"
            )
        description: JsonObject = {
            "options": options,
            "alignment": dict(alignment),
            "versions": versions(),
        }
        description |= {"state": RUNNING, "shards": shard_count, "asked": request_hash}
        description |= {"group": group} if group else {}
        description |= {name: stored[name] for name in _TABLE_ENTRIES if name in stored}
        if "standing" not in stored and stored_options != options:
            description["standing"] = {"options": stored["options"]}  # of the tables until new ones
        earlier = {*stored.get("earlier_versions", ()), stored.get("versions")}
        if earlier := earlier - {None, description["versions"]}:
            description["earlier_versions"] = sorted(earlier)
            report(
                "this run was begun with other versions, which is noted in run.json: "
                f"{'; '.join(sorted(earlier))}"
            )
        # A finished run has nothing unfinished but perhaps of its page, which is made after it.
        if shard_count == 1:
            clear_leftovers(path, below=stored.get("state") != COMPLETE)
            clear_leftovers(path / DIGESTS, below=False)
        write_json(self.folder.description_path, description)

    @property
    def group(self) -> str | None:
        """Column that says which clips of the run belong together, where one was named."""
        path = self.folder.description_path
        return read_json_object(path).get("group") if path.is_file() else None

    def clear_job_leftovers(self) -> None:
        """Remove what dead processes left of jobs; the caller holds the folder's lock."""
        clear_leftovers(self.folder.path, below=False)
        for tree in (self.folder.path / "results", self.folder.words_dir):
            clear_leftovers(tree)

    def finish(
        self,
        done_count: int,
        part_paths: Sequence[Path],
        shards_hash: str,
        kind_tables: Sequence[str] = (),
    ) -> None:
        """Record that all tables are there, and what they are made of.

        `done_count` counts (clip, model) pairs; `shards_hash` is of what the shards have done;
        `kind_tables` are file names of the tables of further kinds.
        """
        description = read_json_object(self.folder.description_path)
        for name in _TABLE_ENTRIES:
            description.pop(name, None)
        marks = {
            path.relative_to(self.folder.path).as_posix(): FileMark.of(path) for path in part_paths
        }
        entries = {"done": done_count, "parts": marks, "made_of": shards_hash}
        entries["tables"] = self._table_hashes(kind_tables)
        write_json(self.folder.description_path, {**description, "state": COMPLETE, **entries})

    def mark_complete_if_unchanged(self, shards_hash: str, kind_tables: Sequence[str] = ()) -> bool:
        """Mark the run complete if its tables are those of what the shards have done; returns
        whether they are."""
        description = read_json_object(self.folder.description_path)
        hashes = self._table_hashes(kind_tables)
        is_same = description.get("made_of") == shards_hash and description.get("tables") == hashes
        is_same &= all(has_digest(self.folder.path / name, hashes[name]) for name in hashes)
        if is_same:
            entries = {
                name: description.pop(name) for name in _TABLE_ENTRIES if name in description
            }
            write_json(self.folder.description_path, {**description, "state": COMPLETE, **entries})
        return is_same

    def _table_hashes(self, kind_tables: Sequence[str]) -> dict[str, str]:
        """Hash of each table that is there, those of further kinds of results among them."""
        names = [
            f"{table}.{ending}"
            for table in (CONTRIBUTIONS, ABLATION, TRANSCRIPTS)
            for ending in ("parquet", "csv")
        ]
        names += ["clips.csv", "skipped.csv", "probes.csv", "probe_answers.csv"]
        paths = [self.folder.path / name for name in dict.fromkeys((*names, *kind_tables))]
        return {path.name: file_digest(path) for path in paths if path.is_file()}

    def table_parts(self) -> dict[Path, FileMark]:
        """Part files that the run's tables are made of, as they were written; none while there are
        no tables."""
        path = self.folder.description_path
        try:
            marks = read_json_object(path).get("parts", {})
            return {
                path_within(self.folder.path, name, where=path): FileMark.read(mark)
                for name, mark in marks.items()
            }
        except (InputError, OSError, AttributeError, TypeError):
            return {}

    def job_parts(self) -> list[Path]:
        """Part files of finished jobs that computed kinds alone; a damaged record names none."""
        paths: list[Path] = []
        for record_path in sorted(self.folder.shards_dir.glob("*/*.json")):
            try:
                record = read_checked_json(record_path)
                names = [*record["clips"]]
                names += [name for _, model_parts in record["models"] for name in model_parts]
                paths += [path_within(self.folder.path, name, where=record_path) for name in names]
            except (InputError, OSError, KeyError, TypeError, ValueError):
                continue
        return list(dict.fromkeys(paths))

    def needed_parts(self) -> set[Path]:
        """Part files that tables are made of: those of the run, and of jobs that computed kinds alone."""
        return {*self.table_parts(), *self.job_parts()}

    @property
    def is_running(self) -> bool:
        """Whether a run has begun here and its tables are not written."""
        try:
            return bool(read_json_object(self.folder.description_path).get("state") == RUNNING)
        except (InputError, OSError):
            return False

    def _read_or_set_aside(self, report: Callable[[str], None]) -> JsonObject:
        """Read run.json; nothing if there is none. A damaged one is set aside."""
        path = self.folder.description_path
        if not path.exists():
            return {}
        try:
            description = read_json_object(path)
            if isinstance(description.get("options"), dict):
                earlier = description.get("earlier_versions", [])
                texts = [
                    description.get("versions", ""),
                    *(earlier if isinstance(earlier, list) else [None]),
                ]
                if all(isinstance(text, str) for text in texts):
                    return description
        except InputError:
            pass
        damaged_path = path.with_name("run.json.damaged")
        path.replace(damaged_path)
        report(
            f"{path} is damaged: set aside as {damaged_path.name} and made again; stored results "
            "say themselves what they are of"
        )
        return {}


def _difference(stored: Mapping[str, Json], requested: Mapping[str, Json]) -> str:
    names = [name for name in {**stored, **requested} if stored.get(name) != requested.get(name)]
    text = "; ".join(f"{name}: {stored.get(name)!r}, now {requested.get(name)!r}" for name in names)
    return text[:500]
