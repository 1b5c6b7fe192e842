"""The folders that the client on stdio works in (its roots), for servers that ask for them.

Only there: one client, one person, one machine. Over HTTP many clients share the servers, and none of them is told what
another one has open.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import mcp_types as types
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from toolfold.gateway.elicitation import is_modern

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

_TIMEOUT = 5.0
_MOST = 100

_log = logging.getLogger(__name__)


class ClientRoots:
    """Asks the client each time: its person may have opened another folder meanwhile."""

    def __init__(self) -> None:
        self._ctx: ServerRequestContext[Any] | None = None

    def seen(self, ctx: ServerRequestContext[Any]) -> None:
        """The client has sent a request, so it is there and has said what it can do."""
        self._ctx = ctx

    async def __call__(self) -> list[dict[str, str]]:
        """What the client gives; nothing where it gives none, or not in time. A client of 2026-07-28 cannot be asked
        between its requests."""
        ctx = self._ctx
        capabilities = ctx.session.client_capabilities if ctx is not None and not is_modern(ctx) else None
        if ctx is None or capabilities is None or capabilities.roots is None:
            return []
        try:
            async with asyncio.timeout(_TIMEOUT):
                found = await ctx.session.send_request(types.ListRootsRequest(), types.ListRootsResult)
        except (MCPError, ValidationError, TimeoutError) as error:
            _log.warning("The client did not name its roots: %s", error)
            return []
        return [{"uri": str(root.uri), "name": root.name or ""} for root in found.roots[:_MOST]]
