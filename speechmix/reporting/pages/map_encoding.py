"""Encode maps for the page's script.

In: the maps of one clip, by model. Out: plain values for JSON, of each map as many layers as fit.
Pauses, padding and frames behind the end of the clip are left out, and maps with more units than a
browser can draw. A map of tokens comes twice: its tokens pooled to words first, then as tokens.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...evaluation.statistics.even_subset import choose_evenly
from ...inputs.words.spans import Span
from ...mixing.maps.measure_facts import measure_label
from ...mixing.maps.mixing_map import MixingMap
from ...mixing.maps.unit_conversion import pool_to_letters, pool_to_words
from ...runs.results.stored_clips import Maps, ModelKey
from ..plots import map_cells
from ..plots.figure_style import model_name
from ..plots.unit_labels import axis_names

MAX_UNITS = 600  # of a side, so that a browser can draw the map
_MISSING_CODE, _FULL_SHARE_CODE = 65_535, 65_534  # 16-bit numbers for "no value" and for 100 %


def model_label(key: ModelKey) -> str:
    """Return the name of a model on the page."""
    name, init, seed = key
    return model_name(name) + (f", untrained twin (seed {seed})" if init == "random" else "")


def encode_maps(
    maps: Maps, seconds: float, layer: int | None, max_bytes: int
) -> list[dict[str, object]]:
    """Encode all maps that a browser can draw, each with as many layers as fit.

    The layer that is shown first is always among them. The maps come from
    `runs.results.stored_clips.read_clip_maps`. Frames behind `seconds`, the length of the clip, are
    left out. All maps take about `max_bytes`.
    """
    map_entries = [
        (model_label(key), *form)
        for key, by_model in maps.items()
        for mixing_map in by_model.values()
        for form in map_forms(
            _within_clip(mixing_map.without("silence", "padding").mean_heads(), seconds)
        )
    ]
    drawable_entries = [
        entry
        for entry in map_entries
        if entry[-1].scores.size and max(entry[-1].scores.shape[1:]) <= MAX_UNITS
    ]
    layer_bytes = (
        sum(entry[-1].scores[0].size for entry in drawable_entries) * 8 / 3
    )  # two bytes a cell, in base64
    max_layers = max(1, int(max_bytes / layer_bytes)) if drawable_entries else 1
    return [
        _map_data(
            label,
            units,
            mixing_map,
            layer,
            sorted(
                {*choose_evenly(mixing_map.layers, max_layers), *_first_layer(layer, mixing_map)}
            ),
        )
        for label, units, mixing_map in drawable_entries
    ]


def map_forms(mixing_map: MixingMap) -> list[tuple[str, MixingMap]]:
    """Return the forms in which a map is shown, each with the kind of its units ("word", "token" or
    "frame"); the first is the default.

    Tokens are pooled to words, and can be shown as they are; bytes of one letter are one token.
    """
    kinds = {span.kind for span in (*mixing_map.targets, *mixing_map.sources)}
    if "token" not in kinds:
        return [("frame" if "frame" in kinds else "word", mixing_map)]
    words, letters = pool_to_words(mixing_map), pool_to_letters(mixing_map)
    if words.scores.shape == letters.scores.shape:
        return [("token", letters)]
    return [("word", words), ("token", letters)]


def _first_layer(layer: int | None, mixing_map: MixingMap) -> list[int]:
    """Return the layer that is shown first, which is never left out; empty if there is none."""
    first_layer = layer if layer in mixing_map.layers else _strongest_layer(mixing_map)
    return [] if first_layer is None else [first_layer]


def _strongest_layer(mixing_map: MixingMap) -> int | None:
    """Find the layer with most to see: mixing strength times how uneven the rows are, averaged over
    targets.

    Uneven is the total variation distance of a row's shares from an even row. None for a map
    without mixing strengths.

    Examples
    --------
    >>> units = (Span(0, 5, "les", word=0), Span(5, 20, "livres", word=1))
    >>> scores = np.array([[[1.0, 0.0], [1.0, 0.0]], [[0.5, 0.5], [0.6, 0.4]], [[1.0, 0.0], [0.0, 1.0]]])
    >>> strength = np.array([[0.01, 0.01], [0.5, 0.5], [0.3, 0.3]])
    >>> _strongest_layer(MixingMap(scores, units, units, "value_zeroing", "encoder", (0, 1, 2), {}, strength))
    2
    """
    if mixing_map.mixing_strength is None or not mixing_map.scores.size:
        return None
    shares = map_cells.displayed_shares(mixing_map).filled(0) / 100
    uneven = np.abs(shares - 1 / shares.shape[-1]).sum(axis=-1) / 2
    rows = [i for i, span in enumerate(mixing_map.targets) if span.kind != "special"] or slice(None)
    return mixing_map.layers[
        int(np.nan_to_num(uneven * mixing_map.mixing_strength)[:, rows].mean(axis=-1).argmax())
    ]


def _within_clip(mixing_map: MixingMap, seconds: float) -> MixingMap:
    """Drop the frames after the end of the clip, which a model with a fixed window has."""
    rows, columns = (
        [
            i
            for i, span in enumerate(side)
            if span.kind != "frame" or span.onset is None or span.onset < seconds
        ]
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


def _map_data(
    label: str, units: str, mixing_map: MixingMap, layer: int | None, layers: Sequence[int]
) -> dict[str, object]:
    """Encode the layers of one map for the page's script."""
    shares = map_cells.displayed_shares(mixing_map)[
        [mixing_map.layers.index(layer) for layer in layers]
    ]
    largest_share = map_cells.color_limits(list(shares))[1]
    column, row = axis_names(mixing_map)
    if units == "word":  # the special tokens and spaces between words stay units of their own
        column, row = column.replace("token", "word"), row.replace("token", "word")
    codes = np.where(
        np.ma.getmaskarray(shares),
        _MISSING_CODE,
        np.round(shares.filled(0) / 100 * _FULL_SHARE_CODE),
    ).astype("<u2")
    return {
        "model": label,
        "stack": mixing_map.stack,
        "units": units,
        "measure": measure_label(mixing_map.measure),
        "layers": [int(layer) for layer in layers],
        "targets": [_unit_data(span) for span in mixing_map.targets],
        "sources": [_unit_data(span) for span in mixing_map.sources],
        "top": round(float(largest_share), 3),
        "deciding": None if units == "word" else _deciding_row(mixing_map),
        "opens": layer if layer in mixing_map.layers else _strongest_layer(mixing_map),
        "column": column,
        "row": row,
        "cells": base64.b64encode(codes.tobytes()).decode("ascii"),
    }


def _deciding_row(mixing_map: MixingMap) -> int | None:
    """Find the row that predicts the deciding token, or the letter of which that token is a
    byte."""
    position = (
        mixing_map.provenance.get("deciding_position") if mixing_map.stack != "encoder" else None
    )
    return next(
        (row for row, span in enumerate(mixing_map.targets) if position in span.positions), None
    )


def _unit_data(span: Span) -> dict[str, object]:
    times = {"times": span.times} if span.times else {}
    return {
        "label": span.label or str(span.start),
        "word": span.word,
        "onset": span.onset,
        "offset": span.offset,
        **times,
    }
