"""States of the words, phones or frames of many clips, in a Parquet file.

In: a model and clips or sentences. Out: a row for each unit and layer. The file is written while the
model runs, so it may be larger than the memory. Each of its row groups holds one layer of one stack:
who reads layer 5 reads only that.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from os import PathLike
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ...adapters.capture.forward_pass import INPUT
from ...adapters.model import Model
from ...errors import InputError
from ...files.whole_files import whole_file
from ...inputs.clips.clip import Clip
from ...inputs.sentences.sentence import Sentence
from .unit_states import UnitStates, read_unit_states

_BATCH_BYTES = 64 * 2**20  # of states that are written together


def write_states(
    model: Model,
    items: Sequence[Clip | Sentence],
    path: str | PathLike[str],
    *,
    level: str = "word",
    stacks: Sequence[str] | None = None,
    group: str | None = None,
    progress: bool = False,
) -> tuple[tuple[str, str], ...]:
    """Write the states of the words, phones or frames of many clips to a Parquet file.

    Parameters
    ----------
    model, items, level, stacks, group, progress
        As for `unit_states`. The stacks must be equally wide.
    path : path
        A row for each unit and layer: stack, layer (-1 is the input of the first layer), then the
        columns of `UnitStates.units`, then the state in d0, d1, ... (float32). Model, init, seed and
        level are in the metadata of the file, under ``speechmix``.

    Returns
    -------
    tuple of (str, str)
        Names of skipped clips, with the reason.

    Raises
    ------
    InputError
        If no clip has states, or stacks have several widths.

    Examples
    --------
    >>> import pandas, speechmix, tempfile
    >>> from speechmix.inputs import bundled
    >>> path = f"{tempfile.mkdtemp()}/states.parquet"
    >>> model = speechmix.load("bundled:tiny-french-ctc", device="cpu")
    >>> write_states(model, bundled.clips()[:2], path)
    ()
    >>> pandas.read_parquet(path, filters=[("layer", "==", 3)]).shape  # 4 words, 9 columns, 144 dimensions
    (4, 153)
    """
    skipped: list[tuple[str, str]] = []
    facts = {"model": model.name, "init": model.init, "seed": model.seed, "level": level}
    options: dict[str, Any] = {"level": level, "stacks": stacks, "group": group}
    batches = read_unit_states(
        model, items, skipped, progress=progress, batch_bytes=_BATCH_BYTES, **options
    )
    with whole_file(path) as unfinished:
        tables = (table for batch in batches for table in _layer_tables(batch))
        first = next(tables)
        schema = first.schema.with_metadata({"speechmix": json.dumps(facts)})
        with pq.ParquetWriter(unfinished, schema, write_page_checksum=True) as writer:
            for table in chain([first], tables):
                if table.num_columns != first.num_columns:
                    raise InputError("the stacks have states of several widths: write one stack")
                writer.write_table(table.cast(schema), row_group_size=len(table))
    return tuple(skipped)


def _layer_tables(by_stack: Mapping[str, UnitStates]) -> Iterator[pa.Table]:
    for stack, states in by_stack.items():
        for layer in range(INPUT, INPUT + states.values.shape[1]):
            table = states.to_dataframe(layer)
            table.insert(0, "stack", stack)
            table.insert(1, "layer", np.int32(layer))
            yield pa.Table.from_pandas(table, preserve_index=False)
