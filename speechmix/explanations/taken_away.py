"""What is shown: sources taken out of the input, one by one or in sets, and every written token read again.

In: a `Writing`, which sources, and what takes their place. Out: numbers read of the logits, [runs, readings]. The sound of a
word is silenced (`interventions.sound`), the tokens of a text are blanked (`interventions.tokens`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..errors import InputError
from ..inputs.clips import Clip
from ..inputs.spans import Span
from ..interventions.input_ablation import inputs_of_sound
from ..interventions.sound import SOUND_FILLS, silence
from ..interventions.tokens import blanked, id_of_fill, token_fills
from ..measures.objectives import Objective, logits_of

if TYPE_CHECKING:
    from torch import Tensor

    from .written import SourceUnit, Writing

_AT_ONCE = 64  # changed inputs that are in memory


@dataclass(frozen=True)
class Fills:
    """What takes the place of a source.

    Parameters
    ----------
    sound : {"zeros", "room", "noise", "word"}
    tokens : {"mask", "unk", "pad"} or None
        None where no text is taken away: there is none, or the tokenizer has nothing to blank it with.
    """

    sound: str = "zeros"
    tokens: str | None = None

    def can_replace(self, source: SourceUnit) -> bool:
        """Whether there is something to put in its place."""
        return source.side == "sound" or self.tokens is not None

    @property
    def needed_for_tokens(self) -> str:
        """What takes the place of tokens.

        Raises
        ------
        InputError
            If the tokenizer has nothing.
        """
        if self.tokens is None:
            raise InputError(
                "the tokenizer has no mask, unknown or padding token to blank a text with: no text is taken away"
            )
        return self.tokens

    @property
    def described(self) -> dict[str, str | None]:
        return {"sound_fill": self.sound, "token_fill": self.tokens}


def fills_for(writing: Writing, *, sound: str, tokens: str | None) -> Fills:
    """Fills that are possible; of tokens the first that the model has, unless one is named.

    Raises
    ------
    InputError
        For one that is not. Tokens are never removed, for what is read of the others would move.
    """
    if sound not in SOUND_FILLS:
        raise InputError(f"sound_fill should be one of {SOUND_FILLS}, found {sound!r}")
    if all(source.side == "sound" for source in writing.sources):
        if tokens is not None:
            raise InputError(f"token_fill={tokens!r}: {writing.model.name} is fed no text whose words could be blanked")
        return Fills(sound)
    possible = [fill for fill in token_fills(writing.model) if fill != "remove"]
    if tokens is not None and tokens not in possible:
        raise InputError(f"token_fill should be one of {possible} for {writing.model.name}, found {tokens!r}")
    return Fills(sound, tokens or next(iter(possible), None))


def inputs_without(writing: Writing, taken: Sequence[int], fills: Fills) -> dict[str, Tensor]:
    """Inputs with some sources taken away together.

    Raises
    ------
    InputError
        If there is nothing to fill with.
    """
    decision, inputs = writing.decision, dict(writing.inputs)
    units = [writing.sources[index] for index in taken]
    words = [unit.source.index for unit in units if unit.side == "sound"]
    if words and isinstance(decision.item, Clip):
        inputs |= inputs_of_sound(decision, silence(decision.item, words, fill=fills.sound))
    has_decoder_behind = "cross" in decision.model.stacks
    written_in = "decoder_input_ids" if has_decoder_behind else "input_ids"
    for side, name in (("read", "input_ids"), ("asked", "input_ids"), ("written", written_in)):
        positions = [position for unit in units if unit.side == side for position in unit.source.positions]
        if positions:
            fill: str | int | None = fills.needed_for_tokens
            if decision.model.converses:  # by its id: where attention is masked, positions of the sound would move
                fill = id_of_fill(decision.model, fills.needed_for_tokens)
            inputs, _ = blanked(decision.model, inputs, positions, fill=fill or 0, side=name)
    return inputs


def read_without(
    writing: Writing, sets: Sequence[Sequence[int]], fills: Fills, read: Callable[[Any], Tensor]
) -> np.ndarray:
    """What is read of the run without each set of sources.

    Parameters
    ----------
    writing : Writing
    sets : sequence of sequence of int
        Indices into ``writing.sources``; none of them is the run as it is.
    fills : Fills
    read : callable
        Output of n runs to Tensor [n, R].

    Returns
    -------
    ndarray [sets, R]
    """
    if not any(sets):  # its logits are known
        clean = read(SimpleNamespace(logits=writing.logits[None])).cpu().numpy()
        return np.repeat(clean, len(sets), axis=0)
    decision = writing.decision.reading(Objective(read, Span(0, 1)))
    rows: list[Any] = []
    for start in range(0, len(sets), _AT_ONCE):
        changed = []
        for taken in sets[start : start + _AT_ONCE]:
            inputs = inputs_without(writing, taken, fills)
            keeps_sound = all(writing.sources[index].side != "sound" for index in taken)
            changed.append((decision.with_encoded_sound(inputs) if keeps_sound else inputs, None))
        rows += decision.of_many_inputs(changed)
    return np.array(rows, dtype=float)


def reading_of(positions: Sequence[int], ids: Sequence[int], foils: Sequence[int | None]) -> Callable[[Any], Tensor]:
    """A function that reads log-probabilities of tokens, each less that of its foil where it has one.

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
        scores = logits_of(output)[:, places].log_softmax(dim=-1)
        of_foils = torch.where(
            has_foil.to(scores.device), scores[:, at, others], torch.zeros_like(scores[:, at, others])
        )
        return scores[:, at, list(ids)] - of_foils

    return read
