"""The headline in sentences: what a linguist reads before the tables.

In: rows of the headline table. Out: plain sentences with the numbers, what they are, and what they do not show.
"""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from ..evaluation.statistics import SURE
from ..evaluation.twins import smallest_claim
from ..plots.panels import model_name, spoken
from .study_tables import said_interval, said_p

_SIZES = ((0.2, "next to none"), (0.5, "small"), (0.8, "medium"), (float("inf"), "large"))
_USUAL_TWINS = (3, 5, 10)
FEWEST_GROUPS = 6  # below which the permutation test cannot reach p < 0.05

METHOD = (
    "{units} Difference: trained - random twins. Two things are draws here: which {groups} were heard, and the weights of "
    "the untrained models. So there are two tests, and p is the larger one: a permutation test over {groups} (how often a "
    'difference as large as this comes about when the labels "trained" and "random" are swapped at random within '
    "{groups}), and a t test of the trained model as one more draw of an untrained one. The 95 % interval is over both, "
    "and so is wider than one over {groups} alone. A new untrained model: where the mean of a further random twin would "
    "lie 95 of 100 times. q is p corrected for all comparisons that are reported together (Benjamini and Hochberg). "
    "Something is claimed where q < {sure} and the interval leaves out zero, and nowhere else. Effect size d: the "
    "difference in units of its own spread over {groups} (0.2 small, 0.5 medium, 0.8 large); it knows nothing of the "
    "twins. {twins}"
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


def method(ties: str, twins: Iterable[int]) -> str:
    """How the numbers came about; `ties` says what makes clips a group, "" if nothing does, `twins` how many each row has."""
    units = f"Clips that share {ties} say something about each other and are taken as one group." if ties else ""
    counts = " ".join(map(said_twins, sorted(set(twins))))
    return METHOD.format(units=units, groups="groups" if ties else "clips", sure=SURE, twins=counts).strip()


def said_twins(count: int) -> str:
    """What so many random twins of a model can show, in words.

    Examples
    --------
    >>> said_twins(1)
    'One random twin does not tell how much the draw of its weights matters: nothing can be claimed, it takes two at least.'
    >>> print(said_twins(5))
    5 random twins: to reach p < 0.05 a difference must be 3.0 of their standard deviations (3 twins: 5.0, 10 twins: 2.4).
    """
    if count == 0:
        return "No random twin: there is nothing to hold a trained model against."
    if count == 1:
        return (
            "One random twin does not tell how much the draw of its weights matters: nothing can be claimed, it takes two at "
            "least."
        )
    needs = {number: f"{smallest_claim(number):.1f}" for number in (count, *_USUAL_TWINS)}
    others = ", ".join(f"{number} twins: {needs[number]}" for number in _USUAL_TWINS if number != count)
    reach = f"to reach p < 0.05 a difference must be {needs[count]} of their standard deviations"
    return f"{count} random twins: {reach} ({others})."


def sentences(headline: pd.DataFrame, *, most: int = 12) -> list[str]:
    """One sentence for each model, stack and side, by Value Zeroing (by the first measure without it).

    Parameters
    ----------
    headline : DataFrame
        Of the best layer, with q and claim (`Study.headline`).
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
    twins = "its random twin" if row["twins"] == 1 else f"its {row['twins']} random twins"
    text = f"{begin}{gives} in the trained model, {row['random']:.1f} % in {twins}"
    if row["twin_low"] == row["twin_low"]:
        text += f"; a new untrained model would give {said_interval(row['twin_low'], row['twin_high'], share=True)} %"
    text += f". Difference {row['difference']:+.1f} points{_details(row)}. "
    return text + _verdict(row) + _against_length(row)


def _details(row: dict) -> str:
    """Interval, test and spread of a difference; nothing of what cannot be stated."""
    interval = said_interval(row["low"], row["high"])
    tests = [f"{name} {said if said.startswith('<') else f'= {said}'}" for name in "pq" if (said := said_p(row[name]))]
    size = next(size for limit, size in _SIZES if not abs(row["effect"]) >= limit)
    details = [
        f"95 % interval {interval}" if interval else "",
        ", ".join(tests),
        f"above zero in {round(row['positive'] * row['groups'])} of {number_of(row['groups'], 'group')}",
        f"effect {size}" if row["effect"] == row["effect"] else "",
    ]
    return f" ({'; '.join(part for part in details if part)})"


def _verdict(row: dict) -> str:
    """What is claimed, or why nothing is."""
    if row["claim"]:
        return f"So the cue counts for {row['claim']} here than in untrained models."
    if row["twins"] < 2:
        return "With one random twin nothing is claimed."
    if row["groups"] < FEWEST_GROUPS:
        return f"With {number_of(row['groups'], 'group')} nothing is claimed."
    return (
        "Nothing is claimed: this cannot be told from the draw of clips and weights, which does not show that training "
        "changed nothing."
    )


def _against_length(row: dict) -> str:
    matched = row.get("length_matched", float("nan"))
    return "" if matched != matched else f" A word of the cue's length would get {matched:.1f} %."


def number_of(count: int, thing: str) -> str:
    """A number of things.

    Examples
    --------
    >>> number_of(1, "clip"), number_of(3, "clip")
    ('1 clip', '3 clips')
    """
    return f"{count} {thing}{'' if count == 1 else 's'}"
