"""One request over HTTP and its answer, between the SDK's kernel and the ASGI server.

A request is answered by the task that read it: with one JSON body if its handler sent nothing on the way, otherwise
with an event stream that begins at the first message. The SDK's own transport starts up to five tasks and three queues
for a request, and streams every answer of the older era; that costs several times as much as a run in a live session.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
from typing import TYPE_CHECKING, Any

import anyio
import mcp_types as types
from mcp.server.connection import Connection
from mcp.server.runner import ServerRunner
from mcp.shared.dispatcher import coerce_request_id
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp.shared.inbound import ERROR_CODE_HTTP_STATUS
from mcp.shared.jsonrpc_dispatcher import handler_exception_to_error_data, progress_token_from_params
from mcp.shared.message import ServerMessageMetadata
from mcp.shared.transport_context import TransportContext

from toolfold.gateway.changes import Outbox, notification
from toolfold.gateway.subscriptions import Subscriber

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    from mcp.server.lowlevel import Server
    from mcp.shared.dispatcher import CallOptions
    from starlette.requests import Request
    from starlette.types import Send

_PING_INTERVAL = 15.0
"""Seconds of silence after which a comment is sent, so that no proxy takes the request for dead."""
_WITHDRAWAL_TIMEOUT = 1.0
_WITHOUT_STREAM = 300.0
"""Seconds in which a client that lost its stream for announcements may open another one."""
_REQUEST_CANCELLED = -32800
_EVENT_STREAM = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]

_log = logging.getLogger(__name__)


def json_bytes(message: dict[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode()


class Exchange:
    """One message of a client and, if it is a request, its answer. To the SDK's kernel it is the `DispatchContext`."""

    def __init__(
        self, request: Request, message: types.JSONRPCRequest | None, send: Send, session: Session | None = None
    ) -> None:
        self.request_id = None if message is None else message.id
        self.message_metadata = ServerMessageMetadata(request_context=request)
        self.transport = TransportContext(
            kind="streamable-http", can_send_request=session is not None, headers=request.headers
        )
        self.cancel_requested = anyio.Event()
        self.headers: list[tuple[bytes, bytes]] = []
        """Headers of the response, beside those of its kind."""
        self._progress_token = None if message is None else progress_token_from_params(message.params)
        self._receive = request.receive
        self._state = request.state
        self._send = send
        self._session = session
        self._handler: asyncio.Task[Any] | None = None
        self._streaming = False
        self._writing = asyncio.Lock()

    # The handler's side

    @property
    def can_send_request(self) -> bool:
        return self._session is not None and self._handler is not None

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        if self._session is None or self._handler is None:
            raise NoBackChannelError(method)
        return await self._session.ask(self, method, params, (opts or {}).get("timeout"))

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        if self._handler is not None:
            await self.emit({"method": method, "params": params})

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        if self._progress_token is not None:
            told = {"progressToken": self._progress_token, "progress": progress, "total": total, "message": message}
            await self.notify("notifications/progress", {key: told[key] for key in told if told[key] is not None})

    # The client's side

    async def answer(self, work: Awaitable[dict[str, Any]]) -> None:
        """Wait for the handler's work and send what it returned or raised."""
        assert self.request_id is not None
        key = coerce_request_id(self.request_id)
        self._handler = asyncio.current_task()
        assert self._handler is not None
        if self._session is not None:
            self._session.exchanges[key] = self
        watching = asyncio.create_task(self._watch())
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": self.request_id}
        try:
            answer["result"] = await work
        except asyncio.CancelledError:
            if not self.cancel_requested.is_set():
                raise
            self._handler.uncancel()
            answer["error"] = {"code": _REQUEST_CANCELLED, "message": "Request cancelled"}
        except Exception as error:
            data = handler_exception_to_error_data(error)
            if data is None:
                _log.exception("A request handler failed")
                data = types.ErrorData(code=types.INTERNAL_ERROR, message="Internal server error")
            answer["error"] = data.model_dump(mode="json", by_alias=True, exclude_none=True)
        finally:
            self._handler = None
            watching.cancel()
            if self._session is not None and self._session.exchanges.get(key) is self:
                del self._session.exchanges[key]
        await self._finish(answer)

    async def announce(self, outbox: Outbox) -> None:
        """Send what comes, as notifications, until the client leaves or `cancel` is called."""
        self._handler = asyncio.current_task()
        watching = asyncio.create_task(self._watch())
        try:
            await self._stream(b": listening\r\n\r\n")
            while True:
                await self.emit(notification(await outbox.get()))
        except asyncio.CancelledError:
            if not self.cancel_requested.is_set():
                raise
        finally:
            self._handler = None
            watching.cancel()
        await self._send({"type": "http.response.body", "body": b""})

    def cancel(self) -> None:
        if self._handler is not None:
            self.cancel_requested.set()
            self._handler.cancel()

    async def emit(self, message: Mapping[str, Any]) -> None:
        """Send a message of ours ahead of the answer."""
        body = {"jsonrpc": "2.0", **{key: value for key, value in message.items() if value is not None}}
        await self._stream(_event(body))

    async def _watch(self) -> None:
        """Notice that the client left, and send a sign of life when nothing was sent for long."""
        while True:
            try:
                async with asyncio.timeout(_PING_INTERVAL):
                    message = await self._receive()
            except TimeoutError:
                await self._stream(b": ping\r\n\r\n")
                continue
            if message["type"] == "http.disconnect":
                on_disconnect = getattr(self._state, "on_disconnect", None)
                if on_disconnect is not None:
                    on_disconnect()  # the handler decides
                elif self._session is None:
                    # In the older era a lost connection means nothing: the client cancels with a notification.
                    self.cancel()
                return

    async def _stream(self, event: bytes) -> None:
        async with self._writing:
            if not self._streaming:
                headers = _EVENT_STREAM + self.headers
                await self._send({"type": "http.response.start", "status": 200, "headers": headers})
                self._streaming = True
            await self._send({"type": "http.response.body", "body": event, "more_body": True})

    async def _finish(self, answer: dict[str, Any]) -> None:
        async with self._writing:  # a sign of life may be on its way
            if self._streaming:
                await self._send({"type": "http.response.body", "body": _event(answer)})
                return
        status = 200
        if self._session is None and "error" in answer:
            status = ERROR_CODE_HTTP_STATUS.get(answer["error"]["code"], 200)
        body = json_bytes(answer)
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), *self.headers]
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})


class Session:
    """A client of the older era: what it agreed on, its requests under way, and the questions put to it.

    It is the connection's own channel for the SDK as well, which leads nowhere: messages go along with a request.
    """

    def __init__(self, name: str, caller: str | None, server: Server[Any], lifespan_state: Any) -> None:
        self.name = name
        self.outbox = Outbox()
        """Announcements that wait for a stream."""
        self.subscriber = Subscriber(self.outbox.put)
        self._leaving: asyncio.TimerHandle | None = None
        self.caller = caller
        self.connection = Connection.for_loop(self, session_id=name)
        self.runner = ServerRunner(server, self.connection, lifespan_state)
        self.exchanges: dict[types.RequestId, Exchange] = {}
        self.streams: set[Exchange] = set()
        """Those that take announcements."""
        self._questions: dict[types.RequestId, asyncio.Future[dict[str, Any]]] = {}
        self._numbers = itertools.count(1)

    def watch_streams(self) -> None:
        """Subscriptions end when for a while no stream was open that could take their updates."""
        if self._leaving is not None:
            self._leaving.cancel()
            self._leaving = None
        if not self.streams and len(self.subscriber):
            self._leaving = asyncio.get_running_loop().call_later(_WITHOUT_STREAM, self.subscriber.close)

    def close(self) -> None:
        if self._leaving is not None:
            self._leaving.cancel()
        self.subscriber.close()

    def cancel(self, request_id: types.RequestId | None) -> None:
        if request_id is not None and (exchange := self.exchanges.get(coerce_request_id(request_id))):
            exchange.cancel()

    async def ask(
        self, exchange: Exchange, method: str, params: Mapping[str, Any] | None, timeout: float | None
    ) -> dict[str, Any]:
        """Put a question to the client on the stream of one of its requests; it answers by a POST of its own."""
        number = next(self._numbers)
        answer = self._questions[number] = asyncio.get_running_loop().create_future()
        try:
            await exchange.emit({"id": number, "method": method, "params": params})
            async with asyncio.timeout(timeout):
                return await answer
        except TimeoutError:
            await exchange.notify("notifications/cancelled", {"requestId": number, "reason": "timed out"})
            raise MCPError(types.REQUEST_TIMEOUT, f"The client did not answer {method} in time") from None
        except asyncio.CancelledError:
            # The client takes its form away. It may be that it does not read any more.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_WITHDRAWAL_TIMEOUT):
                    await exchange.notify("notifications/cancelled", {"requestId": number, "reason": "withdrawn"})
            raise
        finally:
            del self._questions[number]

    def answered(self, message: types.JSONRPCResponse | types.JSONRPCError) -> None:
        question = self._questions.get(coerce_request_id(message.id)) if message.id is not None else None
        if question is None or question.done():
            return
        if isinstance(message, types.JSONRPCError):
            question.set_exception(MCPError.from_error_data(message.error))
        else:
            question.set_result(message.result)

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        raise NoBackChannelError(method)

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        _log.debug("Dropped %s: it belongs to no request", method)


def _event(message: dict[str, Any]) -> bytes:
    return b"event: message\r\ndata: " + json_bytes(message) + b"\r\n\r\n"
