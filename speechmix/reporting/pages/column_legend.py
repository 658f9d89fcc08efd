"""Explain the columns of the tables of a page, each in a sentence or two."""

from __future__ import annotations

import pandas as pd

from ...evaluation.statistics.claim_rule import FEWEST_CLAIM_GROUPS, FEWEST_TWINS
from ...evaluation.statistics.intervals import FEWEST_GROUPS
from ...mixing.maps.measure_facts import measure_label
from ...mixing.maps.measure_registry import leading_measure
from ...mixing.maps.numerics import STRENGTH_FLOOR
from .html_page import TermList
from .result_sentences import format_twins
from .table_format import format_contribution_table

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
