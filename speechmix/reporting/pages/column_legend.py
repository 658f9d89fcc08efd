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
    "stack": "Encoder, decoder, or cross-attention (from the decoder to the encoder). A row is the "
    "mean over the layers of the stack, weighted by their mixing strength.",
    "measure": "The method that assigns the shares. In untrained twins, the share by Value Zeroing "
    "grows with the square of a word's number of frames. The share by attention does not depend on "
    "the number of frames. So compare a measure with the same measure in the untrained twins, not "
    "with another measure.",
    "trained": "Contribution of the cue in the trained model: the share of the target's "
    "representation that comes from the cue, in %. The shares of all words add up to 100 %.",
    "untrained": "The same share in the untrained twins, on average. An untrained twin is a model "
    "of the same architecture with random weights.",
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
    "groups": "Clips that share {ties} are not independent. Each group of such clips counts as "
    "one observation.",
    "mixing strength (%)": "How much the target's representation changes when all other words are "
    f"removed, in % of its length as a vector. Below {_STRENGTH_PERCENT}, almost nothing is mixed, "
    "and the shares mean little.",
    "share of length": "The share that the cue would have if all frames (or tokens) contributed "
    "equally.",
    "length-matched": "The share that the cue would have if its length alone decided its share. How "
    "the share grows with length differs between measures: see “What length alone does”.",
}
_READ_POSITION = (
    "In the encoder, the shares are those in the frames of the target. In the decoder and "
    "cross-attention, they are those in the deciding position. It predicts the first token in which "
    "the target differs from its foil (the other spelling). For clips without a foil, they are the "
    "mean over all positions of the target."
)
_TEST_RELIABILITY = (
    "The test is cautious in two ways. It adds noise to the values of the twins, as large as the "
    "variation between {groups}. To the values of the trained model, it adds an artificial one "
    "that makes a significant difference less likely. In simulations, at most 5 % of pages about an "
    "untrained model show a significant difference. Details: “How often is a claim wrong?” in the "
    "documentation."
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
    words = {"groups": "groups" if ties else "clips", "ties": ties}
    names = [name for name in _TERMS if name in table and (ties or name != "groups")]
    terms = TermList({name: _TERMS[name].format(**words) for name in names})
    if "difference" not in table:
        return [terms, _READ_POSITION]
    counts = " ".join(map(format_twins, sorted(set(twins))))
    return [terms, _READ_POSITION, f"{_TEST_RELIABILITY.format(**words)} {counts}"]
