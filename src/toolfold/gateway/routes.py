"""Which application answers a path over HTTP, and who may reach it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal

from starlette.responses import JSONResponse, PlainTextResponse

from toolfold.errors import InvalidRequest
from toolfold.gateway.callers import CONTEXT_HEADER, Callers, context_values

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from starlette.types import ASGIApp, Receive, Scope, Send

Who = Literal["anyone", "caller", "scraper"]
"""`caller` needs a valid token (the gateway's own, or a configured caller's). `scraper` is a caller, or one whose token
is good for nothing else."""

_REFUSED_BODY = 64 * 1024
"""Bytes of body that are read from a request without a valid token, so that its sender gets to read the refusal."""
_REFUSED_TIME = 10.0
_LATEST = 30.0
"""Seconds that a request waits for an application that is still being imported."""


class Routes:
    """The ASGI application of the gateway: a table of paths. Everything else is not found, and only callers learn that.

    An application for `anyone` finds the connection in `scope["state"]["connection"]`, and calls `prove()` on it when
    it has let the sender in by other means.
    """

    def __init__(self, callers: Callers) -> None:
        self._callers = callers
        self._exact: dict[str, ASGIApp] = {}
        self._below: dict[str, ASGIApp] = {}
        self._otherwise = Authenticated(PlainTextResponse("Not Found", 404), callers)

    def add(self, path: str, app: ASGIApp, *, who: Who = "caller") -> None:
        """`path` is exact, or ends with `/*`: then the path before it and all below. Of several, the longest wins."""
        if who != "anyone":
            app = Authenticated(app, self._callers, scrapers=who == "scraper")
        if path.endswith("/*"):
            self._below[path.removesuffix("/*")] = app
        else:
            self._exact[path] = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope["path"])(scope, receive, send)
        except asyncio.CancelledError:
            # Only the end of the gateway cancels a request from outside, and then its connection is closed already.
            return

    def _app(self, path: str) -> ASGIApp:
        if path in self._exact:
            return self._exact[path]
        while True:
            if path in self._below:
                return self._below[path]
            if not path:
                return self._otherwise
            path = path.rpartition("/")[0]


class Late:
    """An application that its first request imports and makes. Requests before `become` wait, within limits."""

    def __init__(self) -> None:
        self._maker: asyncio.Future[Callable[[], ASGIApp]] = asyncio.get_running_loop().create_future()
        self._making: asyncio.Task[ASGIApp] | None = None

    def become(self, make: Callable[[], ASGIApp]) -> None:
        """`make` returns the application. It is called once, in a thread."""
        self._maker.set_result(make)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app: ASGIApp
        if self._making is None:
            self._making = asyncio.create_task(self._make())
        try:
            async with asyncio.timeout(_LATEST):
                app = await asyncio.shield(self._making)
        except TimeoutError:
            body = _error("starting", "The gateway is still starting.", "Try again in a few seconds.")
            app = JSONResponse(body, 503, {"Retry-After": "5"})
        await app(scope, receive, send)

    async def _make(self) -> ASGIApp:
        return await asyncio.to_thread(await self._maker)


class Authenticated:
    """Refuses every request without the owner's bearer token or that of a configured caller.

    `scope["state"]` then says whose it was (`caller`, its `groups`, whether it is the `owner` or a `host`
    application), and in `context` the values that a host application sent in the header `Toolfold-Context`.
    """

    def __init__(self, app: ASGIApp, callers: Callers, *, scrapers: bool = False) -> None:
        """`scrapers`: let those in who may read metrics only."""
        self._app = app
        self._callers = callers
        self._scrapers = scrapers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            connection = scope["state"].pop("connection")
            caller = await self._callers.of(header(scope, b"authorization"))
            if caller is None:
                await _refuse(scope, receive, send)
                return
            connection.prove()
            if caller.scraper and not self._scrapers:
                body = _error("forbidden", "This token opens /metrics only.")
                await JSONResponse(body, 403)(scope, receive, send)
                return
            try:
                scope["state"] |= {
                    "caller": caller.name,
                    "groups": caller.groups,
                    "owner": caller.owner,
                    "host": caller.host,
                    "scraper": caller.scraper,
                    "context": context_values(header(scope, CONTEXT_HEADER), caller),
                }
            except InvalidRequest as error:
                body = _error(error.code, error.message, error.hint)
                await JSONResponse(body, 403 if not caller.host else 400)(scope, receive, send)
                return
            await self._app(scope, receive, send)
        except asyncio.CancelledError:
            # Only the end of the gateway cancels a request from outside, and then its connection is closed already.
            return


def header(scope: Scope, wanted: bytes) -> bytes | None:
    return next((value for name, value in scope["headers"] if name == wanted), None)


def site_refusal(scope: Scope, hosts: Collection[str], origins: Collection[str]) -> str:
    """Why a request may come from a page of another site, or by a name that is not ours; empty where it does not.

    Without `hosts` any name may lead here, and only what the browser itself says of the request counts.
    """
    named = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
    if hosts and (len(named) != 1 or named[0].lower() not in map(str.lower, hosts)):
        return "This gateway does not serve that Host."
    origin = header(scope, b"origin")
    own = origins or [f"http://{name}" for name in named] + [f"https://{name}" for name in named]
    if origin is not None and origin.decode("latin-1") not in own:
        return "Requests from pages of other sites are refused."
    if header(scope, b"sec-fetch-site") in (b"cross-site", b"same-site"):
        return "Requests from pages of other sites are refused."
    return ""


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
    body = _error("unauthorized", "a valid bearer token is required", "Send the header `Authorization: Bearer TOKEN`.")
    await JSONResponse(body, 401, headers)(scope, receive, send)


def _error(code: str, message: str, hint: str = "") -> dict[str, dict[str, str]]:
    return {"error": {"code": code, "message": message, "hint": hint}}
