"""Which columns of a corpus hold the recording and its text.

In: names and types of columns, and what the user says. Out: one of each, or an error that lists
them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from ...errors import InputError
from ...inputs.corpora.corpus_source import CorpusSource

Features: TypeAlias = dict[str, object]  # types of columns, as `datasets` has them

TEXTS = ("sentence", "text", "transcription", "transcript", "normalized_text")


def find_text_column(names: Iterable[str]) -> str | None:
    """Return the usual name of a text that is among the names; None if there is none.

    Examples
    --------
    >>> find_text_column(["audio", "transcript", "speaker"])
    'transcript'
    """
    names = set(names)
    return next((name for name in TEXTS if name in names), None)


def find_audio_and_text_columns(
    source: CorpusSource, features: Features, *, needs_text: bool = True
) -> tuple[str, str | None]:
    """Find the columns of the recording and of the text.

    `audio` and `text` of the source decide, if given. `features` maps column names to their types
    in `datasets`. Without `needs_text` a set without text has None as its column; a column that was
    named must be there. InputError if there is none, or several and nothing says which.
    """
    from datasets import Audio

    audio_columns = [
        name
        for name, feature in features.items()
        if isinstance(feature, Audio) or _holds_bytes(feature)
    ]
    audio_columns = audio_columns or [name for name in ("audio",) if name in features]
    audio = source.audio or (
        "audio"
        if "audio" in audio_columns
        else audio_columns[0]
        if len(audio_columns) == 1
        else None
    )
    text = source.text or find_text_column(features)
    if audio in features and (text in features or (text is None and not needs_text)):
        return audio, text
    listing = ", ".join(f"{name} ({_type_name(feature)})" for name, feature in features.items())
    raise InputError(
        f"{source.location}: expected the columns {source.audio or 'audio'} and "
        f"{source.text or 'one of ' + ', '.join(TEXTS)}, "
        f"found {listing[:1000]}: name them behind the corpus, as in "
        f"{source.location},audio=COLUMN,text=COLUMN"
    )


def _holds_bytes(feature: object) -> bool:
    """True for a column that is a recording as `datasets` stores it, where nothing says so."""
    return isinstance(feature, dict) and set(feature) == {"bytes", "path"}


def _type_name(feature: object) -> str:
    return str(getattr(feature, "dtype", None) or type(feature).__name__).lower()
