"""The bundled Whisper-style model changed so that it computes the same, or hears nothing (synthetic
models, for tests).

Padded: before every layer an idle one, whose outputs are scaled down to nearly nothing (the last
layer stays the last: Value Zeroing reads it behind the stack's final norm). Permuted: heads in
another order. Deaf: outputs of cross-attention scaled down alike.
"""

from __future__ import annotations

import copy

import torch
from torch import nn

IDLE = 1e-5  # with 1e-3 an idle layer still moves the first, small states of the decoder by 0.4 %


def padded(model: nn.Module) -> nn.Module:
    """A copy with an idle copy before each encoder and decoder layer."""
    changed = copy.deepcopy(model)
    base = getattr(changed, "model", changed)
    for stack, count in ((base.encoder, "encoder_layers"), (base.decoder, "decoder_layers")):
        layers = []
        for layer in stack.layers:
            idle = copy.deepcopy(layer)
            for name, part in idle.named_modules():
                if name.endswith("out_proj") or name == "fc2":
                    _scale(part)
            layers += [idle, layer]
        for number, layer in enumerate(layers):
            for part in layer.modules():
                if getattr(part, "layer_idx", None) is not None:
                    part.layer_idx = number
        stack.layers = nn.ModuleList(layers)
        setattr(changed.config, count, len(layers))
    return changed


def deaf(model: nn.Module) -> nn.Module:
    """A copy whose decoder hardly hears: outputs of cross-attention are scaled down."""
    changed = copy.deepcopy(model)
    for layer in getattr(changed, "model", changed).decoder.layers:
        _scale(layer.encoder_attn.out_proj)
    return changed


def permuted(model: nn.Module) -> nn.Module:
    """A copy with the heads of every attention in reverse order."""
    changed = copy.deepcopy(model)
    for part in changed.modules():
        if not (hasattr(part, "q_proj") and hasattr(part, "out_proj")):
            continue
        order = torch.arange(part.embed_dim).view(part.num_heads, -1).flip(0).flatten()
        with torch.no_grad():
            for name in ("q_proj", "k_proj", "v_proj"):
                projection = getattr(part, name)
                projection.weight.copy_(projection.weight[order])
                if projection.bias is not None:
                    projection.bias.copy_(projection.bias[order])
            part.out_proj.weight.copy_(part.out_proj.weight[:, order])
    return changed


def _scale(part: nn.Module) -> None:
    with torch.no_grad():
        for parameter in part.parameters():
            parameter.mul_(IDLE)
