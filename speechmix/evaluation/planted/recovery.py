"""trial(): measures, aggregations and decision maps against planted truth.

Three questions, each a ranking of pairs (target, source) with the true ones marked:

    layer            raw maps of the planted stack, all layers in one ranking         truth: `Planted.edges`
    input to output  maps of all layers put together (rollout, flow, mean, max, last; composed)   `Planted.reached`
    decision         the row of the position that says something                      `Planted.decisive`

The empty first position (a special token) and a position's own column are left out; so are pairs
that a causal mask forbids. Average precision judges the order alone. Precision and recall are of
the pairs reported as edges: those with more than an even share of their row (1 / sources that the
row sees), the row normalised with the target's own column and the first's in it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from ...errors import InputError
from ...interventions.knock_out import knock_out
from ...interventions.patching import patch
from ...mixing.maps.measure_registry import facts_of, is_installed, names_of_scope
from ...mixing.maps.mixing_map import Maps, MixingMap
from ...mixing.maps.numerics import normalize_rows
from ...mixing.measures.availability import check_defined
from ...mixing.measures.registry import measure_named
from ...mixing.passes.logit_contributions import check_takes_apart, logit_contributions
from ...mixing.passes.mix import mix_one
from ..cue_alignment import average_precision
from .case_table import TARGET, Case, case_named, cases
from .hand_set_models import FAMILIES, N_LAYERS
from .planting import Planted, plant

if TYPE_CHECKING:
    import pandas as pd

DecisionMaker: TypeAlias = "Callable[[Planted], np.ndarray]"
LEVELS = ("layer", "input to output", "decision")
AGGREGATIONS = ("rollout", "flow", "mean", "max", "last")
_SCOPES = ("layer", "model", "logit")
_STEPS = 16  # of integrated gradients: between the bends of its ReLUs such a model is nearly linear


class Ranking(NamedTuple):
    """Scores of pairs, and which of them are true.

    Parameters
    ----------
    scores, shares : ndarray [...]
        Raw scores, and shares of their rows.
    is_edge, is_pair : ndarray of bool [...]
        True pairs, and those that are judged at all.
    even : ndarray [...]
        An even share of the pair's row.
    """

    scores: np.ndarray
    shares: np.ndarray
    is_edge: np.ndarray
    is_pair: np.ndarray
    even: np.ndarray

    def judged(self) -> dict[str, float]:
        """Average precision, precision, recall and counts; NaN where there is nothing to divide by.

        Examples
        --------
        >>> yes = np.ones(4, dtype=bool)
        >>> shares = np.array([0.6, 0.1, 0.3, 0.0])
        >>> ranking = Ranking(shares, shares, np.array([True, True, False, False]), yes, np.full(4, 0.25))
        >>> {name: round(value, 2) for name, value in ranking.judged().items()}
        {'average_precision': 0.83, 'precision': 0.5, 'recall': 0.5, 'n_pairs': 4, 'n_edges': 2,
        'n_reported': 2}
        """
        is_edge, scores = self.is_edge[self.is_pair], self.scores[self.is_pair]
        is_reported = (self.shares > self.even)[self.is_pair]
        n_edges, n_reported = int(is_edge.sum()), int(is_reported.sum())
        hits = int((is_edge & is_reported).sum())
        return {
            "average_precision": float(average_precision(scores, is_edge))
            if n_edges
            else float("nan"),
            "precision": hits / n_reported if n_reported else float("nan"),
            "recall": hits / n_edges if n_edges else float("nan"),
            "n_pairs": len(is_edge),
            "n_edges": n_edges,
            "n_reported": n_reported,
        }


def trial(
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
    """Try measures on every case, in every stack of every family it can be planted in.

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
    >>> table = trial(measures=["value_zeroing", "random"], cases=["copy"], families=["gpt2"], seeds=[0])
    >>> table[table.level == "layer"].set_index("measure").average_precision["value_zeroing"]
    np.float64(1.0)
    """
    import pandas as pd

    names, options = _measures(measures), {"noise": noise, "constant": constant}
    rows = [
        {**_identity(planted, seed), **row}
        for planted, seed in _fields(cases, families, seeds, rotated, options)
        for row in judge(planted, names, aggregations=aggregations, decision_maps=decision_maps)
    ]
    return pd.DataFrame(rows)


def judge(
    planted: Planted,
    measures: Sequence[str],
    *,
    aggregations: Sequence[str] = AGGREGATIONS,
    decision_maps: Mapping[str, DecisionMaker] | None = None,
) -> Iterator[dict[str, Any]]:
    """Rows of `trial` for one planted model, without its identity."""
    if unknown := set(aggregations) - set(AGGREGATIONS):
        raise InputError(
            f"aggregations should be of {AGGREGATIONS}, found "
            f"{', '.join(map(repr, sorted(unknown)))}"
        )
    of_layers = [name for name in measures if facts_of(name).is_layerwise]
    maps = _maps(planted, of_layers)
    for name in of_layers:
        if (name, planted.stack) in maps:
            yield from _judged_maps(planted, maps, name, aggregations)
    for name in measures:
        if name not in of_layers:
            yield from (_judged_gradient if facts_of(name).gives_maps else _judged_parts)(
                planted, name
            )
    for name, effects_of in (DECISION_MAPS if decision_maps is None else decision_maps).items():
        yield _row(name, "max", "decision", _decision(planted, _effects(planted, name, effects_of)))


def _measures(names: Sequence[str] | None) -> list[str]:
    if names is None:
        return [name for name in names_of_scope(*_SCOPES) if is_installed(facts_of(name))]
    for name in names:
        if facts_of(name).scope == "removal":
            raise InputError(
                f"{name} removes words from the input, and a planted input has none: trial takes "
                f"{', '.join(names_of_scope(*_SCOPES))}"
            )
        if facts_of(name).is_per_target:
            raise InputError(
                f"{name} is a number for each target, which ranks no pairs; trial takes "
                f"{', '.join(names_of_scope(*_SCOPES))}"
            )
    return list(names)


def _fields(
    names: Iterable[str] | None,
    families: Iterable[str] | None,
    seeds: Iterable[int],
    rotated: bool,
    options: Mapping[str, Any],
) -> Iterator[tuple[Planted, int]]:
    """Planted models, each with the seed it was made by."""
    cases_tried = cases() if names is None else [case_named(name) for name in names]
    seeds = list(seeds)
    for family in FAMILIES if families is None else families:
        for case, stack in _places(cases_tried, family):
            for seed in seeds:
                where: dict[str, Any] = {
                    "family": family,
                    "stack": stack,
                    "layer": seed % (N_LAYERS - case.span + 1),
                }
                yield (
                    plant(
                        case.name,
                        **where,
                        seed=seed,
                        rotation_seed=seed if rotated else None,
                        **options,
                    ),
                    seed,
                )


def _places(cases_tried: Sequence[Case], family: str) -> Iterator[tuple[Case, str]]:
    if family not in FAMILIES:
        raise InputError(f"family should be one of {', '.join(FAMILIES)}, found {family!r}")
    for stack in FAMILIES[family].stacks:
        for case in cases_tried:
            if not case.families or family in case.families:
                yield case, stack


def _identity(planted: Planted, seed: int) -> dict[str, Any]:
    place = {"case": planted.case.name, "family": planted.family, "stack": planted.stack}
    return {**place, "layer": planted.layer, "seed": seed}


def _row(measure: str, aggregation: str, level: str, ranking: Ranking) -> dict[str, Any]:
    return {"measure": measure, "aggregation": aggregation, "level": level, **ranking.judged()}


# ---------------------------------------------------------------- maps of a measure


def _maps(planted: Planted, measures: Sequence[str]) -> Maps:
    """Maps of the measures that are defined, in the planted stack and, where there is a
    cross-attention, in all three."""
    model = planted.model
    maps: dict[tuple[str, str], MixingMap] = {}
    for name, stack in model.stacks.items():
        if name != planted.stack and "cross" not in model.stacks:
            continue
        defined = [measure for measure in measures if _is_defined(measure, stack)]
        if defined:
            maps |= mix_one(model, planted.item, measures=defined, stacks=[name])
    return Maps(maps)


def _is_defined(measure: str, stack: Any) -> bool:
    if stack.name == "cross" and facts_of(measure).scope == "model":
        return False  # its sources are what all layers up to this one read: no edges of a layer
    try:
        check_defined(facts_of(measure), stack)
    except InputError:
        return False
    return True


def _judged_maps(
    planted: Planted, maps: Maps, measure: str, aggregations: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Rows of a measure that gives maps: of its layers, put together, and of the deciding row."""
    stack, own = planted.stack, maps[measure, planted.stack]
    from_input = (
        facts_of(measure).scope == "model"
    )  # its last map is of inputs and final states already
    if not from_input:
        yield _row(measure, "none", "layer", _edges(planted, own))
    if stack != "cross":
        ways = {"last": own.scores[-1]} if from_input else _together(own, aggregations)
        for aggregation, scores in ways.items():
            yield _row(
                measure,
                aggregation,
                "input to output",
                _paths(planted, scores, (stack,), own.measure),
            )
            if "cross" not in planted.model.stacks:
                yield _row(measure, aggregation, "decision", _decision(planted, scores[TARGET]))
    if all((measure, name) in maps for name in ("encoder", "cross", "decoder")):
        composed = maps.composed(measure).scores[-1]
        if stack == "cross":
            ranking = _paths(planted, composed, ("encoder", "decoder"), measure)
            yield _row(measure, "composed", "input to output", ranking)
        yield _row(measure, "composed", "decision", _decision(planted, composed[TARGET]))


_TOGETHER: dict[str, Callable[[MixingMap], np.ndarray]] = {
    "rollout": lambda mixing_map: mixing_map.rollout().scores[-1],
    "flow": lambda mixing_map: mixing_map.flow().scores[-1],
    "mean": lambda mixing_map: mixing_map.mean_layers().scores[0],
    "max": lambda mixing_map: mixing_map.scores.max(axis=0),
    "last": lambda mixing_map: mixing_map.last_layer().scores[0],
}


def _together(mixing_map: MixingMap, aggregations: Sequence[str]) -> dict[str, np.ndarray]:
    """The map's layers put together, [W, W], in each of the ways asked for."""
    return {name: _TOGETHER[name](mixing_map) for name in aggregations}


def _judged_gradient(planted: Planted, measure: str) -> Iterator[dict[str, Any]]:
    """The row of a measure of one number that gives maps."""
    yield _row(
        measure, "first layer", "decision", _decision(planted, _gradient_row(planted, measure))
    )


def _gradient_row(planted: Planted, measure: str) -> np.ndarray:
    """What each input counts for the margin by a gradient measure, [S], or [S_encoder +
    S_decoder]."""
    stacks = list(planted.contents)
    options = {"stacks": stacks, "layers": [0], "objective": planted.objective}
    if "steps" in measure_named(measure).options:
        options["steps"] = _STEPS
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="integrated gradients of the"
        )  # on a way round a bend
        maps = mix_one(planted.model, planted.item, measures=[measure], **options)
    return np.concatenate([maps[measure, stack].scores[0, 0] for stack in stacks])


def _judged_parts(planted: Planted, measure: str) -> Iterator[dict[str, Any]]:
    """The row of a measure whose parts add up to the margin, by their sizes; none where it is not
    defined."""
    try:
        check_takes_apart(planted.model, measure)
    except InputError:
        return
    answer = logit_contributions(
        planted.model, planted.item, measure=measure, objective=planted.objective
    )
    parts = answer[0] if isinstance(answer, list) else answer
    sizes = np.abs(np.concatenate([parts.total(stack) for stack in planted.contents]))
    yield _row(measure, "parts", "decision", _decision(planted, sizes))


def _knocked_out(planted: Planted) -> np.ndarray:
    """Drops [L, S] with each source's values zeroed in one layer of the planted stack."""
    drops = knock_out(
        planted.model, planted.item, stacks=[planted.stack], objective=planted.objective
    )
    return drops.scores(planted.stack)


def _patched(planted: Planted, *, layers: slice) -> np.ndarray:
    """Drops [L, S] with each source's states, as they enter a layer, those of the same input with
    all contents negated."""
    stack = planted.sources_from
    options: dict[str, Any] = {"what": "states", "stacks": [stack], "objective": planted.objective}
    return patch(planted.model, planted.item, planted.flipped(), **options).scores(stack)[layers]


# Decision maps by name: what the margin loses with each source, [L, S].
DECISION_MAPS: dict[str, DecisionMaker] = {
    "knock_out": _knocked_out,
    "patch (all layers)": partial(_patched, layers=slice(None)),
    "patch (first layer)": partial(_patched, layers=slice(0, 1)),
}


def _effects(
    planted: Planted, name: str, effects_of: Callable[[Planted], np.ndarray]
) -> np.ndarray:
    """What each input counts by a decision map; nothing, for inputs of a stack that is not asked
    about."""
    effects = np.atleast_2d(np.abs(np.asarray(effects_of(planted), dtype=float)))
    own = planted.contents[planted.sources_from]
    if effects.ndim != 2 or effects.shape[1] != len(own):
        raise InputError(
            f"{name}: expected effects [layers, {len(own)} sources], found shape {effects.shape}"
        )
    rows = [
        effects.max(axis=0) if stack == planted.sources_from else np.zeros(len(row))
        for stack, row in planted.contents.items()
    ]
    return np.concatenate(rows)


# ---------------------------------------------------------------- rankings


def _edges(planted: Planted, mixing_map: MixingMap) -> Ranking:
    """All layers of the planted stack's map in one ranking."""
    scores, stack = mixing_map.scores, planted.stack
    is_edge = np.zeros(scores.shape, dtype=bool)
    for name, layer, target, source in planted.edges:
        if name == stack:
            is_edge[layer, target, source] = True
    causal = stack == "decoder"
    is_pair, n_seen = _pairs(
        scores.shape[-2], scores.shape[-1], causal=causal, own=stack == "cross"
    )
    is_pair, even = (
        np.broadcast_to(is_pair, scores.shape),
        np.broadcast_to(1 / n_seen, scores.shape),
    )
    return Ranking(scores, _shares(scores, mixing_map.measure, stack), is_edge, is_pair, even)


def _paths(
    planted: Planted, scores: np.ndarray, source_stacks: Sequence[str], measure: str
) -> Ranking:
    """A map [W_t, W_s] from inputs to final states; its columns are the inputs of one stack, or of
    several in turn."""
    target_stack = source_stacks[-1]
    n_targets, first = len(scores), 0
    is_edge, parts = np.zeros(scores.shape, dtype=bool), []
    for stack in source_stacks:
        n_sources = len(planted.contents[stack])
        for path in planted.reached:
            if (path[0], path[2]) == (target_stack, stack):
                is_edge[path[1], first + path[3]] = True
        parts.append(
            _pairs(n_targets, n_sources, causal=stack == "decoder", own=stack != target_stack)
        )
        first += n_sources
    is_pair = np.concatenate([part for part, _ in parts], axis=1)
    even = np.broadcast_to(1 / sum(n_seen for _, n_seen in parts), scores.shape)
    return Ranking(scores, _shares(scores, measure, target_stack), is_edge, is_pair, even)


def _decision(planted: Planted, row: np.ndarray) -> Ranking:
    """The deciding position's row over all inputs: [S], or those of the encoder and then the
    decoder's."""
    inputs = [
        (stack, position)
        for stack, contents in planted.contents.items()
        for position in range(len(contents))
    ]
    said_in = list(planted.contents)[-1]
    is_edge = np.array([place in planted.decisive for place in inputs])
    later = [stack == said_in == "decoder" and position > TARGET for stack, position in inputs]
    own = [(stack, position) == (said_in, TARGET) for stack, position in inputs]
    first = [position == 0 for _, position in inputs]
    is_pair = ~np.any([later, own, first], axis=0)
    even = np.full(len(inputs), 1 / (len(inputs) - sum(later)))
    return Ranking(row, normalize_rows(row), is_edge, is_pair, even)


def _pairs(
    n_targets: int, n_sources: int, *, causal: bool, own: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Which pairs [T, S] are judged, and how many sources each row sees, [T, 1]."""
    target, source = np.ogrid[:n_targets, :n_sources]
    is_seen = (source <= target) if causal else np.ones((n_targets, n_sources), dtype=bool)
    is_pair = is_seen & (target > 0) & (source > 0)
    return is_pair if own else is_pair & (target != source), is_seen.sum(axis=1, keepdims=True)


def _shares(scores: np.ndarray, measure: str, stack: str) -> np.ndarray:
    """Rows that sum to one; those of a measure that tells cross-attention's share of a row stay as
    they are."""
    is_share = stack == "cross" and facts_of(measure).residual == "share"
    return scores if is_share else normalize_rows(scores)
