"""Faithfulness evaluation of one item: metrics of measures against the effects of perturbations.

In: a decision, measures and options. Out: `ItemResult` (item_rows.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ...errors import SpeechmixError
from ...evaluation.cue_need import average_precision, chance_level
from ...interventions.decision import Decision
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
from .item_rows import ItemResult, Row, curve_point_rows, maps_by_measure, text_row, value_row
from .leaderboard import ORACLE
from .options import EvaluationOptions
from .output_scores import explains_output, output_scores
from .perturbations import split_fills_from_name
from .results import CUE
from .scores import (
    CURVE_METRICS,
    SOFT_METRICS,
    chance_value,
    curve_metrics,
    rank_metrics,
    rank_words,
)
from .word_scores import (
    TO_THE_OUTPUT,
    WordScores,
    baseline_scores,
    random_orders,
    source_words,
    word_scores,
)


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
