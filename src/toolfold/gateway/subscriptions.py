"""Clients' subscriptions to exposed resources.

A client of the older era subscribes to one resource after the other; one of 2026-07-28 names all of them when it asks
for announcements, and its subscriptions end with that request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import mcp_types as types
from mcp.server.subscriptions import ListenHandler, ResourceUpdated, ServerEvent
from mcp.shared.exceptions import MCPError

from toolfold.definitions import ToolResult
from toolfold.errors import ToolfoldError
from toolfold.gateway.runs import caller, who_asks

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

    from toolfold.fold import Toolfold
    from toolfold.gateway.changes import Changes
    from toolfold.guards.guard import Call

    Subscribe = Callable[[Callable[[], None]], Awaitable[Callable[[], None]]]
    """Is given what to call on updates, and returns what ends it."""

    Split = Callable[[str], tuple[str, str]]
    """From what clients call a resource to its server and its own URI; raises MCPError."""

PER_CLIENT = 100
PER_CALLER = 1_000
_STREAMS = 1_000
_URI_CHARS = 4_000


class Subscriber:
    """The resources that one client is subscribed to, by the URIs that it wrote. `on_update` gets each that changed."""

    def __init__(self, on_update: Callable[[ResourceUpdated], None]) -> None:
        self._on_update = on_update
        self._ends: dict[str, Callable[[], None]] = {}
        self._pending: set[str] = set()

    def __len__(self) -> int:
        return len(self._ends) + len(self._pending)

    def __contains__(self, uri: str) -> bool:
        return uri in self._ends or uri in self._pending

    async def add(self, uri: str, subscribe: Subscribe) -> None:
        self._pending.add(uri)
        try:
            end = await subscribe(lambda: self._on_update(ResourceUpdated(uri)))
            if uri in self._pending:
                self._ends[uri] = end
            else:
                end()  # it was removed meanwhile
        finally:
            self._pending.discard(uri)

    def remove(self, uri: str) -> None:
        self._pending.discard(uri)
        if (end := self._ends.pop(uri, None)) is not None:
            end()

    def close(self) -> None:
        for uri in [*self._ends, *self._pending]:
            self.remove(uri)


class ResourceSubscriptions:
    """One per server of the gateway. `session` is the one that reads of the clients belong to."""

    def __init__(self, fold: Toolfold, changes: Changes, split: Split, session: str) -> None:
        self._fold = fold
        self._changes = changes
        self._split = split
        self._session = session
        self._held = changes.subscribed
        self._streams = 0

    async def subscribe(self, ctx: ServerRequestContext[Any], client: Subscriber, uri: str) -> None:
        """Raises MCPError where the caller may not read the resource, or its server sends no updates."""
        if uri in client:
            return
        server, own = self._split(uri)
        who = caller(ctx)
        if len(uri) > _URI_CHARS or len(client) >= PER_CLIENT or self._held[who] >= PER_CALLER:
            raise MCPError(types.INVALID_PARAMS, f"Too many subscriptions: at most {PER_CLIENT} for one client.")

        async def subscribe(on_update: Callable[[], None]) -> Callable[[], None]:
            ends: list[Callable[[], None]] = []

            async def send(call: Call) -> ToolResult:
                ends.append(await self._fold.fleet.subscribe(call.server, call.name, on_update))
                return ToolResult()

            def end() -> None:
                for each in ends:
                    each()
                self._held[who] -= 1
                if not self._held[who]:
                    del self._held[who]

            self._held[who] += 1
            try:
                # No person is asked: where reading needs one, the client reads when it wants to know.
                options: dict[str, Any] = {"session": self._session, **who_asks(ctx)}
                await self._fold.call(server, own, kind="resource", send=send, **options)
            except BaseException:
                end()
                raise
            return end

        try:
            await client.add(uri, subscribe)
        except ToolfoldError as error:
            raise MCPError(types.INVALID_PARAMS, str(error)) from None

    async def listen(
        self, ctx: ServerRequestContext[Any], params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """Announcements for a client of 2026-07-28, until it leaves. It is told which resources are among them."""
        if self._streams >= _STREAMS:
            raise MCPError(types.INTERNAL_ERROR, "Subscription limit reached")
        events = _Events(self._changes)
        client = Subscriber(events.put)
        self._streams += 1
        try:
            wanted = [*dict.fromkeys(params.notifications.resource_subscriptions or ())][:PER_CLIENT]
            made = await asyncio.gather(*(self._is_made(ctx, client, uri) for uri in wanted))
            honored = [uri for uri, is_made in zip(wanted, made, strict=True) if is_made]
            asked = params.notifications.model_copy(update={"resource_subscriptions": honored or None})
            return await ListenHandler(events)(ctx, params.model_copy(update={"notifications": asked}))
        finally:
            self._streams -= 1
            client.close()

    async def _is_made(self, ctx: ServerRequestContext[Any], client: Subscriber, uri: str) -> bool:
        try:
            await self.subscribe(ctx, client, uri)
        except MCPError:
            return False
        return True


class _Events:
    """What one stream is fed with (a `SubscriptionBus`): changed lists, and its own resources' updates."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._listener: Callable[[ServerEvent], None] | None = None
        self._early: dict[ServerEvent, None] = {}

    def put(self, event: ResourceUpdated) -> None:
        if self._listener is None:
            self._early[event] = None
        else:
            self._listener(event)

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        self._listener = listener
        for event in self._early:
            listener(event)
        return self._changes.subscribe(listener)

    async def publish(self, event: ServerEvent) -> None:
        await self._changes.bus.publish(event)
