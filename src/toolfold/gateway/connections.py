"""HTTP connections: accepted here, spoken to by uvicorn, and kept within limits until they have shown a token.

A stranger can open connections faster than any limit, so a new connection is never refused for the old ones: beyond a
limit, the one that has been silent for longest is closed, out of the peer that holds most. A client that sends its
request when it connects has shown its token long before its turn comes.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import time
from collections import Counter
from dataclasses import dataclass
from email.utils import formatdate
from typing import TYPE_CHECKING, Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

if TYPE_CHECKING:
    from starlette.types import ASGIApp

_ACCEPTED_AT_ONCE = 8
"""Connections accepted in one turn of the loop: far fewer than may be unproven, so that those before them are read."""
_ACCEPT_PAUSE = 0.5
_LOG_PAUSE = 60.0
_STOP_TIMEOUT = 3.0
_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ConnectionLimits:
    """A connection is unproven until a request on it was let in. Times are in seconds, sizes in bytes."""

    total: int = 512
    unproven: int = 128
    header_time: float = 10.0
    header_size: int = 64 * 1024
    unread_time: float = 60.0
    """How long a client may leave an answer unread that is waiting for it."""
    keep_alive: int = 75


class Connections:
    """Serves `app` on a listening socket. Leaving the context ends every request and connection.

    In each request's `scope["state"]`, `connection` is its connection; the application calls `prove()` on it when the
    request may be answered.
    """

    def __init__(self, app: ASGIApp, sock: socket.socket, limits: ConnectionLimits | None = None) -> None:
        self.limits = limits or ConnectionLimits()
        self.open: dict[_Connection, None] = {}
        self.unproven: dict[_Connection, None] = {}  # the oldest first
        self.state = ServerState()
        self.config = uvicorn.Config(
            app,
            http=_Connection,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="error",
            access_log=False,
            proxy_headers=False,
            timeout_keep_alive=self.limits.keep_alive,
        )
        self._sock = sock
        self._starting: set[asyncio.Task[Any]] = set()
        self._retry: asyncio.TimerHandle | None = None
        self._logged = -_LOG_PAUSE
        self._spare: int | None = None
        self._dated = 0

    async def __aenter__(self) -> Connections:
        self.config.load()
        self._sock.setblocking(False)
        self._keep_spare()
        self._listen()
        return self

    async def __aexit__(self, *exc: object) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._sock)
        if self._retry is not None:
            self._retry.cancel()
        self._sock.close()
        if self._spare is not None:
            os.close(self._spare)
        for connection in list(self.open):
            connection.transport.abort()
        tasks = [*self._starting, *self.state.tasks]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_STOP_TIMEOUT)

    def dated_headers(self) -> list[tuple[bytes, bytes]]:
        """The headers of every response. The date is made once a second."""
        now = int(time.time())
        if now != self._dated:
            self._dated = now
            self.state.default_headers = [(b"date", formatdate(now, usegmt=True).encode())]
        return self.state.default_headers

    def opened(self, connection: _Connection) -> None:
        self.open[connection] = self.unproven[connection] = None
        if len(self.unproven) > self.limits.unproven or len(self.open) > self.limits.total:
            self._close_one()

    def closed(self, connection: _Connection) -> None:
        self.open.pop(connection, None)
        self.unproven.pop(connection, None)

    def _close_one(self) -> bool:
        """Close the oldest unproven connection of the peer that has most of them."""
        if not self.unproven:
            return False
        held = Counter(connection.peer for connection in self.unproven)
        greediest = max(held, key=held.__getitem__)
        victim = next(connection for connection in self.unproven if connection.peer == greediest)
        self.closed(victim)
        victim.transport.abort()
        return True

    # Accepting. The loop's own server logs an accept error once for each place in its backlog, and more each time.

    def _listen(self) -> None:
        asyncio.get_running_loop().add_reader(self._sock, self._accept)

    def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                accepted, _ = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    raise
                self._pause(error)
                return
            accepted.setblocking(False)
            task = loop.create_task(loop.connect_accepted_socket(lambda: _Connection(self), accepted))
            self._starting.add(task)
            task.add_done_callback(self._starting.discard)
            if self._spare is None:
                self._keep_spare()

    def _pause(self, error: OSError) -> None:
        """Give one descriptor back and go on a little later; those who wait to be accepted stay in the backlog."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._sock)
        self._retry = loop.call_later(_ACCEPT_PAUSE, self._listen)
        self._close_one()
        if loop.time() - self._logged >= _LOG_PAUSE:
            self._logged = loop.time()
            if self._spare is not None:
                os.close(self._spare)  # for the log's file, which may not be open yet
                self._spare = None
            _log.warning("Cannot accept connections: %s. They wait until others end.", error.strerror)

    def _keep_spare(self) -> None:
        try:
            self._spare = os.open(os.devnull, os.O_RDONLY)
        except OSError:
            self._spare = None


class _Connection(HttpToolsProtocol):
    """One connection. The head of each request must arrive in time, and its answer must be read."""

    def __init__(self, connections: Connections) -> None:
        super().__init__(connections.config, connections.state, {"connection": self})
        self._connections = connections
        self._head_deadline: asyncio.TimerHandle | None = None
        self._unread_deadline: asyncio.TimerHandle | None = None
        self._head_size = 0
        self._in_message = False
        self.peer = ""

    def prove(self) -> None:
        """Count this connection among those whose requests are answered."""
        self._connections.unproven.pop(self, None)

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().connection_made(transport)
        self.peer = self.client[0] if self.client else ""
        self._await_head()
        self._connections.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        self._head_arrived()
        self._was_read()
        self._connections.closed(self)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread_deadline = self.loop.call_later(self._connections.limits.unread_time, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._was_read()

    def data_received(self, data: bytes) -> None:
        if self._head_deadline is None and not self._in_message:
            self._await_head()
        super().data_received(data)
        if self._head_deadline is not None:
            self._head_size += len(data)
            if self._head_size > self._connections.limits.header_size:
                self.transport.abort()

    def on_message_begin(self) -> None:
        self._in_message = True
        super().on_message_begin()

    def on_message_complete(self) -> None:
        self._in_message = False
        super().on_message_complete()

    def on_header(self, name: bytes, value: bytes) -> None:
        # The parser leaves whitespace at the end, which is no part of a value (RFC 9110, section 5.5).
        super().on_header(name, value.strip(b" \t"))

    def on_headers_complete(self) -> None:
        self._head_arrived()
        self._connections.dated_headers()
        super().on_headers_complete()

    def _await_head(self) -> None:
        self._head_size = 0
        self._head_deadline = self.loop.call_later(self._connections.limits.header_time, self.transport.abort)

    def _head_arrived(self) -> None:
        if self._head_deadline is not None:
            self._head_deadline.cancel()
            self._head_deadline = None

    def _was_read(self) -> None:
        if self._unread_deadline is not None:
            self._unread_deadline.cancel()
            self._unread_deadline = None
