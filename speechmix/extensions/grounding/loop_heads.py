"""Trace a repetition loop to the attention heads that carry it, and write without them.

In: a loop and what was read of its window. Out: the loop with its heads. Each head of the decoder's self-attention is
silenced alone (its output is set to zero), and the repeated words are read again. The first repeats show the heads:
of a long loop, the others are left out, because every head costs a run of the decoder over all that is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ...adapters.generation.greedy_generation import (
    MAX_TRANSCRIPT_TOKENS,
    decode_ids,
    generate_greedily,
)
from ...adapters.patching.patches import silence_heads
from .decoder_reader import DecoderReader
from .grounded_words import GroundedWord
from .loops import Loop
from .word_readings import WordReadings

if TYPE_CHECKING:
    from .readers import WindowReader

_MAX_HEADS = 3  # that are named
_MAX_REPEATS = 8  # times of the group that are read without each head
_MIN_TOKENS_WITHOUT = (
    48  # that the model may write without the heads, where the loop begins at once
)
_SHARE = 0.1  # of all heads' effects, from which a head carries the loop


def trace_loop(
    loop: Loop,
    words: Sequence[GroundedWord],
    readings: Sequence[WordReadings],
    reader: WindowReader,
) -> Loop:
    """Find the heads that carry a loop, and what the model writes without them.

    Only the first eight times that the group is written are read, and nothing behind them; `untraced_count` is how
    many of the loop's words are left out. Without the heads, the model may write as much as was read.

    Parameters
    ----------
    loop : Loop
    words : sequence of GroundedWord
        All words that its indices are of.
    readings : sequence of WordReadings
        By window.
    reader : WindowReader
        Only a decoder with cross-attention is traced; another loop is returned as it is.
    """
    if not isinstance(reader, DecoderReader):
        return loop
    window = words[loop.first].window
    first = next(index for index, word in enumerate(words) if word.window == window)
    stop = min(loop.stop, loop.first + _MAX_REPEATS * loop.period)
    loop = replace(loop, untraced_count=loop.stop - stop)
    repeat_indices = range(loop.first + loop.period - first, stop - first)
    effects = head_effects(reader, readings[window], repeat_indices)
    order = sorted(effects, key=lambda head: -effects[head])[:_MAX_HEADS]
    total = sum(effect for effect in effects.values() if effect > 0)
    heads = tuple(
        (*head, round(effects[head], 3)) for head in order if effects[head] > _SHARE * total
    )
    if not heads:
        return loop
    text = write_without_heads(
        reader, readings[window], [head[:2] for head in heads], repeat_indices
    )
    return replace(loop, heads=heads, without_heads=text)


def head_effects(
    reader: DecoderReader, readings: WordReadings, words: Sequence[int]
) -> dict[tuple[int, int], float]:
    """Compute what some words of a window lose without each head of the decoder's self-attention.

    Returns
    -------
    dict of (layer, head) to float
        In nats of the sum of the words' log-probabilities.
    """
    stack = reader.model.stacks["decoder"]
    effects: dict[tuple[int, int], float] = {}
    for layer in range(len(stack.layers)):
        runs = [[(layer, head)] for head in range(stack.heads)]
        with silence_heads(reader.model, [[], *runs]):
            values = reader.sum_log_probabilities(readings, words, len(runs) + 1)
        effects |= {
            (layer, head): float(values[0] - values[head + 1]) for head in range(stack.heads)
        }
    return effects


def write_without_heads(
    reader: DecoderReader,
    readings: WordReadings,
    heads: Sequence[tuple[int, int]],
    words: Sequence[int],
) -> str:
    """Transcribe a window again with some heads silenced, about as far as some of its words reach."""
    model, window = reader.model.without_engine(), readings.window
    tokens = reader.tokens_of(readings)
    reach = int(tokens.rows[np.isin(tokens.owners, words)].max()) + 2 - window.n_prefix
    max_tokens = min(max(reach, _MIN_TOKENS_WITHOUT), MAX_TRANSCRIPT_TOKENS)
    with silence_heads(model, [heads]):
        ids, n_prefix, ended = generate_greedily(
            model, window.clip(reader.language), max_tokens=max_tokens
        )
    return decode_ids(model, ids[n_prefix:]) + ("" if ended else " ...")
