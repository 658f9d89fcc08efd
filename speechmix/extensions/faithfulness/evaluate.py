"""Evaluate how faithful measures are to a model, over many items.

In: a model with its head, items with a target (clips with words, sentences), measures and reference
perturbations by name. Out: `FaithfulnessResults`: for every measure, stack and way to aggregate
layers the agreement of its ranking of words with the effects of each perturbation, with random
scores, the orders by length and by position, and the effects as their own oracle.

References: Mohebbi et al. 2023, EACL (blank-out evaluation); Shen, Mohebbi et al. 2025, Interspeech
(attribution in speech); DeYoung et al. 2020, ACL; Zhao & Aletras 2023, ACL; Petsiuk et al. 2018,
BMVC.

Choose a measure's best layer on half of the groups and score it on the other half.

In: numbers of every layer, by item. Out: the numbers of one layer for each half.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ...errors import InputError, SpeechmixError
from ...evaluation.statistics.groups import assign_item_groups, build_item_table, describe_groups
from ...interventions.decision import Decision
from ...mixing.passes.item_view import segment_item
from .item_evaluation import ItemEvaluation
from .leaderboard import DROP_COLUMNS, VALUE_COLUMNS, group_means
from .options import (
    DEFAULT_MEASURES,
    MIN_WORDS,
    EvaluationOptions,
    evaluation_options,
    resolve_measures,
)
from .perturbations import get_perturbation
from .results import FaithfulnessResults, ItemResult, model_columns
from .state_perturbation import STATES, evaluate_state_shifts
from .word_scores import LAYER_ROW, LOWER_IS_BETTER

if TYPE_CHECKING:
    from ...adapters.model import Model
    from ...inputs.clips.clip import Clip
    from ...inputs.clips.segments import SegmentOption
    from ...inputs.sentences.sentence import Sentence

_EVALUATION_KEYS = ["stack", "measure", "perturbation", "metric"]


def choose_best_layer(values: pd.DataFrame) -> pd.DataFrame:
    """Replace the rows of all layers by those of the best layer, cross-fitted over two halves of
    the groups.

    A layer's mean is over groups, so a group with many clips counts once. Groups are split by turns
    in the order of their first clip's name. Of equal layers the lowest is chosen.

    Parameters
    ----------
    values : DataFrame
        Columns `leaderboard.VALUE_COLUMNS`.

    Returns
    -------
    DataFrame
        Without rows of aggregation "layer", with rows of "best layer", whose column layer says
        which it was. One group has no other half, so it has no best layer.
    """
    is_layer = values["aggregation"] == LAYER_ROW
    layers, other_rows = values[is_layer], values[~is_layer]
    best_layer_rows = [
        _cross_fit_layer(rows) for _, rows in layers.groupby(_EVALUATION_KEYS, sort=False)
    ]
    return (
        pd.concat([other_rows, *best_layer_rows], ignore_index=True)
        if best_layer_rows
        else other_rows
    )


def _cross_fit_layer(rows: pd.DataFrame) -> pd.DataFrame:
    """Select for each half of the groups the layer that is best in the other half."""
    metric = rows["metric"].iloc[0]
    means = group_means(rows, by=["layer"]).sort_index()  # [layers, groups], groups in order
    if metric in LOWER_IS_BETTER:
        means = -means
    half = pd.Series(np.arange(means.shape[1]) % 2, index=means.columns)
    half_tables = []
    for half_index in (0, 1):
        other_half_means = means.loc[:, half != half_index].mean(axis=1)
        if other_half_means.notna().any():
            is_chosen = rows["group"].map(half).eq(half_index) & rows["layer"].eq(
                other_half_means.index[int(other_half_means.argmax())]
            )
            half_tables.append(rows[is_chosen].assign(aggregation="best layer"))
    return pd.concat(half_tables) if half_tables else rows.head(0)


def faithfulness(
    model: Model,
    items: Iterable[Clip | Sentence],
    *,
    measures: str | Sequence[str] = DEFAULT_MEASURES,
    perturbations: str | Sequence[str] | None = None,
    aggregations: Sequence[str] | None = None,
    metrics: Sequence[str] | None = None,
    protocol: str | None = None,
    units: str = "word",
    min_words: int = MIN_WORDS,
    segments: SegmentOption | None = None,
    group: str | None = None,
    progress: bool = False,
) -> FaithfulnessResults:
    """Compare measures with effects of removal: how well do they rank the words that a model's
    decision needs?

    Parameters
    ----------
    model : Model
        With its head; without one, measures are compared with "states".
    items : iterable of Clip or Sentence
        With a target (and a foil, for a choice between two spellings); with a cue for average
        precision. The two items of one ``meta["pair"]`` are patched with each other's words. A
        classifier of texts needs no target: its label is used.
    measures : str or sequence of str
        Names of measures, those whose parts add up to a logit ("alti_logit", "decompx", "lrp"),
        "occlusion" and "shapley" (or with a fill, as "shapley (noise)"). "all" that are defined for
        the model but `hta` and `hta_input`, whose Jacobians take up to a minute a clip, and the
        last two, which remove words as reference perturbations do: name them. Random scores are a
        baseline, not a measure.
    perturbations : str or sequence of str, optional
        Reference perturbations: "mute", "blank", "patch", "knock-out", "states", or one with its
        fill, as "mute (zeros)" and "blank (unk)". By default all that the items can have but
        "states"; that alone for a model without a head.
    aggregations : sequence of str, optional
        "best layer" (cross-fitted over groups), "mean", "last", "rollout", "strength rollout" and "composed" (layers weighted
        by their mixing strengths), "to the output" (of measures that explain the margin itself,
        from the input on): each is a row. These by default; also "each layer" and "residual
        rollout".
    metrics : sequence of str, optional
        Of `scores.METRICS`. "soft_comprehensiveness" and "soft_sufficiency" (sound alone) run the
        model for each vector of scores, and are left out by default.
    protocol : {"blank-out", "deletion"}, optional
        Settings of a published protocol, for perturbations, aggregations and metrics that are not given.
        "blank-out" is that of the Value Zeroing paper: probability of the target at [MASK], each
        word blanked, Spearman with the rolled-out row of [MASK]; foils are left aside. Per token,
        per layer and for several models: `speechmix.blank_out`. "deletion" is that of
        `speechmix.deletion_curves`.
    units : {"word", "token"}
        What is taken out of a text, and ranked. A clip has words.
    min_words : int
        Words besides the target that an item needs; with two, any order is right half of the time.
    segments : float or {"voice", "frames"}, optional
        Segments in place of words, as in `shapley`; needs no target.
    group : str, optional
        A column of the items' `meta` that says which belong together; by default speakers, or pair,
        sentence and target word.
    progress : bool
        Show a bar over items.

    Returns
    -------
    FaithfulnessResults

    Raises
    ------
    InputError
        For an unknown measure, perturbation, aggregation, metric or protocol, or no items. An item that
        cannot be evaluated is recorded in `left_out`, and the evaluation goes on; so is a decision
        that a model without a head cannot make.

    Examples
    --------
    >>> results = speechmix.faithfulness(model, clips, perturbations=["mute"])                # doctest: +SKIP
    >>> print(results.sentence())                                                         # doctest: +SKIP
    """
    options = evaluation_options(
        protocol=protocol,
        perturbations=perturbations,
        aggregations=aggregations,
        metrics=metrics,
        units=units,
        min_words=min_words,
    )
    names = resolve_measures(model, measures)
    provenance = {"measures": list(names), "min_words": min_words, "protocol": protocol}
    items = [segment_item(model, item, segments) for item in items]
    return evaluate(
        model, items, names, options, provenance=provenance, group=group, progress=progress
    )


def evaluate(
    model: Model,
    items: Iterable[Clip | Sentence],
    measures: Sequence[str],
    options: EvaluationOptions,
    *,
    provenance: Mapping[str, object],
    group: str | None = None,
    progress: bool = False,
) -> FaithfulnessResults:
    """Evaluate measures on items: what `faithfulness` and its presets do, whose arguments these are;
    `provenance` is added to that of the results."""
    items = list(items)
    if not items:
        raise InputError("expected items to evaluate, found none")
    assign_item_groups(build_item_table(items), items, group)  # an error before models run
    pair_indices = pair_item_indices(items)
    results = []
    for index in _show_progress(range(len(items)), model, progress):
        pair_index = pair_indices[index]
        pair = None if pair_index is None else items[pair_index]
        results.append(evaluate_item(model, items[index], pair, measures, options))
    return combine_items(results, items, {**model_provenance(model), **provenance}, group)


def evaluate_item(
    model: Model,
    item: Clip | Sentence,
    pair: Clip | Sentence | None,
    measures: Sequence[str],
    options: EvaluationOptions,
) -> ItemResult:
    """Evaluate measures on one item, which needs no other item but the other member of its pair.

    Parameters
    ----------
    model, item, measures, options
        As for `evaluate`.
    pair : Clip or Sentence, optional
        The other member of its pair.
    """
    perturbations = options.perturbations or (None if model.has_head else (STATES,))
    state_perturbations = [
        perturbation
        for perturbation in perturbations or ()
        if get_perturbation(perturbation)[0].reads == "states"
    ]
    result = ItemResult()
    for perturbation in state_perturbations:
        rows, notes = evaluate_state_shifts(perturbation, model, item, measures, options)
        result.rows.extend(rows)
        result.notes.extend(notes)
    if perturbations is not None and len(state_perturbations) == len(perturbations):
        return result
    decision_perturbations = perturbations and [
        name for name in perturbations if name not in state_perturbations
    ]
    options = replace(options, perturbations=decision_perturbations)
    try:
        decision = _prepare_decision(model, item, options)
    except SpeechmixError as error:
        result.add_note("item", str(error))
        return result
    pair_decision = None
    if pair is not None:
        with suppress(SpeechmixError):
            pair_decision = _prepare_decision(model, pair, options)
    decision_result = ItemEvaluation(decision, pair_decision, measures, options).run()
    return replace(
        decision_result,
        rows=[*result.rows, *decision_result.rows],
        notes=[*result.notes, *decision_result.notes],
    )


def combine_items(
    results: Iterable[ItemResult],
    items: Sequence[Clip | Sentence],
    provenance: Mapping[str, object],
    group: str | None = None,
) -> FaithfulnessResults:
    """Put together what was found of each item.

    Parameters
    ----------
    results : iterable of ItemResult
    items : sequence of Clip or Sentence
    provenance : mapping
        With model, init and seed.
    group : str, optional
        As for `faithfulness`.
    """
    table = build_item_table(items)
    groups, tie_text = assign_item_groups(table, items, group)
    names = ("rows", "drops", "notes", "points", "texts")
    rows: dict[str, list[dict[str, object]]] = {name: [] for name in names}
    for label, group_name, result in zip(table["clip"], groups, results, strict=True):
        keys = {"item": label, "group": group_name}
        for name in names:
            rows[name] += [{**keys, **row} for row in getattr(result, name)]
    model = model_columns(provenance)
    grouping = describe_groups(table.assign(group=groups), tie_text, noun="item")
    counts = {"items": len(table), "groups": int(groups.nunique()), "grouping": grouping}
    return FaithfulnessResults(
        choose_best_layer(pd.DataFrame(rows["rows"], columns=VALUE_COLUMNS)).assign(**model),
        pd.DataFrame(rows["notes"], columns=["item", "what", "reason"]).assign(
            model=model["model"]
        ),
        pd.DataFrame(rows["drops"], columns=DROP_COLUMNS).assign(**model),
        tie_text,
        {**provenance, **counts},
        pd.DataFrame(rows["points"]),
        pd.DataFrame(rows["texts"]),
    )


def model_provenance(model: Model) -> dict[str, object]:
    """Return the provenance of a model."""
    return {
        "model": model.name,
        "init": model.init,
        "seed": model.seed,
        "weights": model.fingerprint,
    }


def pair_item_indices(items: Sequence[Clip | Sentence]) -> list[int | None]:
    """Return for each item the index of the other item of its pair; None if the pair has not two
    items."""
    indices_by_pair: dict[str, list[int]] = {}
    for index, item in enumerate(items):
        if item.meta.get("pair"):
            indices_by_pair.setdefault(item.meta["pair"], []).append(index)
    pairs = [pair for pair in indices_by_pair.values() if len(pair) == 2]
    other_index = {first: second for pair in pairs for first, second in (pair, pair[::-1])}
    return [other_index.get(index) for index in range(len(items))]


def _prepare_decision(model: Model, item: Clip | Sentence, options: EvaluationOptions) -> Decision:
    if options.foils == "needed" and item.foil is None:
        raise InputError(f"{item.name!r}: the margin needs foil=, the target's other spelling")
    item_without_foil = item.replace(foil=None) if options.foils == "aside" else item
    return Decision.prepare(model, item_without_foil, units=options.units)


def _show_progress(indices: Iterable[int], model: Model, progress: bool) -> Iterable[int]:
    if not progress:
        return indices
    from tqdm.auto import tqdm

    return tqdm(indices, unit="item", desc=f"faithfulness {model.name}")
