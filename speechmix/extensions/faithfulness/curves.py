"""Perturbation curves: the probability of the decision with the first words of an order removed, or
with them alone.

Words of an item are few, so sets of them recur between orders; each is run once (`RemovalMargins`),
several in a batch. With p(k) and q(k) the probability with the first k of W words removed, and with
only those kept, p(0) = q(W) that of the whole item:

    comprehensiveness    mean over k of p(0) - p(k)       sufficiency    mean over k of p(0) - q(k)
    deletion, insertion  area under p, under q, over the share of words

One by one, the first two leave out the ends, where the order plays no part (`scores`). In bins of
b %, the first ceil(b W / 100) words go. The soft versions leave every word in, scaled by its share
s_j in its row:

    soft comprehensiveness  samples of word j times 1 - s_j  a word with all of the row is muted
    soft sufficiency        samples of word j times s_j      and it alone is left

The expectation of Zhao & Aletras's (2023) random masks, in the sound. Recognisers hear log
energies: half the amplitude is 6 dB less and leaves a word intelligible, so soft numbers are
smaller than hard ones.

The package's reference perturbations: what the decision loses without each word.

    mute         the word's audio is replaced: mean over zeros, room tone, noise, another word
    blank        the word's tokens are replaced: mean over mask, unknown, padding, removal
    patch        the word's audio (tokens) is that of the other item of the pair
    knock-out    the word's values are zeroed in all layers of a stack, as in Value Zeroing
    states       reads how far the states of other words move, and no decision (state_perturbation.py)

A name may have fills: "mute (zeros)", "blank (mask, unk)". In: a decision (and its pair's). Out:
`RemovalEffects`: drops by word in nats (or of the probability), with `RemovalMargins`, which say
what happens without several words at once (for curves).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from ...errors import InputError, SpeechmixError
from ...interventions.value_knock_out import knock_out_words
from ..occlusion.input_ablation import list_fills, list_sides, side_stack
from ..occlusion.shapley import RemovalMargins
from ..patching.patching import patch
from .perturbations import PERTURBATIONS, get_perturbation, register_builtin
from .word_scores import COMPOSED, source_words

if TYPE_CHECKING:
    from ...interventions.decision import Decision

VALUES = ("margin", "probability")  # what a drop is of: nats, or the probability that they make


@dataclass(frozen=True, eq=False)
class RemovalEffects:
    """Effects of removing each word of an item, by one reference perturbation.

    Parameters
    ----------
    perturbation : str
    stacks : tuple of str
        Stacks whose sources the perturbation removes.
    drops : dict of int to float
        By index of the word: drop of the margin in nats, or of the probability.
    removals : tuple of RemovalMargins
        One for each fill; none where several words cannot be removed together.
    by_fill : dict of str to dict of int to float
        Drops by each fill alone, by the name of the perturbation with that fill.
    notes : tuple of str
        Fills that were not possible, and why.
    """

    perturbation: str
    stacks: tuple[str, ...]
    drops: dict[int, float]
    removals: tuple[RemovalMargins, ...] = ()
    by_fill: dict[str, dict[int, float]] = field(default_factory=dict)
    notes: tuple[str, ...] = field(default=())

    def word_drops(self, words: Sequence[int]) -> np.ndarray:
        """Return the drops of some words, [W]; NaN for a word without one."""
        return np.array([self.drops.get(word, np.nan) for word in words])


def default_perturbations(decision: Decision, *, has_pair: bool = False) -> tuple[str, ...]:
    """Return the reference perturbations that an item has by default."""
    return tuple(
        name
        for name, perturbation in PERTURBATIONS.items()
        if perturbation.applies and perturbation.applies(decision, has_pair)
    )


def removal_effects(
    perturbation: str, decision: Decision, pair: Decision | None = None, *, value: str = "margin"
) -> list[RemovalEffects]:
    """Measure the effects of a reference perturbation on an item, of knock-out for each stack.

    Parameters
    ----------
    perturbation : str
        Of `PERTURBATIONS`, alone or with fills.
    decision : Decision
    pair : Decision, optional
        Decision about the other item of the pair, for "patch".
    value : {"margin", "probability"}
        What drops are of; a probability only for removals from the input.

    Raises
    ------
    InputError
        If the perturbation is not possible for this item; it says why.
    """
    reference, fills = get_perturbation(perturbation)
    if value != "margin" and "value" not in reference.option_names:
        raise InputError(
            f"{perturbation} only has drops of the margin, of words; found {value} of {decision.units}s"
        )
    options = {
        name: option
        for name, option in {"fills": fills, "value": value}.items()
        if name in reference.option_names
    }
    effects_list = reference.function(decision, pair, **options)
    if isinstance(effects_list, Mapping):
        effects_list = [
            RemovalEffects(
                perturbation, _affected_stacks(decision, reference.side), dict(effects_list)
            )
        ]
    return [replace(effects, perturbation=perturbation) for effects in effects_list]


def split_fills(effects: RemovalEffects) -> list[RemovalEffects]:
    """Return mean effects over several fills, and those of each fill; of one fill, only its own."""
    fills = zip(effects.by_fill.items(), effects.removals, strict=True)
    fill_effects = [
        RemovalEffects(name, effects.stacks, drops, (removals,))
        for (name, drops), removals in fills
    ]
    return fill_effects if len(fill_effects) == 1 else [effects, *fill_effects]


def _affected_stacks(decision: Decision, side: str) -> tuple[str, ...]:
    stacks = (
        ("encoder", "cross", COMPOSED) if side_stack(decision, side) == "encoder" else ("decoder",)
    )
    return tuple(stack for stack in stacks if stack in decision.sources or stack == COMPOSED)


def _remove_words(
    kind: str,
    side: str,
    decision: Decision,
    pair: Decision | None,
    *,
    fills: Sequence[str] = (),
    value: str = "margin",
) -> list[RemovalEffects]:
    if side not in list_sides(decision):
        raise InputError(
            f"{decision.model.name} with {decision.name} has no {side} to remove words from"
        )
    words = [source.index for source in source_words(decision, side_stack(decision, side))]
    removal_margins, by_fill, notes = [], {}, []
    for fill in list_fills(decision, side, fills or None):
        margins = RemovalMargins(decision, side, fill)
        try:
            values = margins.margins([(), *((word,) for word in words)])
        except SpeechmixError as error:
            notes.append(f"{fill}: {error}")
            continue
        full_value, *removal_values = values if value == "margin" else margins.probabilities(values)
        removal_margins.append(margins)
        by_fill[f"{kind} ({fill})"] = {
            word: float(full_value - removal_value)
            for word, removal_value in zip(words, removal_values, strict=True)
        }
    if not removal_margins:
        name = f"{kind} ({', '.join(fills)})" if fills else kind
        raise InputError(
            f"{decision.name}: {name} is not possible: {'; '.join(notes) or 'no such fill'}"
        )
    drops = {
        word: float(np.mean([fill_drops[word] for fill_drops in by_fill.values()]))
        for word in words
    }
    stacks = _affected_stacks(decision, side)
    return [RemovalEffects(kind, stacks, drops, tuple(removal_margins), by_fill, tuple(notes))]


def _has_side(decision: Decision, has_pair: bool, *, side: str) -> bool:
    return side in list_sides(decision)


register_builtin(
    "mute",
    description="the sound of a word is replaced, mean over fills",
    side="sound",
    applies=partial(_has_side, side="sound"),
)(partial(_remove_words, "mute", "sound"))
register_builtin(
    "blank",
    description="the tokens of a word are replaced or removed, mean over fills",
    side="text",
    applies=partial(_has_side, side="text"),
)(partial(_remove_words, "blank", "text"))


@register_builtin(
    "patch",
    description="the sound or tokens of a word are those of the item's pair",
    applies=lambda decision, has_pair: has_pair and decision.units == "word",
)
def _patch_words(decision: Decision, pair: Decision | None) -> list[RemovalEffects]:
    if decision.units != "word":
        raise InputError(
            f"patch only has drops of the margin, of words; found margin of {decision.units}s"
        )
    if pair is None or pair.item is None or decision.item is None:
        raise InputError(f"{decision.name}: patch needs the other item of its pair (meta['pair'])")
    table = patch(decision.model, decision.item, pair.item, what="input").table
    stacks = _affected_stacks(decision, decision.model.capabilities.sides[0])
    return [RemovalEffects("patch", stacks, dict(zip(table["word"], table["drop"], strict=True)))]


@register_builtin(
    "knock-out",
    description="the value vectors of a word are zeroed in all layers of a stack",
    applies=lambda decision, has_pair: True,
    reported_last=True,
)
def _knock_out_words(decision: Decision, pair: Decision | None) -> list[RemovalEffects]:
    tables = {
        stack: knock_out_words(decision, stacks=[stack], window="all").table
        for stack, sources in decision.sources.items()
        if sources and stack in decision.model.stacks
    }
    return [
        RemovalEffects("knock-out", (stack,), dict(zip(table["word"], table["drop"], strict=True)))
        for stack, table in tables.items()
    ]


def removed_counts(word_count: int, bins: Sequence[float] | None) -> list[int]:
    """Return the number of removed words at each point of a curve, from 0.

    Examples
    --------
    >>> removed_counts(3, None), removed_counts(15, (1, 20, 50))
    ([0, 1, 2, 3], [0, 1, 3, 8])
    """
    if bins is None:
        return list(range(word_count + 1))
    # Rounded first: 20 % of 15 words are 3, and 3.0000000000000004 in floating point.
    return [0, *(ceil(round(percent * word_count / 100, 9)) for percent in bins)]


def removed_shares(word_count: int, bins: Sequence[float] | None) -> np.ndarray:
    """Return the percentage of removed words at each point of a curve, [P]."""
    return np.array([0, *bins]) if bins else 100 * np.arange(word_count + 1) / word_count


def perturbation_curves(
    effects: RemovalEffects,
    words: Sequence[int],
    orders: Sequence[Sequence[int]],
    counts: Sequence[int],
) -> np.ndarray:
    """Compute curves of removal and of insertion for each order, mean over the perturbation's
    fills.

    Parameters
    ----------
    effects : RemovalEffects
        With removals.
    words : sequence of int [W]
        Indices of the item's words.
    orders : sequence of sequence of int [N, W]
        Positions in `words`, most important first.
    counts : sequence of int [P]
        How many words are removed at each point.

    Returns
    -------
    ndarray [N, 2, P]
        Probability with the first words removed, and with only those kept.
    """
    curves_by_fill = []
    for removals in effects.removals:
        # Texts are short: all sets run together. Sounds of all sets would not fit in memory.
        batches = [orders] if removals.side == "text" else [[order] for order in orders]
        curves = [_read_curves(removals, words, batch, counts) for batch in batches]
        curves_by_fill.append(np.concatenate(curves))
    means: np.ndarray = np.mean(curves_by_fill, axis=0)
    return means


def _read_curves(
    removals: RemovalMargins,
    words: Sequence[int],
    orders: Sequence[Sequence[int]],
    counts: Sequence[int],
) -> np.ndarray:
    ranked_words = [[words[index] for index in order] for order in orders]
    removed_sets = [order[:count] for order in ranked_words for count in counts]
    remaining_sets = [order[count:] for order in ranked_words for count in counts]
    probabilities = removals.probabilities(removals.margins([*removed_sets, *remaining_sets]))
    curves: np.ndarray = probabilities.reshape(2, len(orders), len(counts)).swapaxes(0, 1)
    return curves


def soft_metrics(
    removals: RemovalMargins, words: Sequence[int], vectors: Sequence[np.ndarray]
) -> list[dict[str, float]]:
    """Compute soft comprehensiveness and sufficiency of several vectors of shares [W].

    Raises
    ------
    InputError
        If no sound is changed.
    """
    gains = [dict.fromkeys(words, 1.0)]
    for shares in vectors:
        gains += [
            dict(zip(words, (1 - shares).tolist(), strict=True)),
            dict(zip(words, shares.tolist(), strict=True)),
        ]
    full_probability, *soft_probabilities = removals.probabilities(removals.scaled_margins(gains))
    pairs = np.reshape(soft_probabilities, (-1, 2))
    return [
        {
            "soft_comprehensiveness": float(full_probability - removal_probability),
            "soft_sufficiency": float(full_probability - insertion_probability),
        }
        for removal_probability, insertion_probability in pairs
    ]
