"""A clip on the page: its sound, picture and words, and its maps as numbers that the page's script draws and moves over.

In: a `Clip` (None where its audio is gone) and its maps. Out: a `ClipCard`. Shares are kept as 16-bit numbers; where a card
would grow too large for a page that is sent by mail, layers are left out evenly, and the sound last.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..experiments.stored_clips import Maps, ModelKey, provenance_of
from ..files.names import safe_name
from ..inputs.clips import Clip
from ..inputs.cue_and_target import cue_words
from ..inputs.player import flac
from ..inputs.spans import Span
from ..maps.mixing import MixingMap
from ..plots import panels
from ..plots.figures import evenly
from ..plots.sound_panels import sound_picture

_NAN, _FULL = 65_535, 65_534  # 16-bit numbers for "no value" and for 100 %
_MOST_UNITS = 600  # of a side, so that a browser can draw the map


@dataclass(frozen=True)
class ClipCard:
    """What the page shows of a clip; sound and picture are base64."""

    name: str
    heading: str
    text: str | None
    facts: str
    words: list[dict[str, Any]]
    ticks: list[dict[str, Any]]
    data: dict[str, Any]
    sound: str = ""
    picture: str = ""
    silent: str = ""
    language: str | None = None
    anchor: str = field(init=False)

    def __post_init__(self):
        object.__setattr__(self, "anchor", anchor_of(self.name))


def anchor_of(name: str) -> str:
    """Where on the page a clip is."""
    return f"clip-{safe_name(name)}"


def clip_card(
    name: str,
    clip: Clip | None,
    maps: Maps,
    *,
    heading: str,
    facts: str,
    start: Mapping[str, Any],
    seconds: float,
    most_bytes: int,
) -> ClipCard:
    """Put a clip's card together.

    Parameters
    ----------
    name : str
    clip : Clip or None
        None if the audio cannot be found: the card then has words and maps alone.
    maps : dict
        From `experiments.stored_clips.maps_of_clip`.
    heading, facts : str
    start : mapping
        What to show first: model, stack, measure (names as on the page), layer.
    seconds : float
        Length of the clip.
    most_bytes : int
        About how large the card may be.
    """
    provenance = provenance_of(maps)
    words = [{"text": text, "start": start, "end": end} for text, start, end in provenance.get("words") or ()]
    cue, target = provenance.get("cue"), provenance.get("target")
    sound = picture = ""
    silent = "The audio was not found, so there is nothing to hear. Name its folder with `speechmix report RUN --audio FOLDER`."
    if clip is not None:
        seconds = clip.duration
        picture = base64.b64encode(sound_picture(clip)).decode("ascii")
        sound = base64.b64encode(flac(clip)).decode("ascii")
        if len(sound) > most_bytes / 2:
            sound, silent = "", f"The sound ({seconds:.0f} s) is left out: the page would grow too large to be sent."
    drawn = _drawn_maps(maps, seconds, start.get("layer"), most_bytes - len(sound) - len(picture))
    data = {"maps": drawn, "words": words, "cue": cue, "target": target, "seconds": seconds, "start": dict(start)}
    facts = " · ".join(part for part in (facts, *_fed_texts(maps)) if part)
    return ClipCard(
        name, heading, provenance.get("text"), facts, _placed(words, cue, target, seconds), _ticks(seconds), data,
        sound=sound, picture=picture, silent=silent, language=clip.language if clip else None,
    )  # fmt: skip


def model_label(key: ModelKey) -> str:
    """What a model is called on the page."""
    name, init, seed = key
    return panels.model_name(name) + (f", random (seed {seed})" if init == "random" else "")


def _fed_texts(maps: Maps) -> list[str]:
    """What decoders were fed that the clip does not say: their models' own transcripts, translations."""
    told = (panels.fed_text(one.provenance, 200) for by_model in maps.values() for one in by_model.values())
    return [f"decoder fed the {text}" for text in dict.fromkeys(told) if text]


def _placed(
    words: Sequence[Mapping[str, Any]], cue: int | Sequence[int] | None, target: int | None, seconds: float
) -> list[dict[str, Any]]:
    roles: dict[int | None, str] = {**dict.fromkeys(cue_words(cue), "cue"), target: "target"}
    return [
        {
            "text": word["text"],
            "start": f"{word['start']:.2f}",
            "end": f"{word['end']:.2f}",
            "left": round(100 * word["start"] / seconds, 3),
            "width": round(100 * (word["end"] - word["start"]) / seconds, 3),
            "role": roles.get(index, ""),
        }
        for index, word in enumerate(words)
    ]


def _ticks(seconds: float) -> list[dict[str, Any]]:
    from matplotlib.ticker import MaxNLocator

    times = MaxNLocator(8, steps=[1, 2, 5, 10]).tick_values(0, seconds)
    return [{"left": round(100 * t / seconds, 3), "label": f"{t:g}"} for t in times if 0 <= t <= seconds]


def _drawn_maps(maps: Maps, seconds: float, layer: int | None, most_bytes: int) -> list[dict[str, Any]]:
    """All maps, each with as many layers as fit, and in any case the one that is shown first."""
    audible = [
        (model_label(key), _audible(mixing_map.without("silence", "padding").mean_heads(), seconds))
        for key, by_model in maps.items()
        for mixing_map in by_model.values()
    ]
    drawable = [
        (label, mixing_map)
        for label, mixing_map in audible
        if mixing_map.scores.size and max(mixing_map.scores.shape[1:]) <= _MOST_UNITS
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
    return replace(
        mixing_map,
        scores=mixing_map.scores[:, rows][:, :, columns],
        targets=tuple(mixing_map.targets[i] for i in rows),
        sources=tuple(mixing_map.sources[j] for j in columns),
    )


def _drawn(label: str, mixing_map: MixingMap, layers: Sequence[int]) -> dict[str, Any]:
    shares = panels.displayed(mixing_map)[[mixing_map.layers.index(layer) for layer in layers]]
    top = panels.color_limits(list(shares))[1]
    numbers = np.where(np.ma.getmaskarray(shares), _NAN, np.round(shares.filled(0) / 100 * _FULL)).astype("<u2")
    return {
        "model": label,
        "stack": mixing_map.stack,
        "measure": panels.spoken(mixing_map.measure),
        "layers": [int(layer) for layer in layers],
        "targets": [_unit(span) for span in mixing_map.targets],
        "sources": [_unit(span) for span in mixing_map.sources],
        "top": round(float(top), 3),
        "deciding": _deciding(mixing_map),
        "cells": base64.b64encode(numbers.tobytes()).decode("ascii"),
    }


def _deciding(mixing_map: MixingMap) -> int | None:
    """Row that predicts the deciding letters, in a decoder or cross map of a clip with a foil."""
    position = mixing_map.provenance.get("deciding_position") if mixing_map.stack != "encoder" else None
    return next((row for row, span in enumerate(mixing_map.targets) if span.start == position), None)


def _unit(span: Span) -> dict[str, Any]:
    return {"label": span.label or str(span.start), "word": span.word, "onset": span.onset, "offset": span.offset}
