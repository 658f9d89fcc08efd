"""From a model in memory, or a checkpoint, to its module: drawn, copied, converted."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch

from ...errors import ModelError
from ..capture.precision_context import has_adapters
from ..families.registry import family_of_type
from ..model import Model
from ..transformers_types import Processor
from .checkpoints import (
    brief,
    chat_processor,
    custom_code_message,
    needs_custom_code,
    split_processor,
)
from .model_references import (
    check_weights,
)
from .peft_adapters import merge_adapters


def model_of_object(
    module: torch.nn.Module,
    init: str,
    seed: int | None,
    dtype: torch.dtype | None,
    device: torch.device | None,
    processor: Processor,
) -> Model:
    """Wrap a module as it is; what has to be converted or merged is a copy."""
    name = getattr(module, "name_or_path", "") or type(module).__name__
    owned = module
    if has_adapters(module):
        module = merge_adapters(module)
    config = getattr(module, "config", None)
    if config is None:
        raise ModelError(
            f"expected a transformers model, found {type(module).__name__}, which has no config: "
            "wrap it in a "
            "PreTrainedModel and describe it with speechmix.register"
        )
    family = family_of_type(getattr(config, "model_type", None))
    if init == "random":
        here = next(module.parameters())
        dtype, device = dtype or here.dtype, device or here.device
        module = draw_weights(lambda: type(module)(copy.deepcopy(config)))
    check_weights(module, name)
    here = next(module.parameters())
    if (dtype not in (None, here.dtype)) or (device not in (None, here.device)):
        module = convert_copy(_copied(module) if module is owned else module, dtype, device)
    if module is not owned:
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
        processor=chat_processor(processor, family),
    )


def draw_weights(build: Callable[[], torch.nn.Module]) -> torch.nn.Module:
    """A model with random weights, drawn on the CPU and in float32 wherever and in whatever
    precision it is wanted.

    Weights drawn in half precision, or on a GPU, would be other weights.
    """
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        with torch.device("cpu"):
            return build()
    except Exception as error:  # a config that fits no model
        if needs_custom_code(error):
            raise ModelError(custom_code_message("the model")) from error
        raise ModelError(
            f"cannot build a random twin from the model's config: {brief(error)}"
        ) from error
    finally:
        torch.set_default_dtype(default)


def _copied(module: torch.nn.Module) -> torch.nn.Module:
    try:
        return copy.deepcopy(module)
    except Exception as error:  # hooks and modules may hold anything
        raise ModelError(
            f"{type(module).__name__} should be converted on a copy, but cannot be copied "
            f"({brief(error)}): convert it with "
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
    for part in module.modules():
        for tables, not_stored in (
            (part._parameters, ()),
            (part._buffers, part._non_persistent_buffers_set),
        ):
            for name, tensor in tables.items():
                if (
                    tensor is not None
                    and tensor.is_floating_point()
                    and (name not in not_stored or _finer(dtype, tensor))
                ):
                    tensor.data = tensor.data.to(dtype)
    return module.to(device)


def _finer(dtype: torch.dtype, tensor: torch.Tensor) -> bool:
    return torch.finfo(dtype).eps < torch.finfo(tensor.dtype).eps
