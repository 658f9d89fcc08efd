"""Input ablation: remove each word from the input (mute its audio, blank its tokens), and read the
margin."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...errors import InputError
from ...inputs.clips.clip import Clip
from ...interventions.decision import Decision
from ...interventions.removals import SOUND, SOUND_FILLS, TOKEN_FILLS, Removal, token_fills
from ...interventions.runner import run_interventions
from ...interventions.value_knock_out import build_decision_map, label_row
from ...mixing.maps.decision_map import DecisionMap
from ...mixing.passes.item_view import segment_item

if TYPE_CHECKING:
    from ...adapters.model import Model
    from ...inputs.clips.segments import SegmentOption
    from ...mixing.passes.item_view import Item
    from ...mixing.passes.request import ObjectiveOption

SIDE_VERBS = {"sound": "mute", "text": "blank", "both": "mute and blank"}


def ablate_input(
    model: Model,
    item: Item,
    *,
    sides: Sequence[str] | None = None,
    fills: Sequence[str] | None = None,
    words: Sequence[int | Sequence[int]] | None = None,
    objective: ObjectiveOption | None = None,
    segments: SegmentOption | None = None,
) -> DecisionMap:
    """Remove each word from the input with several fills, and read the margin.

    Parameters
    ----------
    model : Model
        With its head.
    item : Clip, Sentence, str or dict
        As for `knock_out`.
    sides : sequence of {"sound", "text", "both"}, optional
        What is removed: the word's audio, its tokens (in the input of a text model, or in the
        transcript of a decoder), or both at once. By default each side that the item has; "both"
        only on request.
    fills : sequence of str, optional
        What replaces it: "zeros", "room", "noise", "word" for audio (`mute`); "mask", "unk",
        "pad", "remove" for tokens. By default all possible fills; for "both", zeros and removed
        tokens. A word at the position where the margin is read cannot be removed and has no row.
    words : sequence of int or of tuples of int, optional
        All by default. The words of a tuple are removed together, in one row with the index of the
        first.
    objective : optional
        Another number to read than the margin, as in `mix`.
    segments : float or {"voice", "frames"}, optional
        Segments of the sound in place of a clip's words, as in `shapley`.

    Returns
    -------
    DecisionMap
        Stack "input"; the column intervention has names such as "mute (room)" or "blank (mask)".

    Raises
    ------
    InputError
        If the item has no target, or a side or fill is not possible.
    """
    item = segment_item(model, item, segments)
    decision = Decision.prepare(model, item, objective=objective)
    possible_sides = list_sides(decision)
    unknown_sides = set(sides or ()) - set(possible_sides)
    if unknown_sides:
        raise InputError(
            f"{model.name} with {decision.name}: sides are {possible_sides}, found {sorted(unknown_sides)}"
        )
    rows: list[dict[str, object]] = []
    margins: list[float] = []
    for side in sides or [side for side in possible_sides if side != "both"]:
        for fill in list_fills(decision, side, fills):
            sources = [
                source
                for source in decision.select_sources(side_stack(decision, side), words)
                if not (
                    fill.endswith("remove") and set(source.positions) & set(decision.read_positions)
                )
            ]  # else nothing would be left to read
            try:
                margins += run_interventions(
                    decision,
                    [
                        build_word_removals(decision, s.word_indices, side=side, fill=fill)
                        for s in sources
                    ],
                ).tolist()
            except InputError as error:
                if fills is not None:
                    raise
                warnings.warn(f"skipped a fill: {error}", stacklevel=2)
                continue
            intervention = f"{SIDE_VERBS[side]} ({fill})"
            rows += [
                label_row(decision, intervention, "input", float("nan"), source)
                for source in sources
            ]
    if not rows:
        raise InputError(
            f"{decision.name}: nothing can be removed with fills={fills}, words={words}"
        )
    return build_decision_map(decision, rows, decision.margin, margins)


def list_sides(decision: Decision) -> list[str]:
    """List the sides of the input that can be removed from this item."""
    kind = decision.model.capabilities
    has_side = {
        "sound": isinstance(decision.item, Clip),
        "text": kind.text_input in decision.prepared.inputs,
    }
    sides: list[str] = [side for side in kind.sides if has_side[side]]
    return [*sides, "both"] if len(sides) > 1 else sides


def list_fills(
    decision: Decision, side: str, requested_fills: Sequence[str] | None = None
) -> list[str]:
    """List the possible fills of a side, among the requested ones."""
    if side == "both":
        return ["zeros + remove"]
    if requested_fills is None:
        if side == "sound" and isinstance(decision.item, Clip) and decision.item.has_segments:
            return ["zeros", "noise"]  # segments may leave no room tone, and none says a word
        # No word is left to say where all are removed, and a label has no target that stays.
        impossible = {"word"} if side == "sound" and decision.model.has_label_head else set()
        return [fill for fill in possible_fills(decision.model, side) if fill not in impossible]
    unknown_fills = set(requested_fills) - set(SOUND_FILLS) - set(TOKEN_FILLS)
    if unknown_fills:
        raise InputError(
            f"fills are {SOUND_FILLS} for audio and {TOKEN_FILLS} for tokens, found "
            f"{sorted(unknown_fills)}"
        )
    return [
        fill
        for fill in requested_fills
        if fill in (SOUND_FILLS if side == "sound" else TOKEN_FILLS)
    ]


def possible_fills(model: Model, side: str) -> tuple[str, ...]:
    """List the possible fills of audio, or of the tokens of a model's text."""
    return SOUND_FILLS if side == "sound" else token_fills(model)


def side_stack(decision: Decision, side: str) -> str:
    """Return the stack whose sources are the words of a side of the input."""
    stacks = decision.model.capabilities.stack_by_side.items()
    return next((stack for name, stack in stacks if name == side), "decoder")


def build_word_removals(
    decision: Decision, words: Sequence[int], *, side: str, fill: str
) -> tuple[Removal, ...]:
    """Build the removals that remove some words from an input together; none for the intact input.

    `side` is "sound", "text" or "both"; the fill of "both" is written as "zeros + remove".
    """
    if not words:
        return ()
    sound_fill, _, token_fill = fill.partition(" + ") if side == "both" else (fill, "", fill)
    sources = decision.select_sources(side_stack(decision, side), words)
    removals = []
    if side != "text":
        removals.append(Removal(SOUND, tuple(source.index for source in sources), sound_fill))
    if side != "sound":
        positions = tuple(position for source in sources for position in source.positions)
        removals.append(Removal(decision.model.capabilities.text_input, positions, token_fill))
    return tuple(removals)
