"""Merge the shards of a run into its tables.

In: a completion record of each shard (one, where one process did it all), which has its request,
the skipped items and the part files that hold its results. Out: the run's tables, in the order of
models and clips as they were given, whatever the shards; `run.json` says that they are complete and
which parts they are made of. Scores are not touched: they are where their part put them.

Completion record of a shard.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import InputError
from ..files.cache_keys import digest
from ..files.json_files import JsonObject, read_checked_json, write_checked_json
from ..files.shard_assignment import Shard
from ..files.text_files import write_csv
from ..files.whole_files import LOCK
from ..inputs.clips.clip import Clip
from ..inputs.words.unit_tiers import PHONE
from .kinds.ablation import ABLATION_KIND
from .kinds.generated_texts import TRANSCRIPTS_KIND
from .kinds.result_kind import FinishedResults, ResultKind
from .kinds.word_times import WORD_TIMES_KIND, add_stored_words
from .results.clip_result_files import Owner, Part, open_part
from .results.run_folder import CONTRIBUTIONS, RunFolder, RunState
from .results.run_times import write_times
from .results.tidy_tables import TableWriter, facts_table


@dataclass
class CompletionRecord:
    """What one shard of a run has done.

    `asked` hashes clips and options of the whole run, which `run.json` has from the start, and its
    models, once all are loaded: it is the same in all shards of one run. `clips` are part files of
    its clips, below the run's folder; `models` are pairs of owner and part files; `skipped` has
    clip, model, reason. `done` counts (clip, model) pairs. `told` hashes all that its results
    follow from but the models, and is "" where it is of few clips (job_execution.py). `figures`
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

    @property
    def model_parts(self) -> list[str]:
        """Part files of all models."""
        return [name for _, names in self.models for name in names]

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


FACTS = "facts"  # kind of result: the row of the clip table
_CLIPS_PER_BATCH = 1_000
_REASON = ("clip", "model", "reason")
Report = Callable[[str], None]


def write_tables(
    folder: RunFolder,
    markers: Sequence[CompletionRecord],
    clips: Sequence[Clip],
    report: Report,
    kinds: Sequence[ResultKind],
) -> None:
    """Write the tables of a run whose shards are all done, unless they are up to date.

    The caller holds the folder's lock. InputError if a part is damaged: start its shard again.
    """
    write_times(folder)
    made_of = digest([marker.made for marker in markers])
    further = [
        f"{kind.name}.{ending}"
        for kind in kinds
        if kind.columns is not None
        for ending in ("parquet", "csv")
    ]
    if RunState(folder).mark_complete_if_unchanged(made_of, further):
        return
    merged = _MergedTables(folder, markers, clips, report)
    alone = {part.name for part in folder.shards_dir.glob("*") if part.is_dir()}
    by_name = {ABLATION_KIND.name: ABLATION_KIND, TRANSCRIPTS_KIND.name: TRANSCRIPTS_KIND}
    by_name = {
        name: kind for name, kind in by_name.items() if name not in alone
    }  # a table of another job
    by_name |= {kind.name: kind for kind in kinds if kind.columns is not None}
    merged.write(by_name.values(), with_contributions=True)
    write_csv(facts_table(merged.facts), folder.clips_path)
    skipped = [row for marker in markers for row in marker.skipped]
    write_skipped(folder, skipped)
    merged.finish(kinds)
    needed = [folder.path / path for marker in markers for path in marker.clips]
    needed += [part.path for of_model in merged.models.values() for part in of_model]
    RunState(folder).finish(sum(marker.done for marker in markers), needed, made_of, further)


def write_job_tables(
    folder: RunFolder,
    markers: Sequence[CompletionRecord],
    clips: Sequence[Clip],
    report: Report,
    kinds: Sequence[ResultKind],
    name: str,
    group: str | None = None,
) -> None:
    """Write the tables of kinds that were computed alone, all of whose shards are done; the caller holds the lock."""
    merged = _MergedTables(folder, markers, clips, report, name, group)
    merged.write([kind for kind in kinds if kind.columns is not None], with_contributions=False)
    merged.finish(kinds)
    skipped = drop_repeated_reasons(row for marker in markers for row in marker.skipped)
    write_csv(
        pd.DataFrame(skipped, columns=[*_REASON]), folder.table_path(f"{name}_skipped", "csv")
    )


def read_job_clips(folder: RunFolder, clips: Sequence[Clip], name: str) -> list[Clip]:
    """Return those of some clips that a finished job has results of, with the word times it has."""
    return _MergedTables(folder, _read_job_records(folder, name), clips, lambda line: None).clips


def list_job_parts(folder: RunFolder, name: str) -> dict[Owner, list[Part]]:
    """Return the part files of a finished job, by model."""
    return _list_models(folder, _read_job_records(folder, name))


def read_job_skipped(folder: RunFolder, name: str) -> list[tuple[str, str]]:
    """Return clips that a finished job left out, each with the reason."""
    markers = _read_job_records(folder, name)
    rows = drop_repeated_reasons(row for marker in markers for row in marker.skipped)
    return [(row["clip"], row["reason"]) for row in rows]


def _read_job_records(folder: RunFolder, name: str) -> list[CompletionRecord]:
    """Markers of the shards of the start that ended last."""
    paths = sorted(
        folder.shards_dir.glob(f"{name}/*.json"), key=lambda path: path.stat().st_mtime_ns
    )
    markers = [CompletionRecord(**read_checked_json(path)) for path in paths]
    return [marker for marker in markers if marker.asked == markers[-1].asked]


@dataclass
class _MergedTables:
    """What all shards of a job have, put together."""

    folder: RunFolder
    markers: Sequence[CompletionRecord]
    all_clips: Sequence[Clip]
    report: Report
    job: str = ""
    group: str | None = None

    def __post_init__(self) -> None:
        self.group = self.group or RunState(self.folder).group
        self.facts, self._words = _read_facts(self.folder, self.markers)
        self._order = {row["own"]["clip"]: position for position, row in enumerate(self.facts)}
        self.models = _list_models(self.folder, self.markers)

    def write(self, kinds: Iterable[ResultKind], *, with_contributions: bool) -> None:
        """Write the tables of some kinds, in the order of models and clips; one without rows is removed."""
        about = {row["own"]["clip"]: row["source"]["fingerprint"] for row in self.facts}
        with ExitStack() as files:
            writers = {
                kind.name: _KindTable(
                    kind,
                    files.enter_context(TableWriter(self.folder.path / kind.name)),
                    kind.clip_columns(self.clips, self.group) if kind.clip_columns else {},
                )
                for kind in kinds
            }
            shares = TableWriter(self.folder.path / CONTRIBUTIONS)
            if with_contributions:
                files.enter_context(shares)
            for owner, parts in self.models.items():
                for rows in _sort_parts(parts, self._order):
                    if with_contributions:
                        _append_contributions(shares, rows, owner, about)
                    for table in writers.values():
                        table.append(rows, owner, about)
            for table in writers.values():  # where a job could do nothing, its former table stays
                table.writer.keep_former = not with_contributions and not table.writer.has_rows

    @cached_property
    def clips(self) -> list[Clip]:
        """The clips that were not dropped, with their words."""
        return [
            add_stored_words(clip, self._words[clip.name])
            if clip.name in self._words and (clip.words is None or PHONE not in clip.tiers)
            else clip
            for clip in self.all_clips
            if clip.name in self._order
        ]

    def finish(self, kinds: Iterable[ResultKind]) -> None:
        """Have kinds write what is made of all clips."""
        for kind in kinds:
            if kind.finish is not None:
                kind.finish(
                    FinishedResults(
                        self.folder, self.models, self.clips, self.report, self.job, self.group
                    )
                )


@dataclass
class _KindTable:
    """The table of one kind while it is written."""

    kind: ResultKind
    writer: TableWriter
    clip_columns: Mapping[str, Mapping[str, object]]

    def append(self, rows: pa.Table, owner: Owner, about: Mapping[str, str]) -> None:
        """Add the results of one model."""
        of_kind = rows.filter(pc.equal(rows["kind"], self.kind.name))
        contents = of_kind["content"].to_pylist()
        pairs = [
            (clip, row)
            for clip, content in zip(of_kind["clip"].to_pylist(), contents, strict=True)
            for row in json.loads(content)
        ]
        clips = [clip for clip, _ in pairs]
        further = [{**self.clip_columns.get(clip, {}), **row} for clip, row in pairs]
        table = _add_identity_columns(pd.DataFrame(further), clips, owner, about)
        types = {name: dtype for name, dtype in (self.kind.columns or {}).items() if name in table}
        self.writer.append(table.astype(types))


def write_skipped(folder: RunFolder, skipped: Sequence[Mapping[str, str]]) -> None:
    """Write the table of what was left out."""
    write_csv(pd.DataFrame(drop_repeated_reasons(skipped), columns=[*_REASON]), folder.skipped_path)


def drop_repeated_reasons(skipped: Iterable[Mapping[str, str]]) -> list[dict[str, str]]:
    """What was left out; what several shards say of one clip counts once."""
    return list({(row["clip"], row["model"], row["reason"]): dict(row) for row in skipped}.values())


def _read_facts(
    folder: RunFolder, markers: Sequence[CompletionRecord]
) -> tuple[list[JsonObject], dict[str, str]]:
    """Rows of the clip table, in the order in which clips were given; and word times, by clip."""
    facts, words = [], {}
    for path in (path for marker in markers for path in marker.clips):
        rows = open_part(folder.path / path).read(("clip", "kind", "content"))
        for row in rows.to_pylist():
            if row["kind"] == FACTS:
                facts.append(json.loads(row["content"]))
            elif row["kind"] == WORD_TIMES_KIND.name:
                words[row["clip"]] = row["content"]
    facts.sort(key=lambda row: row["position"])
    return facts, words


def _list_models(folder: RunFolder, markers: Sequence[CompletionRecord]) -> dict[Owner, list[Part]]:
    """Parts of each model, in the order in which models were given."""
    models: dict[Owner, list[Part]] = {}
    for marker in markers:
        for owner, paths in marker.models:
            models.setdefault(Owner(**owner), []).extend(
                open_part(folder.path / path) for path in paths
            )
    return models


def _sort_parts(parts: Sequence[Part], order: Mapping[str, int]) -> Iterator[pa.Table]:
    """Rows of several parts, those of some thousand clips at a time, in the order of the clips;
    others are left out.

    The rows of a part are in that order already, so a few row groups are in memory.
    """
    columns = ("clip", "kind", "contributions", "content")
    clips = [part.read(("clip",))["clip"].to_pylist() for part in parts]
    starts = [0] * len(parts)
    for bound in range(_CLIPS_PER_BATCH, len(order) + _CLIPS_PER_BATCH, _CLIPS_PER_BATCH):
        pieces, positions = [], []
        for number, part in enumerate(parts):
            stop = start = starts[number]
            while stop < len(clips[number]) and order.get(clips[number][stop], -1) < bound:
                stop += 1
            starts[number] = stop
            if stop > start:
                pieces.append(part.slice(start, stop, columns))
                positions += [order.get(name, -1) for name in clips[number][start:stop]]
        if pieces:
            row_order = np.argsort(positions, kind="stable")
            yield pa.concat_tables(pieces).take(row_order[np.asarray(positions)[row_order] >= 0])


def _append_contributions(
    writer: TableWriter, rows: pa.Table, owner: Owner, about: Mapping[str, str]
) -> None:
    """Put the contributions of one model into their table."""
    lists = rows["contributions"].combine_chunks()
    counts = pc.list_value_length(lists).to_numpy(zero_copy_only=False)
    shares = pa.Table.from_struct_array(lists.flatten()).to_pandas()
    clips = np.repeat(rows["clip"].to_pylist(), counts).tolist()
    writer.append(_add_identity_columns(shares, clips, owner, about))


def _add_identity_columns(
    table: pd.DataFrame, clips: Sequence[str], owner: Owner, about: Mapping[str, str]
) -> pd.DataFrame:
    """Rows with columns that say of which clip and model they are, before the others."""
    names: JsonObject = {"clip": list(clips), "fingerprint": [about[clip] for clip in clips]}
    names |= {"model": owner.name, "init": owner.init, "seed": owner.seed}
    for position, (column, value) in enumerate(names.items()):
        table.insert(position, column, value)
    return table.astype({"seed": "Int64"})
