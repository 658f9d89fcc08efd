"""faithfulness(): which measure can be believed about this model, and how surely.

In: a model with its head, items with a target (clips with words, sentences), measures and judges by
name. Out: a `Trial`: for every measure, stack and way to aggregate layers the agreement of its
ranking of words with what each judge says, beside random scores, the orders by length and by
position, and the judge as its own oracle.

References: Mohebbi et al. 2023, EACL (blank-out evaluation); Shen, Mohebbi et al. 2025, Interspeech
(attribution in speech); DeYoung et al. 2020, ACL; Zhao & Aletras 2023, ACL; Petsiuk et al. 2018,
BMVC.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pandas as pd

from ...errors import InputError, SpeechmixError
from ...interventions.decision import Decision
from ..statistics.groups import groups_of, item_table
from .evaluated_item import ItemOnTrial, Judged
from .layer_choice import with_best_layer
from .leaderboard import DROP_COLUMNS, VALUE_COLUMNS
from .options import (
    DEFAULT_AGGREGATIONS,
    DEFAULT_MEASURES,
    DEFAULT_METRICS,
    FEWEST_WORDS,
    check_trial,
    measures_of,
    trial_options,
)
from .perturbations import perturbation_named
from .results import Trial
from .states import STATES, rows_by_states

if TYPE_CHECKING:
    from ...adapters.model import Model
    from ...inputs.clips.clip import Clip
    from ...inputs.sentences.sentence import Sentence


def faithfulness(
    model: Model,
    items: Iterable[Clip | Sentence],
    *,
    measures: str | Sequence[str] = DEFAULT_MEASURES,
    judges: str | Sequence[str] | None = None,
    aggregations: Sequence[str] = DEFAULT_AGGREGATIONS,
    metrics: Sequence[str] = DEFAULT_METRICS,
    protocol: str | None = None,
    units: str = "word",
    fewest: int = FEWEST_WORDS,
    progress: bool = False,
) -> Trial:
    """Put measures on trial: how well do they rank the words that a model's decision needs?

    Parameters
    ----------
    model : Model
        With its head; without one, measures are judged by "states".
    items : iterable of Clip or Sentence
        With a target (and a foil, for a choice between two spellings); with a cue for average
        precision. Members of one ``meta["pair"]`` judge each other by patching. A classifier of
        texts needs no target: it is asked for its label.
    measures : str or sequence of str
        Names of measures, those whose parts add up to a logit ("alti_logit", "decompx", "lrp"),
        "occlusion" and "shapley" (or with a fill, as "shapley (noise)"). "all" that are defined for
        the model but `hta` and `hta_input`, whose Jacobians take up to a minute a clip, and the
        last two, which take words away as judges do: name them. Random scores are a baseline, not a
        measure.
    judges : str or sequence of str, optional
        "silence", "blank", "patch", "knock-out", "states", or one with its fill, as "silence
        (zeros)" and "blank (unk)". By default all that the items can have but "states"; that alone
        for a model without a head.
    aggregations : sequence of str
        "best layer" (cross-fitted over groups), "mean", "last", "rollout", "strength rollout" and
        "composed" (layers weighted by their mixing strengths), "to the output" (of measures that
        explain the margin itself, from the input on): each is a row of its own. When asked for:
        "each layer"; "residual rollout".
    metrics : sequence of str
        Of `scores.METRICS`. "soft_comprehensiveness" and "soft_sufficiency" (sound alone) run the
        model for each vector of scores, and are left out by default.
    protocol : {"blank-out"}, optional
        The text protocol of the Value Zeroing paper: probability of the target at [MASK], each word
        blanked, Spearman against the rolled-out row of [MASK]; foils are left aside. The token that
        blanks is `judges`, by default the mean over all: ``judges=("blank (unk)",)``. Per token,
        per layer and for several models: `speechmix.blank_out`.
    units : {"word", "token"}
        What is taken out of a text, and ranked. A clip has words.
    fewest : int
        Words besides the target that an item needs; with two, any order is right half of the time.
    progress : bool
        Show a bar over items.

    Returns
    -------
    Trial

    Raises
    ------
    InputError
        For an unknown measure, judge, aggregation, metric or protocol, or no items. An item that
        cannot be judged is recorded in `Trial.left_out`, and the trial goes on; so is a decision
        that a model without a head is asked for.

    Examples
    --------
    >>> trial = speechmix.faithfulness(model, clips, judges=["silence"])                  # doctest: +SKIP
    >>> print(trial.sentence())                                                           # doctest: +SKIP
    """
    options = trial_options(
        protocol=protocol, judges=judges, aggregations=aggregations, metrics=metrics, units=units
    )
    names = measures_of(model, measures)
    told = {"measures": list(names), "fewest": fewest, "protocol": protocol}
    return on_trial(model, items, names, options, fewest=fewest, progress=progress, told=told)


def on_trial(
    model: Model,
    items: Iterable[Clip | Sentence],
    names: Sequence[str],
    options: Mapping[str, Any],
    *,
    fewest: int,
    progress: bool,
    told: Mapping[str, Any],
) -> Trial:
    """The trial behind `faithfulness`, and behind other protocols that are made of it.

    Parameters
    ----------
    model, items, fewest, progress
        As for `faithfulness`.
    names : sequence of str
        Measures that are defined for the model.
    options : dict
        judges, aggregations, metrics, foils ("used", "needed", "aside"), units, value ("margin",
        "probability"), each_fill.
    told : dict
        For the provenance.

    Raises
    ------
    InputError
        If there are no items.
    """
    items = list(items)
    if not items:
        raise InputError("expected items to judge, found none")
    check_trial(options, fewest)
    pairs = _pairs(items)
    results = []
    for index in shown(range(len(items)), model, progress):
        other = pairs[index]
        pair = None if other is None else items[other]
        results.append(judged(model, items[index], pair, names, options, fewest=fewest))
    return trial_of(results, item_table(items), {**model_facts(model), **told})


def judged(
    model: Model,
    item: Clip | Sentence,
    pair: Clip | Sentence | None,
    names: Sequence[str],
    options: Mapping[str, Any],
    *,
    fewest: int,
) -> Judged:
    """Judge one item: its part of a trial, which needs no other item but the other member of its
    pair.

    Parameters
    ----------
    model, item, names, options, fewest
        As for `on_trial`.
    pair : Clip or Sentence, optional
        The other member of its pair.
    """
    asked = options["judges"] or (None if model.has_head else (STATES,))
    by_states = [judge for judge in asked or () if perturbation_named(judge)[0].reads == "states"]
    result = Judged()
    for judge in by_states:
        rows, notes = rows_by_states(judge, model, item, names, options, fewest)
        result = Judged([*result.rows, *rows], [], [*result.notes, *notes])
    if asked is not None and len(by_states) == len(asked):
        return result
    options = {**options, "judges": asked and [judge for judge in asked if judge not in by_states]}
    try:
        decision = _decision(model, item, options)
    except SpeechmixError as error:
        return Judged(result.rows, [], [*result.notes, {"what": "item", "reason": str(error)}])
    of_pair = None if pair is None else _quietly(model, pair, options)
    item_on_trial = ItemOnTrial(decision, of_pair, names, options, fewest)
    rows = [*result.rows, *item_on_trial.rows()]
    return Judged(rows, item_on_trial.drops, [*result.notes, *item_on_trial.notes])


def trial_of(results: Iterable[Judged], table: pd.DataFrame, told: Mapping[str, Any]) -> Trial:
    """Put together what was found of each item.

    Parameters
    ----------
    results : iterable of Judged
    table : DataFrame
        A row for each of them, as `item_table` makes it.
    told : mapping
        For the provenance.
    """
    groups, ties = groups_of(table)
    rows: list[dict[str, Any]] = []
    drops: list[dict[str, Any]] = []
    left_out: list[dict[str, Any]] = []
    for label, group, result in zip(table["clip"], groups, results, strict=True):
        place = {"item": label, "group": group}
        rows += [{**place, **row} for row in result.rows]
        drops += [{**place, **drop} for drop in result.drops]
        left_out += [{"item": label, **note} for note in result.notes]
    return Trial(
        with_best_layer(pd.DataFrame(rows, columns=VALUE_COLUMNS)),
        pd.DataFrame(left_out, columns=["item", "what", "reason"]),
        pd.DataFrame(drops, columns=DROP_COLUMNS),
        ties,
        {**told, "items": len(table), "groups": int(groups.nunique())},
    )


def model_facts(model: Model) -> dict[str, Any]:
    """What a trial's provenance says of a model."""
    return {
        "model": model.name,
        "init": model.init,
        "seed": model.seed,
        "weights": model.fingerprint,
    }


def _decision(model: Model, item: Clip | Sentence, options: Mapping[str, Any]) -> Decision:
    if options["foils"] == "needed" and item.foil is None:
        raise InputError(f"{item.name!r}: the margin needs foil=, the target's other spelling")
    return Decision.of(
        model,
        item.replace(foil=None) if options["foils"] == "aside" else item,
        units=options["units"],
    )


def _quietly(model: Model, item: Clip | Sentence, options: Mapping[str, Any]) -> Decision | None:
    """The pair's decision; None where there is none to read."""
    with suppress(SpeechmixError):
        return _decision(model, item, options)
    return None


def grouped(items: Sequence[Clip | Sentence]) -> tuple[list[str], list[str], str]:
    """A label of its own and a group for each item, and what ties items."""
    table = item_table(items)
    groups, ties = groups_of(table)
    return table["clip"].tolist(), groups.tolist(), ties


def _pairs(items: Sequence[Clip | Sentence]) -> list[int | None]:
    """For each item the other of its pair, if the pair has two members."""
    members: dict[str, list[int]] = {}
    for index, item in enumerate(items):
        if item.meta.get("pair"):
            members.setdefault(item.meta["pair"], []).append(index)
    other = {a: b for pair in members.values() if len(pair) == 2 for a, b in (pair, pair[::-1])}
    return [other.get(index) for index in range(len(items))]


def shown(places: Iterable[int], model: Model, progress: bool) -> Iterable[int]:
    if not progress:
        return places
    from tqdm.auto import tqdm

    return tqdm(places, unit="item", desc=f"faithfulness {model.name}")
