"""Hidden states of one item as arrays: every layer, every frame, token, word or phone, with labels.

In: a model and a clip, sentence or prepared inputs. Out: for each stack a `LayerStates`. The state of a
word or phone is the mean over its frames or tokens. What the last entry is, behind the stack's final
norm, is defined in `adapters.capture.forward_pass`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ...adapters.capture.forward_pass import hidden_states, stacks_with_states
from ...errors import InputError
from ...inputs.words.spans import Span
from ...inputs.words.timed_words import Word
from ...inputs.words.word_lookup import TextWord
from ...mixing.passes.request import AUDIO_UNITS, MixRequest
from ...mixing.passes.view_kinds import make_view

if TYPE_CHECKING:
    from ...adapters.model import Model
    from ...mixing.passes.item_view import Item, View


@dataclass(frozen=True, eq=False)
class LayerStates:
    """Hidden states of one stack for one item.

    Parameters
    ----------
    values : ndarray [L + 1, T, D]
        float32. Entry 0 is the input of the first layer, entry l + 1 the output of layer l; the
        last entry is behind the stack's final norm, if it has one.
    positions : tuple of Span
        One for each of the T frames, tokens, words or phones: its label, its seconds, the word that
        it is in.
    stack : str
        "encoder" or "decoder".
    """

    values: np.ndarray
    positions: tuple[Span, ...]
    stack: str

    def __repr__(self) -> str:
        layers, positions, width = self.values.shape
        return (
            f"LayerStates({self.stack}: {layers - 1} layers, {positions} positions, {width} wide)"
        )


def states(
    model: Model, item: Item, *, stacks: Sequence[str] | None = None, level: str | None = None
) -> dict[str, LayerStates]:
    """Return the hidden states of an item in every layer.

    Parameters
    ----------
    model : Model
    item : Clip, Sentence, str or mapping
        As for `speechmix.mix`. Word times are used where a clip has them; only words, phones and
        syllables need them.
    stacks : sequence of str, optional
        "encoder", "decoder"; by default those that the model has and the item feeds.
        Cross-attention has no states of its own.
    level : {"frame", "word", "phone", "syllable"}, optional
        The units: frames of the sound, or means over the frames or tokens of each word, phone or
        syllable. A decoder of text has words alone. By default frames and tokens.

    Returns
    -------
    dict of str to LayerStates
        By stack: ``values`` [L + 1, T, D] with a label for each unit.

    Raises
    ------
    InputError
        If the model does not take the item, has no such stack, or the item no such units.

    Examples
    --------
    >>> import speechmix
    >>> from speechmix.inputs import bundled
    >>> model = speechmix.load("bundled:tiny-french-ctc", device="cpu")
    >>> clip = bundled.clips()[1]  # synthetic: "nos maisons"
    >>> states(model, clip)
    {'encoder': LayerStates(encoder: 4 layers, 59 positions, 144 wide)}
    >>> states(model, clip)["encoder"].positions[20].onset
    0.4025
    >>> [span.label for span in states(model, clip, level="word")["encoder"].positions]
    ['nos', 'maisons']
    """
    if level is not None and level not in AUDIO_UNITS:
        raise InputError(f"level should be one of {', '.join(AUDIO_UNITS)}, found {level!r}")
    units = level or ("frame" if model.hears else "token")
    window = (0.0, math.inf) if units == "frame" else None  # a state of each frame, padding too
    view = make_view(model, item, MixRequest(units=units, window=window))
    names = _choose_stacks(model, item, view, stacks, level)
    view.prepare(tuple(names))
    spans = {name: _level_spans(view, name, level) for name in names}

    def to_array(stack: str, entry: Tensor) -> np.ndarray:  # [1, T, D]
        if not spans[stack]:  # of prepared inputs, whose frames are known only now
            spans[stack] = [Span(i, i + 1, str(i), "frame") for i in range(entry.shape[1])]
        array: np.ndarray = _pool_states(entry[0], spans[stack]).float().cpu().numpy()
        return array

    entries = hidden_states(model, view.prepared.inputs, to_array, stacks=names)
    return {name: LayerStates(np.stack(entries[name]), tuple(spans[name]), name) for name in names}


def _choose_stacks(
    model: Model, item: Item, view: View, stacks: Sequence[str] | None, level: str | None
) -> list[str]:
    """Return the requested stacks that the item feeds and that have units of the level."""
    with_states = stacks_with_states(model)
    unknown_stacks = [name for name in stacks or () if name not in with_states]
    if unknown_stacks:
        raise InputError(
            f"{model.name} has states in {', '.join(with_states)}, found {unknown_stacks[0]!r}"
        )
    input_stack = model.capabilities.input_stack
    names = [
        name
        for name in with_states
        if (stacks is None or name in stacks) and (name == input_stack or view.has_decoder_input)
    ]
    if not names:
        raise InputError(f"the decoder of {model.name} is fed no text by {item!r:.80}")
    with_units = [name for name in names if level in (None, "word") or name == input_stack]
    if not with_units:
        raise InputError(f"the {names[0]} of {model.name} reads text, which has no {level}s")
    return with_units


def _level_spans(view: View, stack: str, level: str | None) -> list[Span]:
    """Units of a stack; the frames or tokens of a word are one."""
    spans, item = view.sources(stack), view.item
    if level is None:
        return spans
    if item is None:
        raise InputError(f"prepared inputs have no {level}s: leave level= out")
    if level != "word":
        return [span for span in spans if span.kind == level]
    ranges: dict[int | None, list[tuple[int, int]]] = {}
    for span in spans:
        ranges.setdefault(span.word, []).extend(span.ranges)
    word_spans = []
    words: Sequence[Word | TextWord] = item.words or ()
    for index, word in enumerate(words):
        times = {"onset": word.start, "offset": word.end} if isinstance(word, Word) else {}
        if index in ranges:
            word_spans.append(Span.from_ranges(ranges[index], word.text, word=index, **times))
    if not word_spans:
        raise InputError(f"{item.name}: no word has a position in the {stack}")
    return word_spans


def _pool_states(entry: Tensor, spans: Sequence[Span]) -> Tensor:
    """Average the states of each unit, [T, D] -> [units, D]."""
    if all(span.stop == span.start + 1 for span in spans):
        return entry[[span.start for span in spans]]
    return torch.stack([entry[list(span.positions)].mean(dim=0) for span in spans])
