"""Decision maps of planted models: what the margin loses without each input, by knock-out and by
patching.

In: a `Planted`. Out: effects of all its inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import numpy as np

from ...errors import InputError
from ...interventions.value_knock_out import knock_out
from ..patching.patching import patch
from .planting import Planted

DecisionMaker: TypeAlias = "Callable[[Planted], np.ndarray]"


def _knock_out_drops_by_layer(planted: Planted) -> np.ndarray:
    """Return drops [L, S] with each source's values zeroed in one layer of the planted stack."""
    drops = knock_out(
        planted.model, planted.item, stacks=[planted.stack], objective=planted.objective
    )
    return drops.scores(planted.stack)


def _patch_drops_by_layer(planted: Planted, *, layers: slice) -> np.ndarray:
    """Return drops [L, S] with each source's states replaced by those of the negated input."""
    stack, counterfactual = planted.source_stack, planted.negate_contents()
    effects = patch(
        planted.model,
        planted.item,
        counterfactual,
        what="states",
        stacks=[stack],
        objective=planted.objective,
    )
    return effects.scores(stack)[layers]


# Decision maps by name: what the margin loses with each source, [L, S].
DECISION_MAPS: dict[str, DecisionMaker] = {
    "knock_out": _knock_out_drops_by_layer,
    "patch (all layers)": partial(_patch_drops_by_layer, layers=slice(None)),
    "patch (first layer)": partial(_patch_drops_by_layer, layers=slice(0, 1)),
}


def peak_input_effects(
    planted: Planted, name: str, effect_function: Callable[[Planted], np.ndarray]
) -> np.ndarray:
    """Return the effect of each input by a decision map; zero for inputs of other stacks."""
    effects = np.atleast_2d(np.abs(np.asarray(effect_function(planted), dtype=float)))
    source_contents = planted.contents[planted.source_stack]
    if effects.ndim != 2 or effects.shape[1] != len(source_contents):
        raise InputError(
            f"{name}: expected effects [layers, {len(source_contents)} sources], found shape {effects.shape}"
        )
    rows = [
        effects.max(axis=0) if stack == planted.source_stack else np.zeros(len(row))
        for stack, row in planted.contents.items()
    ]
    return np.concatenate(rows)
