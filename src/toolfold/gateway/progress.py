"""What a program prints and reports, as progress notifications while it runs."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from toolfold.guards.events import Event, Output, Progress

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

_REPORT_EVERY = 0.1
_MESSAGE_CHARS = 4000


class Reporter:
    """Sends what happens in a run to one request's client, a few times a second, if the client asked for progress."""

    def __init__(self, ctx: ServerRequestContext[Any]) -> None:
        self._session = ctx.session
        self.is_wanted = (ctx.meta or {}).get("progress_token") is not None
        self._pending: list[str] = []
        self._sent = 0
        self._more = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Reporter:
        if self.is_wanted:
            self._task = asyncio.create_task(self._report())
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            if exc[0] is None:
                await self._send()

    def on_event(self, event: Event) -> None:
        if self._task is None:
            return
        match event:
            case Output(text=text):
                self._pending.append(text)
            case Progress(text=text):
                self._pending.append(f"{text}\n")
            case _:
                return
        self._more.set()

    async def _report(self) -> None:
        while True:
            await self._more.wait()
            self._more.clear()
            await self._send()
            await asyncio.sleep(_REPORT_EVERY)

    async def _send(self) -> None:
        if self._pending:
            text = "".join(self._pending)
            self._pending.clear()
            self._sent += 1
            await self._session.report_progress(self._sent, message=text[-_MESSAGE_CHARS:])
