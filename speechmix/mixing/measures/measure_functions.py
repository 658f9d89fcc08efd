"""Registry of measures' functions by name.

A measure's function says by its keyword arguments which options it reads. `register_measure` adds a
custom measure of any scope, which is then a measure like any other: in `mix`,
`logit_contributions`, `explain`, `faithfulness`, runs and pages.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from functools import partial
from typing import Any

from ...errors import InputError
from ...extension import check_declaration, import_measures
from ..maps.measure_registry import (
    MEASURE_FACTS,
    RATIO_FACTS,
    RATIO_MEASURES,
    MeasureFacts,
    measure_facts,
    measure_names,
)
from .attention import attention
from .attention_norm import (
    alti,
    attention_norm,
    attention_norm_residual,
    attention_norm_residual_layernorm,
    globenc,
    mixing_ratio,
)
from .entropy_attention import entropy_attention
from .measure import OPTIONS, Measure, MeasureFunction, keyword_names
from .random_baseline import random_baseline
from .value_zeroing import (
    check_value_zeroing_options,
    value_zeroing,
    value_zeroing_of_clips,
    value_zeroing_share,
)


def _build_builtin(name: str, function: MeasureFunction, **arguments: Any) -> Measure:
    facts = {fact.name: getattr(measure_facts(name), fact.name) for fact in fields(MeasureFacts)}
    return Measure(**facts, function=function, is_builtin=True, **arguments)


_FUNCTIONS: dict[str, MeasureFunction] = {
    "value_zeroing": value_zeroing,
    "value_zeroing_share": value_zeroing_share,
    "attention": attention,
    "entropy_attention": entropy_attention,
    "attention_norm": attention_norm,
    "attention_norm_residual": attention_norm_residual,
    "attention_norm_residual_layernorm": attention_norm_residual_layernorm,
    "globenc": globenc,
    "alti": alti,
    "alti_l2": partial(alti, order=2),
    "random": random_baseline,
}

_OPTION_CHECKS: dict[str, Callable[..., object]] = {
    "value_zeroing": check_value_zeroing_options,
    "value_zeroing_share": check_value_zeroing_options,
}

_BATCHED: dict[str, MeasureFunction] = {"value_zeroing": value_zeroing_of_clips}

# Those that give maps; extensions add theirs, by `implement`.
MEASURES: dict[str, Measure] = {
    name: _build_builtin(
        name, function, check_options=_OPTION_CHECKS.get(name), batched=_BATCHED.get(name)
    )
    for name, function in _FUNCTIONS.items()
}

# Those of scope "logit" and "removal", which extensions compute.
OUTPUT_MEASURES: dict[str, Measure] = {}

# One number per target instead of a map, by the vectors it is taken of; see
# `MixingMap.mixing_ratio`.
MIXING_RATIOS: dict[str, Measure] = {
    name: _build_builtin(name, partial(mixing_ratio, vectors=vectors))
    for name, vectors in zip(RATIO_FACTS, RATIO_MEASURES, strict=True)
}


def find_measure(name: str) -> Measure:
    """Look up a measure of any scope, or a mixing ratio; the error lists what there is.

    Examples
    --------
    >>> find_measure("alti:order=2").values
    {'order': 2}
    """
    facts = measure_facts(name)
    base, colon, options = name.partition(":")
    measure = _lookup_measure(base)
    if measure is None:  # an extension computes it
        import_measures()
        measure = _lookup_measure(base)
    if measure is None:
        raise InputError(f"no installed extension computes {name}, of scope {facts.scope!r}")
    return measure.with_options(options) if colon else measure


def list_measures() -> dict[str, Measure]:
    """Return all measures that give maps by name, in the order of their table."""
    return {name: find_measure(name) for name in measure_names("layer", "model")}


def _lookup_measure(name: str) -> Measure | None:
    return MEASURES.get(name) or MIXING_RATIOS.get(name) or OUTPUT_MEASURES.get(name)


def implement(name: str, function: MeasureFunction, **arguments: Any) -> None:
    """Add the function of a measure that the package declares and an extension computes."""
    measure = _build_builtin(name, function, **arguments)
    measures = MEASURES if measure.gives_maps else OUTPUT_MEASURES
    measures[name] = measure


def custom_identities(names: Iterable[str]) -> dict[str, str]:
    """Identities of the custom measures among some names: what a stored result is known by, besides
    the names."""
    measures = {name: _lookup_measure(name.partition(":")[0]) for name in names}
    return {
        name: find_measure(name).identity
        for name, measure in measures.items()
        if measure and not measure.is_builtin
    }


def register_measure(name: str, **facts: Any) -> Callable[[MeasureFunction], MeasureFunction]:
    """Add a custom measure, by decorating its function; see `Measure` for what a function gets and
    returns.

    Parameters
    ----------
    name : str
        By which `mix`, `logit_contributions`, `explain` and `faithfulness` call it.
    **facts
        Of `Measure` and `speechmix.mixing.maps.measure_registry.MeasureFacts`: description and citation at
        least; scope, residual, cross, ...

    Raises
    ------
    InputError
        If the name is taken, a fact is unknown, or the function has a keyword argument without a
        default that the callers of its scope do not have, or takes any (``**_``), which would
        accept misspelt ones.

    Notes
    -----
    A run knows a stored map of your measure by its name and a hash of its function, with what it
    uses of its own module. Registered again under its name, as in a notebook cell that runs twice,
    a custom measure is replaced.

    Examples
    --------
    >>> @register_measure("value_length", description="length of the source's value vectors", citation="this example",
    ...                   residual="out", no_heads=": heads are averaged")
    ... def value_length(block, units):
    ...     lengths = block.values.norm(dim=-1).mean(dim=0)                                    # [K]
    ...     return units.pool_targets(units.pool_sources(lengths.expand(len(units.rows), -1)))  # [W_t, W_s]
    >>> MEASURES["value_length"].own_options
    ()
    >>> forget_measure("value_length")
    """
    names = [
        fact.name for fact in fields(Measure) if fact.name not in ("name", "function", "is_builtin")
    ]
    unknown = set(facts) - set(names)
    if unknown:
        raise InputError(
            f"{name}: no fact {', '.join(sorted(unknown))}; there are {', '.join(names)}"
        )
    missing_facts = {"description", "citation"} - set(facts)
    if missing_facts:
        raise InputError(f"{name}: say {' and '.join(sorted(missing_facts))} of a measure")

    def add(function: MeasureFunction) -> MeasureFunction:
        measure = Measure(name=name, **_add_implied_facts(facts), function=function)
        _validate_measure(measure)
        forget_measure(name)
        measures = MEASURES if measure.gives_maps else OUTPUT_MEASURES
        measures[name] = MEASURE_FACTS[name] = measure
        return function

    return add


def forget_measure(name: str) -> None:
    """Remove a custom measure."""
    for measures in (MEASURES, OUTPUT_MEASURES):
        if name in measures and not measures[name].is_builtin:
            del measures[name], MEASURE_FACTS[name]


def _add_implied_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Facts of a measure with those that its scope implies."""
    scope = facts.get("scope")
    implied = {
        "logit": {"objective": True, "at_one_position": True},
        "removal": {"objective": True},
    }.get(str(scope), {})
    return {**facts, **implied}


def _validate_measure(measure: Measure) -> None:
    name = measure.name
    check_declaration(measure, MeasureFacts, str(name))
    is_taken = (name in MEASURE_FACTS or name in RATIO_FACTS) and name not in custom_identities(
        [name]
    )
    if not (isinstance(name, str) and name.isidentifier()) or is_taken:
        raise InputError(
            f"a custom measure needs a name of its own, of letters, digits and _; found {name!r}"
        )
    if measure.objective and measure.scope == "layer":
        raise InputError(
            f"{name}: a measure of an objective differentiates the whole model: scope='model'"
        )
    parameters = inspect.signature(measure.function).parameters
    kinds = {parameter.kind for parameter in parameters.values()}
    if inspect.Parameter.VAR_KEYWORD in kinds:
        raise InputError(
            f"{name}: its function takes any keyword, so misspelt ones would be swallowed: name "
            "those it reads"
        )
    unknown = [
        keyword
        for keyword in keyword_names(measure.function)
        if keyword not in OPTIONS[measure.scope]
        and parameters[keyword].default is inspect.Parameter.empty
    ]
    if unknown:
        raise InputError(
            f"{name}: no caller has the option {', '.join(unknown)}; functions of scope "
            f"{measure.scope!r} can read "
            f"{', '.join(OPTIONS[measure.scope]) or 'none'}, and other options need a default"
        )
    if "heads" not in measure.takes and not measure.no_heads and measure.scope == "layer":
        raise InputError(
            f"{name}: its function has no heads=: say why in no_heads, as in no_heads=': heads are "
            "averaged'"
        )
