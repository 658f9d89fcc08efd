"""Masks as encoders use them when they stream: captured attention has the edges that the config
allows, and no others, in every layer."""

from __future__ import annotations

import pytest
import torch

import speechmix
from speechmix.adapters.capture.forward_pass import Capture, use_attention
from tests.models import shared_models
from tests.models.more_families import MORE_FAMILIES, built
from tests.models.traced_models import build_traced_model


def encoder_weights(model, run):
    """Attention weights [H, Q, K] of each encoder layer."""
    found = []
    with (
        model.in_use(),
        torch.no_grad(),
        use_attention(model.module, model.readable_attention),
        Capture([model.stacks["encoder"]], lambda block: found.append(block.attention())),
    ):
        run(model.module)
    return found


def assert_allowed(weights, is_allowed):
    assert len(weights) > 1
    for layer_weights in weights:
        rows, columns = (torch.arange(size) for size in layer_weights.shape[1:])
        expected = is_allowed(rows[:, None], columns)
        torch.testing.assert_close((layer_weights > 0).all(dim=0), expected)
        torch.testing.assert_close((layer_weights > 0).any(dim=0), expected)


def in_chunks(size, left_chunks=0):
    return lambda row, column: (
        (row // size - column // size).ge(0) & (row // size - column // size <= left_chunks)
    )


@pytest.mark.parametrize("name", ["seamless-m4t-v2, in chunks", "qwen2.5-omni", "granite-speech"])
def test_chunks_of_families_with_a_table(name):
    model = shared_models.shared(("more", name), lambda: speechmix.load(built(name)))
    inputs, config = MORE_FAMILIES[name].inputs(150), model.config
    size, left = {
        "seamless-m4t-v2, in chunks": lambda: (
            config.speech_encoder_chunk_size,
            config.speech_encoder_left_chunk_num,
        ),
        "qwen2.5-omni": lambda: (config.audio_config.n_window, 0),
        "granite-speech": lambda: (config.encoder_config.context_size, 0),
    }[name]()
    options = {"use_cache": False} if len(model.stacks) > 1 else {}
    weights = encoder_weights(model, lambda module: module(**inputs, **options))
    assert size < weights[0].shape[-1]
    assert_allowed(weights, in_chunks(size, left))


@pytest.mark.long
def test_windows_of_moonshine_streaming_need_its_mask():
    """Without an attention mask transformers runs the encoder with full attention."""
    model = speechmix.load(build_traced_model("moonshine_streaming"))
    left, right = model.config.encoder_config.sliding_windows[0]
    encoder = model.module.model.encoder
    sound = torch.randn(1, 28_800, generator=torch.Generator().manual_seed(0)).double()
    mask = torch.ones(sound.shape, dtype=torch.long)
    weights = encoder_weights(model, lambda module: encoder(sound, attention_mask=mask))
    assert_allowed(
        weights, lambda row, column: (row - column < left) & (column - row < max(right, 1))
    )
    assert_allowed(
        encoder_weights(model, lambda module: encoder(sound)),
        lambda row, column: torch.ones_like(row + column, dtype=torch.bool),
    )


@pytest.mark.long
def test_chunks_of_nemotron_streaming_follow_its_look_ahead():
    model = speechmix.load(build_traced_model("nemotron_asr_streaming"))
    features = torch.randn(1, 720, 16, generator=torch.Generator().manual_seed(0)).double()
    left = model.config.encoder_config.sliding_window - 1
    for right in (5, 1):
        weights = encoder_weights(
            model, lambda module, right=right: module.encoder(features, num_lookahead_tokens=right)
        )
        assert_allowed(weights, in_chunks(right + 1, left // (right + 1)))
