"""A `Model` as pickle takes it: for worker processes, copies and caches.

A family's table holds functions, which pickle does not take. So it is looked up by the module's
`model_type` where the model is restored: an architecture of your own must be registered there
before. In: a model. Out: what it is built again from.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from ...errors import ModelError
from ...files.json_files import JsonObject
from ..binding.bound_layers import bind_stack
from ..families.registry import family_of_type, find_module_family
from ..families.specs import StackSpec
from ..model import Model
from ..transformers_types import Config

# Fields that are made again, or belong to the process.
_NOT_PICKLED = (
    "module",
    "family",
    "stacks",
    "weight_products",
    "activation_cache",
    "_modules",
    "_fingerprint",
)


@dataclass(frozen=True)
class ModuleRecipe:
    """A transformers model by its class, config, weights, and the buffers that no checkpoint
    stores.

    torch does not pickle modules with parametrized weights (the positional convolution of wav2vec
    2.0 and its kin).
    """

    model_class: type
    config: Config
    weights: dict[str, Tensor]
    buffers: dict[str, Tensor]  # built again they would be of single precision
    training: bool
    trainable_names: tuple[str, ...]
    generation_config: Any = None

    @classmethod
    def from_module(cls, module: Any) -> ModuleRecipe:
        """Make the recipe that a module is built again from."""
        trainable_names = tuple(
            name for name, weight in module.named_parameters() if weight.requires_grad
        )
        generation = getattr(module, "generation_config", None)
        weights = dict(module.state_dict())
        buffers = {name: buffer for name, buffer in module.named_buffers() if name not in weights}
        return cls(
            type(module),
            module.config,
            weights,
            buffers,
            module.training,
            trainable_names,
            generation,
        )

    def build(self) -> nn.Module:
        """Build the module; a ModelError if its parameters and buffers are not those that its
        config says."""
        with torch.random.fork_rng(devices=[]):
            module = self.model_class(self.config)
        try:
            module.load_state_dict(self.weights, assign=True)
        except RuntimeError as error:
            raise ModelError(
                f"{self.model_class.__name__} was changed after it was built, and torch does not "
                "pickle its parametrized "
                "weights: save it (save_pretrained), and pass the folder to the other process, "
                "which loads it there"
            ) from error
        for name, buffer in self.buffers.items():
            module_path, _, buffer_name = name.rpartition(".")
            setattr(module.get_submodule(module_path), buffer_name, buffer)
        if self.generation_config is not None:
            module.generation_config = self.generation_config
        if hasattr(module, "tie_weights"):
            module.tie_weights()  # weights that modules share were assigned to each
        for name, weight in module.named_parameters():
            weight.requires_grad_(name in self.trainable_names)
        result: nn.Module = module.train(self.training).to(next(iter(self.weights.values())).device)
        return result


def _cannot_be_pickled(submodule: nn.Module) -> bool:
    """Whether a module has parametrized weights, or hooks (transformers leaves some that are local
    functions)."""
    return is_parametrized(submodule) or bool(
        submodule._forward_hooks or submodule._forward_pre_hooks
    )


def model_contents(
    model: Model,
) -> tuple[Any, dict[str, tuple[StackSpec, int, str]], JsonObject]:
    """The module (or what it is built again from), each stack's spec, heads and `unknown_sum_reason`, and the
    other fields."""
    module = (
        ModuleRecipe.from_module(model.module)
        if any(map(_cannot_be_pickled, model.module.modules()))
        else model.module
    )
    stacks = {
        name: (stack.spec, stack.heads, stack.unknown_sum_reason)
        for name, stack in model.stacks.items()
    }
    fields = {name: value for name, value in model.__dict__.items() if name not in _NOT_PICKLED}
    return module, stacks, {**fields, "family_is_traced": model.family.is_traced}


def restore_model(
    module: Any, stacks: dict[str, tuple[StackSpec, int, str]], fields: JsonObject
) -> Model:
    """Make a model of its contents.

    A ModelError says that its architecture is not registered in this process, or that a module with
    parametrized weights cannot be built again.
    """
    module = module.build() if isinstance(module, ModuleRecipe) else module
    fields = dict(fields)
    family = (
        find_module_family(module, lambda: fields["feature_extractor"])
        if fields.pop("family_is_traced")
        else family_of_type(getattr(module.config, "model_type", None))
    )
    model = Model(module, family, fields["name"])
    model.__dict__.update(fields)
    for name, (spec, heads, unknown_sum_reason) in stacks.items():
        bound = bind_stack(spec, model.base, heads)
        if bound is not None:
            model.stacks[name] = replace(bound, unknown_sum_reason=unknown_sum_reason)
    return model


def reduce_model(model: Model) -> tuple[Any, ...]:
    """Return how pickle makes a model again: a function and its arguments."""
    return restore_model, model_contents(model)
