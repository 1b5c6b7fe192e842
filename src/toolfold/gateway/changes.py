"""Changes of what the servers offer, announced to clients.

A client of 2026-07-28 asks for announcements by `subscriptions/listen`. An older one is sent them: on stdio as they
come, over HTTP on the stream that it opens with GET.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import mcp_types as types
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)
from mcp.shared.subscriptions import event_to_notification

from toolfold.gateway.subscriptions import Subscriber

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext
    from mcp.server.models import InitializationOptions
    from mcp.server.session import ServerSession

    from toolfold.catalog.entries import Kind
    from toolfold.fold import Toolfold
    from toolfold.gateway.subscriptions import ResourceSubscriptions

METHODS: dict[type[ServerEvent], str] = {
    ToolsListChanged: "notifications/tools/list_changed",
    PromptsListChanged: "notifications/prompts/list_changed",
    ResourcesListChanged: "notifications/resources/list_changed",
    ResourceUpdated: "notifications/resources/updated",
}
_log = logging.getLogger(__name__)
_EVENTS: dict[Kind, ServerEvent] = {
    "tool": ToolsListChanged(),
    "prompt": PromptsListChanged(),
    "resource": ResourcesListChanged(),
}


def notification(event: ServerEvent) -> dict[str, Any]:
    """An announcement as it is sent in the older era."""
    params = {"params": {"uri": event.uri}} if isinstance(event, ResourceUpdated) else {}
    return {"method": METHODS[type(event)], **params}


class Outbox:
    """Announcements for one client, which may read slowly. They only say that something has changed, so of equal ones
    one is enough."""

    def __init__(self) -> None:
        self._events: dict[ServerEvent, None] = {}
        self._ready = asyncio.Event()

    def put(self, event: ServerEvent) -> None:
        self._events[event] = None
        self._ready.set()

    def pop(self) -> ServerEvent | None:
        event = next(iter(self._events), None)
        if event is not None:
            del self._events[event]
        return event

    async def get(self) -> ServerEvent:
        while (event := self.pop()) is None:
            self._ready.clear()
            await self._ready.wait()
        return event


class Changes:
    """One per gateway. `subscribe` gets an event for each list that has changed."""

    def __init__(self, fold: Toolfold) -> None:
        self._fold = fold
        self.bus = InMemorySubscriptionBus()
        self.subscribed: Counter[str] = Counter()
        """How many resources each caller is subscribed to."""
        self._sending: set[asyncio.Task[None]] = set()
        self._seen = {kind: self._digest(kind) for kind in _EVENTS}
        fold.live.on_change = self._changed

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        return self.bus.subscribe(listener)

    def spawn(self, sending: Coroutine[Any, Any, None]) -> None:
        """Send in the background. What cannot be sent is for a client that is not there any more."""
        task = asyncio.create_task(sending)
        self._sending.add(task)
        task.add_done_callback(self._sent)

    def _sent(self, task: asyncio.Task[None]) -> None:
        self._sending.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.debug("An announcement was not sent: %r", task.exception())

    def _digest(self, kind: Kind) -> bytes:
        return blake2b(b"".join(entry.digest for entry in self._fold.catalog.entries_in(kind))).digest()

    def _changed(self) -> None:
        for kind, event in _EVENTS.items():
            digest = self._digest(kind)
            if digest != self._seen[kind]:
                self._seen[kind] = digest
                self.spawn(self.bus.publish(event))


class AnnouncingServer(Server[Any]):
    """Tells its clients when one of its lists has changed, and one of its resources where `subscriptions` are given."""

    def __init__(
        self, name: str, changes: Changes, subscriptions: ResourceSubscriptions | None = None, **options: Any
    ) -> None:
        self._listen_to_lists = ListenHandler(changes.bus)
        listen = self._listen if subscriptions is None else subscriptions.listen
        super().__init__(name, on_subscriptions_listen=listen, **options)
        self._changes = changes
        self._subscriptions = subscriptions
        self._client = _StdioClient(changes)
        self.add_notification_handler("notifications/initialized", types.NotificationParams, self._initialized)
        if subscriptions is not None:
            self.add_request_handler("resources/subscribe", types.SubscribeRequestParams, self._subscribe)
            self.add_request_handler("resources/unsubscribe", types.UnsubscribeRequestParams, self._unsubscribe)

    def create_initialization_options(
        self, notification_options: NotificationOptions | None = None, *more: Any, **options: Any
    ) -> InitializationOptions:
        announced = NotificationOptions(tools_changed=True, prompts_changed=True, resources_changed=True)
        return super().create_initialization_options(notification_options or announced, *more, **options)

    def get_capabilities(self, *arguments: Any, **options: Any) -> types.ServerCapabilities:
        capabilities = super().get_capabilities(*arguments, **options)
        if capabilities.resources is not None:
            # The SDK takes it from whether there are announcements at all.
            capabilities.resources.subscribe = self._subscriptions is not None
        return capabilities

    async def _initialized(self, ctx: ServerRequestContext[Any], _params: types.NotificationParams | None) -> None:
        """A client of the older era is ready. Over HTTP its announcements go by a stream, see `streamable`."""
        if ctx.request is None:
            self._client.session = ctx.session
            self._changes.subscribe(lambda event: self._client.put(event) if self.offers(event) else None)

    async def _listen(
        self, ctx: ServerRequestContext[Any], params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """Without `subscriptions`: the SDK would promise updates of every resource that is named."""
        lists = params.notifications.model_copy(update={"resource_subscriptions": None})
        return await self._listen_to_lists(ctx, params.model_copy(update={"notifications": lists}))

    async def _subscribe(self, ctx: ServerRequestContext[Any], params: types.SubscribeRequestParams) -> Any:
        assert self._subscriptions is not None
        if ctx.request is None:
            self._client.session = ctx.session
        await self._subscriptions.subscribe(ctx, self._subscriber(ctx), str(params.uri))
        return types.EmptyResult()

    async def _unsubscribe(self, ctx: ServerRequestContext[Any], params: types.UnsubscribeRequestParams) -> Any:
        self._subscriber(ctx).remove(str(params.uri))
        return types.EmptyResult()

    def _subscriber(self, ctx: ServerRequestContext[Any]) -> Subscriber:
        return self._client.subscriber if ctx.request is None else ctx.request.state.subscriber

    def offers(self, event: ServerEvent) -> bool:
        """Whether it has the list that has changed."""
        return self.get_request_handler(METHODS[type(event)].split("/")[1] + "/list") is not None


class _StdioClient:
    """The one client on standard input and output, which is sent announcements as they come."""

    def __init__(self, changes: Changes) -> None:
        self.session: ServerSession | None = None
        self.subscriber = Subscriber(self.put)
        self._changes = changes
        self._outbox = Outbox()
        self._is_sending = False

    def put(self, event: ServerEvent) -> None:
        self._outbox.put(event)
        if not self._is_sending:
            self._is_sending = True
            self._changes.spawn(self._send())

    async def _send(self) -> None:
        try:
            while self.session is not None and (event := self._outbox.pop()) is not None:
                await self.session.send_notification(event_to_notification(event, {}))
        finally:
            self._is_sending = False
