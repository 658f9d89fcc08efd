"""Make a tiny config of any architecture of transformers, out of its default config.

In: a model type. Out: its config with widths, layers and vocabulary made small, by the names of its fields. Fields with
other names keep their defaults, so the config of an unusual architecture may not fit together: its model then cannot
be built, and it is reported as such.
"""

from __future__ import annotations

import re
from typing import Any

import transformers
from transformers import CONFIG_MAPPING, PretrainedConfig

LAYERS, HEADS, KEY_VALUE_HEADS, HEAD_WIDTH, WIDTH, VOCABULARY = 3, 4, 2, 8, 32, 96
_RULES: tuple[tuple[str, int], ...] = (  # the first pattern that matches the whole name decides
    (r"(num_|n_|encoder_|decoder_|\w+_)?(hidden_)?(layers?|n_layers?|blocks|depths?)", LAYERS),
    (r"\w*(layers|n_layer)", LAYERS),
    (r"\w*(key_value|kv)_heads\w*", KEY_VALUE_HEADS),
    (r"\w*(heads?)", HEADS),
    (r"qk_(rope|nope)_head_dim", HEAD_WIDTH // 2),
    (r"(\w+_)?(head_dim|head_size|d_kv|dim_head|kv_channels|v_head_dim)", HEAD_WIDTH),
    (r"\w*(intermediate|ffn|ffw|d_ff|mlp_dim|feed_forward|inner)\w*", 48),
    (r"\w*(vocab_size|vocabulary_size)\w*", VOCABULARY),
    (r"(num_local_experts|num_experts|n_routed_experts|moe_num_experts)", 4),
    (r"(num_experts_per_tok|moe_top_k|experts_per_token|num_experts_per_token)", 2),
    (r"\w*(mel_bins|feat_per_channel|n_mels)", 16),
    (r"num_filters", 4),
    (r"\w*hidden_sizes?|adapter_(in|input|out)_(dim|size)", WIDTH),
    (r"n_groups", 2),  # of a state-space mixer
    (r"\w*(d_model|n_embd|embed_dim|embedding_size|hidden_dim|output_dim|embedding_dim|projection_dim|dim)", WIDTH),
    (r"\w*(conv_channels|conv_hidden|downsample_hidden_size|num_channels_subsampling)\w*", 8),
    (r"(q_lora_rank|kv_lora_rank|lora_rank)", 16),
    (r"\w*conv_pos_embeddings", 16),
    (r"\w*conv_pos_embedding_groups", 2),
    (r"\w*(max_position_embeddings|max_source_positions|max_target_positions|n_positions|n_ctx|max_seq\w*)", 512),
)  # fmt: skip
_FIXED = ("num_feat_extract_layers", "conv_kernel", "conv_stride", "tdnn_kernel", "tdnn_dilation")
_PER_LAYER = ("layer_types", "mlp_layer_types", "no_rope_layers", "sliding_windows", "block_types")


def tiny_config(model_type: str) -> PretrainedConfig:
    """Return the tiny config of a model type.

    Raises
    ------
    Exception
        Whatever the class of the config raises where the small values do not fit it.
    """
    config_class = CONFIG_MAPPING[model_type]
    if getattr(config_class, "has_no_defaults_at_init", False):
        raise ValueError(f"the config of {model_type!r} has no defaults: it is made of others")
    values = config_class().to_dict()
    if values.get("audio_config", "") is None:  # a tower that is left out by default
        values["audio_config"] = config_class.sub_configs["audio_config"]().to_dict()
    values = _shrink(values)
    values["architectures"] = None
    return config_class(**values)


def model_class(model_type: str, mapping: dict[str, Any]) -> type:
    """Return the class that a mapping of transformers names for a type (the first of several)."""
    name = mapping[model_type]
    found: type = getattr(transformers, name if isinstance(name, str) else name[0])
    return found


def _shrink(values: dict[str, Any]) -> dict[str, Any]:
    small = {name: _small_value(name, value, values) for name, value in values.items()}
    taken: set[int] = set()
    for name, value in small.items():
        if re.fullmatch(r"\w*token_(id|index)", name) and isinstance(value, int):
            small[name] = _free_id(value, taken)
    return {
        name: value
        for name, value in small.items()
        if name not in ("transformers_version", "dtype", "torch_dtype", "id2label", "label2id")
    }


def _small_value(name: str, value: Any, siblings: dict[str, Any]) -> Any:
    if name == "per_layer_config" and isinstance(value, dict):
        return _keep_last_layers(value, siblings)
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            return value
        if "rope_type" in value or name.startswith("rope"):
            return _small_rope(value)
        return _shrink(value)
    if value is None and name == "vocab_size":
        return VOCABULARY
    if isinstance(value, bool) or value is None:
        return value
    if name in _FIXED:
        return value
    if isinstance(value, list | tuple):
        return _small_list(name, list(value), siblings)
    if not isinstance(value, int):
        return value
    for pattern, limit in _RULES:
        if re.fullmatch(pattern, name):
            if limit == KEY_VALUE_HEADS and _heads_of(name, siblings) == value:
                limit = HEADS
            return min(value, limit)
    return value


def _small_list(name: str, values: list[Any], siblings: dict[str, Any]) -> list[Any]:
    """One value for each of the layers that are left; the last, which often differ."""
    if name in ("conv_dim", "tdnn_dim"):
        return [16] * len(values)
    counts = {
        value
        for key, value in siblings.items()
        if isinstance(value, int) and re.fullmatch(r"\w*(layers|n_layer)", key)
    }
    if len(values) > LAYERS and (name in _PER_LAYER or len(values) in counts):
        values = values[-LAYERS:]
    return [
        _small_value(name, value, siblings) if isinstance(value, int) else value for value in values
    ]


def _keep_last_layers(values: dict[Any, dict[str, Any]], siblings: dict[str, Any]) -> Any:
    """What differs in single layers, of those that are left."""
    first = max(0, siblings["num_hidden_layers"] - LAYERS)
    return {
        int(index) - first: _shrink(value) for index, value in values.items() if int(index) >= first
    }


def _heads_of(name: str, siblings: dict[str, Any]) -> int | None:
    own = name.replace("key_value_", "attention_").replace("kv_", "attention_")
    heads = siblings.get(own)
    return heads if isinstance(heads, int) else None


def _small_rope(value: dict[str, Any]) -> dict[str, Any]:
    result = {
        name: _small_rope(inner) if isinstance(inner, dict) else inner
        for name, inner in value.items()
    }
    if "mrope_section" in result:
        result["mrope_section"] = [2, 1, 1]
    return result


def _free_id(value: int, taken: set[int]) -> int:
    """A token id below the vocabulary's size; ids that differ stay different."""
    if 0 <= value < VOCABULARY // 2:
        return value
    free = VOCABULARY - 1
    while free in taken:
        free -= 1
    taken.add(free)
    return free
