"""Recovery of planted edges: compare measures, aggregations and decision maps with ground truth.

Three levels, each a ranking of pairs (target, source) with the true ones marked:

    layer            raw maps of the planted stack, all layers in one ranking         truth: `Planted.edges`
    input to output  maps of all layers put together (rollout, flow, mean, max, last; composed)   `Planted.reached`
    decision         the row of the position that says something                      `Planted.decisive`
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from ...errors import InputError
from ...mixing.maps.map_set import Maps
from ...mixing.maps.measure_registry import is_installed, measure_facts, measure_names
from ...mixing.maps.mixing_map import MixingMap
from ...mixing.measures.measure import check_defined
from ...mixing.measures.measure_functions import find_measure
from ...mixing.passes.mix import mix_one
from ..logit_decompositions.logit_contributions import check_splits_logits, logit_contributions
from .blueprint import N_LAYERS
from .case_table import TARGET, Case, cases, get_case
from .decision_effects import DECISION_MAPS, DecisionMaker, peak_input_effects
from .hand_set_models import FAMILIES
from .planting import Planted, plant
from .rankings import Ranking, rank_decision, rank_layers, rank_paths

if TYPE_CHECKING:
    import pandas as pd

    from ...adapters.binding.bound_layers import Stack

RECOVERY_LEVELS = ("layer", "input to output", "decision")
_Row: TypeAlias = "dict[str, object]"
AGGREGATIONS = ("rollout", "flow", "mean", "max", "last")
_MEASURE_SCOPES = ("layer", "model", "logit")
_INTEGRATION_STEPS = (
    16  # of integrated gradients: between the bends of its ReLUs such a model is nearly linear
)


def measure_recovery(
    *,
    measures: Sequence[str] | None = None,
    cases: Iterable[str] | None = None,
    families: Iterable[str] | None = None,
    seeds: Iterable[int] = range(3),
    noise: float = 0.002,
    constant: float = 30.0,
    rotated: bool = True,
    aggregations: Sequence[str] = AGGREGATIONS,
    decision_maps: Mapping[str, DecisionMaker] | None = None,
) -> pd.DataFrame:
    """Measure how well measures recover the planted edges of every case, stack and family.

    Parameters
    ----------
    measures : sequence of str, optional
        All there are by default (DeepLift if captum is installed), those of your own too, and those
        whose parts add up to a logit.
    cases, families : iterable of str, optional
        All by default.
    seeds : iterable of int
        Each gives a rotation of the basis, contents, noise, and one of the layers in turn.
    noise, constant : float
        As of `plant`.
    rotated : bool
        False keeps the basis along pairs of axes.
    aggregations : sequence of {"rollout", "flow", "mean", "max", "last"}
        How layers of self-attention are put together; flow takes longest.
    decision_maps : mapping of str to callable, optional
        By name: functions of a `Planted` that give an effect on the margin for each layer and
        source of the planted stack, ndarray [L, S], or [S]. The largest absolute effect over layers
        is the source's score. By default `DECISION_MAPS`.

    Returns
    -------
    DataFrame
        A row for each measure, aggregation and question: case, family, stack, layer, seed, measure,
        aggregation, level ("layer", "input to output", "decision"), average_precision, precision,
        recall, n_pairs, n_edges, n_reported.

    Raises
    ------
    InputError
        If a measure, case or family is not there, or a decision map is of another shape.

    Examples
    --------
    >>> table = measure_recovery(measures=["value_zeroing", "random"], cases=["copy"], families=["gpt2"], seeds=[0])
    >>> table[table.level == "layer"].set_index("measure").average_precision["value_zeroing"]
    np.float64(1.0)
    """
    import pandas as pd

    names, plant_case = _resolve_measures(measures), partial(plant, noise=noise, constant=constant)
    rows = [
        {**_planted_columns(planted, seed), **row}
        for planted, seed in _planted_models(plant_case, cases, families, seeds, rotated)
        for row in score_planted_model(
            planted, names, aggregations=aggregations, decision_maps=decision_maps
        )
    ]
    return pd.DataFrame(rows)


def score_planted_model(
    planted: Planted,
    measures: Sequence[str],
    *,
    aggregations: Sequence[str] = AGGREGATIONS,
    decision_maps: Mapping[str, DecisionMaker] | None = None,
) -> Iterator[_Row]:
    """Yield the rows of `measure_recovery` for one planted model, without its columns."""
    if unknown_names := set(aggregations) - set(AGGREGATIONS):
        raise InputError(
            f"aggregations should be of {AGGREGATIONS}, found "
            f"{', '.join(map(repr, sorted(unknown_names)))}"
        )
    layerwise_measures = [name for name in measures if measure_facts(name).is_layerwise]
    maps = _mix_planted(planted, layerwise_measures)
    for name in layerwise_measures:
        if (name, planted.stack) in maps:
            yield from _score_maps(planted, maps, name, aggregations)
    for name in measures:
        if name not in layerwise_measures:
            has_maps = measure_facts(name).gives_maps
            yield from (_score_gradient if has_maps else _score_logit_terms)(planted, name)
    decision_maps = DECISION_MAPS if decision_maps is None else decision_maps
    for name, effect_function in decision_maps.items():
        effects = peak_input_effects(planted, name, effect_function)
        yield _row(name, "max", "decision", rank_decision(planted, effects))


def _resolve_measures(names: Sequence[str] | None) -> list[str]:
    possible_names = measure_names(*_MEASURE_SCOPES)
    if names is None:
        return [name for name in possible_names if is_installed(measure_facts(name))]
    for name in names:
        reason = (
            "removes words from the input, and a planted input has no words"
            if measure_facts(name).scope == "removal"
            else "has one number for each target, which does not rank sources"
            if measure_facts(name).is_per_target
            else ""
        )
        if reason:
            raise InputError(f"{name} {reason}; use one of {', '.join(possible_names)}")
    return list(names)


def _planted_models(
    plant_case: Callable[..., Planted],
    names: Iterable[str] | None,
    families: Iterable[str] | None,
    seeds: Iterable[int],
    rotated: bool,
) -> Iterator[tuple[Planted, int]]:
    """Yield planted models, each with its seed."""
    selected_cases = cases() if names is None else [get_case(name) for name in names]
    seeds = list(seeds)
    for family in FAMILIES if families is None else families:
        for case, stack in _cases_with_stacks(selected_cases, family):
            for seed in seeds:
                planted = plant_case(
                    case.name,
                    family=family,
                    stack=stack,
                    layer=seed % (N_LAYERS - case.span + 1),
                    seed=seed,
                    rotation_seed=seed if rotated else None,
                )
                yield planted, seed


def _cases_with_stacks(selected_cases: Sequence[Case], family: str) -> Iterator[tuple[Case, str]]:
    if family not in FAMILIES:
        raise InputError(f"family should be one of {', '.join(FAMILIES)}, found {family!r}")
    for stack in FAMILIES[family].stacks:
        for case in selected_cases:
            if not case.families or family in case.families:
                yield case, stack


def _planted_columns(planted: Planted, seed: int) -> _Row:
    columns = {"case": planted.case.name, "family": planted.family, "stack": planted.stack}
    return {**columns, "layer": planted.layer, "seed": seed}


def _row(measure: str, aggregation: str, level: str, ranking: Ranking) -> _Row:
    return {"measure": measure, "aggregation": aggregation, "level": level, **ranking.metrics()}


def _mix_planted(planted: Planted, measures: Sequence[str]) -> Maps:
    """Compute the maps of defined measures in the planted stack; with cross-attention in all
    stacks."""
    model = planted.model
    maps: dict[tuple[str, str], MixingMap] = {}
    for name, stack in model.stacks.items():
        if name != planted.stack and "cross" not in model.stacks:
            continue
        defined = [measure for measure in measures if _is_defined(measure, stack)]
        if defined:
            maps |= mix_one(model, planted.item, measures=defined, stacks=[name])
    return Maps(maps)


def _is_defined(measure: str, stack: Stack) -> bool:
    if stack.name == "cross" and measure_facts(measure).scope == "model":
        return False  # its sources are read by all layers up to this one: no edges of a layer
    try:
        check_defined(measure_facts(measure), stack)
    except InputError:
        return False
    return True


def _score_maps(
    planted: Planted, maps: Maps, measure: str, aggregations: Sequence[str]
) -> Iterator[_Row]:
    """Yield rows of a layer-wise measure: of its layers, aggregated, and of the deciding row."""
    stack, mixing_map = planted.stack, maps[measure, planted.stack]
    # The last map of such a measure goes from inputs to final states already.
    has_input_columns = measure_facts(measure).scope == "model"
    if not has_input_columns:
        yield _row(measure, "none", "layer", rank_layers(planted, mixing_map))
    if stack != "cross":
        scores_by_aggregation = (
            {"last": mixing_map.scores[-1]}
            if has_input_columns
            else _aggregate_layers(mixing_map, aggregations)
        )
        for aggregation, scores in scores_by_aggregation.items():
            ranking = rank_paths(planted, scores, (stack,), mixing_map.measure)
            yield _row(measure, aggregation, "input to output", ranking)
            if "cross" not in planted.model.stacks:
                yield _row(measure, aggregation, "decision", rank_decision(planted, scores[TARGET]))
    if all((measure, name) in maps for name in ("encoder", "cross", "decoder")):
        composed_scores = maps.composed(measure).scores[-1]
        if stack == "cross":
            ranking = rank_paths(planted, composed_scores, ("encoder", "decoder"), measure)
            yield _row(measure, "composed", "input to output", ranking)
        yield _row(measure, "composed", "decision", rank_decision(planted, composed_scores[TARGET]))


_LAYER_AGGREGATIONS: dict[str, Callable[[MixingMap], np.ndarray]] = {
    "rollout": lambda mixing_map: mixing_map.rollout().scores[-1],
    "flow": lambda mixing_map: mixing_map.flow().scores[-1],
    "mean": lambda mixing_map: mixing_map.mean_layers().scores[0],
    "max": lambda mixing_map: mixing_map.scores.max(axis=0),
    "last": lambda mixing_map: mixing_map.last_layer().scores[0],
}


def _aggregate_layers(mixing_map: MixingMap, aggregations: Sequence[str]) -> dict[str, np.ndarray]:
    """Aggregate the layers of a map, [W, W], in each of the requested ways."""
    return {name: _LAYER_AGGREGATIONS[name](mixing_map) for name in aggregations}


def _score_gradient(planted: Planted, measure: str) -> Iterator[_Row]:
    """Yield the row of a gradient measure."""
    ranking = rank_decision(planted, _gradient_row(planted, measure))
    yield _row(measure, "first layer", "decision", ranking)


def _gradient_row(planted: Planted, measure: str) -> np.ndarray:
    """Return the scores of all inputs by a gradient measure, [S], or [S_encoder + S_decoder]."""
    stacks = list(planted.contents)
    options = {"stacks": stacks, "layers": [0], "objective": planted.objective}
    if "steps" in find_measure(measure).own_options:
        measure = f"{measure}:steps={_INTEGRATION_STEPS}"
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="integrated gradients of the"
        )  # on a way round a bend
        maps = mix_one(planted.model, planted.item, measures=[measure], **options)
    return np.concatenate([maps[measure, stack].scores[0, 0] for stack in stacks])


def _score_logit_terms(planted: Planted, measure: str) -> Iterator[_Row]:
    """Yield the row of a measure whose terms add up to the margin, if it is defined."""
    try:
        check_splits_logits(planted.model, measure)
    except InputError:
        return
    contributions = logit_contributions(
        planted.model, planted.item, measure=measure, objective=planted.objective
    )
    terms = contributions[0] if isinstance(contributions, list) else contributions
    sizes = np.abs(np.concatenate([terms.total(stack) for stack in planted.contents]))
    yield _row(measure, "parts", "decision", rank_decision(planted, sizes))
