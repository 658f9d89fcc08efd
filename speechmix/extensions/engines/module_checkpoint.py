"""A model of transformers from what a file of another engine holds.

In: a config, and weights by transformers' names, each with what reads it. Out: a `ForeignCheckpoint` of the
unmodified class. Nothing is allocated before the sizes and the weights agree.

Config and weights of a Whisper from what files of other engines hold.

In: sizes and weights, by the names of OpenAI's code (openai-whisper, whisper.cpp, MLX) or of
transformers. Out: a `WhisperConfig`, and an unmodified `WhisperForConditionalGeneration`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...adapters.loading.checkpoints import NO_CUSTOM_CODE, first_line, transformers_class
from ...adapters.loading.foreign_checkpoint import ForeignCheckpoint
from ...adapters.transformers_types import Config, FeatureExtractor, PretrainedModule, Tokenizer
from ...errors import ModelError


@dataclass(frozen=True)
class WeightParts:
    """Weights by transformers' names: what reads each, and the shape that it will have."""

    readers: dict[str, Callable[[], Tensor]]
    shapes: dict[str, list[int]]


def module_checkpoint(
    path: Path,
    format_name: str,
    config: Config,
    weights: WeightParts,
    *,
    model_class: Any = None,
    base: str = "",
    finish: Callable[[PretrainedModule], None] = lambda module: None,
    load_tokenizer: Callable[[], Tokenizer] = lambda: None,
    load_extractor: Callable[[], FeatureExtractor] = lambda: None,
    remarks: tuple[str, ...] = (),
) -> ForeignCheckpoint:
    """Build a model, by default that which a config names, without memory for its weights, compare its shapes with
    those of a file, and return the checkpoint; weights are read one by one when it is loaded.

    `base` is what the model's names begin with before those of `weights`; `finish` gets the loaded
    model. A ModelError for weights that are missing, left over or of other shapes.
    """
    model_class = model_class or transformers_class(config.architectures[0])
    try:
        with torch.device("meta"):
            module = model_class(config)
    except Exception as error:  # sizes of no model: PyTorch raises what it likes
        raise ModelError(f"{path}: sizes of no model ({first_line(error)[:200]})") from error
    expected = {
        name.removeprefix(base): tuple(value.shape)
        for name, value in module.state_dict().items()
        if name.startswith(base)
    }
    shape_by_name = {name: tuple(shape) for name, shape in weights.shapes.items()}
    for name in sorted(expected.keys() | shape_by_name.keys()):
        if expected.get(name) != shape_by_name.get(name):
            raise ModelError(
                f"{path}: damaged, or another model: {name!r:.90} should have the shape "
                f"{expected.get(name, 'none')}, found {shape_by_name.get(name, 'no such weight')}"
            )

    def load_module(dtype: torch.dtype) -> torch.nn.Module:
        try:
            state = {f"{base}{name}": read().to(dtype) for name, read in weights.readers.items()}
            module.load_state_dict(state, assign=True, strict=False)  # all names were compared
            finish(module)
        except (ValueError, TypeError, RuntimeError, KeyError, IndexError, OSError) as error:
            reason = " ".join(str(error).split())[:200]
            raise ModelError(f"{path}: damaged ({reason})") from error
        loaded: torch.nn.Module = module
        return loaded

    return ForeignCheckpoint(
        path,
        format_name,
        config,
        model_class,
        load_module,
        load_tokenizer,
        load_extractor,
        remarks,
    )


def describe_types(names: Iterable[str]) -> str:
    """Join the types of weights, the quantised ones first, without the usual float32 biases."""
    types = sorted(set(names), key=lambda name: (re.match("f|bf", name) is not None, name))
    return "+".join([name for name in types if name != "f32"] or ["f32"])


def load_beside(folder: Path, class_name: str, *names: str) -> Any:
    """Load what a class of transformers reads from the files beside the weights.

    None where none of the files `names` is there; a ModelError for damaged ones.
    """
    if names and not any((folder / name).is_file() for name in names):
        return None
    try:
        return transformers_class(class_name).from_pretrained(str(folder), **NO_CUSTOM_CODE)
    except Exception as error:  # of a damaged file: transformers raises what it likes
        where = folder / names[0] if names else folder
        raise ModelError(f"{where}: no {class_name} ({first_line(error)})") from error


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
