"""`toolfold serve --http`: streamable HTTP at /mcp, on loopback unless told otherwise."""

from __future__ import annotations

import hmac
import ipaddress
import socket
from typing import TYPE_CHECKING

import uvicorn
from mcp.server.transport_security import TransportSecuritySettings
from starlette.responses import JSONResponse

from toolfold.errors import ConfigError
from toolfold.gateway.server import make_server

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Receive, Scope, Send

    from toolfold.fold import Toolfold

_LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")


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
    fold: Toolfold, host: str, port: int, *, token: str | None, started: Callable[[str], None]
) -> None:
    """Serve until stopped. `started` hears the address. Off loopback every request must carry the token."""
    loopback = is_loopback(host)
    if not loopback and not token:
        raise ConfigError(
            f"{host} can be reached from other machines, so a token is required.",
            hint="Set TOOLFOLD_TOKEN or pass --token, and send `Authorization: Bearer …` from the client.",
        )
    sock = _bind(host, port)
    bound = sock.getsockname()[1]
    names = _LOOPBACK_NAMES if loopback else (host if ":" not in host else f"[{host}]", *_LOOPBACK_NAMES)
    app: ASGIApp = make_server(fold).streamable_http_app(
        host=host,
        transport_security=None
        if host in ("0.0.0.0", "::")  # noqa: S104 - every name is allowed there; the token is what protects
        else TransportSecuritySettings(
            allowed_hosts=[f"{name}:{bound}" for name in names] + list(names),
            allowed_origins=[f"http://{name}:{bound}" for name in names],
        ),
    )
    if token:
        app = _RequireToken(app, token)
    config = uvicorn.Config(app, log_level="warning", access_log=False, lifespan="on", timeout_graceful_shutdown=3)
    server = uvicorn.Server(config)
    started(f"http://{f'[{host}]' if ':' in host else host}:{bound}/mcp")
    await server.serve(sockets=[sock])


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        hint = "Choose another port, or 0 for any free one."
        raise ConfigError(f"Cannot listen on {host}:{port}: {error.strerror}.", hint=hint) from None
    sock.listen(128)
    return sock


class _RequireToken:
    """Refuses every request without the bearer token; compares in constant time."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            given = dict(scope["headers"]).get(b"authorization", b"")
            if not hmac.compare_digest(given, self._expected):
                refusal = JSONResponse(
                    {"error": "a valid bearer token is required"}, 401, {"WWW-Authenticate": "Bearer"}
                )
                await refusal(scope, receive, send)
                return
        await self._app(scope, receive, send)
