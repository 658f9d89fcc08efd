"""The door of the app: a server of the standard library that answers whoever has the token, and
nobody else.

In: an `App`. Out: HTTP on one address. The token is part of the address, so no other page can ask
anything; the name of the host must be an address or this machine's (a page elsewhere cannot point
its own name here); bodies are bounded before they are read; what is served may load nothing from
elsewhere (content security policy). Addresses are never files: see `routes`.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import socket
import sys
import threading
import time
import traceback
import urllib.parse
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from ... import __version__
from ...errors import InputError
from .routes import App, Request, Response, error_response

if TYPE_CHECKING:
    pass

HOST = "127.0.0.1"
MOST_BYTES = 64 * 2**20  # of an upload: a minute of 192 kHz stereo in 24 bits
_MOST_JSON = 2 * 2**20
_MOST_CONNECTIONS = 64
_SILENT_SECONDS = (
    5.0  # after which a connection is closed: else a few silent ones shut everybody out
)
_SILENT_SECONDS_OF_A_BODY = 30.0
_LINGERING_SECONDS = (
    20.0  # for a browser to end an upload that was refused; it reads the answer only then
)
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
}


class Server(ThreadingHTTPServer):
    """The app at an address; `url` has the token. Use it as a context manager, with `serve_forever`
    or `start`.

    Parameters
    ----------
    app : App
    host : str
        Where to listen.
    port : int
        0 takes one that is free.

    Raises
    ------
    InputError
        If nothing can listen there.
    """

    daemon_threads = True
    request_queue_size = 32

    def __init__(self, app: App, *, host: str = HOST, port: int = 0):
        self.app, self.host, self.token = app, host, secrets.token_urlsafe(18)
        self._free = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        try:
            super().__init__((host, port), _Handler)
        except (OSError, OverflowError) as error:
            raise InputError(
                f"cannot listen on {host}:{port} ({error}): give another --port, or none"
            ) from error

    @property
    def url(self) -> str:
        """Address of the page, with the token."""
        host = self.host if self.host not in ("", "0.0.0.0") else HOST
        return f"http://{host}:{self.server_address[1]}/{self.token}/"

    def start(self) -> threading.Thread:
        """Serve in a thread of its own."""
        thread = threading.Thread(
            target=self.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True
        )
        thread.start()
        return thread

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):  # too many at once: the browser tries again
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):  # a browser that goes away is no error
            super().handle_error(request, client_address)

    def names_us(self, host: str | None) -> bool:
        """Whether the Host of a request is an address, this machine, or the name that we were told
        to listen on."""
        try:
            name = urllib.parse.urlsplit(f"//{host or ''}").hostname or ""
            return name in ("localhost", self.host) or bool(ipaddress.ip_address(name))
        except ValueError:
            return False


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = f"speechmix/{__version__}", ""
    timeout = _SILENT_SECONDS
    server: Server
    command = ""
    _has_unread_body = False

    def do_GET(self) -> None:
        self._respond("GET")

    def do_POST(self) -> None:
        self._respond("POST")

    def _respond(self, method: str) -> None:
        try:
            response = self._answer(method)
        except Exception:  # a fault of ours: the page goes on, the terminal has the details
            traceback.print_exc(file=sys.stderr)
            response = error_response(500, "something went wrong; the terminal has the details")
        self._send(response)

    def _send(self, response: Response) -> None:
        self.send_response(response.status)
        for name, value in {**_HEADERS, **response.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Type", response.kind)
        self.send_header("Content-Length", str(len(response.content)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(response.content)
        if self._has_unread_body:
            self._linger()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer what the standard library refuses (a method, a line that is no request) as
        everything else."""
        self.close_connection, self.request_version = (
            True,
            self.protocol_version,
        )  # of HTTP/0.9 no headers would be sent
        self._send(error_response(int(code), message or "this is no request that can be answered"))

    def _linger(self) -> None:
        """Read on for a while after an answer to a body that was not read, for closing at once
        would discard the answer."""
        end = time.monotonic() + _LINGERING_SECONDS
        with suppress(OSError):
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_WR)
            self.connection.settimeout(2.0)
            while time.monotonic() < end and self.connection.recv(2**16):
                pass

    def _answer(self, method: str) -> Response:
        closes = self.close_connection  # as the request says
        self.close_connection = (
            True  # until the body has been read, for what follows would be taken for a request
        )
        self._has_unread_body = method == "POST"
        if not self.server.names_us(self.headers.get("Host")):
            return error_response(403, "this page is not served under that name")
        try:
            split = urllib.parse.urlsplit(self.path)
            token, _, rest = split.path.removeprefix("/").partition("/")
            query = dict(urllib.parse.parse_qsl(split.query, max_num_fields=8))
        except ValueError:
            return error_response(400, "this is no address")
        if not hmac.compare_digest(token.encode(), self.server.token.encode()):
            return error_response(
                403, "open the address that `speechmix serve` printed: the token in it is the key"
            )
        if method == "POST" and self.headers.get("Sec-Fetch-Site", "same-origin") != "same-origin":
            return error_response(403, "this page answers itself alone")
        body = (
            self._body(MOST_BYTES if rest == "api/recordings" else _MOST_JSON)
            if method == "POST"
            else b""
        )
        if isinstance(body, Response):
            return body
        is_unread = method == "GET" and (
            "Content-Length" in self.headers or "Transfer-Encoding" in self.headers
        )
        self.close_connection = closes or is_unread
        self._has_unread_body = is_unread
        return self.server.app.answer(Request(method, urllib.parse.unquote(rest), query, body))

    def _body(self, most: int) -> bytes | Response:
        length = self.headers.get("Content-Length", "")
        if not length.isascii() or not length.isdecimal() or self.headers.get("Transfer-Encoding"):
            return error_response(411, "expected a body with its length")
        if len(length) > 12 or int(length) > most:
            return error_response(
                413,
                f"expected at most {most / 2**20:.0f} MiB: cut the recording, or send it as FLAC",
            )
        self.connection.settimeout(_SILENT_SECONDS_OF_A_BODY)
        try:
            body = self.rfile.read(int(length))
        finally:
            self.connection.settimeout(_SILENT_SECONDS)
        return body if len(body) == int(length) else error_response(400, "the body ended early")

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: addresses hold the token."""
