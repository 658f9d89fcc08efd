"""What a reader must know before trusting one word's numbers, in plain sentences.

In: an `Explanation` and the index of a choice. Out: sentences: measures and effects of removal
disagree about the first source; fills disagree; a CTC model prefers a spelling without any sound.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...inputs.words.cue_and_target import end_sentence, name_in_sentence
from .fills import Fill
from .removal_measures import OCCLUSION

if TYPE_CHECKING:
    from .explanation_numbers import ExplanationNumbers

LEAST_NATS = 0.1  # an effect below this is none: then no source is first, and no sign counts


def list_remarks(explanation: ExplanationNumbers, choice_index: int) -> list[str]:
    """Sentences about one choice.

    Parameters
    ----------
    explanation : ExplanationNumbers
        `Explanation.without_own_sound` says it of the other sources.
    choice_index : int
        Among its choices.
    """
    return [
        *_spelling_remarks(explanation, choice_index),
        *_measure_remarks(explanation, choice_index),
        *_fill_remarks(explanation, choice_index),
    ]


def _spelling_remarks(explanation: ExplanationNumbers, choice_index: int) -> list[str]:
    margin, prior = (
        explanation.spellings.margin[choice_index],
        explanation.spellings.prior[choice_index],
    )
    if not np.isfinite(prior):
        return []
    by_fill = explanation.spellings.prior_by_fill[:, choice_index]
    low, high = (min(by_fill), max(by_fill)) if prior >= 0 else (-max(by_fill), -min(by_fill))
    return [
        f"The log probability of the text as written is {_compare_probability(margin)} than that of "
        "the text with the other spelling. If fills replace all words in the sound, it is "
        f"{_compare_probability(prior)} ({low:.1f} to {high:.1f} over the fills). "
        f"So the sound changes this difference by {margin - prior:+.1f} nats."
    ]


def _compare_probability(margin: float) -> str:
    return f"{abs(margin):.1f} nats {'higher' if margin >= 0 else 'lower'}"


def _measure_remarks(explanation: ExplanationNumbers, choice_index: int) -> list[str]:
    if np.isfinite(explanation.drops[choice_index]).sum() < 2:
        return []
    largest = _largest_source(explanation.drops[choice_index])
    others: dict[int, list[str]] = {}
    for name, attribution in explanation.attributions.items():
        known_values = np.where(
            np.isfinite(explanation.drops[choice_index]), attribution.values[choice_index], np.nan
        )
        first = _largest_source(known_values, least=0.0)
        if name != OCCLUSION and first is not None and first != largest:
            others.setdefault(first, []).append(name.replace("_", " "))
    if not others:
        return []
    named = "; ".join(
        f"{_join_names(names)} {'assigns' if len(names) == 1 else 'assign'} the highest score to "
        f"{explanation.source_name(choice_index, source)}"
        for source, names in others.items()
    )
    if largest is None:
        return [
            f"No single removal has an effect above {LEAST_NATS} nats. {end_sentence(f'However, {named}')}"
        ]
    return [
        f"Removing {explanation.source_name(choice_index, largest)} has the largest effect. "
        f"{end_sentence(f'However, {named}')}"
    ]


def _fill_remarks(explanation: ExplanationNumbers, choice_index: int) -> list[str]:
    drops, sentences = explanation.drop_by_fill[:, choice_index], []
    for side in ("sound", "text"):
        rows = [row for row, fill in enumerate(explanation.fills) if fill.side == side]
        firsts = {row: _largest_source(drops[row]) for row in rows if np.isfinite(drops[row]).any()}
        if len(set(firsts.values())) > 1:
            what = "segment" if side == "sound" else "word"
            first_sources_text = " ".join(
                f"{_fill_phrase(explanation.fills[row])}, "
                + (
                    f"no {what} has an effect above {LEAST_NATS} nats."
                    if source is None
                    else end_sentence(
                        f"it is {name_in_sentence(explanation.source_name(choice_index, source))}"
                    )
                )
                for row, source in firsts.items()
            )
            whole = "the sound" if side == "sound" else "the text"
            sentences.append(
                f"The {what} of {whole} with the largest effect differs between fills. "
                f"{first_sources_text}"
            )
    low, high = explanation.drop_range
    mixed = np.flatnonzero((low[choice_index] <= -LEAST_NATS) & (high[choice_index] >= LEAST_NATS))
    if len(mixed):
        named = _join_names(
            [explanation.source_name(choice_index, index) for index in mixed.tolist()]
        )
        sentences.append(
            f"Whether the removal of {named} raises or lowers the word's probability depends on the "
            "fill."
        )
    return sentences


def _largest_source(values: np.ndarray, *, least: float = LEAST_NATS) -> int | None:
    """The source with the largest value; None if no value reaches the least."""
    filled_values = np.where(np.isfinite(values), values, -np.inf)
    return (
        int(filled_values.argmax()) if len(filled_values) and filled_values.max() > least else None
    )


def _fill_phrase(fill: Fill) -> str:
    return "After removal" if fill.name == "remove" else f"With {fill.label}"


def _join_names(labels: Sequence[str]) -> str:
    names = [name_in_sentence(label) for label in labels]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
