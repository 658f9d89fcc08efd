"""The classes of models whose weights can be set by hand, by the name of their family.

wav2vec2 and Whisper with their weights set by hand.

In: a `Blueprint`. Out: the unmodified Hugging Face model, and its inputs made of contents. The
front ends pass contents through without distortion: convolutions as wide as their stride, features
that a layer norm leaves as they are, and, where GELU is built in, an offset of 50 on all
dimensions, behind which it is linear and which the next layer norm takes off.

BERT and GPT-2 with their weights set by hand.

In: a `Blueprint`. Out: the unmodified Hugging Face model, and its inputs made of contents.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
import transformers
from torch import Tensor, nn

from ...adapters.transformers_types import PretrainedModule
from .hand_set_weights import (
    CHANNELS,
    EMPTY_TOKEN,
    N_CHANNELS,
    N_HEADS,
    N_LAYERS,
    N_NEURONS,
    N_POSITIONS,
    N_TOKENS,
    NO_TOKEN,
    SHARPNESS,
    WIDTH,
    YES_TOKEN,
    Blueprint,
    token_ids,
    write_attention,
    write_feed_forward,
    write_matrix,
    zero_weights,
)

_GELU_OFFSET = 50.0  # GELU is the identity there, to the last digit
# The samples of a frame spell its features: which content (1, -1, none), which position.
_CONTENT_VALUES = (1, -1, 0)
_N_FEATURES = len(_CONTENT_VALUES) + N_POSITIONS
_RELU_OFFSET = 2.0  # behind it the positional convolution's ReLU is the identity


def wav2vec2(blueprint: Blueprint) -> PretrainedModule:
    """CTC model; at the target's frame it says yes or no. Positions are part of the sound."""
    config = transformers.Wav2Vec2Config(
        vocab_size=N_TOKENS,
        hidden_size=WIDTH,
        num_hidden_layers=N_LAYERS,
        num_attention_heads=N_HEADS,
        intermediate_size=N_NEURONS,
        hidden_act="relu",
        feat_extract_activation="relu",
        feat_extract_norm="layer",
        do_stable_layer_norm=True,
        conv_dim=(_N_FEATURES,),
        conv_kernel=(_N_FEATURES,),
        conv_stride=(_N_FEATURES,),
        num_conv_pos_embeddings=2 * N_POSITIONS - 1,
        num_conv_pos_embedding_groups=1,
        pad_token_id=EMPTY_TOKEN,
    )
    module = zero_weights(transformers.Wav2Vec2ForCTC(config), blueprint.constant)
    basis, base = blueprint.basis, module.wav2vec2
    _write_front_end(base, blueprint)
    _write_positional_convolution(base.encoder.pos_conv_embed.conv, blueprint)
    for layer_module, layer in zip(base.encoder.layers, blueprint.layers["encoder"], strict=True):
        attention, feed_forward = layer_module.attention, layer_module.feed_forward
        projections = {
            "query": attention.q_proj,
            "key": attention.k_proj,
            "value": attention.v_proj,
            "output": attention.out_proj,
        }
        write_attention(layer.attention, basis, **projections)
        write_feed_forward(
            layer.feed_forward, basis, feed_forward.intermediate_dense, feed_forward.output_dense
        )
    write_matrix(module.lm_head, basis.T @ blueprint.readout_logits)
    return module


def _write_front_end(base: PretrainedModule, blueprint: Blueprint) -> None:
    """The convolution hands the samples on as features; two of them are 1, so both layer norms know
    mean and deviation."""
    first_layer = base.feature_extractor.conv_layers[0]
    first_layer.conv.weight.copy_(torch.eye(_N_FEATURES)[:, None])
    mean = 2 / _N_FEATURES
    for norm in (first_layer.layer_norm, base.feature_projection.layer_norm):
        norm.weight.fill_((mean - mean**2 + norm.eps) ** 0.5)
        norm.bias.fill_(mean)
    contents = torch.stack(
        [content * blueprint.basis[CHANNELS["content"]] for content in _CONTENT_VALUES]
    )
    write_matrix(
        base.feature_projection.projection, torch.cat([contents, blueprint.position_states])
    )


def _write_positional_convolution(conv: PretrainedModule, blueprint: Blueprint) -> None:
    """Weights [D, D, taps] are stored as directions and lengths, each tap of a length of its
    own."""
    lengths, directions = (
        conv.parametrizations.weight.original0,
        conv.parametrizations.weight.original1,
    )
    lengths.zero_()
    directions.fill_(1)
    if blueprint.shift:
        tap = N_POSITIONS - 1 - blueprint.shift
        directions[..., tap] = torch.outer(
            *(blueprint.basis[CHANNELS[name]] for name in ("answer", "content"))
        )
        lengths[..., tap] = 1
        conv.bias.fill_(_RELU_OFFSET)


_MEL_SCALE = 10.0  # GELU is the identity there too


def whisper(blueprint: Blueprint) -> PretrainedModule:
    """Sequence-to-sequence model; what its decoder says at the target is its next token."""
    config = transformers.WhisperConfig(
        vocab_size=N_TOKENS,
        d_model=WIDTH,
        encoder_layers=N_LAYERS,
        decoder_layers=N_LAYERS,
        encoder_attention_heads=N_HEADS,
        decoder_attention_heads=N_HEADS,
        encoder_ffn_dim=N_NEURONS,
        decoder_ffn_dim=N_NEURONS,
        num_mel_bins=len(_CONTENT_VALUES),
        max_source_positions=N_POSITIONS,
        max_target_positions=2 * N_POSITIONS,
        activation_function="relu",
        tie_word_embeddings=False,
        pad_token_id=EMPTY_TOKEN,
        bos_token_id=EMPTY_TOKEN,
        eos_token_id=EMPTY_TOKEN,
        decoder_start_token_id=EMPTY_TOKEN,
    )
    module = zero_weights(transformers.WhisperForConditionalGeneration(config), blueprint.constant)
    basis, encoder, decoder = blueprint.basis, module.model.encoder, module.model.decoder
    _write_convolutions(encoder, blueprint)
    decoder.embed_tokens.weight.copy_(blueprint.token_states)
    decoder.embed_positions.weight[:N_POSITIONS] = blueprint.position_states
    for name, stack_module in (("encoder", encoder), ("decoder", decoder)):
        for layer_module, layer in zip(stack_module.layers, blueprint.layers[name], strict=True):
            for attention, attention_module in (
                (layer.attention, layer_module.self_attn),
                (layer.cross, getattr(layer_module, "encoder_attn", None)),
            ):
                if attention is not None and attention_module is not None:
                    projections = {
                        "query": attention_module.q_proj,
                        "key": attention_module.k_proj,
                        "value": attention_module.v_proj,
                        "output": attention_module.out_proj,
                    }
                    write_attention(attention, basis, **projections)
            write_feed_forward(layer.feed_forward, basis, layer_module.fc1, layer_module.fc2)
    write_matrix(module.proj_out, basis.T @ blueprint.readout_logits)
    return module


def _write_convolutions(encoder: PretrainedModule, blueprint: Blueprint) -> None:
    """Mel bin i is dimension i behind the first convolution; behind the second stands the content,
    far from GELU's bend."""
    middle_tap = encoder.conv1.weight.shape[-1] // 2
    for index, content in enumerate(_CONTENT_VALUES):
        encoder.conv1.weight[index, index, middle_tap] = 1
        encoder.conv2.weight[:, index, middle_tap] = (
            content / _MEL_SCALE * blueprint.basis[CHANNELS["content"]]
        )
    encoder.conv2.bias.fill_(_GELU_OFFSET)
    encoder.embed_positions.weight.copy_(blueprint.position_states - _GELU_OFFSET)


def _one_hot_contents(contents: Mapping[str, Sequence[int]]) -> Tensor:
    """The encoder's contents, one of three features at each position, [N, 3]."""
    rows = [_CONTENT_VALUES.index(content) for content in contents["encoder"]]
    return torch.eye(len(_CONTENT_VALUES), dtype=torch.double)[rows]


def waveform_inputs(contents: Mapping[str, Sequence[int]]) -> dict[str, Tensor]:
    """Return the inputs of wav2vec2: `input_values` [1, samples]."""
    positions = torch.eye(N_POSITIONS, dtype=torch.double)
    return {
        "input_values": torch.cat([_one_hot_contents(contents), positions], dim=1).reshape(1, -1)
    }


def spectrogram_inputs(contents: Mapping[str, Sequence[int]]) -> dict[str, Tensor]:
    """Return the inputs of Whisper: `input_features` [1, 3, 2 N], `decoder_input_ids` [1, N]."""
    # Two mel frames for a position; the convolution reads the first.
    features = _MEL_SCALE * _one_hot_contents(contents).T.repeat_interleave(2, dim=1)
    return {"input_features": features[None], "decoder_input_ids": token_ids(contents["decoder"])}


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


@dataclass(frozen=True)
class PlantedFamily:
    """A class of models that cases are planted in.

    Parameters
    ----------
    build : callable
        Makes the model of a `Blueprint`.
    prepare : callable
        Makes prepared inputs of contents: for each stack in `inputs`, +1 or -1 at every position,
        0 at the first.
    stacks, inputs : tuple of str
        Stacks of the model, and those that take in contents.
    """

    build: Callable[[Blueprint], nn.Module]
    prepare: Callable[[Mapping[str, Sequence[int]]], dict[str, Tensor]]
    stacks: tuple[str, ...]
    inputs: tuple[str, ...]


FAMILIES = {
    "bert": PlantedFamily(bert, token_inputs, ("encoder",), ("encoder",)),
    "gpt2": PlantedFamily(gpt2, token_inputs, ("decoder",), ("decoder",)),
    "wav2vec2": PlantedFamily(wav2vec2, waveform_inputs, ("encoder",), ("encoder",)),
    "whisper": PlantedFamily(
        whisper, spectrogram_inputs, ("encoder", "decoder", "cross"), ("encoder", "decoder")
    ),
}
