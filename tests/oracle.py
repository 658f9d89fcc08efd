"""An independent slow oracle: the definitions, written out with loops over the model's own layers.

Value Zeroing re-runs the whole layer once per source with that source's value rows zeroed by a hook
on the value projection (WavLM: in a textbook multi-head attention that stands in for torch's).
Attention and attention norm come from explicit tensors. Shares no code with speechmix.
"""

from __future__ import annotations

from contextlib import contextmanager

import torch
from torch.nn import functional as F

ATTENTION = {
    "encoder": ("attention", "self_attn"),
    "decoder": ("self_attn", "attn"),
    "cross": ("encoder_attn",),
}
LAYERS = ("encoder.layer", "transformer.layer", "encoder.layers", "h", "layers")
FINAL_NORM = {"gpt2": "ln_f", "llama": "norm", "mistral": "norm", "qwen2": "norm", "qwen3": "norm"}
FINAL_NORM |= {"gemma": "norm", "gemma3_text": "norm"}


def find(root, *paths):
    """The first of some dotted paths that leads somewhere."""
    for path in paths:
        found = root
        for step in path.split("."):
            found = getattr(found, step, None)
            if found is None:
                break
        else:
            return found
    return None


def layers_of(module, stack):
    base = module.base_model
    if stack == "encoder" or not hasattr(base, "decoder"):
        return find(base, *LAYERS)
    return base.decoder.layers


def final_norm(module, stack):
    base, kind = module.base_model, module.config.model_type
    if hasattr(base, "decoder"):
        return getattr(
            base.encoder if stack == "encoder" else base.decoder, "layer_norm", lambda x: x
        )
    if kind in FINAL_NORM:
        return getattr(base, FINAL_NORM[kind])
    return (
        base.encoder.layer_norm
        if getattr(module.config, "do_stable_layer_norm", False)
        else lambda x: x
    )


def attention_module(layer, stack):
    return next(getattr(layer, name) for name in ATTENTION[stack] if hasattr(layer, name))


def values_module(attention):
    """The projection that makes values; GPT-2's makes queries and keys too."""
    return find(attention, "v_proj", "self.value", "v_lin", "c_attn")


def output_weight(attention):
    """Output projection [D, H d]."""
    if hasattr(attention, "c_proj"):
        return attention.c_proj.weight.T
    return find(attention, "out_proj", "o_proj", "output.dense", "out_lin").weight


def output_bias(attention):
    return find(
        attention,
        "out_proj.bias",
        "o_proj.bias",
        "output.dense.bias",
        "out_lin.bias",
        "c_proj.bias",
    )


def no_cache(module):
    """Keyword that keeps a decoder from remembering keys and values between calls of its layers."""
    return (
        {"use_cache": False}
        if hasattr(module.base_model, "decoder") or module.config.model_type in FINAL_NORM
        else {}
    )


def run(module, inputs, stack):
    """Forward pass; returns each layer's (args, kwargs, output)."""
    seen, handles = [], []
    for layer in layers_of(module, stack):
        handles.append(
            layer.register_forward_hook(
                lambda m, args, kwargs, out: seen.append(
                    (args, kwargs, out[0] if isinstance(out, tuple) else out)
                ),
                with_kwargs=True,
            )
        )
    options = no_cache(module)
    with torch.no_grad():
        module(**inputs, **options)
    for handle in handles:
        handle.remove()
    return seen


@contextmanager
def zeroed_values(attention, rows, head=None):
    """Set rows of the value vectors (of one head) to zero."""
    columns = slice(None)
    projection = values_module(attention)
    if hasattr(attention, "c_attn"):
        columns = slice(2 * projection.nf // 3, None)
    if head is not None:
        width = output_weight(attention).shape[1] // find(
            attention, "num_heads", "n_heads", "self.num_attention_heads"
        )
        first = (columns.start or 0) + head * width
        columns = slice(first, first + width)
    rows = torch.as_tensor(rows)

    def zero(module, args, output):
        output = output.clone()
        output[:, rows, columns] = 0
        return output

    def textbook(
        query, key, value, *args, attn_mask, q_proj_weight, k_proj_weight, v_proj_weight, **kwargs
    ):
        heads, in_bias, out_weight, out_bias = args[1], args[3], args[8], args[9]
        bias = in_bias.chunk(3)
        q, k, v = (
            F.linear(x, w, b)
            for x, w, b in zip(
                (query, key, value),
                (q_proj_weight, k_proj_weight, v_proj_weight),
                bias,
                strict=True,
            )
        )
        v = v.clone()
        v[rows, :, columns] = 0
        q, k, v = (x[:, 0].view(len(x), heads, -1).permute(1, 0, 2) for x in (q, k, v))
        alpha = torch.softmax(q @ k.transpose(1, 2) / q.shape[-1] ** 0.5 + attn_mask, dim=-1)
        context = (alpha @ v).permute(1, 0, 2).reshape(len(query), 1, -1)
        return F.linear(context, out_weight, out_bias), alpha.mean(0, keepdim=True)

    handle = projection.register_forward_hook(zero)
    original = F.multi_head_attention_forward
    F.multi_head_attention_forward = textbook
    try:
        yield
    finally:
        handle.remove()
        F.multi_head_attention_forward = original


def value_zeroing(
    module, inputs, stack, targets, sources, distance="cosine", pooling="mean", head=None
):
    """Scores [L, targets, sources]; targets and sources are lists of lists of positions."""
    maps = []
    layers = layers_of(module, stack)
    for index, (layer, (args, kwargs, output)) in enumerate(
        zip(layers, run(module, inputs, stack), strict=True)
    ):
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
            pooled = [
                moved[rows].mean() if pooling == "mean" else moved[rows].max() for rows in targets
            ]
            columns.append(torch.stack(pooled))
        maps.append(torch.stack(columns, dim=1))
    return torch.stack(maps).numpy()


def mixing_strength(module, inputs, stack, targets):
    """Strengths [L, targets]: the layer is run again with all values zeroed but the target's own
    (all in cross-attention)."""
    strengths = []
    layers = layers_of(module, stack)
    values = value_vectors(module, inputs, stack) if stack == "cross" else []
    for index, (layer, (args, kwargs, output)) in enumerate(
        zip(layers, run(module, inputs, stack), strict=True)
    ):
        norm = final_norm(module, stack) if index == len(layers) - 1 else lambda x: x
        before = norm(output)[0]
        of_layer = []
        for target in targets:
            others = [j for j in range(len(before)) if j not in target]
            others = list(range(len(values[index]))) if stack == "cross" else others
            with torch.no_grad(), zeroed_values(attention_module(layer, stack), others):
                after = layer(*args, **kwargs)
            after = norm(after[0] if isinstance(after, tuple) else after)[0]
            ratios = [
                ((after[n] - before[n]) ** 2).sum().sqrt() / (before[n] ** 2).sum().sqrt()
                for n in target
            ]
            of_layer.append(sum(ratios) / len(ratios))
        strengths.append(torch.stack(of_layer))
    return torch.stack(strengths).numpy()


def attention_weights(module, inputs, stack):
    """Weights [L, H, T, K] as transformers' eager attention returns them."""
    options, own = no_cache(module), module.config._attn_implementation
    module.config._attn_implementation = "eager"
    try:
        with torch.no_grad():
            out = module(**inputs, **options, output_attentions=True, return_dict=True)
    finally:
        module.config._attn_implementation = own
    name = "cross_attentions" if stack == "cross" else f"{stack}_attentions"
    return torch.stack([a[0] for a in getattr(out, name if name in out else "attentions")])


def value_vectors(module, inputs, stack):
    """Values [L, K, H d] as the projections return them, repeated where heads share them."""
    values = []
    layers = layers_of(module, stack)
    handles = [
        values_module(attention_module(layer, stack)).register_forward_hook(
            lambda m, a, out: values.append(out[0])
        )
        for layer in layers
    ]
    run(module, inputs, stack)
    for handle in handles:
        handle.remove()
    wanted = output_weight(attention_module(layers[0], stack)).shape[1]
    if values[0].shape[-1] == 3 * wanted:
        return [value[:, 2 * wanted :] for value in values]
    shared = wanted // values[0].shape[-1]
    width = getattr(module.config, "head_dim", None)
    return [
        v if shared == 1 else v.unflatten(-1, (-1, width)).repeat_interleave(shared, 1).flatten(1)
        for v in values
    ]


def attended_vectors(module, inputs, stack):
    """Explicit attention-weighted, projected values of each layer, [H, T, K, D]."""
    layers, alphas = layers_of(module, stack), attention_weights(module, inputs, stack)
    for layer, alpha, value in zip(
        layers, alphas, value_vectors(module, inputs, stack), strict=True
    ):
        out = output_weight(attention_module(layer, stack))
        heads, width = alpha.shape[0], value.shape[-1] // alpha.shape[0]
        yield torch.stack(
            [
                alpha[h][:, :, None]
                * (value[:, h * width : (h + 1) * width] @ out[:, h * width : (h + 1) * width].T)[
                    None
                ]
                for h in range(heads)
            ]
        )


def attention_norm(module, inputs, stack, each_head=False):
    """Norms [L, (H,) T, K] from the explicit [H, T, K, D] vectors."""
    maps = [
        vectors.norm(dim=-1) if each_head else vectors.sum(0).norm(dim=-1)
        for vectors in attended_vectors(module, inputs, stack)
    ]
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
