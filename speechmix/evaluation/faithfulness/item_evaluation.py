"""One item of a faithfulness evaluation: effects of reference perturbations, maps, and the numbers
that come of both.

In: a decision, measures and options. Out: `ItemResult`: rows of `leaderboard.VALUE_COLUMNS`
(without item and group), the drops that rows were compared with, points of curves, and notes of
what could not be evaluated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...errors import SpeechmixError
from ...interventions.decision import Decision
from ..row_metrics import average_precision, chance_level
from .curves import perturbation_curves, removed_counts, removed_shares, soft_metrics
from .item_maps import Note, maps_by_measure
from .leaderboard import ORACLE
from .options import EvaluationOptions
from .package_perturbations import (
    RemovalEffects,
    default_perturbations,
    removal_effects,
    split_fills,
)
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
from .to_output import explains_output, output_scores
from .words import (
    TO_THE_OUTPUT,
    WordScores,
    baseline_scores,
    random_orders,
    source_words,
    word_scores,
)

Row = dict[str, object]  # column to value


@dataclass(frozen=True)
class ItemResult:
    """What was found of one item.

    Parameters
    ----------
    rows, drops, points, texts : list of dict
        Columns of the tables of `FaithfulnessResults`, without item and group.
    notes : list of dict
        What could not be evaluated: what, reason.
    """

    rows: list[Row] = field(default_factory=list)
    drops: list[Row] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    points: list[Row] = field(default_factory=list)
    texts: list[Row] = field(default_factory=list)

    def add_note(self, what: str, reason: str) -> None:
        """Record what could not be evaluated."""
        self.notes.append({"what": what, "reason": reason})


class ItemEvaluation:
    """Compares the measures of one item with the effects of its reference perturbations.

    Parameters
    ----------
    decision : Decision
    pair : Decision, optional
        Of the other member of its pair.
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
        """Evaluate; what cannot be is noted."""
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
        """Scores of words by every measure, aggregation and order, in the stacks that have enough
        words."""
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
                    name, f"{name} has no {', '.join(aggregations)}: ask for another aggregation"
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
        """Where a measure stands in the request; one of removals is named there with or without its
        fill."""
        names = [measure, split_fills_from_name(measure)[0]]
        return min(index for index, name in enumerate(self._measures) if name in names)

    def _list_output_scores(self, result: ItemResult) -> list[WordScores]:
        """Scores by the measures that explain the margin itself."""
        vectors: list[WordScores] = []
        for name in filter(explains_output, self._measures):
            try:
                vectors += output_scores(self._decision, name)
            except SpeechmixError as error:
                result.add_note(name, str(error))
        return vectors

    def _cue_precision_rows(self, vectors: Sequence[WordScores]) -> Iterator[Row]:
        """Average precision of the annotated cue, which needs no perturbation."""
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
            yield _value_row(vector, CUE, "average_precision", value, chance)

    def _random_baselines(self, vectors: Sequence[WordScores]) -> list[WordScores]:
        """The random baseline of each stack; its scores only say how many words compete."""
        counts = {vector.stack: vector.scores for vector in vectors}
        return [WordScores(stack, "random", "", None, like) for stack, like in counts.items()]

    def _compare_with_effects(
        self, effects: RemovalEffects, vectors: Sequence[WordScores], result: ItemResult
    ) -> None:
        """Compare all orders of words with the effects of one perturbation."""
        for stack in effects.stacks:
            candidates = [vector for vector in vectors if vector.stack == stack]
            if not candidates:
                continue
            words = [word.index for word in source_words(self._decision, stack)]
            drops = effects.word_drops(words)
            by_fill = {} if self._options.each_fill else effects.by_fill  # which then come alone
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
                        _value_row(vector, effects.perturbation, metric, metrics[metric], chance)
                    )
            if self._options.points and curves is not None:  # [N, 2, P]
                count = len(candidates) - 1
                means = [*curves[:count], curves[count:].mean(axis=0)]
                for vector, curve in zip(candidates, means, strict=True):
                    result.points.extend(self._curve_points(vector, effects.perturbation, curve))
                result.texts.append(self._text_row(len(words), float(curves[0, 0, 0])))

    def _perturbation_curves(
        self, effects: RemovalEffects, words: Sequence[int], scores: Sequence[np.ndarray]
    ) -> np.ndarray | None:
        """Curves of each vector of scores; None without removals, or where no metric needs them."""
        if not effects.removals or not set(self._options.metrics) & set(CURVE_METRICS):
            return None
        counts = removed_counts(len(words), self._options.bins)
        return perturbation_curves(effects, words, [rank_words(one) for one in scores], counts)

    def _compute_metrics(
        self,
        effects: RemovalEffects,
        words: Sequence[int],
        drops: np.ndarray,
        scores: Sequence[np.ndarray],
        curves: np.ndarray | None,
    ) -> list[dict[str, float]]:
        """All metrics of each vector of scores."""
        metric_values = [dict(ranks) for ranks in rank_metrics(scores, drops)]
        bins = self._options.bins
        if curves is not None:
            shares = None if bins is None else removed_shares(len(words), bins)
            for vector_metrics, curve in zip(metric_values, curves, strict=True):
                vector_metrics |= curve_metrics(curve[0], curve[1], shares)
        has_soft = set(self._options.metrics) & set(SOFT_METRICS)
        if has_soft and effects.removals and effects.removals[0].side == "sound":
            soft_values = soft_metrics(
                effects.removals[0], words, [_normalize_scores(one) for one in scores]
            )
            for vector_metrics, vector_soft_values in zip(metric_values, soft_values, strict=True):
                vector_metrics |= vector_soft_values
        return metric_values

    def _curve_points(
        self, vector: WordScores, perturbation: str, curve: np.ndarray
    ) -> Iterator[Row]:
        """Every point of a curve: percent of words, how many, probability without and with them
        alone."""
        count = len(vector.scores)
        counts = removed_counts(count, self._options.bins)
        shares = removed_shares(count, self._options.bins)
        names = ("share", "count", "removed", "kept")
        for values in zip(shares, counts, *curve, strict=True):
            yield {
                **_score_columns(vector),
                "perturbation": perturbation,
                **dict(zip(names, values, strict=True)),
            }

    def _text_row(self, word_count: int, probability: float) -> Row:
        """The label that a text is evaluated for, how probable it is, and whether it came with
        it."""
        label, item = self._decision.objective.details.get("label", ""), self._decision.item
        gold = "" if item is None else item.meta.get("label", "")
        is_right = label == gold if gold and self._decision.model.classifies else None
        return {
            "label": label,
            "probability": probability,
            "gold": gold,
            "right": is_right,
            "units": word_count,
        }


def _append_random_mean(
    metric_values: Sequence[dict[str, float]], count: int
) -> list[dict[str, float]]:
    """The first `count` numbers, and the mean of the others (random orders)."""
    means = {
        name: float(np.mean([one[name] for one in metric_values[count:]]))
        for name in metric_values[0]
    }
    return [*metric_values[:count], means]


def _score_columns(vector: WordScores) -> Row:
    return {name: value for name, value in vector._asdict().items() if name != "scores"}


def _value_row(
    vector: WordScores, perturbation: str, metric: str, value: float, chance: float
) -> Row:
    return {
        **_score_columns(vector),
        "words": len(vector.scores),
        "perturbation": perturbation,
        "metric": metric,
        "value": value,
        "chance": chance,
    }


def _normalize_scores(scores: np.ndarray) -> np.ndarray:
    """Shares that sum to one: the scores, or, where some are below zero (positions, drops), their
    ranks."""
    from scipy.stats import rankdata

    positive: np.ndarray = scores if (scores >= 0).all() and scores.sum() > 0 else rankdata(scores)
    shares: np.ndarray = positive / positive.sum()
    return shares
