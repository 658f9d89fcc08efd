"""HTML page of a grounding: a transcript in which doubtful words are coloured and can be listened to.

In: a `Grounding`. Out: HTML that needs no other file and no network. Words are data, drawn by `templates/grounding.js`
as text, for a transcript is hostile input. Where no script runs, the marked transcript stands as plain text.

Write a grounding as a file: table, JSON, tiers, subtitles, transcript or page.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from html import escape
from itertools import zip_longest
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import InputError
from ...files.json_files import JsonObject
from ...files.text_files import write_csv, write_table
from ...files.whole_files import whole_file, write_json, write_text
from ...inputs.clips.player import encode_wav
from ...inputs.formats.elan import write_elan
from ...inputs.formats.subtitles import format_srt, format_vtt
from ...inputs.formats.textgrid import write_tiers
from ...inputs.words.timed_words import Word
from .grounded_words import SOURCES

if TYPE_CHECKING:
    from .grounded_words import GroundedWord
    from .grounding import Grounding

_TEMPLATES = Path(__file__).parent / "templates"
_MAX_SOUND_SECONDS = 180.0  # of a recording that the page holds


def grounding_page(grounding: Grounding, *, threshold: float) -> str:
    """Return a whole page; light or dark as the reader has it."""
    title = escape(f"Grounding: {grounding.name}")
    digest = hashlib.sha256(_template("grounding.js").encode()).digest()
    script_hash = base64.b64encode(digest).decode("ascii")
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; media-src data:; "
        f"script-src 'sha256-{script_hash}'"
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}"><title>{title}</title>'
        "<style>:root { color-scheme: light dark } body { margin: 1rem auto; max-width: 62rem; padding: 0 .8rem }"
        f"</style></head><body>{grounding_body(grounding, threshold=threshold)}</body></html>\n"
    )


def grounding_body(grounding: Grounding, *, threshold: float) -> str:
    """Return the same as a part of another page, as notebooks show it."""
    data = json.dumps(_page_data(grounding, threshold), ensure_ascii=False, separators=(",", ":"))
    findings = "".join(f"<li>{escape(finding)}</li>" for finding in grounding.findings)
    marked = escape(grounding.transcript(threshold=threshold, mark=True), quote=False)
    rule = (
        "A word is not in the sound if it, and the three words on each side in its phrase, lose less than "
        "the threshold in nats of log-probability when silence or noise replaces all sound. "
        f"{grounding.confidence_statement}"
    )
    return (
        f'<div class="gr"><style>{_template("grounding.css")}</style><h1>{escape(grounding.name)}</h1>'
        f"<p>{escape(grounding.summarize(threshold))}</p><ul>{findings}</ul>"
        f'<p class="quiet">{escape(rule)}</p><div class="gr-view"><pre>{marked}</pre></div>'
        f'<script type="application/json">{data.replace("<", chr(92) + "u003c")}</script>'
        f"<script>{_template('grounding.js')}</script></div>"
    )


def _page_data(grounding: Grounding, threshold: float) -> JsonObject:
    clip = grounding.clip
    is_short = grounding.seconds <= _MAX_SOUND_SECONDS
    sound = base64.b64encode(encode_wav(clip)).decode("ascii") if clip and is_short else None
    reason = (
        "the recording was not given"
        if clip is None
        else f"the recording is longer than {_MAX_SOUND_SECONDS / 60:.0f} minutes"
    )
    return {
        "threshold": threshold,
        "sound": sound,
        "no_sound": reason,
        "words": [_word_data(word) for word in grounding.words],
    }


def _word_data(word: GroundedWord) -> JsonObject:
    """Return what the page shows of a word; None for what is not known."""
    numbers = {
        "start": word.start,
        "end": word.end,
        "right": word.right,
        "probability": word.probability,
        "runner_up_probability": word.runner_up_probability,
        "phrase_sound": word.phrase_sound,
        **{source: getattr(word, source) for source in SOURCES},
    }
    rounded_numbers = {
        name: None if isnan(value) else round(value, 4) for name, value in numbers.items()
    }
    texts = {"text": word.text, "runner_up": word.runner_up, "reason": word.reason}
    return {**texts, **rounded_numbers, "window": word.window, "loop": word.loop}


@cache
def _template(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8").strip()


_MIN_SECONDS = 0.001  # of an interval
_NO_SPEECH = "<sil>"  # a label of aligners, which `read_textgrid` does not take for a word
_STYLE = "::cue(.doubtful) { text-decoration: underline dotted; color: #ffb000; }"


def write_grounding(grounding: Grounding, path: Path, *, threshold: float) -> Path:
    """Write a grounding; see `Grounding.save`."""
    writer = _WRITERS.get(path.suffix.lower())
    if writer is None:
        raise InputError(
            f"{path}: expected a file that ends in {', '.join(_WRITERS)}, found {path.suffix!r}"
        )
    grounding.doubtful(threshold)  # raises for a wrong threshold before anything is written
    writer(grounding, path, threshold)
    return path


def make_tiers(grounding: Grounding, threshold: float) -> dict[str, list[Word]]:
    """Return words, probabilities, reasons and loops as tiers of intervals that do not overlap.

    A tier without an interval is left out. Where there is no word at all, one interval says so as aligners do.

    Raises
    ------
    InputError
        If the model tells no times of words.
    """
    if not grounding.words:
        return {"words": [Word(_NO_SPEECH, 0.0, grounding.seconds)]}
    words = _with_times(grounding)
    doubtful = set(grounding.doubtful(threshold))
    loops = [word.loop for word in words]
    tiers = {
        "words": [word.text for word in words],
        "effect of the sound": [f"{word.sound:.2f}" for word in words],
        "doubtful": ["doubtful" if index in doubtful else "" for index in range(len(words))],
        "reason": [word.reason for word in words],
        "loop": ["" if loop is None else f"loop {loop + 1}" for loop in loops],
    }
    intervals = {
        name: [
            Word(_one_line(label), word.start, word.end)
            for label, word in zip(labels, words, strict=True)
            if label.strip()
        ]
        for name, labels in tiers.items()
    }
    return {name: tier for name, tier in intervals.items() if tier}


def _with_times(grounding: Grounding) -> list[GroundedWord]:
    """Return words whose intervals have a length, are in order and do not overlap."""
    if any(isnan(word.start) for word in grounding.words):
        raise InputError(
            f"{grounding.name}: {grounding.model} does not tell when its words are said: save a table (.csv) or a "
            "page (.html) instead"
        )
    placed: list[GroundedWord] = []
    reached, later_count = 0.0, len(grounding.words)
    for word, following in zip_longest(grounding.words, grounding.words[1:]):
        later_count -= 1
        latest_end = (
            grounding.seconds - later_count * _MIN_SECONDS
        )  # every later word needs room, too
        start = min(max(word.start, reached), latest_end - _MIN_SECONDS)
        end = word.end
        if following is not None and following.start < end:
            end = following.start if following.start > start else (start + end) / 2
        end = min(max(end, start + _MIN_SECONDS), latest_end)
        placed.append(replace(word, start=start, end=end))
        reached = end
    return placed


def make_subtitles(grounding: Grounding, threshold: float, ending: str) -> str:
    """Return WebVTT with doubtful words in a class, or SubRip with a question mark behind them."""
    doubtful = set(grounding.doubtful(threshold))
    words = _with_times(grounding)
    starts = {i for i in range(1, len(words)) if words[i].window != words[i - 1].window}
    if ending == ".srt":
        marked = [f"[{word.text}?]" if i in doubtful else word.text for i, word in enumerate(words)]
        return format_srt(words, marked, breaks=starts)
    classes = ["doubtful" if i in doubtful else "" for i in range(len(words))]
    labels = [word.text for word in words]
    return format_vtt(words, labels, classes=classes, breaks=starts, style=_STYLE)


def _one_line(text: str) -> str:
    return " ".join(text.replace("\0", "\ufffd").split())


def _write_parquet(grounding: Grounding, path: Path, threshold: float) -> None:
    write_table(grounding.to_dataframe(), path)


def _write_textgrid(grounding: Grounding, path: Path, threshold: float) -> None:
    with whole_file(path) as unfinished:
        write_tiers(unfinished, make_tiers(grounding, threshold), grounding.seconds)


def _write_elan(grounding: Grounding, path: Path, threshold: float) -> None:
    audio = None if grounding.clip is None else grounding.clip.path
    with whole_file(path) as unfinished:
        write_elan(unfinished, make_tiers(grounding, threshold), grounding.seconds, audio=audio)


def _write_subtitles(grounding: Grounding, path: Path, threshold: float) -> None:
    write_text(path, make_subtitles(grounding, threshold, path.suffix.lower()))


_WRITERS: dict[str, Callable[[Grounding, Path, float], object]] = {
    ".html": lambda grounding, path, threshold: write_text(
        path, grounding_page(grounding, threshold=threshold)
    ),
    ".csv": lambda grounding, path, threshold: write_csv(grounding.to_dataframe(), path),
    ".json": lambda grounding, path, threshold: write_json(path, grounding.to_json()),
    ".parquet": _write_parquet,
    ".textgrid": _write_textgrid,
    ".eaf": _write_elan,
    ".vtt": _write_subtitles,
    ".srt": _write_subtitles,
    ".txt": lambda grounding, path, threshold: write_text(
        path, grounding.transcript(threshold=threshold) + "\n"
    ),
}
