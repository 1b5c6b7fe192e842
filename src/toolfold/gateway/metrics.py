"""`GET /metrics`, for Prometheus: who may read it, and the numbers as text."""

from __future__ import annotations

import asyncio
import importlib
from typing import TYPE_CHECKING

from starlette.responses import PlainTextResponse, Response

from toolfold.config.metrics import ANYONE, OWNER
from toolfold.errors import ConfigError
from toolfold.gateway.routes import header, site_refusal
from toolfold.telemetry.metrics import Metrics, TokenCounts

if TYPE_CHECKING:
    from collections.abc import Collection

    from starlette.types import Receive, Scope, Send

    from toolfold.fold import Toolfold
    from toolfold.gateway.routes import Routes


def add_metrics(routes: Routes, fold: Toolfold, hosts: Collection[str], *, loopback: bool) -> None:
    """Serve `/metrics`, unless the settings switch it off. The arguments are as for `MetricsEndpoint`."""
    if fold.settings.metrics.enabled:
        metrics = MetricsEndpoint(fold, hosts, loopback=loopback)
        routes.add("/metrics", metrics, who="anyone" if metrics.is_open else "scraper")


class MetricsEndpoint:
    """The ASGI application at /metrics. It counts what happens in the fold from when it is made.

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
                hint="Leave it out, and make a token for Prometheus: `toolfold token new prometheus --scraper`.",
            )
        self._fold = fold
        self._hosts = hosts
        self._counts = Metrics(
            settings.callers, settings.servers, lambda server, tool: fold.catalog.shown_tool(server, tool) is not None
        )
        self._tokens = TokenCounts(fold.ledger)
        self._one_at_a_time = asyncio.Lock()
        fold.observers.add(self._counts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (await self._response(scope))(scope, receive, send)

    async def _response(self, scope: Scope) -> Response:
        if (refusal := site_refusal(scope, self._hosts, ())) != "":
            return PlainTextResponse(refusal, 421)
        if scope["method"] not in ("GET", "HEAD"):
            return Response(status_code=405, headers={"Allow": "GET, HEAD"})
        state = scope["state"]
        # A connection that has shown no token stays unproven, so that it makes room for those of callers.
        is_reader = self.is_open or state["scraper"] or (OWNER if state["owner"] else state["caller"]) in self._readers
        if not is_reader:
            return PlainTextResponse("You are not one of `metrics.readers`.", 403)
        # Importing prometheus-client takes a tenth of a second, which only gateways that are scraped pay for.
        await asyncio.to_thread(importlib.import_module, "toolfold.gateway.exposition")
        from toolfold.gateway.exposition import exposition

        accept = (header(scope, b"accept") or b"").decode("latin-1")
        async with self._one_at_a_time:
            text, media_type = await exposition(self._fold, self._counts, self._tokens, accept)
        return Response(text, headers={"Content-Type": media_type, "Cache-Control": "no-store"})
