"""A manifest lists many clips: one row a clip, with its audio, text, words, cue and target.

In: a .tsv, .csv or .jsonl file. Out: a list of `Clip`s whose audio is read when it is needed (of a
clip with words, the header at once). Everything that would stop a long run later (missing files, a
cue that is no word, words past the end of the audio) is reported while the manifest is read.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from os import PathLike

from ...errors import InputError
from ..bundled import manifest_path
from ..corpora.corpus_source import CorpusSource
from .clip import Clip
from .corpus_row import Row
from .deduplication import number_duplicates
from .manifest_rows import read_manifest_rows

OnError = str | Callable[[int, str, InputError], None]


def read_clips(
    manifest: str | PathLike[str],
    *,
    tier: str | None = None,
    alphabet: str | None = None,
    allow_outside: bool = False,
    on_error: OnError = "raise",
) -> list[Clip]:
    """Clips of a manifest, in its order; the audio is read lazily.

    Columns: path (required), text, words, cue, target, foil, language, translation, name; others
    are kept in `Clip.meta`. Relative paths count from the manifest's folder. `words` is the path of
    a word file, with its phones and syllables if it has tiers of them, or in JSONL also a list of
    [text, start, end]; `tiers` is then ``{"phone": [[label, start, end], ...]}``.
    `cue` and `target` are a word ("les"), a word and which of its occurrences ("les:2"), or an
    index from 0 ("3", unless there is a word "3"); a cue of several words is "le club" or, in
    JSONL, a list. Of two clips of one name the second gets "-2" behind it, with a warning if the
    manifest itself names both so; names are one if files called so could be (capitals, forms of
    accents, "a b" and "a_b"). A release table of Common Voice is read too; `text` may be called
    sentence or transcription. Other columns of audio and text are named behind the manifest:
    "clips.jsonl,audio=audio_filepath,text=transcript".

    Parameters
    ----------
    manifest : path ending in .tsv, .csv or .jsonl, or "bundled:clips"
    tier : str, optional
        Which tier of the TextGrids holds the words.
    alphabet : {"ipa", "arpabet", "x-sampa", "praat"}, optional
        Of the phones. Default: the one that all labels of a tier fit.
    allow_outside : bool
        Let paths lead out of the manifest's folder (links followed). Off, because a manifest may
        come from others.
    on_error : "raise", "skip" or callable
        What to do with a row that cannot be used: stop; leave it out and warn once with the count
        and the first reasons; or leave it out and call ``on_error(row, name, error)``, with the row
        as an editor counts it (the header of a table is row 1) and the name or path of the clip as
        far as it is known.

    Raises
    ------
    InputError
        If the manifest cannot be read, has no path column or no rows; with "raise", for the first
        unusable row.
    """
    source = CorpusSource.parse(manifest_path(manifest))
    source.refuse_options("config", "split", kind="a manifest")
    manifest = source.path
    if not (callable(on_error) or on_error in ("raise", "skip")):
        raise InputError(
            'on_error must be "raise", "skip" or a function of row, name and error, found '
            f"{on_error!r}"
        )
    clips: list[Clip] = []
    skip_reasons: list[str] = []
    row_count = 0
    for row in number_duplicates(
        read_manifest_rows(
            manifest,
            tier=tier,
            alphabet=alphabet,
            allow_outside=allow_outside,
            audio=source.audio,
            text=source.text,
        ),
        where=str(manifest),
    ):
        row_count += 1
        try:
            if isinstance(row, Row):
                clips.append(clip_from_row(row))
                continue
            error = InputError(row.reason)
        except (
            InputError
        ) as row_error:  # the words do not fit the audio, or its header cannot be read
            error = InputError(f"{manifest}, row {row.origin.row}: {row_error}")
        if on_error == "raise":
            raise error
        skip_reasons.append(str(error))
        if callable(on_error):
            on_error(row.origin.row, row.origin.name or row.origin.path, error)
    if not row_count:
        raise InputError(f"{manifest}: expected at least one row with a clip, found none")
    if skip_reasons and on_error == "skip":
        reasons = "\n  ".join(skip_reasons[:5])
        warnings.warn(
            f"{manifest}: {len(skip_reasons)} of {row_count} rows left out:\n  {reasons}",
            stacklevel=2,
        )
    return clips


def clip_from_row(row: Row) -> Clip:
    """Return the clip of a row that has a file or a place in one; its audio is not read, but for
    the header if it has words."""
    meta = dict(row.meta)
    clip = Clip.from_file(
        row.root.resolve() / (row.path or ""),
        text=row.text or None,
        language=meta.pop("language", None),
        name=row.name,
        translation=meta.pop("translation", None),
        meta=meta,
        **row.requests,
    )
    if row.words is not None:
        clip = clip.replace(words=row.words, alignment=row.alignment)
    return clip.replace(tiers=row.tiers) if row.tiers else clip
