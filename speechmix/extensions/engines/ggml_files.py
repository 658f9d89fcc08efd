"""Read a model of whisper.cpp (ggml): a file of one magic number, sizes, mel filters, tokens, weights.

In: the ``.bin`` file, float32, float16 or quantised. Out: a Whisper of transformers. Quantised weights
are dequantised by the package `gguf`, exactly as whisper.cpp reads them. Layout, little-endian: uint32
magic; 11 int32 sizes; mel filters (two int32, float32 [mel, frequency]); tokens (int32 count; each:
int32 length and bytes); then weights until the end: int32 rank, length of the name, type; int32
dimensions, the innermost first; name; data. The file has no special tokens, rules or alignment heads.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ...adapters.loading.foreign_checkpoint import CheckpointReader, ForeignCheckpoint
from ...adapters.transformers_types import Config, FeatureExtractor
from ...errors import MissingExtraError, ModelError
from .byte_reader import READ_ERRORS, ByteReader, damaged_file_error, read_start
from .module_checkpoint import (
    NO_HEADS,
    OPENAI_SIZES,
    WeightParts,
    describe_types,
    hugging_face_name,
    openai_config,
    whisper_checkpoint,
)
from .whisper_tokens import OpenaiVocabulary

_MAGIC = b"lmgg"  # 0x67676d6c
_TYPES: dict[int, tuple[str, str]] = {0: ("f32", "<f4"), 1: ("f16", "<f2")}
_MAX_RANK = 3


def is_ggml_file(path: Path) -> bool:
    """Whether a file begins as those of whisper.cpp."""
    return read_start(path, 4) == _MAGIC


def open_ggml(path: Path) -> ForeignCheckpoint:
    """Read the header and where the weights lie."""
    try:
        reader = ByteReader(path)
        reader.take(4)
        *sizes, _ = reader.numbers("i", len(OPENAI_SIZES) + 1)
        filters = reader.numbers("i", 2)
        mel_filters = reader.take(4 * filters[0] * filters[1]).view("<f4").reshape(filters)
        tokens = [reader.text(reader.number("i")) for _ in range(_count(reader, sizes[0]))]
        config = openai_config(dict(zip(OPENAI_SIZES, sizes, strict=True)), path)
        weights: dict[str, Callable[[], Tensor]] = {}
        shapes, types = {}, set()
        while not reader.is_at_end:
            name, shape, type_name, read = _read_weight(reader)
            weights[name], shapes[name] = read, shape
            types.add(type_name)
    except READ_ERRORS as error:
        raise damaged_file_error(path, "model of whisper.cpp", error) from error
    vocabulary = OpenaiVocabulary(config, tokens, path)
    return whisper_checkpoint(
        path,
        f"ggml (whisper.cpp), {describe_types(types)}",
        config,
        WeightParts(weights, shapes),
        lambda: vocabulary.generation_config(has_symbols=False),
        load_tokenizer=vocabulary.tokenizer,
        load_extractor=lambda: create_extractor(config, mel_filters, path),
        remarks=(NO_HEADS,),
    )


def _count(reader: ByteReader, limit: int) -> int:
    count = reader.number("i")
    if not 0 <= count <= limit:
        raise ValueError(f"{count} tokens, of a vocabulary of {limit}")
    return count


def _read_weight(reader: ByteReader) -> tuple[str, list[int], str, Callable[[], Tensor]]:
    rank, length, type_id = reader.numbers("i", 3)
    if not 0 < rank <= _MAX_RANK:
        raise ValueError(f"a weight of {rank} dimensions at {reader.position}")
    shape = list(reader.numbers("i", rank))[::-1]
    if min(shape) < 1:
        raise ValueError(f"a weight of the shape {shape}")
    name = hugging_face_name(reader.text(length).decode())
    elements = int(np.prod(shape, dtype=object))
    read: Callable[[], np.ndarray]
    if type_id in _TYPES:
        type_name, dtype = _TYPES[type_id]
        data = reader.take(elements * np.dtype(dtype).itemsize).view(dtype).reshape(shape)
        read = partial(np.array, data)
    else:
        type_name, block, size, dequantise = _quantised_type(type_id, reader.path)
        if shape[-1] % block:
            raise ValueError(f"{name!r:.60} of {type_name} has rows of {shape[-1]}")
        data = reader.take(elements // block * size).reshape(-1, shape[-1] // block * size)
        read = partial(dequantise, data)
    if name.endswith(("conv1.bias", "conv2.bias")):
        shape = [elements]  # the file has [n, 1]
    return name, shape, type_name, lambda: torch.from_numpy(read().reshape(shape))


def _quantised_type(
    type_id: int, path: Path
) -> tuple[str, int, int, Callable[[np.ndarray], np.ndarray]]:
    """Name of a type of ggml, weights and bytes of a block, and what dequantises rows of bytes."""
    try:
        from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
        from gguf.quants import dequantize
    except ImportError as error:
        raise MissingExtraError("gguf", "engines", f"the quantised weights of {path}") from error
    try:
        quantised = GGMLQuantizationType(type_id)
    except ValueError as error:
        raise ValueError(f"weights of the unknown type {type_id}") from error
    block, size = GGML_QUANT_SIZES[quantised]
    return (
        quantised.name.lower(),
        block,
        size,
        lambda data: np.asarray(dequantize(np.array(data), quantised), dtype=np.float32),
    )


def create_extractor(
    config: Config, mel_filters: np.ndarray, path: Path
) -> FeatureExtractor:  # [mel, frequency]
    """Return Whisper's feature extractor with the filters of a file."""
    from transformers import WhisperFeatureExtractor

    extractor = WhisperFeatureExtractor(
        feature_size=config.num_mel_bins, chunk_length=config.max_source_positions // 50
    )
    filters = np.array(mel_filters.T, dtype=np.float64)
    if filters.shape != extractor.mel_filters.shape or not np.isfinite(filters).all():
        raise ModelError(f"{path}: damaged: mel filters of the shape {filters.shape}")
    extractor.mel_filters = filters
    return extractor


GGML_READER = CheckpointReader(is_ggml_file, open_ggml)
