"""Changes of what the servers offer, announced to clients.

A client of 2026-07-28 asks for announcements by `subscriptions/listen`. An older one is sent them: on stdio as they
come, over HTTP on the stream that it opens with GET.
"""

from __future__ import annotations

import asyncio
import logging
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
    ServerEvent,
    ToolsListChanged,
)
from mcp.shared.subscriptions import event_to_notification

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext
    from mcp.server.models import InitializationOptions
    from mcp.server.session import ServerSession

    from toolfold.catalog.entries import Kind
    from toolfold.fold import Toolfold

METHODS: dict[type[ServerEvent], str] = {
    ToolsListChanged: "notifications/tools/list_changed",
    PromptsListChanged: "notifications/prompts/list_changed",
    ResourcesListChanged: "notifications/resources/list_changed",
}
_log = logging.getLogger(__name__)
_EVENTS: dict[Kind, ServerEvent] = {
    "tool": ToolsListChanged(),
    "prompt": PromptsListChanged(),
    "resource": ResourcesListChanged(),
}


class Changes:
    """One per gateway. `subscribe` gets an event for each list that has changed."""

    def __init__(self, fold: Toolfold) -> None:
        self._fold = fold
        self.bus = InMemorySubscriptionBus()
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
    """Tells its clients when one of its lists has changed."""

    def __init__(self, name: str, changes: Changes, **options: Any) -> None:
        super().__init__(name, on_subscriptions_listen=ListenHandler(changes.bus), **options)
        self._changes = changes
        self.add_notification_handler("notifications/initialized", types.NotificationParams, self._initialized)

    def create_initialization_options(
        self, notification_options: NotificationOptions | None = None, *more: Any, **options: Any
    ) -> InitializationOptions:
        announced = NotificationOptions(tools_changed=True, prompts_changed=True, resources_changed=True)
        return super().create_initialization_options(notification_options or announced, *more, **options)

    async def _initialized(self, ctx: ServerRequestContext[Any], _params: types.NotificationParams | None) -> None:
        """A client of the older era is ready. Over HTTP its announcements go by a stream, see `streamable`."""
        if ctx.request is not None:
            return
        self._changes.subscribe(lambda event: self._announce(ctx.session, event))

    def _announce(self, session: ServerSession, event: ServerEvent) -> None:
        if self.offers(event):
            self._changes.spawn(session.send_notification(event_to_notification(event, {})))

    def offers(self, event: ServerEvent) -> bool:
        """Whether it has the list that has changed."""
        return self.get_request_handler(METHODS[type(event)].split("/")[1] + "/list") is not None
