"""Remove sources from the input, one by one or in sets, and read every written token again.

In: a `Writing`, and `Removal`s: which sources, and what replaces them. Out: numbers read of the
logits, [runs, readings]. The sound of a word is replaced (`interventions.sound`), the tokens of a
text are replaced or left out (`interventions.tokens`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..inputs.clips.clip import Clip
from ..inputs.words.spans import Span
from ..interventions.audio_removal import silence
from ..interventions.input_ablation import inputs_of_sound
from ..interventions.token_removal import blanked
from ..mixing.measures.objectives import Objective, token_logits
from .fills import REMOVE, SOUND, Fill

if TYPE_CHECKING:
    from torch import Tensor

    from .generated_tokens import Writing

_AT_ONCE = 64  # changed inputs that are in memory
Read = Callable[[Any], "Tensor"]  # output of n runs to [n, R]
Rows = (
    tuple[int, ...] | None
)  # where each former position is read now, -1 for nowhere; None: where it was


@dataclass(frozen=True)
class Removal:
    """One run: some sources are removed together.

    Parameters
    ----------
    sources : tuple of int
        Indices into ``writing.sources``; none is the run as it is.
    sound, text : Fill or None
        What replaces sources of the sound, and of a text.
    """

    sources: tuple[int, ...] = ()
    sound: Fill | None = None
    text: Fill | None = None


def inputs_without(writing: Writing, removal: Removal) -> tuple[dict[str, Tensor], Rows]:
    """Inputs with some sources removed together, and where the logits of the former positions are
    read in them."""
    decision, inputs = writing.decision, dict(writing.inputs)
    units = [writing.sources[index] for index in removal.sources]
    words = [unit.source.index for unit in units if unit.side == SOUND]
    if words and removal.sound is not None and isinstance(decision.item, Clip):
        inputs |= inputs_of_sound(decision, silence(decision.item, words, fill=removal.sound.name))
    rows: Rows = None
    own_text = "decoder_input_ids" if "cross" in decision.model.stacks else "input_ids"
    names = {"read": "input_ids", "asked": "input_ids", "written": own_text}
    for name in dict.fromkeys(names[unit.side] for unit in units if unit.side != SOUND):
        positions = [
            p for unit in units if names.get(unit.side) == name for p in unit.source.positions
        ]
        fill = _as_blanked(removal.text, converses=decision.model.converses)
        inputs, remaining = blanked(decision.model, inputs, positions, fill=fill, side=name)
        if fill == REMOVE and name == own_text:
            rows = _rows_of(remaining, len(remaining) + len(set(positions)))
    return inputs, rows


def _as_blanked(fill: Fill | None, *, converses: bool) -> str | int:
    """A fill as `interventions.tokens` takes it. Only padding goes by its name: it is left out of
    the attention, too.

    In an audio language model even padding goes by its id, for positions of the sound would move.
    """
    if fill is None or fill.token is None:
        return REMOVE
    return fill.name if fill.name == "pad" and not converses else fill.token


def _rows_of(remaining: Sequence[int], length: int) -> tuple[int, ...]:
    """For each former position the present row of the last token up to it, which decides what
    follows.

    Examples
    --------
    >>> _rows_of([0, 1, 4], 5)
    (0, 1, 1, 1, 2)
    """
    return tuple(
        int(row) for row in np.searchsorted(remaining, np.arange(length), side="right") - 1
    )


def read_without(writing: Writing, removals: Sequence[Removal], read: Read) -> np.ndarray:
    """What is read of each run.

    Parameters
    ----------
    writing : Writing
    removals : sequence of Removal
    read : callable
        Output of n runs to Tensor [n, R].

    Returns
    -------
    ndarray [removals, R]
        NaN where nothing is left before what is read.
    """
    if not any(removal.sources for removal in removals):  # its logits are known
        clean = read(SimpleNamespace(logits=writing.logits[None])).cpu().numpy()
        return np.repeat(clean, len(removals), axis=0)
    found = dict[int, Any]()
    for start in range(0, len(removals), _AT_ONCE):
        by_rows: dict[Rows, list[tuple[int, dict[str, Tensor]]]] = {}
        for place, removal in enumerate(removals[start : start + _AT_ONCE], start=start):
            inputs, rows = inputs_without(writing, removal)
            keeps_sound = all(writing.sources[index].side != SOUND for index in removal.sources)
            inputs = writing.decision.with_encoded_sound(inputs) if keeps_sound else inputs
            by_rows.setdefault(rows, []).append((place, inputs))
        for rows, runs in by_rows.items():
            decision = writing.decision.reading(Objective(_read_at(read, rows), Span(0, 1)))
            values = decision.of_many_inputs([(inputs, None) for _, inputs in runs])
            found |= dict(zip((place for place, _ in runs), values, strict=True))
    return np.array([found[place] for place in range(len(removals))], dtype=float)


def _read_at(read: Read, rows: Rows) -> Read:
    """The same reading where tokens have moved."""
    if rows is None:
        return read
    unread = [place for place, row in enumerate(rows) if row < 0]

    def read_moved(output: Any) -> Tensor:
        logits = token_logits(output)[:, list(rows)]
        logits[:, unread] = torch.nan
        return read(SimpleNamespace(logits=logits))

    return read_moved


def reading_of(positions: Sequence[int], ids: Sequence[int], foils: Sequence[int | None]) -> Read:
    """A function that reads log-probabilities of tokens, each less that of its foil where it has
    one.

    Parameters
    ----------
    positions, ids : sequence of int [R]
    foils : sequence of int or None [R]
    """
    places = sorted(set(positions))
    at = [places.index(position) for position in positions]
    has_foil = torch.tensor([foil is not None for foil in foils])
    others = [foil or 0 for foil in foils]

    def read(output: Any) -> Tensor:
        scores = token_logits(output)[:, places].log_softmax(dim=-1)
        of_foils = torch.where(
            has_foil.to(scores.device),
            scores[:, at, others],
            torch.zeros_like(scores[:, at, others]),
        )
        return scores[:, at, list(ids)] - of_foils

    return read
