"""Measures by name: the function that computes each, beside what is known of it (`speechmix.maps.facts`).

A measure's function says by its keyword arguments which options of `speechmix.mix` it reads. `register_measure` adds one of
your own, which is then a measure like any other: in `mix`, runs, tables, figures and the page.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from ..maps.facts import FACTS, RATIO_FACTS, RATIO_OF, Facts, facts_of
from .alti import alti
from .attention import attention
from .attention_norm import attention_norm
from .chefer import chefer
from .decompositions import attention_norm_residual, attention_norm_residual_layernorm, globenc, mixing_ratio
from .entropy_attention import entropy_attention
from .gradients import deeplift, gradient_input, integrated_gradients
from .hta import hta, hta_input
from .own_code import code_fingerprint
from .random_baseline import random_baseline
from .value_zeroing import value_zeroing, value_zeroing_share

if TYPE_CHECKING:
    from torch import Tensor

# What `mix` can give a measure's function beside what it scores, by scope. The first decide scores; `batch_size` and
# `product` (which does the matrix products, in product_dtype) say how they are computed.
OPTIONS = {
    "block": ("distance", "heads", "engine", "product", "batch_size"),
    "pass": ("steps", "baseline"),
}

# Options of `mix` that decide the scores of those measures only that read them.
OF_SOME_MEASURES = ("distance", "engine", "product_dtype", "objective", "steps", "baseline")


@dataclass(frozen=True)
class Measure(Facts):
    """What is known of a measure, and its function.

    Parameters
    ----------
    function : callable
        Of scope "block": ``function(block, units, **options)`` gives a map of one layer, Tensor [W_t, W_s] ([H, W_t, W_s]
        for heads="each"). Of scope "pass": ``function(gradient_pass, stack, units, **options)`` gives the maps of a
        stack's layers, Tensor [L, W_t, W_s] (one row with `objective`), and a dict to note in their provenance. It has a
        keyword argument for each option of `mix` that it reads, of `OPTIONS`.
    """

    function: Callable[..., Any] = field(kw_only=True)
    of_the_package: bool = field(default=False, kw_only=True)

    @cached_property
    def takes(self) -> tuple[str, ...]:
        """What `mix` gives the function, by the function's keyword arguments."""
        return tuple(name for name in _keywords(self.function) if name in OPTIONS[self.scope])

    @cached_property
    def options(self) -> tuple[str, ...]:
        """Options of `mix` that decide this measure's scores, besides those that all measures share."""
        names = {"product": "product_dtype"}
        shared = ("objective",) if self.objective else ()
        return tuple(names.get(name, name) for name in self.takes if name != "batch_size") + shared

    @cached_property
    def identity(self) -> str:
        """What stored maps are known by: name and revision (if not the first); for a measure of one's own a hash of it, too."""
        name = self.name if self.revision == 1 else f"{self.name} revision {self.revision}"
        return name if self.of_the_package else f"{name} {code_fingerprint(self.function)}"

    def __call__(self, *args: Any, **options: Any) -> Tensor | tuple[Tensor, dict[str, Any]]:
        """Call the function."""
        return self.function(*args, **options)


def _keywords(function: Callable) -> list[str]:
    parameters = inspect.signature(function).parameters.values()
    return [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]


def _of_the_package(name: str, function: Callable) -> Measure:
    facts = {fact.name: getattr(facts_of(name), fact.name) for fact in fields(Facts)}
    return Measure(**facts, function=function, of_the_package=True)


_FUNCTIONS: dict[str, Callable] = {
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
    "hta": hta,
    "hta_input": hta_input,
    "gradient_input": gradient_input,
    "integrated_gradients": integrated_gradients,
    "deeplift": deeplift,
    "chefer": chefer,
    "random": random_baseline,
}

MEASURES: dict[str, Measure] = {name: _of_the_package(name, _FUNCTIONS[name]) for name in FACTS}

# One number per target instead of a map, by the vectors it is taken of; see `MixingMap.mixing_ratio`.
MIXING_RATIOS: dict[str, Measure] = {
    name: _of_the_package(name, partial(mixing_ratio, vectors=vectors))
    for name, vectors in zip(RATIO_FACTS, RATIO_OF, strict=True)
}


def measure_named(name: str) -> Measure:
    """Look a measure (or a mixing ratio) up; the error lists what there is."""
    facts_of(name)
    return MEASURES.get(name) or MIXING_RATIOS[name]


def register_measure(name: str, **facts: Any) -> Callable[[Callable], Callable]:
    """Add a measure of your own, by decorating its function; see `Measure` for what a function gets and gives.

    Parameters
    ----------
    name : str
        What `mix(measures=...)` calls it.
    **facts
        Of `speechmix.maps.facts.Facts`: description and citation at least; scope, residual, cross, ...

    Raises
    ------
    InputError
        If the name is taken, a fact is not one of `Facts`, or the function has a keyword argument without a default that
        `mix` knows nothing of, or takes any (``**_``), which would swallow misspelt ones.

    Notes
    -----
    A run knows a stored map of your measure by its name and a hash of its function, with what it uses of its own module.
    Registered again under its name, as in a notebook cell run twice, a measure of your own is replaced.

    Examples
    --------
    >>> @register_measure("value_length", description="length of the source's value vectors", citation="this example",
    ...                   residual="out", no_heads=": heads are averaged")
    ... def value_length(block, units):
    ...     lengths = block.values.norm(dim=-1).mean(dim=0)                                    # [K]
    ...     return units.pool_targets(units.pool_sources(lengths.expand(len(units.rows), -1)))  # [W_t, W_s]
    >>> MEASURES["value_length"].options
    ()
    >>> forget_measure("value_length")
    """
    names = [fact.name for fact in fields(Facts)]
    unknown = set(facts) - set(names)
    if unknown:
        raise InputError(f"{name}: no fact {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    missing = {"description", "citation"} - set(facts)
    if missing:
        raise InputError(f"{name}: say {' and '.join(sorted(missing))} of a measure")

    def add(function: Callable) -> Callable:
        measure = Measure(name=name, **facts, function=function)
        _check(measure)
        MEASURES[name] = FACTS[name] = measure
        return function

    return add


def forget_measure(name: str) -> None:
    """Take a measure of your own out again."""
    if name in MEASURES and not MEASURES[name].of_the_package:
        del MEASURES[name], FACTS[name]


def _check(measure: Measure) -> None:
    name, taken = measure.name, MEASURES.get(measure.name) or MIXING_RATIOS.get(measure.name)
    if not (isinstance(name, str) and name.isidentifier()) or (taken is not None and taken.of_the_package):
        raise InputError(f"a measure of your own needs a name of its own, of letters, digits and _; found {name!r}")
    if measure.scope not in OPTIONS:
        raise InputError(f"{name}: scope is one of {tuple(OPTIONS)}, found {measure.scope!r}")
    if measure.objective and measure.scope != "pass":
        raise InputError(f"{name}: a measure of an objective differentiates the whole model: scope='pass'")
    parameters = inspect.signature(measure.function).parameters
    kinds = {parameter.kind for parameter in parameters.values()}
    if inspect.Parameter.VAR_KEYWORD in kinds:
        raise InputError(
            f"{name}: its function takes any keyword, so misspelt ones would be swallowed: name those it reads"
        )
    unknown = [
        keyword
        for keyword in _keywords(measure.function)
        if keyword not in OPTIONS[measure.scope] and parameters[keyword].default is inspect.Parameter.empty
    ]
    if unknown:
        raise InputError(
            f"{name}: mix knows nothing of {', '.join(unknown)}; it gives {', '.join(OPTIONS[measure.scope])}, what else a "
            "function takes needs a default"
        )
    if "heads" not in measure.takes and not measure.no_heads and measure.scope == "block":
        raise InputError(
            f"{name}: its function has no heads=: say why in no_heads, as in no_heads=': heads are averaged'"
        )
