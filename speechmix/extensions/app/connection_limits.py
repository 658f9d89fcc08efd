"""Limits on connections, so that clients without the token cannot shut out those who have it.

In: connections as they are accepted. Out: which of them are served. Until a client has shown the
token, a newer connection may take its place: a page sends its request at once, and only those who
send nothing, or a byte now and then, stay long without having shown it.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Protocol


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
