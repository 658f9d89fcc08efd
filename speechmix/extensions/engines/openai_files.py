"""Read a checkpoint of openai-whisper: a ``.pt`` file with its sizes and weights.

In: the file, or anything that `torch.save` wrote with `dims` and `model_state_dict`. Out: a Whisper of
transformers. It is read with `weights_only`, so no code in it runs. The file has no tokenizer, no rules
and no alignment heads.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch

from ...adapters.loading.foreign_checkpoint import CheckpointReader, ForeignCheckpoint
from ...errors import ModelError
from .byte_reader import check_stored_archive, read_start
from .module_checkpoint import (
    NO_HEADS,
    WeightParts,
    describe_types,
    hugging_face_name,
    openai_config,
    whisper_checkpoint,
)
from .whisper_tokens import OpenaiVocabulary, installed_tokens

_TYPE_NAMES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}


def is_openai_file(path: Path) -> bool:
    """Whether a file is an archive as `torch.save` writes it."""
    if read_start(path, 4) != b"PK\x03\x04":
        return False
    return b"/data.pkl" in read_start(path, 200)


def open_openai(path: Path) -> ForeignCheckpoint:
    """Read the sizes, and map the weights."""
    check_stored_archive(path)
    try:
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        sizes, weights = dict(content["dims"]), dict(content["model_state_dict"])
    except Exception as error:  # of unpickling and of the archive: torch raises what it likes
        raise ModelError(
            f"{path}: damaged, or no checkpoint of openai-whisper with 'dims' and 'model_state_dict' "
            f"({type(error).__name__}: {str(error).strip().splitlines()[:1]!r:.160})"
        ) from error
    tensors = [value for value in weights.values() if isinstance(value, torch.Tensor)]
    if sum(value.numel() * value.itemsize for value in tensors) > path.stat().st_size:
        raise ModelError(f"{path}: damaged: its weights are larger than the file")
    return whisper_of_openai(path, "openai-whisper", sizes, weights)


def whisper_of_openai(
    path: Path,
    format_name: str,
    sizes: dict[str, Any],
    weights: dict[str, Any],
    alignment_heads: list[list[int]] | None = None,
) -> ForeignCheckpoint:
    """Open a checkpoint by OpenAI's sizes and names, without a tokenizer in it."""
    config = openai_config(sizes, path)
    for name, value in weights.items():
        is_array = (
            isinstance(value, torch.Tensor)
            and (value.device.type, value.layout, value.is_nested) == ("cpu", torch.strided, False)
            and value.dtype in _TYPE_NAMES
        )
        if not is_array:
            raise ModelError(f"{path}: {name!r:.60} is no weight of float32, float16 or bfloat16")
    weights = {hugging_face_name(str(name)): value for name, value in weights.items()}
    tokens, remark = installed_tokens(config.vocab_size, path.parent)
    vocabulary = OpenaiVocabulary(config, tokens, path)
    types = describe_types(_TYPE_NAMES[value.dtype] for value in weights.values())
    return whisper_checkpoint(
        path,
        f"{format_name}, {types}",
        config,
        WeightParts(
            {name: partial(torch.clone, value) for name, value in weights.items()},
            {name: [*value.shape] for name, value in weights.items()},
        ),
        lambda: vocabulary.generation_config(has_symbols=True, alignment_heads=alignment_heads),
        load_tokenizer=vocabulary.tokenizer,
        remarks=(remark,) if alignment_heads else (remark, NO_HEADS),
    )


OPENAI_READER = CheckpointReader(is_openai_file, open_openai)
