"""Tidy tables that grow clip by clip: the same rows as Parquet and as CSV, never all in memory."""

from __future__ import annotations

import os
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq


class TableWriter:
    """Context manager that appends data frames to ``<stem>.parquet`` and ``<stem>.csv``.

    The files appear when the block is left without an error; an empty table leaves no file.

    Parameters
    ----------
    stem : Path
        Path without an ending.
    """

    def __init__(self, stem: Path):
        self._parquet, self._csv = (stem.with_name(f"{stem.name}{ending}") for ending in (".parquet", ".csv"))
        self._writer: pq.ParquetWriter | None = None

    def __enter__(self) -> TableWriter:
        for path in (self._parquet, self._csv):
            path.unlink(missing_ok=True)
            _partial(path).unlink(missing_ok=True)
        return self

    def append(self, table: pd.DataFrame) -> None:
        """Add rows; all tables must have the same columns."""
        if table.empty:
            return
        if self._writer is None:
            self._schema = pa.Schema.from_pandas(table, preserve_index=False)
            self._writer = pq.ParquetWriter(_partial(self._parquet), self._schema)
        self._writer.write_table(pa.Table.from_pandas(table, schema=self._schema, preserve_index=False))
        new = not _partial(self._csv).exists()
        table.to_csv(_partial(self._csv), mode="a", header=new, index=False, encoding="utf-8")

    def __exit__(self, kind, *_) -> None:
        if self._writer is None:
            return
        self._writer.close()
        if kind is None:
            for path in (self._parquet, self._csv):
                os.replace(_partial(path), path)


def _partial(path: Path) -> Path:
    return path.with_name(path.name + ".part")
