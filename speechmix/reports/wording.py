"""The headline in sentences: what a linguist reads before the tables.

In: rows of the headline table. Out: plain sentences with the numbers, what they are, and what they do not show.
"""

from __future__ import annotations

import pandas as pd

from ..plots.panels import model_name, spoken
from .study_tables import said_p

_SIZES = ((0.2, "next to none"), (0.5, "small"), (0.8, "medium"), (float("inf"), "large"))

METHOD = (
    "{units} Difference: trained - random twin. Its 95 % interval is a bootstrap over {groups}: if the study were repeated "
    "with other such {groups}, about 95 of 100 intervals would hold the true difference. p is from a permutation test: how "
    'often a difference as large as this comes about when the labels "trained" and "random" are swapped at random within '
    "{groups}. Effect size d: the difference in units of its own spread over {groups} (0.2 small, 0.5 medium, 0.8 large). "
    "Range of seeds: the lowest and highest mean of the random twins, so how much the draw of the untrained weights matters."
)
READING = (
    "Contribution: the share of the cue in building the target, in % of the target's row; in a decoder and in cross-attention "
    "at the position that predicts the deciding letters where the target's other spelling is known, else over all of the "
    "target's positions."
)
LENGTH = (
    "Word-level Value Zeroing grows with the square of a word's length and attention does not, so compare a measure with its "
    "own twin, not with another measure. Length-matched: what a word as long as the cue gets by this measure if it is like any "
    "other (frames squared for Value Zeroing, the same for every word for measures that are means over frames, the same for "
    "every token in a decoder). Share of length: what the cue would get if every frame or token counted the same."
)


def method(ties: str) -> str:
    """How the numbers came about; `ties` says what makes clips a group, "" if nothing does."""
    units = f"Clips that share {ties} say something about each other and are taken as one group." if ties else ""
    return METHOD.format(units=units, groups="groups" if ties else "clips").strip()


def sentences(headline: pd.DataFrame, *, most: int = 12) -> list[str]:
    """One sentence for each model, stack and side, by Value Zeroing (by the first measure without it).

    Parameters
    ----------
    headline : DataFrame
        From `study_tables.headline`, best layer.
    """
    measures = list(headline.measure.unique())
    measure = "value_zeroing" if "value_zeroing" in measures else measures[0] if measures else ""
    rows = headline[headline.measure == measure]
    return [_sentence(row) for row in rows.head(most).to_dict("records")]


def _sentence(row: dict) -> str:
    where = f"{model_name(row['model'])}, {row['stack']}" + (
        f", {row['side']} cue" if row.get("side", "all") != "all" else ""
    )
    begin = f"{where}: by {spoken(row['measure'])} "
    if row["trained"] != row["trained"]:
        return begin + f"the cue gives the target {row['random']:.1f} % in the random twins; there is no trained model."
    gives = f"the cue gives the target {row['trained']:.1f} %"
    if row["random"] != row["random"]:
        return begin + f"{gives}. There is no random twin, so nothing says what an untrained model would show."
    text = (
        begin
        + f"{gives} in the trained model, {row['random']:.1f} % in its random twins: {row['difference']:+.1f} points"
    )
    if row["low"] != row["low"]:
        return text + f". With {row['groups']} group of clips no uncertainty can be stated."
    size = next(size for limit, size in _SIZES if not abs(row["effect size d"]) >= limit)
    details = [
        f"95 % interval {round(row['low'], 1) + 0.0} to {round(row['high'], 1) + 0.0}",
        f"permutation test p {'' if said_p(row['p']).startswith('<') else '= '}{said_p(row['p'])}",
        f"above zero in {round(row['above zero (%)'] * row['groups'] / 100)} of {row['groups']} groups",
        f"effect {size}" if row["effect size d"] == row["effect size d"] else "",
    ]
    return f"{text} ({'; '.join(part for part in details if part)}). {_verdict(row)}{_against_length(row)}"


def _verdict(row: dict) -> str:
    if row["low"] > 0:
        return "So the cue counts for more here than in an untrained model."
    if row["high"] < 0:
        return "So the cue counts for less here than in an untrained model."
    return "So no effect of training can be told from chance here, which does not show that there is none."


def _against_length(row: dict) -> str:
    matched = row.get("length-matched", float("nan"))
    return "" if matched != matched else f" A word of the cue's length would get {matched:.1f} %."
