"""Read a Whisper that CTranslate2 runs (faster-whisper, WhisperX): model.bin and files beside it.

In: a folder with model.bin, config.json and tokenizer.json, or its model.bin. Out: a Whisper of
transformers. Layout of model.bin, little-endian: uint32 version; name of the specification (uint16
length, with a final zero byte); uint32 revision and count of variables; each variable: name, uint8 rank,
uint32 dimensions, uint8 type, uint32 bytes, data. Weights of queries, keys and values are stacked; key
biases, which Whisper does not have, are zeros; int8 weights have a scale for each row, int16 weights one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...adapters.loading.checkpoints import NO_CUSTOM_CODE, first_line, transformers_class
from ...adapters.loading.foreign_checkpoint import CheckpointReader, ForeignCheckpoint
from ...adapters.transformers_types import Config, Tokenizer
from ...errors import ModelError
from ...files.json_files import read_json_object
from .byte_reader import READ_ERRORS, ByteReader, damaged_file_error, read_start
from .whisper_tokens import create_generation_config
from .whisper_weights import (
    NO_HEADS,
    WeightParts,
    create_config,
    describe_types,
    whisper_checkpoint,
)

Variables = dict[str, np.ndarray]

_BF16 = np.dtype([("bf16", "<u2")])  # numpy has no such type
_TYPES = (*map(np.dtype, ("<f4", "i1", "<i2", "<i4", "<f2")), _BF16)  # by their code
_TYPE_NAMES = {"<f4": "f32", "|i1": "int8", "<i2": "int16", "<f2": "f16"}
_MAX_VARIABLES, _MAX_RANK = 10_000, 4
_ACTIVATIONS = {0: "relu", 2: "gelu_pytorch_tanh", 3: "gelu", 4: "gelu"}
_SUBLAYERS = {  # name here: norm, and the layers into which each weight is split, in transformers
    "self_attention": ("self_attn_layer_norm", [["q", "k", "v"], ["out"]], "self_attn.{}_proj"),
    "attention": ("encoder_attn_layer_norm", [["q"], ["k", "v"], ["out"]], "encoder_attn.{}_proj"),
    "ffn": ("final_layer_norm", [["1"], ["2"]], "fc{}"),
}
_LINEAR, _NORM = {"weight": "weight", "bias": "bias"}, {"gamma": "weight", "beta": "bias"}


def is_ctranslate2_model(path: Path) -> bool:
    """Whether a path is a model.bin of CTranslate2, or a folder with one and no model of
    transformers."""
    if path.is_dir():
        return (path / "model.bin").is_file() and not any(path.glob("*.safetensors"))
    return path.name == "model.bin" and read_start(path, 4)[1:] == b"\0\0\0"


def open_ctranslate2(path: Path) -> ForeignCheckpoint:
    """Read the header and where the weights lie."""
    folder = path if path.is_dir() else path.parent
    path = folder / "model.bin"
    variables, tokens = _read_variables(path), _read_tokens(folder)
    try:
        config = _read_config(variables, tokens, path)
        parts = dict(_weight_parts(variables, config))
    except (KeyError, ValueError, TypeError, IndexError) as error:
        raise ModelError(f"{path}: not a Whisper as CTranslate2 writes it, no {error}") from error
    described = (
        read_json_object(folder / "config.json") if (folder / "config.json").is_file() else {}
    )
    heads = described.get("alignment_heads")
    types = describe_types(
        _TYPE_NAMES.get(value.dtype.str, "bf16") for value in variables.values() if value.ndim > 1
    )
    return whisper_checkpoint(
        path,
        f"CTranslate2, {types}",
        config,
        WeightParts(
            {name: read for name, (_, read) in parts.items()},
            {name: shape for name, (shape, _) in parts.items()},
        ),
        lambda: create_generation_config(
            config,
            tokens,
            suppressed=described.get("suppress_ids"),
            suppressed_at_begin=described.get("suppress_ids_begin"),
            alignment_heads=heads,
            language_ids=described.get("lang_ids"),
        ),
        partial(load_tokenizer_file, folder),
        remarks=() if heads else (NO_HEADS,),
    )


def load_tokenizer_file(folder: Path) -> Tokenizer:
    """Return Whisper's tokenizer; a ModelError for a damaged tokenizer.json."""
    try:
        return transformers_class("WhisperTokenizer").from_pretrained(str(folder), **NO_CUSTOM_CODE)
    except Exception as error:  # the tokenizers library raises plain exceptions
        raise ModelError(
            f"{folder / 'tokenizer.json'}: no tokenizer ({first_line(error)})"
        ) from error


def _read_variables(path: Path) -> Variables:
    """Return the variables of model.bin by name; nothing is copied out of the file."""
    try:
        reader = ByteReader(path)
        version, name = reader.number("I"), _read_name(reader)
        _, count = reader.numbers("I", 2)
        if not 0 < version <= 6 or name != "WhisperSpec" or count > _MAX_VARIABLES:
            raise ModelError(
                f"{path}: expected a Whisper of CTranslate2 (WhisperSpec), found {name!r:.60}, version {version}: "
                "of other models (wav2vec2, ...), give the folder of transformers that was converted"
            )
        variables = dict(_read_variable(reader) for _ in range(count))
        for _ in range(_count_aliases(reader)):
            alias, name = _read_name(reader), _read_name(reader)
            variables.setdefault(alias, variables[name])
    except READ_ERRORS as error:
        raise damaged_file_error(path, "model of CTranslate2", error) from error
    return variables


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


def _read_config(variables: Variables, tokens: dict[str, int], path: Path) -> Config:
    """Return the config that follows from the shapes of the weights."""
    vocab_size, width = variables["decoder/embeddings/weight"].shape
    sizes: dict[str, Any] = {}
    for stack in ("encoder", "decoder"):
        layers = {name.split("/")[1] for name in variables if name.startswith(f"{stack}/layer_")}
        sizes[f"{stack}_layers"] = len(layers - {"layer_norm"})
        sizes[f"{stack}_attention_heads"] = int(variables[f"{stack}/num_heads"])
        sizes[f"{stack}_ffn_dim"] = len(variables[f"{stack}/layer_0/ffn/linear_0/bias"])
    projection = variables.get("decoder/projection/weight", variables["decoder/embeddings/weight"])
    if not np.array_equal(projection, variables["decoder/embeddings/weight"]):
        raise ModelError(f"{path}: its output layer is not its embedding, as a Whisper's is")
    return create_config(
        path,
        end_id=tokens["<|endoftext|>"],
        vocab_size=vocab_size,
        d_model=width,
        num_mel_bins=variables["encoder/conv1/weight"].shape[1],
        activation_function=_ACTIVATIONS[int(variables.get("decoder/activation", np.array(3)))],
        max_source_positions=len(variables["encoder/position_encodings/encodings"]),
        max_target_positions=len(variables["decoder/position_encodings/encodings"]),
        **sizes,
    )


def _weight_parts(
    variables: Variables, config: Config
) -> Iterator[tuple[str, tuple[list[int], Callable[[], Tensor]]]]:
    """Yield the weights by transformers' names, with their shape and what reads them."""

    def part(target: str, name: str, start: int, stop: int) -> Any:
        shape = [stop - start, *variables[name].shape[1:]]
        return target, (shape, lambda: _read_rows(variables, name, start, stop))

    def whole(target: str, name: str, kinds: dict[str, str]) -> Iterator[Any]:
        for ours, theirs in kinds.items():
            source = f"{name}/{ours}"
            yield part(f"{target}.{theirs}", source, 0, len(variables[source]))

    yield from whole("decoder.embed_tokens", "decoder/embeddings", {"weight": "weight"})
    for name in ("conv1", "conv2"):
        yield from whole(f"encoder.{name}", f"encoder/{name}", _LINEAR)
    for stack in ("encoder", "decoder"):
        positions = f"{stack}/position_encodings"
        yield from whole(f"{stack}.embed_positions", positions, {"encodings": "weight"})
        yield from whole(f"{stack}.layer_norm", f"{stack}/layer_norm", _NORM)
        for index in range(getattr(config, f"{stack}_layers")):
            layer, target = f"{stack}/layer_{index}", f"{stack}.layers.{index}"
            for sublayer, (norm_name, linears, pattern) in _SUBLAYERS.items():
                if sublayer == "attention" and stack == "encoder":
                    continue
                yield from whole(f"{target}.{norm_name}", f"{layer}/{sublayer}/layer_norm", _NORM)
                for number, kind in ((n, k) for n in range(len(linears)) for k in _LINEAR):
                    name, parts = f"{layer}/{sublayer}/linear_{number}/{kind}", linears[number]
                    rows = len(variables[name]) // len(parts)
                    for index_of_part, letter in enumerate(parts):
                        start = rows * index_of_part
                        if letter == "k" and kind == "bias":
                            if variables[name][start : start + rows].any():
                                raise ValueError(f"{name}: biases of keys that are zero")
                            continue
                        full_name = f"{target}.{pattern.format(letter)}.{kind}"
                        yield part(full_name, name, start, start + rows)


def _read_rows(variables: Variables, name: str, start: int, stop: int) -> Tensor:
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


def _read_tokens(folder: Path) -> dict[str, int]:
    """Return the added tokens of tokenizer.json by text: <|endoftext|>, <|en|>, ..."""
    path = folder / "tokenizer.json"
    added = read_json_object(path).get("added_tokens")
    try:
        tokens = {str(token["content"]): int(token["id"]) for token in added or []}
        tokens["<|endoftext|>"], tokens["<|startoftranscript|>"]
    except (TypeError, KeyError, ValueError) as error:
        raise ModelError(f"{path}: expected a tokenizer with its added tokens") from error
    return tokens


CTRANSLATE2_READER = CheckpointReader(is_ctranslate2_model, open_ctranslate2)
