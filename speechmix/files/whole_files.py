"""Write files and folders atomically.

In: where a result belongs, and a function that writes it. Out: the finished file or folder. A
process that dies in the middle leaves the old one as it was, and beside it a leftover whose name
starts with ``.unfinished-``, which nobody reads. The next process that writes into that folder removes
it. No two processes ever write to one name (`one_writer` is the caller's word for it).

Names of unfinished files and folders, and how to remove those that dead processes left.

In: where a result belongs. Out: a name in the same folder that starts with ``.unfinished-``, to
write to and rename (`whole_files`). The name says which process of which machine has it, so that
what a dead one has left can be removed without a lock (`clear_dead_writers`).

Lock a folder, or part of it, for one writing process.

In: a folder that results are written to, and perhaps the part of it (a shard, "3-of-48") that is
one's own. While the block runs no other process (or thread) writes there; a second one gets an
error that names the first. Writers of different parts do not hinder each other. The operating
system lets go of the lock when its holder dies, however it dies, so a crash leaves nothing to clean
up; only a file system without locks needs a hand, and the message says how.

Digests of the tables and descriptions in a run's folder, recorded when a file is written and
compared when it is read.

In: a file that lies in a folder with ``results/.digests``. Out: ``results/.digests/<name>.json``,
the digests that the file may have. The digest of a new file is recorded before the file takes its
name, beside that of the file which is there, so that a process that dies in between leaves a file
that can be read. Folders without ``results/.digests`` (all but those of runs) have no digests, and
their files are read as they are.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from functools import lru_cache
from os import PathLike
from pathlib import Path

from ..errors import InputError, StorageError
from .cache_keys import file_digest

UNFINISHED = ".unfinished-"


def unfinished_name(path: Path, *, one_writer: bool = False) -> Path:
    """Return a name beside `path` that no other file or process has; short, whatever the length of
    `path`'s own name.

    With `one_writer` it is always the same for this path.
    """
    if one_writer:
        return path.with_name(f"{UNFINISHED}{hashlib.sha256(path.name.encode()).hexdigest()[:16]}")
    return path.with_name(f"{UNFINISHED}{_machine()}-{os.getpid()}-{secrets.token_hex(6)}")


def clear_leftovers(folder: str | PathLike[str], *, below: bool = True) -> None:
    """Remove what dead processes left in a folder (and those below it); only for one who holds the
    folder's lock."""
    find = Path(folder).rglob if below else Path(folder).glob
    for leftover in list(find(f"{UNFINISHED}*")):
        _remove(leftover)


@lru_cache(maxsize=1024)  # each folder once: a run writes 100,000 files into one
def clear_dead_writers(folder: Path) -> None:
    """Remove what processes of this machine that have died left in a folder; needs no lock."""
    prefix = f"{UNFINISHED}{_machine()}-"
    for leftover in list(folder.glob(f"{prefix}*-*")):
        process = leftover.name.removeprefix(prefix).partition("-")[0]
        if process.isdecimal() and not _is_alive(int(process)):
            _remove(leftover)


def _remove(leftover: Path) -> None:
    with suppress(OSError):
        shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()


def _is_alive(process: int) -> bool:
    """Whether a process of this machine is there, or may be."""
    if sys.platform == "win32":  # where the question would end the process
        return True
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # of another user
        return True
    return True


@lru_cache(maxsize=1)
def _machine() -> str:
    """A mark of the machine, or container, in which a process number means this process: others
    may write into the same folder over a network."""
    facts = [socket.gethostname()]
    with suppress(OSError):
        facts.append(Path("/etc/machine-id").read_text(encoding="utf-8"))
    with suppress(OSError):
        facts.append(str(Path("/proc/self/ns/pid").stat().st_ino))
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:8]


_HOLDER_ENDING = ".holder"
_POLL_SECONDS = 0.2  # that whoever asks `is_held` may keep another waiting
LOCK, HOLDER = ".lock", f".lock{_HOLDER_ENDING}"

_held: dict[
    tuple[Path, str], tuple[int, int]
] = {}  # folders and parts that are held, and by which process and thread


@contextmanager
def hold_lock(
    folder: str | PathLike[str], lock_name: str = "", *, wait: float = 0
) -> Iterator[None]:
    """Hold a folder, which is made if it is not there.

    A block within a block of the same thread may hold it again. With a `lock_name`, locks of other
    names and that of the whole folder do not exclude it. StorageError if another process or thread
    still holds it after `wait` seconds, or it cannot be written to.
    """
    import filelock

    folder = Path(folder).resolve()
    this_thread = (
        os.getpid(),
        threading.get_ident(),
    )  # the process too: a fork takes the dictionary along, not the lock
    if _held.get((folder, lock_name)) == this_thread:
        yield
        return
    lock_file, holder_file = _lock_files(folder, lock_name)
    what = f"{folder}{lock_name and f', {lock_name},'}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(lock_file, timeout=max(wait, _POLL_SECONDS), thread_local=False)
        lock.acquire()
    except filelock.Timeout:
        raise StorageError(
            f"{what} is being written to by {_read_holder(holder_file)}: wait for it, or choose another "
            "folder. If that process is "
            f"gone (some network file systems keep the locks of a dead one), delete {lock_file} "
            "and try again"
        ) from None
    except OSError as error:
        raise write_error(folder, error) from error
    _held[folder, lock_name] = this_thread
    try:
        with suppress(OSError):  # a full disk must not keep anyone from reading what is there
            holder_file.write_text(json.dumps(_holder_facts()), encoding="utf-8")
        yield
    finally:
        del _held[folder, lock_name]
        with suppress(OSError):
            holder_file.unlink(missing_ok=True)
        lock.release()


def is_held(folder: str | PathLike[str], lock_name: str = "") -> bool:
    """Whether some process (or thread) holds a folder, or a part of it, now; nothing is written."""
    lock_file, holder_file = _lock_files(Path(folder), lock_name)
    if sys.platform == "win32":
        return holder_file.is_file()  # also where a holder died
    import fcntl

    try:
        with lock_file.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # nobody ever held it, or the file system has no locks
        return False
    return False


@contextmanager
def hold_writing_lock(
    folder: str | PathLike[str], lock_name: str = "", *, wait: float = 0
) -> Iterator[None]:
    """Hold a folder, or a part of it.

    What the file system refuses (full, read-only, no folder) is a `StorageError` that says what is
    kept.
    """
    with hold_lock(folder, lock_name, wait=wait):
        try:
            yield
        except StorageError:
            raise
        except OSError as error:
            raise write_error(Path(folder), error) from error


@contextmanager
def remove_leftovers(folder: str | PathLike[str]) -> Iterator[None]:
    """Hold a folder that is there, if nobody else does, and remove what dead processes left in it;
    then do the block anyway.

    For writers of whole files that need no lock, such as the page of a run that is still being
    scored.
    """
    with ExitStack() as exit_stack:
        if Path(folder).is_dir():
            with suppress(StorageError):
                exit_stack.enter_context(hold_lock(folder))
                clear_leftovers(folder, below=False)
        yield


def _lock_files(folder: Path, lock_name: str) -> tuple[Path, Path]:
    """The lock of a folder, or of a part of it, and the file that names its holder."""
    lock = folder / f"{LOCK}{lock_name and f'-{lock_name}'}"
    return lock, lock.with_name(f"{lock.name}{_HOLDER_ENDING}")


def write_error(folder: Path, error: OSError) -> StorageError:
    """Return the error of a folder that cannot be written to."""
    what = error.strerror or str(error).strip().splitlines()[0]
    where = f" ({error.filename})" if error.filename else ""
    return StorageError(f"cannot write to {folder}: {what}{where}: {write_advice(error)}")


def write_advice(error: OSError) -> str:
    """Return what to do if a file or folder cannot be written."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return "free some space; what was finished is kept, and the same command goes on"
    return "choose another folder"


def _holder_facts() -> dict[str, str | int]:
    return {
        "process": os.getpid(),
        "host": socket.gethostname(),
        "since": f"{datetime.now():%Y-%m-%d %H:%M:%S}",
    }


def _read_holder(holder_file: Path) -> str:
    try:
        holder = json.loads(holder_file.read_text(encoding="utf-8"))
        return f"process {holder['process']} on {holder['host']} since {holder['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"


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


def has_digest(path: Path, digest: str) -> bool:
    """Whether this digest of a file is recorded; True where none is."""
    record = _record_path(path)
    return record is None or not record.is_file() or digest in _read_record(record)


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


@contextmanager
def whole_file(path: str | PathLike[str], *, one_writer: bool = False) -> Iterator[Path]:
    """Yield a name in the same folder to write to; it becomes `path` when the block ends without
    error.

    With `one_writer`, no other process writes this file, but others may write into the same folder,
    so that leftovers of dead processes cannot be removed there. The name is then always the same,
    and what a killed process has left is overwritten.
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        what = f"its folder {path.parent} cannot be made ({error.strerror})"
        raise OSError(error.errno, what, str(path)) from error
    clear_dead_writers(path.parent.absolute())
    unfinished = unfinished_name(path, one_writer=one_writer)
    try:
        with path_in_errors(path, unfinished):
            yield unfinished
            replace_recorded(unfinished, path)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise


@contextmanager
def delay_interrupts() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM, which the main thread handles, wait until the block ends."""
    is_main_thread = threading.current_thread() is threading.main_thread()
    handlers = {
        number: handler
        for number in (signal.SIGINT, signal.SIGTERM)
        if is_main_thread and (handler := signal.getsignal(number)) is not None
    }
    arrived: list[int] = []
    try:
        for number in handlers:
            signal.signal(number, lambda received, frame: arrived.append(received))
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for received in dict.fromkeys(arrived):
            signal.raise_signal(received)


@contextmanager
def path_in_errors(path: Path, unfinished: Path) -> Iterator[None]:
    """Have errors of the system name the path that was asked for, not that of the unfinished file."""
    try:
        yield
    except OSError as error:
        if str(unfinished) not in str(error):
            raise
        what = (error.strerror or str(error)).replace(str(unfinished), str(path))
        if not path.parent.is_dir():
            what = f"its folder {path.parent} does not exist"
        raise OSError(error.errno, what, str(path)) from error  # of the kind that errno says


@contextmanager
def whole_folder(path: str | PathLike[str]) -> Iterator[Path]:
    """Yield a new folder beside `path` to write into; it takes the place of `path` when the block
    ends without an error.

    A folder cannot be exchanged for another in one step: a process that dies between the two
    renames leaves none, never a mixture of old and new.
    """
    unfinished = unfinished_name(Path(path))
    with path_in_errors(Path(path), unfinished):
        unfinished.mkdir(parents=True)
    clear_dead_writers(unfinished.parent.absolute())
    try:
        with path_in_errors(Path(path), unfinished):
            yield unfinished
            move_into_place(unfinished, path)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise


def move_into_place(unfinished: Path, path: str | PathLike[str]) -> None:
    """Let a finished folder take the place of another, or of none."""
    path = Path(path)
    former = unfinished_name(path)
    try:
        with suppress(FileNotFoundError):
            os.replace(path, former)
        os.replace(unfinished, path)
    except BaseException:
        if former.exists() and not path.exists():
            os.replace(former, path)
        raise
    shutil.rmtree(former, ignore_errors=True)


def write_text(path: str | PathLike[str], text: str) -> None:
    """Write a text file (UTF-8) whole or not at all."""
    with whole_file(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")


def write_json(path: str | PathLike[str], content: object) -> None:
    """Write a JSON file whole or not at all."""
    write_text(path, json.dumps(content, indent=1, ensure_ascii=False))
