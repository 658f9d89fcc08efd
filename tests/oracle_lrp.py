"""An independent oracle of relevance propagation: messages R_in = z_ij / z_j R_j, written out layer
by layer, no autograd.

Rules as in AttnLRP (Achtibat et al. 2024) with epsilon = 0: each is a share of what it passes on.
Layers of GPT-2, BERT and Whisper are written out by their own projections. Shares no code with
speechmix.
"""

from __future__ import annotations

import torch


def projection_weight(module):
    return module.weight.T if type(module).__name__ == "Conv1D" else module.weight


def linear(module, x, relevance):
    """R_i = sum_j x_i w_ji / z_j R_j, with the bias in z."""
    return x * ((relevance / module(x)) @ projection_weight(module))


def norm(module, x, relevance):
    """Of gain * c / s + bias the first term's share, with s a constant; then the centring, a linear
    map."""
    centred = x - x.mean(-1, keepdim=True)
    deviation = (centred.square().mean(-1, keepdim=True) + module.eps).sqrt()
    of_centred = relevance * (module.weight * centred / deviation) / module(x)
    width = x.shape[-1]
    centring = torch.eye(width, dtype=x.dtype) - 1 / width
    return x * ((of_centred / centred) @ centring)


def added(a, b, relevance):
    """Shares of a sum."""
    return a / (a + b) * relevance, b / (a + b) * relevance


def heads_of(x, count):
    return x.unflatten(-1, (count, -1)).transpose(0, 1)


def attention(query, key, value, relevance, n_heads, *, causal):
    """Context's relevance [Q, H d] to queries, keys and values [T, H d]; half of a product to each
    factor."""
    q, k, v, r = (heads_of(x, n_heads) for x in (query, key, value, relevance))
    scores = q @ k.transpose(1, 2) * q.shape[-1] ** -0.5
    masked = (
        scores.masked_fill(torch.ones(scores.shape[1:]).triu(1).bool(), -torch.inf)
        if causal
        else scores
    )
    weights = masked.softmax(-1)
    context = weights @ v
    to_weights, to_values, to_queries, to_keys = (torch.zeros_like(x) for x in (weights, v, q, k))
    for head in range(n_heads):
        messages = (
            weights[head][:, :, None] * v[head][None] * (r[head] / context[head])[:, None]
        )  # [Q, K, d]
        to_weights[head], to_values[head] = messages.sum(2) / 2, messages.sum(0) / 2
        to_scores = scores[head] * (
            to_weights[head] - weights[head] * to_weights[head].sum(-1, keepdim=True)
        )
        messages = (
            q[head][:, None]
            * k[head][None]
            * q.shape[-1] ** -0.5
            * (to_scores / scores[head])[..., None]
        )
        to_queries[head], to_keys[head] = messages.sum(1) / 2, messages.sum(0) / 2
    return tuple(x.transpose(0, 1).flatten(1) for x in (to_queries, to_keys, to_values))


def attention_context(query, key, value, n_heads, *, causal):
    q, k, v = (heads_of(x, n_heads) for x in (query, key, value))
    scores = q @ k.transpose(1, 2) * q.shape[-1] ** -0.5
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[1:]).triu(1).bool(), -torch.inf)
    return (scores.softmax(-1) @ v).transpose(0, 1).flatten(1)


def feed_forward(up, act, down, x, relevance):
    inner = up(x)
    return linear(up, x, linear(down, act(inner), relevance))


def projected(parts, x, memory, relevance, n_heads, *, causal):
    """Attention with projections (query, key, value, output): relevance of what it reads, [Q, D]
    and [K, D]."""
    query, key, value, output = parts
    q, k, v = query(x), key(memory), value(memory)
    context = attention_context(q, k, v, n_heads, causal=causal)
    of_context = linear(output, context, relevance)
    to_q, to_k, to_v = attention(q, k, v, of_context, n_heads, causal=causal)
    return (
        linear(query, x, to_q),
        linear(key, memory, to_k) + linear(value, memory, to_v),
        output(context),
    )


def gpt2_layer(layer, x, relevance, n_heads):
    """Relevance of what enters a layer of GPT-2, of that of what leaves it."""
    read = layer.ln_1(x)
    q, k, v = layer.attn.c_attn(read).chunk(3, -1)
    context = attention_context(q, k, v, n_heads, causal=True)
    branch = layer.attn.c_proj(context)
    middle = x + branch
    seen = layer.ln_2(middle)
    mlp = layer.mlp
    out = mlp.c_proj(mlp.act(mlp.c_fc(seen)))
    of_middle, of_mlp = added(middle, out, relevance)
    of_middle = of_middle + norm(
        layer.ln_2, middle, feed_forward(mlp.c_fc, mlp.act, mlp.c_proj, seen, of_mlp)
    )
    of_x, of_branch = added(x, branch, of_middle)
    of_context = linear(layer.attn.c_proj, context, of_branch)
    of_qkv = torch.cat(attention(q, k, v, of_context, n_heads, causal=True), -1)
    return of_x + norm(layer.ln_1, x, linear(layer.attn.c_attn, read, of_qkv))


def bert_layer(layer, x, relevance, n_heads):
    own, behind, up, down = (
        layer.attention.self,
        layer.attention.output,
        layer.intermediate,
        layer.output,
    )
    parts = (own.query, own.key, own.value, behind.dense)
    context = attention_context(own.query(x), own.key(x), own.value(x), n_heads, causal=False)
    branch = behind.dense(context)
    middle = behind.LayerNorm(branch + x)
    out = down.dense(up.intermediate_act_fn(up.dense(middle)))
    of_out, of_middle = added(out, middle, norm(down.LayerNorm, out + middle, relevance))
    of_middle = of_middle + feed_forward(
        up.dense, up.intermediate_act_fn, down.dense, middle, of_out
    )
    of_branch, of_x = added(branch, x, norm(behind.LayerNorm, branch + x, of_middle))
    of_queries, of_rest, _ = projected(parts, x, x, of_branch, n_heads, causal=False)
    return of_x + of_queries + of_rest


def whisper_layer(layer, x, relevance, n_heads, memory=None):
    """Relevance of what enters a layer of Whisper, and of the encoder's output that it reads."""

    def parts(block):
        return block.q_proj, block.k_proj, block.v_proj, block.out_proj

    causal = memory is not None
    steps, state = [], x
    blocks = [(layer.self_attn, layer.self_attn_layer_norm, None)]
    blocks += [(layer.encoder_attn, layer.encoder_attn_layer_norm, memory)] if causal else []
    for block, before, source in blocks:
        read = before(state)
        other = read if source is None else source
        q, k, v = block.q_proj(read), block.k_proj(other), block.v_proj(other)
        branch = block.out_proj(
            attention_context(q, k, v, n_heads, causal=causal and source is None)
        )
        steps.append((block, before, source, state, read, branch))
        state = state + branch
    seen = layer.final_layer_norm(state)
    out = layer.fc2(layer.activation_fn(layer.fc1(seen)))
    of_state, of_out = added(state, out, relevance)
    inner = feed_forward(layer.fc1, layer.activation_fn, layer.fc2, seen, of_out)
    of_state = of_state + norm(layer.final_layer_norm, state, inner)
    of_memory = None
    for block, before, source, entered, read, branch in reversed(steps):
        of_entered, of_branch = added(entered, branch, of_state)
        other = read if source is None else source
        options = {"causal": causal and source is None}
        of_queries, of_rest, _ = projected(parts(block), read, other, of_branch, n_heads, **options)
        if source is None:
            of_queries = of_queries + of_rest
        else:
            of_memory = of_rest
        of_state = of_entered + norm(before, entered, of_queries)
    return of_state, of_memory


def at(position, like):
    unit = torch.zeros_like(like)
    unit[position] = 1
    return unit
