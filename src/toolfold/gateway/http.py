"""`toolfold serve --http`: streamable HTTP at /mcp, on loopback unless told otherwise."""

from __future__ import annotations

import asyncio
import importlib
import ipaddress
import socket
from contextlib import AsyncExitStack, contextmanager
from typing import TYPE_CHECKING

from toolfold.errors import ConfigError
from toolfold.gateway.callers import Callers
from toolfold.gateway.connections import Connections
from toolfold.gateway.early import EarlyEndpoint
from toolfold.gateway.greeting import Greeting
from toolfold.gateway.health import Readiness, alive
from toolfold.gateway.metrics import add_metrics
from toolfold.gateway.routes import Late, Routes
from toolfold.gateway.texts import only_reads
from toolfold.gateway.traced import traced
from toolfold.telemetry.activity import Activity

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping
    from contextlib import AbstractAsyncContextManager

    from starlette.types import ASGIApp

    from toolfold.config.callers import Mode
    from toolfold.fold import Toolfold
    from toolfold.gateway.dashboard.door import Door
    from toolfold.gateway.runs import AskLocally
    from toolfold.gateway.streamable import McpEndpoint

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
    fold: Toolfold,
    host: str,
    port: int,
    *,
    token: str | None,
    started: Callable[[str], None],
    mode: Mode | None = None,
    ask_locally: AskLocally | None = None,
    prepared: AbstractAsyncContextManager[None] | None = None,
    dashboard: Door | None = None,
) -> None:
    """Serve until cancelled. `started` is called with the address. Off loopback a token is required.

    `mode` is for callers of whom the settings do not say another. `ask_locally` is for clients that show no forms.
    `dashboard` is served as well, off loopback only where the settings say so.
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
    modes: dict[str, Mode] = {name: each.mode for name, each in fold.settings.callers.items() if each.mode is not None}
    early = EarlyEndpoint(hosts, lambda caller: _greeting(fold, modes.get(caller, usual)))
    callers = Callers(fold.settings, token)
    routes = Routes(callers)
    routes.add("/mcp", traced(early))
    routes.add("/mcp/", traced(early))
    rest = Late()
    routes.add("/api/v1/*", traced(rest))
    routes.add("/healthz", alive, who="anyone")
    readiness = Readiness(fold, callers, programs={usual, *modes.values()} != {"direct"})
    routes.add("/readyz", readiness, who="anyone")
    add_metrics(routes, fold, hosts, loopback=is_loopback(host))
    url = f"http://{f'[{host}]' if ':' in host else host}:{bound}"
    if dashboard is not None and (is_loopback(host) or fold.settings.dashboard == "on"):
        dashboard.serve_at(
            url if names else f"http://127.0.0.1:{bound}", bound, hosts, own_only=fold.settings.dashboard != "on"
        )
        routes.add("/", dashboard, who="anyone")
        routes.add("/dashboard/*", dashboard, who="anyone")
    async with AsyncExitStack() as stack, Connections(routes, sock):
        activity = dashboard.activity if dashboard is not None else stack.enter_context(_activity(fold))
        stack.push_async_callback(readiness.close)
        started(f"{url}/mcp")
        for module in ("streamable", "server"):
            await asyncio.to_thread(importlib.import_module, f"toolfold.gateway.{module}")
        origins = [f"http://{name}:{bound}" for name in names]
        if prepared is not None:
            await stack.enter_async_context(prepared)
        await early.become(await _mcp(fold, stack, usual, modes, ask_locally, hosts if names else None, origins))

        def make_rest() -> ASGIApp:
            from toolfold.gateway.rest.api import make_api

            return make_api(fold, activity, ask_locally, lambda caller: modes.get(caller, usual), hosts, origins)

        rest.become(make_rest)
        await asyncio.Event().wait()


def _greeting(fold: Toolfold, mode: Mode) -> Greeting | None:
    """What is known before anything is listed. What other modes offer only the catalog knows."""
    is_plain = mode == "code" and not fold.settings.expose
    return Greeting(read_only=only_reads(fold.settings)) if is_plain else None


async def _mcp(
    fold: Toolfold,
    stack: AsyncExitStack,
    usual: Mode,
    modes: Mapping[str, Mode],
    ask_locally: AskLocally | None,
    hosts: list[str] | None,
    origins: list[str],
) -> McpEndpoint:
    """What answers at /mcp: a server for each mode that callers have."""
    from mcp.server.transport_security import TransportSecuritySettings

    from toolfold.gateway.changes import Changes
    from toolfold.gateway.server import make_server
    from toolfold.gateway.streamable import McpEndpoint

    security = None if hosts is None else TransportSecuritySettings(allowed_hosts=hosts, allowed_origins=origins)
    changes = Changes(fold)
    used: set[Mode] = {usual, *modes.values()}
    servers = {each: make_server(fold, mode=each, ask_locally=ask_locally, changes=changes) for each in used}
    server = servers[usual]
    state = await stack.enter_async_context(server.lifespan(server))
    return McpEndpoint(server, security, state, {name: servers[each] for name, each in modes.items()}, changes)


@contextmanager
def _activity(fold: Toolfold) -> Generator[Activity]:
    activity = Activity()
    forget = fold.observers.add(activity)
    try:
        yield activity
    finally:
        forget()
        activity.close()


def listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The loop switches Nagle's algorithm off only where the protocol is named; with it, answers come 40 ms late.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        hint = "Choose another address or port; port 0 takes a free one."
        raise ConfigError(f"Cannot listen on {host}:{port}: {error.strerror}.", hint=hint) from None
    sock.listen(128)
    return sock


def _allowed_names(host: str) -> list[str]:
    """The names by which clients may call us, in their `Host` and `Origin` headers; none is any."""
    if host in ("0.0.0.0", "::"):  # noqa: S104 - every name may lead here; the token is what protects
        return []
    own = [] if is_loopback(host) else [f"[{host}]" if ":" in host else host]
    return [*own, *_LOOPBACK_NAMES]
