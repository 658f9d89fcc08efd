"""Options of a faithfulness evaluation, checked, with the settings of published protocols; which
measures a model has.

In: options of `speechmix.faithfulness` and its presets, a model. Out: `EvaluationOptions`, which
decide, with model and item, what is found of an item; names of measures.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Literal, TypedDict

from ...errors import InputError, SpeechmixError
from ...mixing.maps.measure_registry import (
    check_gives_maps,
    is_installed,
    measure_facts,
    measure_names,
)
from ...mixing.measures.measure import check_defined
from ...mixing.passes.request import TEXT_UNITS
from ..logit_decompositions.input_attribution import check_reaches_audio
from ..logit_decompositions.logit_contributions import check_splits_logits
from .output_scores import check_removal_measure, is_removal_measure
from .perturbations import get_perturbation, split_fills_from_name
from .word_scores import (
    AGGREGATIONS,
    CURVE_METRICS,
    EACH_LAYER,
    METRICS,
    N_RANDOM_ORDERS,
    RESIDUAL_ROLLOUT,
    SOFT_METRICS,
    TO_THE_OUTPUT,
)

if TYPE_CHECKING:
    from ...adapters.model import Model

DEFAULT_MEASURES = ("value_zeroing", "attention", "attention_norm", "alti", "gradient_input")
DEFAULT_METRICS = tuple(metric for metric in METRICS if metric not in SOFT_METRICS)
DEFAULT_AGGREGATIONS = tuple(
    name for name in AGGREGATIONS if name not in (EACH_LAYER, RESIDUAL_ROLLOUT)
)
MIN_WORDS = 3
BINS = (1, 5, 10, 20, 50)  # percent of a text's tokens, as published
BLANK_OUT = "blank-out"
DELETION = "deletion"


@dataclass(frozen=True)
class EvaluationOptions:
    """What decides, with model, item and measures, what an evaluation finds of an item.

    Parameters
    ----------
    perturbations, aggregations, metrics, units, min_words
        As for `speechmix.faithfulness`.
    foils : {"used", "needed", "aside"}
        "aside" evaluates the target by itself; "needed" refuses an item without a foil.
    value : {"margin", "probability"}
        What a drop is of.
    each_fill : bool
        True evaluates each fill of a perturbation by itself, too.
    bins : sequence of float, optional
        Percent of the words that curves remove together; by default one word after the other.
    points : bool
        True keeps all points of the curves, and the label of each text.
    n_random_orders : int
        Random orders, whose mean is the baseline.
    """

    perturbations: Sequence[str] | None = None
    aggregations: Sequence[str] = DEFAULT_AGGREGATIONS
    metrics: Sequence[str] = DEFAULT_METRICS
    units: str = "word"
    min_words: int = MIN_WORDS
    foils: Literal["used", "needed", "aside"] = "used"
    value: Literal["margin", "probability"] = "margin"
    each_fill: bool = False
    bins: Sequence[float] | None = None
    points: bool = False
    n_random_orders: int = N_RANDOM_ORDERS

    def __post_init__(self) -> None:
        for perturbation in self.perturbations or ():
            get_perturbation(perturbation)  # raises an error that lists what there is
        for name, values, allowed in (
            ("aggregations", self.aggregations, AGGREGATIONS),
            ("metrics", self.metrics, METRICS),
        ):
            if set(values) - set(allowed) or not values:
                raise InputError(f"{name} are some of {allowed}, found {values!r}")
        if self.units not in TEXT_UNITS:
            raise InputError(f"units should be one of {TEXT_UNITS}, found {self.units!r}")
        if self.min_words < 2:  # any order would be right half of the time
            raise InputError(f"min_words should be at least 2, found {self.min_words!r}")
        bins = self.bins
        if bins is not None and not (
            len(bins) and list(bins) == sorted(set(bins)) and 0 < bins[0] <= bins[-1] <= 100
        ):
            raise InputError(
                f"bins should be percent of the tokens, above 0 to 100 and rising, found {bins!r}"
            )

    def cache_entry(self) -> dict[str, object]:
        """Return what decides the results of an item, without `min_words` and without newer options
        at their defaults."""
        values = {option.name: getattr(self, option.name) for option in fields(self)}
        return {
            option.name: values[option.name]
            for option in fields(self)
            if option.name in _ALWAYS_CACHED_OPTIONS
            or (option.name != "min_words" and values[option.name] != option.default)
        }


_ALWAYS_CACHED_OPTIONS = (
    "perturbations",
    "aggregations",
    "metrics",
    "foils",
    "value",
    "each_fill",
    "units",
)


class ProtocolSettings(TypedDict, total=False):
    """Options that a published protocol decides."""

    perturbations: tuple[str, ...]
    aggregations: tuple[str, ...]
    metrics: tuple[str, ...]
    foils: Literal["aside"]
    value: Literal["probability"]
    bins: tuple[float, ...]
    points: bool
    n_random_orders: int


PROTOCOLS: dict[str, ProtocolSettings] = {
    BLANK_OUT: {
        "perturbations": ("blank",),
        "aggregations": ("rollout",),
        "metrics": ("spearman",),
        "foils": "aside",
    },
    DELETION: {
        "perturbations": ("blank",),
        "aggregations": ("rollout", TO_THE_OUTPUT),
        "metrics": CURVE_METRICS,
        "foils": "aside",
        "value": "probability",
        "bins": BINS,
        "points": True,
        "n_random_orders": 10,
    },
}


def evaluation_options(
    *,
    protocol: str | None = None,
    perturbations: str | Sequence[str] | None = None,
    aggregations: Sequence[str] | None = None,
    metrics: Sequence[str] | None = None,
    units: str = "word",
    min_words: int = MIN_WORDS,
) -> EvaluationOptions:
    """Build the options of `speechmix.faithfulness`: arguments first, then the protocol, then
    defaults."""
    if protocol is not None and protocol not in PROTOCOLS:
        raise InputError(f"protocol should be one of {list(PROTOCOLS)}, found {protocol!r}")
    settings: ProtocolSettings = {**PROTOCOLS[protocol]} if protocol else {}
    if perturbations:
        settings["perturbations"] = (
            (perturbations,) if isinstance(perturbations, str) else tuple(perturbations)
        )
    if aggregations is not None:
        settings["aggregations"] = tuple(aggregations)
    if metrics is not None:
        settings["metrics"] = tuple(metrics)
    return EvaluationOptions(**settings, units=units, min_words=min_words)


def resolve_measures(
    model: Model, measures: str | Sequence[str], *, to_output: bool = True
) -> tuple[str, ...]:
    """Resolve names of measures: those with maps in every stack of the model, and those of the
    output.

    Of the latter "all" has those whose terms add up to a logit, where they are defined; one that is
    named and not defined for an item is a note of the item.
    """
    if measures == "all":
        scopes = ("layer", "model", "logit") if to_output else ("layer", "model")
        names = [
            name
            for name in measure_names(*scopes)
            if not measure_facts(name).slow and _is_defined(model, name)
        ]
    else:
        names = [measures] if isinstance(measures, str) else list(measures)
        for name in names:
            if to_output and is_removal_measure(name):
                check_removal_measure(name)
            elif not (to_output and measure_facts(name).scope == "logit"):
                _check_ranks_words(model, name)
    facts_by_name = {name: measure_facts(split_fills_from_name(name)[0]) for name in names}
    return tuple(name for name, facts in facts_by_name.items() if not facts.is_baseline)


def _check_ranks_words(model: Model, name: str) -> None:
    """Raise `InputError` unless a measure gives maps of words in every stack of the model."""
    check_gives_maps(name)
    for stack in model.stacks.values():
        check_defined(measure_facts(name), stack)
    if measure_facts(name).is_per_target:
        maps = ", ".join(measure_names("layer", "model"))
        raise InputError(
            f"{name} gives one number a target and ranks no words; measures are {maps}"
        )


def _is_defined(model: Model, name: str) -> bool:
    with suppress(SpeechmixError):
        if measure_facts(name).scope == "logit":
            check_reaches_audio(model, name)
            check_splits_logits(model, name)
        else:
            _check_ranks_words(model, name)
        return is_installed(measure_facts(name))
    return False
