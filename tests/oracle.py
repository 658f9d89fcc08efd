"""An independent slow oracle: the definitions, written out with loops over the model's own layers.

Value Zeroing re-runs the whole layer once per source with that source's value rows zeroed by a hook on the value
projection (WavLM: in a textbook multi-head attention that stands in for torch's). Attention and attention norm come from
explicit tensors. Shares no code with speechmix.
"""

from __future__ import annotations

from contextlib import contextmanager

import torch
from torch.nn import functional as F

ATTENTION = {"encoder": ("attention", "self_attn"), "decoder": ("self_attn",), "cross": ("encoder_attn",)}


def layers_of(module, stack):
    base = module.base_model
    return (base.encoder if stack == "encoder" else base.decoder).layers


def final_norm(module, stack):
    base = module.base_model
    if hasattr(base, "decoder"):
        return (base.encoder if stack == "encoder" else base.decoder).layer_norm
    return base.encoder.layer_norm if getattr(module.config, "do_stable_layer_norm", False) else lambda x: x


def attention_module(layer, stack):
    return next(getattr(layer, name) for name in ATTENTION[stack] if hasattr(layer, name))


def run(module, inputs, stack):
    """Forward pass; returns each layer's (args, kwargs, output)."""
    seen, handles = [], []
    for layer in layers_of(module, stack):
        handles.append(
            layer.register_forward_hook(
                lambda m, args, kwargs, out: seen.append((args, kwargs, out[0] if isinstance(out, tuple) else out)),
                with_kwargs=True,
            )
        )
    options = {"use_cache": False} if "decoder_input_ids" in inputs else {}
    with torch.no_grad():
        module(**inputs, **options)
    for handle in handles:
        handle.remove()
    return seen


@contextmanager
def zeroed_values(attention, rows, head=None):
    """Set rows of the value vectors (of one head) to zero."""
    width = attention.v_proj.out_features // attention.num_heads
    columns = slice(None) if head is None else slice(head * width, (head + 1) * width)
    rows = torch.as_tensor(rows)

    def zero(module, args, output):
        output = output.clone()
        output[:, rows, columns] = 0
        return output

    def textbook(query, key, value, *args, attn_mask, q_proj_weight, k_proj_weight, v_proj_weight, **kwargs):
        heads, in_bias, out_weight, out_bias = args[1], args[3], args[8], args[9]
        bias = in_bias.chunk(3)
        q, k, v = (
            F.linear(x, w, b)
            for x, w, b in zip((query, key, value), (q_proj_weight, k_proj_weight, v_proj_weight), bias, strict=True)
        )
        v = v.clone()
        v[rows, :, columns] = 0
        q, k, v = (x[:, 0].view(len(x), heads, -1).permute(1, 0, 2) for x in (q, k, v))
        alpha = torch.softmax(q @ k.transpose(1, 2) / q.shape[-1] ** 0.5 + attn_mask, dim=-1)
        context = (alpha @ v).permute(1, 0, 2).reshape(len(query), 1, -1)
        return F.linear(context, out_weight, out_bias), alpha.mean(0, keepdim=True)

    handle = attention.v_proj.register_forward_hook(zero)
    original = F.multi_head_attention_forward
    F.multi_head_attention_forward = textbook
    try:
        yield
    finally:
        handle.remove()
        F.multi_head_attention_forward = original


def value_zeroing(module, inputs, stack, targets, sources, distance="cosine", pooling="mean", head=None):
    """Scores [L, targets, sources]; targets and sources are lists of lists of positions."""
    maps = []
    layers = layers_of(module, stack)
    for index, (layer, (args, kwargs, output)) in enumerate(zip(layers, run(module, inputs, stack), strict=True)):
        norm = final_norm(module, stack) if index == len(layers) - 1 else lambda x: x
        before = norm(output)[0]
        columns = []
        for source in sources:
            with torch.no_grad(), zeroed_values(attention_module(layer, stack), source, head):
                after = layer(*args, **kwargs)
            after = norm(after[0] if isinstance(after, tuple) else after)[0]
            if distance == "cosine":
                moved = 1 - F.cosine_similarity(before, after, dim=-1)
            else:
                moved = ((before - after) ** 2).sum(-1).sqrt()
            pooled = [moved[rows].mean() if pooling == "mean" else moved[rows].max() for rows in targets]
            columns.append(torch.stack(pooled))
        maps.append(torch.stack(columns, dim=1))
    return torch.stack(maps).numpy()


def attention_weights(module, inputs, stack):
    """Weights [L, H, T, K] as transformers' eager attention returns them."""
    module.config._attn_implementation = "eager"
    options = {"use_cache": False} if "decoder_input_ids" in inputs else {}
    with torch.no_grad():
        out = module(**inputs, **options, output_attentions=True, return_dict=True)
    name = {"decoder": "decoder_attentions", "cross": "cross_attentions"}.get(stack, "attentions")
    if stack == "encoder" and "encoder_attentions" in out:
        name = "encoder_attentions"
    return torch.stack([a[0] for a in getattr(out, name)])


def attention_norm(module, inputs, stack, each_head=False):
    """Norms [L, (H,) T, K] from the explicit [H, T, K, D] vectors."""
    alphas, maps, values = attention_weights(module, inputs, stack), [], []
    layers = layers_of(module, stack)
    handles = [
        attention_module(layer, stack).v_proj.register_forward_hook(lambda m, a, out: values.append(out[0]))
        for layer in layers
    ]
    run(module, inputs, stack)
    for handle in handles:
        handle.remove()
    for layer, alpha, value in zip(layers, alphas, values, strict=True):
        out = attention_module(layer, stack).out_proj.weight  # [D, H d]
        heads, width = alpha.shape[0], value.shape[-1] // alpha.shape[0]
        vectors = torch.stack(
            [
                alpha[h][:, :, None]
                * (value[:, h * width : (h + 1) * width] @ out[:, h * width : (h + 1) * width].T)[None]
                for h in range(heads)
            ]
        )
        maps.append(vectors.norm(dim=-1) if each_head else vectors.sum(0).norm(dim=-1))
    return torch.stack(maps).numpy()


@contextmanager
def zeroed_values_of_all(modules, rows):
    """`zeroed_values` for several attention modules at once, each only while it runs."""
    import contextlib

    with contextlib.ExitStack() as undo:
        for module in modules:
            forward = module.forward

            def wrapped(*args, _module=module, _forward=forward, **kwargs):
                with zeroed_values(_module, rows):
                    return _forward(*args, **kwargs)

            module.forward = wrapped
            undo.callback(lambda m=module: m.__dict__.pop("forward"))
        yield
