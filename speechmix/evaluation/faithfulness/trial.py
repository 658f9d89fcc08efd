"""faithfulness(): which measure can be believed about this model, and how surely.

In: a model with its head, items with a target (clips with words, sentences), measures and judges by name. Out: a `Trial`: for
every measure, stack and way to aggregate layers the agreement of its ranking of words with what each judge says, beside
random scores, the orders by length and by position, and the judge as its own oracle.

References: Mohebbi et al. 2023, EACL (blank-out evaluation); Shen, Mohebbi et al. 2025, Interspeech (attribution in speech);
DeYoung et al. 2020, ACL; Zhao & Aletras 2023, ACL; Petsiuk et al. 2018, BMVC.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ...errors import InputError, SpeechmixError
from ...files.text_files import read_csv, write_csv
from ...interventions.decision import Decision
from ...measures.defined import check_defined
from ...measures.registry import MEASURES, measure_named
from ...scoring.forward import mix_one
from ..cue_alignment import average_precision, chance_level
from ..groups import groups_of, item_table
from .curves import curve_metrics, soft_metrics
from .judges import APART, SIDES, Verdict, check_judge, judges_of, verdicts
from .leaderboard import (
    DROP_COLUMNS,
    ORACLE,
    VALUE_COLUMNS,
    judge_agreement,
    leaderboard,
    sentence,
    summary,
    with_best_layer,
)
from .scores import CURVE_METRICS, METRICS, SOFT_METRICS, of_ranks
from .words import AGGREGATIONS, WordScores, orders, random_orders, source_words, word_scores

if TYPE_CHECKING:
    from ...adapters.model import Model
    from ...inputs.clips import Clip
    from ...inputs.sentences import Sentence
    from ...maps.mixing import Maps

DEFAULT_MEASURES = ("value_zeroing", "attention", "attention_norm", "alti", "gradient_input")
SLOW = ("hta", "hta_input")  # left out of "all"
DEFAULT_METRICS = tuple(metric for metric in METRICS if metric not in SOFT_METRICS)
FEWEST_WORDS = 3
FILE, VALUES_FILE = "faithfulness.csv", "faithfulness_values.csv"
CUE = "cue"  # the judge of average precision: the word that was annotated
# Named settings: options of `faithfulness`, and whether foils are left aside.
PROTOCOLS: dict[str, dict[str, Any]] = {
    "blank-out": {"judges": ("blank",), "aggregations": ("rollout",), "metrics": ("spearman",), "foils": False},
}


@dataclass(frozen=True, eq=False)
class Trial:
    """What a trial of measures found.

    Parameters
    ----------
    values : DataFrame
        One number for each item, row, judge and metric: item, group, words (how many competed), stack, measure, aggregation,
        layer (where one was chosen), judge, metric, value, chance.
    left_out : DataFrame
        Columns item, what ("item", a judge, a metric), reason.
    drops : DataFrame
        What each judge, and each fill alone, says of every word: item, group, stack, judge, word (index), drop (nats).
    ties : str
        What ties items into groups, in words.
    provenance : dict
        Model, initialisation, seed, weights, options.
    """

    values: pd.DataFrame
    left_out: pd.DataFrame
    drops: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=DROP_COLUMNS))
    ties: str = ""
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def table(self) -> pd.DataFrame:
        """Mean over groups of everything, with 95 % intervals: one row for each judge, metric, stack, measure, aggregation."""
        return summary(self.values)

    @property
    def judges(self) -> list[str]:
        """Judges in the order they were asked, those apart (knock-out, which shares Value Zeroing's intervention) last."""
        names = list(dict.fromkeys(self.values["judge"]))
        return sorted((name for name in names if name != CUE), key=lambda name: name in APART)

    def leaderboard(self, metric: str = "spearman", *, judge: str | None = None) -> pd.DataFrame:
        """Rows by one judge (the first by default) and metric, best first; see `leaderboard.leaderboard`.

        Raises
        ------
        InputError
            If this judge gave no such metric.
        """
        return leaderboard(self.values, judge=judge or self._first_judge(), metric=metric)

    def sentence(self, metric: str = "spearman", *, judge: str | None = None) -> str:
        """Who wins by one judge and metric, and how surely; or that no measure is better than the baselines."""
        judge = judge or self._first_judge()
        return sentence(self.leaderboard(metric, judge=judge), judge=judge, metric=metric)

    def judge_agreement(self) -> pd.DataFrame:
        """How far the judges, and the fills of one, rank the words of an item alike; see `leaderboard.judge_agreement`."""
        return judge_agreement(self.drops)

    def write(self, folder: str | PathLike) -> Path:
        """Write ``faithfulness.csv`` into a folder: the leaderboards of all judges and metrics, one under the other.

        A run's page shows it (`speechmix report`). Beside it ``faithfulness_values.csv`` has one number an item. Rows of other
        models that are there already stay.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        asked = self.values[["judge", "metric"]].drop_duplicates().astype(str).itertuples(index=False, name=None)
        boards = [self.leaderboard(metric, judge=judge).assign(judge=judge, metric=metric) for judge, metric in asked]
        tables = {VALUES_FILE: self.values, FILE: pd.concat(boards, ignore_index=True) if boards else self.table}
        facts = {name: str(self.provenance.get(name)) for name in ("model", "init", "seed")}
        for name, table in tables.items():
            write_csv(_beside_other_models(table.assign(**facts), folder / name, facts), folder / name)
        return folder / FILE

    def _first_judge(self) -> str:
        if not self.judges:
            raise InputError(
                f"nothing was judged: {'; '.join(self.left_out['reason'].head(3)) or 'there were no items'}"
            )
        return self.judges[0]

    def __repr__(self) -> str:
        count = self.values["item"].nunique()
        return f"Trial({self.provenance.get('model')}: {count} items judged by {', '.join(self.judges) or 'nobody'})"


def _beside_other_models(table: pd.DataFrame, path: Path, facts: Mapping[str, str]) -> pd.DataFrame:
    """The table behind what a file holds of other models."""
    if not path.is_file():
        return table
    former = read_csv(path)
    if set(former) != set(table):
        raise InputError(f"{path} holds another table: write to another folder, or take the file away")
    same = (former[list(facts)] == pd.Series(dict(facts))).all(axis=1)
    return pd.concat([former[~same], table.astype(object)], ignore_index=True)


def faithfulness(
    model: Model,
    items: Iterable[Clip | Sentence],
    *,
    measures: str | Sequence[str] = DEFAULT_MEASURES,
    judges: str | Sequence[str] | None = None,
    aggregations: Sequence[str] = AGGREGATIONS,
    metrics: Sequence[str] = DEFAULT_METRICS,
    protocol: str | None = None,
    fewest: int = FEWEST_WORDS,
    progress: bool = False,
) -> Trial:
    """Put measures on trial: how well do they rank the words that a model's decision needs?

    Parameters
    ----------
    model : Model
        With its head.
    items : iterable of Clip or Sentence
        With a target (and a foil, for a choice between two spellings); with a cue for average precision. Members of one
        ``meta["pair"]`` judge each other by patching.
    measures : str or sequence of str
        Names of measures, or "all" that are defined for the model but `hta` and `hta_input`, whose Jacobians take up to a
        minute a clip: name them. Random scores are a baseline, not a measure.
    judges : str or sequence of str, optional
        "silence", "blank", "patch", "knock-out", or one with its fill, as "silence (zeros)" and "blank (unk)". By default all
        that the items can have.
    aggregations : sequence of str
        "best layer" (cross-fitted over groups), "mean", "last", "rollout", "composed": each is a row of its own.
    metrics : sequence of str
        Of `scores.METRICS`. "soft_comprehensiveness" and "soft_sufficiency" (sound alone) run the model for each vector of
        scores, and are left out by default.
    protocol : {"blank-out"}, optional
        The text protocol of the Value Zeroing paper: probability of the target at [MASK], each word blanked, Spearman against
        the rolled-out row of [MASK]; foils are left aside. The token that blanks is `judges`, by default the mean over all:
        ``judges=("blank (unk)",)``. (Rank correlations of drops of a probability and of its logarithm are the same.)
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
        For an unknown measure, judge, aggregation, metric or protocol, or no items. An item that cannot be judged is recorded
        in `Trial.left_out`, and the trial goes on.
    ModelError
        If the model has no head.

    Examples
    --------
    >>> trial = speechmix.faithfulness(model, clips, judges=["silence"])                  # doctest: +SKIP
    >>> print(trial.sentence())                                                           # doctest: +SKIP
    """
    options = _options(protocol, judges, aggregations, metrics)
    items = list(items)
    if not items or fewest < 2:
        raise InputError(f"expected items and fewest of at least 2, found {len(items)} items and fewest={fewest!r}")
    names = _measures_of(model, measures)
    labels, groups, ties = _grouped(items)
    pairs = _pairs(items)
    rows: list[dict[str, Any]] = []
    drops: list[dict[str, Any]] = []
    left_out: list[dict[str, str]] = []
    for index in _bar(range(len(items)), model, progress):
        place = {"item": labels[index], "group": groups[index]}
        try:
            decision = _decision(model, items[index], foils=options["foils"])
        except SpeechmixError as error:
            left_out.append({"item": labels[index], "what": "item", "reason": str(error)})
            continue
        other = pairs[index]
        pair = None if other is None else _quietly(model, items[other], foils=options["foils"])
        one = _Item(decision, pair, names, options, fewest)
        rows += [{**place, **row} for row in one.rows()]
        drops += [{**place, **drop} for drop in one.drops]
        left_out += [{"item": labels[index], **note} for note in one.notes]
    values = with_best_layer(pd.DataFrame(rows, columns=VALUE_COLUMNS))
    facts = {"model": model.name, "init": model.init, "seed": model.seed, "weights": model.fingerprint}
    told = {"measures": list(names), "fewest": fewest, "protocol": protocol, "items": len(items)}
    return Trial(
        values,
        pd.DataFrame(left_out, columns=["item", "what", "reason"]),
        pd.DataFrame(drops, columns=DROP_COLUMNS),
        ties,
        {**facts, **told},
    )


class _Item:
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
        for judge in self._options["judges"] or judges_of(self._decision, has_pair=self._pair is not None):
            try:
                for verdict in verdicts(judge, self._decision, self._pair):
                    for reason in verdict.notes:
                        self._note(judge, reason)
                    yield from self._of_verdict(verdict, vectors)
            except SpeechmixError as error:
                self._note(judge, str(error))

    def _vectors(self) -> list[WordScores]:
        """Scores of words by every measure, aggregation and order, in the stacks that have enough words."""
        decision = self._decision
        aggregations = self._options["aggregations"]
        vectors = [
            vector for name, maps in self._maps().items() for vector in word_scores(maps, name, decision, aggregations)
        ]
        stacks = list(dict.fromkeys(vector.stack for vector in vectors))
        vectors += [order for stack in stacks for order in orders(decision, stack)]
        counts = {stack: len(source_words(decision, stack)) for stack in stacks}
        few = ", ".join(f"{stack} {count}" for stack, count in counts.items() if count < self._fewest)
        if few:
            self._note("words", f"fewer than {self._fewest} words besides the target: {few}")
        return [vector for vector in vectors if counts[vector.stack] >= self._fewest]

    def _maps(self) -> dict[str, Maps]:
        """Maps by measure; where all together fail, one by one, and a measure that fails is noted."""
        with suppress(SpeechmixError):
            together = self._mix(self._measures)
            return dict.fromkeys(self._measures, together)
        maps = {}
        for name in self._measures:
            try:
                maps[name] = self._mix([name])
            except SpeechmixError as error:
                self._note(name, str(error))
        return maps

    def _mix(self, measures: Sequence[str]) -> Maps:
        item = self._decision.item
        if item is None:
            raise InputError("prepared inputs have no words to rank: give clips or sentences")
        return mix_one(self._decision.model, item, measures=measures, objective=_objective(self._decision))

    def _of_cue(self, vectors: list[WordScores]) -> Iterator[dict[str, Any]]:
        """Average precision of the annotated cue, which needs no judge."""
        cue = getattr(self._decision.item, "cue_words", ())
        if "average_precision" not in self._options["metrics"] or not cue:
            return
        for vector in vectors:
            is_cue = np.array([word.index in cue for word in source_words(self._decision, vector.stack)])
            if is_cue.any():
                value = float(average_precision(vector.scores, is_cue))
                chance = chance_level(is_cue)["average_precision"]
                yield self._row(vector, CUE, "average_precision", value, chance)
        for stack in dict.fromkeys(vector.stack for vector in vectors):
            is_cue = np.array([word.index in cue for word in source_words(self._decision, stack)])
            if is_cue.any():
                chance = chance_level(is_cue)["average_precision"]
                yield self._row(WordScores(stack, "random", "", None, is_cue), CUE, "average_precision", chance, chance)

    def _of_verdict(self, verdict: Verdict, vectors: list[WordScores]) -> Iterator[dict[str, Any]]:
        for stack in verdict.stacks:
            here = [vector for vector in vectors if vector.stack == stack]
            words = [word.index for word in source_words(self._decision, stack)]
            if not here:
                continue
            drops = verdict.of(words)
            for name, of_judge in {verdict.judge: verdict.drops, **verdict.by_fill}.items():
                self.drops += [
                    {"stack": stack, "judge": name, "word": word, "drop": of_judge.get(word, np.nan)} for word in words
                ]
            here.append(WordScores(stack, ORACLE, "", None, drops))
            drawn = random_orders(self._decision, stack)
            numbers = self._numbers(verdict, words, drops, [*(vector.scores for vector in here), *drawn])
            at_random = {name: float(np.mean([number[name] for number in numbers[len(here) :]])) for name in numbers[0]}
            here.append(WordScores(stack, "random", "", None, drops))
            for vector, metrics in zip(here, [*numbers[: len(here) - 1], at_random], strict=True):
                for metric in [name for name in metrics if name in self._options["metrics"]]:
                    yield self._row(vector, verdict.judge, metric, metrics[metric], _chance(metric, len(words)))

    def _numbers(
        self, verdict: Verdict, words: list[int], drops: np.ndarray, scores: list[np.ndarray]
    ) -> list[dict[str, float]]:
        """All metrics of each vector of scores."""
        of_curves, of_soft = self._of_curves(verdict, words, scores), self._of_soft(verdict, words, scores)
        return [{**a, **b, **c} for a, b, c in zip(of_ranks(scores, drops), of_curves, of_soft, strict=True)]

    def _of_curves(self, verdict: Verdict, words: list[int], vectors: list[np.ndarray]) -> list[dict[str, float]]:
        if not verdict.removals or not set(self._options["metrics"]) & set(CURVE_METRICS):
            return [{} for _ in vectors]
        return curve_metrics(verdict, words, vectors)

    def _of_soft(self, verdict: Verdict, words: list[int], vectors: list[np.ndarray]) -> list[dict[str, float]]:
        asked = set(self._options["metrics"]) & set(SOFT_METRICS)
        if asked and verdict.removals and SIDES.get(verdict.judge.split()[0]) == "sound":
            return soft_metrics(verdict.removals[0], words, [_as_shares(scores) for scores in vectors])
        return [{} for _ in vectors]

    def _row(self, vector: WordScores, judge: str, metric: str, value: float, chance: float) -> dict[str, Any]:
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


def _as_shares(scores: np.ndarray) -> np.ndarray:
    """Shares that sum to one: the scores, or, where some are below zero (positions, drops), their ranks."""
    from scipy.stats import rankdata

    positive = scores if (scores >= 0).all() and scores.sum() > 0 else rankdata(scores)
    return positive / positive.sum()


def _chance(metric: str, count: int) -> float:
    """What an order drawn at random gets on average, with so many words."""
    return {"top_1": 1 / count, "spearman": 0.0, "kendall": 0.0}.get(metric, np.nan)


def _objective(decision: Decision) -> Any:
    """What gradient measures differentiate: the margin that judges read."""
    return lambda output: decision.objective.function(output)


def _options(protocol: str | None, judges, aggregations, metrics) -> dict[str, Any]:
    """Options as they were asked for, checked, with those of a protocol."""
    judges = (judges,) if isinstance(judges, str) else judges
    options = {"judges": judges, "aggregations": tuple(aggregations), "metrics": tuple(metrics), "foils": True}
    if protocol is not None:
        if protocol not in PROTOCOLS:
            raise InputError(f"protocol should be one of {list(PROTOCOLS)}, found {protocol!r}")
        options |= {**PROTOCOLS[protocol], **({"judges": judges} if judges else {})}
    for judge in options["judges"] or ():
        check_judge(judge)
    for name, allowed in (("aggregations", AGGREGATIONS), ("metrics", METRICS)):
        unknown = set(options[name]) - set(allowed)
        if unknown or not options[name]:
            raise InputError(f"{name} are some of {allowed}, found {options[name]!r}")
    return options


def _measures_of(model: Model, asked: str | Sequence[str]) -> tuple[str, ...]:
    """Names of measures, each defined for every stack of the model."""
    if asked == "all":
        names = [name for name in MEASURES if name not in SLOW and _is_defined(model, name)]
    else:
        names = [asked] if isinstance(asked, str) else list(asked)
        for name in names:
            for stack in model.stacks.values():
                check_defined(measure_named(name), stack)
            if name not in MEASURES:
                raise InputError(
                    f"{name} gives one number a target and ranks no words; measures are {', '.join(MEASURES)}"
                )
    return tuple(dict.fromkeys(name for name in names if name != "random"))  # which is a baseline


def _is_defined(model: Model, name: str) -> bool:
    from importlib.util import find_spec

    with suppress(SpeechmixError):
        for stack in model.stacks.values():
            check_defined(measure_named(name), stack)
        return name != "deeplift" or find_spec("captum") is not None
    return False


def _decision(model: Model, item: Clip | Sentence, *, foils: bool) -> Decision:
    return Decision.of(model, item if foils else item.replace(foil=None))


def _quietly(model: Model, item: Clip | Sentence, *, foils: bool) -> Decision | None:
    """The pair's decision; None where there is none to read."""
    with suppress(SpeechmixError):
        return _decision(model, item, foils=foils)
    return None


def _grouped(items: Sequence[Clip | Sentence]) -> tuple[list[str], list[str], str]:
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


def _bar(places: Iterable[int], model: Model, progress: bool) -> Iterable[int]:
    if not progress:
        return places
    from tqdm.auto import tqdm

    return tqdm(places, unit="item", desc=f"faithfulness {model.name}")
