"""The older HTTP transport: one long stream of events from the server, and a POST for each message to it.

The SDK's own transport ends the connection at the first event over 1 MiB, and has no setting for that.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Self
from urllib.parse import urljoin, urlsplit

from toolfold.upstream.messages import Parser
from toolfold.upstream.stdio import Stream

if TYPE_CHECKING:
    import httpx2
    from mcp.shared.message import SessionMessage


class NoEndpointError(Exception):
    """The stream of events is not that of an MCP server."""


class EventReader(Stream):
    """The server's events as messages. `reason` says why they ended."""

    def __init__(self, events: AsyncIterator[httpx2.ServerSentEvent], parser: Parser) -> None:
        self._events = events
        self._parser = parser
        self._messages: deque[SessionMessage] = deque()
        self.reason = ""

    async def endpoint(self, url: str) -> str:
        """The URL to send messages to. Only the same origin is accepted, because our headers hold its credentials."""
        async for event in self._events:
            if event.event == "endpoint":
                target = urljoin(url, event.data)
                if urlsplit(target)[:2] != urlsplit(url)[:2]:
                    raise NoEndpointError(f"it wants messages to be sent to another origin, {target}")
                return target
        raise NoEndpointError("its stream ended before it said where to send messages")

    async def receive(self) -> SessionMessage:
        return await self.__anext__()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage:
        import httpx2

        while not self._messages:
            try:
                event = await anext(self._events)
            except StopAsyncIteration:
                self.reason = "closed the connection"
            except (httpx2.HTTPError, httpx2.StreamError, httpx2.SSEError) as error:
                self.reason = f"broke the connection ({type(error).__name__}: {error})"
            else:
                if event.event == "message" and event.data:
                    self._messages.extend(self._parser.parse(event.data.encode("utf-8", "replace")))
                continue
            raise StopAsyncIteration
        return self._messages.popleft()


class PostWriter(Stream):
    """Sends each message with a request of its own, which may take `timeout` seconds."""

    def __init__(self, client: httpx2.AsyncClient, endpoint: str, timeout: float) -> None:
        self._client = client
        self._endpoint = endpoint
        self._timeout = timeout

    async def send(self, item: SessionMessage) -> None:
        import anyio
        import httpx2

        content = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        headers = {"content-type": "application/json"}
        try:
            async with asyncio.timeout(self._timeout):
                response = await self._client.post(self._endpoint, content=content, headers=headers)
            response.raise_for_status()
        except httpx2.HTTPError as error:
            raise anyio.BrokenResourceError from error
