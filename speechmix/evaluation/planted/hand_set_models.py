"""BERT, GPT-2, wav2vec2 and Whisper with their weights set by hand (long: four classes, each with
its own way in and out).

In: the matrices of every layer between channels (`weights`), and a basis. Out: the unmodified
Hugging Face model, and functions that make its inputs of contents. Each class is configured, never
changed: three layers, four heads, ReLU in the feed-forward, output weights of their own. States
enter as constant + content + position. The front ends pass contents through without distortion:
convolutions as wide as their stride, features that a layer norm leaves as they are, and, where GELU
is built in, an offset of 50 on all dimensions, behind which it is linear and which the next layer
norm takes off.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from .hand_set_weights import (
    CHANNELS,
    N_CHANNELS,
    N_HEADS,
    N_NEURONS,
    N_POSITIONS,
    WIDTH,
    Attention,
    FeedForward,
    norm_gain,
    position_channel,
)

N_LAYERS = 3

# Tokens: the empty one (a CTC model's blank), contents, what is said, and a few more words with
# content.
EMPTY, TOKEN_OF, YES, NO, _N_TOKENS = 0, {1: 1, -1: 2}, 3, 4, 8
_CONTENT_OF = {1: 1, 2: -1, 5: 1, 6: -1, 7: 1}
# What is said where nothing arrives: yes, with this part of the margin that an answer makes.
_BY_DEFAULT, _SHARPNESS = 0.25, 4.0

_FAR = 50.0  # GELU is the identity there, to the last digit


@dataclass(frozen=True)
class Layer:
    """Matrices of one layer between channels; `cross` in a decoder behind an encoder."""

    attention: Attention
    feed_forward: FeedForward
    cross: Attention | None = None


@dataclass(frozen=True)
class Blueprint:
    """What a model is made of.

    Parameters
    ----------
    layers : mapping of str to sequence of Layer
        By stack; those of "decoder" hold cross-attention too.
    basis : Tensor [C, D]
    constant : float
    shift : int
        Of the positional convolution.
    """

    layers: Mapping[str, Sequence[Layer]]
    basis: Tensor
    constant: float
    shift: int = 0

    @property
    def readout(self) -> Tensor:
        """Logits [C, V] of the tokens: the answer's sign, and a little for "yes"."""
        logits = torch.zeros(N_CHANNELS, _N_TOKENS, dtype=torch.double)
        for token, sign in ((YES, 1), (NO, -1)):
            logits[CHANNELS["answer"], token] = sign * _SHARPNESS
            logits[CHANNELS["constant"], token] = sign * _SHARPNESS * _BY_DEFAULT / self.constant
        return logits

    @property
    def positions(self) -> Tensor:
        """What a position adds to a state, [N, D]: the constant, and the position's own channel."""
        states = self.constant * self.basis[CHANNELS["constant"]].repeat(N_POSITIONS, 1)
        return states + self.basis[[position_channel(p) for p in range(N_POSITIONS)]]

    @property
    def tokens(self) -> Tensor:
        """What a token adds to a state, [V, D]: its content."""
        states = torch.zeros(_N_TOKENS, WIDTH, dtype=torch.double)
        for token, content in _CONTENT_OF.items():
            states[token] = content * self.basis[CHANNELS["content"]]
        return states


# ---------------------------------------------------------------- parts that the four share


def _blank(module: Any, constant: float) -> Any:
    """The model in float64 with all weights at zero and layer norms that let states through."""
    module = module.double().eval().requires_grad_(False)
    for part in module.modules():
        for weights in part.parameters(recurse=False):
            weights.zero_()
        if isinstance(part, nn.LayerNorm):
            part.weight.fill_(norm_gain(constant))
    return module


def _write(part: Any, matrix: Tensor, bias: Tensor | None = None) -> None:
    """Write a matrix [in, out] into a linear layer (whose weight is [out, in]) or a Conv1D of GPT-2
    ([in, out])."""
    part.weight.copy_(matrix.T if isinstance(part, nn.Linear) else matrix)
    if bias is not None:
        part.bias.copy_(bias)


def _write_attention(attention: Attention, basis: Tensor, **parts: Any) -> None:
    for name in ("query", "key", "value"):
        _write(parts[name], basis.T @ getattr(attention, name))
    _write(parts["output"], attention.output @ basis)


def _write_feed_forward(feed_forward: FeedForward, basis: Tensor, up: Any, down: Any) -> None:
    _write(up, basis.T @ feed_forward.up, feed_forward.bias)
    _write(down, feed_forward.down @ basis)


def _ids(contents: Sequence[int]) -> Tensor:
    """Token ids [1, N]: the empty one first."""
    return torch.tensor([[EMPTY, *(TOKEN_OF[content] for content in contents[1:])]])


# ---------------------------------------------------------------- BERT: post-norm encoder


def bert(blueprint: Blueprint) -> Any:
    """Masked language model whose answer is read at the target's own position."""
    config = transformers.BertConfig(
        vocab_size=_N_TOKENS,
        hidden_size=WIDTH,
        num_hidden_layers=N_LAYERS,
        num_attention_heads=N_HEADS,
        intermediate_size=N_NEURONS,
        max_position_embeddings=2 * N_POSITIONS,
        hidden_act="relu",
        tie_word_embeddings=False,
    )
    module = _blank(transformers.BertForMaskedLM(config), blueprint.constant)
    basis, embeddings = blueprint.basis, module.bert.embeddings
    embeddings.word_embeddings.weight.copy_(blueprint.tokens)
    embeddings.position_embeddings.weight[:N_POSITIONS] = blueprint.positions
    for part, layer in zip(module.bert.encoder.layer, blueprint.layers["encoder"], strict=True):
        own = part.attention.self
        parts = {
            "query": own.query,
            "key": own.key,
            "value": own.value,
            "output": part.attention.output.dense,
        }
        _write_attention(layer.attention, basis, **parts)
        _write_feed_forward(layer.feed_forward, basis, part.intermediate.dense, part.output.dense)
    _write_masked_head(module.cls.predictions, blueprint)
    return module


def _write_masked_head(head: Any, blueprint: Blueprint) -> None:
    """Neuron 0 holds the answer's positive part, 1 its negative part, 2 the constant that keeps the
    head's norm linear."""
    weights = torch.zeros(N_CHANNELS, WIDTH, dtype=torch.double)
    weights[:, 0], weights[:, 1] = (blueprint.readout[:, token] / _SHARPNESS for token in (YES, NO))
    weights[CHANNELS["constant"], 2] = 1
    _write(head.transform.dense, blueprint.basis.T @ weights)
    for token, sign in ((YES, 1), (NO, -1)):
        head.decoder.weight[token, 0], head.decoder.weight[token, 1] = (
            sign * _SHARPNESS,
            -sign * _SHARPNESS,
        )


# ---------------------------------------------------------------- GPT-2: pre-norm, causal


def gpt2(blueprint: Blueprint) -> Any:
    """Causal language model; what it says at the target is its next token."""
    config = transformers.GPT2Config(
        vocab_size=_N_TOKENS,
        n_positions=2 * N_POSITIONS,
        n_embd=WIDTH,
        n_layer=N_LAYERS,
        n_head=N_HEADS,
        n_inner=N_NEURONS,
        activation_function="relu",
        tie_word_embeddings=False,
        bos_token_id=EMPTY,
        eos_token_id=EMPTY,
    )
    module = _blank(transformers.GPT2LMHeadModel(config), blueprint.constant)
    basis = blueprint.basis
    module.transformer.wte.weight.copy_(blueprint.tokens)
    module.transformer.wpe.weight[:N_POSITIONS] = blueprint.positions
    for part, layer in zip(module.transformer.h, blueprint.layers["decoder"], strict=True):
        matrices = (layer.attention.query, layer.attention.key, layer.attention.value)
        _write(part.attn.c_attn, basis.T @ torch.cat(matrices, dim=1))
        _write(part.attn.c_proj, layer.attention.output @ basis)
        _write_feed_forward(layer.feed_forward, basis, part.mlp.c_fc, part.mlp.c_proj)
    _write(module.lm_head, basis.T @ blueprint.readout)
    return module


# ---------------------------------------------------------------- wav2vec2: pre-norm encoder over a
# waveform

# The samples of a frame spell its features: which content (1, -1, none), which position.
_CONTENTS = (1, -1, 0)
_N_FEATURES = len(_CONTENTS) + N_POSITIONS
_OFFSET = 2.0  # behind it the positional convolution's ReLU is the identity


def wav2vec2(blueprint: Blueprint) -> Any:
    """CTC model; at the target's frame it says yes or no. Positions are part of the sound."""
    config = transformers.Wav2Vec2Config(
        vocab_size=_N_TOKENS,
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
        pad_token_id=EMPTY,
    )
    module = _blank(transformers.Wav2Vec2ForCTC(config), blueprint.constant)
    basis, base = blueprint.basis, module.wav2vec2
    _write_front_end(base, blueprint)
    _write_positional_convolution(base.encoder.pos_conv_embed.conv, blueprint)
    for part, layer in zip(base.encoder.layers, blueprint.layers["encoder"], strict=True):
        own, feed_forward = part.attention, part.feed_forward
        parts = {
            "query": own.q_proj,
            "key": own.k_proj,
            "value": own.v_proj,
            "output": own.out_proj,
        }
        _write_attention(layer.attention, basis, **parts)
        _write_feed_forward(
            layer.feed_forward, basis, feed_forward.intermediate_dense, feed_forward.output_dense
        )
    _write(module.lm_head, basis.T @ blueprint.readout)
    return module


def _write_front_end(base: Any, blueprint: Blueprint) -> None:
    """The convolution hands the samples on as features; two of them are 1, so both layer norms know
    mean and deviation."""
    front = base.feature_extractor.conv_layers[0]
    front.conv.weight.copy_(torch.eye(_N_FEATURES)[:, None])
    mean = 2 / _N_FEATURES
    for norm in (front.layer_norm, base.feature_projection.layer_norm):
        norm.weight.fill_((mean - mean**2 + norm.eps) ** 0.5)
        norm.bias.fill_(mean)
    contents = torch.stack(
        [content * blueprint.basis[CHANNELS["content"]] for content in _CONTENTS]
    )
    _write(base.feature_projection.projection, torch.cat([contents, blueprint.positions]))


def _write_positional_convolution(conv: Any, blueprint: Blueprint) -> None:
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
        conv.bias.fill_(_OFFSET)


# ---------------------------------------------------------------- Whisper: encoder, decoder,
# cross-attention

_LOUD = 10.0  # GELU is the identity there too


def whisper(blueprint: Blueprint) -> Any:
    """Sequence-to-sequence model; what its decoder says at the target is its next token."""
    config = transformers.WhisperConfig(
        vocab_size=_N_TOKENS,
        d_model=WIDTH,
        encoder_layers=N_LAYERS,
        decoder_layers=N_LAYERS,
        encoder_attention_heads=N_HEADS,
        decoder_attention_heads=N_HEADS,
        encoder_ffn_dim=N_NEURONS,
        decoder_ffn_dim=N_NEURONS,
        num_mel_bins=len(_CONTENTS),
        max_source_positions=N_POSITIONS,
        max_target_positions=2 * N_POSITIONS,
        activation_function="relu",
        tie_word_embeddings=False,
        pad_token_id=EMPTY,
        bos_token_id=EMPTY,
        eos_token_id=EMPTY,
        decoder_start_token_id=EMPTY,
    )
    module = _blank(transformers.WhisperForConditionalGeneration(config), blueprint.constant)
    basis, encoder, decoder = blueprint.basis, module.model.encoder, module.model.decoder
    _write_ears(encoder, blueprint)
    decoder.embed_tokens.weight.copy_(blueprint.tokens)
    decoder.embed_positions.weight[:N_POSITIONS] = blueprint.positions
    for name, holder in (("encoder", encoder), ("decoder", decoder)):
        for part, layer in zip(holder.layers, blueprint.layers[name], strict=True):
            for attention, own in (
                (layer.attention, part.self_attn),
                (layer.cross, getattr(part, "encoder_attn", None)),
            ):
                if attention is not None and own is not None:
                    parts = {
                        "query": own.q_proj,
                        "key": own.k_proj,
                        "value": own.v_proj,
                        "output": own.out_proj,
                    }
                    _write_attention(attention, basis, **parts)
            _write_feed_forward(layer.feed_forward, basis, part.fc1, part.fc2)
    _write(module.proj_out, basis.T @ blueprint.readout)
    return module


def _write_ears(encoder: Any, blueprint: Blueprint) -> None:
    """Mel bin i is dimension i behind the first convolution; behind the second stands the content,
    far from GELU's bend."""
    middle = encoder.conv1.weight.shape[-1] // 2
    for index, content in enumerate(_CONTENTS):
        encoder.conv1.weight[index, index, middle] = 1
        encoder.conv2.weight[:, index, middle] = (
            content / _LOUD * blueprint.basis[CHANNELS["content"]]
        )
    encoder.conv2.bias.fill_(_FAR)
    encoder.embed_positions.weight.copy_(blueprint.positions - _FAR)


# ---------------------------------------------------------------- by name


@dataclass(frozen=True)
class PlantedFamily:
    """A class of models that cases are planted in: how it is built, which stacks it has, which take
    in contents."""

    build: Callable[[Blueprint], nn.Module]
    stacks: tuple[str, ...]
    inputs: tuple[str, ...]


FAMILIES = {
    "bert": PlantedFamily(bert, ("encoder",), ("encoder",)),
    "gpt2": PlantedFamily(gpt2, ("decoder",), ("decoder",)),
    "wav2vec2": PlantedFamily(wav2vec2, ("encoder",), ("encoder",)),
    "whisper": PlantedFamily(whisper, ("encoder", "decoder", "cross"), ("encoder", "decoder")),
}


def inputs_of(family: str, contents: Mapping[str, Sequence[int]]) -> dict[str, Tensor]:
    """Prepared inputs of a family's model.

    Parameters
    ----------
    contents : mapping of str to sequence of int
        For each stack that takes in contents: +1 or -1 at every position, 0 at the first.

    Returns
    -------
    dict of str to Tensor
        `input_ids` [1, N]; `input_values` [1, samples]; or `input_features` [1, 3, 2 N] and
        `decoder_input_ids` [1, N].
    """
    if family in ("bert", "gpt2"):
        return {"input_ids": _ids(next(iter(contents.values())))}
    spelled = torch.eye(len(_CONTENTS), dtype=torch.double)[
        [_CONTENTS.index(c) for c in contents["encoder"]]
    ]  # [N, 3]
    if family == "wav2vec2":
        positions = torch.eye(N_POSITIONS, dtype=torch.double)
        return {"input_values": torch.cat([spelled, positions], dim=1).reshape(1, -1)}
    features = _LOUD * spelled.T.repeat_interleave(
        2, dim=1
    )  # two mel frames a position, the first of which is heard
    return {"input_features": features[None], "decoder_input_ids": _ids(contents["decoder"])}
