"""Names of unfinished files and folders, and how to remove those that dead processes left.

In: where a result belongs. Out: a name in the same folder that starts with ``.unfinished-``, to
write to and rename (`whole_files`).
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
from contextlib import suppress
from os import PathLike
from pathlib import Path

UNFINISHED = ".unfinished-"


def unfinished_name(path: Path, *, one_writer: bool = False) -> Path:
    """Return a name beside `path` that nothing and nobody else has; short, whatever the length of
    `path`'s own name.

    With `one_writer` it is always the same for this path.
    """
    if one_writer:
        return path.with_name(f"{UNFINISHED}{hashlib.sha256(path.name.encode()).hexdigest()[:16]}")
    return path.with_name(f"{UNFINISHED}{os.getpid()}-{secrets.token_hex(6)}")


def clear_leftovers(folder: str | PathLike[str], *, below: bool = True) -> None:
    """Remove what dead processes left in a folder (and those below it); only for one who holds the
    folder's lock."""
    find = Path(folder).rglob if below else Path(folder).glob
    for leftover in list(find(f"{UNFINISHED}*")):
        with suppress(OSError):
            shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
