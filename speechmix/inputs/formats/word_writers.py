"""Write the words of a clip with their times: table, JSON, TextGrid, ELAN document, subtitles.

In: a clip with word times. Out: a file of the kind that its ending says. `read_words` reads all but
the subtitles again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import InputError
from ...files.text_files import write_csv
from ...files.whole_files import whole_file, write_json, write_text
from ..words.timed_words import Word
from .elan import write_elan
from .subtitles import format_srt, format_vtt
from .textgrid import write_tiers
from .word_files import file_tier_names

if TYPE_CHECKING:
    import pandas as pd

    from ..clips.clip import Clip


def write_words(path: str | PathLike[str], clip: Clip) -> None:
    """Write the words of a clip with their times; an existing file is replaced.

    Parameters
    ----------
    path : path
        Ends in .csv, .tsv, .json, .TextGrid, .eaf, .srt or .vtt.
    clip : Clip
        With word times, as `speechmix.align` returns it. Its phones and syllables are written into a
        TextGrid, an ELAN document and JSON.

    Raises
    ------
    InputError
        For another ending, and a clip without word times.

    Examples
    --------
    >>> from speechmix.inputs import bundled
    >>> write_words("left_00_pl.srt", bundled.clips()[1])
    """
    path = Path(path)
    writer = _WRITERS.get(path.suffix.lower())
    if writer is None:
        raise InputError(
            f"{path}: expected a file that ends in {', '.join(_WRITERS)}, found {path.suffix!r}"
        )
    if not clip.words:
        raise InputError(f"clip {clip.name!r} has no word times: align it first")
    writer(path, clip)


def word_table(words: Sequence[Word]) -> pd.DataFrame:
    """Return a row for each word: word, start, end in seconds, score (empty where there is none)."""
    import pandas as pd

    columns: Mapping[str, list[object]] = {
        "word": [word.text for word in words],
        "start": [round(word.start, 3) for word in words],
        "end": [round(word.end, 3) for word in words],
        "score": [word.score if word.score is None else round(word.score, 3) for word in words],
    }
    return pd.DataFrame(columns)


def _tiers(clip: Clip) -> dict[str, Sequence[Word]]:
    return file_tier_names(clip.spoken_words, clip.tiers)


def _write_json(path: Path, clip: Clip) -> None:
    table = word_table(clip.spoken_words).to_dict("records")
    tiers = {unit: [phone.to_list() for phone in units] for unit, units in clip.tiers.items()}
    write_json(path, {"text": clip.text, "words": table} | ({"tiers": tiers} if clip.tiers else {}))


def _write_tsv(path: Path, clip: Clip) -> None:
    write_text(path, word_table(clip.spoken_words).to_csv(sep="\t", index=False))


def _write_textgrid(path: Path, clip: Clip) -> None:
    with whole_file(path) as unfinished:
        write_tiers(unfinished, _tiers(clip), clip.duration)


def _write_elan(path: Path, clip: Clip) -> None:
    with whole_file(path) as unfinished:
        write_elan(unfinished, _tiers(clip), clip.duration, audio=clip.path)


def _write_subtitles(path: Path, clip: Clip) -> None:
    form = format_srt if path.suffix.lower() == ".srt" else format_vtt
    write_text(path, form(clip.spoken_words, [word.text for word in clip.spoken_words]))


_WRITERS: dict[str, Callable[[Path, Clip], None]] = {
    ".csv": lambda path, clip: write_csv(word_table(clip.spoken_words), path),
    ".tsv": _write_tsv,
    ".json": _write_json,
    ".textgrid": _write_textgrid,
    ".eaf": _write_elan,
    ".srt": _write_subtitles,
    ".vtt": _write_subtitles,
}
