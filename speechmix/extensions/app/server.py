"""Serve the app over HTTP to clients that have the token.

In: an `App`. Out: HTTP at one address, spoken by uvicorn. The token is part of the address, so no
other page can send requests. The Host header must be an IP address or this machine's name (against
DNS rebinding). Bodies have a size limit before they are read, headers a time limit; of clients
without the token the newest are served. The content security policy keeps the
page from loading anything from elsewhere. Addresses are never files: see `routes`.

Limits on connections, so that clients without the token cannot shut out those who have it.

In: connections as they are accepted. Out: which of them are served. Until a client has shown the
token, a newer connection may take its place: a page sends its request at once, and only those who
send nothing, or a byte now and then, stay long without having shown it.

Start the app: a page in the browser, served by this process.

Open the page in a browser without showing its address to other users of the machine.

In: an address with a token. Out: a browser at that address. Every local user can read the arguments
of a program in the process list. So the browser opens a file that only its owner can read, and that
redirects to the address.
"""

from __future__ import annotations

import asyncio
import hmac
import html
import ipaddress
import os
import secrets
import socket
import sys
import tempfile
import threading
import urllib.parse
import webbrowser
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import h11
import uvicorn
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from ... import __version__
from ...errors import InputError
from ...inputs.audio.frame_grid import Seconds
from ...inputs.clips.clip import Clip
from ...runs.results.open_run import open_run
from .measurements import import_drawing_libraries
from .request_queue import RequestQueue
from .routes import App, error_response
from .session import MAX_CLIP_SECONDS, Session, model_choices

if TYPE_CHECKING:
    from ...adapters.model import Model


class Connection(Protocol):
    """A socket, or what asyncio gives for one."""

    def shutdown(self, how: int, /) -> None:
        """End it; its protocol then releases it."""


class ConnectionLimits:
    """Count open connections, all and those of an address that have not shown the token.

    One thread uses it, that of the server's loop.

    Parameters
    ----------
    max_count : int
        Of open connections.
    max_unknown : int
        Of one address, without the token.
    """

    def __init__(self, max_count: int, max_unknown: int):
        self._max_count, self._max_unknown = max_count, max_unknown
        # The oldest first; its address, None when it has shown the token.
        self._addresses: dict[Connection, str | None] = {}

    def __len__(self) -> int:
        return len(self._addresses)

    def admit(self, connection: Connection, address: str) -> bool:
        """Return True if a new connection is served; the oldest one without the token may be closed
        for it."""
        unknown = [other for other, place in self._addresses.items() if place is not None]
        of_address = [other for other in unknown if self._addresses[other] == address]
        if len(of_address) >= self._max_unknown:
            self._close(of_address[0])
        elif len(self._addresses) >= self._max_count:
            if not unknown:
                return False
            self._close(unknown[0])
        self._addresses[connection] = address
        return True

    def trust(self, connection: Connection) -> None:
        """Record that a connection has shown the token."""
        if connection in self._addresses:
            self._addresses[connection] = None

    def release(self, connection: Connection) -> None:
        """Record that a connection has ended."""
        self._addresses.pop(connection, None)

    def _close(self, connection: Connection) -> None:
        self.release(connection)
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)


HOST = "127.0.0.1"
MAX_UPLOAD_BYTES = 64 * 2**20  # of an upload: a minute of 192 kHz stereo in 24 bits
_MAX_JSON_BYTES = 2 * 2**20
_MAX_CONNECTIONS = 64
_MAX_UNKNOWN = 16  # connections of one address that have not shown the token; a browser opens 6
_HEADER_SECONDS = 10.0  # for a whole header, however often a byte of it comes
_IDLE_TIMEOUT_SECONDS = 5.0  # else a few idle connections block all others
_BODY_TIMEOUT_SECONDS = 30.0
_DRAIN_SECONDS = 20.0  # a browser reads the response only after its upload has ended
_DRAIN_PAUSE_SECONDS = 2.0
_SHUTDOWN_SECONDS = 2
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
        "connect-src 'self'; "
        "worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Permissions-Policy": "microphone=(self), camera=(), geolocation=()",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Server": f"speechmix/{__version__}",
}


class Server:
    """Serve an app; `url` has the token. Use it as a context manager, with `serve_forever` or `start`.

    Parameters
    ----------
    app : App
    host : str
        Address to listen on.
    port : int
        0 picks a free port.

    Raises
    ------
    InputError
        If the port is not free.
    """

    def __init__(self, app: App, *, host: str = HOST, port: int = 0):
        self.app, self.host, self.token = app, host, secrets.token_urlsafe(18)
        self.connections = ConnectionLimits(_MAX_CONNECTIONS, _MAX_UNKNOWN)
        self._thread: threading.Thread | None = None
        try:
            self._socket = socket.create_server((host, port), backlog=32)
        except (OSError, OverflowError) as error:
            raise InputError(
                f"cannot listen on {host}:{port} ({error}): choose another port, or none"
            ) from error
        self.server_address: tuple[str, int] = self._socket.getsockname()[:2]
        config = uvicorn.Config(
            _Door(app, self.token, host),
            http=partial(_Connection, self.connections),  # type: ignore[arg-type]  # any maker of protocols works
            loop="asyncio",
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="error",
            access_log=False,  # addresses contain the token
            proxy_headers=False,
            server_header=False,
            headers=[*_HEADERS.items()],
            timeout_keep_alive=_IDLE_TIMEOUT_SECONDS,  # type: ignore[arg-type]  # seconds of asyncio
            timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
        )
        self._server = _Uvicorn(config, app)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self._socket.close()

    @property
    def url(self) -> str:
        """Return the address of the page, with the token."""
        host = self.host if self.host not in ("", "0.0.0.0") else HOST
        return f"http://{host}:{self.server_address[1]}/{self.token}/"

    def serve_forever(self) -> None:
        """Serve until `shutdown`, or a signal, which is raised again when the server has ended."""
        self._server.run(sockets=[self._socket])

    def start(self) -> threading.Thread:
        """Serve in a new thread."""
        self._thread = threading.Thread(target=self.serve_forever, daemon=True)
        self._thread.start()
        return self._thread

    def shutdown(self) -> None:
        """End serving, and wait for it where `start` began it."""
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join()


class _Uvicorn(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, app: App):
        super().__init__(config)
        self._app = app

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await asyncio.to_thread(self._app.queue.close)  # pages that wait for news are answered
        await super().shutdown(sockets)


class _Connection(H11Protocol):
    """A connection that uvicorn serves, with limits until its header is whole."""

    timeout = _IDLE_TIMEOUT_SECONDS

    def __init__(self, limits: ConnectionLimits, **options: Any):
        super().__init__(**options)
        self.app_state = {**self.app_state, "connection": self}
        self._limits = limits

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._socket = transport.get_extra_info("socket")
        # Else each body waits 40 ms for the receipt of its header.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._header_deadline = self.loop.time() + _HEADER_SECONDS
        self._limit_header()
        if not self._limits.admit(self._socket, str(self.client and self.client[0])):
            transport.abort()  # too many at once: the browser tries again

    def connection_lost(self, exc: Exception | None) -> None:
        self._limits.release(self._socket)
        super().connection_lost(exc)
        self._unset_keepalive_if_required()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is h11.IDLE and self.timeout_keep_alive_task is None:
            self._limit_header()

    def eof_received(self) -> bool:  # type: ignore[override]  # asyncio reads what it returns
        """Keep the connection of a client that sends no more and waits for its answer."""
        is_whole = self.conn.their_state in (h11.DONE, h11.MUST_CLOSE)
        return is_whole and not self.cycle.response_complete

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._header_deadline = self.loop.time() + _HEADER_SECONDS

    def trust(self) -> None:
        """Record that the client has shown the token."""
        self._limits.trust(self._socket)

    def send_400_response(self, msg: str) -> None:
        """Answer what is no request of HTTP (a malformed line, a header that is too long)."""
        status = 411 if "Content-Length" in str(sys.exception()) else 400
        response = error_response(status, "this request is malformed")
        headers = [
            *[(name.encode(), value.encode()) for name, value in _HEADERS.items()],
            *response.raw_headers,
            (b"Connection", b"close"),
        ]
        with suppress(h11.LocalProtocolError):  # a response is under way: it ends here
            for event in (
                h11.Response(status_code=status, headers=headers),
                h11.Data(data=bytes(response.body)),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _limit_header(self) -> None:
        """Close where no byte comes for a while, or the header is not whole in time."""
        left = max(0.0, min(self.timeout, self._header_deadline - self.loop.time()))
        self.timeout_keep_alive_task = self.loop.call_later(left, self.timeout_keep_alive_handler)


class _Door:
    """The application before the app: it lets requests in that have the token, with their bodies."""

    def __init__(self, app: ASGIApp, token: str, host: str):
        self._app, self._token, self._host = app, token, host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        response = self._refusal(scope, headers)
        if response is None and scope["method"] == "POST":
            response = await _read_body(scope, headers, receive)
        has_body = "content-length" in headers or "transfer-encoding" in headers
        if has_body and "body" not in scope["state"]:
            send = partial(_send_and_drain, receive, send)
        await (response or self._app)(scope, receive, send)

    def _refusal(self, scope: Scope, headers: Headers) -> Response | None:
        """Why a request is refused, or None; then its path is the one below the token."""
        if not self._is_own_host(headers.get("host")):
            return error_response(403, "the Host header names another machine")
        token, _, route_path = scope["path"].removeprefix("/").partition("/")
        if not hmac.compare_digest(token.encode(), self._token.encode()):
            return error_response(
                403, "open the address that `speechmix serve` printed: it contains the token"
            )
        scope["state"]["connection"].trust()
        if (
            scope["method"] != "GET"
            and headers.get("sec-fetch-site", "same-origin") != "same-origin"
        ):
            return error_response(403, "requests from other pages are refused")
        scope["path"] = f"/{route_path}"
        return None

    def _is_own_host(self, host: str | None) -> bool:
        """Whether the Host header is an IP address, localhost or the name we listen on."""
        try:
            name = urllib.parse.urlsplit(f"//{host or ''}").hostname or ""
            return name in ("localhost", self._host) or bool(ipaddress.ip_address(name))
        except ValueError:
            return False


async def _read_body(scope: Scope, headers: Mapping[str, str], receive: Receive) -> Response | None:
    """Read a body into the request's state; a response where there is none, or too much of it."""
    length = headers.get("content-length", "")
    if not length.isascii() or not length.isdecimal() or "transfer-encoding" in headers:
        return error_response(411, "expected a body with a Content-Length")
    max_bytes = MAX_UPLOAD_BYTES if scope["path"] == "/api/recordings" else _MAX_JSON_BYTES
    if int(length) > max_bytes:
        return error_response(
            413,
            f"expected at most {max_bytes / 2**20:.0f} MiB: cut the recording, or send it as FLAC",
        )
    body, more_body = bytearray(), True
    while more_body:
        try:
            message = await asyncio.wait_for(receive(), _BODY_TIMEOUT_SECONDS)
        except TimeoutError:
            return error_response(408, "the body comes too slowly")
        if message["type"] == "http.disconnect":
            return error_response(400, "the body is shorter than its Content-Length")
        body += message["body"]
        more_body = message["more_body"]
    scope["state"]["body"] = bytes(body)
    return None


async def _send_and_drain(receive: Receive, send: Send, message: Message) -> None:
    """Send a response to a request whose body was not read, and read on for a while before the
    connection ends: closing at once would discard the response."""
    if message["type"] == "http.response.start":
        MutableHeaders(scope=message)["Connection"] = "close"
    if message["type"] != "http.response.body" or message.get("more_body"):
        await send(message)
        return
    await send({**message, "more_body": True})
    with suppress(TimeoutError):
        async with asyncio.timeout(_DRAIN_SECONDS):
            while (await asyncio.wait_for(receive(), _DRAIN_PAUSE_SECONDS)).get("more_body"):
                pass
    await send({"type": "http.response.body"})


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
    >>> from speechmix.extensions.app.server import serve
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
