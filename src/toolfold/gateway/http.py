"""`toolfold serve --http`: streamable HTTP at /mcp, on loopback unless told otherwise."""

from __future__ import annotations

import asyncio
import importlib
import ipaddress
import socket
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from starlette.responses import JSONResponse, PlainTextResponse

from toolfold.errors import ConfigError, InvalidRequest
from toolfold.gateway.callers import CONTEXT_HEADER, Callers, context_values
from toolfold.gateway.connections import Connections
from toolfold.gateway.early import EarlyEndpoint
from toolfold.gateway.greeting import Greeting
from toolfold.gateway.texts import only_reads

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from starlette.types import ASGIApp, Receive, Scope, Send

    from toolfold.config.callers import Mode
    from toolfold.fold import Toolfold
    from toolfold.gateway.runs import AskLocally

_LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")
_PATHS = ("/mcp", "/mcp/")
_REFUSED_BODY = 64 * 1024
"""Bytes of body that are read from a request without a valid token, so that its sender gets to read the refusal."""
_REFUSED_TIME = 10.0


def parse_address(text: str) -> tuple[str, int]:
    """`8080`, `:8080`, `127.0.0.1:8080`, `[::1]:8080` or `HOST:PORT`; port 0 lets the system choose."""
    host, _, port = text.rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    if not port.isdigit() or int(port) > 65535:
        raise ConfigError(f"{text!r} is not HOST:PORT.", hint="For example: --http 127.0.0.1:8484")
    return host, int(port)


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


async def serve_http(
    fold: Toolfold,
    host: str,
    port: int,
    *,
    token: str | None,
    started: Callable[[str], None],
    mode: Mode | None = None,
    ask_locally: AskLocally | None = None,
    prepared: AbstractAsyncContextManager[None] | None = None,
) -> None:
    """Serve until cancelled. `started` is called with the address. Off loopback a token is required.

    `mode` is for callers of whom the settings do not say another. `ask_locally` is for clients that show no forms.
    `prepared` is entered when everything is imported: first questions are answered before that.
    """
    if not token and not is_loopback(host):
        raise ConfigError(
            f"{host} can be reached from other machines, so a token is required.",
            hint="Leave out --no-token, or set TOOLFOLD_TOKEN, and send `Authorization: Bearer …` from the client.",
        )
    sock = listen(host, port)
    bound = sock.getsockname()[1]
    names = _allowed_names(host)
    hosts = [f"{name}:{bound}" for name in names] + names
    usual: Mode = mode or fold.settings.mode
    fold.ledger.mode = usual
    modes: dict[str, Mode] = {name: each.mode for name, each in fold.settings.callers.items() if each.mode is not None}

    def greet(caller: str) -> Greeting | None:
        # What other modes offer only the catalog knows.
        is_plain = modes.get(caller, usual) == "code" and not fold.settings.expose
        return Greeting(read_only=only_reads(fold.settings)) if is_plain else None

    early = EarlyEndpoint(hosts, greet)
    app = Authenticated(_Routes(early), Callers(fold.settings, token))
    async with AsyncExitStack() as stack, Connections(app, sock):
        started(f"http://{f'[{host}]' if ':' in host else host}:{bound}/mcp")
        await asyncio.to_thread(importlib.import_module, "toolfold.gateway.streamable")
        from mcp.server.transport_security import TransportSecuritySettings

        from toolfold.gateway.changes import Changes
        from toolfold.gateway.server import make_server
        from toolfold.gateway.streamable import McpEndpoint

        origins = [f"http://{name}:{bound}" for name in names]
        security = TransportSecuritySettings(allowed_hosts=hosts, allowed_origins=origins) if names else None
        changes = Changes(fold)
        used: set[Mode] = {usual, *modes.values()}
        servers = {each: make_server(fold, mode=each, ask_locally=ask_locally, changes=changes) for each in used}
        if prepared is not None:
            await stack.enter_async_context(prepared)
        server = servers[usual]
        state = await stack.enter_async_context(server.lifespan(server))
        by_caller = {name: servers[each] for name, each in modes.items()}
        await early.become(McpEndpoint(server, security, state, by_caller, changes))
        await asyncio.Event().wait()


def listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The loop switches Nagle's algorithm off only where the protocol is named; with it, answers come 40 ms late.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        hint = "Choose another port, or 0 for any free one."
        raise ConfigError(f"Cannot listen on {host}:{port}: {error.strerror}.", hint=hint) from None
    sock.listen(128)
    return sock


def _allowed_names(host: str) -> list[str]:
    """The names by which clients may call us, in their `Host` and `Origin` headers; none is any."""
    if host in ("0.0.0.0", "::"):  # noqa: S104 - every name may lead here; the token is what protects
        return []
    own = [] if is_loopback(host) else [f"[{host}]" if ":" in host else host]
    return [*own, *_LOOPBACK_NAMES]


class Authenticated:
    """Refuses every request without the owner's bearer token or that of a configured caller.

    `scope["state"]` then says whose it was (`caller` and its `groups`), and in `context` the values that a host
    application gave with it, in the header `Toolfold-Context`.
    """

    def __init__(self, app: ASGIApp, callers: Callers) -> None:
        self._app = app
        self._callers = callers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            connection = scope["state"].pop("connection")
            caller = await self._callers.of(_header(scope, b"authorization"))
            if caller is None:
                await _refuse(scope, receive, send)
                return
            connection.prove()
            try:
                scope["state"] |= {
                    "caller": caller.name,
                    "groups": caller.groups,
                    "context": context_values(_header(scope, CONTEXT_HEADER), caller),
                }
            except InvalidRequest as error:
                await JSONResponse({"error": str(error)}, 403 if not caller.host else 400)(scope, receive, send)
                return
            await self._app(scope, receive, send)
        except asyncio.CancelledError:
            # Only the end of the gateway cancels a request from outside, and then its connection is closed already.
            return


def _header(scope: Scope, wanted: bytes) -> bytes | None:
    return next((value for name, value in scope["headers"] if name == wanted), None)


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:
    received = 0
    try:
        async with asyncio.timeout(_REFUSED_TIME):
            while received <= _REFUSED_BODY:
                message = await receive()
                received += len(message.get("body", b""))
                if not message.get("more_body", False):
                    break
    except TimeoutError:
        pass
    headers = {"WWW-Authenticate": "Bearer", "Connection": "close"}
    await JSONResponse({"error": "a valid bearer token is required"}, 401, headers)(scope, receive, send)


class _Routes:
    def __init__(self, mcp: ASGIApp) -> None:
        self._mcp = mcp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._mcp if scope["path"] in _PATHS else PlainTextResponse("Not Found", 404)
        await app(scope, receive, send)
