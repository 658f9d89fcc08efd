"""What is saved from the app: a page, a picture, a TextGrid, the sound, a row for a manifest.

In: a `Clip` and its maps. Out: a `SavedFile`, the bytes of a file with a name that is safe; nothing
is written to a folder.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import InputError
from ...explanations.explanation import Explanation
from ...files.json_files import Json, JsonObject
from ...files.names import safe_name
from ...files.versions import versions
from ...inputs.clips.clip import Clip
from ...inputs.clips.player import encode_flac
from ...inputs.formats.textgrid import write_textgrid
from ...inputs.words.timed_words import Word
from ...mixing.maps.measure_facts import measure_label
from ...mixing.maps.mixing_map import MixingMap
from ...reporting.pages.clip_card import clip_card
from ...reporting.pages.html_page import render_page
from ...reporting.pages.map_encoding import model_label
from ...reporting.plots.clip_overview import clip_figure
from ...reporting.plots.figure_style import png_bytes
from ...runs.results.stored_clips import Maps

_PAGE_BYTES = 10_000_000  # what a mail attachment may have


@dataclass(frozen=True)
class SavedFile:
    """A file to be saved by the browser."""

    name: str
    kind: str
    content: bytes


def clip_textgrid(clip: Clip) -> SavedFile:
    """Words as a TextGrid that Praat opens.

    Raises
    ------
    InputError
        If the clip has no words.
    """
    words = _words(clip, "a TextGrid")
    with tempfile.TemporaryDirectory(prefix="speechmix-") as folder:
        path = Path(folder) / "words.TextGrid"
        write_textgrid(path, words, clip.duration)
        return SavedFile(
            f"{safe_name(clip.name)}.TextGrid", "text/plain; charset=utf-8", path.read_bytes()
        )


def clip_flac(clip: Clip) -> SavedFile:
    """The sound as FLAC, under the name that `manifest_row` has for it."""
    return SavedFile(_sound_name(clip), "audio/flac", encode_flac(clip))


def manifest_row(clip: Clip) -> SavedFile:
    """The clip as a line of a manifest (JSONL), its sound beside it.

    Examples
    --------
    >>> import numpy as np
    >>> clip = Clip.from_array(np.zeros(16_000), 16_000, name="a", text="les", words=[("les", 0.25, 0.5)])
    >>> print(manifest_row(clip).content.decode().strip())
    {"path": "a.flac", "name": "a", "text": "les", "words": [["les", 0.25, 0.5]]}
    """
    row: JsonObject = {
        "path": _sound_name(clip),
        "name": clip.name,
        "text": clip.text,
        "language": clip.language,
    }
    row["words"] = [_rounded(word) for word in clip.words or ()] or None
    row |= {"cue": clip.cue, "target": clip.target, "foil": clip.foil}
    line = json.dumps(
        {field: value for field, value in row.items() if value is not None}, ensure_ascii=False
    )
    return SavedFile(
        f"{safe_name(clip.name)}.jsonl", "application/jsonl; charset=utf-8", (line + "\n").encode()
    )


def _rounded(word: Word) -> list[Any]:
    pieces = [[round(start, 5), round(end, 5)] for start, end in word.pieces]
    return [
        word.text,
        round(word.start, 5),
        round(word.end, 5),
        *([None, pieces] if pieces else []),
    ]


def maps_picture(clip: Clip, mixing_map: MixingMap, *, layer: int) -> SavedFile:
    """The clip with one map in its first, middle and last layer, and the one that is looked at;
    PNG.

    Raises
    ------
    InputError
        If the clip has no words, or the map no such layer.
    """
    _words(clip, "a picture with its map")
    layers = sorted(
        {
            mixing_map.layers[0],
            mixing_map.layers[len(mixing_map.layers) // 2],
            mixing_map.layers[-1],
            layer,
        }
    )
    figure = clip_figure(clip, {(mixing_map.measure, mixing_map.stack): mixing_map}, layers=layers)
    return SavedFile(f"{safe_name(clip.name)}.png", "image/png", png_bytes(figure))


def maps_page(
    clip: Clip, maps: Maps, *, start: Mapping[str, Json], notes: tuple[str, ...] = ()
) -> SavedFile:
    """One page that needs no other file: the sound, the words, all maps; the same part as in a
    run's report.

    Parameters
    ----------
    clip : Clip
    maps : dict
        By (model, init, seed) and (measure, stack).
    start : mapping
        Model, stack, measure (as the page names them) and layer that are shown first.
    notes : tuple of str
        Paragraphs that are shown first.
    """
    summary = [
        f"{clip.duration:.2f} s",
        *([f"words placed by: {clip.alignment}"] if clip.alignment else []),
    ]
    summary += [f"word times are doubtful: {doubt}" for doubt in clip.doubts]
    card = clip_card(
        clip.name,
        clip,
        maps,
        heading=clip.name,
        summary=" · ".join(summary),
        start=start,
        seconds=clip.duration,
        max_bytes=_PAGE_BYTES,
    )
    models = ", ".join(model_label(key) for key in maps)
    measures = ", ".join(
        dict.fromkeys(
            measure_label(measure) for by_model in maps.values() for measure, _ in by_model
        )
    )
    told = (
        (f"Models: {models}. Measures: {measures}.", f"Measured with {versions()}.") if maps else ()
    )
    html = render_page(clip.name, [("The clip", [*notes, card]), ("What was measured", [*told])])
    return SavedFile(f"{safe_name(clip.name)}.html", "text/html; charset=utf-8", html.encode())


def explanation_page(explanation: Explanation) -> SavedFile:
    """The page of an explanation, as `Explanation.save` writes it."""
    name = f"{safe_name(explanation.item)}_why.html"
    return SavedFile(name, "text/html; charset=utf-8", explanation.to_html().encode())


def _sound_name(clip: Clip) -> str:
    return f"{safe_name(clip.name)}.flac"


def _words(clip: Clip, what: str) -> Sequence[Word]:
    if not clip.words:
        raise InputError(f"{what} needs words with times: place them first")
    return clip.words
