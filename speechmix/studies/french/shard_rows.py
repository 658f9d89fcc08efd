"""Corpus rows that one shard works on.

In: rows of a corpus, a shard. Out: the shard's rows with their places in the corpus; what a stage
notes of its inputs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from os import PathLike
from pathlib import Path

from ...files.shard_assignment import Shard
from ...inputs.clips.corpus_row import RejectedRow, Row
from ...runs.journal.stage_lines import POSITION


class ShardRows:
    """A shard's rows of a corpus, each with its place in it; and, when all were read, by what the
    shards know one corpus."""

    def __init__(self, rows: Iterable[Row | RejectedRow], shard: Shard):
        self._rows, self._shard = rows, shard
        self._names = hashlib.blake2b(digest_size=16)

    def __iter__(self) -> Iterator[tuple[int, Row | RejectedRow]]:
        for position, row in enumerate(self._rows):
            if self._shard.count > 1:
                self._names.update(f"{row.name}\0".encode("utf-8", "surrogatepass"))
            if self._shard.holds(row.name):
                yield position, row

    def inputs(self) -> dict[str, str]:
        """What the stage notes of its inputs; of one process alone nothing."""
        return {"corpus": self._names.hexdigest()} if self._shard.count > 1 else {}


def corpus_position_entry(position: int, shard: Shard) -> dict[str, int]:
    """Where a clip stands in the corpus; one process keeps the corpus's order, and need not say
    it."""
    return {POSITION: position} if shard.count > 1 else {}


def absolute_source(source: str | PathLike[str]) -> str:
    """Return a path in full, and a hub id as it is."""
    return str(Path(source).resolve()) if Path(source).exists() else str(source)
