"""Which columns of a corpus hold the recording and its text.

In: names and types of columns, and what the user says. Out: one of each, or an error that lists
them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

from ...errors import InputError
from .corpus_names import CorpusSource

# Of libraries without types.
HubData: TypeAlias = Any  # a data set of `datasets`, or several by split
ArrowObject: TypeAlias = Any  # a type, a schema, an array or a file of pyarrow
Features: TypeAlias = dict[str, object]  # types of columns, as `datasets` has them

TEXTS = ("sentence", "text", "transcription", "transcript", "normalized_text")


def text_among(names: Iterable[str]) -> str | None:
    """Return the usual name of a text that is among the names; None if there is none.

    Examples
    --------
    >>> text_among(["audio", "transcript", "speaker"])
    'transcript'
    """
    names = set(names)
    return next((name for name in TEXTS if name in names), None)


def audio_and_text(
    source: CorpusSource, features: Features, *, text_is_needed: bool = True
) -> tuple[str, str | None]:
    """Columns of the recording and of the text; of the text None if there is none and none is
    needed.

    Parameters
    ----------
    source : CorpusSource
        Whose `audio` and `text` decide, if they are given.
    features : dict
        Name of a column -> its type, as `datasets` has it.
    text_is_needed : bool
        Whether a set without a column of text is an error; one that was named must be there.

    Raises
    ------
    InputError
        If there is none, or several and nothing says which.
    """
    from datasets import Audio

    sounds = [
        name
        for name, feature in features.items()
        if isinstance(feature, Audio) or _holds_bytes(feature)
    ]
    sounds = sounds or [name for name in ("audio",) if name in features]
    audio = source.audio or (
        "audio" if "audio" in sounds else sounds[0] if len(sounds) == 1 else None
    )
    text = source.text or text_among(features)
    if audio in features and (text in features or (text is None and not text_is_needed)):
        return audio, text
    listed = ", ".join(f"{name} ({_kind(feature)})" for name, feature in features.items())
    raise InputError(
        f"{source.location}: expected the columns {source.audio or 'audio'} and "
        f"{source.text or 'one of ' + ', '.join(TEXTS)}, "
        f"found {listed[:1000]}: name them behind the corpus, as in "
        f"{source.location},audio=COLUMN,text=COLUMN"
    )


def _holds_bytes(feature: object) -> bool:
    """True for a column that is a recording as `datasets` stores it, where nothing says so."""
    return isinstance(feature, dict) and set(feature) == {"bytes", "path"}


def _kind(feature: object) -> str:
    return str(getattr(feature, "dtype", None) or type(feature).__name__).lower()
