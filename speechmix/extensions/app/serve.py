"""Start the app: a page in the browser, served by this process.

Open the page in a browser without showing its address to other users of the machine.

In: an address with a token. Out: a browser at that address. Every local user can read the arguments
of a program in the process list. So the browser opens a file that only its owner can read, and that
redirects to the address.
"""

from __future__ import annotations

import html
import os
import tempfile
import threading
import webbrowser
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...inputs.audio.frame_grid import Seconds
from ...inputs.clips.clip import Clip
from ...runs.results.open_run import open_run
from .measurements import import_drawing_libraries
from .request_queue import RequestQueue
from .routes import App
from .server import HOST, Server
from .session import MAX_CLIP_SECONDS, Session, model_choices

if TYPE_CHECKING:
    from ...adapters.model import Model

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


def serve(
    models: Sequence[Any],
    *,
    run: str | PathLike[str] | None = None,
    audio: str | None = None,
    examples: Sequence[Clip] = (),
    load: Callable[..., Model] | None = None,
    host: str = HOST,
    port: int = 0,
    max_seconds: Seconds = MAX_CLIP_SECONDS,
    language: str | None = None,
    open_in_browser: bool = True,
    log: Callable[[str], None] = print,
) -> None:
    """Serve the page until it is stopped (Ctrl-C).

    Parameters
    ----------
    models : sequence
        Hub ids or folders. Each is loaded on first use.
    run : path, optional
        Folder of a run whose clips are listed.
    audio : str, optional
        Folder with the run's recordings, if they were moved.
    examples : sequence of Clip
        Clips that the page offers at the start.
    load : callable, optional
        `speechmix.load`, or a function with the same arguments.
    host : str
        By default only this computer. Another address opens the page to everybody who can reach it
        and has the token.
    port : int
        0 picks a free port.
    max_seconds : float
        Longest clip that the page takes.
    language : str, optional
        Language of recordings without one ("fr").
    open_in_browser : bool
        Open the page in the default browser.
    log : callable
        Called with the address.

    Raises
    ------
    InputError
        If the folder holds no run, or the port is not free.

    Examples
    --------
    >>> from speechmix.extensions.app.serve import serve
    >>> serve(["openai/whisper-small"], run="runs/small")                               # doctest: +SKIP
    """
    from ...adapters.loading.load import load as load_model

    stored_run = None if run is None else open_run(run)
    session = Session(
        model_choices(models, load or load_model),
        run=stored_run,
        audio=audio,
        examples=examples,
        max_seconds=max_seconds,
        language=language,
    )
    with (
        RequestQueue() as queue,
        Server(App(session, queue), host=host, port=port) as server,
        ExitStack() as exit_stack,
    ):
        log(f"speechmix is at {server.url}  (Ctrl-C stops it; only what you save is stored)")
        threading.Thread(target=_import_drawing_libraries, args=(session,), daemon=True).start()
        if open_in_browser:
            redirect_path = exit_stack.enter_context(create_redirect_file(server.url))
            threading.Thread(target=open_browser, args=(redirect_path,), daemon=True).start()
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            log("stopped")


def _import_drawing_libraries(session: Session) -> None:
    with session.drawing_lock:
        import_drawing_libraries()
