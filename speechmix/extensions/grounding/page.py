"""HTML page of a grounding: a transcript in which doubtful words are coloured and can be listened to.

In: a `Grounding`. Out: HTML that needs no other file and no network. Words are data, drawn by `templates/grounding.js`
as text, for a transcript is hostile input. Where no script runs, the marked transcript stands as plain text.
"""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from html import escape
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING

from ...files.json_files import JsonObject
from ...inputs.clips.player import encode_wav
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
