"""Swap states, values or inputs of a word between two items (activation patching).

States, values or the input of a word swapped between two items.

In: an item and another that says the same but for what the word tells (the other member of a
minimal pair: sg <-> pl). Out: how much of the margin goes over with the word, at each layer:

    carried = (margin - patched margin) / (margin - the other item's margin)        1: all of it, 0: nothing

Both margins are of the same question: does the model prefer this item's target to its foil. Where
the word is longer in one item than in the other, each of its positions takes what lies at the same
share of the other's (nearest).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from ...adapters.capture.forward_pass import Capture, use_attention
from ...adapters.capture.layer_run import Block
from ...adapters.patching.patches import Patch
from ...errors import InputError
from ...inputs.clips.clip import Clip
from ...interventions.decision import Decision, Source
from ...interventions.removals import SOUND, TEXT_IDS, Removal
from ...interventions.runner import NO_REMOVAL, run_interventions
from ...interventions.value_knock_out import build_decision_map, label_row, layer_windows
from ...mixing.maps.decision_map import DecisionMap

if TYPE_CHECKING:
    from torch import Tensor

    from ...adapters.model import Model
    from ...mixing.passes.item_view import Item
    from ...mixing.passes.request import ObjectiveOption

PATCH_KINDS = ("states", "values", "input")


def patch(
    model: Model,
    item: Item,
    other: Item,
    *,
    what: str = "states",
    stacks: Sequence[str] | None = None,
    window: int | str = 1,
    words: Sequence[int | Sequence[int]] | None = None,
    objective: ObjectiveOption | None = None,
    batch_size: int | None = None,
) -> DecisionMap:
    """Put what another item holds in the place of each word, layer by layer, and read the margin.

    Parameters
    ----------
    model : Model
        With its head.
    item, other : Clip, Sentence, str or dict
        Of the same number of words; the margin is read for `item`.
    what : {"states", "values", "input"}
        The hidden states that enter a layer, the value vectors in it (or in a window), or the input
        itself: the word's sound, or its tokens (as many in both).
    stacks : sequence of str, optional
        All by default; "cross" has values, but no states of its own.
    window : int or "all"
        Of layers whose values are swapped together.
    words : sequence of int or of tuples of int, optional
        All by default. The words of a tuple are swapped together, in one row that is numbered as
        the first.
    objective : optional
        Another number to read than the margin, as in `mix`.
    batch_size : int, optional
        Runs that go together; as many as fit by default.

    Returns
    -------
    DecisionMap
        With a column ``carried``; missing where both items have the same margin.

    Raises
    ------
    InputError
        If the items do not have the same words to swap, or `what` is not possible.

    Examples
    --------
    >>> carried = speechmix.patch(model, plural, singular)                                # doctest: +SKIP
    >>> carried.scores("encoder", "carried").round(2)                                     # doctest: +SKIP
    """
    if what not in PATCH_KINDS:
        raise InputError(f"what should be one of {PATCH_KINDS}, found {what!r}")
    decision, donor = (
        Decision.prepare(model, member, objective=objective) for member in (item, other)
    )
    if what == "input":
        decision_map = _patch_inputs(decision, donor, words)
    else:
        decision_map = _patch_layers(decision, donor, what, stacks, window, words, batch_size)
    margin_gap = decision_map.margin - _read_donor_margin(decision, donor)
    decision_map.table["carried"] = (
        decision_map.table["drop"] / margin_gap if margin_gap else float("nan")
    )
    return decision_map


def _read_donor_margin(decision: Decision, donor: Decision) -> float:
    """Compute this item's margin on the other item's inputs, at the position where the other
    decides."""
    if not decision.read_positions or decision.read_positions[0] == donor.read_positions[0]:
        return decision.input_margin(donor.prepared.inputs)
    offset = decision.read_positions[0] - donor.read_positions[0]
    length = _token_count(donor) + offset
    rows = tuple(max(position - offset, -1) for position in range(length))
    return decision.input_margin(donor.prepared.inputs, rows)


def _token_count(decision: Decision) -> int:
    tokens = decision.prepared.tokens or decision.prepared.source_tokens
    return len(tokens.ids) if tokens is not None else 0


def _patch_layers(
    decision: Decision,
    donor: Decision,
    what: str,
    stacks: Sequence[str] | None,
    window: int | str,
    words: Sequence[int | Sequence[int]] | None,
    batch_size: int | None,
) -> DecisionMap:
    if what == "states" and window != 1:
        raise InputError(
            "states are put in where they enter one layer; a window is for what='values'"
        )
    stack_names = (
        [name for name in decision.model.stacks if what == "values" or name != "cross"]
        if stacks is None
        else list(stacks)
    )
    if what == "states" and "cross" in stack_names:
        raise InputError(
            "cross-attention has no states of its own: ask for the encoder or the decoder, or for "
            "values"
        )
    donor_states = capture_states(donor.model, donor.inputs, what)
    rows, patches = [], []
    for stack in stack_names:
        for source, pairs in _pair_sources(decision, donor, stack, words):
            donor_positions = [
                position
                for member, donor_member in pairs
                for position in match_positions(len(member.positions), donor_member.positions)
            ]
            for layers in layer_windows(decision.layer_count(stack), window):
                new_states = {
                    layer: donor_states[stack, layer][..., donor_positions, :] for layer in layers
                }
                replacement = (
                    {"values": new_states}
                    if what == "values"
                    else {"states": new_states[layers.start]}
                )
                patches.append(Patch(stack, layers, source.positions, **replacement))
                rows.append(label_row(decision, f"patch ({what})", stack, layers.start, source))
    intact_margin, *margins = run_interventions(
        decision, [NO_REMOVAL, *patches], batch_size=batch_size
    ).tolist()
    return build_decision_map(decision, rows, intact_margin, margins)


def _pair_sources(
    decision: Decision, donor: Decision, stack: str, words: Sequence[int | Sequence[int]] | None
) -> list[tuple[Source, list[tuple[Source, Source]]]]:
    """Pair the requested sources with the other item's words of the same index."""
    donor_sources = {source.index: source for source in donor.select_sources(stack, None)}
    sources = decision.select_sources(stack, None)
    if donor_sources.keys() != {source.index for source in sources}:
        raise InputError(
            f"{decision.name} and {donor.name} should have the same number of words, to be swapped "
            "one by one; found "
            f"{len(sources)} and {len(donor_sources)} in the {stack}"
        )
    return [
        (source, [(member, donor_sources[member.index]) for member in source.members or (source,)])
        for source in decision.select_sources(stack, words)
    ]


def match_positions(count: int, positions: Sequence[int]) -> list[int]:
    """Match `count` positions with the other's positions at the same share of the length."""
    return [positions[int((index + 0.5) * len(positions) / count)] for index in range(count)]


def capture_states(
    model: Model, inputs: Mapping[str, Tensor], what: str
) -> Mapping[tuple[str, int], Tensor]:
    """Capture the states [T, D] that enter ("states"), or the values [H, T, d] in ("values"), every
    layer of a run, by stack and layer.

    The inputs [1, ...] are on the model's device, in the dtype of its states.
    """
    donor_states: dict[tuple[str, int], Tensor] = {}

    def store_block(block: Block) -> None:
        if what == "values" or block.stack.name != "cross":
            tensor = block.values if what == "values" else block.inputs
            donor_states[block.stack.name, block.layer] = tensor.clone()

    with (
        model.in_use(model.state_dtype),
        torch.no_grad(),
        use_attention(model.module, model.readable_attention),
        Capture(list(model.stacks.values()), store_block),
    ):
        model.family.run(model.base, inputs, tuple(model.stacks))
    return donor_states


def _patch_inputs(
    decision: Decision, donor: Decision, words: Sequence[int | Sequence[int]] | None
) -> DecisionMap:
    """Replace the audio or the tokens of a word by those of the other item."""
    source_pairs = _pair_sources(decision, donor, decision.model.capabilities.input_stack, words)
    rows = [
        label_row(decision, "patch (input)", "input", float("nan"), source)
        for source, _ in source_pairs
    ]
    removals = [(_build_exchange(decision, donor, pairs),) for _, pairs in source_pairs]
    margins = run_interventions(decision, removals).tolist()
    return build_decision_map(decision, rows, decision.margin, margins)


def _build_exchange(
    decision: Decision, donor: Decision, pairs: Sequence[tuple[Source, Source]]
) -> Removal:
    if isinstance(decision.item, Clip) and isinstance(donor.item, Clip):
        return Removal(SOUND, tuple(source.index for source, _ in pairs), donor.item)
    for source, donor_source in pairs:
        if len(source.positions) != len(donor_source.positions):
            raise InputError(
                f"{source.label!r} is {len(source.positions)} tokens and {donor_source.label!r} "
                f"{len(donor_source.positions)}: only as many can be exchanged in the input; swap states "
                "or values instead"
            )
    ids = donor.prepared.inputs[TEXT_IDS][0].tolist()
    return Removal(
        TEXT_IDS,
        tuple(position for source, _ in pairs for position in source.positions),
        tuple(ids[position] for _, donor_source in pairs for position in donor_source.positions),
    )
