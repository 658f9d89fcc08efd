"""Lhotse Shar: cuts in JSON lines, their recordings in tars beside them, read where they lie.

In: a folder with `cuts.000000.jsonl.gz`, `recording.000000.tar`, ..., as `CutSet.to_shar` writes
it. Out: `Row`s whose recording is a place in its tar, with text, language, speaker and, where there
is an alignment of words, word times. Cuts are read by Lhotse itself (extra `lhotse`). Of cuts of
one id the first has the first recording of that id, and so on.
"""

from __future__ import annotations

import json
import zlib
from collections import defaultdict, deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

from ...errors import InputError, MissingExtraError
from ...files.bounded_reads import bounded_lines
from ...files.user_tables import Cells, RowError
from ..audio.byte_ranges import ByteRange
from ..clips.corpus_row import Origin, RejectedRow, Row, row_name
from ..clips.manifest_rows import row_from_cells
from .tar_members import TruncatedTarError, read_members

# Of Lhotse, which is not imported for their types.
Cut: TypeAlias = Any
Supervision: TypeAlias = Any

RecordingLocations = dict[
    str, deque[ByteRange | None]
]  # recordings by the id of their cut, in the tar's order; None where a cut has none

_NO_RECORDING_SUFFIX = ".nodata"
_METADATA_SUFFIXES = (".nometa", ".json")


def is_shar(folder: Path) -> bool:
    """True for a folder that holds cuts."""
    return bool(_list_cut_files(folder))


def _list_cut_files(folder: Path) -> list[Path]:
    shards = sorted([*folder.glob("cuts.*.jsonl.gz"), *folder.glob("cuts.*.jsonl")])
    single_file = (
        folder / "cuts.jsonl.gz"
    )  # with shard_size=None; without its tar it is a list of cuts whose sound lies elsewhere
    return shards or (
        [single_file] if single_file.is_file() and _recording_tar(single_file).is_file() else []
    )


def _recording_tar(cuts: Path, field: str = "recording") -> Path:
    """The tar of the recordings of a file of cuts."""
    return cuts.with_name(f"{field}{cuts.name.removeprefix('cuts').partition('.jsonl')[0]}.tar")


def read_shar(
    folder: Path,
    *,
    sentences: bool = True,
    audio: str | None = None,
    text: str | None = None,
) -> Iterator[Row | RejectedRow]:
    """Read the rows of a folder of Shar, one shard after the other.

    `sentences` rejects cuts without a sentence. `audio` is the field whose tars hold the recordings
    (by default "recording"), `text` a custom entry of supervisions in place of their text. Cuts
    without recording or text are rejected, and so is a damaged shard, behind the cuts that could be
    read. InputError if there are cuts without a tar of their recordings; MissingExtraError if
    lhotse is not installed.
    """
    try:
        from lhotse.serialization import deserialize_item
    except ImportError as error:
        raise MissingExtraError("lhotse", "lhotse", "reading Lhotse Shar") from error

    shards = _list_cut_files(folder)
    tars = [_recording_tar(shard, audio or "recording") for shard in shards]
    missing_tars = [tar.name for tar in tars if not tar.is_file()]
    if missing_tars:
        raise InputError(
            f"{folder}: expected a tar of recordings beside each file of cuts, found none called "
            f"{', '.join(missing_tars[:5])}: "
            f"write the set with fields={{{audio or 'recording'!r}: 'flac'}}"
        )
    cut_number = 0
    for shard, tar in zip(shards, tars, strict=True):
        problems: list[RejectedRow] = []
        locations = _locate_recordings(tar, problems)
        cuts = (deserialize_item(json.loads(line)) for line in bounded_lines(shard) if line.strip())
        while (cut := _next_cut(cuts, shard, problems)) is not None:
            cut_number += 1
            origin = Origin(cut_number, path=f"{shard.name}/{cut.id}")
            clip_name = row_name(f"{cut.id}.wav", cut_number)
            try:
                recording, cells = _next_recording(cut, locations), _cells_from_cut(cut, text)
                yield row_from_cells(
                    clip_name,
                    cells,
                    folder,
                    origin=origin,
                    sentences=sentences,
                    recording=recording,
                )
            except InputError as error:
                reason_kind = getattr(error, "reason_kind", "unreadable row")
                yield RejectedRow(
                    clip_name, reason_kind, f"{shard}, cut {str(cut.id)[:200]!r}: {error}", origin
                )
        yield from problems


def _locate_recordings(tar: Path, problems: list[RejectedRow]) -> RecordingLocations:
    """Where the recordings of a shard are."""
    locations: RecordingLocations = defaultdict(deque)
    try:
        for member in read_members(tar):
            stem, dot, suffix = member.name.rpartition(".")
            if f"{dot}{suffix}" not in _METADATA_SUFFIXES:
                locations[stem].append(
                    None if f"{dot}{suffix}" == _NO_RECORDING_SUFFIX else member.byte_range
                )
    except TruncatedTarError as error:
        problems.append(RejectedRow(row_name(tar.name, 0), "truncated tar", str(error)))
    return locations


def _next_cut(cuts: Iterator[Cut], shard: Path, problems: list[RejectedRow]) -> Cut | None:
    """Return the next cut; None behind the last, or if the file is damaged, which is noted."""
    try:
        return next(cuts, None)
    # What Lhotse and gzip raise on a damaged file depends on where the damage is.
    except (
        OSError,
        EOFError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        AssertionError,
        RecursionError,
        zlib.error,
    ) as error:
        reason = (
            f"{shard}: a cut cannot be read ({type(error).__name__}: {str(error)[:200]}): "
            "fetch it again"
        )
        problems.append(RejectedRow(row_name(shard.name, 0), "unreadable row", reason))
        return None


def _next_recording(cut: Cut, locations: RecordingLocations) -> ByteRange:
    """Where the next recording of a cut's id is."""
    queue = locations.get(str(cut.id))
    location = queue.popleft() if queue else None
    if location is None:
        raise RowError("missing clip", "expected a recording of this cut in the tar, found none")
    return location


def _cells_from_cut(cut: Cut, text_entry: str | None) -> Cells:
    """Return the cells of a manifest for a cut.

    RowError where the cut has them in another form: Lhotse checks no types.
    """
    try:
        return _cells_from_supervisions(
            sorted(cut.supervisions, key=lambda supervision: supervision.start), text_entry
        )
    except (AttributeError, TypeError, ValueError) as error:
        reason = (
            f"expected supervisions with text, times and words, found what cannot be read ({error})"
        )
        raise RowError("unreadable row", reason[:400]) from error


def _cells_from_supervisions(supervisions: list[Supervision], text_entry: str | None) -> Cells:
    cells: Cells = {}
    for supervision in supervisions:
        custom = supervision.custom or {}
        cells |= {
            name: value for name, value in custom.items() if isinstance(value, (str, int, float))
        }
    cells.pop("words", None)  # of a manifest it is the path of a file
    texts = [
        supervision.text if text_entry is None else (supervision.custom or {}).get(text_entry)
        for supervision in supervisions
    ]
    cells.pop(text_entry or "text", None)
    text = " ".join(text.strip() for text in texts if text)
    for name in ("language", "speaker", "gender"):
        values = {value for supervision in supervisions if (value := getattr(supervision, name))}
        if len(values) == 1:
            cells[name] = values.pop()
    words = [
        item
        for supervision in supervisions
        for item in (supervision.alignment or {}).get("word", ())
    ]
    if words:
        cells["words"] = [
            [item.symbol, item.start, item.start + item.duration]
            for item in words
            if item.symbol.strip()
        ]
    return {**cells, **({"text": text} if text else {})}
