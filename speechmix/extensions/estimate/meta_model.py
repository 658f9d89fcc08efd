"""Build a model without weights on torch's meta device.

In: a hub id, a folder, a model. Out: a `Model` whose parameters, stacks and operations can be
counted in a second, however large it is: of a hub id only the config is downloaded. Code that looks
at a number on its way runs there within an `OperationCounter` (extension estimate), which answers for it.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch

from ...adapters.binding.bound_layers import submodule
from ...adapters.families.family import Family
from ...adapters.families.registry import find_family, find_module_family
from ...adapters.loading.checkpoints import (
    NO_CUSTOM_CODE,
    custom_code_message,
    first_line,
    needs_custom_code,
    read_config,
    split_processor,
    transformers_class,
)
from ...adapters.loading.model_source import (
    check_model_reference,
    is_pipeline,
    resolve_path_or_id,
    unwrap_module,
)
from ...adapters.loading.module_construction import adapter_base
from ...adapters.model import Model
from ...adapters.transformers_types import Config
from ...errors import ModelError


def build_meta_model(source: str | Path | Model | Any, *, revision: str | None = None) -> Model:
    """Build a model on the meta device from its config alone: float32, without weights or
    tokenizer.

    The source is what `speechmix.load` takes or returns, and raises the same errors.
    """
    if isinstance(source, Model):
        module_class = type(source.module)
        return _build_model(
            source.name, source.config, source.family, lambda config: module_class(config)
        )
    source = source.model if is_pipeline(source) else source
    check_model_reference(source)
    if isinstance(source, torch.nn.Module):
        module = unwrap_module(source)
        config = getattr(module, "config", None)
        if config is None:
            raise ModelError(
                f"expected a transformers model, found {type(module).__name__}, which has no config"
            )
        return _build_model(
            getattr(module, "name_or_path", "") or type(module).__name__,
            config,
            find_module_family(module, lambda: None),
            type(module),
        )
    path_or_id = resolve_path_or_id(source)
    adapter_base_id = adapter_base(path_or_id)
    options = {"revision": revision} if revision and adapter_base_id is None else {}
    config = read_config(
        path_or_id if adapter_base_id is None else resolve_path_or_id(adapter_base_id), options
    )
    family = find_family(config)
    cls = transformers_class(family.auto_class(config))
    name = Path(path_or_id).resolve().name if Path(path_or_id).is_dir() else os.fspath(source)
    build = partial(cls.from_config, **NO_CUSTOM_CODE) if hasattr(cls, "from_config") else cls
    return _build_model(name, config, family, build)


def _build_model(
    name: str, config: Config, family: Family, build: Callable[[Config], torch.nn.Module]
) -> Model:
    default_dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        config = copy.deepcopy(config)
        config.dtype = (
            torch.float32
        )  # of the checkpoint it may be half precision; weights are loaded in float32
        with torch.random.fork_rng(devices=[]), torch.device("meta"):
            module = build(config).eval().requires_grad_(False)
    except Exception as error:  # a config that fits no model
        if needs_custom_code(error):
            raise ModelError(custom_code_message(name)) from error
        raise ModelError(
            f"cannot build a model from the config of {name}: {first_line(error)}"
        ) from error
    finally:
        torch.set_default_dtype(default_dtype)
    return Model(module, family, name, "random", 0, *split_processor(None, family, config))


@contextmanager
def keep_first_layers(model: Model) -> Iterator[Model]:
    """Reduce each stack of a model on the meta device to its first layer while the block lasts.

    The layers of a stack are alike: what one needs, all need.

    Examples
    --------
    >>> import transformers
    >>> model = build_meta_model(transformers.BertModel(transformers.BertConfig(num_hidden_layers=12)))
    >>> with keep_first_layers(model) as shallow:
    ...     len(shallow.stacks["encoder"])
    1
    """
    paths = {stack.spec.layers for stack in model.stacks.values()}
    layer_lists = [submodule(model.base, path, label="layers") for path in paths]
    saved_layers = [
        (layer_list, dict(layer_list._modules))
        for layer_list in layer_lists
        if isinstance(layer_list, torch.nn.ModuleList)
    ]
    try:
        for layer_list, _ in saved_layers:
            del layer_list[1:]
        yield Model(
            model.module, model.family, model.name, model.init, model.seed, model.feature_extractor
        )
    finally:
        for layer_list, modules in saved_layers:
            layer_list._modules.clear()
            layer_list._modules.update(modules)
