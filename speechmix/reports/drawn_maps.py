"""Maps as a page's script draws them (`templates/maps.js`): labels, times, and shares of rows as 16-bit numbers.

In: the maps of one clip, by model. Out: plain values for JSON, of each map as many layers as fit; silence, padding and what
lies behind the end of the clip are left out, and maps with more units than a browser can draw.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..evaluation.cue import deciding_row
from ..inputs.spans import Span
from ..maps.mixing import MixingMap
from ..plots import panels
from ..plots.figures import evenly
from ..plots.unit_labels import side_names
from ..storage.stored_clips import Maps, ModelKey

MOST_UNITS = 600  # of a side, so that a browser can draw the map
_NAN, _FULL = 65_535, 65_534  # 16-bit numbers for "no value" and for 100 %


def model_label(key: ModelKey) -> str:
    """What a model is called on the page."""
    name, init, seed = key
    return panels.model_name(name) + (f", random (seed {seed})" if init == "random" else "")


def drawn_maps(maps: Maps, seconds: float, layer: int | None, most_bytes: int) -> list[dict[str, Any]]:
    """All maps that a browser can draw, each with as many layers as fit, and in any case the one that is shown first.

    Parameters
    ----------
    maps : dict
        By (model, init, seed) and (measure, stack), as `storage.reading.maps_of_clip` returns them.
    seconds : float
        Length of the clip; frames behind it are left out.
    layer : int or None
        The one that is shown first.
    most_bytes : int
        About how many all of them may take.
    """
    audible = [
        (model_label(key), _audible(mixing_map.without("silence", "padding").mean_heads(), seconds))
        for key, by_model in maps.items()
        for mixing_map in by_model.values()
    ]
    drawable = [
        (label, mixing_map)
        for label, mixing_map in audible
        if mixing_map.scores.size and max(mixing_map.scores.shape[1:]) <= MOST_UNITS
    ]
    one_layer = sum(mixing_map.scores[0].size for _, mixing_map in drawable) * 8 / 3  # two bytes a cell, in base64
    most = max(1, int(most_bytes / one_layer)) if drawable else 1
    return [
        _drawn(label, mixing_map, sorted({*evenly(mixing_map.layers, most), *_only(layer, mixing_map.layers)}))
        for label, mixing_map in drawable
    ]


def _only(layer: int | None, layers: Sequence[int]) -> list[int]:
    return [layer] if layer is not None and layer in layers else []


def _audible(mixing_map: MixingMap, seconds: float) -> MixingMap:
    """Without the frames behind the clip's end, which a model with a fixed window has."""
    rows, columns = (
        [i for i, span in enumerate(side) if span.kind != "frame" or span.onset is None or span.onset < seconds]
        for side in (mixing_map.targets, mixing_map.sources)
    )
    strength = mixing_map.mixing_strength
    return replace(
        mixing_map,
        mixing_strength=None if strength is None else strength[:, rows],
        scores=mixing_map.scores[:, rows][:, :, columns],
        targets=tuple(mixing_map.targets[i] for i in rows),
        sources=tuple(mixing_map.sources[j] for j in columns),
    )


def _drawn(label: str, mixing_map: MixingMap, layers: Sequence[int]) -> dict[str, Any]:
    shares = panels.displayed(mixing_map)[[mixing_map.layers.index(layer) for layer in layers]]
    top = panels.color_limits(list(shares))[1]
    column, row = side_names(mixing_map)
    numbers = np.where(np.ma.getmaskarray(shares), _NAN, np.round(shares.filled(0) / 100 * _FULL)).astype("<u2")
    return {
        "model": label,
        "stack": mixing_map.stack,
        "measure": panels.spoken(mixing_map.measure),
        "layers": [int(layer) for layer in layers],
        "targets": [_unit(span) for span in mixing_map.targets],
        "sources": [_unit(span) for span in mixing_map.sources],
        "top": round(float(top), 3),
        "deciding": deciding_row(mixing_map),
        "column": column,
        "row": row,
        "cells": base64.b64encode(numbers.tobytes()).decode("ascii"),
    }


def _unit(span: Span) -> dict[str, Any]:
    times = {"times": span.times} if span.times else {}
    return {
        "label": span.label or str(span.start),
        "word": span.word,
        "onset": span.onset,
        "offset": span.offset,
        **times,
    }
