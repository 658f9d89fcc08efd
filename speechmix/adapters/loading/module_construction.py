"""Build a model's torch module: from weights, randomly initialised, copied or converted."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch

from ...errors import ModelError
from ..capture.module_access import has_adapters
from ..families.family import Family
from ..model import Model
from ..transformers_types import Processor
from .checkpoints import (
    custom_code_message,
    first_line,
    needs_custom_code,
    select_chat_processor,
    split_processor,
)
from .model_source import (
    check_weights,
)
from .peft_adapters import merge_adapters


def wrap_module(
    module: torch.nn.Module,
    family: Family,
    init: str,
    seed: int | None,
    dtype: torch.dtype | None,
    device: torch.device | None,
    processor: Processor,
) -> Model:
    """Wrap a module as it is; what has to be converted or merged is a copy."""
    name = getattr(module, "name_or_path", "") or type(module).__name__
    original_module = module
    if has_adapters(module):
        module = merge_adapters(module)
    config = module.config
    if init == "random":
        first_parameter = next(module.parameters())
        dtype, device = dtype or first_parameter.dtype, device or first_parameter.device
        module = build_random_module(lambda: type(module)(copy.deepcopy(config)))
    check_weights(module, name)
    first_parameter = next(module.parameters())
    if (dtype not in (None, first_parameter.dtype)) or (
        device not in (None, first_parameter.device)
    ):
        module = convert_copy(
            _copy_module(module) if module is original_module else module, dtype, device
        )
    if module is not original_module:
        module.eval().requires_grad_(False)
    extractor, tokenizer = split_processor(processor, family, config)
    return Model(
        module,
        family,
        name,
        init,
        seed,
        extractor,
        tokenizer,
        processor=select_chat_processor(processor),
    )


def check_config(module: torch.nn.Module) -> None:
    """Raise `ModelError` unless a module has a config, as transformers' models do."""
    if getattr(module, "config", None) is None:
        raise ModelError(
            f"expected a transformers model, found {type(module).__name__}, which has no config: "
            "wrap it in a "
            "PreTrainedModel and describe it with speechmix.register"
        )


def build_random_module(build: Callable[[], torch.nn.Module]) -> torch.nn.Module:
    """A model with random weights, drawn on the CPU and in float32 wherever and in whatever
    precision it is wanted.

    Weights drawn in half precision, or on a GPU, would be other weights.
    """
    default_dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        with torch.device("cpu"):
            return build()
    except Exception as error:  # a config that fits no model
        if needs_custom_code(error):
            raise ModelError(custom_code_message("the model")) from error
        raise ModelError(
            f"cannot build a random twin from the model's config: {first_line(error)}"
        ) from error
    finally:
        torch.set_default_dtype(default_dtype)


def _copy_module(module: torch.nn.Module) -> torch.nn.Module:
    try:
        return copy.deepcopy(module)
    except Exception as error:  # hooks and modules may hold anything
        raise ModelError(
            f"{type(module).__name__} should be converted on a copy, but cannot be copied "
            f"({first_line(error)}): convert it with "
            ".to(...) and leave dtype= and device= out"
        ) from error


def convert_copy(
    module: torch.nn.Module, dtype: torch.dtype | None, device: torch.device | str | None
) -> torch.nn.Module:
    """Put a module of our own elsewhere, and into another precision.

    As in a model that transformers loads in that precision, buffers that no checkpoint stores are
    not rounded (rotary tables, which a half-precision model keeps in float32).
    """
    if dtype is None:
        return module.to(device)
    for submodule in module.modules():
        for tables, non_persistent_names in (
            (submodule._parameters, ()),
            (submodule._buffers, submodule._non_persistent_buffers_set),
        ):
            for name, tensor in tables.items():
                if (
                    tensor is not None
                    and tensor.is_floating_point()
                    and (name not in non_persistent_names or _has_higher_precision(dtype, tensor))
                ):
                    tensor.data = tensor.data.to(dtype)
    return module.to(device)


def _has_higher_precision(dtype: torch.dtype, tensor: torch.Tensor) -> bool:
    return torch.finfo(dtype).eps < torch.finfo(tensor.dtype).eps
