"""Build the files that the app offers for download: page, picture, TextGrid, audio, manifest row.

In: a `Clip` and its maps. Out: a `SavedFile`, the bytes of a file with a safe name; nothing is
written to a folder.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import InputError
from ...files.cache_keys import versions
from ...files.json_files import Json, JsonObject
from ...files.names import safe_name
from ...inputs.clips.clip import Clip
from ...inputs.clips.player import encode_flac
from ...inputs.formats.textgrid import write_textgrid
from ...inputs.words.timed_words import Word
from ...mixing.maps.measure_registry import measure_label
from ...mixing.maps.mixing_map import MixingMap
from ...reporting.pages.clip_card import clip_card, model_label
from ...reporting.pages.html_page import render_page
from ...reporting.plots.clip_overview import clip_figure
from ...reporting.plots.figure_style import png_bytes
from ...runs.results.stored_maps import Maps
from ..explain.explanation import Explanation

_MAX_PAGE_BYTES = 10_000_000  # fits a mail attachment


@dataclass(frozen=True)
class SavedFile:
    """Hold a file that the browser saves."""

    name: str
    media_type: str
    content: bytes


def build_textgrid_file(clip: Clip) -> SavedFile:
    """Encode word times as a TextGrid for Praat.

    Raises
    ------
    InputError
        If the clip has no words.
    """
    words = _require_words(clip, "a TextGrid")
    with tempfile.TemporaryDirectory(prefix="speechmix-") as folder:
        path = Path(folder) / "words.TextGrid"
        write_textgrid(path, words, clip.duration)
        return SavedFile(
            f"{safe_name(clip.name)}.TextGrid", "text/plain; charset=utf-8", path.read_bytes()
        )


def build_flac_file(clip: Clip) -> SavedFile:
    """Encode the audio as FLAC, under the name that `build_manifest_row_file` gives it."""
    return SavedFile(_audio_file_name(clip), "audio/flac", encode_flac(clip))


def build_manifest_row_file(clip: Clip) -> SavedFile:
    """Encode the clip as a line of a JSONL manifest that names its audio file.

    Examples
    --------
    >>> import numpy as np
    >>> clip = Clip.from_array(np.zeros(16_000), 16_000, name="a", text="les", words=[("les", 0.25, 0.5)])
    >>> print(build_manifest_row_file(clip).content.decode().strip())
    {"path": "a.flac", "name": "a", "text": "les", "words": [["les", 0.25, 0.5]]}
    """
    row: JsonObject = {
        "path": _audio_file_name(clip),
        "name": clip.name,
        "text": clip.text,
        "language": clip.language,
    }
    row["words"] = [_round_word_times(word) for word in clip.words or ()] or None
    row |= {"cue": clip.cue, "target": clip.target, "foil": clip.foil}
    line = json.dumps(
        {field: value for field, value in row.items() if value is not None}, ensure_ascii=False
    )
    return SavedFile(
        f"{safe_name(clip.name)}.jsonl", "application/jsonl; charset=utf-8", (line + "\n").encode()
    )


def _round_word_times(word: Word) -> list[Any]:
    piece_times = [[round(start, 5), round(end, 5)] for start, end in word.pieces]
    return [
        word.text,
        round(word.start, 5),
        round(word.end, 5),
        *([None, piece_times] if piece_times else []),
    ]


def render_maps_picture(clip: Clip, mixing_map: MixingMap, *, layer: int) -> SavedFile:
    """Draw the clip with a map in its first, middle and last layer and in `layer`, as PNG.

    Raises
    ------
    InputError
        If the clip has no words, or the map lacks the layer.
    """
    _require_words(clip, "a picture with its map")
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


def render_maps_page(
    clip: Clip, maps: Maps, *, initial_view: Mapping[str, Json], notes: tuple[str, ...] = ()
) -> SavedFile:
    """Render one self-contained page with audio, words and all maps, as in a run's report.

    Parameters
    ----------
    clip : Clip
    maps : dict
        By (model, init, seed) and (measure, stack).
    initial_view : mapping
        Model, stack, measure (as the page names them) and layer to show first.
    notes : tuple of str
        Paragraphs at the top.
    """
    fact_texts = [
        f"{clip.duration:.2f} s",
        *([f"words aligned by: {clip.alignment}"] if clip.alignment else []),
    ]
    fact_texts += [f"word times are doubtful: {doubt}" for doubt in clip.doubts]
    card = clip_card(
        clip.name,
        clip,
        maps,
        heading=clip.name,
        summary=" · ".join(fact_texts),
        start=initial_view,
        seconds=clip.duration,
        max_bytes=_MAX_PAGE_BYTES,
    )
    models = ", ".join(model_label(key) for key in maps)
    measures = ", ".join(
        dict.fromkeys(
            measure_label(measure) for by_model in maps.values() for measure, _ in by_model
        )
    )
    method_paragraphs = (
        (f"Models: {models}. Measures: {measures}.", f"Measured with {versions()}.") if maps else ()
    )
    page_html = render_page(
        clip.name, [("The clip", [*notes, card]), ("What was measured", [*method_paragraphs])]
    )
    return SavedFile(f"{safe_name(clip.name)}.html", "text/html; charset=utf-8", page_html.encode())


def render_explanation_page(explanation: Explanation) -> SavedFile:
    """Render the page of an explanation, as `Explanation.save` writes it."""
    name = f"{safe_name(explanation.item)}_why.html"
    return SavedFile(name, "text/html; charset=utf-8", explanation.to_html().encode())


def _audio_file_name(clip: Clip) -> str:
    return f"{safe_name(clip.name)}.flac"


def _require_words(clip: Clip, purpose: str) -> Sequence[Word]:
    if not clip.words:
        raise InputError(f"{purpose} needs word times: click Align words first")
    return clip.words
