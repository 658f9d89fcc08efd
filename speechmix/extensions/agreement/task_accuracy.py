"""Accuracy of a model at choosing the right word.

The right word against the wrong one, before any map is looked at.

In: a model and items with a target and a foil. Out: the margin of each item (nats), the share of
items in which the target wins with its interval, and a sentence that says what can then be read off
maps.

    margin = log p(target) - log p(foil)     at [MASK] in a masked model, of the next token in a causal one

Mohebbi et al. 2023 (Quantifying Context Mixing in Transformers, EACL) give 0.96 for
bert-base-uncased, 0.99 after fine-tuning. A tie is no right answer. Chance is one half; a model
that always writes the singular has it, too, where numbers are balanced, so accuracy is given by
number as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd

from ...errors import InputError
from ...evaluation.statistics.intervals import LEVEL
from ...interventions.decision import Decision

if TYPE_CHECKING:
    from ...adapters.model import Model
    from ...mixing.passes.item_view import Item

CHANCE = 0.5


def choice_margin(model: Model, item: Item) -> dict[str, float | bool]:
    """Return the margin between target and foil, and whether the target wins.

    Parameters
    ----------
    model : Model
    item : Sentence or Clip
        With a target and a foil. A masked model is fed its mask in the target's place.

    Returns
    -------
    dict
        margin : float, nats; right : bool

    Raises
    ------
    InputError
        If there is no foil, or target and foil are not decided at one position.

    Examples
    --------
    >>> model = speechmix.load("bert-base-uncased")                                                       # doctest: +SKIP
    >>> choice_margin(model, speechmix.Sentence("the keys are here", target="are", foil="is"))            # doctest: +SKIP
    {'margin': 4.1, 'right': True}
    """
    decision = Decision.prepare(model, item)
    if not decision.has_foil:
        raise InputError(
            f"{decision.name!r} has no foil: expected target= and foil=, the two words to choose "
            "from"
        )
    return {"margin": decision.margin, "right": decision.margin > 0}


def item_accuracy(table: pd.DataFrame, *, by: Sequence[str] = ("model", "init")) -> pd.DataFrame:
    """Share of items done right, with its 95 % interval over items (Wilson's, scipy's: it holds
    near 0 and 1, too).

    Parameters
    ----------
    table : DataFrame
        Columns item, right and those of `by`. Seeds of a random twin are averaged for each item
        first, and an item is then counted by the share of seeds that do it.
    by : sequence of str
        ("paradigm", "number", ...) to split it further.

    Returns
    -------
    DataFrame
        Columns of `by`, accuracy, low, high, items.

    Raises
    ------
    InputError
        If a column is missing, or the table is empty.

    Examples
    --------
    >>> table = pd.DataFrame({"item": list("abcd"), "right": [True, True, True, False], "model": "m", "init": "trained"})
    >>> item_accuracy(table).round(2).values.tolist()
    [['m', 'trained', 0.75, 0.3, 0.95, 4]]
    """
    missing_columns = [name for name in ("item", "right", *by) if name not in table.columns]
    if missing_columns or table.empty:
        raise InputError(
            f"expected a table of items with the columns item, right, {', '.join(by)}; found "
            f"{len(table)} rows"
            + (f", and {', '.join(missing_columns)} missing" if missing_columns else "")
        )
    by = list(by)
    items = (
        table.astype({"right": float})
        .groupby([*by, "item"], sort=False)["right"]
        .mean()
        .reset_index()
    )
    rows = []
    for key, group in items.groupby(by, sort=False):
        low, high = _wilson_interval(float(group["right"].mean()), len(group))
        keys = dict(zip(by, key, strict=True))
        rows.append(
            {
                **keys,
                "accuracy": group["right"].mean(),
                "low": low,
                "high": high,
                "items": len(group),
            }
        )
    return pd.DataFrame(rows)


def accuracy_sentence(name: str, share: float, low: float, high: float, items: int) -> str:
    """Say what an accuracy allows to be read off maps.

    Examples
    --------
    >>> accuracy_sentence("model", 0.52, 0.47, 0.57, 400)
    'model does the task in 52 % [47, 57] of 400 sentences, no better than chance (50 %): its maps
    cannot show how it does it.'
    >>> accuracy_sentence("model", 0.96, 0.94, 0.98, 400)
    'model does the task in 96 % [94, 98] of 400 sentences (chance 50 %).'
    >>> accuracy_sentence("tiny-bert", 0.7, 0.65, 0.75, 400).partition("; ")[2]
    'its maps are of right and wrong sentences together.'
    """
    interval = f"[{100 * low:.0f}, {100 * high:.0f}]"
    sentence = f"{name} does the task in {100 * share:.0f} % {interval} of {items:,} sentences"
    if low <= CHANCE:
        return f"{sentence}, no better than chance (50 %): its maps cannot show how it does it."
    return f"{sentence} (chance 50 %)" + (
        "; its maps are of right and wrong sentences together." if share < 0.9 else "."
    )


def _wilson_interval(share: float, items: int) -> tuple[float, float]:
    """Wilson's interval of a share; a share that is no whole number of items (a mean over seeds) is
    allowed."""
    from scipy.stats import norm

    z = float(norm.ppf(0.5 + LEVEL / 2))
    centre = (share + z**2 / (2 * items)) / (1 + z**2 / items)
    half_width = (
        z / (1 + z**2 / items) * (share * (1 - share) / items + z**2 / (4 * items**2)) ** 0.5
    )
    return max(0.0, centre - half_width), min(1.0, centre + half_width)
