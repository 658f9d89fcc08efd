"""Parse the name of a corpus: folder, file or hub id, with its split and options.

In: a string, `LOCATION[:CONFIG][,split=...][,text=...][,audio=...]`. Out: a `CorpusSource`. Everything
that takes a corpus takes it in this form, so that its columns can be named wherever it is.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path

from ...errors import InputError

_OPTIONS = ("split", "text", "audio")
_UNKNOWN_OPTION = re.compile(r",(\w+=[^,]*)")
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


@dataclass(frozen=True)
class CorpusSource:
    """A corpus, and how it is to be read.

    The location is a path or the id of a data set on the hub, with its `config` ("fr") if it has
    several. The split is that of a data set, or the table of a release. `text` and `audio` name
    columns where it is unclear which; in a tar, the endings of members.

    Examples
    --------
    >>> CorpusSource.parse("google/fleurs:fr_fr,split=test,text=raw_transcription")
    CorpusSource(location='google/fleurs', config='fr_fr', split='test', text='raw_transcription',
    audio=None)
    """

    location: str
    config: str | None = None
    split: str | None = None
    text: str | None = None
    audio: str | None = None

    @classmethod
    def parse(cls, source: str | PathLike[str]) -> CorpusSource:
        """Split a corpus's name into location and options; a path that exists is one, whatever is
        in it.

        InputError for an unknown option.
        """
        location = os.fspath(source)
        if _exists(location):
            return cls(location)
        source_fields = re.split(rf",(?=(?:{'|'.join(_OPTIONS)})=)", location)
        options = dict(option_text.split("=", 1) for option_text in source_fields[1:])
        location, config = source_fields[0], None
        behind = [location] if not _exists(location) else []
        for text in (*behind, *options.values()):
            if unknown_option := _UNKNOWN_OPTION.search(text):
                raise InputError(
                    f"{source}: expected split=, text= or audio= behind a corpus, found "
                    f"{unknown_option[1]!r}"
                )
        if not _exists(location):
            start, colon, suffix = location.rpartition(":")
            if colon and suffix and (_exists(start) or _HUB_ID.fullmatch(start)):
                location, config = start, suffix
        return cls(location, config, **options)

    @property
    def path(self) -> Path:
        """The location as a path."""
        return Path(self.location)

    @property
    def is_hub_id(self) -> bool:
        """Whether it can only be an id of the hub: "owner/name", and no such file."""
        path = self.path
        return (
            not _exists(self.location)
            and bool(_HUB_ID.fullmatch(self.location))
            and path.suffix not in _FILE_SUFFIXES
        )

    def refuse_options(self, *options: str, kind: str) -> None:
        """Raise InputError for options that this kind of corpus ("a table") does not have.

        Options are names of attributes that must be None: ignored, they would give other rows.

        Examples
        --------
        >>> CorpusSource("clips.tsv", split="test").refuse_options("split", kind="a table")
        Traceback (most recent call last):
        speechmix.errors.InputError: clips.tsv is a table, which has no split: leave 'test' out, or
        name the files meant
        """
        for option in options:
            if (value := getattr(self, option)) is not None:
                raise InputError(
                    f"{self.location} is {kind}, which has no {option}: leave {value!r} out, or "
                    "name the files meant"
                )

    def with_split(self, split: str | None) -> CorpusSource:
        """Return the source with a split given elsewhere; InputError if the source names another."""
        if split is None or split == self.split:
            return self
        if self.split is not None:
            raise InputError(
                f"{self.location}: expected one split, found {self.split!r} and {split!r}"
            )
        return replace(self, split=split)


_FILE_SUFFIXES = (".tsv", ".csv", ".jsonl", ".tar", ".parquet")


def _exists(path: str) -> bool:
    try:
        return os.path.exists(path)
    except ValueError:  # a null byte
        return False
