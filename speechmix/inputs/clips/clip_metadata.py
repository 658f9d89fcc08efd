"""Fields of a clip besides its sound."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypedDict

from ...errors import InputError
from ..words.cue_and_target import CueRequest
from ..words.text_normalization import normalize_text
from ..words.word_checks import WordLike
from ..words.word_lookup import WordRequest

SEGMENTS = "segments"  # how words came to be that are segments of the sound (`segment_clip`)
TASKS = ("transcribe", "translate")  # what a Whisper can be told to write of a clip


class ClipMetadata(TypedDict, total=False):
    """Keyword arguments of `Clip.from_array`; what they mean is said there and in
    `Clip.from_file`."""

    text: str | None
    cue: CueRequest | None
    target: WordRequest | None
    foil: str | None
    language: str | None
    translation: str | None
    alignment: str | None
    doubts: Iterable[str]
    meta: Mapping[str, str] | None


class ClipFields(ClipMetadata, total=False):
    """Keyword arguments of `Clip.replace`."""

    name: str
    words: Iterable[WordLike] | None
    tiers: Mapping[str, Iterable[WordLike]] | None


def refuse_unknown_fields(fields: Mapping[str, object], *, where: str) -> None:
    """Raise if something is said that a clip does not hold: a misspelt keyword."""
    unknown_names = sorted(fields.keys() - ClipFields.__annotations__.keys())
    if unknown_names:
        known_names = ", ".join(ClipFields.__annotations__)
        raise InputError(
            f"{where}: expected facts of a clip ({known_names}), found {', '.join(unknown_names)}"
        )


def check_text(text: str | None, *, where: str) -> str | None:
    """Return a text in NFC, without invisible marks and the spaces at its ends; None stays None.

    InputError if nothing is left of it.
    """
    if text is not None and not isinstance(text, str):
        raise InputError(
            f"{where}: expected a text, found {text!r}: leave `text` out if it is unknown"
        )
    text = None if text is None else normalize_text(text).strip()
    if text == "":
        raise InputError(
            f"{where}: expected a text, found an empty one: leave `text` out if it is unknown"
        )
    return text
