"""Describe the contribution of the cue in sentences.

In: rows of whole stacks (`study_tables.stack_rows`). Out: plain sentences with the numbers, what
they are, and what they do not show. Sentences speak of stacks, not of layer numbers, so that idle
layers and the order of layers change none of them.

Explain the columns of the tables of a page, each in a sentence or two.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from ...evaluation.statistics.claim_rule import FEWEST_CLAIM_GROUPS, FEWEST_TWINS
from ...evaluation.statistics.grouped_means import TableRow
from ...evaluation.statistics.intervals import FEWEST_GROUPS
from ...evaluation.statistics.random_twin_comparison import POWER, STRENGTH, detectable_difference
from ...mixing.maps.measure_registry import leading_measure, measure_label
from ...mixing.maps.numerics import STRENGTH_FLOOR
from ..plots.figure_style import model_name
from .html_page import TermList
from .table_format import (
    format_contribution_table,
    format_interval,
    format_strength,
    stack_phrase,
)


def format_twins(count: int) -> str:
    """Say what this number of untrained twins can show.

    Examples
    --------
    >>> format_twins(1)
    '1 untrained twin: nothing is concluded. A conclusion needs at least 5 twins, which show how much untrained models differ.'
    >>> format_twins(9)
    '9 untrained twins: enough for a conclusion.'
    """
    if count == 0:
        return "No untrained twin: there is nothing to compare a trained model with."
    count_text = format_count(count, "untrained twin")
    if count < FEWEST_TWINS:
        return (
            f"{count_text}: nothing is concluded. A conclusion needs at least {FEWEST_TWINS} twins, "
            "which show how much untrained models differ."
        )
    return f"{count_text}: enough for a conclusion."


def unclaimed_reason(row: TableRow) -> str:
    """Say why nothing can be concluded from a row, whatever its numbers; "" if something can.

    Examples
    --------
    >>> unclaimed_reason({"groups": 11, "twins": 9})
    'Nothing is concluded from 11 independent groups of clips: 4 more are needed (15)'
    >>> unclaimed_reason({"groups": 20, "twins": 3})
    'Nothing is concluded from 3 untrained twins: 2 more are needed (5)'
    """
    for count, least, noun, suffix in (
        (row["groups"], FEWEST_CLAIM_GROUPS, "independent group", " of clips"),
        (row["twins"], FEWEST_TWINS, "untrained twin", ""),
    ):
        if count < least:
            missing = f"{least - count} more {'is' if least - count == 1 else 'are'} needed"
            return f"Nothing is concluded from {format_count(count, noun)}{suffix}: {missing} ({least})"
    return ""


def adjacent_cue_sentence(clips: pd.DataFrame) -> str:
    """Say in how many clips the cue is adjacent to the target; "" where that is unknown.

    The clips are the clip table of a run.

    Examples
    --------
    >>> adjacent_cue_sentence(pd.DataFrame({"words_between": [0, 0, 2, None]}))[:50]
    'The cue is adjacent to the target in 2 of 3 clips.'
    """
    if "words_between" not in clips:
        return ""
    between = pd.to_numeric(clips["words_between"], errors="coerce").dropna()
    if between.empty:
        return ""
    adjacent_count = int((between == 0).sum())
    sentence = (
        f"The cue is adjacent to the target in {adjacent_count} of "
        f"{format_count(len(between), 'clip')}."
    )
    if not adjacent_count:
        return sentence
    return (
        f"{sentence} There, a map may show that a layer looks at the neighbouring word, whatever "
        "this word is; compare distant cues, the untrained twins and the control words."
    )


def is_idle(row: TableRow) -> bool:
    """Whether no layer of a stack moves the target's state by as much as the floor."""
    return bool(row.get(STRENGTH, float("nan")) < STRENGTH_FLOOR)


def result_sentences(headline: pd.DataFrame, *, max_sentences: int = 12) -> list[str]:
    """Write one paragraph for each model, stack and side, by Value Zeroing.

    Without Value Zeroing the first measure is described. `headline` has whole stacks
    (`Study.headline`).
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
    return (
        f"{opening} in the trained model, and {twins}. The difference is "
        f"{row['difference']:+.1f} percentage points{_difference_details(row)}. "
        f"{_claim_sentence(row)}{_length_sentence(row)}"
    )


def _difference_details(row: TableRow) -> str:
    """State the interval of a difference, if there is one."""
    interval = format_interval(row["low"], row["high"])
    return f" (95 % interval to one more untrained model: {interval})" if interval else ""


def _claim_sentence(row: TableRow) -> str:
    """Say what is concluded from a difference, or why nothing is."""
    if is_idle(row):
        return f"{idle_stack(row)}."
    if reason := unclaimed_reason(row):
        return f"{reason}."
    if row["claim"]:
        return f"So the cue contributes {row['claim']} than in untrained models."
    return f"The interval includes zero, so the result is inconclusive. {findable_difference(row)}"


def findable_difference(row: TableRow) -> str:
    """Say which difference a study like this finds in most cases.

    Examples
    --------
    >>> findable_difference({"group_sd": 15.0, "twin_sd": 0.6, "groups": 30, "twins": 9, "rows": 3})
    'A difference of 9.6 points or more would be found in 80 % of studies like this.'
    """
    difference = detectable_difference(
        row["group_sd"],
        row["twin_sd"],
        groups=int(row["groups"]),
        twins=int(row["twins"]),
        rows=int(row["rows"]),
    )
    return (
        f"A difference of {difference:.1f} points or more would be found in {100 * POWER:.0f} % of "
        "studies like this."
    )


def idle_stack(row: TableRow) -> str:
    """Say that no layer of a stack changes the target's representation."""
    strength_text = format_strength(row[STRENGTH])
    stack = stack_phrase(row["stack"], start=True)
    return (
        f"{stack} changes the target's representation by only {strength_text} % (minimum "
        f"{100 * STRENGTH_FLOOR:.0f} %), so nothing is concluded from the cue's share there"
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


_STRENGTH_PERCENT = f"{100 * STRENGTH_FLOOR:.0f} %"
_TERMS = {
    "stack": "Encoder (processes the sound), decoder (writes the text), or cross-attention (the "
    "decoder reads the output of the encoder). A row is the mean over the layers of the stack, "
    "weighted by their mixing strength.",
    "measure": "The method that assigns the shares.{measures} In untrained twins, the share by Value Zeroing "
    "grows with the square of a word's number of frames. The share by attention does not depend on "
    "the number of frames. So compare a measure with the same measure in the untrained twins, not "
    "with another measure.",
    "trained": "Contribution of the cue in the trained model: the share of the target's "
    "representation that comes from the cue, in %. The shares of all words add up to 100 %.",
    "untrained": "The same share in the untrained twins, on average.",
    "sd of twins": "The standard deviation of the twins: how much untrained models differ.",
    "difference": "Trained minus untrained, in percentage points.",
    "sd over groups": "The standard deviation of this difference over {groups}.",
    "95 % interval": "Confidence interval of the difference to one more untrained model. It needs "
    f"at least {FEWEST_GROUPS} {{groups}} and 2 twins.",
    "conclusion": "“More” or “less” if the interval excludes zero, there are at least "
    f"{FEWEST_CLAIM_GROUPS} {{groups}} and {FEWEST_TWINS} twins, and the mixing strength is at least "
    f"{_STRENGTH_PERCENT}. It is drawn from {{leading}} over whole stacks alone. That was fixed "
    "before the clips were scored. Other measures are described.",
    "groups": "Number of groups. The clips of a group share {ties}.",
    "mixing strength (%)": "How much the target's vector changes if the layer passes nothing from "
    f"other words to it, in % of the vector's size. Below {_STRENGTH_PERCENT}, almost nothing is mixed, "
    "and the shares mean little.",
    "share of length": "The share that the cue would have if all frames (or tokens) contributed "
    "equally.",
    "length-matched": "The expected share of a word that is as long as the cue if only length "
    "matters. This expectation follows the rule that holds in untrained models. The rule differs "
    "between measures: see “What length alone does”.",
}
_MEASURE_TEXTS = {
    "attention": "the weights with which a layer mixes the words' vectors.",
    "attention norm": "the size of what each word adds to the target's vector, its attention weight included.",
    "value zeroing": "the change of the target's vector if the value vectors of a word are zero.",
}
_READ_POSITION = (
    "In the encoder, the shares are those in the frames of the target. In the decoder and "
    "cross-attention, they are those in the deciding position. For clips without a foil (another "
    "spelling of the target), they are the mean over all positions of the target."
)
_INTERVAL_TEXT = (
    "The interval says how far the difference to one more untrained model may lie from zero. "
    "{together}It is difference ∓ √(c² + (t·s)²(1 + 1/T)): c is the half width of the confidence "
    "interval over {groups}, with a correction for skewness; s is the standard deviation of the T "
    "twins; t is Student’s quantile with T − 1 degrees of freedom. It covers other clips of these "
    "kinds and other random weights. It does not cover kinds of clips, voices or words that the "
    "sample lacks. Details: “How often is a claim wrong?” in the documentation."
)


def explain_columns(headline: pd.DataFrame, *, ties: str) -> list[TermList | str]:
    """Explain the columns of `format_contribution_table`, and what is concluded from them.

    `headline` comes from `compare_with_twins`, of whole stacks. `ties` is what the clips of a group
    share, "" if every clip is a group.
    """
    table = format_contribution_table(headline)
    names_of_measures = list(table["measure"].unique()) if "measure" in table else []
    measures = " ".join(filter(None, map(_describe_measure, names_of_measures)))
    leading = leading_measure(headline["measure"].unique()) if "measure" in headline else ""
    words = {
        "groups": "groups" if ties else "clips",
        "ties": ties,
        "measures": f" {measures}" if measures else "",
        "leading": measure_label(leading) if leading else "the measure",
    }
    names = [name for name in _TERMS if name in table and (ties or name != "groups")]
    terms = TermList({name: _TERMS[name].format(**words) for name in names})
    if "difference" not in table:
        return [terms, _READ_POSITION]
    row_count = int(headline.loc[headline["measure"] == leading, "rows"].max())
    together = (
        f"The intervals of the {row_count} rows of a measure hold together in 95 % of studies. "
        if row_count > 1
        else ""
    )
    counts = " ".join(map(format_twins, sorted(set(headline["twins"]))))
    return [terms, _READ_POSITION, f"{_INTERVAL_TEXT.format(**words, together=together)} {counts}"]


def _describe_measure(label: str) -> str:
    """Describe a measure in a sentence that begins with its name; "" if it has no description."""
    text = _MEASURE_TEXTS.get(label)
    return f"{label.capitalize()}: {text}" if text else ""
