"""The way to a gateway's dashboard. Its pages are imported, and a listener started, on demand."""

from __future__ import annotations

import asyncio
import importlib
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolfold.gateway.dashboard.sign_in import SignIn

if TYPE_CHECKING:
    from collections.abc import Collection

    from starlette.types import Receive, Scope, Send

    from toolfold.fold import Toolfold
    from toolfold.gateway.dashboard.app import Dashboard
    from toolfold.gateway.questions import Questions
    from toolfold.telemetry.activity import Activity

_HOST = "127.0.0.1"


@dataclass(frozen=True)
class Address:
    """Where the dashboard is served. `hosts` are the accepted `Host` headers; none accepts any.

    `own_only`: only processes of the user who runs the gateway may connect, where the system can tell.
    """

    url: str
    port: int
    hosts: Collection[str]
    own_only: bool = True


class Door:
    """One per gateway; an ASGI application where the gateway serves HTTP. Leaving the context ends what it started."""

    def __init__(
        self, fold: Toolfold, questions: Questions, activity: Activity, *, command: str = "toolfold dashboard"
    ) -> None:
        """`command` is what a person types for a link."""
        self.fold = fold
        self.questions = questions
        self.activity = activity
        self.sign_in = SignIn()
        self.since = time.time()
        self.command = command
        self._address: Address | None = None
        self._dashboard: Dashboard | None = None
        self._opening = asyncio.Lock()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Door:
        self._stack.callback(self.fold.observers.add(self.activity))
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.activity.close()
        await self._stack.aclose()

    def serve_at(self, url: str, port: int, hosts: Collection[str], *, own_only: bool) -> None:
        """The gateway serves HTTP anyway, and the dashboard with it."""
        self._address = Address(url, port, hosts, own_only)

    async def make_link(self) -> str:
        """A link that signs its user in, once. Starts a listener on loopback where the gateway has none."""
        async with self._opening:
            if self._address is None:
                self._address = await self._listen()
        return self._link(self._address)

    def link_at_once(self) -> str:
        """The same, or nothing where a listener must be started first."""
        return self._link(self._address) if self._address is not None else ""

    def _link(self, address: Address) -> str:
        return f"{address.url}/dashboard/sign-in/{self.sign_in.make_link()}"

    async def _listen(self) -> Address:
        await asyncio.to_thread(importlib.import_module, "toolfold.gateway.dashboard.app")
        from toolfold.gateway.connections import Connections
        from toolfold.gateway.http import listen

        sock = listen(_HOST, 0)
        port: int = sock.getsockname()[1]
        await self._stack.enter_async_context(Connections(self, sock))
        return Address(f"http://{_HOST}:{port}", port, [f"{_HOST}:{port}", f"localhost:{port}"])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._dashboard is None:
            await asyncio.to_thread(importlib.import_module, "toolfold.gateway.dashboard.app")
            from toolfold.gateway.dashboard.app import Dashboard

            assert self._address is not None
            self._dashboard = self._dashboard or Dashboard(self, self._address)
        await self._dashboard(scope, receive, send)
