"""Streamable HTTP at /mcp: what a message must be in either protocol era, and who gets it."""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import mcp_types as types
import pydantic_core
from mcp.server.connection import Connection
from mcp.server.runner import ServerRunner, aclose_shielded
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER, check_accept_headers
from mcp.server.transport_security import TransportSecurityMiddleware, TransportSecuritySettings
from mcp.shared.inbound import (
    ERROR_CODE_HTTP_STATUS,
    MCP_PROTOCOL_VERSION_HEADER,
    InboundLadderRejection,
    classify_inbound_request,
    find_duplicated_routing_header,
    unsupported_protocol_version_rejection,
)
from mcp.shared.jsonrpc_dispatcher import cancelled_request_id_from_params
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response

from toolfold.gateway.changes import AnnouncingServer
from toolfold.gateway.exchange import Exchange, Session, json_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mcp.server.lowlevel import Server
    from mcp.server.subscriptions import ServerEvent
    from starlette.types import Receive, Scope, Send

    from toolfold.gateway.changes import Changes

_BODY_LIMIT = 4 * 1024**2
_BODY_TIMEOUT = 30.0
_SESSION_LIMIT = 1000


class McpEndpoint:
    """The ASGI application at /mcp.

    Sessions of the older era hold no more than what `initialize` agreed on. When there are too many, the one that was
    unused for longest is forgotten, and its client is told to initialize again.
    """

    def __init__(
        self,
        server: Server[Any],
        security: TransportSecuritySettings | None,
        lifespan_state: Any,
        by_caller: Mapping[str, Server[Any]] | None = None,
        changes: Changes | None = None,
    ) -> None:
        """`by_caller` are the callers who are offered something else than what `server` offers. `changes` are announced
        to clients of the older era that open a stream for them."""
        self._default = server
        self._by_caller = by_caller or {}
        self._security = TransportSecurityMiddleware(security)
        self._lifespan_state = lifespan_state
        self._changes = changes
        self._sessions: OrderedDict[str, Session] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        response = await self._security.validate_request(request, is_post=request.method == "POST")
        if response is None:
            response = await self._handle(request, send)
        if response is not None:
            await response(scope, receive, send)

    async def _handle(self, request: Request, send: Send) -> Response | None:
        """Answer through `send`, or return the response."""
        version = request.headers.get(MCP_PROTOCOL_VERSION_HEADER)
        older = version is None or version in HANDSHAKE_PROTOCOL_VERSIONS
        if request.method == "DELETE" and older:
            return await self._end_session(request)
        if request.method == "GET" and older and isinstance(server := self._server(request), AnnouncingServer):
            return await self._announce(request, server, send)
        if request.method != "POST":
            return Response(status_code=405, headers={"Allow": "POST, DELETE" if older else "POST"})
        if not all(check_accept_headers(request)):
            return _error(406, types.INVALID_REQUEST, "Client must accept application/json and text/event-stream")
        body = await _body(request)
        if isinstance(body, Response):
            return body
        try:
            message = pydantic_core.from_json(body)
        except ValueError:
            return _error(400, types.PARSE_ERROR, "Parse error")
        return await (self._take_older(request, message, send) if older else self._take(request, message, send))

    def _server(self, request: Request) -> Server[Any]:
        return self._by_caller.get(request.scope["state"].get("caller"), self._default)

    # 2026-07-28: every request stands alone

    async def _take(self, request: Request, body: Any, send: Send) -> Response | None:
        try:
            if isinstance(body, dict) and "id" not in body:
                types.JSONRPCNotification.model_validate(body)
                # None of them means anything: a request is cancelled by closing its connection.
                rejection = unsupported_protocol_version_rejection(request.headers[MCP_PROTOCOL_VERSION_HEADER])
                return Response(status_code=202) if rejection is None else _rejected(rejection, None)
            message = types.JSONRPCRequest.model_validate(body)
        except ValidationError:
            return _error(400, types.INVALID_REQUEST, "Body must be a single JSON-RPC request or notification object")
        duplicated = find_duplicated_routing_header(request.headers.items())
        if duplicated is not None:
            return _error(400, types.HEADER_MISMATCH, f"{duplicated} header appears more than once", message.id)
        # Headers that mirror parameters are not checked: no tool here declares one (`x-mcp-header`).
        route = classify_inbound_request({"method": message.method, "params": message.params}, headers=request.headers)
        if isinstance(route, InboundLadderRejection):
            return _rejected(route, message.id)
        exchange = Exchange(request, message, send)
        connection = Connection.from_envelope(route.protocol_version, route.client_info, route.client_capabilities)
        runner = ServerRunner(self._server(request), connection, self._lifespan_state)
        async with connection.exit_stack:
            await exchange.answer(runner.on_request(exchange, message.method, message.params))
        return None

    # 2025-11-25 and before: a request belongs to a session, which `initialize` begins

    async def _take_older(self, request: Request, body: Any, send: Send) -> Response | None:
        try:
            message = types.jsonrpc_message_adapter.validate_python(body, by_name=False)
        except ValidationError:
            return _error(400, types.INVALID_REQUEST, "Body must be a single JSON-RPC message")
        begins = isinstance(message, types.JSONRPCRequest) and message.method == "initialize"
        begins = begins and MCP_SESSION_ID_HEADER not in request.headers
        session = self._begin_session(request) if begins else self._session(request)
        if isinstance(session, Response):
            return session
        request.scope["state"]["subscriber"] = session.subscriber
        match message:
            case types.JSONRPCRequest():
                exchange = Exchange(request, message, send, session)
                if begins:
                    exchange.headers.append((MCP_SESSION_ID_HEADER.encode(), session.name.encode()))
                await exchange.answer(session.runner.on_request(exchange, message.method, message.params))
                session.watch_streams()
                return None
            case types.JSONRPCNotification():
                if message.method == "notifications/cancelled":
                    session.cancel(cancelled_request_id_from_params(message.params))
                await session.runner.on_notify(Exchange(request, None, send), message.method, message.params)
            case _:
                session.answered(message)
        return Response(status_code=202)

    def _begin_session(self, request: Request) -> Session:
        name = request.scope["state"].get("new_session") or secrets.token_hex(16)
        session = Session(name, request.scope["state"].get("caller"), self._server(request), self._lifespan_state)
        self._sessions[name] = session
        if len(self._sessions) > _SESSION_LIMIT:
            self._sessions.popitem(last=False)[1].close()
        return session

    def _session(self, request: Request) -> Session | Response:
        name = request.headers.get(MCP_SESSION_ID_HEADER)
        if name is None:
            return _error(400, types.INVALID_REQUEST, "Missing session ID")
        session = self._sessions.get(name)
        if session is None or session.caller != request.scope["state"].get("caller"):
            return _error(404, types.INVALID_REQUEST, "Session not found")
        self._sessions.move_to_end(name)
        return session

    async def _announce(self, request: Request, server: AnnouncingServer, send: Send) -> Response | None:
        """A stream for messages that belong to no request: what has changed. It ends with its session."""
        session = self._session(request)
        if isinstance(session, Response):
            return session
        assert self._changes is not None

        def announce(event: ServerEvent) -> None:
            if server.offers(event):
                session.outbox.put(event)

        unsubscribe = self._changes.subscribe(announce)
        stream = Exchange(request, None, send)
        session.streams.add(stream)
        session.watch_streams()
        try:
            await stream.announce(session.outbox)
        finally:
            session.streams.discard(stream)
            session.watch_streams()
            unsubscribe()
        return None

    async def _end_session(self, request: Request) -> Response:
        session = self._session(request)
        if isinstance(session, Response):
            return session
        del self._sessions[session.name]
        session.close()
        for exchange in list(session.exchanges.values()):
            exchange.cancel()
        for stream in list(session.streams):
            stream.cancel()
        await aclose_shielded(session.connection)
        return Response(status_code=200)


async def _body(request: Request) -> bytes | Response:
    """The whole body, within limits of size and time; otherwise the response that refuses it."""
    too_large = Response("Request body too large", status_code=413)
    if int(request.headers.get("content-length", "0")) > _BODY_LIMIT:
        return too_large
    body = bytearray()
    try:
        async with asyncio.timeout(_BODY_TIMEOUT):
            while len(body) <= _BODY_LIMIT:
                message = await request.receive()
                if message["type"] != "http.request":
                    return Response("Request body was cut off", status_code=400)
                body += message["body"]
                if not message["more_body"]:
                    return bytes(body)
    except TimeoutError:
        return Response("Request body timed out", status_code=408, headers={"connection": "close"})
    return too_large


def _rejected(rejection: InboundLadderRejection, request_id: types.RequestId | None) -> Response:
    status = ERROR_CODE_HTTP_STATUS.get(rejection.code, 200)
    return _error(status, rejection.code, rejection.message, request_id, rejection.data)


def _error(
    status: int, code: int, message: str, request_id: types.RequestId | None = None, data: Any = None
) -> Response:
    error = {"code": code, "message": message} | ({} if data is None else {"data": data})
    body = json_bytes({"jsonrpc": "2.0", "id": request_id, "error": error})
    return Response(body, status_code=status, media_type="application/json")
