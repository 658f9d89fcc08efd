"""Exchange weights between two versions of one model, part by part, while a block lasts.

In: two models of one architecture. Out: their parts in the order of computation: what enters a stack, each layer of each
stack, what leaves it; of an attention block each head. The cross-attention of a decoder's layer is a part of its own. A model
that runs with the weights of another in its first parts computes what the other computes up to there: its states are the
other's, patched in. Both models are as before on leaving.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ...errors import InputError

if TYPE_CHECKING:
    from ...adapters.binding.bound_layers import AttentionModules, Stack
    from ...adapters.model import Model

INPUT, NORM, OUTPUT = "input", "final norm", "output"
_FRONT_END_OPTIONS = ("feature_size", "n_fft", "hop_length", "do_normalize", "num_mel_bins")


@dataclass(frozen=True)
class WeightGroup:
    """A part of a model whose weights are exchanged together.

    Parameters
    ----------
    stack : str
        "encoder", "decoder", "cross", or "output" behind the last stack.
    layer : int or None
        None of what enters or leaves a stack.
    part : str
        "input", "final norm" or "output" where there is no layer.
    tensors : tuple of str
        Names of weights and buffers in the model's `state_dict`.
    """

    stack: str
    layer: int | None
    part: str
    tensors: tuple[str, ...] = field(repr=False)

    @property
    def label(self) -> str:
        """Name for tables.

        Examples
        --------
        >>> WeightGroup("cross", 2, "", ()).label, WeightGroup("encoder", None, "input", ()).label
        ('cross 2', 'encoder input')
        """
        if self.layer is not None:
            return f"{self.stack} {self.layer}"
        return self.stack if self.stack == self.part else f"{self.stack} {self.part}"


def check_comparable(model: Model, other: Model) -> None:
    """Raise an InputError, which names the first difference, unless two models are versions of one architecture."""
    properties, others = map(_comparable_properties, (model, other))
    for name in properties | others:
        if properties.get(name) != others.get(name):
            raise InputError(
                f"{model.name} and {other.name} are no versions of one model: {name}: {properties.get(name)} and "
                f"{others.get(name)}. Give two models of one architecture, tokenizer, sampling rate and dtype="
            )
    if model.capabilities.decoding not in ("cross-attention", "frames") or not model.hears:
        raise InputError(
            f"{model.name} is no recogniser with a decoder behind an encoder (Whisper) or with a CTC head: "
            "diff compares what such models write about recordings"
        )


def _comparable_properties(model: Model) -> dict[str, object]:
    """What two versions of a model have in common, by name."""
    tensors = model.module.state_dict()
    vocabulary = model.tokenizer.get_vocab() if model.tokenizer else {}
    extractor = model.feature_extractor
    return {
        "family": model.family.name,
        "sampling rate": model.sample_rate if model.hears else None,
        **{f"layers of the {name}": len(stack) for name, stack in model.stacks.items()},
        **{f"shape of {name}": tuple(tensor.shape) for name, tensor in tensors.items()},
        **{f"id of the token {token!r}": id_ for token, id_ in vocabulary.items()},
        **{name: getattr(extractor, name, None) for name in _FRONT_END_OPTIONS},
        "decoder prefix": model.prefix,
        "precision": model.dtype,
        "device": model.device,
    }


def list_groups(model: Model) -> list[WeightGroup]:
    """List a model's parts in the order of computation; each weight is in one of them."""
    owners: dict[int, tuple[str, int | None, str]] = {}  # the part of each tensor, by its id

    def claim(modules: Iterable[nn.Module | None], key: tuple[str, int | None, str]) -> None:
        for module in filter(None, modules):
            for tensor in _named_tensors(module).values():
                owners.setdefault(id(tensor), key)

    order: list[tuple[str, int | None, str]] = []
    stack_names = [name for name in ("encoder", "decoder") if name in model.stacks]
    for name in stack_names:
        stack, cross = model.stacks[name], model.stacks.get("cross")
        order.append((name, None, INPUT))
        for index, layer in enumerate(stack.layers):
            order.append((name, index, ""))
            if name == "decoder" and cross is not None:
                order.append(("cross", index, ""))
                claim(_attention_modules(cross.layers[index].attention), order[-1])
            claim([layer.module], (name, index, ""))
        is_last = name == model.capabilities.output_stack
        last_key = (OUTPUT, None, OUTPUT) if is_last else (name, None, NORM)
        order.append(last_key)
        claim([stack.final_norm], last_key)
    for name in reversed(stack_names):
        # The holder of the decoder comes first: of some models, that of the encoder is the whole base.
        claim([_input_holder(model, model.stacks[name])], (name, None, INPUT))
    tensors: dict[tuple[str, int | None, str], list[str]] = {key: [] for key in order}
    for tensor_name, tensor in _named_tensors(model.module).items():
        tensors[owners.get(id(tensor), (OUTPUT, None, OUTPUT))].append(tensor_name)
    return [WeightGroup(*key, tuple(names)) for key, names in tensors.items() if names]


def _attention_modules(attention: AttentionModules) -> list[nn.Module | None]:
    return [attention.module, attention.output, attention.norm, attention.branch_norm]


def _input_holder(model: Model, stack: Stack) -> nn.Module:
    """Module that holds what enters a stack: the encoder or the decoder, or the base model of an encoder alone."""
    return stack.holder if "cross" in model.stacks else model.base


def _stored_tensors(module: nn.Module) -> Iterator[tuple[dict[str, Any], str, str, Tensor]]:
    """Yield parameters and buffers as they are stored, also where `Model.in_use` reads them in a finer precision: what
    holds each, its name there, its name in the model."""
    for prefix, submodule in module.named_modules():
        for registry in (submodule._parameters, submodule._buffers):
            for name, tensor in dict.items(registry):
                if tensor is not None:
                    yield registry, name, f"{prefix}.{name}".lstrip("."), tensor


def _named_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by name; a tensor that several modules share is there once."""
    names: dict[int, tuple[str, Tensor]] = {}
    for *_, name, tensor in _stored_tensors(module):
        names.setdefault(id(tensor), (name, tensor))
    return dict(names.values())


def find_changed_groups(
    model: Model, other: Model, groups: Iterable[WeightGroup]
) -> list[WeightGroup]:
    """Return the parts in which the weights of two models differ."""
    tensors, other_tensors = _named_tensors(model.module), _named_tensors(other.module)
    return [
        group
        for group in groups
        if any(not torch.equal(tensors[name], other_tensors[name]) for name in group.tensors)
    ]


def copy_weights(model: Model, groups: Iterable[WeightGroup]) -> dict[str, Tensor]:
    """Return the weights of some parts, by name; nothing is copied."""
    tensors = _named_tensors(model.module)
    return {name: tensors[name] for group in groups for name in group.tensors}


def list_head_weights(
    model: Model, other: Model, group: WeightGroup
) -> dict[str, dict[str, Tensor]]:
    """Return `model`'s weights of one attention block, with those of `other` in one head each: "head 0", ...; and in all
    but the attention block ("rest").

    Rows of a head in the projections of queries, keys and values, and its columns in the output projection. Empty where
    these are not four linear layers.
    """
    if group.layer is None:
        return {}
    stack = model.stacks[group.stack]
    attention = stack.layers[group.layer].attention
    named = (attention.key, attention.value, attention.output)
    queries = [module for module in attention.module.children() if module not in named]
    linear = [module for module in (*queries, *named) if type(module) is nn.Linear]
    widths = {module.out_features for module in linear[:3]}
    if len(linear) != 4 or len(widths) != 1 or next(iter(widths)) % stack.heads:
        return {}
    names = {id(tensor): name for name, tensor in _named_tensors(model.module).items()}
    others, size = _named_tensors(other.module), next(iter(widths)) // stack.heads
    by_part: dict[str, dict[str, Tensor]] = {}
    for head in range(stack.heads):
        rows = slice(head * size, (head + 1) * size)
        replacements = by_part[f"head {head}"] = {}
        for module in linear:
            for kind, tensor in _named_tensors(module).items():  # weight and, mostly, bias
                is_output = module is linear[3]
                if is_output and kind != "weight":
                    continue
                name, place = names[id(tensor)], (slice(None), rows) if is_output else (rows,)
                mixed = tensor.detach().clone()
                mixed[place] = others[name].detach()[place]
                replacements[name] = nn.Parameter(mixed, requires_grad=False)
    in_heads = set(by_part["head 0"])
    by_part["rest"] = {name: others[name] for name in group.tensors if name not in in_heads}
    return by_part


@contextmanager
def exchange_weights(model: Model, tensors: Mapping[str, Tensor]) -> Iterator[None]:
    """Run a model with other weights of these names, as long as the block lasts. Where `Model.in_use` converts them, they
    must live as long as it lasts."""
    own_tensors = _named_tensors(model.module)
    new_by_id = {id(own_tensors[name]): tensor for name, tensor in tensors.items()}
    exchanged = [stored for stored in _stored_tensors(model.module) if id(stored[3]) in new_by_id]
    try:
        for registry, name, _, tensor in exchanged:
            registry[name] = new_by_id[id(tensor)]
        yield
    finally:
        for registry, name, _, tensor in exchanged:
            registry[name] = tensor
