"""What sound and text still do to the answer when the outputs of some heads of the decoder are zero.

In: questions and heads. Out: a table of both effects without these heads, and without as many random ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor
from tqdm.auto import tqdm

from ...adapters.patching.patches import silence_heads
from ...evaluation.statistics.intervals import mean_interval
from .questions import OTHER, OWN, Question

_RANDOM_SETS = 10
EFFECTS = ("sound_effect", "text_effect")


def remove_heads(
    questions: Sequence[Question],
    groups: Mapping[str, str],
    heads: Sequence[tuple[int, int]],
    *,
    seed: int = 0,
    progress: bool = False,
) -> pd.DataFrame:
    """Set the output of heads to zero, and measure the effects of sound and text.

    Parameters
    ----------
    questions : sequence of Question
        With another sound.
    groups : mapping of str to str
        Group of each item.
    heads : sequence of (layer, head)
        Of the stack in which the decoder reads the sound.
    seed : int
        Of ten random sets of as many other heads.
    progress : bool

    Returns
    -------
    DataFrame
        heads ("none", "named", "random"); sound_effect: log-odds of the right answer with its own sound minus with
        another; text_effect: with the prompt (or hint) minus without, NaN if there is none (nats, means over groups);
        their low and high: 95 % intervals, of "random" the range of the sets.
    """
    stack = questions[0].model.stacks[questions[0].stack]
    others = [head for head in product(range(len(stack)), range(stack.heads)) if head not in heads]
    rng = np.random.default_rng(seed)
    sets: list[Sequence[tuple[int, int]]] = [[]]
    if heads and others:
        draws = [rng.permutation(len(others))[: len(heads)] for _ in range(_RANDOM_SETS)]
        sets += [heads, *([others[index] for index in draw] for draw in draws)]
    effects = []
    for question in tqdm(questions, unit="item", desc="removal", disable=not progress):
        inputs = question.inputs(OWN)
        conditions = [inputs, question.inputs(OTHER), question.remove_prompt(OWN, inputs)]
        own_odds, other_odds, no_prompt_odds = (
            _read_odds(question, sets, prepared) for prepared in conditions
        )
        effects.append([own_odds - other_odds, own_odds - no_prompt_odds])
    names = [groups[question.item.name] for question in questions]
    intact, *removed = (
        pd.DataFrame(rows, columns=EFFECTS).groupby(names).mean()
        for rows in np.array(effects).transpose(2, 0, 1)  # [sets, items, effects]
    )
    table = [_summarize("none", intact, mean_interval)]
    if removed:
        by_set = pd.DataFrame([means.mean() for means in removed[1:]])
        table.append(_summarize("named", removed[0], mean_interval))
        table.append(_summarize("random", by_set, lambda values: (values.min(), values.max())))
    return pd.DataFrame(table)


def _read_odds(
    question: Question,
    sets: Sequence[Sequence[tuple[int, int]]],
    inputs: Mapping[str, Tensor] | None,
) -> np.ndarray:
    """Log-odds of the right answer without each set of heads, [sets]; NaN without inputs."""
    if inputs is None:
        return np.full(len(sets), np.nan)
    with silence_heads(question.model, sets, question.stack):
        log_probs = question.log_probabilities(inputs, runs=len(sets))
    odds: np.ndarray = question.reading.log_odds(log_probs).numpy()
    return odds


def _summarize(
    name: str, values: pd.DataFrame, find_limits: Callable[[pd.Series], tuple[float, float]]
) -> dict[str, Any]:
    """Mean and limits of each effect."""
    row: dict[str, Any] = {"heads": name}
    for effect in EFFECTS:
        low, high = find_limits(values[effect])
        row |= {effect: values[effect].mean(), f"{effect}_low": low, f"{effect}_high": high}
    return row
