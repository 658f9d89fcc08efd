"""Build the card of a clip on a page: sound, picture, words, and the maps that the page's script
draws.

In: a `Clip` (None where its audio is gone) and its maps. Out: a `ClipCard`. Where a card would grow
too large for a page that is sent by mail, layers are left out evenly, and the sound last.

Encode maps for the page's script.

In: the maps of one clip, by model. Out: plain values for JSON, of each map as many layers as fit.
Pauses, padding and frames behind the end of the clip are left out, and maps with more units than a
browser can draw. A map of tokens comes twice: its tokens pooled to words first, then as tokens.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypedDict

import numpy as np

from ...evaluation.statistics.groups import choose_evenly
from ...files.names import safe_name
from ...inputs.clips.clip import Clip
from ...inputs.clips.player import encode_wav
from ...inputs.words.cue_and_target import cue_words
from ...inputs.words.multipart_words import list_parts
from ...inputs.words.spans import Span
from ...inputs.words.timed_words import Word
from ...mixing.maps.map_set import pool_to_letters, pool_to_words
from ...mixing.maps.measure_registry import measure_label
from ...mixing.maps.mixing_map import MixingMap
from ...runs.results.stored_maps import Maps, ModelKey, read_provenance
from ..plots import map_cells
from ..plots.clip_overview import sound_picture
from ..plots.figure_style import axis_names, fed_text, model_name
from .transcription import ModelTranscript

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
    `runs.results.stored_maps.read_clip_maps`. Frames behind `seconds`, the length of the clip, are
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


class WordPiece(TypedDict):
    """Piece of a word with its times in seconds, and the index of the word."""

    text: str
    start: float
    end: float
    word: int


@dataclass(frozen=True)
class ClipCard:
    """Whether a model's transcript differs from what was said."""

    kind: ClassVar[str] = "clip"
    name: str
    heading: str
    text: str | None
    summary: str
    words: list[dict[str, object]]
    ticks: list[dict[str, object]]
    data: dict[str, object]
    sound: str = ""
    picture: str = ""
    silence_reason: str = ""
    language: str | None = None
    transcripts: Sequence[ModelTranscript] = ()
    anchor: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "anchor", clip_anchor(self.name))

    @property
    def has_differences(self) -> bool:
        """Whether a model wrote something else than what was said."""
        return any(transcript.has_differences for transcript in self.transcripts)


def clip_anchor(name: str) -> str:
    """Return the anchor of a clip's card, for links on the page."""
    return f"clip-{safe_name(name)}"


def clip_card(
    name: str,
    clip: Clip | None,
    maps: Maps,
    *,
    heading: str,
    summary: str,
    start: Mapping[str, Any],
    seconds: float,
    max_bytes: int,
    transcripts: Sequence[ModelTranscript] = (),
) -> ClipCard:
    """Build the card of a clip.

    Without a clip (its audio cannot be found) the card has words and maps alone. The maps come from
    `runs.results.stored_maps.read_clip_maps`. `start` says what to show first: model, stack,
    measure (names as on the page), layer. `seconds` is the length of the clip; the card takes about
    `max_bytes`. `transcripts` are what models wrote about the clip.
    """
    provenance = read_provenance(maps)
    words = _list_pieces([Word(*word) for word in provenance.get("words") or ()])
    cue, target = provenance.get("cue"), provenance.get("target")
    sound = picture = ""
    silence_reason = (
        "The audio file was not found. Name its folder: `speechmix report RUN --audio FOLDER`."
    )
    if clip is not None:
        seconds = clip.duration
        picture = base64.b64encode(sound_picture(clip)).decode("ascii")
        sound = base64.b64encode(encode_wav(clip)).decode("ascii")
        if len(sound) > max_bytes / 2:
            sound, silence_reason = (
                "",
                f"The audio ({seconds:.0f} s) is not on the page, to keep it small enough for e-mail.",
            )
    drawn_maps_data = encode_maps(
        maps, seconds, start.get("layer"), max_bytes - len(sound) - len(picture)
    )
    data = {
        "maps": drawn_maps_data,
        "words": words,
        "cue": cue,
        "target": target,
        "seconds": seconds,
        "start": dict(start),
    }
    summary = " · ".join(phrase for phrase in (summary, *_fed_texts(maps)) if phrase)
    return ClipCard(
        name,
        heading,
        provenance.get("text"),
        summary,
        _place_words(words, cue, target, seconds),
        _time_ticks(seconds),
        data,
        sound=sound,
        picture=picture,
        silence_reason=silence_reason,
        language=clip.language if clip else None,
        transcripts=transcripts,
    )


def _fed_texts(maps: Maps) -> list[str]:
    """List the texts that decoders were fed where they are not the clip's own text."""
    fed_texts = (
        fed_text(mixing_map.provenance, 200)
        for by_model in maps.values()
        for mixing_map in by_model.values()
    )
    return [f"text in the decoder: {text}" for text in dict.fromkeys(fed_texts) if text]


def _list_pieces(words: Sequence[Word]) -> list[WordPiece]:
    """List the pieces of all words in time order, each with the index of its word."""
    pieces: list[WordPiece] = [
        {"text": part.text, "start": start, "end": end, "word": index}
        for index, part in list_parts(words)
        for start, end in part.intervals
    ]
    return sorted(pieces, key=lambda piece: piece["start"]) if len(pieces) > len(words) else pieces


def _place_words(
    words: Sequence[WordPiece],
    cue: int | Sequence[int] | None,
    target: int | None,
    seconds: float,
) -> list[dict[str, object]]:
    """Return the words with their positions along the clip in percent."""
    roles: dict[int | None, str] = {**dict.fromkeys(cue_words(cue), "cue"), target: "target"}
    return [
        {
            "text": word["text"],
            "start": f"{word['start']:.2f}",
            "end": f"{word['end']:.2f}",
            "left": round(100 * word["start"] / seconds, 3),
            "width": round(100 * (word["end"] - word["start"]) / seconds, 3),
            "role": roles.get(word["word"], ""),
            "word": word["word"],
        }
        for word in words
    ]


def _time_ticks(seconds: float) -> list[dict[str, object]]:
    """Return the ticks of the time axis with their positions in percent."""
    from matplotlib.ticker import MaxNLocator

    times = MaxNLocator(8, steps=[1, 2, 5, 10]).tick_values(0, seconds)
    return [
        {"left": round(100 * t / seconds, 3), "label": f"{t:g}"} for t in times if 0 <= t <= seconds
    ]
