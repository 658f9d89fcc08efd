"""The package's reference perturbations: what the decision loses without each word. They know
nothing of the measures.

    silence      its sound is replaced: mean over digital silence, room tone, noise, another word
    blank        its tokens are replaced: mean over mask, unknown, padding, removal
    patch        its sound (tokens) is that of the item's pair, which says the same but for the cue
    knock-out    its values are zeroed in all layers of a stack, as Value Zeroing does: set apart
    states       no decision is read, but how far the states of other words move (states.py)

One fill alone, or some, are a reference, too: "silence (zeros)", "blank (mask, unk)". In: a
decision (and its pair's). Out: `Verdict`s, drops by word in nats (or of the probability), with
`RemovalMargins`, which say what happens without several words at once (for curves).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ...errors import InputError, SpeechmixError
from ...interventions.input_ablation import list_fills, list_sides, side_stack
from ...interventions.knock_out import knock_out_words
from ...interventions.patching import patch
from ...interventions.removal_margins import RemovalMargins
from .perturbations import PERTURBATIONS, package_perturbation, perturbation_named
from .words import COMPOSED, source_words

if TYPE_CHECKING:
    from ...interventions.decision import Decision

VALUES = ("margin", "probability")  # what a drop is of: nats, or the probability that they make


@dataclass(frozen=True, eq=False)
class Verdict:
    """What a judge says of the words of an item.

    Parameters
    ----------
    judge : str
    stacks : tuple of str
        Whose scores of words it can judge: those whose sources it takes away.
    drops : dict of int to float
        By index of the word, in nats; or of the probability, if the judge was asked for that.
    removals : tuple of RemovalMargins
        One for each fill; none where several words cannot be taken away together.
    by_fill : dict of str to dict of int to float
        Drops by each fill alone, by its name as a judge.
    notes : tuple of str
        Fills that were not possible, and why.
    """

    judge: str
    stacks: tuple[str, ...]
    drops: dict[int, float]
    removals: tuple[RemovalMargins, ...] = ()
    by_fill: dict[str, dict[int, float]] = field(default_factory=dict)
    notes: tuple[str, ...] = field(default=())

    def of(self, words: Sequence[int]) -> np.ndarray:
        """Drops of some words, [W]; NaN for a word that was not judged."""
        return np.array([self.drops.get(word, np.nan) for word in words])


def judges_of(decision: Decision, *, has_pair: bool = False) -> tuple[str, ...]:
    """Return the reference perturbations that an item has by default."""
    return tuple(
        name
        for name, one in PERTURBATIONS.items()
        if one.applies and one.applies(decision, has_pair)
    )


def verdicts(
    judge: str, decision: Decision, pair: Decision | None = None, *, value: str = "margin"
) -> list[Verdict]:
    """Return the effects of a reference perturbation on an item: one verdict, of knock-outs one for
    each stack.

    Parameters
    ----------
    judge : str
        Of `PERTURBATIONS`, or one with a fill.
    decision : Decision
    pair : Decision, optional
        Of the pair's other member, for "patch".
    value : {"margin", "probability"}
        What drops are of; a probability for what is taken out of the input alone.

    Raises
    ------
    InputError
        If the perturbation is not possible for this item; it says why.
    """
    perturbation, fills = perturbation_named(judge)
    if value != "margin" and "value" not in perturbation.takes:
        raise InputError(
            f"{judge} gives drops of the margin, of words; found {value} of {decision.units}s"
        )
    options = {
        name: given
        for name, given in {"fills": fills, "value": value}.items()
        if name in perturbation.takes
    }
    found = perturbation.function(decision, pair, **options)
    if isinstance(found, Mapping):
        found = [Verdict(judge, _stacks_of(decision, perturbation.side), dict(found))]
    return [replace(verdict, judge=judge) for verdict in found]


def each_fill(verdict: Verdict) -> list[Verdict]:
    """A verdict that is the mean over several fills, and what each of them says; of one fill, that
    alone."""
    fills = zip(verdict.by_fill.items(), verdict.removals, strict=True)
    alone = [
        Verdict(judge, verdict.stacks, drops, (removals,)) for (judge, drops), removals in fills
    ]
    return alone if len(alone) == 1 else [verdict, *alone]


def _stacks_of(decision: Decision, side: str) -> tuple[str, ...]:
    stacks = (
        ("encoder", "cross", COMPOSED) if side_stack(decision, side) == "encoder" else ("decoder",)
    )
    return tuple(stack for stack in stacks if stack in decision.sources or stack == COMPOSED)


def _by_removal(
    kind: str,
    side: str,
    decision: Decision,
    pair: Decision | None,
    *,
    fills: Sequence[str] = (),
    value: str = "margin",
) -> list[Verdict]:
    if side not in list_sides(decision):
        raise InputError(
            f"{decision.model.name} with {decision.name} has no {side} to take words out of"
        )
    words = [source.index for source in source_words(decision, side_stack(decision, side))]
    removals, by_fill, notes = [], {}, []
    for fill in list_fills(decision, side, fills or None):
        removal = RemovalMargins(decision, side, fill)
        try:
            values = removal.margins([(), *((word,) for word in words)])
        except SpeechmixError as error:
            notes.append(f"{fill}: {error}")
            continue
        intact, *without = values if value == "margin" else removal.probabilities(values)
        removals.append(removal)
        by_fill[f"{kind} ({fill})"] = {
            word: float(intact - left) for word, left in zip(words, without, strict=True)
        }
    if not removals:
        named = f"{kind} ({', '.join(fills)})" if fills else kind
        raise InputError(
            f"{decision.name}: {named} is not possible: {'; '.join(notes) or 'no such fill'}"
        )
    drops = {
        word: float(np.mean([of_fill[word] for of_fill in by_fill.values()])) for word in words
    }
    stacks = _stacks_of(decision, side)
    return [Verdict(kind, stacks, drops, tuple(removals), by_fill, tuple(notes))]


def _has_side(decision: Decision, has_pair: bool, *, side: str) -> bool:
    return side in list_sides(decision)


package_perturbation(
    "silence",
    description="the sound of a word is replaced, mean over fills",
    side="sound",
    applies=partial(_has_side, side="sound"),
)(partial(_by_removal, "silence", "sound"))
package_perturbation(
    "blank",
    description="the tokens of a word are replaced or removed, mean over fills",
    side="text",
    applies=partial(_has_side, side="text"),
)(partial(_by_removal, "blank", "text"))


@package_perturbation(
    "patch",
    description="the sound or tokens of a word are those of the item's pair",
    applies=lambda decision, has_pair: has_pair and decision.units == "word",
)
def _patch(decision: Decision, pair: Decision | None) -> list[Verdict]:
    if decision.units != "word":
        raise InputError(
            f"patch gives drops of the margin, of words; found margin of {decision.units}s"
        )
    if pair is None or pair.item is None or decision.item is None:
        raise InputError(
            f"{decision.name}: no other member of its pair to take words from (meta['pair'])"
        )
    table = patch(decision.model, decision.item, pair.item, what="input").table
    stacks = _stacks_of(decision, decision.model.capabilities.sides[0])
    return [Verdict("patch", stacks, dict(zip(table["word"], table["drop"], strict=True)))]


@package_perturbation(
    "knock-out",
    description="the value vectors of a word are zeroed in all layers of a stack",
    applies=lambda decision, has_pair: True,
    apart=True,
)
def _knock_out(decision: Decision, pair: Decision | None) -> list[Verdict]:
    tables = {
        stack: knock_out_words(decision, stacks=[stack], window="all").table
        for stack in decision.sources
    }
    return [
        Verdict("knock-out", (stack,), dict(zip(table["word"], table["drop"], strict=True)))
        for stack, table in tables.items()
    ]
