"""A writer that grows the tidy tables of a run clip by clip."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from ...adapters import Model
from ...files.json_files import JsonObject
from ...files.recorded_checksums import remove_recorded, replace_recorded
from ...files.text_files import quote_formulas
from ...files.unfinished_files import unfinished_name
from ...inputs.clips.clip import Clip

MAX_CSV_ROWS = 1_000_000


_ROWS_PER_WRITE = 100_000


def add_identity(table: pd.DataFrame, clip: Clip, model: Model) -> pd.DataFrame:
    """Put columns that say of which clip and model the rows are before the others."""
    names: JsonObject = {"clip": clip.name, "fingerprint": clip.fingerprint}
    names |= {"model": model.name, "init": model.init, "seed": model.seed}
    for position, (column, value) in enumerate(names.items()):
        table.insert(position, column, value)
    return table.astype({"seed": "Int64"})


class TableWriter:
    """Context manager that appends data frames to ``PATH.parquet`` and ``PATH.csv``.

    The files take the place of older ones when the block is left without an error; an empty table
    leaves no file. Rows are written some hundred thousand at a time. Numbers have seven digits in
    the CSV, and all in Parquet. A table of more than `MAX_CSV_ROWS` has no CSV, which nobody could
    open.
    """

    def __init__(self, path_without_suffix: Path):
        self._final = {
            ending: path_without_suffix.with_name(f"{path_without_suffix.name}.{ending}")
            for ending in ("parquet", "csv")
        }
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pd.DataFrame] = []
        self._rows = self._rows_waiting = 0
        self.keep_former = False  # set it, and the block leaves the files of before as they are

    def __enter__(self) -> TableWriter:
        self._unfinished = {ending: unfinished_name(path) for ending, path in self._final.items()}
        return self

    @property
    def has_rows(self) -> bool:
        """Whether anything was appended."""
        return self._writer is not None or bool(self._waiting)

    def append(self, table: pd.DataFrame) -> None:
        """Add rows; all tables must have the same columns."""
        if table.empty:
            return
        self._waiting.append(table)
        self._rows_waiting += len(table)
        if self._rows_waiting >= _ROWS_PER_WRITE:
            self._write()

    def _write(self) -> None:
        """One row group, and the same rows as CSV."""
        if not self._waiting:
            return
        if self._writer is None:
            self._schema = pa.Schema.from_pandas(self._waiting[0], preserve_index=False)
            self._writer = pq.ParquetWriter(
                self._unfinished["parquet"], self._schema, write_page_checksum=True
            )
        rows = pa.concat_tables(
            pa.Table.from_pandas(table, schema=self._schema, preserve_index=False)
            for table in self._waiting
        )
        self._writer.write_table(rows, row_group_size=rows.num_rows)
        first, self._rows = self._rows == 0, self._rows + rows.num_rows
        if self._rows <= MAX_CSV_ROWS:
            table = quote_formulas(pd.concat(self._waiting, ignore_index=True))
            table.to_csv(
                self._unfinished["csv"],
                mode="a",
                header=first,
                index=False,
                encoding="utf-8",
                float_format="%.7g",
            )
        else:
            self._unfinished["csv"].unlink(missing_ok=True)
        self._waiting, self._rows_waiting = [], 0

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._write()
            if self._writer is not None:
                self._writer.close()
            if kind is None and not self.keep_former:
                for ending, path in self._final.items():
                    if self._unfinished[ending].is_file():
                        replace_recorded(self._unfinished[ending], path)
                    else:
                        remove_recorded(path)
        finally:
            for path in self._unfinished.values():
                with suppress(OSError):
                    path.unlink(missing_ok=True)
