"""Interventions that remove sources of a written word, and what is read of every written token.

In: a `Writing`, indices of its sources, and what replaces them. Out: interventions for
`run_interventions`, and numbers read of the logits, [runs, readings].
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
import torch

from ...adapters.transformers_types import ModelOutput
from ...interventions.removals import SOUND, TEXT_IDS, Removal
from ...interventions.runner import Reader, run_interventions
from ...mixing.measures.token_objectives import answer_logits
from .fills import ALTERNATIVES, PROMPT, REMOVE, Fill, alternative_tokens
from .frozen_padding import FrozenPadding

if TYPE_CHECKING:
    from torch import Tensor

    from .generated_tokens import Writing


def make_removals(
    writing: Writing, sources: Iterable[int], fills: Iterable[Fill | None]
) -> tuple[Removal, ...]:
    """Return the removals that take some sources away together.

    Parameters
    ----------
    writing : Writing
    sources : iterable of int
        Indices into ``writing.sources``; none is the run as it is.
    fills : iterable of Fill or None
        One for each side that the sources are of.
    """
    model, by_side = writing.model, {fill.side: fill for fill in fills if fill is not None}
    generated, by_name = model.capabilities.generated_input, model.capabilities.can_shorten_text
    prompt_input = generated if PROMPT in by_side else TEXT_IDS
    input_names = {"sound": SOUND, "read": TEXT_IDS, "asked": prompt_input, "written": generated}
    units: dict[str, list[int]] = {}
    tokens: dict[int, int | None] = {}  # by position, where a source has tokens of its own
    text_fill = by_side.get("text")
    for source in (writing.sources[index] for index in sources):
        is_sound, positions = source.side == SOUND, source.source.positions
        unit_indices = (source.source.index,) if is_sound else positions
        units.setdefault(input_names[source.side], []).extend(unit_indices)
        if source.side == "asked" and PROMPT in by_side:
            tokens |= dict.fromkeys(positions, by_side[PROMPT].token)
        elif not is_sound and text_fill is not None and text_fill.name in ALTERNATIVES:
            rank = ALTERNATIVES.index(text_fill.name)
            tokens |= zip(positions, alternative_tokens(writing, positions, rank), strict=True)
        elif not is_sound and PROMPT in by_side:
            tokens |= dict.fromkeys(positions, None if text_fill is None else text_fill.token)
    if tokens:
        generated_units = tuple(units.pop(generated))
        sound = [
            Removal(side, tuple(indices), by_side["sound"].name) for side, indices in units.items()
        ]
        new_tokens = tuple(tokens[position] for position in generated_units)
        return (*sound, Removal(generated, generated_units, new_tokens))
    return tuple(
        Removal(side, tuple(unit_indices), _token_fill(by_side["text"], by_name=by_name))
        if side != SOUND
        else Removal(side, tuple(unit_indices), by_side["sound"].name)
        for side, unit_indices in units.items()
    )


def _token_fill(fill: Fill, *, by_name: bool) -> str | int:
    """A fill as `Removal` takes it. Only padding goes by its name: it is left out of the attention,
    too.

    In an audio language model even padding goes by its id, for positions of the sound would move.
    """
    if fill.token is None:
        return REMOVE
    return fill.name if fill.name == "pad" and by_name else fill.token


def read_without(
    writing: Writing, removals: Sequence[tuple[Removal, ...]], read: Reader
) -> np.ndarray:
    """What is read of each run, [removals, R]; NaN where nothing is left before what is read."""
    if any(removals):
        padding = FrozenPadding.of(writing.decision)
        encode = None if padding is None else padding.encode
        return run_interventions(
            writing.decision, removals, reader=read, encode=encode, double=False
        )
    clean = read(SimpleNamespace(logits=writing.logits[None])).cpu().numpy()  # they are known
    return np.repeat(clean, len(removals), axis=0)


def make_reader(
    positions: Sequence[int], ids: Sequence[int], foils: Sequence[int | None]
) -> Reader:
    """A function that reads log-probabilities of tokens, each less that of its foil where it has
    one.

    Parameters
    ----------
    positions, ids : sequence of int [R]
    foils : sequence of int or None [R]
    """
    indices_by_position: dict[int, list[int]] = {}
    for index, position in enumerate(positions):
        indices_by_position.setdefault(position, []).append(index)
    has_foil = torch.tensor([foil is not None for foil in foils])
    tokens, other_tokens = torch.tensor(list(ids)), torch.tensor([foil or 0 for foil in foils])

    def read(output: ModelOutput) -> Tensor:
        logits = answer_logits(output)
        device = logits.device
        values = torch.empty(len(logits), len(ids), dtype=torch.float64, device=device)
        for position, indices in indices_by_position.items():
            # One position at a time: logits of all, in double precision, fill no cache.
            scores = logits[:, position].double().log_softmax(dim=-1)
            of_foils = torch.where(
                has_foil[indices].to(device), scores[:, other_tokens[indices].to(device)], 0.0
            )
            values[:, indices] = scores[:, tokens[indices].to(device)] - of_foils
        return values

    return read
