"""Repetition loops in what a model wrote: found in the text, and traced to attention heads.

A loop is a group of words that the model writes again and again in one window, at least three times in a row, and that
it repeats without the sound: muting all sound changes nothing. A phrase that somebody says several times is no loop.
Heads carry a loop if its words become unlikely when the heads' outputs are set to zero in the decoder's
self-attention. Windows are transcribed apart: the same text in one window after the other is no loop, and no head
carries it.

Trace a repetition loop to the attention heads that carry it, and write without them.

In: a loop and what was read of its window. Out: the loop with its heads. Each head of the decoder's self-attention is
silenced alone (its output is set to zero), and the repeated words are read again. The first repeats show the heads:
of a long loop, the others are left out, because every head costs a run of the decoder over all that is read.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from ...adapters.generation.greedy_generation import (
    MAX_TRANSCRIPT_TOKENS,
    decode_ids,
    generate_greedily,
)
from ...adapters.patching.patches import silence_heads
from ...files.json_files import Json
from ...inputs.words.transcript_accuracy import normalize_transcript
from .decoder_reader import DecoderReader
from .grounded_words import GroundedWord, need_sound
from .word_readings import WordReadings

if TYPE_CHECKING:
    from .readers import WindowReader

_MOST_CHARACTERS = 100  # of a text in a sentence
_MIN_REPEATS = 3
_MAX_PERIOD = 12  # words of the group


@dataclass(frozen=True)
class Loop:
    """A group of words that is written several times in a row.

    Parameters
    ----------
    first, stop : int
        Indices of its words, from the first of the first time, which the others copy; the last time may be cut off.
    period : int
        Words of the group.
    repeats : int
        Whole times that it is written.
    heads : tuple of (int, int, float)
        Heads of the decoder's self-attention that carry it, by layer and head, from 0, with what the log-probability
        of the repeated words that were traced loses without the head's output, in nats; the strongest first.
    without_heads : str
        What the model writes instead when these heads are silenced; "..." at its end where it did not stop by itself.
    untraced_count : int
        Words at the end of a long loop that were left out when its heads were looked for.
    """

    first: int
    stop: int
    period: int
    repeats: int
    heads: tuple[tuple[int, int, float], ...] = ()
    without_heads: str = ""
    untraced_count: int = 0

    @classmethod
    def from_json(cls, content: Mapping[str, Json]) -> Loop:
        """Read what `dataclasses.asdict` and JSON made of one."""
        heads = tuple((layer, head, effect) for layer, head, effect in content["heads"])
        return cls(**{**content, "heads": heads})

    def moved(self, count: int) -> Loop:
        """Return the loop where so many words come before."""
        return replace(self, first=self.first + count, stop=self.stop + count)

    def sentence(self, words: Sequence[GroundedWord]) -> str:
        """Say where the loop is and what carries it."""
        group = " ".join(word.text for word in words[self.first : self.first + self.period])
        start, end = words[self.first].start, words[self.stop - 1].end
        when = "" if start != start else f" ({start:.1f} to {end:.1f} s)"
        count = f"{self.period} word{'s' if self.period > 1 else ''}"
        text = f"Loop of {count}, {self.repeats} times{when}: “{group}”. Its repeats need no sound."
        if self.heads:
            heads = ", ".join(f"layer {layer} head {head}" for layer, head, _ in self.heads)
            text += f" Heads of the decoder that carry it (counted from 0): {heads}."
            if self.untraced_count:
                traced_count = self.stop - self.first - self.untraced_count
                text += f" Only its first {traced_count} words were used to find them."
        if self.without_heads:
            other = textwrap.shorten(self.without_heads, _MOST_CHARACTERS, placeholder=" ...")
            text += f" Without them the model writes “{other}”."
        return text


def find_loops(texts: Sequence[str]) -> list[Loop]:
    """Find groups of words that are written several times in a row; case and punctuation do not matter.

    A loop is one only as far as `select_copies` confirms it.

    Examples
    --------
    >>> loops = find_loops("oui merci bien merci bien merci bien merci".split())
    >>> [(loop.first, loop.stop, loop.period, loop.repeats) for loop in loops]
    [(1, 8, 2, 3)]
    """
    forms = [normalize_transcript(text) or text for text in texts]
    loops: list[Loop] = []
    start = 0
    while start < len(forms):
        loop = None
        for period in range(1, min(_MAX_PERIOD, (len(forms) - start) // _MIN_REPEATS) + 1):
            stop = start + period
            while stop < len(forms) and forms[stop] == forms[stop - period]:
                stop += 1
            if (stop - start) // period >= _MIN_REPEATS:
                loop = Loop(start, stop, period, (stop - start) // period)
                break
        if loop:
            loops.append(loop)
        start = loop.stop if loop else start + 1
    return loops


def select_copies(loop: Loop, words: Sequence[GroundedWord]) -> Loop | None:
    """Return the part of a loop whose repeats need no sound, or None.

    It begins with the time that the repeats copy, which may need the sound or not. Each repeat is judged as a whole: the
    first word of a spoken phrase needs the sound, and the others often follow from it.
    """
    starts = range(loop.first, loop.stop, loop.period)
    needs = [need_sound(words[start : min(start + loop.period, loop.stop)]) for start in starts]
    best: Loop | None = None
    for needs_sound, times in groupby(range(1, len(needs)), key=lambda time: needs[time]):
        copies = list(times)
        first = loop.first + (copies[0] - 1) * loop.period
        stop = min(loop.first + (copies[-1] + 1) * loop.period, loop.stop)
        candidate = replace(loop, first=first, stop=stop, repeats=(stop - first) // loop.period)
        if not needs_sound and candidate.repeats >= max(_MIN_REPEATS, best.repeats if best else 0):
            best = candidate
    return best


def repeated_windows(words: Sequence[GroundedWord]) -> list[str]:
    """Say where the same text stands in at least three windows in a row."""
    windows = [list(group) for _, group in groupby(words, key=lambda word: word.window)]
    sentences = []
    for text, same in groupby(windows, key=lambda group: " ".join(word.text for word in group)):
        same_windows = list(same)
        if len(same_windows) >= _MIN_REPEATS:
            start, end = same_windows[0][0].start, same_windows[-1][-1].end
            when = "" if start != start else f" ({start:.1f} to {end:.1f} s)"
            sentences.append(
                f"The same text in {len(same_windows)} windows in a row{when}: “{text}”. Windows are transcribed apart, "
                "so this is no loop: the model writes it each time anew."
            )
    return sentences


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
