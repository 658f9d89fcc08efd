"""A clip as notebooks show it: its words, cue and target marked, and a player that needs no other
file."""

from __future__ import annotations

import base64
import html
import io
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ..words.timed_words import Word
    from .clip import Clip

_STYLES = {"cue": "#0072b2", "target": "#d55e00"}  # as in the figures


def render_player(clip: Clip) -> str:
    """Return an HTML element with name, words and sound of a clip; its text is escaped."""
    words_html = html.escape(clip.text or "")
    if clip.words is not None:
        words_html = " ".join(
            _render_word(clip, index, word) for index, word in enumerate(clip.words)
        )
    audio_base64 = base64.b64encode(encode_wav(clip)).decode("ascii")
    return (
        f"<div><p><b>{html.escape(clip.name)}</b> ({clip.duration:.2f} s) {words_html}</p>"
        f'<audio controls preload="metadata" src="data:audio/wav;base64,{audio_base64}"></audio></div>'
    )


def _render_word(clip: Clip, index: int, word: Word) -> str:
    role = "cue" if index in clip.cue_words else "target" if index == clip.target else None
    title = f'title="{word.start:.2f} to {word.end:.2f} s"'
    style = f' style="color: {_STYLES[role]}; font-weight: bold"' if role else ""
    return f"<span {title}{style}>{html.escape(word.text)}</span>"


def encode_wav(clip: Clip) -> bytes:
    """The clip as WAV, for players that go to a time: Chromium finds none in the last seconds of a
    FLAC without a seek table.

    No loss and, unlike MP3, no delay at the start that would shift the player against the map.
    """
    return _encode_audio(clip, "WAV")


def encode_flac(clip: Clip) -> bytes:
    """The clip as FLAC: as `encode_wav`, in about half the bytes, for files and for players that decode it
    whole."""
    return _encode_audio(clip, "FLAC")


def _encode_audio(clip: Clip, audio_format: str) -> bytes:
    import soundfile

    buffer = io.BytesIO()
    soundfile.write(
        buffer, np.clip(clip.audio(16_000), -1, 1), 16_000, format=audio_format, subtype="PCM_16"
    )
    return buffer.getvalue()
