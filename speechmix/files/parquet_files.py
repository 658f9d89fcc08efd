"""Read and check Parquet tables.

In: a path, and the columns that must be there. Out: a pandas table. A page that has a checksum is
compared with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InputError
from .whole_files import check_recorded

if TYPE_CHECKING:
    import pandas as pd


@contextmanager
def readable_parquet(path: str | PathLike[str], *, kind: str = "Parquet") -> Iterator[None]:
    """Turn whatever Arrow raises on a damaged file into an `InputError`.

    What that is depends on where the damage is: errors of its own, of files, of values, of memory.
    `kind` is that of the file ("Arrow"), for the message.
    """
    import pyarrow as pa

    try:
        yield
    except InputError:
        raise
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, MemoryError) as error:
        damage = " ".join(str(error).split())[:200]
        raise InputError(
            f"{path}: expected a table in {kind}, found: {damage}: it is damaged, make it again"
        ) from error


def compare_pages(path: str | PathLike[str]) -> None:
    """Compare a file with its checksums, a row group at a time; InputError if it is damaged."""
    import pyarrow.parquet as pq

    with readable_parquet(path):
        file = pq.ParquetFile(path, page_checksum_verification=True)
        for group in range(file.num_row_groups):
            file.read_row_group(group)


def read_parquet(
    path: str | PathLike[str], *, columns: Sequence[str] = (), categories: Sequence[str] = ()
) -> pd.DataFrame:
    """Read a table.

    Parameters
    ----------
    path : path of a .parquet file
    columns : sequence of str
        Those that must be there.
    categories : sequence of str
        Columns of text that are read as categories, in alphabetical order, where they are there: a
        row then takes a few bytes.

    Raises
    ------
    InputError
        If the file is missing, damaged, or lacks a column.

    Examples
    --------
    >>> import tempfile, pandas as pd
    >>> path = f"{tempfile.mkdtemp()}/scores.parquet"
    >>> pd.DataFrame({"clip": ["a"]}).to_parquet(path)
    >>> list(read_parquet(path)["clip"])
    ['a']
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    with readable_parquet(path):
        check_recorded(Path(path))
        table = pq.read_table(
            path, page_checksum_verification=True, read_dictionary=list(categories)
        )
        table.validate(full=True)
        missing = [name for name in columns if name not in table.column_names]
        if missing:
            present = ", ".join(map(str, table.column_names[:20]))
            raise InputError(f"{path}: expected the column {', '.join(missing)}, found {present}")
        texts = [name for name in categories if table.column_names.count(name) == 1]
        # Column after column, each given back once it is turned into numpy's: a large table is
        # never there twice.
        read = table.to_pandas(categories=texts, split_blocks=True, self_destruct=True)
        del table
        pa.default_memory_pool().release_unused()
        return _order_columns(read, texts)


def _order_columns(table: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """The table with the categories of these columns in alphabetical order, as texts would be
    sorted."""
    for name in columns:
        cells = table[name].cat
        if all(isinstance(category, str) for category in cells.categories):
            table[name] = cells.reorder_categories(sorted(cells.categories))
    return table


def read_mark(path: Path) -> tuple[int, ...]:
    """What changes when a file is written again."""
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


def find_row_groups(path: Path, column: str) -> Mapping[str, tuple[int, ...]]:
    """Return the row groups of a Parquet file that hold each value of a column of text.

    They are read once, while the file stays the same. InputError if it is damaged.
    """
    with readable_parquet(path):
        return _find_row_groups(path, column, read_mark(path))


@lru_cache(maxsize=32)
def _find_row_groups(path: Path, column: str, mark: object) -> Mapping[str, tuple[int, ...]]:
    import pyarrow.parquet as pq

    groups: dict[str, tuple[int, ...]] = {}
    file = pq.ParquetFile(path, page_checksum_verification=True, read_dictionary=[column])
    for group in range(file.num_row_groups):
        chunks = file.read_row_group(group, columns=[column])[column].chunks
        texts = (text for chunk in chunks for text in chunk.unique().to_pylist())
        in_group = dict.fromkeys(texts, (group,))  # one tuple for all of them saves memory
        shared = groups.keys() & in_group
        groups |= in_group | {text: (*groups[text], group) for text in shared}
    return groups
