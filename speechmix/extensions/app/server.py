"""Serve the app over HTTP to clients that have the token.

In: an `App`. Out: HTTP at one address. The token is part of the address, so no other page can send
requests. The Host header must be an IP address or this machine's name (against DNS rebinding).
Bodies have a size limit before they are read, headers a time limit; of clients without the token the
newest are served (connection_limits.py). The content security policy keeps the page from
loading anything from elsewhere. Addresses are never files: see `routes`.
"""

from __future__ import annotations

import hmac
import io
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
from typing import Any

from ... import __version__
from ...errors import InputError
from .connection_limits import ConnectionLimits, TimedInput
from .routes import App, Request, Response, error_response

HOST = "127.0.0.1"
MAX_UPLOAD_BYTES = 64 * 2**20  # of an upload: a minute of 192 kHz stereo in 24 bits
_MAX_JSON_BYTES = 2 * 2**20
_MAX_CONNECTIONS = 64
_MAX_UNKNOWN = 16  # connections of one address that have not shown the token; a browser opens 6
_HEADER_SECONDS = 10.0  # for a whole header, however often a byte of it comes
_IDLE_TIMEOUT_SECONDS = 5.0  # else a few idle connections block all others
_BODY_TIMEOUT_SECONDS = 30.0
_DRAIN_SECONDS = 20.0  # a browser reads the response only after its upload has ended
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

    daemon_threads = True
    request_queue_size = 32

    def __init__(self, app: App, *, host: str = HOST, port: int = 0):
        self.app, self.host, self.token = app, host, secrets.token_urlsafe(18)
        self.connections = ConnectionLimits(_MAX_CONNECTIONS, _MAX_UNKNOWN)
        try:
            super().__init__((host, port), _Handler)
        except (OSError, OverflowError) as error:
            raise InputError(
                f"cannot listen on {host}:{port} ({error}): choose another port, or none"
            ) from error

    @property
    def url(self) -> str:
        """Return the address of the page, with the token."""
        host = self.host if self.host not in ("", "0.0.0.0") else HOST
        return f"http://{host}:{self.server_address[1]}/{self.token}/"

    def start(self) -> threading.Thread:
        """Serve in a new thread."""
        thread = threading.Thread(
            target=self.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True
        )
        thread.start()
        return thread

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self.connections.admit(request, str(client_address[0])):
            self.shutdown_request(request)  # too many at once: the browser tries again
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.connections.release(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):  # a browser that goes away is no error
            super().handle_error(request, client_address)

    def is_own_host(self, host: str | None) -> bool:
        """Return True if the Host header is an IP address, localhost or the name we listen on."""
        try:
            name = urllib.parse.urlsplit(f"//{host or ''}").hostname or ""
            return name in ("localhost", self.host) or bool(ipaddress.ip_address(name))
        except ValueError:
            return False


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = f"speechmix/{__version__}", ""
    timeout = _IDLE_TIMEOUT_SECONDS
    disable_nagle_algorithm = True  # else each body waits 40 ms for the receipt of its header
    server: Server
    command = ""
    _has_unread_body = False

    def setup(self) -> None:
        super().setup()
        self._input = TimedInput(self.connection, self.timeout)
        self.rfile = io.BufferedReader(self._input)

    def handle_one_request(self) -> None:
        self._input.allow(total=_HEADER_SECONDS)
        super().handle_one_request()

    def do_GET(self) -> None:
        self._respond("GET")

    def do_POST(self) -> None:
        self._respond("POST")

    def _respond(self, method: str) -> None:
        try:
            response = self._route_request(method)
        except Exception:  # a bug of ours: the page goes on
            traceback.print_exc(file=sys.stderr)
            response = error_response(500, "an unexpected error; the terminal shows the details")
        self._send(response)

    def _send(self, response: Response) -> None:
        self.send_response(response.status)
        for name, value in {**_HEADERS, **response.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Type", response.media_type)
        self.send_header("Content-Length", str(len(response.content)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(response.content)
        if self._has_unread_body:
            self._drain_upload()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer requests that the standard library refuses (a method, a malformed line)."""
        self.close_connection, self.request_version = (
            True,
            self.protocol_version,
        )  # of HTTP/0.9 no headers would be sent
        self._send(error_response(int(code), message or "this request is malformed"))

    def _drain_upload(self) -> None:
        """Read on for a while after a response to an unread body; closing at once would discard it."""
        deadline = time.monotonic() + _DRAIN_SECONDS
        with suppress(OSError):
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_WR)
            self.connection.settimeout(2.0)
            while time.monotonic() < deadline and self.connection.recv(2**16):
                pass

    def _route_request(self, method: str) -> Response:
        client_closes = self.close_connection  # as the request says
        self.close_connection = (
            True  # until the body has been read, for what follows would be taken for a request
        )
        self._has_unread_body = method == "POST"
        if not self.server.is_own_host(self.headers.get("Host")):
            return error_response(403, "the Host header names another machine")
        try:
            address = urllib.parse.urlsplit(self.path)
            token, _, route_path = address.path.removeprefix("/").partition("/")
            query = dict(urllib.parse.parse_qsl(address.query, max_num_fields=8))
        except ValueError:
            return error_response(400, "the address is malformed")
        if not hmac.compare_digest(token.encode(), self.server.token.encode()):
            return error_response(
                403, "open the address that `speechmix serve` printed: it contains the token"
            )
        self.server.connections.trust(self.connection)
        if method == "POST" and self.headers.get("Sec-Fetch-Site", "same-origin") != "same-origin":
            return error_response(403, "requests from other pages are refused")
        body = (
            self._read_body(MAX_UPLOAD_BYTES if route_path == "api/recordings" else _MAX_JSON_BYTES)
            if method == "POST"
            else b""
        )
        if isinstance(body, Response):
            return body
        is_unread = method == "GET" and (
            "Content-Length" in self.headers or "Transfer-Encoding" in self.headers
        )
        self.close_connection = client_closes or is_unread
        self._has_unread_body = is_unread
        return self.server.app.answer(
            Request(method, urllib.parse.unquote(route_path), query, body)
        )

    def _read_body(self, max_bytes: int) -> bytes | Response:
        length = self.headers.get("Content-Length", "")
        if not length.isascii() or not length.isdecimal() or self.headers.get("Transfer-Encoding"):
            return error_response(411, "expected a body with a Content-Length")
        if len(length) > 12 or int(length) > max_bytes:
            return error_response(
                413,
                f"expected at most {max_bytes / 2**20:.0f} MiB: cut the recording, or send it as FLAC",
            )
        self._input.allow(pause=_BODY_TIMEOUT_SECONDS)
        body = self.rfile.read(int(length))
        return (
            body
            if len(body) == int(length)
            else error_response(400, "the body is shorter than its Content-Length")
        )

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: addresses contain the token."""
