"""Agreeing on a protocol version with a server of either era.

Newer servers answer `server/discover`; older ones expect `initialize` first. The probe (`server/discover`) comes first,
because it is the only way to get the newer protocol, and most older servers just refuse it. Some exit or stop
answering: those raise `ProbeFailedError` and are started again without a probe.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from toolfold.definitions import OWN_NAME
from toolfold.upstream.remote import RefusedError, needs_authorization

if TYPE_CHECKING:
    from mcp.client.session import ClientSession
    from mcp.shared.exceptions import MCPError

Era = Literal["auto", "legacy"]
T = TypeVar("T")

PROBE_SHARE = 1 / 6
"""Share of the start timeout for the probe, once the server has read it; then `initialize` is sent too."""
AUTO_SHARE = 1 / 2
"""Share of the start timeout for the whole attempt with a probe; the rest is for the attempt without."""
POLL = 0.05


class ProbeFailedError(Exception):
    """The server exited or stopped answering after it was probed."""


class IncompatibleError(Exception):
    """The server speaks no protocol version that we do."""


class IsToolfoldError(Exception):
    """The server is a Toolfold gateway: this one, or one that might use us in turn."""


class Probed(Protocol):
    def probe_was_read(self) -> bool:
        """Whether the server has read what was sent to it, as far as that can be known."""
        ...


async def negotiate(session: ClientSession, transport: Probed, era: Era, budget: float) -> None:
    """Bring `session` to an agreed version. The overall time limit is the caller's."""
    await _negotiate(session, transport, era, budget)
    if session.server_info is not None and session.server_info.name == OWN_NAME:
        raise IsToolfoldError


async def _negotiate(session: ClientSession, transport: Probed, era: Era, budget: float) -> None:
    from mcp.shared.exceptions import MCPError
    from mcp_types import CONNECTION_CLOSED
    from pydantic import ValidationError

    if era == "legacy":
        await _initialize(session)
        return
    timer = _AnswerTimer(transport)
    refused: int | None = None
    try:
        try:
            await timer.wait(session.discover(), budget * PROBE_SHARE)
            return
        except MCPError as error:
            if _only_newer(error):
                raise IncompatibleError(_offered(error)) from None
            if error.code == CONNECTION_CLOSED:
                raise
            refused = getattr(transport, "status", None)
        except (ValidationError, RuntimeError, TimeoutError):
            pass  # an invalid answer, or none: no evidence of a newer server
        await timer.wait(_initialize(session), budget * (AUTO_SHARE - PROBE_SHARE))
    except TimeoutError:
        raise ProbeFailedError("it read the first request and did not answer") from None
    except MCPError as error:
        if error.code == CONNECTION_CLOSED and transport.probe_was_read():
            raise ProbeFailedError("it exited after the first request") from error
        if needs_authorization(refused):
            # A newer server that wants a token first; that it does not know `initialize` says nothing.
            raise RefusedError(refused) from error
        raise


async def _initialize(session: ClientSession) -> None:
    from mcp.shared.exceptions import MCPError
    from mcp_types import UNSUPPORTED_PROTOCOL_VERSION

    try:
        await session.initialize()
    except MCPError as error:
        # A slow newer server may have answered the late probe first: it refuses `initialize` and is probed again.
        if error.code != UNSUPPORTED_PROTOCOL_VERSION:
            raise
        await session.discover()


class _AnswerTimer:
    """Waits for answers. Time counts from when the server has read what was sent to it: one that is still being
    downloaded or built is slow, not silent."""

    def __init__(self, transport: Probed) -> None:
        self._transport = transport
        self._listening = False

    async def wait(self, work: Coroutine[Any, Any, T], seconds: float) -> T:
        task = asyncio.ensure_future(work)
        clock = asyncio.get_running_loop().time
        since = clock()
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=min(seconds, POLL))
                if not self._listening:
                    since = clock()
                    self._listening = self._transport.probe_was_read()
                if not task.done() and self._listening and clock() - since >= seconds:
                    raise TimeoutError
            return task.result()
        finally:
            task.cancel()


def _offered(error: MCPError) -> str:
    match error.error.data:
        case {"supported": [*versions]}:
            return ", ".join(str(version) for version in versions)
        case _:
            return ""


def _only_newer(error: MCPError) -> bool:
    """The server named versions, and none of them is one that `initialize` could agree on."""
    from mcp_types import UNSUPPORTED_PROTOCOL_VERSION
    from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

    if error.code != UNSUPPORTED_PROTOCOL_VERSION or not (offered := _offered(error)):
        return False
    return not any(version in HANDSHAKE_PROTOCOL_VERSIONS for version in offered.split(", "))
