"""Sanity checks of measures: randomized layers and models of other seeds.

Layers randomised from the top down; and do models of other training seeds agree?

Cascading randomisation (Adebayo et al. 2018, Sanity Checks for Saliency Maps, NeurIPS): the layers
of a copy get the weights of a random twin, one after the other from the last to the first, then
everything else. At each step every measure's maps are compared with those of the trained model. A
measure whose maps stay the same is not reading what was exchanged; the last step is the twin
itself, exactly.

Agreement of models trained from several seeds (as the MultiBERTs, Sellam et al. 2022): what of a
map is the task's, and what the draw's.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ...adapters.loading.load import load
from ...errors import InputError
from ...evaluation.statistics.intervals import CORRELATION_BOUNDS, mean_interval
from ...mixing.maps.numerics import normalize_rows
from ...mixing.passes.mix import mix_one

if TYPE_CHECKING:
    from torch.nn import Module

    from ...adapters.model import Model
    from ...inputs.clips.clip import Clip
    from ...inputs.sentences.sentence import Sentence
    from ...mixing.maps.map_set import Maps
    from ...mixing.maps.mixing_map import MixingMap

NO_LAYER, ALL_LAYERS_STEP = "nothing", "everything"
_STACKS_FROM_TOP = (
    "decoder",
    "encoder",
)  # stacks from the top down; cross-attention lies in the decoder's layers


def cascading_randomisation(
    model: Model,
    items: Iterable[Clip | Sentence],
    *,
    measures: Sequence[str] = ("value_zeroing", "attention", "attention_norm"),
    seed: int = 0,
) -> pd.DataFrame:
    """Rank correlation of a model's maps with themselves while its layers are randomised from the
    top down.

    Parameters
    ----------
    model : Model
        Trained; it stays as it is, a copy is randomised.
    items : iterable of Clip or Sentence
    measures : sequence of str
    seed : int
        Of the random twin.

    Returns
    -------
    DataFrame
        One row for each step, measure and stack: step (from 0), randomised ("nothing", "decoder 2",
        ..., "everything"), measure, stack, rho (Spearman over the cells of a layer without the
        diagonal, mean over layers and items), low, high (95 % over items), items.

    Raises
    ------
    InputError
        If there are no items, or `random` is among the measures, which reads no weights.
    """
    items = list(items)
    if not items or "random" in measures:
        raise InputError(
            f"expected items, and measures that read the model; found {len(items)} items, "
            f"{list(measures)}"
        )
    original_maps = [mix_one(model, item, measures=measures) for item in items]
    rows = [
        {"step": step, "randomised": name, "item": index, **agreement}
        for step, (name, randomised_model) in enumerate(randomised_copies(model, seed=seed))
        for index, (item, item_maps) in enumerate(zip(items, original_maps, strict=True))
        for agreement in _map_agreements(
            item_maps, mix_one(randomised_model, item, measures=measures)
        )
    ]
    return _mean_agreements(pd.DataFrame(rows), ["step", "randomised", "measure", "stack"])


def randomised_copies(model: Model, *, seed: int = 0) -> Iterator[tuple[str, Model]]:
    """Yield a copy of a model whose layers are replaced by those of a random twin, from the last to
    the first.

    Parameters
    ----------
    model : Model
        It stays as it is.
    seed : int
        Of the twin.

    Yields
    ------
    str, Model
        What was randomised now, from "nothing" to "everything", and the copy, which the next step
        changes.
    """
    twin = load(model.module, init="random", seed=seed, check=False)
    randomised = replace(model, module=copy.deepcopy(model.module))
    yield NO_LAYER, randomised
    for stack in [name for name in _STACKS_FROM_TOP if name in model.stacks]:
        for index in reversed(range(len(model.stacks[stack]))):
            layers = (which.stacks[stack].layers[index].module for which in (randomised, twin))
            _copy_weights(*layers)
            yield f"{stack} {index}", randomised
    _copy_weights(randomised.module, twin.module)
    yield ALL_LAYERS_STEP, randomised


def seed_agreement(
    models: Sequence[Model],
    items: Iterable[Clip | Sentence],
    *,
    measures: Sequence[str] = ("value_zeroing", "attention", "attention_norm"),
) -> pd.DataFrame:
    """Rank correlation between the maps of models that differ by their training seed.

    Parameters
    ----------
    models : sequence of Model
        At least two, of one architecture.
    items : iterable of Clip or Sentence
    measures : sequence of str

    Returns
    -------
    DataFrame
        One row for each measure and stack: rho (as in `cascading_randomisation`, mean over pairs of
        models, layers and items), low, high (95 % over items), items, pairs.

    Raises
    ------
    InputError
        If there are fewer than two models, or they have other stacks or layers.
    """
    shapes = {tuple((name, len(stack)) for name, stack in model.stacks.items()) for model in models}
    items = list(items)
    if len(models) < 2 or len(shapes) != 1 or not items:
        raise InputError(
            f"expected items and at least two models of one architecture; found {len(items)} "
            f"items, {len(models)} models "
            f"with {len(shapes)} shapes"
        )
    rows = []
    for index, item in enumerate(items):
        maps = [mix_one(model, item, measures=measures) for model in models]
        for first_map, second_map in itertools.combinations(maps, 2):
            rows += [
                {"item": index, **agreement} for agreement in _map_agreements(first_map, second_map)
            ]
    pairs = len(models) * (len(models) - 1) // 2
    return _mean_agreements(pd.DataFrame(rows), ["measure", "stack"]).assign(pairs=pairs)


def map_agreement(first_map: MixingMap, second_map: MixingMap) -> float:
    """Return the Spearman correlation of the shares of two maps without the diagonal, mean over
    layers; NaN if no layer varies.

    Raises
    ------
    InputError
        If the maps have other shapes.
    """
    from scipy.stats import spearmanr

    if first_map.scores.shape != second_map.scores.shape:
        raise InputError(
            f"maps of one shape expected, found {first_map.scores.shape} and "
            f"{second_map.scores.shape}"
        )
    shares = [
        normalize_rows(mixing_map.mean_heads().scores.astype(float))
        for mixing_map in (first_map, second_map)
    ]
    rows, columns = shares[0].shape[-2:]
    is_cell = np.ones((rows, columns), bool)
    if first_map.stack != "cross":
        is_cell = (
            np.tril(is_cell, -1)
            if first_map.stack == "decoder"
            else ~np.eye(rows, columns, dtype=bool)
        )
    pairs = [(a[is_cell], b[is_cell]) for a, b in zip(*shares, strict=True)]
    rhos = [spearmanr(a, b)[0] for a, b in pairs if len(a) > 2 and np.ptp(a) > 0 and np.ptp(b) > 0]
    return float(np.mean(rhos)) if rhos else float("nan")


def _copy_weights(module: Module, source_module: Module) -> None:
    module.load_state_dict(source_module.state_dict())


def _map_agreements(first_maps: Maps, second_maps: Maps) -> Iterator[dict[str, object]]:
    for measure, stack in first_maps:
        yield {
            "measure": measure,
            "stack": stack,
            "rho": map_agreement(first_maps[measure, stack], second_maps[measure, stack]),
        }


def _mean_agreements(table: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Average over items, with intervals; pairs of models are averaged for each item first."""
    by_item = table.groupby([*by, "item"], sort=False)["rho"].mean().reset_index()
    rows = []
    for key, item_agreements in by_item.groupby(by, sort=False):
        low, high = mean_interval(item_agreements["rho"], bounds=CORRELATION_BOUNDS)
        keys = dict(zip(by, key, strict=True))
        rows.append(
            {
                **keys,
                "rho": item_agreements["rho"].mean(),
                "low": low,
                "high": high,
                "items": int(item_agreements["rho"].count()),
            }
        )
    return pd.DataFrame(rows)
