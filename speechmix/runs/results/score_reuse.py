"""Copy scores of an earlier start into new files."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ...files.parquet_files import find_row_groups, readable_parquet

if TYPE_CHECKING:
    pass
from .score_files import ROWS_PER_GROUP


class RowGroups:
    """Row groups of Parquet files that are sorted by clip; those that were read last are in memory.

    All that are in memory have at most `most_rows` rows; two groups are in any case.
    """

    def __init__(self, *, most_rows: int = 2 * ROWS_PER_GROUP):
        self._most_rows = most_rows
        self._groups: OrderedDict[tuple[Path, int], tuple[pa.Table, dict[str, tuple[int, int]]]] = (
            OrderedDict()
        )

    def rows_of(self, path: Path, group: int, clip: str) -> pa.Table:
        """Rows of a clip that the group holds."""
        group_key = (path, group)
        if group_key in self._groups:
            self._groups.move_to_end(group_key)
        else:
            self._groups[group_key] = _read_group(path, group)
            while (
                len(self._groups) > 2
                and sum(len(rows) for rows, _ in self._groups.values()) > self._most_rows
            ):
                self._groups.popitem(last=False)
        rows, stretches = self._groups[group_key]
        return rows.slice(*stretches[clip])


def _read_group(path: Path, group: int) -> tuple[pa.Table, dict[str, tuple[int, int]]]:
    """A row group, and where each clip's rows begin and how many there are."""
    with readable_parquet(path):
        file = pq.ParquetFile(path, page_checksum_verification=True)
        texts = [column.name for column in file.schema_arrow if pa.types.is_string(column.type)]
        file = pq.ParquetFile(path, page_checksum_verification=True, read_dictionary=texts)
        rows = file.read_row_group(group).combine_chunks()
    clips = rows["clip"].chunk(0)
    codes = clips.indices.to_numpy()
    starts = np.flatnonzero(np.diff(codes, prepend=-1))
    counts = np.diff(starts, append=len(codes))
    names = clips.dictionary.take(pa.array(codes[starts])).to_pylist()
    return rows, dict(zip(names, zip(starts.tolist(), counts.tolist(), strict=True), strict=True))


class CopiedScores:
    """Rows of clips in Parquet files of scores or maps of one model, taken out clip by clip.

    The files have a column `clip`; `groups` are of these files and others.
    """

    def __init__(self, files: Sequence[Path], groups: RowGroups):
        self._groups = groups
        self._places = [(path, find_row_groups(path, "clip")) for path in files]

    def rows_of(self, clip: str) -> pa.Table | None:
        """Rows of a clip; None if the files have none."""
        tables = [
            self._groups.rows_of(path, group, clip)
            for path, assign_groups in self._places
            for group in assign_groups.get(clip, ())
        ]
        return pa.concat_tables(tables) if tables else None
