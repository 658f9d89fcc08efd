"""States of the words, phones or frames of many clips, in a Parquet file.

In: a model and clips or sentences. Out: a row for each unit and layer. The file is written while the
model runs, so it may be larger than the memory. Each of its row groups holds one layer of one stack:
who reads layer 5 reads only that.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from torch import Tensor

from ..adapters.capture.hidden_states import INPUT
from ..adapters.model import Model
from ..errors import InputError, SpeechmixError
from ..files.whole_files import whole_file
from ..inputs.clips.clip import Clip
from ..inputs.sentences.sentence import Sentence
from ..inputs.words.spans import Span
from ..mixing.passes.layer_states import read_unit_layers
from .unit_states import build_unit_table, iterate_items

if TYPE_CHECKING:
    import pyarrow.parquet as pq

_BUFFER_BYTES = 64 * 2**20  # of states that wait to be written


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
    >>> import speechmix, tempfile
    >>> from speechmix.inputs import bundled
    >>> path = f"{tempfile.mkdtemp()}/states.parquet"
    >>> model = speechmix.load("bundled:tiny-french-ctc", device="cpu")
    >>> write_states(model, bundled.clips()[:2], path)
    ()
    >>> pd.read_parquet(path, filters=[("layer", "==", 3)]).shape  # 4 words, 9 columns, 144 dimensions
    (4, 153)
    """
    skipped = []
    facts: dict[str, object] = {"model": model.name, "init": model.init, "seed": model.seed}
    facts["level"] = level
    with whole_file(path) as unfinished, _StateWriter(unfinished, facts) as writer:
        for name, group_name, item in iterate_items(items, group, progress, level):
            layers: dict[str, int] = {}
            tables: dict[str, pd.DataFrame] = {}

            def write(
                stack: str,
                spans: Sequence[Span],
                entry: Tensor,
                names: tuple[str, str] = (name, group_name),
                layers: dict[str, int] = layers,
                tables: dict[str, pd.DataFrame] = tables,
            ) -> None:
                layers[stack] = layers.get(stack, INPUT - 1) + 1
                if stack not in tables:
                    tables[stack] = build_unit_table(*names, spans, level)
                writer.append(stack, layers[stack], tables[stack], entry.float().cpu().numpy())

            try:
                read_unit_layers(model, item, write, stacks=stacks, level=level)
            except SpeechmixError as error:
                if layers:  # some of its rows may be in the file already
                    raise
                skipped.append((name, str(error)))
        if not writer.has_rows:
            raise InputError(f"no clip has states of {level}s: {': '.join(skipped[0])}")
    return tuple(skipped)


class _StateWriter:
    """Context manager that writes rows of states, one layer of one stack to a row group."""

    def __init__(self, path: Path, facts: dict[str, object]):
        self._path, self._facts = path, facts
        self._writer: pq.ParquetWriter | None = None
        self._waiting: dict[tuple[str, int], list[tuple[pd.DataFrame, np.ndarray]]] = {}
        self._bytes = self._width = 0

    @property
    def has_rows(self) -> bool:
        """Whether anything was appended."""
        return self._writer is not None or bool(self._waiting)

    def append(self, stack: str, layer: int, units: pd.DataFrame, values: np.ndarray) -> None:
        """Add the states of some units in one layer [N, D]."""
        self._width = self._width or values.shape[1]
        if values.shape[1] != self._width:
            raise InputError(
                f"the {stack} has states of {values.shape[1]} dimensions, another stack of "
                f"{self._width}: write one stack to a file"
            )
        self._waiting.setdefault((stack, layer), []).append((units, values))
        self._bytes += values.nbytes
        if self._bytes > _BUFFER_BYTES:
            self._write()

    def _write(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        for (stack, layer), parts in self._waiting.items():
            units = pd.concat([table for table, _ in parts], ignore_index=True)
            units.insert(0, "stack", stack)
            units.insert(1, "layer", np.int32(layer))
            values = np.concatenate([array for _, array in parts]).T
            table = pa.Table.from_pandas(units, preserve_index=False)
            table = pa.Table.from_arrays(
                [*table.columns, *map(pa.array, np.ascontiguousarray(values))],
                [*table.column_names, *(f"d{index}" for index in range(len(values)))],
            )
            if self._writer is None:
                schema = table.schema.with_metadata({"speechmix": json.dumps(self._facts)})
                self._writer = pq.ParquetWriter(self._path, schema, write_page_checksum=True)
            self._writer.write_table(table.cast(self._writer.schema), row_group_size=len(table))
        self._waiting, self._bytes = {}, 0

    def __enter__(self) -> _StateWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._write()
        finally:
            if self._writer is not None:
                self._writer.close()
