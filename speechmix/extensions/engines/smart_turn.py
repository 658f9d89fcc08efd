"""Read smart-turn (pipecat-ai), which hears whether a speaker has finished: Whisper tiny's encoder with a
head, in one ONNX file of 8 s.

In: its graph. Out: a classifier with the labels "incomplete" and "complete". The head weights frames by
attention pooling, and has three linear layers; its sigmoid becomes a softmax over the logits 0 and z.
The file quantises activations; the copy does not, so it is another model: measure how far it is.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from ...adapters.loading.foreign_checkpoint import ForeignCheckpoint
from ...adapters.transformers_types import Config, FeatureExtractor
from ...errors import ModelError
from .whisper_weights import create_config

if TYPE_CHECKING:
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

    def load_module(dtype: torch.dtype) -> nn.Module:
        module = _classifier_class()(config)
        state = {
            name: torch.from_numpy(np.array(value)).to(dtype) for name, value in arrays.items()
        }
        state["pool_attention.2.weight"] = state["pool_attention.2.weight"].reshape(1, -1)
        try:
            module.load_state_dict(state, assign=True)
        except RuntimeError as error:
            reason = " ".join(str(error).split())[:200]
            raise ModelError(f"{graph.path}: damaged, or another model ({reason})") from error
        result: nn.Module = module
        return result

    remarks = (QUANTISED_ACTIVATIONS,) * graph.has_quantised_activations
    return ForeignCheckpoint(
        graph.path,
        f"ONNX (smart-turn), {graph.types()}",
        config,
        _classifier_class(),
        load_module,
        load_extractor=lambda: _create_extractor(config),
        remarks=(*remarks, _PADDING),
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
