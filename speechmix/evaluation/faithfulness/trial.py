"""faithfulness(): which measure can be believed about this model, and how surely.

In: a model with its head, items with a target (clips with words, sentences), measures and judges by name. Out: a `Trial`: for
every measure, stack and way to aggregate layers the agreement of its ranking of words with what each judge says, beside
random scores, the orders by length and by position, and the judge as its own oracle.

References: Mohebbi et al. 2023, EACL (blank-out evaluation); Shen, Mohebbi et al. 2025, Interspeech (attribution in speech);
DeYoung et al. 2020, ACL; Zhao & Aletras 2023, ACL; Petsiuk et al. 2018, BMVC.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pandas as pd

from ...errors import InputError, SpeechmixError
from ...interventions.decision import Decision
from ...measures.defined import check_defined
from ...measures.registry import MEASURES, measure_named
from ..groups import groups_of
from .items import ItemOnTrial
from .judges import check_judge
from .leaderboard import DROP_COLUMNS, VALUE_COLUMNS, with_best_layer
from .results import Trial
from .scores import METRICS, SOFT_METRICS
from .words import AGGREGATIONS

if TYPE_CHECKING:
    from ...adapters.model import Model
    from ...inputs.clips import Clip
    from ...inputs.sentences import Sentence

DEFAULT_MEASURES = ("value_zeroing", "attention", "attention_norm", "alti", "gradient_input")
SLOW = ("hta", "hta_input")  # left out of "all"
DEFAULT_METRICS = tuple(metric for metric in METRICS if metric not in SOFT_METRICS)
FEWEST_WORDS = 3
# Named settings: options of `faithfulness`, and whether foils are left aside.
PROTOCOLS: dict[str, dict[str, Any]] = {
    "blank-out": {"judges": ("blank",), "aggregations": ("rollout",), "metrics": ("spearman",), "foils": False},
}


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
        one = ItemOnTrial(decision, pair, names, options, fewest)
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
    labels, seen = [], dict[str, int]()
    for item in items:
        name = str(item.name)
        seen[name] = seen.get(name, 0) + 1
        labels.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    facts = [
        {**dict(item.meta), "clip": label, "text": item.text, "target": _spelled(item), "foil": item.foil}
        for item, label in zip(items, labels, strict=True)
    ]
    groups, ties = groups_of(pd.DataFrame(facts))
    return labels, groups.tolist(), ties


def _spelled(item: Clip | Sentence) -> str:
    return item.words[item.target].text if item.words and isinstance(item.target, int) else ""


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
