"""Rows of any corpus, one after the other: a Common Voice release, a `datasets` folder, a manifest of one's own.

In: a path or hub id. Out: an iterator of `Row`s that can be used and `Rejected` rows that cannot, each with a reason,
in the corpus's order. Nothing is kept in memory but the row at hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from os import PathLike
from pathlib import Path

from ..errors import InputError
from ..inputs.manifest_rows import manifest_rows
from ..inputs.rows import Rejected, Row, lot, told_apart
from . import common_voice, hub_datasets


def read_corpus(
    source: str | PathLike,
    *,
    split: str | None = None,
    sample: float = 1.0,
    seed: int = 0,
    allow_outside: bool = False,
    holds: Callable[[str], bool] = lambda name: True,
) -> Iterator[Row | Rejected]:
    """Read a corpus row by row.

    Parameters
    ----------
    source : path or hub id
        A Common Voice release folder (`cv-corpus-*`, or its `fr`) or one of its .tsv files; a folder written by
        `datasets` (`save_to_disk`) or the id of a data set on the hub; a manifest (.tsv, .csv, .jsonl).
    split : str, optional
        Which table of a release, which split of a data set.
    sample : float
        Read only this share of the rows. Which ones depends on `seed` and their names, not on their order.
    allow_outside : bool
        Let a manifest name files outside its folder.
    holds : callable
        Name -> whether this row's recording is asked for (`Shard.holds`). All rows come, for a name depends on the rows
        before it; of a data set that holds its recordings itself the others come without (a stream from the hub reads all).

    Raises
    ------
    InputError
        If `source` is no corpus.

    Examples
    --------
    >>> for row in read_corpus("cv-corpus-21.0/fr", split="test"):        # doctest: +SKIP
    ...     print(row.name, row.text if isinstance(row, Row) else row.reason)
    """

    path = Path(source)
    if hub_datasets.is_dataset_folder(path) or (not path.exists() and str(source).count("/") == 1 and not path.suffix):
        rows = hub_datasets.read_dataset(source, split=split)
    elif path.is_dir():
        rows = common_voice.read_release(path, split=split)
    elif path.is_file():
        rows = manifest_rows(path, allow_outside=allow_outside, sentences=True)
    else:
        raise InputError(f"no such corpus: {source}. Expected a folder, a table (.tsv, .csv, .jsonl) or a hub id")
    return map(partial(_heard, holds=holds), _sampled(told_apart(rows, where=str(source)), sample, seed))


def _heard(row: Row | Rejected, *, holds: Callable[[str], bool]) -> Row | Rejected:
    """The row with the recording that its data set holds, if it is asked for."""
    return row.with_audio() if isinstance(row, Row) and holds(row.name) else row


def _sampled(rows: Iterable[Row | Rejected], sample: float, seed: int) -> Iterator[Row | Rejected]:
    if not 0 < sample <= 1:
        raise InputError(f"sample is the share of rows to read, more than 0 and at most 1, found {sample}")
    return (row for row in rows if sample == 1 or lot(row.name, seed) < sample)
