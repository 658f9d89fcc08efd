"""Limits on connections, so that clients without the token cannot shut out those who have it.

In: connections as they are accepted. Out: which of them are served. Until a client has shown the
token, a newer connection may take its place: a page sends its request at once, and only those who
send nothing, or a byte now and then, stay long without having shown it.
"""

from __future__ import annotations

import io
import socket
import threading
import time
from contextlib import suppress
from typing import Any

_EVICTION_SECONDS = 1.0  # for the thread of a connection that was closed to end


class ConnectionLimits:
    """Count open connections, all and those of an address that have not shown the token.

    Parameters
    ----------
    max_count : int
        Of open connections.
    max_unknown : int
        Of one address, without the token.
    """

    def __init__(self, max_count: int, max_unknown: int):
        self._slots = threading.BoundedSemaphore(max_count)
        self._max_unknown = max_unknown
        self._lock = threading.Lock()
        self._unknown: dict[socket.socket, str] = {}  # connection -> address, the oldest first

    def admit(self, connection: socket.socket, address: str) -> bool:
        """Return True if a new connection is served; the oldest one without the token may be closed
        for it."""
        with self._lock:
            of_address = [other for other, place in self._unknown.items() if place == address]
        if len(of_address) >= self._max_unknown:
            self._close(of_address[0])
        if not self._slots.acquire(blocking=False):
            with self._lock:
                oldest = next(iter(self._unknown), None)
            if oldest is None:
                return False
            self._close(oldest)
            if not self._slots.acquire(timeout=_EVICTION_SECONDS):
                return False
        with self._lock:
            self._unknown[connection] = address
        return True

    def trust(self, connection: socket.socket) -> None:
        """Record that a connection has shown the token."""
        with self._lock:
            self._unknown.pop(connection, None)

    def release(self, connection: socket.socket) -> None:
        """Record that a connection has ended."""
        self.trust(connection)
        self._slots.release()

    def _close(self, connection: socket.socket) -> None:
        """End a connection; its own thread then releases it."""
        self.trust(connection)
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)


class TimedInput(io.RawIOBase):
    """Bytes that a client sends; reading them takes no longer than allowed, in all.

    Parameters
    ----------
    connection : socket.socket
    pause : float
        Seconds that a client may send nothing.
    """

    def __init__(self, connection: socket.socket, pause: float):
        self._connection, self._usual_pause = connection, pause
        self.allow()

    def allow(self, *, pause: float | None = None, total: float = float("inf")) -> None:
        """Allow so many seconds without a byte, and for all that is read from now on."""
        self._pause = self._usual_pause if pause is None else pause
        self._deadline = time.monotonic() + total

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the client sends too slowly")
        self._connection.settimeout(min(left, self._pause))
        try:
            return self._connection.recv_into(buffer)
        finally:
            self._connection.settimeout(self._usual_pause)
