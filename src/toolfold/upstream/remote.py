"""Servers that are reached over HTTP: streamable HTTP and the older SSE, by the SDK's own transports."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from toolfold.config.settings import ServerConfig

if TYPE_CHECKING:
    import httpx2

CONNECT_TIMEOUT = 30.0


class WatchedStream:
    """The SDK's read stream, which tells when it is over."""

    def __init__(self, inner: Any, on_end: Callable[[], None]) -> None:
        self._inner = inner
        self._on_end = on_end

    @property
    def last_context(self) -> Any:
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> Any:
        return await self._inner.receive()

    async def aclose(self) -> None:
        await self._inner.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._inner.__anext__()
        except StopAsyncIteration:
            self._on_end()
            raise

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._inner.__aexit__(kind, error, trace)


class RemoteTransport:
    """A connection over HTTP and the last refusal that the server answered with."""

    pid: int | None = None

    def __init__(self, url: str) -> None:
        self._url = url
        self.reader: Any = None
        self.writer: Any = None
        self.status: int | None = None
        self._on_end: Callable[[], None] = lambda: None

    def when_over(self, tell: Callable[[], None]) -> None:
        self._on_end = tell

    def _over(self) -> None:
        self._on_end()

    def carry(self, read: Any, write: Any) -> None:
        self.reader = WatchedStream(read, self._over)
        self.writer = write

    async def saw(self, response: httpx2.Response) -> None:
        if response.status_code >= 400:
            self.status = response.status_code

    @property
    def needs_authorization(self) -> bool:
        return self.status in (401, 403)

    async def explained(self) -> None:
        pass

    def reason(self) -> str:
        if self.needs_authorization:
            return f"refused the request with HTTP {self.status}: authorization is needed"
        if self.status is not None:
            return f"answered with HTTP {self.status}"
        return "closed the connection"

    def last_words(self) -> str:
        return ""

    def probe_was_read(self) -> bool:
        return True


@asynccontextmanager
async def open_remote(config: ServerConfig, *, limit: int) -> AsyncGenerator[RemoteTransport]:
    """Connect to a server by its URL. Nothing is sent before the handshake, so a wrong URL shows there."""
    import httpx2
    from mcp.client.sse import sse_client
    from mcp.client.streamable_http import streamable_http_client

    transport = RemoteTransport(config.url)

    def client(
        headers: dict[str, Any] | None = None, timeout: httpx2.Timeout | None = None, auth: httpx2.Auth | None = None
    ) -> httpx2.AsyncClient:
        # Reads wait without limit: each call has its own, and a stream of events may be silent for hours.
        return httpx2.AsyncClient(
            headers={**config.headers, **(headers or {})},
            timeout=httpx2.Timeout(CONNECT_TIMEOUT, read=None),
            auth=auth,
            event_hooks={"response": [transport.saw]},
        )

    if config.transport == "sse":
        async with sse_client(config.url, httpx_client_factory=client) as (read, write):
            transport.carry(read, write)
            yield transport
        return
    async with (
        client() as http,
        streamable_http_client(config.url, http_client=http, max_sse_event_size=limit) as (read, write),
    ):
        transport.carry(read, write)
        yield transport
