"""The files and folders of a run, by name.

In: the folder of a run. Out: `RunFolder`, which knows the path of everything in it; what run it is
and how far, run_state.py says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...files.names import safe_name
from ...files.unfinished_files import UNFINISHED
from ...inputs.clips.clip import Clip
from .clip_result_files import Part, part_paths

# Tables that grow clip by clip, in Parquet and CSV.
CONTRIBUTIONS, ABLATION, TRANSCRIPTS = "cue_contribution", "ablation", "transcripts"
SCORES = "scores"  # a folder of Parquet files
BOUNDARIES = "boundaries"  # contributions with moved word boundaries
SPEECH_ABLATION = "speech_ablation"  # the published ablation, by `speech_ablations`


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
