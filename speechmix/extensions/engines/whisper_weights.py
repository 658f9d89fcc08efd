"""Config and weights of a Whisper from what files of other engines hold.

In: sizes and weights, by the names of OpenAI's code (openai-whisper, whisper.cpp, MLX) or of
transformers. Out: a `WhisperConfig`, and an unmodified `WhisperForConditionalGeneration`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from ...adapters.loading.foreign_checkpoint import ForeignCheckpoint
from ...adapters.transformers_types import Config, PretrainedModule
from ...errors import ModelError
from .module_checkpoint import WeightParts, module_checkpoint

OPENAI_SIZES = (  # `dims` of openai-whisper, in the order in which ggml files hold them
    "n_vocab",
    "n_audio_ctx",
    "n_audio_state",
    "n_audio_head",
    "n_audio_layer",
    "n_text_ctx",
    "n_text_state",
    "n_text_head",
    "n_text_layer",
    "n_mels",
)
MAX_SIZE = 2**20  # of any dimension of a Whisper: its vocabulary is the largest, 51,866
_MAX_LAYERS, _MAX_MELS = 256, 1024
NO_HEADS = (
    "it names no alignment heads: word times by cross-attention need heads that "
    "`speechmix heads` chooses, or word times by synthesis"
)
_HUGGING_FACE_PARTS = {
    "blocks": "layers",
    "attn": "self_attn",
    "cross_attn": "encoder_attn",
    "attn_ln": "self_attn_layer_norm",
    "cross_attn_ln": "encoder_attn_layer_norm",
    "mlp_ln": "final_layer_norm",
    "mlp1": "fc1",
    "mlp2": "fc2",
    "query": "q_proj",
    "key": "k_proj",
    "value": "v_proj",
    "out": "out_proj",
    "ln_post": "layer_norm",
    "ln": "layer_norm",
    "token_embedding": "embed_tokens",
    "positional_embedding": "embed_positions.weight",
}


def hugging_face_name(name: str) -> str:
    """Name that transformers gives to a weight of OpenAI's code.

    Examples
    --------
    >>> hugging_face_name("decoder.blocks.3.cross_attn.query.weight")
    'decoder.layers.3.encoder_attn.q_proj.weight'
    >>> hugging_face_name("encoder.blocks.0.mlp.2.bias")
    'encoder.layers.0.fc2.bias'
    """
    name = name.replace(".mlp.0.", ".mlp1.").replace(".mlp.2.", ".mlp2.")
    return ".".join(_HUGGING_FACE_PARTS.get(part, part) for part in name.split("."))


def openai_config(sizes: Mapping[str, Any], source: str | Path) -> Config:
    """Return the config of a Whisper with these `dims`; a ModelError for sizes that no model has."""
    damaged = {
        name: sizes.get(name)
        for name in OPENAI_SIZES
        if type(sizes.get(name)) is not int or not 0 < sizes[name] <= MAX_SIZE
    }
    if damaged:
        name, value = next(iter(damaged.items()))
        raise ModelError(f"{source}: damaged, or no Whisper: {name} is {value!r:.40}")
    if sizes["n_audio_state"] != sizes["n_text_state"]:
        raise ModelError(f"{source}: an encoder and a decoder of two widths are no Whisper")
    width = sizes["n_audio_state"]
    return create_config(
        source,
        vocab_size=sizes["n_vocab"],
        d_model=width,
        num_mel_bins=sizes["n_mels"],
        encoder_layers=sizes["n_audio_layer"],
        decoder_layers=sizes["n_text_layer"],
        encoder_attention_heads=sizes["n_audio_head"],
        decoder_attention_heads=sizes["n_text_head"],
        encoder_ffn_dim=4 * width,
        decoder_ffn_dim=4 * width,
        max_source_positions=sizes["n_audio_ctx"],
        max_target_positions=sizes["n_text_ctx"],
    )


def create_config(source: str | Path, *, end_id: int | None = None, **sizes: Any) -> Config:
    """Return a `WhisperConfig`, its special tokens numbered as OpenAI's vocabularies have them unless
    `end_id` is given."""
    from transformers import WhisperConfig

    if max(sizes["encoder_layers"], sizes["decoder_layers"]) > _MAX_LAYERS:
        raise ModelError(f"{source}: damaged, or no Whisper: it claims over {_MAX_LAYERS} layers")
    if not 0 < sizes["num_mel_bins"] <= _MAX_MELS:
        raise ModelError(f"{source}: damaged, or no Whisper: {sizes['num_mel_bins']} mel bands")
    end_id = (50257 if sizes["vocab_size"] >= 51865 else 50256) if end_id is None else end_id
    config: Config = WhisperConfig(
        **sizes,
        pad_token_id=end_id,
        bos_token_id=end_id,
        eos_token_id=end_id,
        decoder_start_token_id=end_id + 1,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    config.dtype = torch.float32
    return config


def whisper_checkpoint(
    path: Path,
    format_name: str,
    config: Config,
    weights: WeightParts,
    create_generation_config: Callable[[], Config],
    **parts: Any,
) -> ForeignCheckpoint:
    """Compare the sizes of a Whisper with the shapes of its weights, by their names within
    ``model.``, and return the checkpoint; `parts` are arguments of `module_checkpoint`."""
    layers = {
        name.split(".layers.")[0] + name.split(".")[2]
        for name in weights.shapes
        if ".layers." in name
    }
    if len(layers) != config.encoder_layers + config.decoder_layers:
        raise ModelError(
            f"{path}: damaged: weights of {len(layers)} layers, and it claims "
            f"{config.encoder_layers} + {config.decoder_layers}"
        )

    config.architectures = ["WhisperForConditionalGeneration"]

    def finish(module: PretrainedModule) -> None:
        module.generation_config = create_generation_config()
        module.tie_weights()

    return module_checkpoint(
        path, format_name, config, weights, base="model.", finish=finish, **parts
    )
