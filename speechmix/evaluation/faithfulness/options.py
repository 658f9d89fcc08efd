"""What a trial of measures is asked: options with their defaults, checked; which measures are
defined for a model.

In: options of `faithfulness`, a model. Out: the same as a dictionary that decides, with model and
item, what is found of an item; names of measures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ...errors import InputError, SpeechmixError
from ...mixing.maps.measure_registry import (
    check_gives_maps,
    facts_of,
    is_installed,
    names_of_scope,
)
from ...mixing.measures.availability import check_defined
from ...mixing.passes.input_attribution import check_reaches_the_sound
from ...mixing.passes.logit_contributions import check_takes_apart
from ...mixing.passes.request import TEXT_UNITS
from .perturbations import name_and_fills, perturbation_named
from .scores import METRICS, SOFT_METRICS
from .to_output import check_taking_away, takes_away
from .words import AGGREGATIONS, EACH_LAYER, RESIDUAL_ROLLOUT

if TYPE_CHECKING:
    from ...adapters.model import Model

DEFAULT_MEASURES = ("value_zeroing", "attention", "attention_norm", "alti", "gradient_input")
DEFAULT_METRICS = tuple(metric for metric in METRICS if metric not in SOFT_METRICS)
DEFAULT_AGGREGATIONS = tuple(
    name for name in AGGREGATIONS if name not in (EACH_LAYER, RESIDUAL_ROLLOUT)
)
FEWEST_WORDS = 3
# Named settings: options of `faithfulness`, and whether foils are left aside.
PROTOCOLS: dict[str, dict[str, Any]] = {
    "blank-out": {
        "judges": ("blank",),
        "aggregations": ("rollout",),
        "metrics": ("spearman",),
        "foils": "aside",
    },
}


def trial_options(
    *,
    judges: str | Sequence[str] | None = None,
    aggregations: Sequence[str] = DEFAULT_AGGREGATIONS,
    metrics: Sequence[str] = DEFAULT_METRICS,
    protocol: str | None = None,
    units: str = "word",
) -> dict[str, Any]:
    """Options of `faithfulness` as they were asked for, checked, with those of a protocol, as
    `judged` takes them."""
    judges = (judges,) if isinstance(judges, str) else judges
    options: dict[str, Any] = {
        "judges": judges,
        "aggregations": tuple(aggregations),
        "metrics": tuple(metrics),
    }
    options |= {"foils": "used", "value": "margin", "each_fill": False, "units": units}
    if protocol is not None:
        if protocol not in PROTOCOLS:
            raise InputError(f"protocol should be one of {list(PROTOCOLS)}, found {protocol!r}")
        options |= {**PROTOCOLS[protocol], **({"judges": judges} if judges else {})}
    for judge in options["judges"] or ():
        perturbation_named(judge)  # raises an error that lists what there is
    for name, allowed in (("aggregations", AGGREGATIONS), ("metrics", METRICS)):
        unknown = set(options[name]) - set(allowed)
        if unknown or not options[name]:
            raise InputError(f"{name} are some of {allowed}, found {options[name]!r}")
    return options


def measures_of(
    model: Model, asked: str | Sequence[str], *, to_output: bool = True
) -> tuple[str, ...]:
    """Names of measures: maps, each defined for every stack of the model, and what has no maps but
    goes to the output.

    Of the latter "all" has those whose parts add up to a logit, where they are defined; asked for
    by name, what is not defined for an item is a note of the item.
    """
    if asked == "all":
        scopes = ("layer", "model", "logit") if to_output else ("layer", "model")
        names = [
            name
            for name in names_of_scope(*scopes)
            if not facts_of(name).slow and _is_defined(model, name)
        ]
    else:
        names = [asked] if isinstance(asked, str) else list(asked)
        for name in names:
            if to_output and takes_away(name):
                check_taking_away(name)
            elif not (to_output and facts_of(name).scope == "logit"):
                _check_ranks_words(model, name)
    facts = {name: facts_of(name_and_fills(name)[0]) for name in names}
    return tuple(name for name, found in facts.items() if not found.is_baseline)


def _check_ranks_words(model: Model, name: str) -> None:
    """Raise `InputError` unless a measure gives maps of words in every stack of the model."""
    check_gives_maps(name)
    for stack in model.stacks.values():
        check_defined(facts_of(name), stack)
    if facts_of(name).is_per_target:
        maps = ", ".join(names_of_scope("layer", "model"))
        raise InputError(
            f"{name} gives one number a target and ranks no words; measures are {maps}"
        )


def _is_defined(model: Model, name: str) -> bool:
    with suppress(SpeechmixError):
        if facts_of(name).scope == "logit":
            check_reaches_the_sound(model, name)
            check_takes_apart(model, name)
        else:
            _check_ranks_words(model, name)
        return is_installed(facts_of(name))
    return False


def check_trial(options: Mapping[str, Any], fewest: int) -> None:
    """Raise `InputError` for units that cannot be, and where any order would be right half of the
    time."""
    if options["units"] not in TEXT_UNITS:
        raise InputError(f"units should be one of {TEXT_UNITS}, found {options['units']!r}")
    if fewest < 2:
        raise InputError(f"expected fewest of at least 2, found {fewest!r}")
