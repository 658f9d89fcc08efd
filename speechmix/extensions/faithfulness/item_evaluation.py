"""Faithfulness evaluation of one item: metrics of measures against the effects of perturbations.

In: a decision, measures and options. Out: `ItemResult` (results.py).

Joint removal of two tokens, against the removal of each alone.

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
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ...errors import InputError, SpeechmixError
from ...evaluation.cue_need import average_precision, chance_level
from ...inputs.sentences.sentence import Sentence
from ...interventions.decision import Decision
from ...interventions.removals import token_fills
from ..occlusion.input_ablation import side_stack
from ..occlusion.shapley import RemovalMargins
from .curves import (
    RemovalEffects,
    default_perturbations,
    perturbation_curves,
    removal_effects,
    removed_counts,
    removed_shares,
    soft_metrics,
    split_fills,
)
from .leaderboard import ORACLE
from .options import EvaluationOptions
from .output_scores import explains_output, output_scores
from .perturbations import split_fills_from_name
from .results import CUE, ItemResult, Row, curve_point_rows, maps_by_measure, text_row, value_row
from .word_scores import (
    CURVE_METRICS,
    SOFT_METRICS,
    TO_THE_OUTPUT,
    WordScores,
    baseline_scores,
    chance_value,
    curve_metrics,
    random_orders,
    rank_metrics,
    rank_words,
    source_words,
    word_scores,
)

if TYPE_CHECKING:
    from ...adapters.model import Model


class ItemEvaluation:
    """Compare the measures of one item with the effects of its reference perturbations.

    Parameters
    ----------
    decision : Decision
    pair : Decision, optional
        Decision about the other item of its pair.
    measures : sequence of str
    options : EvaluationOptions
    """

    def __init__(
        self,
        decision: Decision,
        pair: Decision | None,
        measures: Sequence[str],
        options: EvaluationOptions,
    ):
        self._decision, self._pair = decision, pair
        self._measures, self._options = measures, options

    def run(self) -> ItemResult:
        """Evaluate, with a note for each part that is not possible."""
        result, options = ItemResult(), self._options
        try:
            vectors = self._list_word_scores(result)
        except SpeechmixError as error:
            result.add_note("item", str(error))
            return result
        result.rows.extend(self._cue_precision_rows(vectors))
        for perturbation in options.perturbations or default_perturbations(
            self._decision, has_pair=self._pair is not None
        ):
            try:
                all_effects = removal_effects(
                    perturbation, self._decision, self._pair, value=options.value
                )
                for effects in all_effects:
                    for reason in effects.notes:
                        result.add_note(perturbation, reason)
                    for fill_effects in split_fills(effects) if options.each_fill else (effects,):
                        self._compare_with_effects(fill_effects, vectors, result)
            except SpeechmixError as error:
                result.add_note(perturbation, str(error))
        return result

    def _list_word_scores(self, result: ItemResult) -> list[WordScores]:
        """List the scores of words by every measure, aggregation and baseline, in the stacks with
        enough words."""
        decision, aggregations = self._decision, self._options.aggregations
        has_maps = bool({*aggregations} - {TO_THE_OUTPUT})
        maps, map_notes = maps_by_measure(decision, self._measures) if has_maps else ({}, [])
        result.notes.extend(map_notes)
        vectors = self._list_output_scores(result) if TO_THE_OUTPUT in aggregations else []
        for name, measure_maps in maps.items():
            measure_scores = list(word_scores(measure_maps, name, decision, aggregations))
            vectors += measure_scores
            if not measure_scores and not explains_output(name):
                result.add_note(
                    name, f"{name} has no {', '.join(aggregations)}: choose another aggregation"
                )
        vectors.sort(key=lambda vector: self._measure_index(vector.measure))
        stacks = list(dict.fromkeys(vector.stack for vector in vectors))
        vectors += [order for stack in stacks for order in baseline_scores(decision, stack)]
        counts = {stack: len(source_words(decision, stack)) for stack in stacks}
        min_words = self._options.min_words
        short_stacks = ", ".join(
            f"{stack} {count}" for stack, count in counts.items() if count < min_words
        )
        if short_stacks:
            result.add_note(
                "words", f"fewer than {min_words} words besides the target: {short_stacks}"
            )
        return [vector for vector in vectors if counts[vector.stack] >= min_words]

    def _measure_index(self, measure: str) -> int:
        """Return the index of a measure in the request, where it may have a fill in its name."""
        names = [measure, split_fills_from_name(measure)[0]]
        return min(index for index, name in enumerate(self._measures) if name in names)

    def _list_output_scores(self, result: ItemResult) -> list[WordScores]:
        """List the scores of the measures that explain the margin itself."""
        vectors: list[WordScores] = []
        for name in filter(explains_output, self._measures):
            try:
                vectors += output_scores(self._decision, name)
            except SpeechmixError as error:
                result.add_note(name, str(error))
        return vectors

    def _cue_precision_rows(self, vectors: Sequence[WordScores]) -> Iterator[Row]:
        """Yield the average precision of the annotated cue, which needs no perturbation."""
        cue = getattr(self._decision.item, "cue_words", ())
        if "average_precision" not in self._options.metrics or not cue:
            return
        for vector in [*vectors, *self._random_baselines(vectors)]:
            words = source_words(self._decision, vector.stack)
            is_cue = np.array([word.word_index in cue for word in words])
            if not is_cue.any():
                continue
            chance = chance_level(is_cue)["average_precision"]
            is_random = vector.measure == "random"
            value = chance if is_random else float(average_precision(vector.scores, is_cue))
            yield value_row(vector, CUE, "average_precision", value, chance)

    def _random_baselines(self, vectors: Sequence[WordScores]) -> list[WordScores]:
        """Return the random baseline of each stack; its scores only have the number of words."""
        counts = {vector.stack: vector.scores for vector in vectors}
        return [
            WordScores(stack, "random", "", None, stack_scores)
            for stack, stack_scores in counts.items()
        ]

    def _compare_with_effects(
        self, effects: RemovalEffects, vectors: Sequence[WordScores], result: ItemResult
    ) -> None:
        """Compare all scores of words with the effects of one perturbation."""
        for stack in effects.stacks:
            candidates = [vector for vector in vectors if vector.stack == stack]
            if not candidates:
                continue
            words = [word.index for word in source_words(self._decision, stack)]
            drops = effects.word_drops(words)
            by_fill = (
                {} if self._options.each_fill else effects.by_fill
            )  # else each fill is compared by itself
            for name, drops_by_word in {effects.perturbation: effects.drops, **by_fill}.items():
                result.drops.extend(
                    {
                        "stack": stack,
                        "perturbation": name,
                        "word": word,
                        "drop": drops_by_word.get(word, np.nan),
                    }
                    for word in words
                )
            candidates.append(WordScores(stack, ORACLE, "", None, drops))
            random_scores = random_orders(self._decision, stack, self._options.n_random_orders)
            scores = [*(vector.scores for vector in candidates), *random_scores]
            curves = self._perturbation_curves(effects, words, scores)  # [N, 2, P]
            metric_values = self._compute_metrics(effects, words, drops, scores, curves)
            metric_values = _append_random_mean(metric_values, len(candidates))
            candidates.append(WordScores(stack, "random", "", None, drops))
            for vector, metrics in zip(candidates, metric_values, strict=True):
                for metric in [name for name in metrics if name in self._options.metrics]:
                    chance = chance_value(metric, len(words))
                    result.rows.append(
                        value_row(vector, effects.perturbation, metric, metrics[metric], chance)
                    )
            if self._options.points and curves is not None:  # [N, 2, P]
                count = len(candidates) - 1
                means = [*curves[:count], curves[count:].mean(axis=0)]
                for vector, curve in zip(candidates, means, strict=True):
                    result.points.extend(
                        curve_point_rows(vector, effects.perturbation, curve, self._options.bins)
                    )
                result.texts.append(text_row(self._decision, len(words), float(curves[0, 0, 0])))

    def _perturbation_curves(
        self, effects: RemovalEffects, words: Sequence[int], scores: Sequence[np.ndarray]
    ) -> np.ndarray | None:
        """Compute curves of each vector of scores; None if there are no removals, or no curve metric."""
        if not effects.removals or not set(self._options.metrics) & set(CURVE_METRICS):
            return None
        counts = removed_counts(len(words), self._options.bins)
        return perturbation_curves(
            effects, words, [rank_words(vector_scores) for vector_scores in scores], counts
        )

    def _compute_metrics(
        self,
        effects: RemovalEffects,
        words: Sequence[int],
        drops: np.ndarray,
        scores: Sequence[np.ndarray],
        curves: np.ndarray | None,
    ) -> list[dict[str, float]]:
        """Compute all metrics of each vector of scores."""
        metric_values = [dict(ranks) for ranks in rank_metrics(scores, drops)]
        bins = self._options.bins
        if curves is not None:
            shares = None if bins is None else removed_shares(len(words), bins)
            for vector_metrics, curve in zip(metric_values, curves, strict=True):
                vector_metrics |= curve_metrics(curve[0], curve[1], shares)
        has_soft = set(self._options.metrics) & set(SOFT_METRICS)
        if has_soft and effects.removals and effects.removals[0].side == "sound":
            soft_values = soft_metrics(
                effects.removals[0],
                words,
                [_normalize_scores(vector_scores) for vector_scores in scores],
            )
            for vector_metrics, vector_soft_values in zip(metric_values, soft_values, strict=True):
                vector_metrics |= vector_soft_values
        return metric_values


def _append_random_mean(
    metric_values: Sequence[dict[str, float]], count: int
) -> list[dict[str, float]]:
    """Return the metrics of the first `count` vectors, and the mean of the others (random orders)."""
    means = {
        name: float(np.mean([vector_metrics[name] for vector_metrics in metric_values[count:]]))
        for name in metric_values[0]
    }
    return [*metric_values[:count], means]


def _normalize_scores(scores: np.ndarray) -> np.ndarray:
    """Normalize scores to a sum of one; where some are below zero (positions, drops), use ranks."""
    from scipy.stats import rankdata

    positive: np.ndarray = scores if (scores >= 0).all() and scores.sum() > 0 else rankdata(scores)
    shares: np.ndarray = positive / positive.sum()
    return shares


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
