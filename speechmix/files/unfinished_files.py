"""Names of unfinished files and folders, and how to remove those that dead processes left.

In: where a result belongs. Out: a name in the same folder that starts with ``.unfinished-``, to
write to and rename (`whole_files`). The name says which process of which machine has it, so that
what a dead one has left can be removed without a lock (`clear_dead_writers`).
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import socket
import sys
from contextlib import suppress
from functools import lru_cache
from os import PathLike
from pathlib import Path

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
