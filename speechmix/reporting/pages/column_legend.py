"""Explain the columns of the tables of a page, each in a sentence or two."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from ...evaluation.statistics.intervals import FEWEST_GROUPS
from ...mixing.maps.numerics import STRENGTH_FLOOR
from .html_page import TermList
from .result_sentences import format_twins

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
    "lowest to highest twin": "The range of this share over the untrained twins.",
    "difference": "Trained minus untrained, in percentage points.",
    "95 % interval": "Confidence interval of the difference, over {groups} and twins. It needs "
    f"at least {FEWEST_GROUPS} {{groups}}.",
    "p": "Rank test of the trained model among its untrained twins. It is corrected for multiple "
    "comparisons over all stacks, layers and measures of the model.",
    "effect size d": "The difference divided by its standard deviation over {groups}.",
    "above zero (%)": "The share of {groups} in which the difference is positive.",
    "significant": "“More” or “less” if p is at most 0.05, the confidence interval excludes zero, "
    f"and the mixing strength is at least {_STRENGTH_PERCENT}. Otherwise the result is "
    "inconclusive.",
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
_TEST_RELIABILITY = (
    "The test is cautious in two ways. First, it adds random noise to the values of the twins. The "
    "noise is as large as the variation between {groups}. Second, it extends the list of the trained "
    "model's values by one made-up value. This value makes a significant difference less likely. In "
    "simulations, we treated untrained models as if they were trained. At most 5 % of such reports "
    "had any significant difference. Details: “How often is a claim wrong?” in the documentation."
)


def explain_columns(
    table: pd.DataFrame, *, ties: str, twins: Iterable[int]
) -> list[TermList | str]:
    """Explain the columns that a formatted table has, and its test.

    Parameters
    ----------
    table : DataFrame
        From `format_contribution_table`.
    ties : str
        What the clips of a group share; "" if every clip is a group.
    twins : iterable of int
        Number of untrained twins of each row.
    """
    names_of_measures = list(table["measure"].unique()) if "measure" in table else []
    measures = " ".join(filter(None, map(_describe_measure, names_of_measures)))
    words = {
        "groups": "groups" if ties else "clips",
        "ties": ties,
        "measures": f" {measures}" if measures else "",
    }
    names = [name for name in _TERMS if name in table and (ties or name != "groups")]
    terms = TermList({name: _TERMS[name].format(**words) for name in names})
    if "difference" not in table:
        return [terms, _READ_POSITION]
    counts = " ".join(map(format_twins, sorted(set(twins))))
    return [terms, _READ_POSITION, f"{_TEST_RELIABILITY.format(**words)} {counts}"]


def _describe_measure(label: str) -> str:
    """Describe a measure in a sentence that begins with its name; "" if it has no description."""
    text = _MEASURE_TEXTS.get(label)
    return f"{label.capitalize()}: {text}" if text else ""
