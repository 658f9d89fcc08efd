"""The slow oracle of the decompositions: explicit [T, K, D] vectors, summed, normed and measured as
the papers write it.

What enters and leaves each norm is read by hooks on the model's own modules. Shares no code with
speechmix.
"""

from __future__ import annotations

import torch
from torch import nn

from tests import oracle

# The norm of the attention block and the one behind the next block, by what a layer has.
NORMS = (
    ("attention.output.LayerNorm", "output.LayerNorm"),
    ("sa_layer_norm", "output_layer_norm"),
    ("ln_1", "ln_2"),
    ("input_layernorm", "pre_feedforward_layernorm"),
    ("input_layernorm", "post_attention_layernorm"),
    ("layer_norm", "final_layer_norm"),
)
PRE = ("whisper", "mbart", "gpt2", "llama", "mistral", "qwen2", "qwen3", "gemma", "gemma3_text")


def is_pre_norm(module):
    return module.config.model_type in PRE or getattr(module.config, "do_stable_layer_norm", False)


def norms_of(layer, stack):
    """First and second norm of one attention block."""
    if hasattr(layer, "self_attn_layer_norm"):
        if stack == "cross":
            return layer.encoder_attn_layer_norm, layer.final_layer_norm
        return layer.self_attn_layer_norm, getattr(
            layer, "encoder_attn_layer_norm", layer.final_layer_norm
        )
    for paths in NORMS:
        found = [oracle.find(layer, path) for path in paths]
        if None not in found:
            return found


def seen_at_norms(module, inputs, stack):
    """For each layer: what enters (0) and leaves (1) the first norm, what enters the second (2),
    and the residual."""
    layers, seen, handles = oracle.layers_of(module, stack), [], []
    for layer in layers:
        record = {}
        first, second = norms_of(layer, stack)

        def at_first(m, args, out, record=record):
            record["in"], record["out"] = args[0][0], out[0]

        def at_second(m, args, out, record=record):
            record["next"] = args[0][0]

        handles += [first.register_forward_hook(at_first), second.register_forward_hook(at_second)]
        if stack == "cross":

            def before_cross(m, args, out, record=record):
                record["state"] = out[0]

            handles.append(layer.self_attn_layer_norm.register_forward_hook(before_cross))
        seen.append(record)
    calls = oracle.run(module, inputs, stack)
    for handle in handles:
        handle.remove()
    for record, (args, kwargs, _) in zip(seen, calls, strict=True):
        hidden = (args[0] if args else kwargs["hidden_states"])[0]
        if is_pre_norm(module):
            record["residual"] = record["in"]
        else:
            record["residual"] = record["state"] if stack == "cross" else hidden
    return seen


def linear_part(norm, v, whole):
    """Apply a norm without its bias to v [T, D] or [T, K, D], with the deviation of the whole sum
    [T, D]."""
    whole = whole if v.dim() == 2 else whole[:, None]
    if isinstance(norm, nn.LayerNorm):
        v = v - v.mean(-1, keepdim=True)
        return v * norm.weight / torch.sqrt(whole.var(-1, unbiased=False) + norm.eps)[..., None]
    mean_square = whole.pow(2).mean(-1, keepdim=True)
    return v / torch.sqrt(mean_square + norm.eps) * (1 + norm.weight)  # Gemma


def parts(module, inputs, stack, norms=0):
    """For each layer: part vectors [T, K, D], the residual's part [T, D], what biases add [T, D],
    the true sum [T, D]."""
    layers = oracle.layers_of(module, stack)
    with torch.no_grad():
        for layer, record, vectors in zip(
            layers,
            seen_at_norms(module, inputs, stack),
            oracle.attended_vectors(module, inputs, stack),
            strict=True,
        ):
            attention = oracle.attention_module(layer, stack)
            vectors = vectors.sum(0)
            bias = oracle.output_bias(attention)
            bias = (
                torch.zeros_like(record["residual"])
                if bias is None
                else bias.expand_as(record["residual"])
            )
            if hasattr(layer, "pre_feedforward_layernorm"):  # the branch's own norm
                branch, own_norm = vectors.sum(1) + bias, layer.post_attention_layernorm
                vectors = linear_part(own_norm, vectors, branch)
                bias = linear_part(own_norm, bias, branch)
            residual, output = (
                record["residual"],
                record["next"] if is_pre_norm(module) else record["in"],
            )
            for number, norm in enumerate(norms_of(layer, stack)[:norms]):
                whole = record["in"] if number == 0 else record["next_in"]
                vectors = linear_part(norm, vectors, whole)
                residual = linear_part(norm, residual, whole)
                bias = linear_part(norm, bias, whole) + norm.bias
                output = record["out"]
                record["next_in"] = record["next"]
            yield vectors, residual, bias, output


def norms(parts):
    """Lengths [L, T, T] of the part vectors, the residual's with those of the diagonal."""
    maps = []
    for vectors, residual, _, _ in parts:
        vectors = vectors.clone()
        for i in range(len(residual)):
            vectors[i, i] += residual[i]
        maps.append(vectors.norm(dim=-1))
    return torch.stack(maps).numpy()


def alti(parts, stack, targets, sources, order=1):
    """ALTI [L, targets, sources]; targets and sources are lists of lists of positions."""
    maps = []
    for vectors, residual, _, output in parts:

        def nearer(i, part, output=output):
            return max(0.0, (output[i].norm(p=order) - (output[i] - part).norm(p=order)).item())

        rows = torch.zeros(len(output), len(sources), dtype=output.dtype)
        for i in sorted({position for target in targets for position in target}):
            for j, source in enumerate(sources):
                part = vectors[i, source].sum(0)
                if stack != "cross" and i in source:
                    part = part + residual[i]
                rows[i, j] = nearer(i, part)
            if stack == "cross":
                rows[i] /= rows[i].sum() + nearer(i, residual[i])
        maps.append(torch.stack([rows[target].mean(0) for target in targets]))
    return torch.stack(maps).numpy()


def mixing_ratio(parts):
    """Ratios [L, T], every position a unit."""
    ratios = []
    for vectors, residual, _, _ in parts:
        row = []
        for i in range(len(residual)):
            own = vectors[i, i] + residual[i]
            rest = torch.cat([vectors[i, :i], vectors[i, i + 1 :]]).sum(0)
            row.append((rest.norm() / (rest.norm() + own.norm())).item())
        ratios.append(row)
    return ratios
