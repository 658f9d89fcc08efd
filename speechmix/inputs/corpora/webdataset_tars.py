"""WebDataset: recordings and their texts in tars, read where they lie.

In: a tar, a folder of tars, or a pattern (`shard-{000000..000010}.tar`), with members `key.flac`
(wav, mp3, ogg, opus) and `key.json` or `key.txt`. Out: `Row`s whose recording is a place in its
tar; only headers and texts are read. How members are put together under one key is the library's
own rule (`webdataset`, extra of the same name), but for names with several dots. A JSON member may
say what a row of a manifest may: text, words, cue, target, foil, language, name; what else it says
is kept.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from ...errors import InputError, MissingExtraError
from ...files.json_files import JsonObject
from ...files.user_tables import Cells, RowError
from ..clips.corpus_row import Origin, RejectedRow, Row, row_name
from ..clips.manifest_rows import TEXT_COLUMNS, row_from_cells
from .columns import find_text_column
from .corpus_source import CorpusSource
from .tar_members import Member, TruncatedTarError, read_members

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
