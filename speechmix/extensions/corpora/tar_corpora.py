"""Members of a tar, by its headers alone: what each is called, where its bytes are, and how many.

In: an uncompressed tar. Out: `Member`s in its order; their content is skipped, and read only if it
is needed.

WebDataset: recordings and their texts in tars, read where they lie.

In: a tar, a folder of tars, or a pattern (`shard-{000000..000010}.tar`), with members `key.flac`
(wav, mp3, ogg, opus) and `key.json` or `key.txt`. Out: `Row`s whose recording is a place in its
tar; only headers and texts are read. How members are put together under one key is the library's
own rule (`webdataset`, extra of the same name), but for names with several dots. A JSON member may
say what a row of a manifest may: text, words, cue, target, foil, language, name; what else it says
is kept.

Lhotse Shar: cuts in JSON lines, their recordings in tars beside them, read where they lie.

In: a folder with `cuts.000000.jsonl.gz`, `recording.000000.tar`, ..., as `CutSet.to_shar` writes
it. Out: `Row`s whose recording is a place in its tar, with text, language, speaker and, where there
is an alignment of words, word times. Cuts are read by Lhotse itself (extra `lhotse`). Of cuts of
one id the first has the first recording of that id, and so on.
"""

from __future__ import annotations

import json
import os
import re
import tarfile
import zlib
from collections import defaultdict, deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from ...errors import InputError, MissingExtraError
from ...files.json_files import JsonObject
from ...files.text_files import bounded_lines
from ...files.user_tables import MAX_CELL_CHARACTERS, Cells, RowError
from ...inputs.audio.decoding import ByteRange, open_bytes, open_unbuffered
from ...inputs.clips.corpus_row import Origin, RejectedRow, Row, row_name
from ...inputs.clips.manifests import TEXT_COLUMNS, row_from_cells
from ...inputs.corpora.corpus_source import CorpusSource
from .columns import find_text_column

# A tar begins with the name of its first member: so much of each that no name is taken for it.
_DECOMPRESSION_COMMANDS = {
    re.compile(rb"\x1f\x8b\x08"): "gunzip",
    re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"): "bunzip2",
    re.compile(rb"\xfd7zXZ\0"): "unxz",
    re.compile(rb"\x28\xb5\x2f\xfd"): "unzstd",
}
_MAX_SIGNATURE_BYTES = 10


class TruncatedTarError(InputError):
    """A tar that ends before it should; the members before were whole."""


class Member(NamedTuple):
    """A file in a tar, and where its bytes are."""

    name: str
    byte_range: ByteRange

    def read_content(self) -> bytes:
        """Read a small member; RowError if it is longer than a line of a table may be, or
        unreadable."""
        if self.byte_range.size > MAX_CELL_CHARACTERS:
            raise RowError(
                "too long",
                f"{self.name}: expected at most {MAX_CELL_CHARACTERS:,} bytes of text, found more",
            )
        try:
            with open_bytes(str(self.byte_range)) as file:
                return file.read()
        except (OSError, InputError) as error:
            raise RowError(
                "unreadable row", f"cannot read {self.name} of {self.byte_range.file} ({error})"
            ) from error


def read_members(tar: Path) -> Iterator[Member]:
    """Yield the files in a tar, in its order.

    InputError if it cannot be read, is no tar, or is compressed; TruncatedTarError behind the last
    whole member, if it was cut off.

    Examples
    --------
    >>> for member in read_members(Path("shard-000000.tar")):        # doctest: +SKIP
    ...     print(member.name, member.byte_range)
    """
    try:
        with open_unbuffered(tar) as file:
            tar_bytes = file.seek(0, os.SEEK_END)
            file.seek(0)
            _refuse_compressed(tar, file.read(_MAX_SIGNATURE_BYTES))
            file.seek(0)
            if not tar_bytes:
                raise TruncatedTarError(f"{tar}: expected a tar, found 0 bytes: fetch it again")
            with tarfile.open(fileobj=file, mode="r:") as archive:
                yield from _read_complete_members(tar, archive, tar_bytes)
                file.seek(archive.offset)
                if file.read(tarfile.BLOCKSIZE) != bytes(
                    tarfile.BLOCKSIZE
                ):  # a whole one ends in blocks of zeros
                    raise TruncatedTarError(
                        f"{tar}: it is damaged or was cut off behind {archive.offset:,} bytes: "
                        "fetch it again"
                    )
    except (tarfile.TarError, OSError, OverflowError) as error:
        raise InputError(
            f"{tar}: expected a tar, found something else ({error}): fetch it again"
        ) from error


def _read_complete_members(tar: Path, archive: tarfile.TarFile, tar_bytes: int) -> Iterator[Member]:
    """Members whose bytes are all there."""
    while True:
        try:
            entry = archive.next()
        except (tarfile.ReadError, ValueError) as error:  # of a number in a header too
            raise TruncatedTarError(f"{tar}: it was cut off ({error}): fetch it again") from error
        if entry is None:
            return
        vars(archive).update(members=[])  # else a list of all of them grows
        if entry.size < 0:  # it would lead back, and round for ever
            raise TruncatedTarError(
                f"{tar}: the header of {entry.name[:200]!r} is damaged: fetch it again"
            )
        if entry.isreg() and not entry.issparse():
            if entry.offset_data + entry.size > tar_bytes:
                raise TruncatedTarError(
                    f"{tar}: it was cut off in {entry.name[:200]!r}: fetch it again"
                )
            yield Member(
                _decode_member_name(entry.name), ByteRange(str(tar), entry.offset_data, entry.size)
            )


def _decode_member_name(name: str) -> str:
    """A member's name as text; one that is no UTF-8, as older tools write it, as Latin-1, which any
    bytes are."""
    try:
        name.encode("utf-8")
        return name
    except UnicodeEncodeError:
        return name.encode("utf-8", "surrogateescape").decode("latin-1")


def _refuse_compressed(tar: Path, first_bytes: bytes) -> None:
    command = next(
        (
            command
            for signature, command in _DECOMPRESSION_COMMANDS.items()
            if signature.match(first_bytes)
        ),
        None,
    )
    if command is not None:
        raise InputError(
            f"{tar} is compressed as a whole, so that no recording in it can be read by itself: "
            f"`{command}` it first "
            "(the recordings in it are compressed anyway)"
        )


_TAR_SUFFIXES = (".tar", ".tar.gz", ".tgz")
AUDIO_SUFFIXES = ("wav", "flac", "mp3", "ogg", "opus")
_TEXT_SUFFIXES = ("json", "txt", "cls")
_PURPOSE = "reading tars of WebDataset"


def is_tar_pattern(source: CorpusSource) -> bool:
    """True for a pattern with braces that names tars."""
    return (
        "{" in source.location
        and source.location.endswith(_TAR_SUFFIXES)
        and not source.path.exists()
    )


def list_tars(source: CorpusSource) -> list[Path]:
    """Return the tars that a source names, in order; none if it is no set of tars.

    InputError if a pattern names a tar that is not there.
    """
    path = source.path
    if path.is_dir():
        return sorted(tar for ending in _TAR_SUFFIXES for tar in path.glob(f"*{ending}"))
    if not is_tar_pattern(source):
        return [path] if path.is_file() and path.name.endswith(_TAR_SUFFIXES) else []
    try:
        from webdataset.shardlists import expand_urls
    except ImportError as error:
        raise MissingExtraError("webdataset", "webdataset", _PURPOSE) from error

    tars = [Path(tar) for tar in expand_urls(source.location)]
    missing = [str(tar) for tar in tars if not tar.is_file()]
    if missing:
        raise InputError(
            f"{source.location}: no such tar: {', '.join(missing[:5])} ({len(missing)} of "
            f"{len(tars)})"
        )
    return tars


def read_tars(
    source: CorpusSource, *, sentences: bool = True, allow_outside: bool = False
) -> Iterator[Row | RejectedRow]:
    """Read the rows of tars, one tar after the other.

    `text` and `audio` of the source name endings of members, or an entry of their JSON. `sentences`
    rejects rows without a sentence; `allow_outside` lets a JSON member name a word file outside the
    tar's folder. A tar that is empty, damaged or cut off is one rejected row, behind those that
    could be read. InputError if a tar is compressed or none, or the source names a split;
    MissingExtraError if webdataset is not installed.
    """
    try:
        from webdataset.tariterators import group_by_keys
    except ImportError as error:
        raise MissingExtraError("webdataset", "webdataset", _PURPOSE) from error

    source.refuse_options("config", "split", kind="a set of tars")
    sample_count = 0
    for tar in list_tars(source):
        problems: list[RejectedRow] = []
        first_count = sample_count
        files = _read_files(tar, problems)
        samples = group_by_keys(
            files, handler=lambda error, tar=tar, p=problems: _note_duplicate_member(tar, error, p)
        )
        for key, members in (pair for sample in samples for pair in _split_keys(sample, source)):
            sample_count += 1
            origin = Origin(sample_count, path=f"{tar.name}/{key}")
            try:
                yield _make_row(key, members, source, tar, origin, sentences, allow_outside)
            except InputError as error:
                reason_kind = getattr(error, "reason_kind", "unreadable row")
                reason = f"{tar}, key {key[:200]!r}: {error}"
                yield RejectedRow(row_name(f"{key}.wav", sample_count), reason_kind, reason, origin)
        if first_count == sample_count and not problems:
            problems.append(
                RejectedRow(
                    row_name(tar.name, sample_count),
                    "empty tar",
                    f"{tar}: expected recordings, found none",
                )
            )
        yield from problems


def _read_files(tar: Path, problems: list[RejectedRow]) -> Iterator[dict[str, object]]:
    """Members in the form that the library groups; a place stands for what they hold."""
    try:
        for member in read_members(tar):
            if not (
                member.name.startswith("__") and member.name.endswith("__")
            ):  # the library's own notes
                yield {"fname": member.name, "data": member, "__url__": str(tar)}
    except TruncatedTarError as error:
        problems.append(RejectedRow(row_name(tar.name, 0), "truncated tar", str(error)))


def _note_duplicate_member(tar: Path, error: Exception, problems: list[RejectedRow]) -> bool:
    """Note a member of which there are two: the first one counts."""
    problems.append(
        RejectedRow(row_name(tar.name, 0), "doubled member", f"{tar}: {error.args[0]}"[:400])
    )
    return True


def _split_keys(
    sample: JsonObject, source: CorpusSource
) -> Iterator[tuple[str, dict[str, Member]]]:
    """Keys of a sample, and their members by ending.

    The library ends a key at its first dot, so that `a_2.0.flac` and `a_2.1.flac` are one sample.
    Dots belong to keys where no member is called `a_2.ENDING`, or each recording has a text of the
    same name; else they belong to endings (`a.left.flac`, `a.right.flac` and `a.json`).
    """
    members = {ending: member for ending, member in sample.items() if isinstance(member, Member)}
    by_stem: defaultdict[str, dict[str, Member]] = defaultdict(dict)
    for ending, member in members.items():
        stem, _, suffix = ending.rpartition(".")
        by_stem[stem][suffix] = member
    audio_suffixes = {source.audio} if source.audio else set(AUDIO_SUFFIXES)
    text_suffixes = {*_TEXT_SUFFIXES, source.text}
    recordings = {stem for stem, group in by_stem.items() if audio_suffixes & group.keys()}
    texts = {stem for stem, group in by_stem.items() if text_suffixes & group.keys()}
    if source.audio in members or recordings <= {""} or ("" in by_stem and not recordings <= texts):
        yield sample["__key__"], members
        return
    for stem, group in by_stem.items():
        if stem in recordings | texts:
            yield f"{sample['__key__']}.{stem}" if stem else sample["__key__"], group


def _make_row(
    key: str,
    members: dict[str, Member],
    source: CorpusSource,
    tar: Path,
    origin: Origin,
    sentences: bool,
    allow_outside: bool,
) -> Row:
    cells = _read_cells(members)
    recording = _find_recording(members, source).byte_range
    text = _find_text(members, cells, source)
    if text is not None:
        cells["text"] = text
    name = cells.get("name")
    clip_name = row_name(f"{key}.wav", origin.row, name=name if isinstance(name, str) else "")
    return row_from_cells(
        clip_name,
        cells,
        tar.parent,
        origin=origin,
        sentences=sentences,
        allow_outside=allow_outside,
        recording=recording,
        utterance=key.rpartition("/")[2],
    )


def _read_cells(members: dict[str, Member]) -> Cells:
    """What the JSON member says, and the label of a `.cls`."""
    cells: Cells = {}
    if "json" in members:
        try:
            stored = json.loads(members["json"].read_content())
        except (ValueError, RecursionError) as error:
            raise RowError(
                "unreadable row", f"{members['json'].name}: not valid JSON ({error})"[:400]
            ) from error
        if not isinstance(stored, dict):
            raise RowError(
                "unreadable row",
                f"{members['json'].name}: expected a JSON object, found {type(stored).__name__}",
            )
        cells = {name: cell for name, cell in stored.items() if cell is not None and cell != ""}
        try:
            json.dumps(cells, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError as error:  # "\ud800" is legal JSON and no text
            raise RowError("invalid UTF-8", f"{members['json'].name}: {error}"[:400]) from error
    if "cls" in members and "cls" not in cells:
        cells["cls"] = _decode_text(members["cls"])
    return cells


def _find_recording(members: dict[str, Member], source: CorpusSource) -> Member:
    audio_suffixes = (
        [source.audio]
        if source.audio
        else [ending for ending in members if ending.rpartition(".")[2] in AUDIO_SUFFIXES]
    )
    recordings = [members[ending] for ending in audio_suffixes if ending in members]
    if len(recordings) == 1:
        return recordings[0]
    expected = source.audio or " or ".join(AUDIO_SUFFIXES)
    if recordings:
        raise RowError(
            "several recordings",
            f"expected one member .{expected}, found {', '.join(audio_suffixes)}: say ,audio=ENDING",
        )
    raise RowError(
        "missing clip",
        f"expected a member .{expected}, found {', '.join(members) or 'none'}: members of one key "
        "must stand side by side "
        "in the tar (tar --sort=name)",
    )


def _find_text(members: dict[str, Member], cells: Cells, source: CorpusSource) -> str | None:
    """The sentence: as the source says, and then nothing else; or the `.txt`, or what the JSON
    calls so, taken out of it."""
    member = source.text or "txt"
    if member in members:
        return _decode_text(members[member])
    entry = source.text or find_text_column(cells) or ""
    text = cells.pop(entry, None)
    if text is not None and not isinstance(text, str):
        raise RowError("unreadable row", f"expected {entry} to be a string, found {text!r}"[:400])
    if source.text:
        for column in TEXT_COLUMNS:
            cells.pop(column, None)
    return text


def _decode_text(member: Member) -> str:
    try:
        return member.read_content().decode("utf-8-sig").strip()
    except UnicodeDecodeError as error:
        raise RowError(
            "invalid UTF-8", f"{member.name}: expected UTF-8 text ({error})"[:400]
        ) from error


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
