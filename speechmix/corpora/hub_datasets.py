"""Data sets of Hugging Face `datasets`, row by row: a folder written by save_to_disk, or a hub id.

In: a folder or id. Out: `Row`s that carry the encoded audio; nothing is decoded (`Audio(decode=False)`), soundfile does
that later. The paper's annotated set (hosein-m/french_homophone_asr, Mohebbi et al. 2023) is recognised by its columns
and used as it is: its words with times, its cue and its target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..files.table_files import RowError
from ..inputs.rows import Rejected, Row, checked_sentence, located_audio, row_name
from ..inputs.spans import Word
from ..inputs.words import comparable

TEXTS = ("sentence", "text", "transcription", "transcript", "normalized_text")
# What the published determiners say of their noun, in the form in which words are compared (l, not l').
_NUMBERS = {**dict.fromkeys(("le", "la", "l", "un", "une"), "s"), **dict.fromkeys(("les", "des"), "p")}
_PAPER = ("transcription", "cue_word", "target_word", "alignment")
_BATCH = 500  # rows whose paths are looked at together


def is_dataset_folder(path: Path) -> bool:
    """True for what `Dataset.save_to_disk` or `DatasetDict.save_to_disk` writes."""
    return (path / "dataset_dict.json").is_file() or (path / "state.json").is_file()


def read_dataset(source: str | PathLike, *, split: str | None = None) -> Iterator[Row | Rejected]:
    """Read the recordings of a data set.

    Parameters
    ----------
    source : folder or hub id
        From the hub it is streamed, not downloaded as a whole.
    split : str, optional
        Needed if there are several.

    Raises
    ------
    InputError
        If it cannot be loaded, the split is not certain, or it has no column of audio or text.
    """
    from datasets import Audio

    data = _load(source, split)
    columns = data.column_names or list(next(iter(data.take(1))))
    text = next((name for name in TEXTS if name in columns), None)
    if "audio" not in columns or text is None:
        raise InputError(f"{source}: expected the columns audio and one of {', '.join(TEXTS)}, found {columns}")
    data = data.cast_column("audio", Audio(decode=False))
    root = Path(source) if Path(source).is_dir() else Path()
    for number, (cells, path, read_audio) in enumerate(_unheard(data)):
        path = str(path or cells.get("path") or "")
        name = row_name(path, number)
        try:
            yield _row(name, cells, text, root, path, read_audio)
        except RowError as error:
            yield Rejected(name, error.why, str(error))


def _unheard(data: Any) -> Iterator[tuple[dict[str, Any], str | None, Callable[[], bytes] | None]]:
    """Cells of each row, the path of its audio, and what reads the audio that the row itself holds, if it does.

    Of a folder the recordings are not touched before they are asked for; a stream from the hub brings them along.
    """
    if not hasattr(data, "__getitem__"):
        for cells in data:
            audio = cells["audio"] or {}
            content = audio.get("bytes")
            yield cells, audio.get("path"), None if content is None else partial(bytes, content)
        return
    others = iter(data.remove_columns("audio"))
    audio_column = data.select_columns("audio").with_format("arrow")
    number = 0
    for start in range(0, len(data), _BATCH):
        for chunk in audio_column[start : start + _BATCH][
            "audio"
        ].chunks:  # not combined, which would copy the recordings
            paths, held = chunk.field("path").to_pylist(), chunk.field("bytes").is_valid().to_pylist()
            for path, holds in zip(paths, held, strict=True):
                yield next(others), path, partial(_audio_at, data, number) if holds else None
                number += 1


def _audio_at(data: Any, number: int) -> bytes:
    return data[number]["audio"]["bytes"]


def _load(source: str | PathLike, split: str | None) -> Any:
    import datasets

    try:
        data = (
            datasets.load_from_disk(source) if Path(source).is_dir() else datasets.load_dataset(source, streaming=True)
        )
    # Not there, a script that is no longer run; what datasets raises on damaged files depends on where the damage is.
    except (OSError, ValueError, RuntimeError, KeyError, TypeError, AttributeError, IndexError) as error:
        why = f"{type(error).__name__}: {str(error)[:200]}"
        raise InputError(f"cannot load the data set {source} ({why}): give a folder or the id of one") from error
    if not isinstance(data, dict):
        return data
    if split is None and len(data) == 1:
        return next(iter(data.values()))
    if split not in data:
        raise InputError(
            f"{source}: expected one of the splits {', '.join(data)}, found {split!r}: name one with split="
        )
    return data[split]


def _row(
    name: str, cells: dict[str, Any], text: str, root: Path, path: str, read_audio: Callable[[], bytes] | None
) -> Row:
    sentence = checked_sentence(cells[text])
    if read_audio is None:
        root = Path(path).parent if Path(path).is_absolute() else root
        path = Path(path).name if Path(path).is_absolute() else path
        located_audio(root, path)
    meta = {k: str(v) for k, v in cells.items() if isinstance(v, (str, int, float)) and k not in ("path", text)}
    row = Row(name, sentence, root, path if read_audio is None else None, meta=meta, read_audio=read_audio)
    return _annotated(row, cells) if all(name in cells for name in _PAPER) else row


def _annotated(row: Row, cells: dict[str, Any]) -> Row:
    """Words, cue and target of the paper's annotated set; of determiner, noun and verb both readings."""
    intervals = (cells["alignment"] or {}).get("intervals") or []
    if isinstance(intervals, dict):  # a sequence of structures comes as a structure of lists
        intervals = [dict(zip(intervals, values, strict=True)) for values in zip(*intervals.values(), strict=True)]
    labels = ("word", "label", "text")
    words = tuple(
        Word(next(str(i[name]) for name in labels if name in i), float(i["start"]), float(i["end"])) for i in intervals
    )
    label = str(cells.get("label_number", "")).lower()
    number = "s" if "sing" in label else "p" if "plur" in label else None
    pairs: list[dict[str, Any]] = []
    for target, indices in (("target_word", "target_indices"), ("target_word_2", "target_indices_2")):
        if cells.get(target):
            places = _stored(cells, indices) or _nearest(words, cells["cue_word"], cells[target])
            if places is None:
                reason = (
                    f"the words {cells['cue_word']!r} and {cells[target]!r} are not, in this order, in its alignment"
                )
                raise RowError("pair not found", reason)
            cue_index, target_index = places
            pair = {"cue": cue_index, "target": target_index, "template": cells.get("template"), "number": number}
            if pairs:  # the verb: its cue is determiner and noun; the label is its number, not the noun's
                pair["cue"] = (cue_index, pairs[0]["target"])
                pairs[0]["number"] = _NUMBERS.get(comparable(cells["cue_word"]), number)
            pairs.append(pair)
    return replace(row, words=words, pairs=tuple(pairs))


def _stored(cells: dict[str, Any], indices: str) -> tuple[int, int] | None:
    """Return the indices into the alignment's words that the data set itself holds, if it does."""
    cue, target = ((cells.get(name) or {}).get("enc") or [] for name in ("cue_indices", indices))
    return (cue[0], target[0]) if len(cue) == len(target) == 1 else None


def _nearest(words: tuple[Word, ...], cue: str, target: str) -> tuple[int, int] | None:
    """Return the cue nearest before the last target, and the first target behind it: the published rule."""
    cues, targets = (
        [i for i, word in enumerate(words) if comparable(word.text) == comparable(text)] for text in (cue, target)
    )
    before = [i for i in cues if targets and i < targets[-1]]
    return (before[-1], next(i for i in targets if i > before[-1])) if before else None
