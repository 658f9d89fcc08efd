"""Write a Whisper of transformers as other engines have it: ggml, openai-whisper, MLX; and tokens to
go with a model without a vocabulary of its own."""

from __future__ import annotations

import base64
import itertools
import json
import struct
from pathlib import Path

import numpy as np
import torch
import transformers
from transformers.convert_slow_tokenizer import bytes_to_unicode

ENGLISH, MULTILINGUAL = 51864, 51865
SIZES = (
    ("n_vocab", "vocab_size"),
    ("n_audio_ctx", "max_source_positions"),
    ("n_audio_state", "d_model"),
    ("n_audio_head", "encoder_attention_heads"),
    ("n_audio_layer", "encoder_layers"),
    ("n_text_ctx", "max_target_positions"),
    ("n_text_state", "d_model"),
    ("n_text_head", "decoder_attention_heads"),
    ("n_text_layer", "decoder_layers"),
    ("n_mels", "num_mel_bins"),
)
GGML_TYPES = {  # of a file, with the version of quantisation in thousands
    "f32": 0,
    "f16": 1,
    "q4_0": 2002,
    "q4_1": 2003,
    "q8_0": 2007,
    "q5_0": 2008,
    "q5_1": 2009,
}
OPENAI_PARTS = {
    "layers": "blocks",
    "self_attn": "attn",
    "encoder_attn": "cross_attn",
    "self_attn_layer_norm": "attn_ln",
    "encoder_attn_layer_norm": "cross_attn_ln",
    "final_layer_norm": "mlp_ln",
    "q_proj": "query",
    "k_proj": "key",
    "v_proj": "value",
    "out_proj": "out",
    "fc1": "mlp.0",
    "fc2": "mlp.2",
    "embed_tokens": "token_embedding",
}


def small_whisper(vocab_size: int = ENGLISH, seed: int = 0):
    """A Whisper with OpenAI's vocabulary and little else; widths are multiples of 32, as blocks need."""
    torch.manual_seed(seed)
    config = transformers.WhisperConfig(
        vocab_size=vocab_size,
        d_model=32,
        num_mel_bins=80,
        encoder_layers=2,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=128,
        decoder_ffn_dim=128,
        max_source_positions=50,
        max_target_positions=32,
        pad_token_id=50256,
        bos_token_id=50256,
        eos_token_id=50256,
        decoder_start_token_id=50257,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    module = transformers.WhisperForConditionalGeneration(config).eval().requires_grad_(False)
    for value in module.parameters():
        if value.ndim == 1:  # no two biases are the same: the exporter of ONNX makes one of them
            value += 0.02 * torch.randn_like(value)
    return module


def made_up_tokens(vocab_size: int = ENGLISH) -> list[bytes]:
    """All bytes, then pairs of bytes."""
    count = 50256 if vocab_size == ENGLISH else 50257
    pairs = (bytes(pair) for pair in itertools.product(range(256), repeat=2))
    return [*(bytes([byte]) for byte in range(256)), *itertools.islice(pairs, count - 256)]


def tokens_of(tokenizer) -> list[bytes]:
    """The bytes of each token of a tokenizer of transformers before the special ones."""
    byte_of = {letter: byte for byte, letter in bytes_to_unicode().items()}
    texts = tokenizer.convert_ids_to_tokens(range(tokenizer.eos_token_id))
    return [bytes(byte_of[letter] for letter in text) for text in texts]


def openai_sizes(config) -> dict[str, int]:
    return {name: getattr(config, attribute) for name, attribute in SIZES}


def openai_weights(module) -> dict[str, torch.Tensor]:
    """Weights by OpenAI's names."""
    weights = {}
    for name, value in module.model.state_dict().items():
        name = ".".join(OPENAI_PARTS.get(part, part) for part in name.split("."))
        name = name.replace("embed_positions.weight", "positional_embedding")
        name = name.replace("encoder.layer_norm", "encoder.ln_post")
        weights[name.replace("decoder.layer_norm", "decoder.ln")] = value.clone()
    return weights


def write_ggml(module, path: Path, kind: str = "f16", tokens: list[bytes] | None = None) -> Path:
    """Write a file of whisper.cpp: matrices of a type ("f32", "f16", "q5_0", ...), as its own tools do."""
    config, sizes = module.config, openai_sizes(module.config)
    tokens = made_up_tokens(config.vocab_size) if tokens is None else tokens
    extractor = transformers.WhisperFeatureExtractor(feature_size=config.num_mel_bins)
    filters = np.asarray(extractor.mel_filters.T, dtype="<f4")
    data = [struct.pack("<I11i", 0x67676D6C, *sizes.values(), GGML_TYPES[kind])]
    data += [struct.pack("<2i", *filters.shape), filters.tobytes(), struct.pack("<i", len(tokens))]
    data += [struct.pack("<i", len(token)) + token for token in tokens]
    for name, weight in openai_weights(module).items():
        value = weight.float().numpy()
        if name.startswith("encoder.conv") and name.endswith("bias"):
            value = value.reshape(-1, 1)
        is_matrix = value.ndim > 1 and not name.endswith(("positional_embedding", "bias"))
        is_quantised = is_matrix and value.ndim == 2 and kind not in ("f32", "f16")
        shape = value.shape
        if is_quantised:
            from gguf import GGMLQuantizationType, quants

            quantised = GGMLQuantizationType[kind.upper()]
            code, value = int(quantised), quants.quantize(value, quantised)
        else:
            code = int(is_matrix and kind != "f32")
            value = value.astype("<f2" if code else "<f4")
        data += [struct.pack("<3i", len(shape), len(name), code)]
        data += [struct.pack(f"<{len(shape)}i", *shape[::-1]), name.encode(), value.tobytes()]
    path.write_bytes(b"".join(data))
    return path


def write_openai(module, path: Path, dtype: torch.dtype = torch.float16) -> Path:
    """Write a checkpoint of openai-whisper."""
    weights = {name: value.to(dtype) for name, value in openai_weights(module).items()}
    torch.save({"dims": openai_sizes(module.config), "model_state_dict": weights}, path)
    return path


def write_mlx(module, folder: Path, *, is_npz: bool = True, heads=((0, 1),)) -> Path:
    """Write a folder of mlx-whisper in float16."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(openai_sizes(module.config)))
    arrays = {}
    for name, value in openai_weights(module).items():
        if name == "encoder.positional_embedding":
            continue
        value = value.permute(0, 2, 1) if ".conv" in name and value.ndim == 3 else value
        name = name.replace("mlp.0", "mlp1").replace("mlp.2", "mlp2")
        arrays[name] = value.contiguous().to(torch.float16)
    if is_npz:
        np.savez(
            folder / "weights.npz",
            alignment_heads=np.array(heads, dtype=np.int32),
            **{name: value.numpy() for name, value in arrays.items()},
        )
    else:
        from safetensors.torch import save_file

        save_file(arrays, folder / "weights.safetensors")
    return folder


def write_tiktoken(path: Path, tokens: list[bytes]) -> Path:
    lines = [f"{base64.b64encode(token).decode()} {rank}" for rank, token in enumerate(tokens)]
    path.write_text("\n".join(lines) + "\n")
    return path
