"""JSON files with a checksum of their content: what is damaged, or was written by hand, is set
aside and not believed.

In: a path and what to keep there. Out: the same, read back, or nothing; what was set aside is said.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..files.cache_keys import digest

Report = Callable[[str], None]


def stored_json(path: Path, report: Report) -> dict[str, Any]:
    """Content of a kept JSON file; nothing if there is none, or it is not as it was written, which
    is said."""
    try:
        content = json.loads(path.read_bytes().decode("utf-8"))
        checksum = content.pop("checksum", None)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError, TypeError, AttributeError) as error:
        checksum, content, what = None, None, f"is damaged ({error})"
    else:
        if checksum == digest(content):
            return content
        what = "is of an earlier version" if checksum is None else "is not as this run wrote it"
    aside = path.with_name(f"{path.name}.damaged")
    with suppress(OSError):
        os.replace(path, aside)
    report(
        f"{path} {what}: set aside as {aside.name} and made again; word times of your own are "
        "given as words= of the clip"
    )
    return {}
