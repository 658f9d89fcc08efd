"""Read a Whisper exported to ONNX by optimum or for transformers.js, float or quantised.

In: a folder with config.json, tokenizer files and encoder_model.onnx with decoder_model.onnx (or
decoder_model_merged.onnx), in the folder or in its folder onnx; of several types the file of the encoder
(encoder_model_quantized.onnx). Or one file: the classifier smart-turn. Out: a model of transformers.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ...adapters.loading.checkpoints import NO_CUSTOM_CODE, first_line, transformers_class
from ...adapters.loading.foreign_checkpoint import CheckpointReader, ForeignCheckpoint
from ...adapters.transformers_types import Config
from ...errors import ModelError, SpeechmixError
from .byte_reader import damaged_file_error
from .ctranslate2_files import load_tokenizer_file
from .onnx_graph import OnnxGraph
from .smart_turn import QUANTISED_ACTIVATIONS, is_smart_turn, open_smart_turn
from .whisper_weights import WeightParts, whisper_checkpoint

_DECODERS = ("decoder_model", "decoder_model_merged")


def is_onnx_model(path: Path) -> bool:
    """Whether a path is a file of ONNX, or a folder with the encoder of a Whisper in one."""
    if path.is_dir():
        return bool(_encoder_files(path)) and not any(path.glob("*.safetensors"))
    return path.suffix == ".onnx"


def _encoder_files(folder: Path) -> list[Path]:
    return sorted([*folder.glob("encoder_model*.onnx"), *folder.glob("onnx/encoder_model*.onnx")])


def decoder_file(encoder: Path) -> Path | None:
    """Return the decoder that goes with the file of an encoder; None for a classifier."""
    paths = [encoder.with_name(encoder.name.replace("encoder_model", name)) for name in _DECODERS]
    return next((path for path in paths if path.is_file() and path != encoder), None)


def open_onnx(path: Path) -> ForeignCheckpoint:
    """Read the graphs, and find the weights."""
    if path.is_dir():
        paths = _encoder_files(path)
        float_encoders = [each for each in paths if each.name == "encoder_model.onnx"]
        if len(float_encoders or paths) > 1:
            names = ", ".join(each.name for each in paths)
            raise ModelError(f"{path}: holds several encoders, give the file of one: {names}")
        path = (float_encoders or paths)[0]
    try:
        graph = OnnxGraph(path)
        decoder = decoder_file(path)
        if decoder is None and is_smart_turn(graph):
            return open_smart_turn(graph)
        if decoder is None:
            raise ModelError(
                f"{path}: expected a decoder_model.onnx beside it, or the classifier smart-turn"
            )
        return _open_whisper(path, graph, OnnxGraph(decoder))
    except SpeechmixError:
        raise
    except (
        Exception
    ) as error:  # arrays that do not fit, and whatever protobuf makes of a damaged file
        raise damaged_file_error(path, "Whisper in ONNX", error) from error


def _open_whisper(path: Path, encoder: OnnxGraph, decoder: OnnxGraph) -> ForeignCheckpoint:
    folder = path.parent if (path.parent / "config.json").is_file() else path.parent.parent
    config = _read(folder, "AutoConfig")
    if config.model_type != "whisper":
        raise ModelError(
            f"{folder / 'config.json'}: expected a Whisper, found {config.model_type!r:.40}"
        )
    config.dtype = torch.float32
    arrays = {}
    for stack, graph in (("encoder", encoder), ("decoder", decoder)):
        named = {
            name: graph.named(name) for name in graph.names if name.endswith((".weight", ".bias"))
        }
        for name, value in {**named, **graph.linear_weights()}.items():
            name = name.removeprefix("model.").removeprefix(f"{stack}.")
            if not name.startswith("proj_out"):
                arrays[f"{stack}.{name}"] = value
    positions = encoder.added_constant((config.max_source_positions, config.d_model))
    if positions is not None:
        arrays.setdefault("encoder.embed_positions.weight", positions)
    return whisper_checkpoint(
        path,
        f"ONNX, {encoder.types()}",
        config,
        WeightParts(
            {name: partial(_tensor, value) for name, value in arrays.items()},
            {name: value.shape for name, value in arrays.items()},
        ),
        lambda: _read(folder, "GenerationConfig"),
        partial(load_tokenizer_file, folder),
        remarks=(QUANTISED_ACTIVATIONS,) * encoder.has_quantised_activations,
    )


def _tensor(value: np.ndarray) -> Tensor:
    return torch.from_numpy(np.array(value, dtype=np.float32))


def _read(folder: Path, class_name: str) -> Config:
    try:
        return transformers_class(class_name).from_pretrained(str(folder), **NO_CUSTOM_CODE)
    except Exception as error:  # a damaged file
        raise ModelError(
            f"{folder}: no {class_name} beside the ONNX files ({first_line(error)})"
        ) from error


ONNX_READER = CheckpointReader(is_onnx_model, open_onnx)
