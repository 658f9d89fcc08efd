"""Open the page in a browser without showing its address to other users of the machine.

In: an address with a token. Out: a browser at that address. Every local user can read the arguments
of a program in the process list. So the browser opens a file that only its owner can read, and that
redirects to the address.
"""

from __future__ import annotations

import html
import os
import tempfile
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_REDIRECT_PAGE = """<!DOCTYPE html>
<html><head><meta charset="utf-8"><meta name="referrer" content="no-referrer"><title>speechmix</title>
<meta http-equiv="refresh" content="0;url={url}"></head><body><a href="{url}">speechmix</a></body></html>
"""


@contextmanager
def create_redirect_file(url: str) -> Iterator[Path]:
    """Create a file of mode 0600 that redirects a browser to an address; remove it at the end.

    Examples
    --------
    >>> with create_redirect_file("http://127.0.0.1:1/token/") as path:
    ...     "url=http://127.0.0.1:1/token/" in path.read_text(), oct(path.stat().st_mode & 0o777)
    (True, '0o600')
    """
    descriptor, path = tempfile.mkstemp(prefix="speechmix-", suffix=".html")  # mode 0600
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(_REDIRECT_PAGE.format(url=html.escape(url, quote=True)))
        yield Path(path)
    finally:
        with suppress(OSError):
            os.unlink(path)


def open_browser(redirect_path: Path) -> None:
    """Open a browser at the address that a file redirects to."""
    with suppress(webbrowser.Error, OSError):  # the terminal shows the address
        webbrowser.open(redirect_path.as_uri())
