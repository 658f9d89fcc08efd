"""Prepared inputs: tensors that somebody else made of one clip or text, checked, with the tokens
that they hold.

In: tensors by the name of the module's argument. Out: `PreparedInputs`, and a hash of all that it holds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch

from ...adapters.generation.audio_token_positions import locate_audio_tokens
from ...adapters.generation.model_inputs import HashedInputs, PreparedInputs
from ...adapters.generation.token_sequence import Tokens
from ...adapters.model import Model
from ...adapters.transformers_types import Inputs
from ...errors import InputError
from ...files.cache_keys import digest


def check_prepared_inputs(inputs: Inputs, model: Model) -> PreparedInputs:
    """Prepared inputs of one clip or text, checked, with their tokens."""
    tensors = {name: torch.as_tensor(value) for name, value in inputs.items()}
    _check_inputs(tensors, model)
    prepared = PreparedInputs(
        tensors, audio_hash=inputs.audio_hash if isinstance(inputs, HashedInputs) else None
    )
    if "input_ids" in tensors:
        ids = _list_ids(tensors["input_ids"])
        mask = tensors["attention_mask"][0].tolist() if "attention_mask" in tensors else None
        tokens = Tokens.from_ids(ids, model.tokenizer, mask=mask)
        if model.capabilities.stack_by_side.get("text") == "encoder":
            prepared.source_tokens = tokens
        else:
            prepared.tokens = tokens
        if model.capabilities.has_audio_tokens:
            prepared.audio_tokens = locate_audio_tokens(model, ids)
    if "decoder_input_ids" in tensors:
        prepared.tokens = Tokens.from_ids(
            _list_ids(tensors["decoder_input_ids"]), model.tokenizer, label_offset=1
        )
    return prepared


def _list_ids(ids: torch.Tensor) -> list[int]:
    """List the ids [1, T], or the first of several codebooks [1, T, C], which is the text's."""
    result: list[int] = (ids[0] if ids.ndim == 2 else ids[0, :, 0]).tolist()
    return result


def _check_inputs(tensors: Mapping[str, torch.Tensor], model: Model) -> None:
    batch_sizes = {name: len(tensor) for name, tensor in tensors.items()}
    if not tensors or set(batch_sizes.values()) != {1}:
        raise InputError(
            f"prepared inputs should hold one clip, a batch of 1; found {batch_sizes or 'nothing'}"
        )
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise InputError(f"prepared input {name!r} holds NaN or infinity")
    expected = model.family.tiny_inputs(model.config)
    main_input = next(iter(expected))
    if (
        main_input not in tensors
        or tensors[main_input].is_floating_point() != expected[main_input].is_floating_point()
    ):
        number_kind = "floating-point" if expected[main_input].is_floating_point() else "whole"
        types = ", ".join(f"{name} ({tensor.dtype})" for name, tensor in tensors.items())
        raise InputError(
            f"{model.name} takes {main_input!r} as {number_kind} numbers; found {types}"
        )


def inputs_fingerprint(inputs: Inputs) -> str:
    """Hash of prepared inputs: names, types, shapes and every number."""
    tensors = {
        name: torch.as_tensor(value).detach().cpu().contiguous() for name, value in inputs.items()
    }
    value_hashes = {
        name: hashlib.blake2b(tensor.view(-1).view(torch.uint8).numpy().data)
        for name, tensor in tensors.items()
    }
    return digest(
        {
            name: [str(tensor.dtype), list(tensor.shape), value_hashes[name].hexdigest()]
            for name, tensor in tensors.items()
        }
    )[:16]
