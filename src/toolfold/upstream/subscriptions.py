"""Subscriptions to resources of one server, kept up over restarts.

The server is subscribed to each resource once, whoever wants to know. In the older era that is a request for each; in
2026-07-28 it is one stream for all of them, which is opened again whenever the resources change.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from toolfold.errors import ToolfoldError, UpstreamError

if TYPE_CHECKING:
    from toolfold.upstream.connection import Connection

OnUpdate = Callable[[], None]

FIRST_DELAY = 0.1
LONGEST_DELAY = 60.0
_PARENTS = 64
"""Levels that are looked for above an updated resource."""


class Subscriptions:
    """`connect` gives the live connection, and starts the server if there is none."""

    def __init__(self, server: str, connect: Callable[[], Awaitable[Connection]]) -> None:
        self._server = server
        self._connect = connect
        self._wanted: dict[str, dict[object, OnUpdate]] = {}
        """Who wants to know, by URI."""
        self._held: set[str] = set()
        """What the connection is subscribed to."""
        self._refused: dict[str, ToolfoldError] = {}
        self._connection: Connection | None = None
        self._stream: asyncio.Task[None] | None = None
        self._agreeing = asyncio.Lock()
        self._keeper: asyncio.Task[None] | None = None
        self._dropping: asyncio.Task[None] | None = None

    async def add(self, uri: str, on_update: OnUpdate) -> Callable[[], None]:
        """Have `on_update` called when the server says that a resource has changed, until the returned function is.

        It is called as well after a restart of the server, which may have changed the resource meanwhile. Raises an
        UpstreamError if the server is not there or refuses.
        """
        token = object()
        self._wanted.setdefault(uri, {})[token] = on_update

        def remove() -> None:
            self._remove(uri, token)

        try:
            await self._agree(await self._connect())
            if uri not in self._held:
                raise self._refused.pop(uri, None) or UpstreamError(self._server, f"does not send updates of `{uri}`.")
        except BaseException:
            remove()
            raise
        if self._keeper is None or self._keeper.done():
            self._keeper = asyncio.create_task(self._keep(), name=f"subscriptions {self._server}")
        return remove

    def updated(self, uri: str) -> None:
        """The server says that a resource has changed: this one, or one below a resource that is subscribed to."""
        for _ in range(_PARENTS):
            for written in (uri, f"{uri}/"):
                for on_update in list(self._wanted.get(written, {}).values()):
                    on_update()
            uri, slash, _ = uri.rpartition("/")
            if not slash:
                return

    def close(self) -> None:
        self._wanted.clear()
        for task in (self._keeper, self._stream, self._dropping):
            if task is not None:
                task.cancel()

    def _remove(self, uri: str, token: object) -> None:
        listeners = self._wanted.get(uri, {})
        if listeners.pop(token, None) is None or listeners:
            return
        del self._wanted[uri]
        connection = self._connection
        if connection is not None and not connection.closed and (self._dropping is None or self._dropping.done()):
            self._dropping = asyncio.create_task(self._drop(connection))

    async def _drop(self, connection: Connection) -> None:
        """Unsubscribe from what is wanted no more, which may be more than one by the time that the server is asked."""
        while self._held - self._wanted.keys() and not connection.closed:
            await self._agree(connection)

    async def _keep(self) -> None:
        """Subscribe again when the connection or the stream has ended, for as long as anybody wants to know: sooner
        where it has held for a while."""
        clock = asyncio.get_running_loop().time
        delay, since = FIRST_DELAY, clock()
        while self._wanted:
            connection, stream = self._connection, self._stream
            assert connection is not None
            if not connection.closed and (stream is None or not stream.done()):
                await asyncio.wait(
                    {connection.end_reason, *filter(None, [stream])}, return_when=asyncio.FIRST_COMPLETED
                )
                continue
            if clock() - since > LONGEST_DELAY:
                delay = FIRST_DELAY
            await asyncio.sleep(delay)
            delay = min(delay * 2, LONGEST_DELAY)
            with contextlib.suppress(UpstreamError):
                await self._agree(await self._connect())
                since = clock()
                for uri in self._held:
                    for on_update in list(self._wanted.get(uri, {}).values()):
                        on_update()

    async def _agree(self, connection: Connection) -> None:
        """Bring the connection to what is wanted. What the server refuses is in `_refused`."""
        async with self._agreeing:
            if connection is not self._connection:
                if self._stream is not None:
                    self._stream.cancel()
                self._connection, self._held, self._stream = connection, set(), None
                if not connection.modern:  # otherwise they come by the stream
                    connection.on_updated = self.updated
            self._refused.clear()
            if not connection.offers_updates:
                if self._wanted:
                    raise UpstreamError(self._server, "does not send updates of its resources.")
            elif connection.modern:
                await self._listen(connection)
            else:
                await self._subscribe(connection)

    async def _subscribe(self, connection: Connection) -> None:
        for uri in self._held - self._wanted.keys():
            self._held.discard(uri)
            with contextlib.suppress(UpstreamError):
                await connection.request("resources/unsubscribe", {"uri": uri}, f"updates of `{uri}`", name=uri)
        for uri in [*self._wanted]:
            if uri in self._held:
                continue
            try:
                await connection.request("resources/subscribe", {"uri": uri}, f"updates of `{uri}`", name=uri)
                self._held.add(uri)
            except ToolfoldError as error:
                if connection.closed:
                    raise
                self._refused[uri] = error

    async def _listen(self, connection: Connection) -> None:
        """The new stream is open before the old one ends, so that nothing is missed."""
        wanted = [*self._wanted]
        old = self._stream
        if self._held == set(wanted) and (not wanted or (old is not None and not old.done())):
            return
        if wanted:
            opened: asyncio.Future[set[str]] = asyncio.get_running_loop().create_future()
            stream = asyncio.create_task(self._follow(connection, wanted, opened))
            try:
                async with asyncio.timeout(connection.config.call_timeout):
                    self._held = await opened
            except TimeoutError:
                stream.cancel()
                raise UpstreamError(self._server, "did not begin to send updates in time.") from None
            except BaseException:
                stream.cancel()
                raise
            self._stream = stream
        else:
            self._held, self._stream = set(), None
        if old is not None:
            old.cancel()

    async def _follow(self, connection: Connection, uris: list[str], opened: asyncio.Future[set[str]]) -> None:
        from mcp.client.subscriptions import listen
        from mcp.shared.subscriptions import ResourceUpdated

        failure: Any = "the stream ended at once"
        try:
            async with listen(connection.session, resource_subscriptions=uris) as events:
                if not opened.done():
                    opened.set_result(set(events.honored.resource_subscriptions or ()))
                async for event in events:
                    if isinstance(event, ResourceUpdated):
                        self.updated(event.uri)
        except Exception as error:  # the stream is lost, whatever the SDK says to it
            failure = error
        finally:
            if not opened.done():
                opened.set_exception(UpstreamError(self._server, f"sends no updates of its resources: {failure}"))
