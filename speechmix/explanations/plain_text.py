"""An explanation as plain text: each word, what measures assign to its first sources, and the
effects of removing sources.

In: an `Explanation`. Out: lines for a terminal, and for a page where no script runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ..interventions.removal_measures import OCCLUSION
from .tables import sort_sources
from .warnings_for_readers import remarks_of

if TYPE_CHECKING:
    from .numbers import ExplanationNumbers

SAME_FOR_ALL = "almost the same for every word"
_FIRST = 2  # sources in a line
_LEGEND = (
    "[lowest to highest over fills]; specific: percentage points of the attribution more than for "
    "the other words"
)


def text_of(explanation: ExplanationNumbers) -> str:
    """All words of an explanation with their first sources."""
    lines = [f"{explanation.item}: {explanation.text}", f"  {explanation.by}", f"  {_LEGEND}"]
    lines += [f"  the word times may be wrong: {doubt}" for doubt in explanation.doubts]
    lines += [f"  error: {error}" for error in explanation.errors]
    besides = explanation.without_own_sound()
    for place, choice in enumerate(explanation.choices):
        lines.append(f"  {choice.name}  p = {choice.probability:.3g}")
        for name, claim in explanation.claims.items():
            if name == OCCLUSION:
                continue
            mark = "" if explanation.tells_words_apart(name) else f"; {SAME_FOR_ALL}"
            lines.append(
                _line(
                    f"{name} ({claim.unit}{mark})",
                    *_of_both(explanation, besides, place, _claimed, name),
                )
            )
        title = (
            "occlusion (loss, nats)" if OCCLUSION in explanation.claims else "removal (loss, nats)"
        )
        lines += (
            [_line(title, *of_effect)]
            if (of_effect := _of_both(explanation, besides, place, _effects))[0]
            else []
        )
        remarks, of_others = remarks_of(explanation, place), remarks_of(besides, place)
        lines += [f"    {remark}" for remark in remarks]
        lines += [
            f"    Besides its own sound: {remark}" for remark in of_others if remark not in remarks
        ]
    return "\n".join(lines)


def _of_both(
    explanation: ExplanationNumbers,
    besides: ExplanationNumbers,
    place: int,
    listed: Callable[..., tuple[list[int], str]],
    *names: str,
) -> tuple[str, str]:
    """The first sources, and those besides the word's own sound where that is one of them."""
    sources, told = listed(explanation, place, *names)
    others = (
        listed(besides, place, *names)[1] if explanation.own_sound[place, sources].any() else ""
    )
    return told, others


def _line(title: str, told: str, others: str) -> str:
    return f"    {title:<24} {told}" + (f"; besides its own sound: {others}" if others else "")


def _claimed(explanation: ExplanationNumbers, place: int, name: str) -> tuple[list[int], str]:
    claim = explanation.claims[name]
    order = sort_sources(claim.values[place])[:_FIRST]
    return order, ", ".join(
        f"{explanation.source_name(place, i)} "
        f"{claim.values[place, i]:+.2g}{_specific(explanation, place, name, i)}"
        for i in order
    )


def _effects(explanation: ExplanationNumbers, place: int) -> tuple[list[int], str]:
    (low, high), order = explanation.drop_range, sort_sources(explanation.drops[place])[:_FIRST]
    return order, ", ".join(
        f"{explanation.source_name(place, i)} "
        f"{explanation.drops[place, i]:+.3g}{_range(low[place, i], high[place, i])}"
        f"{_specific(explanation, place, OCCLUSION, i)}, without it p = "
        f"{explanation.probability_without[place, i]:.3g}"
        for i in order
    )


def _range(low: float, high: float) -> str:
    return "" if low == high else f" [{low:+.3g} to {high:+.3g}]"


def _specific(explanation: ExplanationNumbers, place: int, name: str, source: int) -> str:
    """In points of share."""
    specific = explanation.specific.get(name)
    if specific is None or np.isnan(specific[place, source]):
        return ""
    return f" (specific {100 * specific[place, source]:+.0f})"
