"""Emissions of a transducer (RNN-T, TDT): which token at which frame, decoded or aligned with a text.

With h_t the encoder's state of frame t, g_u the prediction network's state behind u tokens, and f
the joint network, the logits of the next token are z(t, u) = f(h_t, g_u). A blank goes on to the
next frame, any other token to g_(u + 1) (RNN-T, Graves 2012). A TDT also predicts how many frames
each step takes (Xu et al. 2023).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...errors import InputError
from ..transformers_types import PretrainedModule


class Emission(NamedTuple):
    """A token that was emitted, and its frames: from `start`, to the one before `stop`."""

    token: int
    start: int
    stop: int


def decode_emissions(
    module: PretrainedModule, sound: Tensor, frame_count: int | None = None
) -> tuple[list[Emission], bool]:
    """Decode projected encoder states [T, J] greedily: the likeliest token at each step, as
    ``generate`` of transformers does.

    Only the first `frame_count` frames are read (None: all). The second result is False if the
    model went on at one frame until it was stopped.
    """
    config, emissions = module.config, list[Emission]()
    blank, vocab_size = config.blank_token_id, config.vocab_size
    durations = getattr(config, "durations", None)
    most_steps = config.max_symbols_per_step * len(sound) - 1
    frame_count = len(sound) if frame_count is None else frame_count
    text, memory = _predict(module, blank, None)
    frame = step_count = symbol_count = 0
    while frame < frame_count and step_count < most_steps:
        logits = module.joint(decoder_hidden_states=text, encoder_hidden_states=sound[frame])
        token = int(logits[:vocab_size].argmax())
        if durations is None:
            symbol_count = 0 if token == blank else symbol_count + 1
            advance = int(token == blank or symbol_count >= config.max_symbols_per_step)
            symbol_count *= 1 - advance
        else:
            advance = durations[int(logits[vocab_size:].argmax())]
            advance = max(advance, 1) if token == blank else advance
        if token != blank:
            emissions.append(Emission(token, frame, frame + max(advance, 1)))
            text, memory = _predict(module, token, memory)
        frame, step_count = frame + advance, step_count + 1
    return emissions, frame >= frame_count


def _predict(
    module: PretrainedModule, token: int, memory: tuple[Tensor, Tensor] | None
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """State [J] of the prediction network behind one token more, and its memory."""
    network = module.decoder
    embedded = network.embedding(torch.tensor([[token]], device=network.embedding.weight.device))
    states, memory = network.lstm(embedded, memory)
    return network.decoder_projector(states)[0, 0], memory


def align_emissions(module: PretrainedModule, sound: Tensor, ids: Sequence[int]) -> list[Emission]:
    """Find the likeliest path of a given text through projected encoder states [T, J].

    A path ends where its last step reaches the end of the sound. It is the path of the highest
    product of probabilities, of steps of a TDT with those of their durations. An InputError says
    that no path has so many tokens.
    """
    config, frame_count = module.config, len(sound)
    blank, vocab_size = config.blank_token_id, config.vocab_size
    durations = getattr(config, "durations", None)
    text = module.decoder(torch.tensor([[blank, *ids]], device=sound.device))[0]
    best = np.full((len(ids) + 1, frame_count + 1), -np.inf)
    best[0, 0] = 0.0
    steps: dict[tuple[int, int], tuple[int, int]] = {}  # (row, frame) -> the one before
    for row, next_id in enumerate([*ids, None]):
        logits = module.joint(decoder_hidden_states=text[row], encoder_hidden_states=sound)
        scores = logits[:, :vocab_size].double().log_softmax(dim=-1).cpu().numpy()
        # Scores of the moves of blanks and tokens, [frames] for each number of frames.
        blank_moves, token_moves = {1: np.zeros(frame_count)}, {0: np.zeros(frame_count)}
        if durations is not None:
            duration_scores = logits[:, vocab_size:].double().log_softmax(dim=-1).cpu().numpy()
            token_moves = dict(zip(durations, duration_scores.T, strict=True))
            blank_moves = {advance: move for advance, move in token_moves.items() if advance}
        _advance(best, steps, (row, row), scores[:, blank], blank_moves)
        if next_id is not None:
            _advance(best, steps, (row, row + 1), scores[:, next_id], token_moves)
    node = (len(ids), frame_count)
    if node not in steps:
        raise InputError(
            f"a text of {len(ids)} tokens does not fit into {frame_count} frames of sound: is it "
            "the right text?"
        )
    emissions = []
    while node in steps:
        row, frame = steps[node]
        if row < node[0]:
            emissions.append(Emission(ids[row], frame, max(node[1], frame + 1)))
        node = row, frame
    return emissions[::-1]


def _advance(
    best: np.ndarray,
    steps: dict[tuple[int, int], tuple[int, int]],
    rows: tuple[int, int],
    scores: np.ndarray,
    moves: Mapping[int, np.ndarray],
) -> None:
    """Take each move from each frame of one row to another row, or the same, where that is likelier."""
    (row, next_row), end = rows, best.shape[1] - 1
    for frame, (advance, move) in product(range(end), moves.items()):
        score, stop = best[row, frame] + scores[frame] + move[frame], min(frame + advance, end)
        if score > best[next_row, stop]:
            best[next_row, stop], steps[next_row, stop] = score, (row, frame)


def list_path_frames(
    module: PretrainedModule, sound: Tensor, emissions: Sequence[Emission]
) -> list[int]:
    """List the frame of each row of a path's logits, [1 + U].

    The last row chooses no token. It is read at the frame behind the last token where a token was
    likeliest: there the text would have gone on.
    """
    blank = module.config.blank_token_id
    ids = torch.tensor([[blank, *(emission.token for emission in emissions)]], device=sound.device)
    first = min(emissions[-1].stop if emissions else 0, len(sound) - 1)
    logits = module.joint(
        decoder_hidden_states=module.decoder(ids)[0, -1], encoder_hidden_states=sound[first:]
    )[:, : module.config.vocab_size]
    last = first + int(logits.log_softmax(dim=-1)[:, blank].argmin())
    return [*(emission.start for emission in emissions), last]


def emission_probabilities(
    module: PretrainedModule, sound: Tensor, emissions: Sequence[Emission]
) -> np.ndarray:
    """Probability [U] of each token of a path where it was emitted, given those before it."""
    ids = [emission.token for emission in emissions]
    text = module.decoder(
        torch.tensor([[module.config.blank_token_id, *ids]], device=sound.device)
    )[0, :-1]
    frames = [emission.start for emission in emissions]
    logits = module.joint(decoder_hidden_states=text, encoder_hidden_states=sound[frames])
    scores = logits[:, : module.config.vocab_size].double().softmax(dim=-1)
    values: np.ndarray = scores[range(len(ids)), ids].cpu().numpy()
    return values
