"""BERT and GPT-2 with their weights set by hand.

In: a `Blueprint`. Out: the unmodified Hugging Face model, and its inputs made of contents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import transformers
from torch import Tensor

from ...adapters.transformers_types import PretrainedModule
from .blueprint import (
    EMPTY_TOKEN,
    N_LAYERS,
    N_TOKENS,
    NO_TOKEN,
    SHARPNESS,
    YES_TOKEN,
    Blueprint,
    token_ids,
    write_attention,
    write_feed_forward,
    write_matrix,
    zero_weights,
)
from .hand_set_weights import CHANNELS, N_CHANNELS, N_HEADS, N_NEURONS, N_POSITIONS, WIDTH


def token_inputs(contents: Mapping[str, Sequence[int]]) -> dict[str, Tensor]:
    """Return the inputs of both models: `input_ids` [1, N]."""
    return {"input_ids": token_ids(next(iter(contents.values())))}


def bert(blueprint: Blueprint) -> PretrainedModule:
    """Masked language model whose answer is read at the target's own position."""
    config = transformers.BertConfig(
        vocab_size=N_TOKENS,
        hidden_size=WIDTH,
        num_hidden_layers=N_LAYERS,
        num_attention_heads=N_HEADS,
        intermediate_size=N_NEURONS,
        max_position_embeddings=2 * N_POSITIONS,
        hidden_act="relu",
        tie_word_embeddings=False,
    )
    module = zero_weights(transformers.BertForMaskedLM(config), blueprint.constant)
    basis, embeddings = blueprint.basis, module.bert.embeddings
    embeddings.word_embeddings.weight.copy_(blueprint.token_states)
    embeddings.position_embeddings.weight[:N_POSITIONS] = blueprint.position_states
    for layer_module, layer in zip(
        module.bert.encoder.layer, blueprint.layers["encoder"], strict=True
    ):
        attention = layer_module.attention.self
        projections = {
            "query": attention.query,
            "key": attention.key,
            "value": attention.value,
            "output": layer_module.attention.output.dense,
        }
        write_attention(layer.attention, basis, **projections)
        write_feed_forward(
            layer.feed_forward, basis, layer_module.intermediate.dense, layer_module.output.dense
        )
    _write_masked_head(module.cls.predictions, blueprint)
    return module


def _write_masked_head(head: PretrainedModule, blueprint: Blueprint) -> None:
    """Neuron 0 holds the answer's positive part, 1 its negative part, 2 the constant that keeps the
    head's norm linear."""
    weights = torch.zeros(N_CHANNELS, WIDTH, dtype=torch.double)
    weights[:, 0], weights[:, 1] = (
        blueprint.readout_logits[:, token] / SHARPNESS for token in (YES_TOKEN, NO_TOKEN)
    )
    weights[CHANNELS["constant"], 2] = 1
    write_matrix(head.transform.dense, blueprint.basis.T @ weights)
    for token, sign in ((YES_TOKEN, 1), (NO_TOKEN, -1)):
        head.decoder.weight[token, 0], head.decoder.weight[token, 1] = (
            sign * SHARPNESS,
            -sign * SHARPNESS,
        )


def gpt2(blueprint: Blueprint) -> PretrainedModule:
    """Causal language model; what it says at the target is its next token."""
    config = transformers.GPT2Config(
        vocab_size=N_TOKENS,
        n_positions=2 * N_POSITIONS,
        n_embd=WIDTH,
        n_layer=N_LAYERS,
        n_head=N_HEADS,
        n_inner=N_NEURONS,
        activation_function="relu",
        tie_word_embeddings=False,
        bos_token_id=EMPTY_TOKEN,
        eos_token_id=EMPTY_TOKEN,
    )
    module = zero_weights(transformers.GPT2LMHeadModel(config), blueprint.constant)
    basis = blueprint.basis
    module.transformer.wte.weight.copy_(blueprint.token_states)
    module.transformer.wpe.weight[:N_POSITIONS] = blueprint.position_states
    for layer_module, layer in zip(module.transformer.h, blueprint.layers["decoder"], strict=True):
        matrices = (layer.attention.query, layer.attention.key, layer.attention.value)
        write_matrix(layer_module.attn.c_attn, basis.T @ torch.cat(matrices, dim=1))
        write_matrix(layer_module.attn.c_proj, layer.attention.output @ basis)
        write_feed_forward(
            layer.feed_forward, basis, layer_module.mlp.c_fc, layer_module.mlp.c_proj
        )
    write_matrix(module.lm_head, basis.T @ blueprint.readout_logits)
    return module
