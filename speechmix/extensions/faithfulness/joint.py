"""Joint removal of two tokens, against the removal of each alone.

Where two clues say the same, blanking one costs nothing, because the other is left: single drops
then rank a needed token last. With f(S) the probability with the tokens S blanked, for each pair i,
j:

    together = f() - f(i, j)        alone = (f() - f(i)) + (f() - f(j))        redundancy = together - alone

The redundancy is above zero for tokens that stand in for each other, below zero for tokens that are
needed both, zero where neither changes what the other does (up to the curve of the probability
itself: use value="log_probability" to take that off).
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ...errors import InputError
from ...inputs.sentences.sentence import Sentence
from ...interventions.decision import Decision
from ...interventions.removals import token_fills
from ..occlusion.input_ablation import side_stack
from ..occlusion.shapley import RemovalMargins
from .word_scores import source_words

if TYPE_CHECKING:
    from ...adapters.model import Model

VALUES = ("probability", "log_probability")


def joint_blank_out(
    model: Model,
    sentence: Sentence | str,
    *,
    fill: str | None = None,
    units: str = "token",
    value: str = "probability",
) -> pd.DataFrame:
    """Blank every pair of tokens of one sentence together.

    Parameters
    ----------
    model : Model
        A text model with its head.
    sentence : Sentence or str
        As for `speechmix.blank_out`; a classifier needs no target.
    fill : {"mask", "unk", "pad", "remove"}, optional
        By default the first that the tokenizer has.
    units : {"token", "word"}
    value : {"probability", "log_probability"}

    Returns
    -------
    DataFrame
        A row for each pair, the most redundant first: first, second (as written), first_unit,
        second_unit (position of a token, index of a word), first_drop, second_drop (of each alone),
        together, redundancy. W (W + 1) / 2 + 1 forward passes.

    Raises
    ------
    InputError
        If the model hears, there is no target, or an option cannot be.
    """
    if model.capabilities.input_kind != "text" or value not in VALUES:
        raise InputError(
            f"expected a text model and a value of {VALUES}, found {model.name} and {value!r}"
        )
    sentence = Sentence(sentence) if isinstance(sentence, str) else sentence
    decision = Decision.prepare(model, sentence.replace(foil=None), units=units)
    sources = source_words(decision, side_stack(decision, "text"))
    pairs = list(itertools.combinations(range(len(sources)), 2))
    removals = RemovalMargins(decision, "text", token_fills(model)[0] if fill is None else fill)
    indices = [source.index for source in sources]
    word_sets = [
        (),
        *((index,) for index in indices),
        *((indices[i], indices[j]) for i, j in pairs),
    ]
    margins = removals.margins(word_sets)
    values = removals.probabilities(margins) if value == "probability" else margins
    drops = values[0] - values
    single_drops, joint_drops = drops[1 : 1 + len(sources)], drops[1 + len(sources) :]
    first_index, second_index = np.array(pairs, dtype=int).reshape(-1, 2).T
    table = pd.DataFrame(
        {
            "first": [sources[i].label for i in first_index],
            "second": [sources[j].label for j in second_index],
            "first_unit": [indices[i] for i in first_index],
            "second_unit": [indices[j] for j in second_index],
            "first_drop": single_drops[first_index],
            "second_drop": single_drops[second_index],
            "together": joint_drops,
            "redundancy": joint_drops - single_drops[first_index] - single_drops[second_index],
        }
    )
    return table.sort_values("redundancy", ascending=False, kind="stable", ignore_index=True)
