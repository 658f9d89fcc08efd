"""Measures by name, each with one line of description and its citation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..errors import InputError
from .attention import attention
from .attention_norm import attention_norm
from .value_zeroing import value_zeroing


@dataclass(frozen=True)
class Measure:
    """A measure: ``function(block, units, distance=, heads=, batch_size=)`` gives a map of one layer."""

    name: str
    function: Callable
    description: str
    citation: str
    distances: bool = False


MEASURES: dict[str, Measure] = {
    measure.name: measure
    for measure in (
        Measure(
            "value_zeroing",
            value_zeroing,
            "how far a target's layer output moves when the source's value vectors are zeroed",
            "Mohebbi et al. 2023, Quantifying Context Mixing in Transformers, EACL",
            distances=True,
        ),
        Measure(
            "attention",
            attention,
            "attention weights",
            "Bahdanau et al. 2015, Neural Machine Translation by Jointly Learning to Align and Translate, ICLR",
        ),
        Measure(
            "attention_norm",
            attention_norm,
            "length of the attention-weighted, projected value vectors",
            "Kobayashi et al. 2020, Attention is Not Only a Weight, EMNLP",
        ),
    )
}


def measure_named(name: str) -> Measure:
    """Look a measure up; the error lists what there is."""
    if name not in MEASURES:
        raise InputError(f"unknown measure {name!r}; there are {', '.join(MEASURES)}")
    return MEASURES[name]
