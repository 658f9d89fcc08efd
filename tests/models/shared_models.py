"""Tiny models that tests share: built, loaded and self-checked once a process; whoever changes one
is found out.

A test that writes to a model, trains it or exchanges its parts builds its own
(`speechmix.load(build(name))`). What a shared model is made of (weights, buffers, config, hooks,
flags, table) is compared with what it was at loading, after each file.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Any

import torch

import speechmix

_MODELS: dict[tuple, speechmix.adapters.Model] = {}
_AS_LOADED: dict[tuple, tuple] = {}
_TAKEN: set[tuple] = set()  # since the last comparison


def shared(key: tuple, make) -> speechmix.adapters.Model:
    """Return the model of a key, made by `make()` when first asked for."""
    if key not in _MODELS:
        _MODELS[key] = make()
        _AS_LOADED[key] = state_of(_MODELS[key])
    _TAKEN.add(key)
    return _MODELS[key]


def state_of(model: speechmix.adapters.Model) -> tuple:
    """All that a test could change about a model, small enough to keep."""
    return (
        _checksum(model.module.state_dict(keep_vars=True).values()),
        repr(model.config),
        getattr(model.config, "_attn_implementation", None),
        model.init,
        tuple(model.stacks.items()),
        (model.feature_extractor, model.tokenizer),
        tuple(_flags(part) for part in model.module.modules()),
    )


def _checksum(tensors: Iterable[torch.Tensor]) -> int:
    checksum = 0
    for tensor in tensors:
        checksum = zlib.crc32(
            repr((tensor.dtype, tensor.shape, tensor.requires_grad, tensor.grad)).encode(), checksum
        )
        checksum = zlib.crc32(
            tensor.detach().contiguous().view(-1).view(torch.uint8).numpy(), checksum
        )
    return checksum


def _flags(part: torch.nn.Module) -> tuple[Any, ...]:
    kinds = (
        part._forward_hooks,
        part._forward_pre_hooks,
        part._backward_hooks,
        part._backward_pre_hooks,
    )
    hooks = [hook for hooks in kinds for hook in hooks.values()]
    left = [
        hook for hook in hooks if not hook.__module__.startswith("transformers.")
    ]  # its own stay: output_attentions
    return id(part), part.training, "forward" in vars(part), len(left)


def changed_since_taken() -> list[tuple]:
    """Keys of the models taken since the last call that are no longer as loaded; they are
    forgotten, so made anew."""
    changed = [key for key in _TAKEN if state_of(_MODELS[key]) != _AS_LOADED[key]]
    _TAKEN.clear()
    for key in changed:
        del _MODELS[key]
    return changed


def take_all() -> None:
    """Let the next comparison be of every model there is."""
    _TAKEN.update(_MODELS)
