"""Registry of measures' properties by name, built-in and user-registered.

In: a measure's name. Out: its `MeasureFacts`, for everything that computes, shows, composes, compares or
checks scores. The functions are in `speechmix.mixing.measures.measure_functions`;
`speechmix.register_measure` adds to both.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from importlib.util import find_spec

from ...errors import InputError
from .measure_facts import MeasureFacts
from .measure_table import KOBAYASHI_2021, PACKAGE_MEASURES, RESIDUAL_HAS_NO_HEAD

STACKS = ("encoder", "decoder", "cross")

MEASURE_FACTS: dict[str, MeasureFacts] = {facts.name: facts for facts in PACKAGE_MEASURES}

# The measures whose vectors a mixing ratio can be taken of; see `MixingMap.mixing_ratio`.
RATIO_MEASURES = (
    "attention_norm",
    "attention_norm_residual",
    "attention_norm_residual_layernorm",
    "globenc",
)


def _ratio_facts(vectors: str) -> MeasureFacts:
    """Facts of a mixing ratio: one number per target instead of a map, defined where the vectors
    are that it is taken of."""
    return replace(
        MEASURE_FACTS[vectors],
        name=f"mixing_ratio_{vectors}",
        description="how much of a target's state comes from other units, of the vectors of "
        f"{vectors}",
        citation=KOBAYASHI_2021,
        length_exponent={},
        residual="in",
        cross=False,
        is_per_target=True,
        no_heads=RESIDUAL_HAS_NO_HEAD,
    )


RATIO_FACTS: dict[str, MeasureFacts] = {
    facts.name: facts for facts in map(_ratio_facts, RATIO_MEASURES)
}


LEADING_MEASURE = "value_zeroing"  # that `mix` computes by default, and reports lead with


def leading_measure(names: Iterable[str]) -> str:
    """Return the measure that a report of some measures leads with, and claims may be made of.

    Value Zeroing, or without it the first in alphabetical order: known before anything is scored. Empty
    if there is none.

    Examples
    --------
    >>> leading_measure(["attention", "value_zeroing"]), leading_measure(["attention", "alti"])
    ('value_zeroing', 'alti')
    """
    names = list(names)
    return LEADING_MEASURE if LEADING_MEASURE in names else min(names, default="")


def find_facts(name: object) -> MeasureFacts | None:
    """Look up a measure of any scope, or a mixing ratio; None for an unknown name.

    A name may be followed by options of the measure's own, "NAME:option=value,option=value".
    """
    if not isinstance(name, str):
        return None
    measure, colon, options = name.partition(":")
    facts = MEASURE_FACTS.get(measure) or RATIO_FACTS.get(measure)
    return facts.with_options(options) if facts and colon else facts


def measure_facts(name: object) -> MeasureFacts:
    """Facts of a measure of any scope, or of a mixing ratio; see `find_facts`.

    Raises
    ------
    InputError
        If there is none of that name (the error lists what there is), or it has no such option.

    Examples
    --------
    >>> measure_facts("attention").residual, measure_facts("lrp").scope
    ('out', 'logit')
    """
    facts = find_facts(name)
    if facts is None:
        raise InputError(
            f"unknown measure {name!r}; there are {', '.join((*MEASURE_FACTS, *RATIO_FACTS))}"
        )
    return facts


def measure_names(*scopes: str) -> tuple[str, ...]:
    """Names of the measures of some scopes, in the order of the table, those of users last.

    Examples
    --------
    >>> measure_names("logit")
    ('alti_logit', 'decompx', 'lrp')
    """
    return tuple(name for name, facts in MEASURE_FACTS.items() if facts.scope in scopes)


def check_gives_maps(name: object) -> None:
    """Raise `InputError` unless a name is that of a measure, or of a mixing ratio, that gives
    maps."""
    facts = measure_facts(name)
    if facts.scope == "logit":
        raise InputError(
            f"{name} gives parts that add up to a logit, not maps: "
            f"speechmix.logit_contributions(model, item, measure={name!r})"
        )
    if facts.scope == "removal":
        raise InputError(
            f"{name} removes sources from the input and has no maps: speechmix.explain(model, "
            f"item, measures={name!r})"
        )


def is_installed(facts: MeasureFacts) -> bool:
    """Whether the package that a measure needs, if any, is installed."""
    return not facts.requires or find_spec(facts.requires) is not None


def measure_revision(name: str) -> int:
    """Revision of a measure or a mixing ratio; 1 for an unknown name."""
    facts = find_facts(name)
    return 1 if facts is None else facts.revision


def omits_residual(measure: str) -> bool:
    """True if a map of this measure leaves out the residual stream; False for an unknown name."""
    facts = find_facts(measure)
    return facts is not None and facts.residual == "out"


def is_weighted_by_strength(measure: str) -> bool:
    """True if maps of this measure are weighted by mixing strengths when layers are composed, where
    they have some.

    Examples
    --------
    >>> is_weighted_by_strength("value_zeroing"), is_weighted_by_strength("alti")
    (True, False)
    """
    facts = find_facts(measure)
    return facts is None or not facts.residual_size
