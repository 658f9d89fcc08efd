"""State shifts: how far each word's state moves, layer by layer, when another word is taken away.

The intervention of `ablate_input`, read at the states instead of at a decision. It asks for no
output, so it is there for encoders without a head (XLSR, HuBERT, the encoder of a Whisper). In: a
model and a clip with words, or a text. Out: a `MixingMap`; its layer l holds all that happens up to
there, as that of a map rolled out does.

Silence a word, and its neighbours' states have moved before the first layer has run: convolutions
hear over its borders, some front-ends scale a clip as a whole. No map of the layers can know that.
So by default only the word's own positions change where they enter the first layer, and all others
enter it as they were.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ...adapters.capture.forward_pass import INPUT, hidden_states
from ...errors import InputError
from ...inputs.clips.clip import Clip
from ...interventions.removals import SOUND, TEXT_IDS, Removal, change_inputs
from ...mixing.maps.mixing_map import MixingMap
from ...mixing.maps.numerics import find_distance
from ...mixing.passes.forward_pass import map_provenance
from ...mixing.passes.item_view import Item
from ...mixing.passes.precision import resolve_state_dtype
from ...mixing.passes.request import MixRequest
from ...mixing.passes.view_kinds import make_view
from ..occlusion.input_ablation import SIDE_VERBS, possible_fills

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ...adapters.model import Model
    from ...inputs.words.spans import Span

WHERE_OPTIONS = ("first layer", "input")


def state_shifts(
    model: Model,
    item: Item,
    *,
    fill: str | None = None,
    where: str = "first layer",
    layers: Sequence[int] | None = None,
    distance: str = "cosine",
) -> MixingMap:
    """Take each word away, and measure how far the states of all words move.

    Parameters
    ----------
    model : Model
        With or without its head.
    item : Clip, Sentence or str
        With words; of a clip with their times.
    fill : str, optional
        What takes a word's place: of a sound "zeros" (by default), "room", "noise" or "word"
        (`mute`); of a text "mask", "unk" or "pad" (by default the first of them that the model
        has).
    where : {"first layer", "input"}
        "input": the sound (or text) is another one, with whatever comes of that before the first
        layer. "first layer": what enters the first layer is that of the other sound at the word's
        own positions, and as it was at all others.
    layers : sequence of int, optional
        Counted from 0, all by default; -1 is what enters the first.
    distance : str
        As of Value Zeroing: "cosine", "euclidean", ...

    Returns
    -------
    MixingMap [L, W, W]
        Of the stack that reads the words (the encoder, or the only decoder): the distance between
        the state of the target and that without the source, mean over the target's frames (or
        tokens). The measure is "mute (zeros)" or "blank (mask)".

    Raises
    ------
    InputError
        If the item has no words, or there is no such fill or layer.

    Examples
    --------
    >>> from speechmix.inputs import bundled
    >>> model = speechmix.load(bundled.models()["tiny-french-ctc"])
    >>> clip = next(clip for clip in bundled.clips() if clip.name == "left_00_pl")  # synthetic: "nos maisons"
    >>> state_shifts(model, clip)
    MixingMap(mute (zeros), encoder: 4 layers, 2 targets x 2 sources)
    """
    side, stack = model.capabilities.sides[0], model.capabilities.input_stack
    request = MixRequest(units="word", layers=None if layers is None else tuple(layers))
    view = make_view(model, item, request)
    if isinstance(view.item, Clip) and not view.item.words:
        raise InputError(
            f"{view.item.name} has no words with times: give words=, or align it with "
            "speechmix.align"
        )
    view.prepare((stack,))
    layer_indices = _resolve_layers(len(model.stacks[stack]), layers, stack)
    words = [span for span in view.sources(stack) if span.word is not None]
    fills = shift_fills(model)
    if not fills:
        raise InputError(
            f"{model.name} has no token to put in a word's place: neither mask, unknown nor padding"
        )
    fill = fills[0] if fill is None else fill
    if fill not in fills:
        raise InputError(f"fill should be one of {fills} for {model.name}, found {fill!r}")

    if where not in WHERE_OPTIONS:
        raise InputError(f"where should be one of {WHERE_OPTIONS}, found {where!r}")

    intact = _read_states(model, view.prepared.inputs, stack, Tensor.clone)
    scores = np.empty((len(layer_indices), len(words), len(words)))
    distance_function = find_distance(distance)
    for column, source in enumerate(words):
        if side == SOUND:
            removal = Removal(SOUND, (source.word or 0,), fill)
        else:
            removal = Removal(TEXT_IDS, tuple(source.positions), fill)
        inputs, _ = change_inputs(model, view.item, view.prepared.inputs, [removal])
        entering = (
            None if where == "input" else partial(_replace_positions, intact[0], source.positions)
        )
        read = partial(_shift_distances, iter(intact), distance_function, words)
        shifts = _read_states(model, inputs, stack, read, entering)
        scores[:, :, column] = np.stack(shifts)[[layer - INPUT for layer in layer_indices]]
    provenance = map_provenance(model, view, request, resolve_state_dtype(model, request))
    provenance |= {"distance": distance, "fill": fill, "taken away at": where}
    measure = f"{SIDE_VERBS[side]} ({fill})"
    return MixingMap(scores, tuple(words), tuple(words), measure, stack, layer_indices, provenance)


def shift_fills(model: Model) -> tuple[str, ...]:
    """Return the fills that keep the positions of all other words (all but removal)."""
    fills = possible_fills(model, model.capabilities.sides[0])
    return tuple(fill for fill in fills if fill != "remove")


def _resolve_layers(
    count: int, requested_layers: Sequence[int] | None, stack: str
) -> tuple[int, ...]:
    layer_indices = (
        range(count)
        if requested_layers is None
        else sorted({int(layer) for layer in requested_layers})
    )
    if not layer_indices or not all(INPUT <= layer < count for layer in layer_indices):
        raise InputError(
            f"layers={requested_layers}: the {stack} has layers 0 to {count - 1}, and {INPUT}, what enters "
            "the first"
        )
    return tuple(layer_indices)


def _read_states(
    model: Model,
    inputs: Mapping[str, Tensor],
    stack: str,
    read: Callable[[Tensor], Any],
    entering: Callable[[Tensor], Tensor] | None = None,
) -> list[Any]:
    """Read the states [T, D] of each layer, beginning with the input of the first layer."""
    return hidden_states(
        model, inputs, lambda _, states: read(states[0]), stacks=[stack], transform_input=entering
    )[stack]


def _replace_positions(intact: Tensor, positions: Sequence[int], states: Tensor) -> Tensor:
    """Return intact states [T, D] with other states [1, T, D] at some positions."""
    replaced_states = intact.clone()[None]
    replaced_states[:, list(positions)] = states[:, list(positions)]
    return replaced_states


def _shift_distances(
    intact: Iterator[Tensor],
    distance_function: Callable[[Tensor, Tensor], Tensor],
    words: Sequence[Span],
    states: Tensor,
) -> np.ndarray:
    """Compute the distance of a layer's states [T, D] from the intact ones, mean over each word's
    positions, [W]."""
    distances = distance_function(next(intact), states)
    return np.array(
        [float(distances[torch.as_tensor(word.positions)].double().mean()) for word in words]
    )
