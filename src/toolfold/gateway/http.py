"""`toolfold serve --http`: streamable HTTP at /mcp, on loopback unless told otherwise."""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import socket
from typing import TYPE_CHECKING

from mcp.server.transport_security import TransportSecuritySettings
from starlette.responses import JSONResponse, PlainTextResponse

from toolfold.errors import ConfigError
from toolfold.gateway.connections import Connections
from toolfold.gateway.server import make_server
from toolfold.gateway.streamable import McpEndpoint
from toolfold.guards.context import LOCAL_CALLER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.types import ASGIApp, Receive, Scope, Send

    from toolfold.config.settings import CallerSettings
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
    ask_locally: AskLocally | None = None,
) -> None:
    """Serve until cancelled. `started` is called with the address. Off loopback a token is required.

    `ask_locally` is for clients that show no forms.
    """
    if not token and not is_loopback(host):
        raise ConfigError(
            f"{host} can be reached from other machines, so a token is required.",
            hint="Leave out --no-token, or set TOOLFOLD_TOKEN, and send `Authorization: Bearer …` from the client.",
        )
    sock = listen(host, port)
    bound = sock.getsockname()[1]
    server = make_server(fold, ask_locally=ask_locally)
    async with server.lifespan(server) as state:
        app = Authenticated(
            _Routes(McpEndpoint(server, _allowed_names(host, bound), state)), token, fold.settings.callers
        )
        async with Connections(app, sock):
            started(f"http://{f'[{host}]' if ':' in host else host}:{bound}/mcp")
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


def _allowed_names(host: str, port: int) -> TransportSecuritySettings | None:
    """The `Host` and `Origin` headers that are accepted; None is any."""
    if host in ("0.0.0.0", "::"):  # noqa: S104 - every name may lead here; the token is what protects
        return None
    names = _LOOPBACK_NAMES if is_loopback(host) else (f"[{host}]" if ":" in host else host, *_LOOPBACK_NAMES)
    return TransportSecuritySettings(
        allowed_hosts=[f"{name}:{port}" for name in names] + list(names),
        allowed_origins=[f"http://{name}:{port}" for name in names],
    )


class Authenticated:
    """Refuses every request without the owner's bearer token or that of a configured caller.

    `scope["state"]["caller"]` says whose it was.
    """

    def __init__(self, app: ASGIApp, token: str | None, callers: Mapping[str, CallerSettings] | None = None) -> None:
        self._app = app
        self._callers: dict[str, str] | None = None
        if token is not None:
            digest = _digest(token.encode())
            self._callers = {digest: f"token:{digest[:8]}"}
            self._callers |= {each.token_sha256: name for name, each in (callers or {}).items()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            connection = scope["state"].pop("connection")
            caller = self._caller(scope)
            if caller is None:
                await _refuse(scope, receive, send)
                return
            connection.prove()
            scope["state"]["caller"] = caller
            await self._app(scope, receive, send)
        except asyncio.CancelledError:
            # Only the end of the gateway cancels a request from outside, and then its connection is closed already.
            return

    def _caller(self, scope: Scope) -> str | None:
        if self._callers is None:
            return LOCAL_CALLER
        for name, value in scope["headers"]:
            if name == b"authorization":
                scheme, _, token = value.partition(b" ")
                # Comparing digests tells nothing about the token by the time it takes.
                return self._callers.get(_digest(token.strip())) if scheme.lower() == b"bearer" else None
        return None


def _digest(token: bytes) -> str:
    return hashlib.sha256(token).hexdigest()


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
