"""`/healthz` and `/readyz`, for what supervises the gateway. Without a token they say yes or no, and nothing more."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse

from toolfold.errors import ToolfoldError
from toolfold.gateway.routes import header

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from toolfold.fold import Toolfold
    from toolfold.gateway.callers import Callers

_RETRY = 10.0
"""Seconds between two attempts to start a sandbox that could not be."""
_HEADERS = {"Cache-Control": "no-store"}


async def alive(scope: Scope, receive: Receive, send: Send) -> None:
    await _answered(scope, {"alive": True})(scope, receive, send)


class Readiness:
    """Whether programs can run: the sandbox is there, each server has had a chance to say what it offers, and the
    audit log, if there is one, can be written.

    Asking it tries again what has failed, so that an idle gateway recovers.
    """

    def __init__(self, fold: Toolfold, callers: Callers, *, programs: bool) -> None:
        """`programs` is whether any can run here at all."""
        self._fold = fold
        self._callers = callers
        self._programs = programs and fold.settings.enabled
        self._starting: asyncio.Task[None] | None = None
        self._tried = 0.0
        self._problem = ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body, status = await self._state()
        if await self._callers.of(header(scope, b"authorization")) is None:
            body = {"ready": body["ready"]}
        await _answered(scope, body, status)(scope, receive, send)

    async def close(self) -> None:
        if self._starting is not None:
            self._starting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._starting

    async def _state(self) -> tuple[dict[str, Any], int]:
        states = self._fold.roster.states().values()
        counts: dict[str, int] = {}
        for each in states:
            counts[each.state] = counts.get(each.state, 0) + 1
        unheard = any(each.state in ("idle", "starting") and each.error is None for each in states)
        sandbox = "not needed"
        if self._programs:
            sandbox = (await self._fold.choice()).backend.name if self._fold.pool is not None else self._start()
        body: dict[str, Any] = {"sandbox": sandbox, "servers": counts}
        if unrecorded := await self._fold.audit_problem():
            body["audit"] = unrecorded
        ready = not unheard and not unrecorded and (not self._programs or self._fold.pool is not None)
        return {"ready": ready, **body}, 200 if ready else 503

    def _start(self) -> str:
        now = asyncio.get_running_loop().time()
        if (self._starting is None or self._starting.done()) and (not self._tried or now - self._tried > _RETRY):
            self._tried = now
            self._starting = asyncio.create_task(self._try())
        return self._problem or "starting"

    async def _try(self) -> None:
        try:
            await self._fold.choice()
            self._problem = ""
        except ToolfoldError as error:
            self._problem = error.message


def _answered(scope: Scope, body: dict[str, Any], status: int = 200) -> JSONResponse:
    if scope["method"] not in ("GET", "HEAD"):
        refusal = {"error": {"code": "method_not_allowed", "message": "Use GET.", "hint": ""}}
        return JSONResponse(refusal, 405, {"Allow": "GET, HEAD"})
    return JSONResponse(body, status, _HEADERS)
