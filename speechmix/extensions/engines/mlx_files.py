"""Read a Whisper as MLX has it (mlx-whisper): a folder with config.json and weights.

In: the folder, with weights.npz or weights.safetensors, float. Out: a Whisper of transformers. Names
are OpenAI's; convolutions are [out, time, in], positions of the encoder are not stored, and
`alignment_heads` may be among the weights.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ...adapters.loading.foreign_checkpoint import CheckpointReader, ForeignCheckpoint
from ...errors import ModelError
from ...files.json_files import JsonObject, read_json_object
from .byte_reader import check_stored_archive, damaged_file_error
from .module_checkpoint import OPENAI_SIZES, openai_config
from .openai_files import whisper_of_openai

_WEIGHT_FILES = ("weights.safetensors", "weights.npz", "model.safetensors")
_MAX_CONFIG_BYTES = 2**20
_MAX_POSITIONS = 2**13  # of the encoder, whose encodings are not in the file; a Whisper has 1,500


def is_mlx_folder(path: Path) -> bool:
    """Whether a folder has weights, and a config.json that names OpenAI's sizes."""
    config = path / "config.json"
    if not config.is_file() or _weight_file(path) is None:
        return False
    return config.stat().st_size < _MAX_CONFIG_BYTES and b'"n_audio_state"' in config.read_bytes()


def _weight_file(folder: Path) -> Path | None:
    return next((folder / name for name in _WEIGHT_FILES if (folder / name).is_file()), None)


def open_mlx(folder: Path) -> ForeignCheckpoint:
    """Read sizes and weights."""
    from transformers.models.whisper.modeling_whisper import sinusoids

    sizes: JsonObject = read_json_object(folder / "config.json")
    path = _weight_file(folder) or folder
    if sizes.get("quantization") is not None:
        raise ModelError(
            f"{folder}: MLX's own quantisation ({str(sizes['quantization'])[:60]}) is not read: convert the "
            "float model it was made from"
        )
    weights = _read_weights(path)
    heads = weights.pop("alignment_heads", None)
    for name in ("encoder.conv1.weight", "encoder.conv2.weight"):
        if name in weights and weights[name].ndim == 3:
            weights[name] = weights[name].permute(0, 2, 1)
    sizes = {name: sizes.get(name) for name in OPENAI_SIZES}
    config = openai_config(sizes, path)
    length, width = config.max_source_positions, config.d_model
    bias = weights.get("encoder.conv1.bias")
    if bias is None or bias.shape != (width,) or length > _MAX_POSITIONS or width % 2:
        raise ModelError(f"{path}: damaged, or no Whisper: {length} positions of the width {width}")
    weights.setdefault("encoder.positional_embedding", sinusoids(length, width))
    is_heads = heads is not None and heads.ndim == 2 and heads.shape[1] == 2 and len(heads) < 1000
    return whisper_of_openai(
        path, "MLX", sizes, weights, heads.tolist() if heads is not None and is_heads else None
    )


def _read_weights(path: Path) -> dict[str, Tensor]:
    try:
        if path.suffix == ".npz":
            return _read_npz(path)
        from safetensors.torch import load_file

        return load_file(path)
    except Exception as error:  # safetensors raises what it likes
        if isinstance(error, ModelError):
            raise
        raise damaged_file_error(path, "weights of MLX", error) from error


def _read_npz(path: Path) -> dict[str, Tensor]:
    """Read an archive of arrays; numpy's own reader allocates what a header claims."""
    check_stored_archive(path)
    weights = {}
    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            data = archive.read(entry)
            stream = io.BytesIO(data)
            version = np.lib.format.read_magic(stream)
            read_header = (
                np.lib.format.read_array_header_1_0
                if version == (1, 0)
                else np.lib.format.read_array_header_2_0
            )
            shape, is_fortran, dtype = read_header(stream)
            if dtype.kind not in "fiu" or is_fortran:
                raise ModelError(f"{path}: {entry.filename!r:.60} has the type {dtype}")
            values = np.frombuffer(data, dtype, offset=stream.tell()).reshape(shape)
            weights[entry.filename.removesuffix(".npy")] = torch.from_numpy(values.copy())
    return weights


MLX_READER = CheckpointReader(is_mlx_folder, open_mlx)
