"""Whisper-style decoders whose weights are set by hand, so that it is known what each word comes from.

A state has three parts of 64 numbers: the code of the token that is fed, the code of its position, and the code of the
token to come, which the output embedding reads. The rest is room for distractors: heads with small random weights.
"""

from __future__ import annotations

import functools

import numpy as np
import torch
import transformers

import speechmix
from speechmix.adapters.generation.decoder_text import decoder_prefix
from speechmix.extensions.grounding.windows import DecodedWindow
from speechmix.inputs import bundled

RATE = 16_000
HEADS, LAYERS, HEAD_SIZE = 4, 2, 80
WIDTH = HEADS * HEAD_SIZE
VOCABULARY = 261  # of the bundled tokenizer
POSITIONS = 64
SECONDS = 2.0  # of sound in a window of 3
DISTRACTION = 0.005  # spread of the other heads' output weights


@functools.cache
def bundled_tokenizer():
    return speechmix.load(bundled.models()["tiny-french-whisper"], check=False).tokenizer


def planted(seed: int, *, loop: float = 0.0, period: int = 1, spoken: str = ""):
    """Return a model and the loop head's (layer, head).

    Parameters
    ----------
    loop : float
        How strongly the next token is copied from `period` tokens before it; 0 for not at all.
    period : int
        In tokens.
    spoken : str
        A text that is read off the sound, letter by letter, by one head of cross-attention. The encoder is then not
        planted by weights but replaced by `read_table`.
    """
    random = np.random.default_rng(seed)
    torch.manual_seed(seed)
    tokenizer = bundled_tokenizer()
    config = transformers.WhisperConfig(
        vocab_size=VOCABULARY,
        d_model=WIDTH,
        encoder_layers=1,
        decoder_layers=LAYERS,
        encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS,
        encoder_ffn_dim=8,
        decoder_ffn_dim=8,
        max_source_positions=150,
        max_target_positions=POSITIONS,
        pad_token_id=tokenizer.eos_token_id,
        bos_token_id=tokenizer.eos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        decoder_start_token_id=tokenizer.convert_tokens_to_ids("<|startoftranscript|>"),
        suppress_tokens=None,
        begin_suppress_tokens=None,
        dropout=0.0,
    )
    module = transformers.WhisperForConditionalGeneration(config).eval()
    decoder = module.model.decoder
    codes = torch.nn.functional.normalize(torch.randn(VOCABULARY, 64), dim=-1)
    places = torch.linalg.qr(torch.randn(POSITIONS, 64)).Q  # orthogonal: shifted without error
    token, place, told = (slice(64 * part, 64 * part + 64) for part in range(3))
    with torch.no_grad():
        for layer in decoder.layers:
            for module_ in (layer.fc1, layer.fc2):
                module_.weight.zero_()
                module_.bias.zero_()
            for attention in (layer.self_attn, layer.encoder_attn):
                attention.out_proj.weight.normal_(0, DISTRACTION)
                attention.out_proj.bias.zero_()
            layer.encoder_attn.out_proj.weight.zero_()
        embedding = torch.zeros(VOCABULARY, WIDTH)
        embedding[:, token] = 8 * codes
        decoder.embed_positions.weight.zero_()
        decoder.embed_positions.weight[:, place] = 8 * places
        module.proj_out.weight = torch.nn.Parameter(torch.zeros(VOCABULARY, WIDTH))
        module.proj_out.weight[:, told] = 8 * codes
        module.model.decoder.embed_tokens.weight = torch.nn.Parameter(embedding)
        head = (int(random.integers(LAYERS)), int(random.integers(HEADS)))
        if loop:
            _plant_loop_head(decoder.layers[head[0]].self_attn, head[1], places, loop, period)
        if spoken:
            ids = tokenizer(" " + spoken, add_special_tokens=False).input_ids
            _plant_sound(module, head, places, codes, ids)
            module.generation_config.alignment_heads = [list(head)]
    processor = transformers.WhisperProcessor(
        transformers.WhisperFeatureExtractor(chunk_length=3), tokenizer
    )
    model = speechmix.load(module, processor=processor, check=False)
    return model, head


def _plant_loop_head(attention, head: int, places, strength: float, period: int) -> None:
    """The head looks from position p at p + 1 - period, and copies the token that it finds there."""
    rows = slice(head * HEAD_SIZE, head * HEAD_SIZE + 64)
    for projection in (attention.q_proj, attention.k_proj, attention.v_proj):
        projection.weight[head * HEAD_SIZE : (head + 1) * HEAD_SIZE].zero_()
    for projection in (attention.q_proj, attention.v_proj):
        projection.bias[head * HEAD_SIZE : (head + 1) * HEAD_SIZE].zero_()
    # Maps the code of position p onto that of p + 1 - period.
    shifted = torch.roll(places, period - 1, dims=0)
    attention.q_proj.weight[rows, 64:128] = 12 * (places.T @ shifted).T
    attention.k_proj.weight[rows, 64:128] = 12 * torch.eye(64)
    attention.v_proj.weight[rows, 0:64] = torch.eye(64)
    attention.out_proj.weight[:, head * HEAD_SIZE : (head + 1) * HEAD_SIZE].zero_()
    attention.out_proj.weight[128:192, rows] = strength * torch.eye(64)


def read_table(table: torch.Tensor):
    """Return an encoder's forward pass whose frames say which token is spoken in them, where they are loud.

    Parameters
    ----------
    table : Tensor [S, D]
        States of the frames; silence has none.
    """

    def forward(input_features: torch.Tensor, **options: object):
        level = input_features.mean(dim=1)  # [B, 2 S]
        is_loud = level.view(len(level), -1, 2).mean(dim=-1) > level.min() + 0.1
        return transformers.modeling_outputs.BaseModelOutput(is_loud[..., None] * table)

    return forward


def _plant_sound(module, head, places, codes, ids, n_prefix: int = 4) -> None:
    """A head looks from each position at the frames of the token to come, and reads the token there."""
    n_frames = round(50 * SECONDS)
    table = torch.zeros(module.config.max_source_positions, WIDTH)
    edges = np.linspace(0, n_frames, len(ids) + 1).astype(int)
    for index, (id_, start, stop) in enumerate(zip(ids, edges[:-1], edges[1:], strict=True)):
        table[start:stop, 0:64] = 8 * places[n_prefix - 1 + index]
        table[start:stop, 64:128] = 8 * codes[id_]
    module.model.encoder.forward = read_table(table)
    attention = module.model.decoder.layers[head[0]].encoder_attn
    rows = slice(head[1] * HEAD_SIZE, head[1] * HEAD_SIZE + 64)
    attention.q_proj.weight[rows, 64:128] = 12 * torch.eye(64)
    attention.q_proj.weight[rows, :64] = attention.q_proj.weight[rows, 128:] = 0
    attention.k_proj.weight[rows].zero_()
    attention.k_proj.weight[rows, 0:64] = torch.eye(64)
    attention.v_proj.weight[rows].zero_()
    attention.v_proj.weight[rows, 64:128] = torch.eye(64)
    attention.v_proj.bias.zero_()
    attention.out_proj.weight[128:192, rows] = torch.eye(64)


def window_of(model: speechmix.load, text: str, seconds: float = SECONDS) -> DecodedWindow:
    """Return a window of noise with a text that the model is said to have written."""
    noise = 0.1 * np.random.default_rng(0).standard_normal(round(seconds * RATE))
    clip = speechmix.Clip.from_array(noise.astype(np.float32), RATE, language="fr")
    prefix = decoder_prefix(model, clip)
    ids = model.tokenizer(" " + text, add_special_tokens=False).input_ids
    inputs = model.family.prepare(model, clip, ("encoder",)).inputs
    audio = clip.audio(RATE)
    return DecodedWindow(0.0, audio, RATE, inputs, (*prefix, *ids), len(prefix))
