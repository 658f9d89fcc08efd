"""Choose the layers that a figure of one clip shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ...errors import InputError
from ...mixing.maps.mixing_map import MixingMap
from .clip_curves import MeasureAndStack


def find_value_zeroing_peak(
    maps: Mapping[MeasureAndStack, MixingMap],
    stack: str,
    contributions: Mapping[MeasureAndStack, np.ndarray],
) -> int | None:
    """Find the layer of a stack in which the cue's contribution by Value Zeroing is largest."""
    key = ("value_zeroing", stack)
    if key not in maps or key not in contributions or not np.isfinite(contributions[key]).any():
        return None
    return maps[key].layers[int(np.nanargmax(contributions[key]))]


def choose_layers(
    maps: Mapping[MeasureAndStack, MixingMap],
    stacks: Sequence[str],
    layers: Sequence[int] | None,
    peaks: Mapping[str, int | None],
) -> dict[str, list[int]]:
    """Choose the layers of each stack: those requested; or first, middle, last and peaks."""
    if layers is not None:
        if not layers:
            raise InputError("layers is empty: name at least one, or leave it out")
        for mixing_map in maps.values():
            for layer in layers:
                mixing_map.layer(layer)  # raises if there is none
        return {stack: list(layers) for stack in stacks}
    common_by_stack = {stack: common_layers(maps, stack) for stack in stacks}
    if len(set(map(tuple, common_by_stack.values()))) == 1:
        return {stack: _pick_layers(common_by_stack[stack], peaks.values()) for stack in stacks}
    return {stack: _pick_layers(common_by_stack[stack], [peaks[stack]]) for stack in stacks}


def common_layers(maps: Mapping[MeasureAndStack, MixingMap], stack: str) -> list[int]:
    """Return the layers that all maps of a stack have."""
    maps_of_stack = [mixing_map for (_, name), mixing_map in maps.items() if name == stack]
    common_layer_list = [
        layer
        for layer in maps_of_stack[0].layers
        if all(layer in other.layers for other in maps_of_stack)
    ]
    if not common_layer_list:
        raise InputError(
            f"the maps of the {stack} have no layer in common: draw them in figures of their own"
        )
    return common_layer_list


def _pick_layers(common: Sequence[int], peaks: Iterable[int | None]) -> list[int]:
    """Pick the first, middle and last layer and peaks; where these are the same layer, add the one
    farthest from them."""
    available_peaks = {peak for peak in peaks if peak is not None and peak in common}
    chosen_layers = {common[0], common[len(common) // 2], common[-1]} | available_peaks
    while available_peaks and len(chosen_layers) < min(4, len(common)):
        chosen_layers.add(
            max(common, key=lambda layer: min(abs(layer - other) for other in chosen_layers))
        )
    return sorted(chosen_layers)
