"""Read a Whisper exported to ONNX by optimum or for transformers.js, float or quantised, and smart-turn.

In: a folder with config.json, tokenizer files and encoder_model.onnx with decoder_model.onnx (or
decoder_model_merged.onnx), in the folder or in its folder onnx; of several types the file of the encoder
(encoder_model_quantized.onnx). Or one file: smart-turn (pipecat-ai), which hears whether a speaker has
finished, Whisper tiny's encoder for 8 s with a head. Out: a model of transformers; of smart-turn a
classifier with the labels "incomplete" and "complete". Its head weights frames by attention pooling, and
has three linear layers; its sigmoid becomes a softmax over the logits 0 and z. The file quantises
activations; the copy does not, so it is another model: measure how far it is.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...adapters.loading.foreign_checkpoint import CheckpointReader, ForeignCheckpoint
from ...adapters.transformers_types import Config, FeatureExtractor
from ...errors import ModelError, SpeechmixError
from .byte_reader import damaged_file_error
from .module_checkpoint import (
    WeightParts,
    create_config,
    load_beside,
    module_checkpoint,
    whisper_checkpoint,
)
from .onnx_graph import OnnxGraph

_PREFIX = "inner."
QUANTISED_ACTIVATIONS = (
    "its engine quantises activations, the copy does not and may decide otherwise: load it with "
    "engine='onnxruntime', which measures how far the copy is"
)
_PADDING = (
    "give clips of 8 s: its authors fill shorter ones up at their beginning, speechmix at their end"
)


def is_smart_turn(graph: OnnxGraph) -> bool:
    """Whether a graph has the head of smart-turn."""
    return {f"{_PREFIX}pool_attention.0.bias", f"{_PREFIX}classifier.6.weight"} <= graph.names


def open_smart_turn(graph: OnnxGraph) -> ForeignCheckpoint:
    """Find the weights, and build the classifier when it is loaded."""
    arrays = {
        name.removeprefix(_PREFIX): graph.named(name)
        for name in graph.names
        if name.startswith(_PREFIX) and name.endswith((".weight", ".bias"))
    }
    linear = graph.linear_weights().items()
    arrays |= {name.removeprefix(_PREFIX): value for name, value in linear}
    positions, width = arrays["encoder.embed_positions.weight"].shape
    layers = {name.split(".")[2] for name in arrays if name.startswith("encoder.layers.")}
    config = create_config(
        graph.path,
        vocab_size=51865,
        d_model=width,
        num_mel_bins=arrays["encoder.conv1.weight"].shape[1],
        encoder_layers=len(layers),
        decoder_layers=1,
        encoder_attention_heads=width // 64,
        decoder_attention_heads=width // 64,
        encoder_ffn_dim=len(arrays["encoder.layers.0.fc1.weight"]),
        decoder_ffn_dim=width,
        max_source_positions=positions,
        max_target_positions=8,
    )
    config.architectures = ["WhisperForAudioClassification"]
    config.id2label = {0: "incomplete", 1: "complete"}

    pooling = "pool_attention.2.weight"
    arrays[pooling] = arrays[pooling].reshape(1, -1)
    remarks = (QUANTISED_ACTIVATIONS,) * graph.has_quantised_activations
    return module_checkpoint(
        graph.path,
        f"ONNX (smart-turn), {graph.types()}",
        config,
        _weight_parts(arrays),
        model_class=_classifier_class(),
        load_extractor=partial(_create_extractor, config),
        remarks=(*remarks, _PADDING),
    )


def _weight_parts(arrays: dict[str, np.ndarray]) -> WeightParts:
    return WeightParts(
        {name: partial(_tensor, value) for name, value in arrays.items()},
        {name: [*value.shape] for name, value in arrays.items()},
    )


@cache
def _classifier_class() -> Callable[[Config], Any]:
    from transformers import WhisperForAudioClassification
    from transformers.modeling_outputs import SequenceClassifierOutput

    class TurnForAudioClassification(WhisperForAudioClassification):
        """Whisper's encoder, and the head of smart-turn."""

        def __init__(self, config: Config) -> None:
            super().__init__(config)
            del self.projector
            width = config.d_model
            self.pool_attention = nn.Sequential(nn.Linear(width, 256), nn.Tanh(), nn.Linear(256, 1))
            self.classifier: Any = nn.Sequential(
                nn.Linear(width, 256),
                nn.LayerNorm(256),
                nn.GELU(),
                nn.Identity(),
                nn.Linear(256, 64),
                nn.GELU(),
                nn.Linear(64, 1),
            )

        def forward(
            self, input_features: Any = None, encoder_outputs: Any = None, **options: Any
        ) -> Any:
            if encoder_outputs is None:
                encoder_outputs = self.encoder(input_features)
            states = encoder_outputs[0]  # [B, T, D]
            weights = self.pool_attention(states).softmax(dim=1)
            logit = self.classifier((weights * states).sum(dim=1))
            return SequenceClassifierOutput(
                logits=torch.cat([torch.zeros_like(logit), logit], dim=1)
            )

    return TurnForAudioClassification


def _create_extractor(config: Config) -> FeatureExtractor:
    from transformers import WhisperFeatureExtractor

    class NormalizingFeatureExtractor(WhisperFeatureExtractor):
        """Makes mean 0 and variance 1 of the samples before it computes features."""

        def __call__(self, *arguments: Any, **options: Any) -> Any:
            return super().__call__(*arguments, **{**options, "do_normalize": True})

    create: Any = NormalizingFeatureExtractor
    return create(feature_size=config.num_mel_bins, chunk_length=config.max_source_positions // 50)


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
    config = load_beside(folder, "AutoConfig")
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
        _weight_parts(arrays),
        partial(load_beside, folder, "GenerationConfig"),
        load_tokenizer=partial(load_beside, folder, "WhisperTokenizer"),
        remarks=(QUANTISED_ACTIVATIONS,) * encoder.has_quantised_activations,
    )


def _tensor(value: np.ndarray) -> Tensor:
    return torch.from_numpy(np.array(value, dtype=np.float32))


ONNX_READER = CheckpointReader(is_onnx_model, open_onnx)
