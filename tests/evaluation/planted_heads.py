"""Tiny Whispers of random weights with one hand-set cross-attention head that follows the words, and
clips whose words are where it looks.

Token i of a text is "spoken" for `frames_per_token` frames from frame i * frames_per_token on, as noise;
a space is silent. The head's query is a decoder position, its key an encoder position, both written as
cosines and sines of the time; so it looks at the frames at which the token is spoken that its row
predicts. Everything else is drawn: weights, texts, the layer and the number of the head.
"""

from __future__ import annotations

import copy
import functools

import numpy as np
import torch
import transformers

import speechmix
from speechmix.inputs import bundled

PREFIX_TOKENS = 4  # of the bundled tokenizer: start, language, task, no timestamps
_RATE, _SECONDS_PER_FRAME = 16_000, 0.02
_WAVELENGTHS = 2 * np.pi / np.array([256, 96, 48, 24])  # radians per frame
_AMPLITUDE = 12.0  # of positions in the states, above what drawn layers add
_GAIN = 2.0  # of query and of key


@functools.cache
def _bundled() -> tuple[transformers.WhisperConfig, object]:
    folder = bundled.models()["tiny-french-whisper"]
    return (
        transformers.WhisperConfig.from_pretrained(folder, init_std=0.1, dtype="float32"),
        transformers.WhisperProcessor.from_pretrained(folder),
        transformers.GenerationConfig.from_pretrained(folder),
    )


def planted_whisper(
    seed: int, frames_per_token: int = 6
) -> tuple[speechmix.Model, tuple[int, int]]:
    """A model and (layer, head) of the head that was set."""
    config, processor, generation_config = _bundled()
    torch.manual_seed(seed)
    module = transformers.WhisperForConditionalGeneration(copy.deepcopy(config)).eval()
    module.generation_config = copy.deepcopy(generation_config)
    rng = np.random.default_rng(seed)
    layer, head = int(rng.integers(config.decoder_layers)), int(rng.integers(4))
    encoder, decoder = module.model.encoder, module.model.decoder
    n = 2 * len(_WAVELENGTHS)
    rows = np.arange(config.max_target_positions) - (PREFIX_TOKENS - 1)
    with torch.no_grad():
        encoder.embed_positions.weight[:, :n] = _waves(np.arange(config.max_source_positions))
        decoder.embed_positions.weight[:, :n] = _waves((rows + 0.5) * frames_per_token - 0.5)
        decoder.embed_tokens.weight[:, :n] = 0
        attention = decoder.layers[layer].encoder_attn
        size = config.d_model // 4
        for projection in (attention.q_proj, attention.k_proj):
            projection.weight[head * size : (head + 1) * size] = 0
            projection.weight[head * size : head * size + n, :n] = _GAIN * torch.eye(n)
        attention.q_proj.bias[head * size : (head + 1) * size] = 0
    return speechmix.load(module, processor=processor, device="cpu"), (layer, head)


def _waves(frames: np.ndarray) -> torch.Tensor:
    angles = frames[:, None] * _WAVELENGTHS
    return torch.tensor(_AMPLITUDE * np.concatenate([np.cos(angles), np.sin(angles)], axis=1))


def spoken_clips(seed: int, count: int, frames_per_token: int = 6) -> list[speechmix.Clip]:
    """Clips of three drawn words each, with the times at which each letter is "spoken"."""
    rng = np.random.default_rng((seed, 1))
    return [_speak(rng, f"clip-{i}", frames_per_token) for i in range(count)]


def _speak(rng: np.random.Generator, name: str, frames_per_token: int) -> speechmix.Clip:
    samples = round(frames_per_token * _SECONDS_PER_FRAME * _RATE)
    texts = ["".join(rng.choice(list("abcdeilmnorstu"), rng.integers(2, 6))) for _ in range(3)]
    sound, words = [], []
    for text in texts:
        sound.append(np.zeros(samples))  # the space before a word
        start = sum(map(len, sound)) / _RATE
        sound.append(0.1 * rng.standard_normal(samples * len(text)))
        words.append((text, start, start + len(sound[-1]) / _RATE))
    audio = np.concatenate(sound).astype(np.float32) + 1e-4 * rng.standard_normal(
        sum(map(len, sound))
    ).astype(np.float32)
    return speechmix.Clip.from_array(
        audio, _RATE, name=name, text=" ".join(texts), words=words, language="fr"
    )
