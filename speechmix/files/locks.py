"""Lock a folder, or part of it, for one writing process.

In: a folder that results are written to, and perhaps the part of it (a shard, "3-of-48") that is
one's own. While the block runs no other process (or thread) writes there; a second one gets an
error that names the first. Writers of different parts do not hinder each other. The operating
system lets go of the lock when its holder dies, however it dies, so a crash leaves nothing to clean
up; only a file system without locks needs a hand, and the message says how.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from os import PathLike
from pathlib import Path

from ..errors import StorageError
from .unfinished_files import clear_leftovers

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
