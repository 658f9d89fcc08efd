"""Read the variables of a model.bin of CTranslate2, and take weights of transformers out of them.

In: the file. Out: its arrays by name, views of the mapped file, and from them weights by transformers'
names. Layout, little-endian: uint32 version; name of the specification (uint16 length, with a final zero
byte); uint32 revision and count of variables; each variable: name, uint8 rank, uint32 dimensions, uint8
type, uint32 bytes, data; then aliases. Weights of queries, keys and values are stacked; int8 weights have
a scale for each row, int16 weights one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ...errors import ModelError
from .byte_reader import READ_ERRORS, ByteReader, damaged_file_error
from .module_checkpoint import WeightParts, describe_types

Variables = dict[str, np.ndarray]

_BF16 = np.dtype([("bf16", "<u2")])  # numpy has no such type
_TYPES = (*map(np.dtype, ("<f4", "i1", "<i2", "<i4", "<f2")), _BF16)  # by their code
_TYPE_NAMES = {"<f4": "f32", "|i1": "int8", "<i2": "int16", "<f2": "f16"}
SPECIFICATIONS = ("WhisperSpec", "Wav2Vec2Spec")
_MAX_VARIABLES, _MAX_RANK = 10_000, 4
_LINEAR, _NORM = {"weight": "weight", "bias": "bias"}, {"gamma": "weight", "beta": "bias"}


def read_variables(path: Path) -> tuple[str, Variables]:
    """Return the name of the specification, and the variables by name; nothing is copied out of the
    file."""
    try:
        reader = ByteReader(path)
        version, name = reader.number("I"), _read_name(reader)
        _, count = reader.numbers("I", 2)
        if not 0 < version <= 6 or name not in SPECIFICATIONS or count > _MAX_VARIABLES:
            raise ModelError(
                f"{path}: expected a model of CTranslate2 ({' or '.join(SPECIFICATIONS)}), found {name!r:.60}, "
                f"version {version}: of other models, give the folder of transformers that was converted"
            )
        variables = dict(_read_variable(reader) for _ in range(count))
        for _ in range(_count_aliases(reader)):
            alias, original = _read_name(reader), _read_name(reader)
            variables.setdefault(alias, variables[original])
    except READ_ERRORS as error:
        raise damaged_file_error(path, "model of CTranslate2", error) from error
    return name, variables


def _read_name(reader: ByteReader) -> str:
    return reader.text(reader.number("H")).removesuffix(b"\0").decode()


def _read_variable(reader: ByteReader) -> tuple[str, np.ndarray]:
    name, rank = _read_name(reader), reader.number("B")
    if rank > _MAX_RANK:
        raise ValueError(f"{name!r:.60} has {rank} dimensions")
    shape = reader.numbers("I", rank)
    dtype = _TYPES[reader.number("B")]
    return name, reader.take(reader.number("I")).view(dtype).reshape(shape)


def _count_aliases(reader: ByteReader) -> int:
    count = 0 if reader.is_at_end else reader.number("I")
    if count > _MAX_VARIABLES:
        raise ValueError(f"{count} aliases")
    return count


class StoredWeights:
    """Weights of transformers that are parts of variables; collected name by name."""

    def __init__(self, variables: Variables) -> None:
        self.variables = variables
        self.parts = WeightParts({}, {})

    def add(self, target: str, name: str, start: int = 0, stop: int | None = None) -> None:
        """Take some rows of a variable, all by default."""
        value = self.variables[name]
        stop = len(value) if stop is None else stop
        self.parts.shapes[target] = [stop - start, *value.shape[1:]]
        self.parts.readers[target] = partial(read_rows, self.variables, name, start, stop)

    def add_layer(self, target: str, name: str) -> None:
        """Take weight and bias of a linear layer, a convolution or a norm."""
        for stored_name, kind in (_NORM if f"{name}/gamma" in self.variables else _LINEAR).items():
            self.add(f"{target}.{kind}", f"{name}/{stored_name}")

    def add_stacked(
        self, targets: Sequence[str], name: str, without_bias: Sequence[str] = ()
    ) -> None:
        """Take linear layers whose rows lie one after the other; those `without_bias` in transformers
        have zeros there."""
        for kind in _LINEAR:
            value = self.variables[f"{name}/{kind}"]
            rows = len(value) // len(targets)
            for index, target in enumerate(targets):
                start, stop = rows * index, rows * (index + 1)
                if kind == "weight" or target not in without_bias:
                    self.add(f"{target}.{kind}", f"{name}/{kind}", start, stop)
                elif value[start:stop].any():
                    raise ValueError(f"{name}/{kind}: biases of keys that are zero")

    def types(self) -> str:
        """Name the types of the matrices."""
        return describe_types(
            _TYPE_NAMES.get(value.dtype.str, "bf16")
            for value in self.variables.values()
            if value.ndim > 1
        )


def read_rows(variables: Variables, name: str, start: int, stop: int) -> Tensor:
    """Read some rows of a weight as floating-point numbers."""
    value = variables[name][start:stop]
    if value.dtype == _BF16:
        return torch.from_numpy(value.view("<i2").copy()).view(torch.bfloat16)
    if value.dtype.kind == "f":
        return torch.from_numpy(np.array(value))
    if f"{name}_scale" not in variables:
        raise ValueError(f"no scale of {name}")
    scale = np.array(variables[f"{name}_scale"], dtype=np.float32)  # 127 / largest of the row
    if scale.ndim:
        scale = scale[start:stop].reshape(-1, *[1] * (value.ndim - 1))
    return torch.from_numpy(value.astype(np.float32) / scale)
