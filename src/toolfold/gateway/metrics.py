"""`GET /metrics`, for Prometheus: who may read it, and the numbers as text."""

from __future__ import annotations

import asyncio
import importlib
from typing import TYPE_CHECKING

from starlette.responses import PlainTextResponse, Response

from toolfold.config.metrics import ANYONE, OWNER
from toolfold.errors import ConfigError
from toolfold.telemetry.metrics import Counts

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from starlette.types import Receive, Scope, Send

    from toolfold.fold import Toolfold

PATH = "/metrics"


class MetricsEndpoint:
    """The ASGI application at /metrics. It counts what happens in the fold from when it is made until `close`.

    `hosts` are the accepted `Host` headers (none: any). `loopback` is whether only this machine can reach it.
    """

    def __init__(self, fold: Toolfold, hosts: Collection[str], *, loopback: bool) -> None:
        settings = fold.settings
        self._readers = settings.metrics.readers
        self.is_open = ANYONE in self._readers
        """Whether it is to be reached without a token."""
        if self.is_open and not loopback:
            raise ConfigError(
                '`metrics.readers = "anyone"` is for gateways that only this machine can reach.',
                hint="Name a caller there, and make a token for it with `toolfold token`.",
            )
        self._fold = fold
        self._hosts = {host.encode() for host in hosts}
        self._counts = Counts(
            settings.callers, settings.servers, lambda server, tool: fold.catalog.shown_tool(server, tool) is not None
        )
        self.close: Callable[[], None] = fold.observers.add(self._counts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (await self._response(scope))(scope, receive, send)

    async def _response(self, scope: Scope) -> Response:
        if self._hosts and _header(scope, b"host") not in self._hosts:
            return PlainTextResponse("Invalid Host header", 421)
        if scope["method"] not in ("GET", "HEAD"):
            return Response(status_code=405, headers={"Allow": "GET, HEAD"})
        if self.is_open:
            scope["state"].pop("connection").prove()
        elif not self._may_read(scope["state"]["caller"], is_owner=scope["state"]["owner"]):
            return PlainTextResponse("Not one of `metrics.readers`", 403)
        # prometheus-client costs 14 MB and 80 ms, which only gateways that are scraped pay for.
        await asyncio.to_thread(importlib.import_module, "toolfold.gateway.exposition")
        from toolfold.gateway.exposition import exposition

        accept = _header(scope, b"accept").decode("latin-1")
        text, media_type = await exposition(self._fold, self._counts, accept)
        return Response(text, headers={"Content-Type": media_type, "Cache-Control": "no-store"})

    def _may_read(self, caller: str, *, is_owner: bool) -> bool:
        return OWNER in self._readers if is_owner else caller in self._readers


def _header(scope: Scope, wanted: bytes) -> bytes:
    return next((value for name, value in scope["headers"] if name == wanted), b"")
