"""Check that maps of encoder, cross-attention and decoder belong together before they are composed.

In: three maps. Out: nothing, or an error that says how to get maps that belong together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import InputError
from .score_map import padding_advice, same_units

if TYPE_CHECKING:
    from .mixing_map import MixingMap


def check_composable(encoder: MixingMap, cross: MixingMap, decoder: MixingMap) -> None:
    """Raise an error unless the maps are of one model, clip, layers and units."""
    for stack, mixing_map in (("encoder", encoder), ("cross", cross), ("decoder", decoder)):
        if mixing_map.stack != stack:
            raise InputError(
                f"compose: {stack}= should be a map of the {stack}, found {mixing_map!r}"
            )
        for key in ("model", "clip"):
            if mixing_map.provenance.get(key) != cross.provenance.get(key):
                raise InputError(
                    f"compose: maps of one {key} expected, found "
                    f"{mixing_map.provenance.get(key)!r} and "
                    f"{cross.provenance.get(key)!r}"
                )
    if cross.layers != decoder.layers:
        raise InputError(
            f"compose: cross has layers {cross.layers}, decoder {decoder.layers}; they should be "
            "the same: " + missing_maps_advice(cross.measure)
        )
    for a, b, unit_text in (
        (encoder.targets, encoder.sources, "targets and sources of the encoder"),
        (encoder.sources, cross.sources, "sources of encoder and cross"),
        (decoder.targets, decoder.sources, "targets and sources of the decoder"),
        (decoder.targets, cross.targets, "targets of decoder and cross"),
    ):
        if not same_units(a, b):
            raise InputError(
                f"compose: {unit_text} should be the same units, found {len(a)} and {len(b)}, or "
                f"others: {padding_advice(a, b) or missing_maps_advice(cross.measure)}"
            )


def missing_maps_advice(measure: str) -> str:
    """The call whose maps can be composed, for errors.

    Examples
    --------
    >>> missing_maps_advice("alti")
    "ask for all stacks and rows in one call, mix(model, item, measures='alti'), without stacks=,
    layers=, targets= or window="
    """
    call = f"mix(model, item, measures={measure!r})"
    return (
        f"ask for all stacks and rows in one call, {call}, without stacks=, layers=, targets= "
        "or window="
    )
