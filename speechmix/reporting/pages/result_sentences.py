"""Describe the contribution of the cue in sentences.

In: rows of whole stacks (`study_tables.stack_rows`). Out: plain sentences with the numbers, what
they are, and what they do not show. Sentences speak of stacks, not of layer numbers, so that idle
layers and the order of layers change none of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from ...adapters.families.capabilities import stack_phrase
from ...evaluation.statistics.grouped_means import TableRow
from ...evaluation.statistics.intervals import FEWEST_GROUPS
from ...evaluation.statistics.random_twin_comparison import STRENGTH
from ...evaluation.statistics.twin_rank_test import FALSE_CLAIM_RATE, TWINS_NEEDED
from ...mixing.maps.measure_facts import measure_label
from ...mixing.maps.measure_registry import leading_measure
from ...mixing.maps.numerics import STRENGTH_FLOOR
from ..plots.figure_style import model_name
from .table_format import format_interval, format_p, format_strength

_EFFECT_SIZES = ((0.2, "negligible"), (0.5, "small"), (0.8, "medium"), (float("inf"), "large"))


def format_twins(count: int) -> str:
    """Say what this number of untrained twins can show.

    Examples
    --------
    >>> format_twins(10)
    '10 untrained twins: no difference can be significant, because p cannot be below 2 / 11. At
    least 39 twins are needed.'
    >>> format_twins(39)
    '39 untrained twins: enough for the test. In any one row of the table, a further untrained model
    would lie within the range of the twins in 95 % of cases.'
    """
    if count == 0:
        return "No untrained twin: there is nothing to compare a trained model with."
    count_text = f"{count} untrained twin{'' if count == 1 else 's'}"
    if count < TWINS_NEEDED:
        reason = f", because p cannot be below 2 / {count + 1}" if count > 1 else ""
        return (
            f"{count_text}: no difference can be significant{reason}. At least {TWINS_NEEDED} twins "
            "are needed."
        )
    range_share = f"{100 * (count - 1) / (count + 1):.0f} %"
    return (
        f"{count_text}: enough for the test. In any one row of the table, a further untrained model "
        f"would lie within the range of the twins in {range_share} of cases."
    )


def unclaimed_reason(row: TableRow) -> str:
    """Say why a row cannot be significant, whatever its numbers; "" if it can.

    Examples
    --------
    >>> unclaimed_reason({"groups": 2, "twins": 39}), unclaimed_reason({"groups": 20, "twins": 3})
    ('With 2 groups of clips no difference is tested (8 are needed)', 'With 3 untrained
    twins no difference can be significant (39 are needed)')
    """
    if row["groups"] < FEWEST_GROUPS:
        return (
            f"With {format_count(row['groups'], 'group')} of clips no difference is tested "
            f"({FEWEST_GROUPS} are needed)"
        )
    if row["twins"] < TWINS_NEEDED:
        return (
            f"With {format_count(row['twins'], 'untrained twin')} no difference can be significant "
            f"({TWINS_NEEDED} are needed)"
        )
    return ""


def is_idle(row: TableRow) -> bool:
    """Whether no layer of a stack moves the target's state by as much as the floor."""
    return bool(row.get(STRENGTH, float("nan")) < STRENGTH_FLOOR)


def result_sentences(headline: pd.DataFrame, *, max_sentences: int = 12) -> list[str]:
    """Write one paragraph for each model, stack and side, by Value Zeroing (by the first measure
    without it).

    Parameters
    ----------
    headline : DataFrame
        Of whole stacks (`Study.headline`).
    """
    rows = headline[headline.measure == leading_measure(headline.measure.unique())]
    return [_result_sentence(row) for row in rows.head(max_sentences).to_dict("records")]


def _result_sentence(row: TableRow) -> str:
    side = f", {row['side']} cue" if row.get("side", "all") != "all" else ""
    model_and_stack = f"{model_name(row['model'])}, {stack_phrase(row['stack'])}{side}"
    opening = f"{model_and_stack}: by {measure_label(row['measure'])}, the cue contributes "
    if row["trained"] != row["trained"]:
        return (
            f"{opening}{row['random']:.1f} % to the target in the untrained twins. The run has no "
            "trained model."
        )
    opening += f"{row['trained']:.1f} % to the target"
    if row["random"] != row["random"]:
        return f"{opening}. The run has no untrained twin to compare with."
    twins = f"{row['random']:.1f} % in {format_count(row['twins'], 'untrained twin')}"
    if row["twin_low"] == row["twin_low"]:
        twins += f" (range: {format_interval(row['twin_low'], row['twin_high'], share=True)} %)"
    return (
        f"{opening} in the trained model, and {twins}. The difference is "
        f"{row['difference']:+.1f} percentage points{_difference_details(row)}. "
        f"{_claim_sentence(row)}{_length_sentence(row)}"
    )


def _difference_details(row: TableRow) -> str:
    """List interval, test and spread of a difference, as far as they can be stated."""
    interval, p = format_interval(row["low"], row["high"]), format_p(row["p"])
    effect_size = next(
        effect_size for limit, effect_size in _EFFECT_SIZES if not abs(row["effect"]) >= limit
    )
    details = [
        f"95 % confidence interval {interval}" if interval else "",
        f"p {p if p.startswith('<') else f'= {p}'}" if p else "",
        f"positive in {round(row['positive'] * row['groups'])} of "
        f"{format_count(row['groups'], 'group')}",
        f"{effect_size} effect" if row["effect"] == row["effect"] else "",
    ]
    return f" ({'; '.join(detail for detail in details if detail)})"


def _claim_sentence(row: TableRow) -> str:
    """Say whether a difference is significant, or why it is not."""
    if is_idle(row):
        return f"{idle_stack(row)}."
    if reason := unclaimed_reason(row):
        return f"{reason}."
    if row["claim"]:
        return (
            f"The difference is significant: the cue contributes {row['claim']} than in untrained "
            "models."
        )
    layers = [
        f"{claim} in single layers"
        for claim, name in (("more", "more_in"), ("less", "less_in"))
        if row.get(name)
    ]
    if layers:
        return (
            "Over the whole stack the result is inconclusive. The cue contributes significantly "
            f"{' and '.join(layers)}."
        )
    return f"The result is inconclusive{_failed_criterion(row)}. Training may still have an effect."


def _failed_criterion(row: TableRow) -> str:
    """Say which criterion of a significant difference a row does not meet; "" without numbers."""
    if any(row[name] != row[name] for name in ("low", "high", "p")):
        return ""
    excludes_zero = row["low"] > 0 or row["high"] < 0
    if row["p"] <= FALSE_CLAIM_RATE:
        return (
            ""
            if excludes_zero
            else f": p is at most {FALSE_CLAIM_RATE}, but the confidence interval includes zero"
        )
    if excludes_zero:
        return (
            f": the confidence interval excludes zero, but p is above {FALSE_CLAIM_RATE} after the "
            "correction for multiple comparisons"
        )
    return f": the confidence interval includes zero, and p is above {FALSE_CLAIM_RATE}"


def idle_stack(row: TableRow) -> str:
    """Say that no layer of a stack changes the target's representation."""
    strength_text = format_strength(row[STRENGTH])
    stack = stack_phrase(row["stack"], start=True)
    return (
        f"{stack} changes the target's representation by only {strength_text} % (minimum "
        f"{100 * STRENGTH_FLOOR:.0f} %), so the cue's share there is not tested"
    )


def join_names(names: Sequence[str], conjunction: str = "and") -> str:
    """Join names with commas and "and".

    Examples
    --------
    >>> join_names(["a", "b", "c"]), join_names(["a"])
    ('a, b and c', 'a')
    """
    return " ".join(
        filter(None, [", ".join(names[:-1]), conjunction if names[:-1] else "", names[-1]])
    )


def _length_sentence(row: TableRow) -> str:
    length_matched = row.get("length_matched", float("nan"))
    return (
        ""
        if length_matched != length_matched
        else " If only word length mattered, the expected contribution of a word as long as the cue "
        f"would be {length_matched:.1f} %."
    )


def format_count(count: int, noun: str) -> str:
    """Format a count with its noun in singular or plural.

    Examples
    --------
    >>> format_count(1, "clip"), format_count(3, "clip")
    ('1 clip', '3 clips')
    """
    return f"{count} {noun}{'' if count == 1 else 's'}"
