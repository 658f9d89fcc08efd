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
from .judges import Verdict, each_fill, judges_of, verdicts
from .leaderboard import ORACLE
from .options import EvaluationOptions
from .perturbations import name_and_fills
from .results import CUE
from .scores import CURVE_METRICS, SOFT_METRICS, chance_of, of_curves, of_ranks, rank_words
from .to_output import goes_to_output, output_scores
from .words import TO_THE_OUTPUT, WordScores, orders, random_orders, source_words, word_scores

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

    def note(self, what: str, reason: str) -> None:
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
            vectors = self._vectors(result)
        except SpeechmixError as error:
            result.note("item", str(error))
            return result
        result.rows.extend(self._cue_rows(vectors))
        for judge in options.judges or judges_of(self._decision, has_pair=self._pair is not None):
            try:
                found = verdicts(judge, self._decision, self._pair, value=options.value)
                for verdict in found:
                    for reason in verdict.notes:
                        result.note(judge, reason)
                    for of_fill in each_fill(verdict) if options.each_fill else (verdict,):
                        self._compare(of_fill, vectors, result)
            except SpeechmixError as error:
                result.note(judge, str(error))
        return result

    def _vectors(self, result: ItemResult) -> list[WordScores]:
        """Scores of words by every measure, aggregation and order, in the stacks that have enough
        words."""
        decision, aggregations = self._decision, self._options.aggregations
        has_maps = bool({*aggregations} - {TO_THE_OUTPUT})
        maps, failed = maps_by_measure(decision, self._measures) if has_maps else ({}, [])
        result.notes.extend(failed)
        vectors = self._output_vectors(result) if TO_THE_OUTPUT in aggregations else []
        for name, measure_maps in maps.items():
            found = list(word_scores(measure_maps, name, decision, aggregations))
            vectors += found
            if not found and not goes_to_output(name):
                result.note(
                    name, f"{name} has no {', '.join(aggregations)}: ask for another aggregation"
                )
        vectors.sort(key=lambda vector: self._measure_index(vector.measure))
        stacks = list(dict.fromkeys(vector.stack for vector in vectors))
        vectors += [order for stack in stacks for order in orders(decision, stack)]
        counts = {stack: len(source_words(decision, stack)) for stack in stacks}
        fewest = self._options.fewest
        few = ", ".join(f"{stack} {count}" for stack, count in counts.items() if count < fewest)
        if few:
            result.note("words", f"fewer than {fewest} words besides the target: {few}")
        return [vector for vector in vectors if counts[vector.stack] >= fewest]

    def _measure_index(self, measure: str) -> int:
        """Where a measure stands in the request; one of removals is named there with or without its
        fill."""
        names = [measure, name_and_fills(measure)[0]]
        return min(index for index, name in enumerate(self._measures) if name in names)

    def _output_vectors(self, result: ItemResult) -> list[WordScores]:
        """Scores by the measures that explain the margin itself."""
        vectors: list[WordScores] = []
        for name in filter(goes_to_output, self._measures):
            try:
                vectors += output_scores(self._decision, name)
            except SpeechmixError as error:
                result.note(name, str(error))
        return vectors

    def _cue_rows(self, vectors: Sequence[WordScores]) -> Iterator[Row]:
        """Average precision of the annotated cue, which needs no perturbation."""
        cue = getattr(self._decision.item, "cue_words", ())
        if "average_precision" not in self._options.metrics or not cue:
            return
        for vector in [*vectors, *self._random_vectors(vectors)]:
            words = source_words(self._decision, vector.stack)
            is_cue = np.array([word.word_index in cue for word in words])
            if not is_cue.any():
                continue
            chance = chance_level(is_cue)["average_precision"]
            is_random = vector.measure == "random"
            value = chance if is_random else float(average_precision(vector.scores, is_cue))
            yield _row(vector, CUE, "average_precision", value, chance)

    def _random_vectors(self, vectors: Sequence[WordScores]) -> list[WordScores]:
        """The random baseline of each stack; its scores only say how many words compete."""
        counts = {vector.stack: vector.scores for vector in vectors}
        return [WordScores(stack, "random", "", None, like) for stack, like in counts.items()]

    def _compare(self, verdict: Verdict, vectors: Sequence[WordScores], result: ItemResult) -> None:
        """Compare all orders of words with the effects of one perturbation."""
        for stack in verdict.stacks:
            ranked = [vector for vector in vectors if vector.stack == stack]
            if not ranked:
                continue
            words = [word.index for word in source_words(self._decision, stack)]
            drops = verdict.of(words)
            by_fill = {} if self._options.each_fill else verdict.by_fill  # which then come alone
            for judge, effects in {verdict.judge: verdict.drops, **by_fill}.items():
                result.drops.extend(
                    {
                        "stack": stack,
                        "judge": judge,
                        "word": word,
                        "drop": effects.get(word, np.nan),
                    }
                    for word in words
                )
            ranked.append(WordScores(stack, ORACLE, "", None, drops))
            drawn = random_orders(self._decision, stack, self._options.draws)
            scores = [*(vector.scores for vector in ranked), *drawn]
            curves = self._curves(verdict, words, scores)  # [N, 2, P]
            numbers = self._numbers(verdict, words, drops, scores, curves)
            numbers = _with_mean_of_rest(numbers, len(ranked))
            ranked.append(WordScores(stack, "random", "", None, drops))
            for vector, metrics in zip(ranked, numbers, strict=True):
                for metric in [name for name in metrics if name in self._options.metrics]:
                    chance = chance_of(metric, len(words))
                    result.rows.append(_row(vector, verdict.judge, metric, metrics[metric], chance))
            if self._options.points and curves is not None:  # [N, 2, P]
                count = len(ranked) - 1
                means = [*curves[:count], curves[count:].mean(axis=0)]
                for vector, curve in zip(ranked, means, strict=True):
                    result.points.extend(self._points(vector, verdict.judge, curve))
                result.texts.append(self._label(len(words), float(curves[0, 0, 0])))

    def _curves(
        self, verdict: Verdict, words: Sequence[int], scores: Sequence[np.ndarray]
    ) -> np.ndarray | None:
        """Curves of each vector of scores; None without removals, or where no metric needs them."""
        if not verdict.removals or not set(self._options.metrics) & set(CURVE_METRICS):
            return None
        counts = removed_counts(len(words), self._options.bins)
        return perturbation_curves(verdict, words, [rank_words(one) for one in scores], counts)

    def _numbers(
        self,
        verdict: Verdict,
        words: Sequence[int],
        drops: np.ndarray,
        scores: Sequence[np.ndarray],
        curves: np.ndarray | None,
    ) -> list[dict[str, float]]:
        """All metrics of each vector of scores."""
        numbers = [dict(ranks) for ranks in of_ranks(scores, drops)]
        bins = self._options.bins
        if curves is not None:
            shares = None if bins is None else removed_shares(len(words), bins)
            for of_vector, curve in zip(numbers, curves, strict=True):
                of_vector |= of_curves(curve[0], curve[1], shares)
        has_soft = set(self._options.metrics) & set(SOFT_METRICS)
        if has_soft and verdict.removals and verdict.removals[0].side == "sound":
            soft = soft_metrics(verdict.removals[0], words, [_as_shares(one) for one in scores])
            for of_vector, of_soft in zip(numbers, soft, strict=True):
                of_vector |= of_soft
        return numbers

    def _points(self, vector: WordScores, judge: str, curve: np.ndarray) -> Iterator[Row]:
        """Every point of a curve: percent of words, how many, probability without and with them
        alone."""
        count = len(vector.scores)
        counts = removed_counts(count, self._options.bins)
        shares = removed_shares(count, self._options.bins)
        names = ("share", "count", "removed", "kept")
        for values in zip(shares, counts, *curve, strict=True):
            yield {**_row_keys(vector), "judge": judge, **dict(zip(names, values, strict=True))}

    def _label(self, word_count: int, probability: float) -> Row:
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


def _with_mean_of_rest(numbers: Sequence[dict[str, float]], count: int) -> list[dict[str, float]]:
    """The first `count` numbers, and the mean of the others (random orders)."""
    means = {name: float(np.mean([one[name] for one in numbers[count:]])) for name in numbers[0]}
    return [*numbers[:count], means]


def _row_keys(vector: WordScores) -> Row:
    return {name: value for name, value in vector._asdict().items() if name != "scores"}


def _row(vector: WordScores, judge: str, metric: str, value: float, chance: float) -> Row:
    return {
        **_row_keys(vector),
        "words": len(vector.scores),
        "judge": judge,
        "metric": metric,
        "value": value,
        "chance": chance,
    }


def _as_shares(scores: np.ndarray) -> np.ndarray:
    """Shares that sum to one: the scores, or, where some are below zero (positions, drops), their
    ranks."""
    from scipy.stats import rankdata

    positive: np.ndarray = scores if (scores >= 0).all() and scores.sum() > 0 else rankdata(scores)
    of_words: np.ndarray = positive / positive.sum()
    return of_words
