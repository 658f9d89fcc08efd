"""One item on trial: its judges' verdicts, its maps, and the numbers that come of both.

In: a decision, measures and options by name. Out: rows of `leaderboard.VALUE_COLUMNS` (without item
and group), the drops that were judged by, and notes of what could not be judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import InputError, SpeechmixError
from ...interventions.decision import Decision
from ...mixing.maps.measure_registry import facts_of
from ...mixing.passes.mix import mix_one
from ..cue_alignment import average_precision, chance_level
from .curves import curve_metrics, soft_metrics
from .judges import Verdict, each_fill, judges_of, verdicts
from .leaderboard import ORACLE
from .perturbations import name_and_fills
from .results import CUE
from .scores import CURVE_METRICS, SOFT_METRICS, chance_of, of_ranks
from .to_output import goes_to_output, output_scores
from .words import TO_THE_OUTPUT, WordScores, orders, random_orders, source_words, word_scores

if TYPE_CHECKING:
    from ...mixing.maps.mixing_map import Maps


@dataclass(frozen=True)
class Judged:
    """What was found of one item.

    Parameters
    ----------
    rows, drops : list of dict
        Columns of `leaderboard.VALUE_COLUMNS` and `DROP_COLUMNS`, without item and group.
    notes : list of dict
        What could not be judged: what, reason.
    """

    rows: list[dict[str, Any]] = field(default_factory=list)
    drops: list[dict[str, Any]] = field(default_factory=list)
    notes: list[dict[str, Any]] = field(default_factory=list)


class ItemOnTrial:
    """One item on trial: its judges' verdicts, its maps, and the numbers that come of both."""

    def __init__(
        self,
        decision: Decision,
        pair: Decision | None,
        measures: Sequence[str],
        options: Mapping[str, Any],
        fewest: int,
    ):
        self._decision, self._pair, self._measures = decision, pair, measures
        self._options, self._fewest = options, fewest
        self.notes: list[dict[str, str]] = []
        self.drops: list[dict[str, Any]] = []

    def rows(self) -> Iterator[dict[str, Any]]:
        """One row for each number; what cannot be judged is noted."""
        try:
            vectors = self._vectors()
        except SpeechmixError as error:
            self._note("item", str(error))
            return
        yield from self._of_cue(vectors)
        for judge in self._options["judges"] or judges_of(
            self._decision, has_pair=self._pair is not None
        ):
            try:
                for verdict in verdicts(
                    judge, self._decision, self._pair, value=self._options["value"]
                ):
                    for reason in verdict.notes:
                        self._note(judge, reason)
                    for of_fill in each_fill(verdict) if self._options["each_fill"] else (verdict,):
                        yield from self._of_verdict(of_fill, vectors)
            except SpeechmixError as error:
                self._note(judge, str(error))

    def _vectors(self) -> list[WordScores]:
        """Scores of words by every measure, aggregation and order, in the stacks that have enough
        words."""
        decision = self._decision
        aggregations = self._options["aggregations"]
        maps, failed = (
            maps_by_measure(decision, self._measures)
            if {*aggregations} - {TO_THE_OUTPUT}
            else ({}, [])
        )
        self.notes += failed
        vectors = list(self._to_output()) if TO_THE_OUTPUT in aggregations else []
        vectors += [
            vector
            for name, measure_maps in maps.items()
            for vector in word_scores(measure_maps, name, decision, aggregations)
        ]
        stacks = list(dict.fromkeys(vector.stack for vector in vectors))
        vectors += [order for stack in stacks for order in orders(decision, stack)]
        counts = {stack: len(source_words(decision, stack)) for stack in stacks}
        few = ", ".join(
            f"{stack} {count}" for stack, count in counts.items() if count < self._fewest
        )
        if few:
            self._note("words", f"fewer than {self._fewest} words besides the target: {few}")
        return [vector for vector in vectors if counts[vector.stack] >= self._fewest]

    def _to_output(self) -> Iterator[WordScores]:
        """Scores by the measures that explain the margin itself."""
        for name in filter(goes_to_output, self._measures):
            try:
                yield from output_scores(self._decision, name)
            except SpeechmixError as error:
                self._note(name, str(error))

    def _of_cue(self, vectors: list[WordScores]) -> Iterator[dict[str, Any]]:
        """Average precision of the annotated cue, which needs no judge."""
        cue = getattr(self._decision.item, "cue_words", ())
        if "average_precision" not in self._options["metrics"] or not cue:
            return
        for vector in vectors:
            is_cue = np.array(
                [word.of_word in cue for word in source_words(self._decision, vector.stack)]
            )
            if is_cue.any():
                value = float(average_precision(vector.scores, is_cue))
                chance = chance_level(is_cue)["average_precision"]
                yield self._row(vector, CUE, "average_precision", value, chance)
        for stack in dict.fromkeys(vector.stack for vector in vectors):
            is_cue = np.array([word.of_word in cue for word in source_words(self._decision, stack)])
            if is_cue.any():
                chance = chance_level(is_cue)["average_precision"]
                yield self._row(
                    WordScores(stack, "random", "", None, is_cue),
                    CUE,
                    "average_precision",
                    chance,
                    chance,
                )

    def _of_verdict(self, verdict: Verdict, vectors: list[WordScores]) -> Iterator[dict[str, Any]]:
        for stack in verdict.stacks:
            here = [vector for vector in vectors if vector.stack == stack]
            words = [word.index for word in source_words(self._decision, stack)]
            if not here:
                continue
            drops = verdict.of(words)
            told = (
                {} if self._options["each_fill"] else verdict.by_fill
            )  # which then come by themselves
            for name, of_judge in {verdict.judge: verdict.drops, **told}.items():
                self.drops += [
                    {
                        "stack": stack,
                        "judge": name,
                        "word": word,
                        "drop": of_judge.get(word, np.nan),
                    }
                    for word in words
                ]
            here.append(WordScores(stack, ORACLE, "", None, drops))
            drawn = random_orders(self._decision, stack)
            numbers = self._numbers(
                verdict, words, drops, [*(vector.scores for vector in here), *drawn]
            )
            at_random = {
                name: float(np.mean([number[name] for number in numbers[len(here) :]]))
                for name in numbers[0]
            }
            here.append(WordScores(stack, "random", "", None, drops))
            for vector, metrics in zip(here, [*numbers[: len(here) - 1], at_random], strict=True):
                for metric in [name for name in metrics if name in self._options["metrics"]]:
                    yield self._row(
                        vector,
                        verdict.judge,
                        metric,
                        metrics[metric],
                        chance_of(metric, len(words)),
                    )

    def _numbers(
        self, verdict: Verdict, words: list[int], drops: np.ndarray, scores: list[np.ndarray]
    ) -> list[dict[str, float]]:
        """All metrics of each vector of scores."""
        of_curves, of_soft = (
            self._of_curves(verdict, words, scores),
            self._of_soft(verdict, words, scores),
        )
        return [
            {**a, **b, **c}
            for a, b, c in zip(of_ranks(scores, drops), of_curves, of_soft, strict=True)
        ]

    def _of_curves(
        self, verdict: Verdict, words: list[int], vectors: list[np.ndarray]
    ) -> list[dict[str, float]]:
        if not verdict.removals or not set(self._options["metrics"]) & set(CURVE_METRICS):
            return [{} for _ in vectors]
        return curve_metrics(verdict, words, vectors)

    def _of_soft(
        self, verdict: Verdict, words: list[int], vectors: list[np.ndarray]
    ) -> list[dict[str, float]]:
        asked = set(self._options["metrics"]) & set(SOFT_METRICS)
        if asked and verdict.removals and verdict.removals[0].side == "sound":
            return soft_metrics(
                verdict.removals[0], words, [_as_shares(scores) for scores in vectors]
            )
        return [{} for _ in vectors]

    def _row(
        self, vector: WordScores, judge: str, metric: str, value: float, chance: float
    ) -> dict[str, Any]:
        place = {name: value for name, value in vector._asdict().items() if name != "scores"}
        return {
            **place,
            "words": len(vector.scores),
            "judge": judge,
            "metric": metric,
            "value": value,
            "chance": chance,
        }

    def _note(self, what: str, reason: str) -> None:
        self.notes.append({"what": what, "reason": reason})


def maps_by_measure(
    decision: Decision, measures: Sequence[str]
) -> tuple[dict[str, Maps], list[dict[str, str]]]:
    """Maps of an item by measure; where all together fail, one by one, and notes of the measures
    that fail.

    Of measures that have none there are none, nor of one that reads one position where the margin
    is read at several.
    """
    at_one_position = bool(decision.objective.details.keys() & {"position", "row"})
    measures = [name for name in measures if facts_of(name_and_fills(name)[0]).gives_maps]
    measures = [name for name in measures if at_one_position or not facts_of(name).at_one_position]
    if not measures:
        return {}, []
    with suppress(SpeechmixError):
        together = _mix(decision, measures)
        return dict.fromkeys(measures, together), []
    maps, notes = {}, []
    for name in measures:
        try:
            maps[name] = _mix(decision, [name])
        except SpeechmixError as error:
            notes.append({"what": name, "reason": str(error)})
    return maps, notes


def _mix(decision: Decision, measures: Sequence[str]) -> Maps:
    if decision.item is None:
        raise InputError("prepared inputs have no words to rank: give clips or sentences")
    options = {"units": decision.units, "objective": decision.objective}
    return mix_one(decision.model, decision.item, measures=measures, **options)


def _as_shares(scores: np.ndarray) -> np.ndarray:
    """Shares that sum to one: the scores, or, where some are below zero (positions, drops), their
    ranks."""
    from scipy.stats import rankdata

    positive = scores if (scores >= 0).all() and scores.sum() > 0 else rankdata(scores)
    return positive / positive.sum()
