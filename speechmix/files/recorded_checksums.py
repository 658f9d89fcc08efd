"""Digests of the tables and descriptions in a run's folder, recorded when a file is written and
compared when it is read.

In: a file that lies in a folder with ``results/.digests``. Out: ``results/.digests/<name>.json``,
the digests that the file may have. The digest of a new file is recorded before the file takes its
name, beside that of the file which is there, so that a process that dies in between leaves a file
that can be read. Folders without ``results/.digests`` (all but those of runs) have no digests, and
their files are read as they are.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from contextlib import suppress
from pathlib import Path

from ..errors import InputError
from .cache_keys import file_digest
from .locks import hold_lock
from .unfinished_files import unfinished_name

DIGESTS = Path("results", ".digests")
_ENDINGS = (".json", ".csv", ".parquet")  # of files that are read again; figures and pages are not
_DIGEST = re.compile(r"[0-9a-f]{32}")
_WRITER_SECONDS = 60.0


def record_digests_in(folder: Path) -> None:
    """Have the digests of all files recorded that are written into a folder from now on."""
    (folder / DIGESTS).mkdir(parents=True, exist_ok=True)


def replace_recorded(unfinished: Path, path: Path) -> None:
    """Let a finished file take its name, with its digest where the folder records them."""
    record = _record_path(path)
    if record is None:
        os.replace(unfinished, path)
        return
    with hold_lock(record.parent, wait=_WRITER_SECONDS):
        digest = file_digest(unfinished)
        former = (
            _read_record(record)
            if record.is_file()
            else [file_digest(path)]
            if path.is_file()
            else []
        )
        _write_record(record, [*former, digest])
        os.replace(unfinished, path)
        _write_record(record, [digest])


def remove_recorded(path: Path) -> None:
    """Remove a file and its digest."""
    path.unlink(missing_ok=True)
    if (record := _record_path(path)) is not None:
        record.unlink(missing_ok=True)


def check_recorded(path: Path, content: bytes | None = None) -> None:
    """Compare a file with its recorded digest, if there is one; InputError if they differ.

    `content` is its bytes, where they are in memory already.
    """
    record = _record_path(path)
    if record is None or not record.is_file() or not (content is not None or path.is_file()):
        return
    digest = (
        file_digest(path)
        if content is None
        else hashlib.blake2b(content, digest_size=16).hexdigest()
    )
    # A second look: another process may have written the file between the two reads.
    if digest in _read_record(record) or file_digest(path) in _read_record(record):
        if content is None or digest in _read_record(record):
            return
        raise InputError(f"{path} was written again while it was read: read it again")
    raise InputError(
        f"{path} is damaged: its bytes are not those that speechmix wrote. Score the clips again "
        "into this folder; if you "
        f"changed the file yourself, delete {record} and it is read as it is"
    )


def _record_path(path: Path) -> Path | None:
    """Where the digest of a file is recorded; None if that of no such file is."""
    folder = path.parent / DIGESTS
    return folder / f"{path.name}.json" if path.suffix in _ENDINGS and folder.is_dir() else None


def _read_record(record: Path) -> list[str]:
    """Digests that a file may have; none if the record itself is damaged."""
    with suppress(OSError, ValueError, RecursionError):
        digests = json.loads(record.read_bytes())
        if isinstance(digests, list) and all(
            isinstance(digest, str) and _DIGEST.fullmatch(digest) for digest in digests
        ):
            return digests
    return []


def _write_record(record: Path, digests: list[str]) -> None:
    """Write a record; for one who holds the folder's lock: a killed writer's file is written
    over by the next one."""
    unfinished = unfinished_name(record, one_writer=True)
    unfinished.write_text(json.dumps(digests), encoding="ascii")
    os.replace(unfinished, record)
