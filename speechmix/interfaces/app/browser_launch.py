"""Opening the page in a browser without showing its address to other users of the machine.

In: an address with a token. Out: a browser at that address. What a program is called with can be
read by every local user (the process list), so the browser is given a file that only its owner can
read, and that leads to the address.
"""

from __future__ import annotations

import html
import os
import tempfile
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PAGE = """<!DOCTYPE html>
<html><head><meta charset="utf-8"><meta name="referrer" content="no-referrer"><title>speechmix</title>
<meta http-equiv="refresh" content="0;url={url}"></head><body><a href="{url}">speechmix</a></body></html>
"""


@contextmanager
def redirecting_file(url: str) -> Iterator[Path]:
    """Yield a file of mode 0600 that leads a browser to an address; it is removed in the end.

    Examples
    --------
    >>> with redirecting_file("http://127.0.0.1:1/token/") as path:
    ...     "url=http://127.0.0.1:1/token/" in path.read_text(), oct(path.stat().st_mode & 0o777)
    (True, '0o600')
    """
    number, name = tempfile.mkstemp(prefix="speechmix-", suffix=".html")  # mode 0600
    try:
        with os.fdopen(number, "w", encoding="utf-8") as file:
            file.write(_PAGE.format(url=html.escape(url, quote=True)))
        yield Path(name)
    finally:
        with suppress(OSError):
            os.unlink(name)


def open_browser(redirect: Path) -> None:
    """Open a browser at the address that a file leads to."""
    with suppress(webbrowser.Error, OSError):  # the terminal has the address
        webbrowser.open(redirect.as_uri())
