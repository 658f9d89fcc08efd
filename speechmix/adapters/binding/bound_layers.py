"""Find the modules of a loaded model's layers by the paths in its family's table.

In: a `StackSpec` and a base model. Out: a `Stack` of `Layer`s, which hold attention blocks and
feed-forwards as modules. Nothing is looked up by its path after that: a table that names what is
not there fails here, when the model is loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Protocol

from torch import nn

from ...errors import ModelError
from ...files.json_files import JsonObject
from ..transformers_types import Config, PretrainedModule
from .layer_components import (
    AttentionModules,
    ConvolutionModules,
    FeedForwardModules,
    Layer,
    ProjectionHalf,
    projection_weight,
)

if TYPE_CHECKING:
    from ..families.specs import AttentionSpec, ConvolutionSpec, FeedForwardSpec, StackSpec


class StackTable(Protocol):
    """The part of a `Family` that says where the stacks are."""

    @property
    def name(self) -> str: ...

    @property
    def stacks(self) -> Callable[[Config], tuple[StackSpec, ...]]: ...

    @property
    def heads(self) -> Callable[[Config, str], int]: ...


@dataclass(frozen=True)
class Stack:
    """A `StackSpec` bound to a loaded model.

    `holder` is the module that runs the layers: the encoder, the decoder, or the base model itself.
    `unknown_sum_reason` says why its residual sums are not known; it is empty if they are.
    """

    spec: StackSpec
    holder: nn.Module = field(repr=False)
    layers: tuple[Layer, ...] = field(repr=False)
    final_norm: nn.Module | None = field(repr=False)
    heads: int
    width: int
    unknown_sum_reason: str = ""

    @property
    def name(self) -> str:
        return self.spec.name

    def __len__(self) -> int:
        return len(self.layers)


def bind_stacks(family: StackTable, module: PretrainedModule, base: nn.Module) -> dict[str, Stack]:
    """Find all stacks of a family's table in a model.

    A table, perhaps borrowed from another architecture, that does not fit the config or the modules
    is a ModelError.
    """
    table_location = "the config"
    try:
        stacks = {}
        for spec in family.stacks(module.config):
            table_location = f"the {spec.name} (layers {spec.layers!r})"
            stack = bind_stack(spec, base, family.heads(module.config, spec.name))
            if stack is not None:
                stacks[spec.name] = stack
        return stacks
    except (AttributeError, KeyError, TypeError, IndexError, ValueError) as error:
        raise ModelError(
            f"{type(module).__name__}: the table of the family {family.name} does not fit {table_location}: "
            f"{error}. Correct its paths, "
            "see speechmix.register"
        ) from error


def bind_stack(spec: StackSpec, base: nn.Module, heads: int) -> Stack | None:
    """Find a stack in a base model; None if the model has no such stack (an encoder alone has no
    decoder).

    A table that names modules the model does not have is a ModelError.
    """
    if not hasattr(base, spec.layers.split(".")[0]):
        return None
    path, _, _ = spec.layers.rpartition(".")
    layers = tuple(bind_layer(module, spec) for module in layer_modules(spec, base))
    return Stack(
        spec,
        submodule(base, path, label=f"layers of the {spec.name}") if path else base,
        layers,
        submodule(base, spec.final_norm, label=f"final norm of the {spec.name}")
        if spec.final_norm
        else None,
        heads,
        width=projection_weight(layers[0].attention.output).shape[0],
        unknown_sum_reason=_explain_missing_sum(spec),
    )


def _explain_missing_sum(spec: StackSpec) -> str:
    """Say why the table alone shows that the residual sum is not known; empty if it does not."""
    attention = spec.blocks[spec.block_index]
    if spec.parallel:
        return (
            "attention and feed-forward run side by side, so the layer has no sum of residual "
            "and attention alone"
        )
    return (
        ""
        if attention.norm or attention.branch_norm
        else "its table names no norm of the attention block"
    )


def layer_modules(spec: StackSpec, base: nn.Module) -> tuple[nn.Module, ...]:
    """Return the modules that are a stack's layers."""
    # A list of modules, of whatever class.
    modules: Any = submodule(base, spec.layers, label=f"layers of the {spec.name}")
    return tuple(modules)


def bind_layer(module: nn.Module, spec: StackSpec) -> Layer:
    """Look up all that a table names inside one layer."""
    attention_label, feed_forward_label = (
        f"attention of the {spec.name}",
        f"feed-forward of the {spec.name}",
    )
    convolution, closing_norm_path = spec.convolution, spec.closing_norm
    return Layer(
        module,
        tuple(
            AttentionModules(
                **_look_up_modules(module, attention, label=attention_label),
                includes_output=attention.output.startswith(f"{attention.module}."),
            )
            for attention in spec.blocks
        ),
        tuple(
            FeedForwardModules(**_look_up_modules(module, feed_forward, label=feed_forward_label))
            for feed_forward in spec.feed_forwards
        ),
        spec.block_index,
        ConvolutionModules(
            **_look_up_modules(module, convolution, label=f"convolution of the {spec.name}")
        )
        if convolution
        else None,
        submodule(module, closing_norm_path, label=f"closing norm of the {spec.name}")
        if closing_norm_path
        else None,
        spec.parallel,
    )


def _look_up_modules(
    layer: nn.Module, spec: AttentionSpec | FeedForwardSpec | ConvolutionSpec, *, label: str
) -> JsonObject:
    """Look up the modules that a spec has paths of; its other values stay as they are."""
    spec_values = {spec_field.name: getattr(spec, spec_field.name) for spec_field in fields(spec)}
    return {
        name: submodule(layer, path or spec_values["module"], label=label)
        if isinstance(path, str)
        else path
        for name, path in spec_values.items()
        if path is not None
    }


def submodule(root: nn.Module, path: str, *, label: str) -> nn.Module:
    """Follow a dotted path; the error names the step that is missing. ``path:0`` and ``path:1`` are
    halves of a projection."""
    path, _, half = path.partition(":")
    module = root
    for step in path.split("."):
        if not hasattr(module, step):
            raise ModelError(
                f"{label}: expected {path!r} inside {type(root).__name__}, but "
                f"{type(module).__name__} has no {step!r}. "
                "The family's table does not fit this model; see speechmix.register"
            )
        module = getattr(module, step)
    return ProjectionHalf(module, int(half)) if half else module
