"""The slow oracle for families that are given by paths: each test names what is zeroed, no table of
the package is read.

As `tests/oracle.py`: a hook zeroes rows of the value projection's output, the whole layer runs
again on its captured input, final norm on both sides. Shares no code with speechmix.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch.nn import functional as F


@dataclass(frozen=True)
class Where:
    """Paths of one stack, from the model: layers, the last norm; and from a layer: what makes
    values.

    Parameters
    ----------
    values : tuple of int, optional
        Which columns of the value projection's output are values (a projection that makes queries
        and keys too).
    attentions : str or None
        What transformers calls the stack's attention weights in the model's output; empty for what
        its attention modules return beside their output; None where nobody shows them.
    """

    layers: str
    value: str
    final_norm: str | None = None
    values: Callable[[int], slice | torch.Tensor] = field(default=lambda width: slice(None))
    heads: int = 4
    attentions: str | None = "attentions"


def at(root, path):
    for step in path.split("."):
        root = getattr(root, step)
    return root


def first(output):
    return output[0] if isinstance(output, tuple) else output


def no_cache(module):
    """Keyword that keeps a decoder from remembering keys and values between calls of its layers."""
    decodes = hasattr(module.config, "use_cache") or hasattr(module.config, "text_config")
    return {"use_cache": False} if decodes else {}


def run(module, inputs, layers):
    """Forward pass; each layer's (args, kwargs, output), detached from what the model may write
    into it later."""
    seen = []

    def keep(layer, args, kwargs, output):
        args = tuple(x.clone() if isinstance(x, torch.Tensor) else x for x in args)
        seen.append((args, {**kwargs}, first(output).clone()))

    handles = [layer.register_forward_hook(keep, with_kwargs=True) for layer in layers]
    with torch.no_grad():
        module(**inputs, **no_cache(module))
    for handle in handles:
        handle.remove()
    return seen


@contextmanager
def zeroed(projection, where, rows, head):
    def zero(_, args, output):
        output = output.clone()
        columns = torch.arange(output.shape[-1])[where.values(output.shape[-1])]
        if head is not None:
            columns = columns.unflatten(0, (where.heads, -1))[head]
        output[..., torch.as_tensor(rows)[:, None], columns] = 0
        return output

    handle = projection.register_forward_hook(zero)
    try:
        yield
    finally:
        handle.remove()


def value_zeroing(module, inputs, where, targets, sources, distance="cosine", head=None, clip=0):
    """Scores [L, targets, sources]; targets and sources are lists of lists of positions."""
    maps, layers = [], list(at(module, where.layers))
    for index, (layer, (args, kwargs, output)) in enumerate(
        zip(layers, run(module, inputs, layers), strict=True)
    ):
        norm = (
            at(module, where.final_norm)
            if where.final_norm and index == len(layers) - 1
            else (lambda x: x)
        )
        before, columns = of_clip(norm(output), clip), []
        for source in sources:
            with torch.no_grad(), zeroed(at(layer, where.value), where, source, head):
                after = of_clip(norm(first(layer(*args, **kwargs))), clip)
            moved = (
                1 - F.cosine_similarity(before, after, dim=-1)
                if distance == "cosine"
                else (before - after).square().sum(-1).sqrt()
            )
            columns.append(torch.stack([moved[rows].mean() for rows in targets]))
        maps.append(torch.stack(columns, dim=1))
    return torch.stack(maps).numpy()


def mixing_strength(module, inputs, where, targets, *, cross=False, clip=0):
    """Strengths [L, targets]: the layer is run again with all values zeroed but the target's own
    (all in cross-attention)."""
    strengths, layers = [], list(at(module, where.layers))
    for index, (layer, (args, kwargs, output)) in enumerate(
        zip(layers, run(module, inputs, layers), strict=True)
    ):
        norm = (
            at(module, where.final_norm)
            if where.final_norm and index == len(layers) - 1
            else (lambda x: x)
        )
        before, of_layer = of_clip(norm(output), clip), []
        for target in targets:
            kept = [] if cross else target

            def zero(_, args, output, kept=kept):
                rows = torch.tensor([row for row in range(output.shape[-2]) if row not in kept])
                changed = output.clone()
                changed[
                    ...,
                    rows[:, None],
                    torch.arange(output.shape[-1])[where.values(output.shape[-1])],
                ] = 0
                return changed

            handle = at(layer, where.value).register_forward_hook(zero)
            with torch.no_grad():
                after = of_clip(norm(first(layer(*args, **kwargs))), clip)
            handle.remove()
            ratios = (after - before)[target].square().sum(-1).sqrt() / before[target].square().sum(
                -1
            ).sqrt()
            of_layer.append(ratios.mean())
        strengths.append(torch.stack(of_layer))
    return torch.stack(strengths).numpy()


def of_clip(states, clip):
    """One clip's states; those of a layer that takes them without an axis of clips are of one."""
    return states[clip] if states.ndim == 3 else states


def attention_weights(module, inputs, where):
    """Weights [L, H, T, K] as the model's own eager attention returns them."""
    configs = {id(part.config): part.config for part in module.modules() if hasattr(part, "config")}
    shown, handles = [], []
    if not where.attentions:
        path = where.value.rpartition(".")[0]
        keep = lambda part, args, output: shown.append(output[1])  # noqa: E731
        handles = [
            at(layer, path).register_forward_hook(keep) for layer in at(module, where.layers)
        ]
    before = {key: config._attn_implementation for key, config in configs.items()}
    try:
        for config in configs.values():
            config._attn_implementation = "eager"
        with torch.no_grad():
            output = module(**inputs, **no_cache(module), output_attentions=True, return_dict=True)
    finally:
        for key, config in configs.items():
            config._attn_implementation = before[key]
        for handle in handles:
            handle.remove()
    return torch.stack([weights[0] for weights in shown or output[where.attentions]]).numpy()
