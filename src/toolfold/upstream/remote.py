"""Servers that are reached over HTTP: streamable HTTP by the SDK's own transport, and the older SSE."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from toolfold.config.settings import ServerConfig
from toolfold.upstream import tls
from toolfold.upstream.messages import Parser
from toolfold.upstream.serverlog import ServerLog
from toolfold.upstream.sse import EventReader, PostWriter

if TYPE_CHECKING:
    import httpx2

    from toolfold.upstream.auth.authorization import Authorization, AuthProblem

CONNECT_TIMEOUT = 30.0


class RefusedError(Exception):
    """The server answered the first request with an HTTP error."""

    def __init__(self, status: int | None) -> None:
        super().__init__(f"it answered with HTTP {status}")
        self.status = status


def needs_authorization(status: int | None) -> bool:
    return status in (401, 403)


class WatchedStream:
    """The SDK's read stream, with a callback for its end."""

    def __init__(self, inner: Any, on_end: Callable[[], None]) -> None:
        self._inner = inner
        self._on_end = on_end

    @property
    def last_context(self) -> Any:
        return getattr(self._inner, "last_context", None)

    @property
    def reason(self) -> str:
        return getattr(self._inner, "reason", "")

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
    """A connection over HTTP. `status` is the HTTP error of the last message sent, if it was one."""

    pid: int | None = None

    def __init__(self, authorization: Authorization | None = None) -> None:
        self._authorization = authorization
        self.reader: Any = None
        self.writer: Any = None
        self.status: int | None = None
        self._on_end: Callable[[], None] = lambda: None

    @property
    def auth_problem(self) -> AuthProblem | None:
        """What is known about a refusal beyond its status."""
        return self._authorization.problem if self._authorization is not None else None

    def set_streams(self, read: Any, write: Any) -> None:
        self.reader = WatchedStream(read, self._ended)
        self.writer = write

    def on_end(self, callback: Callable[[], None]) -> None:
        self._on_end = callback

    def _ended(self) -> None:
        self._on_end()

    async def on_response(self, response: httpx2.Response) -> None:
        if response.request.method == "POST":
            self.status = response.status_code if response.status_code >= 400 else None

    async def wait_for_exit(self) -> None:
        pass

    def reason(self) -> str:
        if needs_authorization(self.status):
            return f"refused the request with HTTP {self.status}: authorization is needed"
        if self.status is not None:
            return f"answered with HTTP {self.status}"
        return getattr(self.reader, "reason", "")

    def stderr_tail(self) -> str:
        return ""

    def probe_was_read(self) -> bool:
        return True


@asynccontextmanager
async def open_remote(
    config: ServerConfig, log: ServerLog, authorization: Authorization | None = None, *, limit: int
) -> AsyncGenerator[RemoteTransport]:
    """Connect to a server by its URL, with the tokens of its sign-in, if it has one."""
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    transport = RemoteTransport(authorization)
    # Reads wait without limit: each call has its own, and a stream of events may be silent for hours.
    async with httpx2.AsyncClient(
        headers=config.headers,
        auth=authorization.http_auth() if authorization is not None else None,
        timeout=httpx2.Timeout(CONNECT_TIMEOUT, read=None),
        event_hooks={"response": [transport.on_response]},
        verify=tls.context(),
    ) as client:
        if config.transport == "http":
            async with streamable_http_client(config.url, http_client=client, max_sse_event_size=limit) as (
                read,
                write,
            ):
                transport.set_streams(read, write)
                yield transport
            return
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
        async with client.stream("GET", config.url, headers=headers) as response:
            if response.status_code >= 300:
                raise RefusedError(response.status_code)
            events = aiter(httpx2.EventSource(response, max_event_size=limit))
            reader = EventReader(events, Parser(log.junk))
            transport.set_streams(reader, PostWriter(client, await reader.endpoint(config.url), config.call_timeout))
            yield transport
