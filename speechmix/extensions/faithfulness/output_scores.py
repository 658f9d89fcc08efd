"""Word scores of measures that attribute the output to the input.

In: a decision and a measure. Out: `WordScores` of aggregation "to the output", in the stack of a
model that has one; of several in "composed" (what the encoder is given) and "decoder" (what the
decoder is fed).

    gradients        of the margin that perturbations read, at the states that enter the first layer of each stack (sizes)
    chefer           sizes, of a sum of logits that stands for the margin (`measures.sums_of_logits`)
    alti_logit, decompx, lrp    parts of that sum of logits, which have a sign
    occlusion, shapley          nats that words take away, one by one and in all sets, with one fill, as references do
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ...errors import InputError
from ...interventions.removals import SOUND_FILLS, TOKEN_FILLS
from ...mixing.maps.measure_registry import find_facts, measure_facts, measure_names
from ...mixing.measures.token_objectives import Objective
from ..explain.removals import score_words_by_removal
from ..logit_decompositions.input_attribution import (
    check_reaches_audio,
    input_attributions,
    sum_at_positions,
)
from ..logit_decompositions.sums_of_logits import split_into_logits
from ..occlusion.input_ablation import list_fills, list_sides, side_stack
from .perturbations import perturbation_side, split_fills_from_name
from .word_scores import COMPOSED, TO_THE_OUTPUT, WordScores, source_words

if TYPE_CHECKING:
    from ...interventions.decision import Decision


def explains_output(measure: str) -> bool:
    """Whether a measure explains the margin itself; maps of layers do not."""
    return is_removal_measure(measure) or measure_facts(measure).objective


def is_removal_measure(measure: str) -> bool:
    """Return whether a measure removes words, as reference perturbations do."""
    facts = find_facts(split_fills_from_name(measure)[0])
    return facts is not None and facts.scope == "removal"


def check_removal_measure(measure: str) -> None:
    """Raise `InputError` unless it is a measure of scope "removal", by itself or with one fill, as
    "shapley (room)"."""
    fills = split_fills_from_name(measure)[1]
    if (
        not is_removal_measure(measure)
        or len(fills) > 1
        or set(fills) - {*SOUND_FILLS, *TOKEN_FILLS}
    ):
        raise InputError(
            f"expected {' or '.join(measure_names('removal'))}, or with one fill of "
            f"{', '.join((*SOUND_FILLS, *TOKEN_FILLS))}, as 'shapley (room)'; found {measure!r}"
        )


def has_same_removal(measure: str, perturbation: str) -> bool:
    """Return whether a measure removes words as a perturbation does, with one of its fills: it then
    knows the answer.

    Examples
    --------
    >>> has_same_removal("occlusion (zeros)", "mute"), has_same_removal("occlusion (zeros)", "mute (room)")
    (True, False)
    """
    fills, reference_fills = (
        split_fills_from_name(measure)[1],
        split_fills_from_name(perturbation)[1],
    )
    side_fills = {"sound": SOUND_FILLS, "text": TOKEN_FILLS}.get(
        perturbation_side(perturbation), ()
    )
    return is_removal_measure(measure) and any(
        fill in (reference_fills or side_fills) for fill in fills
    )


def output_scores(decision: Decision, measure: str) -> Iterator[WordScores]:
    """Yield the scores of the competing words of each side.

    Parameters
    ----------
    decision : Decision
    measure : str
        Of scope "logit", of one number, or of scope "removal"; the last by their first fill, which
        the row is named by.

    Raises
    ------
    InputError
        If the measure is not defined for the model, or nothing can take the place of words.
    """
    score_sides = (
        _score_by_removal_measure if is_removal_measure(measure) else _score_by_attribution
    )
    for stack, name, values in score_sides(decision, measure):
        if len(values):
            yield WordScores(stack, name, TO_THE_OUTPUT, None, values)


def _score_by_attribution(
    decision: Decision, measure: str
) -> Iterator[tuple[str, str, np.ndarray]]:
    check_reaches_audio(decision.model, measure)
    if decision.item is None:
        raise InputError("prepared inputs have no words to rank: give clips or sentences")
    columns, _ = input_attributions(
        decision.model,
        decision.item,
        measure,
        [_objectives(decision, measure)],
        units=decision.units,
    )
    for side in decision.sources:
        stack = _row_stack(decision, side)
        if side not in decision.model.capabilities.input_stacks:
            continue
        words = source_words(decision, stack)
        values = sum_at_positions(columns, [(side, word.positions) for word in words])[0]
        unreached_labels = [
            word.label for word, value in zip(words, values, strict=True) if np.isnan(value)
        ]
        if unreached_labels:
            raise InputError(
                f"{decision.name}: {measure} does not reach {', '.join(unreached_labels)}"
            )
        yield stack, measure, values


def _objectives(decision: Decision, measure: str) -> list[Objective]:
    """Return the margin as a measure can explain it: itself, or as logits at one position each."""
    if not measure_facts(measure).at_one_position:
        return [decision.objective]
    logits = decision.read_output(decision.prepared.inputs, lambda output: output.logits.double())
    return split_into_logits(decision.objective, decision.model, logits)


def _score_by_removal_measure(
    decision: Decision, measure: str
) -> Iterator[tuple[str, str, np.ndarray]]:
    kind, requested_fills = split_fills_from_name(measure)
    sides = [side for side in list_sides(decision) if side != "both"]
    fills_by_side = {
        side: list_fills(decision, side, requested_fills or None)[:1] for side in sides
    }
    if not any(fills_by_side.values()):
        raise InputError(
            f"{decision.name}: nothing that can be taken away has the fill {', '.join(requested_fills)}"
        )
    for side, fills in fills_by_side.items():
        stack = _row_stack(decision, side_stack(decision, side))
        words = [word.index for word in source_words(decision, stack)]
        for fill in fills if words else ():
            scores = score_words_by_removal(decision, kind, side=side, fill=fill)
            yield stack, f"{kind} ({fill})", np.array([scores.get(word, np.nan) for word in words])


def _row_stack(decision: Decision, side: str) -> str:
    """Return the stack in which the words of a side are listed."""
    return COMPOSED if side == "encoder" and len(decision.model.stacks) > 1 else side
