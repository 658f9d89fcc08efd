"""Build a model's torch module: from weights, randomly initialised, copied or converted.

Models with adapters (PEFT: LoRA and its kin): what is measured is a copy with the adapters
merged into the weights.

A LoRA layer adds B A x to W x. Merged, W + B A is one matrix again, so every part is where the
family's table says it is and scores are those of ``merge_and_unload()``. In: a model object with
adapters, or a folder with adapter_config.json and the model it was trained on. Out: a plain
transformers model; the object given stays as it is.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import nn

from ...errors import MissingExtraError, ModelError
from ...files.text_files import read_bounded
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


def merge_adapters(module: nn.Module) -> nn.Module:
    """Return a copy of a model with its active adapters merged.

    Adapters that are no change of weights (prompts, prefixes) are a ModelError.
    """
    return _merge_copy(copy.deepcopy(module))


def _merge_copy(copied: nn.Module) -> nn.Module:
    merge = getattr(copied, "merge_and_unload", None)
    if merge is not None:
        return _check_all_merged(merge())
    if hasattr(copied, "peft_config") and hasattr(copied, "get_base_model"):
        raise ModelError(
            f"{type(copied).__name__}: its adapter adds prompts and changes no weights, so there "
            "is nothing to merge. Load the "
            "model without it: model.get_base_model()"
        )
    for path, submodule in [
        *copied.named_modules()
    ]:  # adapters set into a plain model (model.add_adapter)
        if not path or not type(submodule).__module__.startswith("peft."):
            continue
        parent, _, name = path.rpartition(".")
        if hasattr(submodule, "merge") and hasattr(submodule, "get_base_layer"):
            submodule.merge()
            setattr(copied.get_submodule(parent), name, submodule.get_base_layer())
        elif hasattr(submodule, "modules_to_save"):
            setattr(
                copied.get_submodule(parent),
                name,
                submodule.modules_to_save[submodule.active_adapter],
            )
    return _check_all_merged(copied)


def _check_all_merged(module: nn.Module) -> nn.Module:
    if has_adapters(module):
        raise ModelError(
            f"{type(module).__name__}: not all of its adapters can be merged. Merge them and pass "
            "the result"
        )
    return module


def adapter_base(folder: str) -> str | None:
    """Return the model that an adapter in a folder was trained on; None for a folder with a model.

    A ModelError says that adapter_config.json cannot be read or names no model.
    """
    path = Path(folder) / "adapter_config.json"
    if not path.is_file() or (Path(folder) / "config.json").is_file():
        return None
    try:
        config = json.loads(read_bounded(path).decode("utf-8"))
        base = config.get("base_model_name_or_path")
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        raise ModelError(
            f"cannot read {str(path)!r}: expected the config of an adapter ({error})"
        ) from error
    if not base or not isinstance(base, str) or "\0" in base:
        raise ModelError(
            f"{str(path)!r} does not say which model the adapter was trained on "
            "(base_model_name_or_path): load that model "
            "with transformers, the adapter with peft, and pass the object"
        )
    sibling_dir = Path(folder) / base
    return str(sibling_dir) if not Path(base).exists() and sibling_dir.is_dir() else base


def load_adapter(module: nn.Module, folder: str) -> nn.Module:
    """Return a model with the adapter in a folder merged into it (the module itself is used up).

    A ModelError says that the adapter cannot be read or was trained on another architecture; a
    MissingExtraError, that peft is not installed.
    """
    try:
        import peft
    except ImportError as error:
        raise MissingExtraError("peft", "peft", f"the adapter in {folder!r}") from error
    try:
        weights = peft.load_peft_weights(folder, device="cpu")
        _check_ranks(folder, weights)
        adapted = peft.PeftModel.from_pretrained(module, folder)
    except ModelError:
        raise
    except (
        Exception
    ) as error:  # a damaged file raises the errors of safetensors, pickle, zip, torch and peft
        raise ModelError(
            f"cannot load the adapter in {folder!r} into {type(module).__name__}: {first_line(error)}. "
            "Save it again with peft"
        ) from error
    unmatched_names = sorted(weights.keys() ^ peft.get_peft_model_state_dict(adapted).keys())
    if unmatched_names:
        raise ModelError(
            f"the adapter in {folder!r} does not fit {type(module).__name__}: {len(unmatched_names)} of its "
            "weights have no place there, "
            f"or places no weight ({unmatched_names[0]}). Load the model it was trained on, the adapter with "
            "peft, and pass the object"
        )
    return _merge_copy(adapted)


def _check_ranks(folder: str, weights: Mapping[str, torch.Tensor]) -> None:
    """Raise a ModelError for a LoRA config whose rank its weights do not have: peft would reserve
    memory for it before it compares them."""
    config = json.loads((Path(folder) / "adapter_config.json").read_text(encoding="utf-8"))
    if config.get("peft_type") != "LORA":
        return
    sizes = [size for tensor in weights.values() for size in tensor.shape]
    pattern = config.get("rank_pattern") or {}
    ranks = [config.get("r"), *(pattern.values() if isinstance(pattern, dict) else ())]
    too_large = [rank for rank in ranks if isinstance(rank, int) and rank > max(sizes, default=0)]
    if too_large:
        raise ModelError(
            f"the adapter in {folder!r} is damaged: adapter_config.json has rank {too_large[0]:,}, "
            "but no side of its weights "
            f"is longer than {max(sizes, default=0):,}"
        )


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
