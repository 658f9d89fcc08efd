"""Read a model that CTranslate2 runs: a Whisper (faster-whisper, WhisperX), or a wav2vec2 with CTC.

In: a folder with model.bin and files beside it, or its model.bin. Out: a model of transformers. Of a
Whisper, config.json has alignment heads and suppressed tokens, tokenizer.json the tokens; key biases,
which Whisper does not have, are stored as zeros.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ...adapters.loading.foreign_checkpoint import CheckpointReader, ForeignCheckpoint
from ...adapters.transformers_types import Config
from ...errors import ModelError
from ...files.json_files import read_json_object
from .byte_reader import read_start
from .ctranslate2_variables import StoredWeights, Variables, read_variables
from .ctranslate2_wav2vec2 import open_wav2vec2
from .module_checkpoint import NO_HEADS, create_config, load_beside, whisper_checkpoint
from .whisper_tokens import create_generation_config

_ACTIVATIONS = {0: "relu", 2: "gelu_pytorch_tanh", 3: "gelu", 4: "gelu"}
_SUBLAYERS = {  # name here: norm, and the layers into which each weight is split, in transformers
    "self_attention": ("self_attn_layer_norm", [["q", "k", "v"], ["out"]], "self_attn.{}_proj"),
    "attention": ("encoder_attn_layer_norm", [["q"], ["k", "v"], ["out"]], "encoder_attn.{}_proj"),
    "ffn": ("final_layer_norm", [["1"], ["2"]], "fc{}"),
}


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
    specification, variables = read_variables(path)
    weights = StoredWeights(variables)
    try:
        if specification == "Wav2Vec2Spec":
            return open_wav2vec2(path, weights)
        return _open_whisper(path, weights)
    except (KeyError, ValueError, TypeError, IndexError) as error:
        raise ModelError(
            f"{path}: not what CTranslate2 writes as {specification}, no {error}"
        ) from error


def _open_whisper(path: Path, weights: StoredWeights) -> ForeignCheckpoint:
    folder, tokens = path.parent, _read_tokens(path.parent)
    config = _read_config(weights.variables, tokens, path)
    _collect_weights(weights, config)
    described = (
        read_json_object(folder / "config.json") if (folder / "config.json").is_file() else {}
    )
    heads = described.get("alignment_heads")
    return whisper_checkpoint(
        path,
        f"CTranslate2, {weights.types()}",
        config,
        weights.parts,
        lambda: create_generation_config(
            config,
            tokens,
            suppressed=described.get("suppress_ids"),
            suppressed_at_begin=described.get("suppress_ids_begin"),
            alignment_heads=heads,
            language_ids=described.get("lang_ids"),
        ),
        load_tokenizer=partial(load_beside, folder, "WhisperTokenizer", "tokenizer.json"),
        remarks=() if heads else (NO_HEADS,),
    )


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


def _collect_weights(weights: StoredWeights, config: Config) -> None:
    """Find the weights by transformers' names within ``model.``."""
    weights.add("decoder.embed_tokens.weight", "decoder/embeddings/weight")
    for name in ("conv1", "conv2"):
        weights.add_layer(f"encoder.{name}", f"encoder/{name}")
    for stack in ("encoder", "decoder"):
        positions = f"{stack}/position_encodings/encodings"
        weights.add(f"{stack}.embed_positions.weight", positions)
        weights.add_layer(f"{stack}.layer_norm", f"{stack}/layer_norm")
        for index in range(getattr(config, f"{stack}_layers")):
            layer, target = f"{stack}/layer_{index}", f"{stack}.layers.{index}"
            for sublayer, (norm, linears, pattern) in _SUBLAYERS.items():
                if sublayer == "attention" and stack == "encoder":
                    continue
                weights.add_layer(f"{target}.{norm}", f"{layer}/{sublayer}/layer_norm")
                keys = f"{target}.{pattern.format('k')}"
                for number, parts in enumerate(linears):
                    targets = [f"{target}.{pattern.format(part)}" for part in parts]
                    weights.add_stacked(targets, f"{layer}/{sublayer}/linear_{number}", [keys])


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
