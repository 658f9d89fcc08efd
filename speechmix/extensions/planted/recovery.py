"""Recovery of planted edges: compare measures, aggregations and decision maps with ground truth.

Three levels, each a ranking of pairs (target, source) with the true ones marked:

    layer            raw maps of the planted stack, all layers in one ranking         truth: `Planted.edges`
    input to output  maps of all layers put together (rollout, flow, mean, max, last; composed)   `Planted.reached`
    decision         the row of the position that says something                      `Planted.decisive`

Decision maps of planted models: what the margin loses without each input, by knock-out and by
patching.

In: a `Planted`. Out: effects of all its inputs.

Pairs (target, source) of a planted model, ranked by a map's scores, with the true ones marked.

The empty first position (a special token) and a position's own column are left out; so are pairs
that a causal mask forbids. Average precision judges the order alone. Precision and recall are of
the pairs reported as edges: those with more than an even share of their row (1 / sources that the
row sees), the row normalised with the target's own column and the first's in it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from ...errors import InputError
from ...evaluation.cue_need import average_precision
from ...interventions.value_knock_out import knock_out
from ...mixing.maps.map_set import Maps
from ...mixing.maps.measure_registry import is_installed, measure_facts, measure_names
from ...mixing.maps.mixing_map import MixingMap
from ...mixing.maps.numerics import normalize_rows
from ...mixing.measures.measure import check_defined
from ...mixing.measures.measure_functions import find_measure
from ...mixing.passes.mix import mix_one
from ..logit_decompositions.logit_contributions import check_splits_logits, logit_contributions
from ..patching.patching import patch
from .case_table import TARGET, Case, cases, get_case
from .hand_set_models import FAMILIES
from .hand_set_weights import N_LAYERS
from .planting import Planted, plant

if TYPE_CHECKING:
    import pandas as pd

    from ...adapters.binding.bound_layers import Stack

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


class Ranking(NamedTuple):
    """Scores of pairs, and which of them are true.

    Parameters
    ----------
    scores, shares : ndarray [...]
        Raw scores, and shares of their rows.
    is_edge, is_pair : ndarray of bool [...]
        True pairs, and those that are judged at all.
    even_share : ndarray [...]
        An even share of the pair's row.
    """

    scores: np.ndarray
    shares: np.ndarray
    is_edge: np.ndarray
    is_pair: np.ndarray
    even_share: np.ndarray

    def metrics(self) -> dict[str, float]:
        """Average precision, precision, recall and counts; NaN where there is nothing to divide by.

        Examples
        --------
        >>> yes = np.ones(4, dtype=bool)
        >>> shares = np.array([0.6, 0.1, 0.3, 0.0])
        >>> ranking = Ranking(shares, shares, np.array([True, True, False, False]), yes, np.full(4, 0.25))
        >>> {name: round(value, 2) for name, value in ranking.metrics().items()}
        {'average_precision': 0.83, 'precision': 0.5, 'recall': 0.5, 'n_pairs': 4, 'n_edges': 2,
        'n_reported': 2}
        """
        is_edge, scores = self.is_edge[self.is_pair], self.scores[self.is_pair]
        is_reported = (self.shares > self.even_share)[self.is_pair]
        n_edges, n_reported = int(is_edge.sum()), int(is_reported.sum())
        hit_count = int((is_edge & is_reported).sum())
        return {
            "average_precision": float(average_precision(scores, is_edge))
            if n_edges
            else float("nan"),
            "precision": hit_count / n_reported if n_reported else float("nan"),
            "recall": hit_count / n_edges if n_edges else float("nan"),
            "n_pairs": len(is_edge),
            "n_edges": n_edges,
            "n_reported": n_reported,
        }


def rank_layers(planted: Planted, mixing_map: MixingMap) -> Ranking:
    """Rank the pairs of all layers of the planted stack's map together."""
    scores, stack = mixing_map.scores, planted.stack
    is_edge = np.zeros(scores.shape, dtype=bool)
    for name, layer, target, source in planted.edges:
        if name == stack:
            is_edge[layer, target, source] = True
    is_causal = stack == "decoder"
    is_pair, n_seen = _valid_pairs(
        scores.shape[-2], scores.shape[-1], causal=is_causal, has_diagonal=stack == "cross"
    )
    is_pair, even_share = (
        np.broadcast_to(is_pair, scores.shape),
        np.broadcast_to(1 / n_seen, scores.shape),
    )
    return Ranking(
        scores, _row_shares(scores, mixing_map.measure, stack), is_edge, is_pair, even_share
    )


def rank_paths(
    planted: Planted, scores: np.ndarray, source_stacks: Sequence[str], measure: str
) -> Ranking:
    """Rank a map [W_t, W_s] from inputs to final states; columns are the inputs of one or several
    stacks."""
    target_stack = source_stacks[-1]
    n_targets, first_column = len(scores), 0
    is_edge, pair_masks = np.zeros(scores.shape, dtype=bool), []
    for stack in source_stacks:
        n_sources = len(planted.contents[stack])
        for path in planted.reached:
            if (path[0], path[2]) == (target_stack, stack):
                is_edge[path[1], first_column + path[3]] = True
        pair_masks.append(
            _valid_pairs(
                n_targets, n_sources, causal=stack == "decoder", has_diagonal=stack != target_stack
            )
        )
        first_column += n_sources
    is_pair = np.concatenate([pair_mask for pair_mask, _ in pair_masks], axis=1)
    even_share = np.broadcast_to(1 / sum(n_seen for _, n_seen in pair_masks), scores.shape)
    return Ranking(scores, _row_shares(scores, measure, target_stack), is_edge, is_pair, even_share)


def rank_decision(planted: Planted, row: np.ndarray) -> Ranking:
    """Rank the row of the output position over all inputs: [S], or those of the encoder, then the
    decoder."""
    inputs = [
        (stack, position)
        for stack, contents in planted.contents.items()
        for position in range(len(contents))
    ]
    output_stack = list(planted.contents)[-1]
    is_edge = np.array([input_key in planted.decisive for input_key in inputs])
    is_later = [
        stack == output_stack == "decoder" and position > TARGET for stack, position in inputs
    ]
    is_target = [(stack, position) == (output_stack, TARGET) for stack, position in inputs]
    is_first = [position == 0 for _, position in inputs]
    is_pair = ~np.any([is_later, is_target, is_first], axis=0)
    even_share = np.full(len(inputs), 1 / (len(inputs) - sum(is_later)))
    return Ranking(row, normalize_rows(row), is_edge, is_pair, even_share)


def _valid_pairs(
    n_targets: int, n_sources: int, *, causal: bool, has_diagonal: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return which pairs [T, S] count, and how many sources each row can attend to, [T, 1]."""
    target, source = np.ogrid[:n_targets, :n_sources]
    is_seen = (source <= target) if causal else np.ones((n_targets, n_sources), dtype=bool)
    is_pair = is_seen & (target > 0) & (source > 0)
    return is_pair if has_diagonal else is_pair & (target != source), is_seen.sum(
        axis=1, keepdims=True
    )


def _row_shares(scores: np.ndarray, measure: str, stack: str) -> np.ndarray:
    """Normalize rows, except those of a measure whose row is a share already."""
    is_share = stack == "cross" and measure_facts(measure).residual == "share"
    return scores if is_share else normalize_rows(scores)


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
