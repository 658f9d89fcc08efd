"""A model of transformers from what a file of another engine holds.

In: a config, and weights by transformers' names, each with what reads it. Out: a `ForeignCheckpoint` of the
unmodified class. Nothing is allocated before the sizes and the weights agree.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
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
