"""Start the app."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from os import PathLike
from typing import TYPE_CHECKING, Any

from ...inputs.audio.frame_grid import Seconds
from ...inputs.clips.clip import Clip
from ...runs.results.open_run import open_run
from .browser_launch import open_browser, redirecting_file
from .measurements import warm_up
from .request_queue import RequestQueue
from .routes import App
from .session import LONGEST, Session, model_choices

if TYPE_CHECKING:
    from ...adapters.model import Model
from .server import HOST, Server


def serve(
    models: Sequence[Any],
    *,
    run: str | PathLike[str] | None = None,
    audio: str | None = None,
    examples: Sequence[Clip] = (),
    load: Callable[..., Model] | None = None,
    host: str = HOST,
    port: int = 0,
    longest: Seconds = LONGEST,
    language: str | None = None,
    browser: bool = True,
    say: Callable[[str], None] = print,
) -> None:
    """Serve the page until it is stopped (Ctrl-C).

    Parameters
    ----------
    models : sequence
        What `load` takes: hub ids or folders. Each is loaded when it is used first.
    run : path, optional
        Folder of a run whose clips are listed.
    audio : str, optional
        Folder with the run's recordings, if they were moved.
    examples : sequence of Clip
        Offered to begin with.
    load : callable, optional
        `speechmix.load`, or one with options of its own.
    host : str
        This computer alone by default; another address opens the page to whoever reaches it and has
        the token.
    port : int
        0 takes one that is free.
    longest : float
        Seconds that a clip may last.
    language : str, optional
        Of recordings that say none ("fr").
    browser : bool
        Open it.
    say : callable
        Told the address.

    Raises
    ------
    InputError
        If the folder holds no run, or nothing can listen there.

    Examples
    --------
    >>> from speechmix.interfaces.app.server import serve
    >>> serve(["openai/whisper-small"], run="runs/small")                               # doctest: +SKIP
    """
    from ...adapters.loading.load import load as load_model

    stored = None if run is None else open_run(run)
    session = Session(
        model_choices(models, load or load_model),
        run=stored,
        audio=audio,
        examples=examples,
        longest=longest,
        language=language,
    )
    with (
        RequestQueue() as turns,
        Server(App(session, turns), host=host, port=port) as server,
        ExitStack() as files,
    ):
        say(f"speechmix is at {server.url}  (Ctrl-C stops it; nothing is kept but what you save)")
        threading.Thread(target=_warm_up, args=(session,), daemon=True).start()
        if browser:
            redirect = files.enter_context(redirecting_file(server.url))
            threading.Thread(target=open_browser, args=(redirect,), daemon=True).start()
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            say("stopped")


def _warm_up(session: Session) -> None:
    with session.drawing:
        warm_up()
