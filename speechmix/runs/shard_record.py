"""Completion record of a shard."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..files.cache_keys import digest
from ..files.json_files import JsonObject, read_checked_json, write_checked_json
from ..files.locks import LOCK
from ..files.shard_assignment import Shard
from .results.clip_result_files import Owner, Part
from .results.run_folder import RunFolder


@dataclass
class CompletionRecord:
    """What one shard of a run has done.

    `asked` hashes clips and options of the whole run, which `run.json` has from the start, and its
    models, once all are loaded: it is the same in all shards of one run. `clips` are part files of
    its clips, below the run's folder; `models` are pairs of owner and part files; `skipped` has
    clip, model, reason. `done` counts (clip, model) pairs. `told` hashes all that its results
    follow from but the models, and is "" where it is of few clips (run_repeat_check.py). `figures`
    are the pictures of clips, path below the run's folder to (size, hash), where `told` is there.
    """

    shard: str
    asked: str
    clips: list[str] = field(default_factory=list)
    models: list[tuple[JsonObject, list[str]]] = field(default_factory=list)
    skipped: list[dict[str, str]] = field(default_factory=list)
    done: int = 0
    told: str = ""
    figures: dict[str, list[Any]] = field(default_factory=dict)

    @property
    def made(self) -> JsonObject:
        """What tables follow from."""
        return {
            name: value for name, value in asdict(self).items() if name not in ("told", "figures")
        }

    def add(self, folder: RunFolder, owner: Owner, parts: Sequence[Part]) -> None:
        """Note where the results of a model are."""
        self.models.append((vars(owner), folder.relative(parts)))

    def tell_asked(self, but_models: str) -> None:
        """Note what the whole run was asked: the hash of clips and options that it began with, and
        the models it had."""
        self.asked = f"{but_models}+{digest([owner for owner, _ in self.models])}"

    def is_of(self, but_models: str) -> bool:
        """Say whether its request was this, as far as is known before models are loaded."""
        return self.asked.startswith(f"{but_models}+")

    @staticmethod
    def path(folder: RunFolder, shard: Shard, job: str = "") -> Path:
        """Return the file of a shard's completion record; that of a job that computes kinds alone
        is in a folder of its own."""
        return folder.shards_dir / job / f"{shard.label}.json"

    def write(self, folder: RunFolder, job: str = "") -> None:
        """Say in the run's folder that the shard is done."""
        path = folder.shards_dir / job / f"{self.shard}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_checked_json(path, asdict(self))

    @classmethod
    def read(cls, folder: RunFolder, shard: Shard, job: str = "") -> CompletionRecord | None:
        """Return the completion record of a shard; None if it is not done, or the record is
        damaged."""
        path = cls.path(folder, shard, job)
        try:
            marker = cls(**read_checked_json(path)) if path.is_file() else None
            return None if marker is None or any(len(row) != 2 for row in marker.models) else marker
        except (InputError, TypeError):
            return None


def list_shard_labels(folder: RunFolder) -> list[str]:
    """Labels of the shards, of whatever number, that some process has held."""
    return sorted(
        path.name.removeprefix(f"{LOCK}-") for path in folder.shards_dir.glob(f"{LOCK}-*-of-*[0-9]")
    )


def list_missing_shards(
    folder: RunFolder, request_hash: str, count: int, job: str = ""
) -> list[int]:
    """Return the shards of a run that are not done, or had another request."""
    markers = (
        (index, CompletionRecord.read(folder, Shard(index, count), job))
        for index in range(1, count + 1)
    )
    return [index for index, marker in markers if marker is None or marker.asked != request_hash]
