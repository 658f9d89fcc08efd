"""Read a Whisper that CTranslate2 runs (faster-whisper, WhisperX) as a model of transformers.

In: a folder with model.bin, config.json and tokenizer.json. Out: config, weights, generation options
and tokenizer of an unmodified `WhisperForConditionalGeneration`. Layout of model.bin, little-endian: a
version, the name of the specification, a revision, a count of variables; each variable has a name, a
shape, a type, a number of bytes and its data. Attention weights of queries, keys and values are
stacked; key biases, which Whisper does not have, are zeros; int8 rows have a scale each.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ...errors import ModelError
from ...files.json_files import read_json_object
from ..transformers_types import Config

_TYPES = {0: np.float32, 1: np.int8, 2: np.int16, 3: np.int32, 4: np.float16}
_MAX_VARIABLES, _MAX_RANK = 10_000, 4
_ACTIVATIONS = {0: "relu", 2: "gelu_pytorch_tanh", 3: "gelu", 4: "gelu"}
_SUBLAYERS = {  # name here: norm, and the layers into which each weight is split, in transformers
    "self_attention": ("self_attn_layer_norm", [["q", "k", "v"], ["out"]], "self_attn.{}_proj"),
    "attention": ("encoder_attn_layer_norm", [["q"], ["k", "v"], ["out"]], "encoder_attn.{}_proj"),
    "ffn": ("final_layer_norm", [["1"], ["2"]], "fc{}"),
}


def is_ctranslate2_folder(source: str | Path) -> bool:
    """Whether a folder holds a model of CTranslate2, and none of transformers."""
    folder = Path(source)
    return (folder / "model.bin").is_file() and not any(folder.glob("*.safetensors"))


def read_ctranslate2_config(source: str | Path) -> Config:
    """Return the `WhisperConfig` that follows from the shapes of the weights; a ModelError for a
    damaged file or another model."""
    from transformers import WhisperConfig

    variables = _read_variables(source)
    tokens = _read_tokens(source)
    try:
        vocab_size, width = variables["decoder/embeddings/weight"].shape
        sizes: dict[str, Any] = {}
        for stack in ("encoder", "decoder"):
            layers = {
                name.split("/")[1] for name in variables if name.startswith(f"{stack}/layer_")
            }
            sizes[f"{stack}_layers"] = len(layers - {"layer_norm"})
            sizes[f"{stack}_attention_heads"] = int(variables[f"{stack}/num_heads"])
            sizes[f"{stack}_ffn_dim"] = len(variables[f"{stack}/layer_0/ffn/linear_0/bias"])
        config: Config = WhisperConfig(
            vocab_size=vocab_size,
            d_model=width,
            num_mel_bins=variables["encoder/conv1/weight"].shape[1],
            activation_function=_ACTIVATIONS[int(variables.get("decoder/activation", np.array(3)))],
            max_source_positions=len(variables["encoder/position_encodings/encodings"]),
            max_target_positions=len(variables["decoder/position_encodings/encodings"]),
            pad_token_id=tokens["<|endoftext|>"],
            bos_token_id=tokens["<|endoftext|>"],
            eos_token_id=tokens["<|endoftext|>"],
            decoder_start_token_id=tokens["<|startoftranscript|>"],
            suppress_tokens=None,
            begin_suppress_tokens=None,
            **sizes,
        )
    except (KeyError, ValueError, TypeError, IndexError) as error:
        raise ModelError(f"{source}: not a Whisper as CTranslate2 writes it, no {error}") from error
    config.architectures, config.dtype = ["WhisperForConditionalGeneration"], torch.float32
    return config


def load_ctranslate2(source: str | Path, config: Config, dtype: torch.dtype) -> torch.nn.Module:
    """Return the model with its weights and generation options; a ModelError for weights that are
    missing or of other shapes."""
    from transformers import WhisperForConditionalGeneration

    weights = _convert_weights(_read_variables(source), source)
    with torch.device("meta"):
        module = WhisperForConditionalGeneration(config)
    state = {f"model.{name}": torch.from_numpy(value).to(dtype) for name, value in weights.items()}
    state["proj_out.weight"] = state["model.decoder.embed_tokens.weight"]
    try:
        module.load_state_dict(state, assign=True)
    except RuntimeError as error:
        raise ModelError(
            f"{source}: weights of another model than its shapes say: {error}"
        ) from error
    module.tie_weights()
    module.generation_config = _generation_config(source, config)
    return module


def load_ctranslate2_tokenizer(source: str | Path) -> Any:
    """Return Whisper's tokenizer; a ModelError for a damaged tokenizer.json."""
    from .checkpoints import NO_CUSTOM_CODE, transformers_class

    try:
        return transformers_class("WhisperTokenizer").from_pretrained(str(source), **NO_CUSTOM_CODE)
    except Exception as error:  # the tokenizers library raises plain exceptions
        raise ModelError(f"{Path(source) / 'tokenizer.json'}: no tokenizer ({error})") from error


def _read_variables(source: str | Path) -> dict[str, np.ndarray]:
    """Return the variables of model.bin by name; nothing is copied out of the file."""
    path = Path(source) / "model.bin"
    try:
        data = np.memmap(path, dtype=np.uint8, mode="r")
        reader = _Reader(data)
        version, name, _, count = (
            reader.number("I"),
            reader.text(),
            reader.number("I"),
            reader.number("I"),
        )
        if not 0 < version <= 6 or name != "WhisperSpec" or count > _MAX_VARIABLES:
            raise ModelError(
                f"{path}: expected a Whisper of CTranslate2 (WhisperSpec), found {name!r:.60}, version {version}"
            )
        variables = dict(reader.variable() for _ in range(count))
    except (struct.error, ValueError, KeyError, UnicodeDecodeError, OSError) as error:
        raise ModelError(f"{path}: damaged, or no model of CTranslate2 ({error})") from error
    return variables


class _Reader:
    """Reads numbers, texts and arrays one after the other, never past the end."""

    def __init__(self, data: np.ndarray) -> None:
        self._data, self._position = data, 0

    def take(self, count: int) -> np.ndarray:
        end = self._position + count
        if end > len(self._data):
            raise ValueError(
                f"{count} bytes at {self._position}, but the file has {len(self._data)}"
            )
        taken = self._data[self._position : end]
        self._position = end
        return taken

    def number(self, code: str) -> int:
        return int(struct.unpack(f"<{code}", self.take(struct.calcsize(code)).tobytes())[0])

    def text(self) -> str:
        return self.take(self.number("H")).tobytes().removesuffix(b"\0").decode()

    def variable(self) -> tuple[str, np.ndarray]:
        name, rank = self.text(), self.number("B")
        if rank > _MAX_RANK:
            raise ValueError(f"{name!r:.60} has {rank} dimensions")
        shape = [self.number("I") for _ in range(rank)]
        dtype = _TYPES[self.number("B")]
        return name, self.take(self.number("I")).view(dtype).reshape(shape)


def _convert_weights(variables: dict[str, np.ndarray], source: str | Path) -> dict[str, np.ndarray]:
    """Return weights by the names that transformers gives them."""
    weights: dict[str, np.ndarray] = {}

    def take(name: str) -> np.ndarray:
        if name not in variables:
            raise ModelError(f"{source}: the model has no weight {name!r}")
        value: np.ndarray = variables[name]
        if value.dtype == np.int8:  # 127 / largest of the row
            value = value / take(f"{name}_scale")[:, None]
        return value

    def put(target: str, name: str, kinds: dict[str, str]) -> None:
        for ours, theirs in kinds.items():
            weights[f"{target}.{theirs}"] = np.array(take(f"{name}/{ours}"), dtype=np.float32)

    linear, norm = {"weight": "weight", "bias": "bias"}, {"gamma": "weight", "beta": "bias"}
    put("decoder.embed_tokens", "decoder/embeddings", {"weight": "weight"})
    for name in ("conv1", "conv2"):
        put(f"encoder.{name}", f"encoder/{name}", linear)
    for stack in ("encoder", "decoder"):
        put(f"{stack}.embed_positions", f"{stack}/position_encodings", {"encodings": "weight"})
        put(f"{stack}.layer_norm", f"{stack}/layer_norm", norm)
        index = 0
        while (layer := f"{stack}/layer_{index}") + "/ffn/linear_0/bias" in variables:
            target = f"{stack}.layers.{index}"
            for sublayer, (norm_name, linears, pattern) in _SUBLAYERS.items():
                if sublayer == "attention" and stack == "encoder":
                    continue
                put(f"{target}.{norm_name}", f"{layer}/{sublayer}/layer_norm", norm)
                for number, parts in enumerate(linears):
                    for kind in ("weight", "bias"):
                        value = np.array(
                            take(f"{layer}/{sublayer}/linear_{number}/{kind}"), np.float32
                        )
                        for part, piece in zip(parts, np.split(value, len(parts)), strict=True):
                            weights[f"{target}.{pattern.format(part)}.{kind}"] = piece
            index += 1
    for name in [name for name in weights if name.endswith("k_proj.bias")]:
        if weights.pop(name).any():
            raise ModelError(f"{source}: {name} is not zero, and Whisper has none")
    return weights


def _read_tokens(source: str | Path) -> dict[str, int]:
    """Return the added tokens of tokenizer.json by text: <|endoftext|>, <|en|>, ..."""
    path = Path(source) / "tokenizer.json"
    added = read_json_object(path).get("added_tokens")
    if not isinstance(added, list):
        raise ModelError(f"{path}: expected a tokenizer with its added tokens")
    return {str(token["content"]): int(token["id"]) for token in added if isinstance(token, dict)}


def _generation_config(source: str | Path, config: Config) -> Config:
    """Return what generation needs: suppressed tokens, heads for word times, languages and tasks."""
    from transformers import GenerationConfig

    described, tokens = read_json_object(Path(source) / "config.json"), _read_tokens(source)
    language_ids = set(described.get("lang_ids") or [])
    is_multilingual = config.vocab_size >= 51865
    options: dict[str, Any] = {
        "alignment_heads": described.get("alignment_heads"),
        "suppress_tokens": described.get("suppress_ids"),
        "begin_suppress_tokens": described.get("suppress_ids_begin"),
        "is_multilingual": is_multilingual,
        "max_length": config.max_target_positions,
        "max_initial_timestamp_index": 50,
        "no_timestamps_token_id": tokens.get("<|notimestamps|>"),
        "prev_sot_token_id": tokens.get("<|startofprev|>"),
        "return_timestamps": False,
    }
    for name in ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id"):
        options[name] = getattr(config, name)
    if is_multilingual:
        options["lang_to_id"] = {text: id_ for text, id_ in tokens.items() if id_ in language_ids}
        options["task_to_id"] = {
            task: tokens[f"<|{task}|>"]
            for task in ("transcribe", "translate")
            if f"<|{task}|>" in tokens
        }
    return GenerationConfig(**{name: value for name, value in options.items() if value is not None})
