"""Hidden states of one item as arrays: every layer, every frame or token, with labels.

In: a model and a clip, sentence or prepared inputs. Out: for each stack a `LayerStates`. What the
last entry is, behind the stack's final norm, is defined in `adapters.capture.hidden_states`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from ...adapters.capture.hidden_states import hidden_states, stacks_with_states
from ...errors import InputError
from ...inputs.words.spans import Span
from .request import MixRequest
from .view_kinds import make_view

if TYPE_CHECKING:
    from ...adapters.model import Model
    from .item_view import Item


@dataclass(frozen=True, eq=False)
class LayerStates:
    """Hidden states of one stack for one item.

    Parameters
    ----------
    values : ndarray [L + 1, T, D]
        float32. Entry 0 is the input of the first layer, entry l + 1 the output of layer l; the
        last entry is behind the stack's final norm, if it has one.
    positions : tuple of Span
        One for each of the T frames or tokens: its label, its seconds, the word that it is in.
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
    model: Model, item: Item, *, stacks: Sequence[str] | None = None
) -> dict[str, LayerStates]:
    """Return the hidden states of an item in every layer.

    Parameters
    ----------
    model : Model
    item : Clip, Sentence, str or mapping
        As for `speechmix.mix`. Word times are used where a clip has them, and not needed.
    stacks : sequence of str, optional
        "encoder", "decoder"; by default those that the model has and the item feeds.
        Cross-attention has no states of its own.

    Returns
    -------
    dict of str to LayerStates
        By stack: ``values`` [L + 1, T, D] with a label for each frame or token.

    Raises
    ------
    InputError
        If the model does not take the item, or has no such stack.

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
    """
    view = make_view(model, item, MixRequest(units="frame" if model.hears else "token"))
    stateful_stacks = stacks_with_states(model)
    unknown_stacks = [name for name in stacks or () if name not in stateful_stacks]
    if unknown_stacks:
        raise InputError(
            f"{model.name} has states in {', '.join(stateful_stacks)}, found {unknown_stacks[0]!r}"
        )
    available_stacks = [
        name
        for name in stateful_stacks
        if name == model.capabilities.input_stack or view.has_decoder_input
    ]
    stack_names = [name for name in available_stacks if stacks is None or name in stacks]
    if not stack_names:
        raise InputError(f"the decoder of {model.name} is fed no text by {item!r:.80}")
    view.prepare(tuple(stack_names))

    def to_array(stack: str, entry: Tensor) -> np.ndarray:  # [1, T, D]
        array: np.ndarray = entry[0].float().cpu().numpy()
        return array

    entries = hidden_states(model, view.prepared.inputs, to_array, stacks=stack_names)
    states_by_stack = {}
    for name in stack_names:
        positions = tuple(view.sources(name)) or tuple(
            Span(row, row + 1, str(row), "frame") for row in range(len(entries[name][0]))
        )
        position_indices = [span.start for span in positions]
        values = np.stack([entry[position_indices] for entry in entries[name]])
        states_by_stack[name] = LayerStates(values, positions, name)
    return states_by_stack
