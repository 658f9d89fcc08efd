"""Parquet files with a row for each clip and result kind of one model.

In: rows, and whose they are. Out: a file that appears whole or not at all, after the files of
scores that belong to it; so it is its own mark of completion. Its name is a hash of which results
it holds, so the same results have the same name on every machine and after every restart. A damaged
one is said and not believed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...errors import InputError
from ...evaluation.statistics.random_twin_comparison import BASELINES
from ...files.cache_keys import FileMark
from ...files.json_files import Json
from ...files.names import path_within
from ...files.parquet_files import find_row_groups, readable_parquet
from ...files.whole_files import UNFINISHED, whole_file
from .tidy_tables import AFTER_TARGET, STRENGTH

if TYPE_CHECKING:
    from ...adapters import Model

KEY = ("clip", "kind", "question")
ROWS_PER_GROUP = 1_000
_COLUMN_TYPES = b"speechmix"

_SHARES = [
    ("cue", pa.string()),
    ("target", pa.string()),
    ("stack", pa.string()),
    ("measure", pa.string()),
]
_SHARES += [
    ("rows", pa.string()),
    ("layer", pa.int64()),
    ("depth", pa.float64()),
    ("contribution", pa.float64()),
]
SHARES = pa.struct(
    [*_SHARES, *((name, pa.float64()) for name in (*BASELINES, AFTER_TARGET, STRENGTH))]
)
RESULTS = pa.schema(
    [(name, pa.string()) for name in KEY]
    + [("contributions", pa.list_(SHARES)), ("content", pa.string()), ("vectors", pa.binary())]
)


@dataclass(frozen=True)
class Owner:
    """The model whose results they are, as tables name it; all None for what is of the clips alone.

    `weights` is the fingerprint of the model.
    """

    name: str | None = None
    init: str | None = None
    seed: int | None = None
    label: str | None = None
    weights: str | None = None

    @classmethod
    def of(cls, model: Model) -> Owner:
        return cls(model.name, model.init, model.seed, model.label, model.fingerprint)


@dataclass(frozen=True)
class Part:
    """A part file that is there.

    `shard` is the label of the shard that wrote it, `versions` those that computed its results.
    `scores` and `maps` are its files in the folders of these names, as they were written.
    """

    path: Path
    owner: Owner
    shard: str
    scores: Mapping[str, FileMark]
    maps: Mapping[str, FileMark] = field(default_factory=dict)
    versions: tuple[str, ...] = ()

    def read(
        self, columns: Sequence[str] | None = None, groups: Sequence[int] | None = None
    ) -> pa.Table:
        """Rows in the order in which they were written; pages are compared with their checksums.

        InputError if the file is damaged.
        """
        with readable_parquet(self.path):
            file = pq.ParquetFile(self.path, page_checksum_verification=True)
            groups = range(file.num_row_groups) if groups is None else groups
            return file.read_row_groups(
                list(groups), columns=None if columns is None else list(columns)
            )

    def contents(self, kind: str) -> list[str]:
        """What the part holds of one kind, as JSON."""
        rows = self.read(("kind", "content"))
        contents: list[str] = rows.filter(pc.equal(rows["kind"], kind))["content"].to_pylist()
        return contents

    def slice(self, start: int, stop: int, columns: Sequence[str]) -> pa.Table:
        """Rows from `start` to before `stop`."""
        groups = range(start // ROWS_PER_GROUP, (stop - 1) // ROWS_PER_GROUP + 1)
        return self.read(columns, groups).slice(start - groups[0] * ROWS_PER_GROUP, stop - start)

    def rows_of(self, clip: str, columns: Sequence[str]) -> pa.Table:
        """Rows of one clip."""
        with readable_parquet(self.path):
            file, rows = pq.ParquetFile(self.path, page_checksum_verification=True), []
            for group in find_row_groups(self.path, "clip").get(clip, ()):
                of_group = file.read_row_group(group, columns=["clip", *columns])
                rows.append(of_group.filter(pc.equal(of_group["clip"], clip)).select(list(columns)))
        empty = pa.schema([RESULTS.field(name) for name in columns]).empty_table()
        return pa.concat_tables(rows) if rows else empty


def part_name(rows: Iterable[tuple[str, str, str]]) -> str:
    """Name of a part of these (clip, kind, question), 16 hexadecimal digits."""
    name = hashlib.blake2b(digest_size=8)
    for row in rows:
        name.update(json.dumps(row).encode("utf-8", "surrogatepass"))
    return name.hexdigest()


def write_part(
    path: Path,
    tables: Iterable[pa.Table],
    owner: Owner,
    shard: str,
    scores: Mapping[str, FileMark],
    maps: Mapping[str, FileMark],
    versions: Iterable[str] = (),
) -> Part:
    """Write a part file, whole or not at all."""
    part = Part(path, owner, shard, dict(scores), dict(maps), tuple(sorted(set(versions))))
    part_metadata = {
        "owner": vars(owner),
        "shard": shard,
        "scores": part.scores,
        "maps": part.maps,
        "versions": part.versions,
    }
    schema = RESULTS.with_metadata({_COLUMN_TYPES: json.dumps(part_metadata, ensure_ascii=False)})
    path.parent.mkdir(parents=True, exist_ok=True)
    with (
        whole_file(path) as unfinished,
        pq.ParquetWriter(
            unfinished, schema, compression="zstd", write_page_checksum=True
        ) as writer,
    ):
        for rows in _regroup_rows(tables):
            writer.write_table(
                rows.replace_schema_metadata(schema.metadata), row_group_size=ROWS_PER_GROUP
            )
    return part


def _regroup_rows(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The same rows in tables of `ROWS_PER_GROUP` each, so that a file is the same however its rows
    came."""
    waiting: list[pa.Table] = []
    for table in tables:
        waiting.append(table)
        while sum(rows.num_rows for rows in waiting) >= ROWS_PER_GROUP:
            joined = pa.concat_tables(waiting)
            yield joined.slice(0, ROWS_PER_GROUP).combine_chunks()
            waiting = [joined.slice(ROWS_PER_GROUP)]
    if sum(rows.num_rows for rows in waiting):
        yield pa.concat_tables(waiting).combine_chunks()


def open_part(path: Path) -> Part:
    """Open a part file: whose it is; its rows are not read.

    InputError if it is none, damaged, or of another version.
    """
    with readable_parquet(path):
        schema = pq.read_schema(path)
        part_metadata = json.loads((schema.metadata or {})[_COLUMN_TYPES])
        if schema.remove_metadata() != RESULTS:
            raise InputError(
                f"{path} is damaged or of another version: expected the columns "
                f"{', '.join(RESULTS.names)} of this version. "
                "Score the clips again into this folder"
            )
        scores, maps = (
            {
                _part_entry(name, path): FileMark.read(mark)
                for name, mark in part_metadata[kind].items()
            }
            for kind in ("scores", "maps")
        )
        versions = tuple(map(str, part_metadata["versions"]))
        return Part(
            path,
            Owner(**part_metadata["owner"]),
            str(part_metadata["shard"]),
            scores,
            maps,
            versions,
        )


def _part_entry(name: str, part_path: Path) -> str:
    """Return the relative path of a file of a part, which a check of parts (result_store.py) may remove; raises what
    `path_within` raises."""
    path_within(part_path.parent, name, where=part_path)
    return name


def part_paths(folder: Path) -> list[Path]:
    """Part files in a folder, in alphabetical order; what dead processes left is none."""
    return [
        path for path in sorted(folder.glob("*.parquet")) if not path.name.startswith(UNFINISHED)
    ]


def rows_table(rows: Sequence[Mapping[str, Json]]) -> pa.Table:
    """Results as a table of `RESULTS`."""
    return pa.Table.from_pylist(list(rows), schema=RESULTS)
